"""The accuracy rule: is a candidate no worse than eager PyTorch?

With the fp64 oracle o, the reference r (eager, default flags) and the candidate y, both must hold for every output:

    ‖y − o‖ / ‖o‖  ≤  2·‖r − o‖ / ‖o‖ + 4·eps(dtype) + extra        over the whole tensor
    |y − o|        ≤  t + t·|o|                                     at every element
    t = max(1e-4 for fp32, 1e-2 for fp16 and bf16, 2 × the largest |r − o| / (1 + |o|), 8·extra·rms(o))

On inputs that only look for wrong masks, constants and overflow (`draws.PROBES`: tiny, large, structured ones, far from what
a problem is about), 2⁻¹³ is added on the right: a formula as good as eager's on the file's own inputs may cancel there. If
that is not enough, and on inputs of mean 5, what the reference's own conditioning explains is added (`conditioning`).

`extra` is 0 for `strict`. `tf32` and `bf16` add the unit round-off of two rounded operands (2·2⁻¹¹ and 2·2⁻⁸). NaN and Inf
must sit where the reference has them. Integer and bool outputs are compared exactly with the reference; so a tie in an
arg-reduction must be broken as PyTorch breaks it. Where ‖o‖ is 0 only the elementwise rule applies. For fp64 outputs the
oracle is no better than the reference, so a fixed 1e-12 takes the place of 4·eps, and 1e-10 that of 1e-4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

from mtmc.errors import BadInput
from mtmc.verdict import Accuracy, Wrong

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 22  # elements compared at a time: some 400 MiB of fp64 temporaries
SAMPLE = 1 << 12  # of them, evenly spaced, from which the median error in ULP is taken
UNITS = {"float64": 2.5e-13, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}  # eps(dtype)
NO_FIT = "no room for an fp64 oracle at full size: compared there with the reference itself"
FLOORS = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}  # smallest t


@dataclass(frozen=True)
class Rule:
    """How far a candidate may be off. `extra` and `slack` are relative norm errors allowed beyond the reference's."""

    name: str
    extra: float = 0.0
    slack: float = 0.0

    def for_small_sizes(self) -> Rule:
        """The rule on small variants, which look for wrong masks and indices: 64 fp32 eps more than at full size.

        Over short sums eager is nearly exact (on a CPU some are even kept in fp64), which no product of split operands can
        match; a wrong mask or index gives errors above 1e-3, so none hides in it. Precision is judged at full size.
        """
        return replace(self, slack=64 * UNITS["float32"])

    def for_probes(self) -> Rule:
        """The rule on inputs far from the file's own: tanh as 2·sigmoid(2x) − 1 loses four digits at 1e-3, a defect more."""
        return replace(self, slack=max(self.slack, 2.0**-13))


RULES = {
    "strict": Rule("strict"),
    "tf32": Rule("tf32", extra=2.0**-10),
    "bf16": Rule("bf16", extra=2.0**-7),
}


@dataclass(frozen=True)
class Allowance:
    """What an ill-conditioned reference adds to the limits of the norm and of the elements: see `conditioning`."""

    norm: float = 0.0
    element: float = 0.0


NOTHING = Allowance()
PARTS = ("fp16x3", "tf32x3", "bf16x6")  # as dots and device functions name them

NO_ORACLE = Rule("no oracle", slack=64 * UNITS["float32"])  # against the reference itself


def in_parts(source: str) -> bool:
    """Whether a program multiplies fp32 operands as parts of fewer bits: its products may be less exact than PyTorch's."""
    return any(name in source for name in PARTS)


def rule(precision: str) -> Rule:
    """The rule of a precision name. Raises BadInput listing the known ones."""
    if precision not in RULES:
        raise BadInput(f"unknown precision '{precision}'; known: {', '.join(RULES)}")
    return RULES[precision]


