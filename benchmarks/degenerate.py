"""Which problems of a folder accept candidates that do no work, with the evidence for each.

    python benchmarks/degenerate.py --path KernelBench --output degenerate.jsonl                 (CPU, small if it must be)
    python benchmarks/degenerate.py --path KernelBench --output degenerate.jsonl --device cuda   (full size)
    python benchmarks/degenerate.py --table degenerate.jsonl

A row holds figures only: which trivial candidates pass by the judge's rule and by a plain allclose of 1e-4, the outputs'
range, and how much the output changes with each input, with the weights, and along each of its own axes. Rows that are there
are not made again.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from mtmc.judge.trivial import Trials
    from mtmc.problem import Problem

FLOPS, ELEMENTS = 5e9, 6e6  # what the CPU does at full size
SMALL = (1e9, 4e6)  # and what it is shrunk to otherwise
ORACLE_S = 0.02  # a reference that takes longer on a GPU is its own oracle
PIECE = 1 << 26  # elements compared at a time
KERNELBENCH = 1e-4  # absolute and relative tolerance for fp32


def row(problem: Problem, device: str, seed: int) -> dict[str, Any]:
    """The evidence on one problem at the size given."""
    from mtmc.judge.accuracy import rule
    from mtmc.judge.trivial import trials

    began = time.monotonic()
    made = trials(problem, device, seed, with_oracle=device == "cpu")
    if made is None:
        return {"skipped": "no tensor comes out"}
    if device != "cpu" and _seconds(made) < ORACLE_S:
        made = _with_oracle(made, seed)
    chosen = rule("strict") if device != "cpu" else rule("strict").for_small_sizes()
    accepted = made.accepted(chosen)
    loose = [name for name, found in made.candidates() if _close(found, made.outputs)]
    return {
        "accepted": accepted,
        "accepted_1e-4": loose,
        "accepted_on_all_draws": _everywhere(problem, seed) if accepted and device == "cpu" else None,
        "oracle": made.exacts is not None,
        "inputs": [list(x.shape) for x in _tensors(made.inputs)],
        "outputs": [_figures(y) for y in made.outputs],
        "change_with_all_inputs": _changes(made.before, made.outputs),
        "change_with_input": _by_input(problem, made, device, seed),
        "change_with_weights": _by_weights(problem, made, device, seed),
        "buffers_written": _buffers_written(made),
        "seconds": round(time.monotonic() - began, 2),
    }


def _everywhere(problem: Problem, seed: int) -> dict[str, tuple[str, ...]]:
    """The candidates that pass on every distribution that the problem takes, and these."""
    from mtmc.judge.draws import usable
    from mtmc.judge.trivial import trivial

    found = trivial(problem, seed=seed, names=usable(problem, seed))
    return {"candidates": found.everywhere, "draws": found.draws}


def _buffers_written(made: Trials) -> int:
    """How many buffers a call changes: the judge compares them beside the outputs."""
    import torch

    from mtmc.judge.observed import observe

    seen = observe(lambda: made.model(*made.inputs), made.model, made.inputs, 0)
    return sum(not torch.equal(seen.buffers[name], buffer) for name, buffer in made.model.named_buffers())


def _tensors(tree: Any) -> list[torch.Tensor]:
    from mtmc.judge.device import tensors

    return tensors(tree)


def _seconds(made: Trials) -> float:
    """One more call of the reference, on the wall."""
    from mtmc.judge.device import synchronize

    began = time.monotonic()
    _call(made.model, made.inputs, 0)
    synchronize()
    return time.monotonic() - began


def _with_oracle(made: Trials, seed: int) -> Trials:
    from dataclasses import replace

    from mtmc.judge.trivial import exacts

    size = sum(y.numel() * y.element_size() for y in [*_tensors(made.inputs), *made.outputs])
    return replace(made, exacts=exacts(made.model, made.inputs, seed, 2 * size))


def _call(model: torch.nn.Module, inputs: tuple[Any, ...], seed: int) -> list[torch.Tensor]:
    """Outputs; buffers and the random state are as before for the next call."""
    import torch

    kept = [(b, b.clone()) for b in model.buffers()]
    torch.manual_seed(seed)
    with torch.no_grad():
        found = [y for y in _tensors(model(*inputs)) if y.numel()]
        for buffer, old in kept:
            buffer.copy_(old)
    return found


def _by_input(problem: Problem, made: Trials, device: str, seed: int) -> list[float | None]:
    """Relative change of the outputs when one tensor among the inputs is drawn anew."""
    from torch.utils._pytree import tree_flatten, tree_unflatten

    from mtmc.problem import instantiate

    leaves, form = tree_flatten(made.inputs)
    others = tree_flatten(instantiate(problem, device, seed + 1).inputs)[0]
    found: list[float | None] = []
    for place, (mine, other) in enumerate(zip(leaves, others, strict=True)):
        if not hasattr(mine, "numel"):
            continue
        if mine.shape != other.shape:
            found.append(None)
            continue
        inputs = tree_unflatten([*leaves[:place], other, *leaves[place + 1 :]], form)
        found.append(_changes(_call(made.model, inputs, seed), made.outputs))
    return found


def _by_weights(problem: Problem, made: Trials, device: str, seed: int) -> float | None:
    """The same with a model built from another seed; None without parameters."""
    from mtmc.problem import instantiate

    if not list(made.model.parameters()):
        return None
    return _changes(_call(instantiate(problem, device, seed + 1).model, made.inputs, seed), made.outputs)


def _changes(a: list[torch.Tensor], b: list[torch.Tensor]) -> float | None:
    """Norm of the difference over the norm, the largest over the outputs; None where shapes differ or nothing is finite."""
    if [x.shape for x in a] != [y.shape for y in b]:
        return None
    return _number(max(_relative(x, y) for x, y in zip(a, b, strict=True)))


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    if not (a.is_floating_point() or a.is_complex()):
        return sum(float((x != y).sum()) for x, y in _pieces(a, b)) / a.numel()
    norm, off = float(b.norm()), math.hypot(*(float((x - y).norm()) for x, y in _pieces(a, b)))
    return off / norm if norm else float(off > 0)


def _close(found: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    import torch

    pieces = [pair for y, r in zip(found, outputs, strict=True) for pair in _pieces(y, r)]
    return all(torch.allclose(y, r, rtol=KERNELBENCH, atol=KERNELBENCH) for y, r in pieces)


def _pieces(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Equal slices along dimension 0, small beside what the tensors take."""
    if not a.ndim:
        yield a, b
        return
    rows = max(1, PIECE * a.shape[0] // a.numel())
    yield from zip(a.split(rows), b.split(rows), strict=True)


def _figures(y: torch.Tensor) -> dict[str, Any]:
    """Shape, dtype, mean, spread and range; `axes` is the mean spread along each axis (0 means constant along it)."""
    facts: dict[str, Any] = {"shape": list(y.shape), "dtype": str(y.dtype).removeprefix("torch.")}
    if y.is_complex():
        return facts
    if not y.is_floating_point():
        return facts | {"min": int(y.min()), "max": int(y.max())}
    spread = [float(y.std(axis, correction=0).mean()) for axis in range(y.ndim)]
    figures = {"mean": y.mean(), "std": y.std(correction=0), "min": y.min(), "max": y.max()}
    return facts | {name: _number(float(value)) for name, value in figures.items()} | {"axes": [_number(s) for s in spread]}


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def at_size(problem: Problem, device: str) -> tuple[Problem, str]:
    """The problem as it is where the device can do it, else its largest small variant; and which."""
    from mtmc.shrink import shrink, trace

    if device != "cpu":
        return problem, "full"
    needed = trace(problem)
    if needed.flops <= FLOPS and needed.elements <= ELEMENTS:
        return problem, "full"
    found = shrink(problem, *SMALL)
    return (found[-1], "small") if found else (problem, "too large")


def one(file: Path, device: str, seed: int) -> dict[str, Any]:
    from mtmc.errors import MtmcError
    from mtmc.problem import load

    try:
        problem, size = at_size(load(file), device)
        if size == "too large":
            return {"size": size, "skipped": "too large for the CPU, and no smaller size was found"}
        return {"size": size, **row(problem, device, seed)}
    except MtmcError as error:
        return {"skipped": str(error)}
    except RuntimeError as error:  # out of memory among them
        return {"skipped": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def files(path: Path, levels: list[int]) -> Iterator[tuple[str, Path]]:
    for level in levels:
        for file in sorted((path / "KernelBench" / f"level{level}").glob("*.py"), key=lambda f: int(f.stem.split("_")[0])):
            yield f"{level}/{file.stem.split('_')[0]}", file


def run(arguments: argparse.Namespace) -> None:
    import torch

    warnings.filterwarnings("ignore")
    there = {_key(json.loads(line)) for line in _lines(arguments.output)}
    wanted = set(arguments.problems)
    with arguments.output.open("a") as out:
        for name, file in files(arguments.path, arguments.levels):
            if (name, arguments.device) in there or (wanted and name not in wanted):
                continue
            began = time.monotonic()
            found = {"problem": name, "device": arguments.device, **one(file, arguments.device, arguments.seed)}
            out.write(json.dumps(found) + "\n")
            out.flush()
            gc.collect()
            if arguments.device != "cpu":
                torch.cuda.empty_cache()
            if "CUDA error" in found.get("skipped", ""):
                raise SystemExit(f"{name} left the GPU unusable for this process; it is noted, run again to go on")
            said = found.get("skipped") or found["accepted"] or found["accepted_1e-4"] or "-"
            print(f"{name} {time.monotonic() - began:.1f} s", found.get("size"), said, flush=True)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _key(found: dict[str, Any]) -> tuple[str, str]:
    return found["problem"], found["device"]


def table(path: Path) -> None:
    """Markdown: the problems that accept something, one line each."""
    rows = [json.loads(line) for line in _lines(path)]
    print("| problem | size | passes the judge | passes 1e-4 | mean | std | changes with inputs | with weights |")
    print("|---|---|---|---|---|---|---|---|")
    for found in rows:
        if not (found.get("accepted") or found.get("accepted_1e-4")):
            continue
        y = found["outputs"][0]
        cells = [found["problem"], f"{found['size']} ({found['device']})"]
        cells += [", ".join(found[k]) or "–" for k in ("accepted", "accepted_1e-4")]
        cells += [_cell(v) for v in (y.get("mean"), y.get("std"))]
        cells += [_cell(found["change_with_all_inputs"]), _cell(found["change_with_weights"])]
        print(f"| {' | '.join(cells)} |")
    skipped = [f"{found['problem']} ({found['device']}): {found['skipped']}" for found in rows if "skipped" in found]
    print(f"\n{len(rows)} rows; not run: {'; '.join(skipped) or 'none'}")


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--problems", nargs="*", default=[], help="only these, e.g. 2/23")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("degenerate.jsonl"))
    parser.add_argument("--table", type=Path, help="print the table of an earlier run")
    arguments = parser.parse_args()
    table(arguments.table) if arguments.table else run(arguments)


if __name__ == "__main__":
    main()
