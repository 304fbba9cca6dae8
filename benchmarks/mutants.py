"""How strong the judge is: broken kernels of 22 problems of different kinds, and which of them it lets pass.

    python benchmarks/mutants.py --output benchmarks/cpu/mutants.jsonl
    python benchmarks/mutants.py --table benchmarks/cpu/mutants.jsonl

Of each problem in `benchmarks/problems` two programs are broken: the first one, and one improved by every structural action
that applies. A row is one mutant. Programs that are there already are not tried again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtmc.assembly import Setup
    from mtmc.judge.judge import Judge
    from mtmc.judge.mutants import Trial
    from mtmc.program import Program

PROBLEMS = Path(__file__).parent / "problems"
STRUCTURAL = (
    "fuse_prologue",
    "fuse_epilogue",
    "merge_passes",
    "fuse_second_pass",
    "split_fp16",
    "swizzle",
    "split_reduction",
)
MOST = 12  # actions in a row
ASSEMBLING = Lock()  # torch.export keeps global state: one thread at a time


def improved(setup: Setup, kinds: tuple[str, ...] = STRUCTURAL) -> Program:
    """The first program after every action of these kinds that applies, in order, each kind until none is left."""
    from mtmc.errors import Illegal

    program, verdict = setup.first, setup.judge.judge(setup.first)
    for _ in range(MOST):
        for action in sorted(setup.moves.propose(program, verdict), key=lambda a: _rank(a.kind, kinds)):
            if action.kind not in kinds:
                continue
            try:
                program = setup.moves.apply(program, action).after
                break
            except Illegal:
                continue
        else:
            break
    return program


def _rank(kind: str, kinds: tuple[str, ...]) -> int:
    return kinds.index(kind) if kind in kinds else len(kinds)


def rows(name: str, which: str, setup: Setup, program: Program, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row a mutant; one row alone when the program itself is not verified."""
    from mtmc.judge.mutants import mutants, same_bits, tried, verdicts

    judge: Judge = setup.judge  # type: ignore[assignment]
    head = {"problem": name, "program": which}
    verdict = judge.judge(program)
    if not verdict.correct:
        yield {**head, "unverified": verdict.to_json()}
        return
    made = mutants(program.source, arguments.seed, arguments.count)
    for trial in tried(made, verdicts(judge), same_bits(judge, program.source)):
        yield {**head, **_row(trial, program)}


def _row(trial: Trial, program: Program) -> dict[str, Any]:
    mutant, text = trial.mutant, program.source.splitlines()
    found: dict[str, Any] = {"kind": mutant.kind, "line": mutant.line, "what": mutant.what, "killed": trial.killed}
    if trial.killed:
        return {**found, "by": trial.by}
    function = next((r.name for r in program.regions.values() if r.first_line <= mutant.line <= r.last_line), "")
    return {**found, "equal": trial.equal, "in": function, "was": text[mutant.line - 1].strip(), "status": trial.by}


def one(path: Path, arguments: argparse.Namespace, there: set[tuple[str, str]]) -> Iterator[list[dict[str, Any]]]:
    from mtmc.assembly import Options, assemble
    from mtmc.judge.judge import Deadlines
    from mtmc.problem import load

    wanted = [which for which in arguments.programs if (path.stem, which) not in there]
    if not wanted:
        return
    with ASSEMBLING:
        setup = assemble(load(path), Options(gpu=arguments.gpu, measure=False, cache_days=0), lambda _: None)
    deadlines = Deadlines(compile=300, verify=300, time=300)
    setup = replace(setup, judge=replace(setup.judge, deadlines=deadlines))  # type: ignore[type-var]
    try:
        for which in wanted:
            program = setup.first if which == "first" else improved(setup)
            if which == "improved" and program.key == setup.first.key:
                continue
            yield list(rows(path.stem, which, setup, program, arguments))
    finally:
        setup.judge.close()


def run(arguments: argparse.Namespace) -> None:
    there = {(found["problem"], found["program"]) for found in _read(arguments.output)}
    files = [path for path in sorted(PROBLEMS.glob("*.py")) if not arguments.problems or path.stem in arguments.problems]
    with arguments.output.open("a") as out, ThreadPoolExecutor(arguments.jobs) as pool:

        def work(path: Path) -> None:
            began = time.monotonic()
            for made in one(path, arguments, there):
                out.write("".join(json.dumps(row) + "\n" for row in made))
                out.flush()
                lost = [f"{r['kind']} {r['what']}" for r in made if not r.get("killed")]
                print(f"{path.stem} {made[0]['program']}: {len(made)}, {time.monotonic() - began:.0f} s; {lost}", flush=True)

        list(pool.map(work, files))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(path: Path) -> None:
    """Markdown: kill rate by kind, what killed them, and the survivors."""
    found = [row for row in _read(path) if "kind" in row]
    print("| kind | mutants | killed | rate | survivors: same bits | other bits |\n|---|---|---|---|---|---|")
    for kind in (*dict.fromkeys(sorted(row["kind"] for row in found)), "all"):
        mine = [row for row in found if kind in (row["kind"], "all")]
        killed, same = sum(row["killed"] for row in mine), sum(row.get("equal") is True for row in mine)
        print(f"| {kind} | {len(mine)} | {killed} | {killed / len(mine):.1%} | {same} | {len(mine) - killed - same} |")
    by = Counter(row["by"] for row in found if row["killed"])
    print(f"\nKilled by: {', '.join(f'{name} {times}' for name, times in by.most_common())}.\n")
    print("| problem | program | kind | change | line | bits |\n|---|---|---|---|---|---|")
    for row in found:
        if not row["killed"]:
            bits = "same" if row["equal"] else "other"
            cells = [row["problem"], row["program"], row["kind"], row["what"], f"`{row['was']}`", bits]
            print(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=[], help="only these, by file name without .py")
    parser.add_argument("--programs", nargs="+", default=["first", "improved"], choices=("first", "improved"))
    parser.add_argument("--count", type=int, default=12, help="mutants a program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--jobs", type=int, default=2, help="problems side by side")
    parser.add_argument("--output", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--table", type=Path, help="print the tables of an earlier run")
    arguments = parser.parse_args()
    table(arguments.table) if arguments.table else run(arguments)


if __name__ == "__main__":
    main()
