"""How strong the judge is: broken kernels of 22 problems of different kinds, and which of them it lets pass.

    python benchmarks/mutants.py --output benchmarks/cpu/mutants.jsonl
    python benchmarks/mutants.py --table benchmarks/cpu/mutants.jsonl

Of each problem in `benchmarks/problems` two programs are broken: the first one, and one improved by every structural action
that applies. A row is one mutant. Those that are there already are not tried again.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from mtmc.verdict import Infra

if TYPE_CHECKING:
    from mtmc.assembly import Rules
    from mtmc.judge.executor import Executor
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
Key = tuple[str, str, str, int, str]
ASSEMBLING = Lock()  # torch.export keeps global state: one thread at a time


@dataclass(frozen=True)
class Case:
    """A problem with its first program, the rules that improve it, and its judge."""

    name: str
    first: Program
    rules: Rules
    judge: Judge

    def program(self, which: str) -> Program:
        """`first`, or `improved`: after every structural action that applies, in order, each kind until none is left."""
        from mtmc.errors import Illegal

        program = self.first
        for _ in range(MOST if which == "improved" else 0):
            for action in sorted(self.rules.propose(program, Infra("not judged")), key=lambda action: _rank(action.kind)):
                if action.kind not in STRUCTURAL:
                    continue
                try:
                    program = self.rules.apply(program, action).after
                    break
                except Illegal:
                    continue
            else:
                break
        return program


def _rank(kind: str) -> int:
    return STRUCTURAL.index(kind) if kind in STRUCTURAL else len(STRUCTURAL)


def case(path: Path, executor: Executor, gpu: str) -> Case:
    """What `assemble` does, with workers that all problems share."""
    from mtmc.assembly import Rules, variants_with_sizes
    from mtmc.capture import capture
    from mtmc.hardware_profiles import load as profile
    from mtmc.judge.judge import Deadlines, Judge
    from mtmc.lower import lower
    from mtmc.problem import load
    from mtmc.shrink import find

    problem = load(path)
    captured = capture(problem)
    assert captured.graph is not None
    small = find(problem, graph=captured.graph)
    lowering = lower(problem, captured, small.graphs)
    assert lowering.graph is not None
    deadlines = Deadlines(compile=600, verify=600, time=600)
    variants = variants_with_sizes(small.variants, lowering)
    judge = Judge(executor, problem, profile(gpu), variants, deadlines=deadlines)
    return Case(path.stem, lowering.program, Rules(lowering.graph, profile(gpu), "strict"), judge)


def rows(case: Case, which: str, arguments: argparse.Namespace, done: set[Key]) -> Iterator[dict[str, Any]]:
    """One row a mutant; one row alone when the program itself is not verified."""
    from mtmc.judge.mutants import mutants, same_bits, tried, verdicts

    program = case.program(which)
    if which == "improved" and program.key == case.first.key:
        return
    head = {"problem": case.name, "program": which}
    verdict = case.judge.judge(program)
    if not verdict.correct:
        yield {**head, "unverified": verdict.to_json()}
        return
    judge, same = verdicts(case.judge), same_bits(case.judge, program.source)
    for mutant in mutants(program.source, arguments.seed, arguments.count):
        if (case.name, which, mutant.kind, mutant.line, mutant.what) not in done:
            yield {**head, **_row(tried([mutant], judge, same)[0], program)}


def _row(trial: Trial, program: Program) -> dict[str, Any]:
    mutant, text = trial.mutant, program.source.splitlines()
    found: dict[str, Any] = {"kind": mutant.kind, "line": mutant.line, "what": mutant.what, "killed": trial.killed}
    if trial.killed:
        return {**found, "by": trial.by}
    function = next((r.name for r in program.regions.values() if r.first_line <= mutant.line <= r.last_line), "")
    return {**found, "equal": trial.equal, "in": function, "was": text[mutant.line - 1].strip(), "status": trial.by}


def run(arguments: argparse.Namespace) -> None:
    from mtmc.judge.executor import Limits, LocalProcesses

    done = {_key(found) for found in _read(arguments.output)}
    files = [path for path in sorted(PROBLEMS.glob("*.py")) if not arguments.problems or path.stem in arguments.problems]
    limits = Limits(workers={"compile": arguments.jobs, "interpret": arguments.jobs, "gpu": 1})
    with arguments.output.open("a") as out, LocalProcesses(arguments.cache, limits) as executor:

        def work(path: Path) -> None:
            with ASSEMBLING:
                made = case(path, executor, arguments.gpu)
            for which in arguments.programs:
                for row in rows(made, which, arguments, done):
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    print(made.name, which, row.get("kind"), row.get("by") or f"SURVIVED {row}", flush=True)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(work, files))


def _key(found: dict[str, Any]) -> Key:
    return found["problem"], found["program"], found.get("kind", ""), found.get("line", 0), found.get("what", "")


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
    parser.add_argument("--jobs", type=int, default=2, help="problems, and workers of a kind, side by side")
    parser.add_argument("--cache", type=Path, default=Path(".bench/cache"))
    parser.add_argument("--output", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--table", type=Path, help="print the tables of an earlier run")
    arguments = parser.parse_args()
    table(arguments.table) if arguments.table else run(arguments)


if __name__ == "__main__":
    main()
