"""How much of a folder of problems our first programs cover, on a machine without a GPU.

    python benchmarks/coverage.py --path KernelBench --levels 1 2 3 --gpu h100 --output coverage.jsonl
    python benchmarks/coverage.py --table coverage.jsonl

Each problem is loaded, captured, lowered, compiled for the GPU at full size, and verified in the interpreter at small sizes.
A row tells the share of the predicted time that our kernels have. Rows that are there already are not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

EXPORTING = Lock()  # torch.export keeps global state: one thread at a time
DOMINANT = 0.5  # share of the predicted time from which on the main work counts as ours


def row(file: Path, gpu: str, executor: Any, seconds: float) -> dict[str, Any]:
    """One problem, whatever comes of it."""
    from mtmc.capture import capture
    from mtmc.errors import MtmcError
    from mtmc.hardware_profiles import load as profile
    from mtmc.judge.jobs import Compiled
    from mtmc.judge.judge import Deadlines, Judge
    from mtmc.lower import lower
    from mtmc.problem import load
    from mtmc.shrink import find

    began = time.monotonic()
    try:
        with EXPORTING:
            problem = load(file)
            captured = capture(problem)
            small = find(problem, graph=captured.graph) if captured.graph else None
            lowering = lower(problem, captured, small.graphs if small else ())
    except MtmcError as error:
        return {"problem": file.stem, "refused": str(error)}
    sizes = zip(small.variants, lowering.sizes, strict=False) if small else ()
    variants = tuple((variant, found) for variant, found in sizes if found is not None)
    judge = Judge(executor, problem, profile(gpu), variants, deadlines=Deadlines(compile=seconds, verify=seconds))
    compiled = judge.compile_many([lowering.program])[0]
    found = {
        "problem": file.stem,
        "exported": captured.graph is not None,
        "reason": captured.reason,
        "units": len(lowering.program.units),
        "fallback_calls": lowering.program.fallback_calls,
        "variants": len(variants),
        "compiled": isinstance(compiled, Compiled),
    }
    if isinstance(compiled, Compiled):
        times = compiled.prediction.kernels_ms
        ours = sum(ms for name, ms in times.items() if name.endswith("_kernel"))
        found["share"] = ours / max(sum(times.values()), 1e-9)
    else:
        found["verdict"] = compiled.to_json()
        return found
    if variants:
        verdict = judge.judge(lowering.program)
        found["status"] = verdict.status
        if verdict.status != "verified":
            found["verdict"] = verdict.to_json()
    return found | {"seconds": round(time.monotonic() - began, 1)}


def files(path: Path, levels: list[int]) -> Iterator[tuple[str, Path]]:
    for level in levels:
        for file in sorted((path / "KernelBench" / f"level{level}").glob("*.py"), key=lambda f: int(f.stem.split("_")[0])):
            yield f"{level}/{file.stem.split('_')[0]}", file


def run(arguments: argparse.Namespace) -> None:
    from mtmc.judge.executor import Limits, LocalProcesses

    there = (
        {json.loads(line)["name"] for line in arguments.output.read_text().splitlines()}
        if arguments.output.exists()
        else set()
    )
    limits = Limits(workers={"compile": 2, "interpret": 2, "gpu": 1})
    with LocalProcesses(arguments.cache, limits, trusting=True) as executor, arguments.output.open("a") as out:

        def one(item: tuple[str, Path]) -> None:
            name, file = item
            found = {"name": name, **row(file, arguments.gpu, executor, arguments.seconds)}
            out.write(json.dumps(found) + "\n")
            out.flush()
            print(name, found.get("status") or found.get("verdict") or found.get("refused") or "compiled", flush=True)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, [item for item in files(arguments.path, arguments.levels) if item[0] not in there]))


def table(path: Path) -> None:
    """Markdown: how many problems of each level, by what our kernels do."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    heads = ["level", "problems", "exported whole", "compiled", *(f"{k} ours" for k in ("all", "dominant", "some", "none"))]
    heads += ["verified", "failed", "not shrunk"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for level in sorted({r["name"].split("/")[0] for r in rows}):
        mine = [r for r in rows if r["name"].split("/")[0] == level]
        kinds = Counter(_kind(r) for r in mine)
        status = Counter(r.get("status", "none") for r in mine)
        failed = sum(n for s, n in status.items() if s not in ("verified", "none"))
        cells = [len(mine), sum(r.get("exported", False) for r in mine), sum(r.get("compiled", False) for r in mine)]
        cells += [kinds[k] for k in ("all", "dominant", "some", "none")] + [status["verified"], failed, status["none"]]
        print(f"| {level} | {' | '.join(map(str, cells))} |")


def _kind(found: dict[str, Any]) -> str:
    if not found.get("units"):
        return "none"
    if not found["fallback_calls"]:
        return "all"
    return "dominant" if found.get("share", 0) >= DOMINANT else "some"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--seconds", type=float, default=300.0, help="deadline of one compilation or verification")
    parser.add_argument("--output", type=Path, default=Path("coverage.jsonl"))
    parser.add_argument("--cache", type=Path, default=Path(".bench/cache"))
    parser.add_argument("--table", type=Path, help="print the table of an earlier run")
    arguments = parser.parse_args()
    table(arguments.table) if arguments.table else run(arguments)


if __name__ == "__main__":
    main()
