"""Distributions of inputs to verify with. Floating-point inputs are overwritten in place; all others stay as the file draws
them.

A draw that the reference itself cannot take (it raises, gives NaN or Inf that was not drawn, or loses half of its digits)
says nothing about a candidate: `usable` lists those that a problem takes, found out on the CPU at small sizes, so that a bad
draw cannot poison the GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mtmc.judge.accuracy import dtype_name
from mtmc.judge.copies import duplicate
from mtmc.judge.device import tensors
from mtmc.problem import Instance, Problem, instantiate

if TYPE_CHECKING:
    import torch

OWN = "own"
AGAIN = "own again"  # the file's own inputs from another seed
MISSING = "with NaN"  # normal inputs, two elements of which are NaN
WEIGHTS = "other weights"  # normal inputs, and parameters moved away from where they start (ones, zeros)
PROBES = ("large", "low", "tiny", "structured")  # far from what problems are about: see `accuracy`
SWAYED = (*PROBES, "shifted")  # on which the reference's conditioning may explain an error: see `conditioning`
DIGITS = {"float64": 1e-8, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.25}  # relative error: half of the digits are lost
SPREAD = 0.2  # of the parameters' size by which they are moved


def _normal(x: torch.Tensor, generator: torch.Generator) -> None:
    x.normal_(generator=generator)


def _shifted(x: torch.Tensor, generator: torch.Generator) -> None:
    """Mean 5: variances by one pass, and normalisations that do nothing on N(0, 1), show."""
    x.normal_(5.0, 1.0, generator=generator)


def _large(x: torch.Tensor, generator: torch.Generator) -> None:
    """Beyond ±100 at two sigma: exponentials without a subtracted maximum overflow in fp32."""
    x.normal_(0.0, 50.0, generator=generator)


def _low(x: torch.Tensor, generator: torch.Generator) -> None:
    """All far below zero: a maximum that begins at 0 instead of -inf lets every exponential vanish."""
    x.normal_(-1000.0, 200.0, generator=generator)


def _tiny(x: torch.Tensor, generator: torch.Generator) -> None:
    """Variances of 1e-6: beside them the epsilon of a norm counts."""
    x.normal_(0.0, 1e-3, generator=generator)


def _structured(x: torch.Tensor, generator: torch.Generator) -> None:
    """Of every 8 rows along the last dimension one is zero, one one-hot, one a ramp, one constant; the others are normal."""
    import torch

    x.normal_(generator=generator)
    rows = x.view(-1, x.shape[-1]) if x.ndim > 1 else x.view(-1, 1)
    width = rows.shape[1]
    rows[0::8] = 0.0
    rows[1::8] = torch.nn.functional.one_hot(torch.tensor(width // 2), width).to(rows)
    rows[2::8] = torch.linspace(-1, 1, width).to(rows)
    rows[3::8] = 0.5


def _missing(x: torch.Tensor, generator: torch.Generator) -> None:
    """Two NaN: a maximum that passes over them shows. No infinities, as split products turn inf * 0 into NaN."""
    import torch

    x.normal_(generator=generator)
    x.view(-1)[torch.randint(x.numel(), (2,), generator=generator, device=x.device)] = float("nan")


DRAWS: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "normal": _normal,
    "shifted": _shifted,
    "large": _large,
    "low": _low,
    "tiny": _tiny,
    "structured": _structured,
    MISSING: _missing,
    WEIGHTS: _normal,
}


def redraw(inputs: tuple[Any, ...], draw: str, seed: int) -> None:
    """Overwrite every floating-point tensor among the inputs; `own` and `own again` leave them alone."""
    import torch

    if draw in (OWN, AGAIN):
        return
    for number, x in enumerate(tensors(inputs)):
        if not x.is_floating_point() or x.numel() == 0 or 0 in x.stride():
            continue
        generator = torch.Generator(x.device).manual_seed(seed + number)
        with torch.no_grad():
            target = x if x.is_contiguous() and x.ndim else torch.empty(x.shape or (1,), dtype=x.dtype, device=x.device)
            DRAWS[draw](target, generator)
            x.copy_(target.reshape(x.shape))


def move(model: torch.nn.Module, seed: int) -> None:
    """Add noise to every floating-point parameter: a fifth of its root mean square, or of 1 where it is zero."""
    import torch

    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            if p.is_floating_point() and p.numel() and 0 not in p.stride():
                generator = torch.Generator(p.device).manual_seed(seed + number)
                noise = torch.randn(p.shape, generator=generator, device=p.device)
                rms = float(p.double().square().mean().sqrt())
                p.add_((noise * SPREAD * (rms or 1.0)).to(p.dtype))


def usable(problem: Problem, seed: int = 0) -> tuple[str, ...]:
    """The draws for which the reference, run on the CPU, gives digits to compare. The file's own are always among them."""
    return (OWN, AGAIN, *(draw for draw in DRAWS if _sound(problem, draw, seed)))


def _sound(problem: Problem, draw: str, seed: int) -> bool:
    import torch

    instance = instantiate(problem, "cpu", seed)
    redraw(instance.inputs, draw, seed)
    if draw == WEIGHTS:
        if not any(p.is_floating_point() for p in instance.model.parameters()):
            return False
        move(instance.model, seed)
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            outputs = tensors(duplicate(instance.model)(*copy.deepcopy(instance.inputs)))
    except (RuntimeError, ValueError, IndexError, AssertionError):  # how PyTorch refuses a value outside a domain
        return False
    if draw == MISSING:
        return True  # compared by place
    return all(bool(output.isfinite().all()) for output in outputs) and _exact_enough(instance, outputs, seed)


def _exact_enough(instance: Instance, outputs: list[torch.Tensor], seed: int) -> bool:
    """Whether the reference keeps half of its digits, or none (0 but for rounding), as far as an oracle can tell."""
    from mtmc.judge import oracle

    try:
        exacts = tensors(oracle.whole(instance.model, instance.inputs, seed).result)
    except oracle.NoOracle:
        return True
    for r, o in zip(outputs, exacts, strict=True):
        limit, norm = DIGITS.get(dtype_name(r)), float(o.norm()) if o.is_floating_point() else 0.0
        if limit and 0 < norm and limit * norm < float((r.double() - o).norm()) < norm:
            return False
    return True
