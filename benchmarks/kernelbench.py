"""Optimise KernelBench problems on the local GPU, one process a problem, and write one JSON line each.

    python benchmarks/kernelbench.py --path KernelBench --problems 1/19 2/12 --output rows.jsonl
    python benchmarks/kernelbench.py --path KernelBench --check rows.jsonl --output checked.jsonl

Eager, torch.compile and ours are interleaved in one process per problem (the last judgement). `--check` asks KernelBench's
own `eval_kernel_against_ref` for a second opinion, TF32 off on both sides. Rows hold figures only, nothing of KernelBench.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def problem_file(path: Path, name: str) -> Path:
    """`1/19` -> the file of level 1, problem 19."""
    level, number = name.split("/")
    return next((path / "KernelBench" / f"level{level}").glob(f"{number}_*.py"))


def optimise(file: Path, name: str, run: Path, budget: int, minutes: float) -> dict[str, Any]:
    """One run; when nothing beat eager, the best verified program is judged the last time all the same."""
    from mtmc.assembly import Options, assemble
    from mtmc.optimizer import optimize_problem
    from mtmc.problem import load
    from mtmc.trajectories.store import Run
    from mtmc.tree import Tree

    problem = load(file)
    options = Options(budget=budget, minutes=minutes, keep_going=True, library=False, cache_days=0, measure=True)
    began = time.monotonic()
    result = optimize_problem(problem, options, run)
    found = Run.open(run)
    tree = Tree(found.steps())
    row: dict[str, Any] = {"problem": f"{name} {file.stem}", "reason": result.reason, "candidates": len(result.steps)}
    if not tree.best:
        return row | {"failed": [s.verdict.to_json() for s in result.steps][:1], "seconds": time.monotonic() - began}
    verdict, program = result.verdict, found.program(tree.best)
    if verdict is None:
        setup = assemble(problem, options, lambda _: None)
        try:
            verdict = setup.judge.final(program)
        finally:
            setup.judge.close()
    else:
        assert result.source is not None
        program = type(program)(result.source)
    path = [s for s in result.path if s.action] if result.path else [s for s in tree.path(tree.best) if s.action]
    return row | {
        "verdict": verdict.to_json(),
        "beats_eager": result.verdict is not None,
        "fallback_calls": program.fallback_calls,
        "units": len(program.units),
        "path": [s.action.id for s in path if s.action],
        "most_lines": max((s.changed_lines for s in path), default=0),
        "seconds": round(time.monotonic() - began, 1),
    }


def check(file: Path, source: str, trials: int) -> dict[str, Any]:
    """KernelBench's own verdict, with TF32 off."""
    import torch

    _without_clients()
    from kernelbench.eval import eval_kernel_against_ref

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_default_device("cuda")
    found = eval_kernel_against_ref(
        file.read_text(), source, num_correct_trials=trials, measure_performance=False, backend="triton"
    )
    return {
        "compiled": found.compiled,
        "correctness": found.correctness,
        "metadata": {k: str(v) for k, v in found.metadata.items()},
    }


def _without_clients() -> None:
    """Empty stand-ins for the LLM clients that the evaluator's package imports and the evaluator never calls."""
    for name, members in {
        "openai": ["OpenAI"],
        "litellm": ["completion"],
        "dotenv": ["load_dotenv"],
        "requests": [],
    }.items():
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, lambda *_, **__: None)
        sys.modules.setdefault(name, module)


def one(arguments: argparse.Namespace) -> None:
    name = arguments.one
    file = problem_file(arguments.path, name)
    folder = arguments.runs / name.replace("/", "-")
    if arguments.check:
        sys.path.insert(0, str(arguments.path / "src"))
        source = (folder / "optimized.py").read_text() if (folder / "optimized.py").exists() else _best_source(folder)
        row = {"problem": name, **check(file, source, arguments.trials)}
    else:
        row = optimise(file, name, folder, arguments.budget, arguments.minutes)
    with arguments.output.open("a") as out:
        out.write(json.dumps(row) + "\n")


def _best_source(folder: Path) -> str:
    from mtmc.trajectories.store import Run
    from mtmc.tree import Tree

    run = Run.open(folder)
    return run.program(Tree(run.steps()).best).source


def many(arguments: argparse.Namespace) -> None:
    """All problems, a few side by side: they share the GPU by turns, and the cores for compiling."""
    deadline = time.monotonic() + arguments.seconds

    def start(name: str) -> None:
        if time.monotonic() > deadline:
            print(f"{name}: not started, the time is over", flush=True)
            return
        command = [sys.executable, __file__, "--one", name, *sys.argv[1:]]
        began = time.monotonic()
        limit = max(deadline + 60 - began, 60)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            tail = done.stderr.strip().splitlines()[-1:] if done.returncode else ["ok"]
        except subprocess.TimeoutExpired:
            tail = ["stopped: over the time"]
        print(f"{name}: {' '.join(tail)} ({time.monotonic() - began:.0f} s)", flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(start, arguments.problems))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="a checkout of KernelBench")
    parser.add_argument("--problems", nargs="+", default=[], help="level/number, as in 1/19")
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, appended")
    parser.add_argument("--runs", type=Path, default=Path("runs/kernelbench"), help="run folders")
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no new problem after this long")
    parser.add_argument("--check", action="store_true", help="ask KernelBench's evaluator about earlier runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    (one if arguments.one else many)(arguments)


if __name__ == "__main__":
    main()
