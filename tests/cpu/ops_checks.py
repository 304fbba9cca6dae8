"""Every device function of the library against PyTorch, in the repaired interpreter; prints {function: mistake or null}.

TRITON_INTERPRET=1 python tests/cpu/ops_checks.py FOLDER
"""

from __future__ import annotations

import json
import sys
from types import ModuleType

import torch
import torch.nn.functional as F
from ops_cases import COLUMN, ELEMENTWISE, HARMLESS, REDUCING, Op, numbers

from mtmc.judge import interpreter


def mistake(name: str, op: Op, module: ModuleType, dtype: torch.dtype) -> str | None:
    x, y = (v.to(dtype) for v in numbers(HARMLESS.get(name)))
    if name in REDUCING:
        x = x[torch.randperm(len(x))]
    out = torch.empty_like(x)
    getattr(module, f"{name}_kernel")[(1,)](x, y, out, BLOCK=len(x))
    if name in REDUCING:
        x, out = x.view(COLUMN, -1), out[: len(x) // COLUMN]
    eager, exact = evaluate(op.reference, x, y), evaluate(op.reference, x.double(), y.double())
    finite = eager.isfinite()
    if not torch.equal(out[~finite].nan_to_num(7.5), eager[~finite].nan_to_num(7.5)):
        return first(out, eager, ~finite & ~((out == eager) | (out.isnan() & eager.isnan())), x, y)
    unit = torch.finfo(dtype).eps
    scale = torch.maximum(exact.abs(), evaluate(op.scale, x.double(), y.double()).abs().nan_to_num(0.0, 0.0))
    allowed = op.ulps * unit * scale + 32 * torch.finfo(dtype).tiny
    off = finite & ~((out.double() - exact).abs() <= allowed)
    return first(out, exact, off, x, y) if off.any() else None


def evaluate(text: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    value: torch.Tensor = eval(text, {"torch": torch, "F": F, "x": x, "y": y})
    return value


def first(out: torch.Tensor, wanted: torch.Tensor, off: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> str:
    where = int(off.int().argmax())
    at = f"x={x[where].item()}, y={y[where].item()}" if x.dim() == 1 else f"column {where}"
    return f"{int(off.sum())} of {off.numel()}; at {at}: {out[where].item()} instead of {wanted[where].item()}"


def main(folder: str) -> None:
    interpreter.install()
    sys.path.insert(0, folder)
    import library_kernels

    results: dict[str, str | None] = {}
    for name, op in {**ELEMENTWISE, **REDUCING}.items():
        torch.manual_seed(1)
        for dtype in (torch.float32, torch.float64):
            found = mistake(name, op, library_kernels, dtype)
            results[name] = results.get(name) or (f"{dtype}: {found}" if found else None)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
