"""Runs cases of lowering_cases.py in the repaired interpreter; prints {case: what is wrong, or null} as JSON.

TRITON_INTERPRET=1 python tests/cpu/lowering_checks.py [CASE …]
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from lowering_cases import CASES, SIZES, Case, source
from torch.utils._pytree import tree_leaves, tree_structure

from mtmc.capture import capture
from mtmc.judge import candidate, interpreter
from mtmc.lower import lower
from mtmc.problem import Problem, instantiate

GROUP = 24  # cases in one model
LIMITS = {torch.float64: 1e-14, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(names: Sequence[str]) -> dict[str, str | None]:
    """What is wrong with each case. All run as one model; only if something is wrong does each run alone, to tell which."""
    found = wrong(names)
    if found is None:
        return dict.fromkeys(names)
    if len(names) == 1:
        return {names[0]: found}
    alone = {name: wrong([name]) for name in names}
    return alone if any(alone.values()) else {**alone, names[0]: f"only together with {names[1:]}: {found}"}


def wrong(names: Sequence[str]) -> str | None:
    """What is wrong with the lowered program of some cases, at either size."""
    torch.manual_seed(0)
    try:
        return mistake([CASES[name] for name in names])
    except Exception:  # noqa: BLE001  one case must not hide the others
        return traceback.format_exc()


def mistake(cases: Sequence[Case]) -> str | None:
    text = source(cases)
    Path("model.py").write_text(text)
    problem = Problem("cases", text, "model.py")
    variant = dataclasses.replace(problem, overrides=tuple(SIZES[1].items()))
    full, other = capture(problem), capture(variant)
    if full.graph is None or other.graph is None:
        return f"not captured: {full.reason or other.reason}"
    lowered = lower(problem, full, [other.graph])
    kept = sorted(op for case in cases for op in case.kept)
    if sorted(lowered.program.fallback_calls) != kept:
        return f"PyTorch calls {lowered.program.fallback_calls}: {lowered.reasons}"
    if lowered.sizes[0] is None:
        return "the text at the other size differs"
    for which, sizes in ((problem, None), (variant, lowered.sizes[0])):
        with candidate.imported(lowered.program.source, sizes) as module:
            if found := different(which, module, [case.slack for case in cases]):
                return f"{found}\n{lowered.program.source}"
    return None


def different(problem: Problem, module: ModuleType, slacks: Sequence[float]) -> str | None:
    """How the program's results differ from eager's: values, form, written buffers and inputs, shared memory."""
    instance = instantiate(problem, "cpu")
    built = candidate.build(module, instance.model)
    before = [x.clone() for x in leaves(instance.inputs)]
    with torch.no_grad():
        mine = candidate.call(built, instance.inputs)
        if any(not same(a, b) for a, b in zip(before, leaves(instance.inputs), strict=True)):
            return "an input was written to"
        theirs = instance.model(*instance.inputs)
    if tree_structure(mine) != tree_structure(theirs):
        return f"structure {tree_structure(mine)} instead of {tree_structure(theirs)}"
    slack = [slack for result, slack in zip(theirs, slacks, strict=True) for _ in leaves(result)]
    given = {x.untyped_storage().data_ptr() for x in leaves(instance.inputs)}
    pairs = list(zip(leaves(mine), leaves(theirs), strict=True))
    for y, r in pairs:
        if y.untyped_storage().data_ptr() in given and r.untyped_storage().data_ptr() not in given:
            return "the output is an input's memory"
    state = list(zip(built.model.state_dict().values(), instance.model.state_dict().values(), strict=True))
    every = zip([*pairs, *state], [*slack, *[1.0] * len(state)], strict=True)
    found = [unlike(y, r, more) for (y, r), more in every]
    return next((f"result {number}: {text}" for number, text in enumerate(found) if text), None)


def leaves(value: Any) -> Iterator[torch.Tensor]:
    return (x for x in tree_leaves(value) if isinstance(x, torch.Tensor))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.nan_to_num(7), b.nan_to_num(7)) if a.is_floating_point() else torch.equal(a, b)


def unlike(y: torch.Tensor, r: torch.Tensor, slack: float) -> str | None:
    strides = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (y, r)]
    if (y.shape, y.dtype) != (r.shape, r.dtype) or strides[0] != strides[1]:
        return f"{y.dtype} {tuple(y.shape)} {y.stride()} instead of {r.dtype} {tuple(r.shape)} {r.stride()}"
    if not r.is_floating_point():
        return None if torch.equal(y, r) else f"{y} instead of {r}"
    y, r, limit = y.double(), r.double(), slack * LIMITS[r.dtype]
    finite = r.isfinite()
    if not same(y[~finite], r[~finite]) or not y[finite].isfinite().all():
        return f"{y} instead of {r}"
    error = ((y - r)[finite].norm() / r[finite].norm().clamp_min(1e-30)).item()
    return None if error <= limit else f"relative error {error:.2e}"


def main(arguments: list[str]) -> None:
    warnings.filterwarnings("ignore")
    interpreter.install()
    chosen = arguments or list(CASES)
    results: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for start in range(0, len(chosen), GROUP):
            results |= check(chosen[start : start + GROUP])
        os.chdir("/")
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