@dataclass
class Ulps:
    """Errors in units in the last place of the output's dtype at the exact value: the largest, and some for the median."""

    largest: float = 0.0
    samples: list[torch.Tensor] = field(default_factory=list)

    def add(self, off: torch.Tensor, unit: torch.Tensor, finite: torch.Tensor) -> None:
        """Absolute errors and the unit for each; only finite elements count."""
        ulps = off / unit
        self.largest = max(self.largest, float(ulps.max()))
        step = max(1, ulps.numel() // SAMPLE)
        self.samples.append(ulps[::step][finite[::step]])

    @property
    def pair(self) -> tuple[float, float]:
        """Largest and median."""
        import torch

        every = torch.cat(self.samples) if self.samples else torch.zeros(0)
        return self.largest, float(every.median()) if every.numel() else 0.0


def _unit(exact: torch.Tensor, dtype: str) -> torch.Tensor:
    """The spacing of `dtype` at exact values: eps·2^⌊log₂|o|⌋, and no less than at the smallest normal number."""
    import torch

    info = torch.finfo(getattr(torch, dtype))
    exponent = torch.frexp(exact.abs().clamp(min=info.tiny)).exponent
    return info.eps * torch.exp2((exponent - 1).double())


@dataclass
class Errors:
    """Running error sums of one output over its chunks; `add` every chunk, then ask `failure`."""

    name: str
    dtype: str
    count: int = 0
    candidate_sq: float = 0.0
    reference_sq: float = 0.0
    oracle_sq: float = 0.0
    candidate_scaled: float = 0.0
    reference_scaled: float = 0.0
    worst: str = ""
    strange: str = ""
    candidate_ulps: Ulps = field(default_factory=Ulps)
    reference_ulps: Ulps = field(default_factory=Ulps)

    def add(self, y: torch.Tensor, r: torch.Tensor, o: torch.Tensor) -> None:
        """Take in one chunk of candidate, reference and oracle, all of one shape, real or complex."""
        for start, (yc, rc, oc) in _flat_chunks(y, r, o):
            self._add(self.count + start, yc, rc, oc)
        self.count += y.numel()

    def _add(self, start: int, y: torch.Tensor, r: torch.Tensor, o: torch.Tensor) -> None:
        import torch

        finite = r.isfinite() & o.isfinite()
        agrees = torch.where(finite, y.isfinite(), (y == r) | (y.isnan() & r.isnan()) | r.isfinite())
        if not self.strange and not bool(agrees.all()):
            where = int((~agrees).int().argmax())
            self.strange = f"element {start + where} is {float(y[where]):g}, the reference has {float(r[where]):g}"
        zero = torch.zeros((), dtype=torch.float64, device=o.device)
        off_y, off_r, o = (torch.where(finite, value, zero) for value in (y - o, r - o, o))
        scale, unit = 1 + o.abs(), _unit(o, self.dtype)
        off_y = torch.where(y.isfinite(), off_y, zero)
        self.candidate_ulps.add(off_y.abs(), unit, finite)
        self.reference_ulps.add(off_r.abs(), unit, finite)
        scaled = off_y.abs() / scale
        peak = float(scaled.max())
        if peak > self.candidate_scaled:
            where = int(scaled.argmax())
            self.worst = f"element {start + where} is {float(y[where]):.9g}, exact is {float(o[where]):.9g}"
        self.candidate_scaled = max(self.candidate_scaled, peak)
        self.reference_scaled = max(self.reference_scaled, float((off_r.abs() / scale).max()))
        self.candidate_sq += float(off_y.square().sum())
        self.reference_sq += float(off_r.square().sum())
        self.oracle_sq += float(o.square().sum())

    @property
    def candidate_error(self) -> float:
        """‖y − o‖ / ‖o‖, or 0 where ‖o‖ is 0."""
        return sqrt(self.candidate_sq / self.oracle_sq) if self.oracle_sq else 0.0

    @property
    def reference_error(self) -> float:
        return sqrt(self.reference_sq / self.oracle_sq) if self.oracle_sq else 0.0

    def norm_limit(self, rule: Rule) -> float:
        return 2 * self.reference_error + 4 * UNITS[self.dtype] + rule.extra + rule.slack

    def element_limit(self, rule: Rule) -> float:
        rms = sqrt(self.oracle_sq / max(self.count, 1))
        return max(FLOORS[self.dtype], 2 * self.reference_scaled, 8 * (rule.extra + rule.slack) * rms)

    def failure(self, rule: Rule, allowed: Allowance = NOTHING) -> Wrong | None:
        """What the rule says of the chunks added so far; None when it holds.

        Where the reference itself has no digit right (a mean that is 0 but for rounding) the relative norm compares noise
        with noise; the element rule, absolute for small values, decides alone.
        """
        if self.strange:
            return Wrong(f"{self.name}: {self.strange}", "nan")
        limit, tolerance = self.norm_limit(rule) + allowed.norm, self.element_limit(rule) + allowed.element
        message = ""
        if self.candidate_error > limit and self.reference_error < 1:
            message = f"relative error {self.candidate_error:.2e} is above {limit:.2e}"
        elif self.candidate_scaled > tolerance:
            message = f"largest scaled error {self.candidate_scaled:.2e} is above {tolerance:.2e}"
        if not message:
            return None
        return Wrong(f"{self.name}: {message}; {self.worst}", "values", self.candidate_error, self.reference_error)


def _flat_chunks(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """Equal pieces of the flattened tensors as fp64, with the index of their first element.

    Elements come in the order of the first tensor's memory, so that a transposed one is not copied.
    """
    import torch

    real = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    order = sorted(range(real[0].ndim), key=lambda d: -real[0].stride()[d])
    flat = [t.permute(order).reshape(-1) for t in real]
    for start in range(0, flat[0].numel(), CHUNK):
        yield start, [t[start : start + CHUNK].double() for t in flat]


def combined(found: Iterable[Accuracy]) -> Accuracy:
    """One Accuracy for several: the largest errors, everything checked and skipped."""
    found = list(found)
    return Accuracy(
        max((a.candidate_error for a in found), default=0.0),
        max((a.reference_error for a in found), default=0.0),
        tuple(text for a in found for text in a.checked),
        tuple(dict.fromkeys(text for a in found for text in a.skipped)),
        _largest(a.candidate_ulp for a in found),
        _largest(a.reference_ulp for a in found),
    )


def _largest(pairs: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [pair for pair in pairs if pair]
    return (max(pair[0] for pair in known), max(pair[1] for pair in known)) if known else None


def measured(found: Iterable[Errors]) -> Accuracy:
    """The errors of both sides as they are reported: the largest over the outputs."""
    return combined(
        Accuracy(
            e.candidate_error,
            e.reference_error,
            candidate_ulp=e.candidate_ulps.pair,
            reference_ulp=e.reference_ulps.pair,
        )
        for e in found
    )


def inexact(leaf: Any) -> bool:
    """Whether a leaf is judged by its errors: a tensor with floating or complex elements."""
    import torch

    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and leaf.numel() > 0


def exact(name: str, y: torch.Tensor, r: torch.Tensor) -> Wrong | None:
    """Integer and bool outputs: equal everywhere, or Wrong with the first difference."""
    different = (y != r).reshape(-1)
    if not bool(different.any()):
        return None
    where = int(different.int().argmax())
    found, wanted = y.reshape(-1)[where].item(), r.reshape(-1)[where].item()
    return Wrong(f"{name}: {int(different.sum())} of {y.numel()} elements differ; element {where} is {found}, not {wanted}")


def form(name: str, y: Any, r: Any) -> Wrong | None:
    """Type, shape, dtype, device and strides (of dimensions longer than 1) of one output; equality of a non-tensor."""
    import torch

    if not isinstance(r, torch.Tensor):
        same = type(y) is type(r) and y == r
        return None if same else Wrong(f"{name}: {y!r} instead of {r!r}", "type")
    if type(y) not in (torch.Tensor, type(r)):
        return Wrong(f"{name}: {type(y).__name__} instead of {type(r).__name__}", "type")
    for check, found, wanted in (
        ("shape", tuple(y.shape), tuple(r.shape)),
        ("dtype", y.dtype, r.dtype),
        ("device", y.device, r.device),
        ("strides", strides(y), strides(r)),
    ):
        if found != wanted:
            return Wrong(f"{name}: {check} {found} instead of {wanted}", check)
    return None


def strides(t: torch.Tensor) -> tuple[int, ...]:
    """Of the dimensions longer than 1."""
    return tuple(stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1) if t.numel() else ()


def dtype_name(t: torch.Tensor) -> str:
    """`float32` for torch.float32; complex numbers by the dtype of their parts."""
    name = str(t.dtype).removeprefix("torch.")
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)
