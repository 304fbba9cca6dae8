"""Candidates that do no work. A problem whose rule accepts one of them is *degenerate*: passing it proves little.

Tried on the problem's own input distribution, with fresh inputs and the same weights, on the values of the outputs alone
(side effects do not count: a batch norm's buffers may give away what its output hides). What passes there is tried on the
judge's other distributions too, which tell whether the problem itself or only its inputs ask for nothing:

    zeros               nothing but zeros
    constant            the mean of the reference's output for another draw of the inputs, everywhere
    replay              the reference's whole output for another draw of the inputs
    identity of input i the input itself, where its shape is the output's, broadcasts to it or has as many elements
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from mtmc.judge import draws
from mtmc.judge.accuracy import NO_ORACLE, Errors, Rule, dtype_name, exact, rule
from mtmc.judge.device import peak_above, tensors
from mtmc.judge.jobs import Job
from mtmc.problem import Problem, instantiate

if TYPE_CHECKING:
    import torch

Outputs = list["torch.Tensor"]
NO_TENSOR = "the reference returns no tensor"
OTHER = 7_919  # added to the seed of the draw that is replayed


@dataclass(frozen=True)
class Trivial:
    """The trivial candidates that pass on the problem's own inputs, by name, and those of them that pass on every draw.

    `draws` are the distributions tried beside the own one; `note` says what limits the finding.
    """

    accepted: tuple[str, ...] = ()
    everywhere: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()
    note: str = ""

    @property
    def degenerate(self) -> bool:
        return bool(self.accepted)

    @property
    def sentence(self) -> str:
        """For the user; empty for a problem that asks for work."""
        if not self.accepted:
            return ""
        if self.draws and not self.everywhere:
            rest = f"other inputs ({', '.join(self.draws)}) tell it apart"
        else:
            rest = "a verified program proves little here"
        names = ", ".join(self.accepted)
        return f"Degenerate problem: on its own inputs a candidate that does no work passes ({names}); {rest}."


@dataclass(frozen=True)
class Trials:
    """The reference's outputs for two draws of its inputs at equal weights: `before`, and `outputs`, the one to judge by.

    `exacts` is the fp64 oracle's for the second, None where it cannot run. `model` and `inputs` are those of the second.
    """

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    before: Outputs
    outputs: Outputs
    exacts: Outputs | None

    def candidates(self) -> Iterator[tuple[str, Outputs]]:
        """Name and outputs of each trivial candidate that fits the outputs' shapes; views, so they cost no memory."""
        yield "zeros", [y.new_zeros(()).expand(y.shape) for y in self.outputs]
        if [y.shape for y in self.before] == [y.shape for y in self.outputs]:
            yield "constant", [_mean(y).to(y.dtype).expand(y.shape) for y in self.before]
            yield "replay", self.before
        for number, x in enumerate(tensors(self.inputs)):
            copies = [_as(x, y) for y in self.outputs]
            found = [y for y in copies if y is not None]
            if len(found) == len(copies):
                yield f"identity of input {number}", found

    def accepted(self, chosen: Rule) -> tuple[str, ...]:
        """Names of the candidates that the judge's accuracy rule lets pass."""
        return tuple(name for name, found in self.candidates() if self._passes(found, chosen))

    def _passes(self, found: Outputs, chosen: Rule) -> bool:
        chosen = chosen if self.exacts else replace(NO_ORACLE, extra=chosen.extra)
        for y, r, o in zip(found, self.outputs, self.exacts or self.outputs, strict=True):
            if not (r.is_floating_point() or r.is_complex()):
                if exact("output", y, r):
                    return False
                continue
            errors = Errors("output", dtype_name(r))
            errors.add(y, r, o)
            if errors.failure(chosen):
                return False
        return True


def trials(
    problem: Problem, device: str = "cpu", seed: int = 0, draw: str = draws.OWN, with_oracle: bool = True
) -> Trials | None:
    """Runs the reference twice, and the oracle once. None where it returns no tensor with an element in it.

    Raises what the reference raises.
    """
    import torch

    from mtmc.judge.observed import observe

    model = instantiate(problem, device, seed).model
    inputs = _inputs(problem, device, seed, draw)
    before = [y for y in tensors(observe(lambda: model(*inputs), model, inputs, seed).result) if y.numel()]
    inputs = ()  # the memory may be needed
    inputs = _inputs(problem, device, seed + OTHER, draw)
    with peak_above(torch.device(device)) as peak:
        seen = observe(lambda: model(*inputs), model, inputs, seed)
    if seen.written:
        inputs = _inputs(problem, device, seed + OTHER, draw)
    outputs = [y for y in tensors(seen.result) if y.numel()]
    if not outputs:
        return None
    return Trials(model, inputs, before, outputs, exacts(model, inputs, seed, peak[0]) if with_oracle else None)


def trivial(
    problem: Problem, device: str = "cpu", chosen: Rule | None = None, seed: int = 0, names: Iterable[str] = (draws.OWN,)
) -> Trivial:
    """Which trivial candidates the rule accepts (`strict` for small sizes by default); `names`: the usable draws.

    Raises what the reference raises.
    """
    chosen = chosen or rule("strict").for_small_sizes()
    made = trials(problem, device, seed)
    if made is None:
        return Trivial(note=NO_TENSOR)
    accepted = everywhere = made.accepted(chosen)
    others = tuple(name for name in names if name not in (draws.OWN, draws.AGAIN, draws.WEIGHTS, draws.MISSING))
    note = "" if made.exacts else "without an fp64 oracle"
    del made  # the next one may need the memory
    for name in others if accepted else ():
        other = trials(problem, device, seed, name)
        passed = other.accepted(chosen) if other else ()
        everywhere = tuple(candidate for candidate in everywhere if candidate in passed)
    return Trivial(accepted, everywhere, others, note)


def _inputs(problem: Problem, device: str, seed: int, draw: str) -> tuple[Any, ...]:
    inputs = instantiate(problem, device, seed).inputs
    draws.redraw(inputs, draw, seed)
    return inputs


@dataclass(frozen=True, kw_only=True)
class TrivialJob(Job):
    """`trivial` in a worker, on the CPU: for a small variant."""

    kind = "interpret"
    stage = "verify"
    device: ClassVar[str] = "cpu"
    problem: Problem
    draws: tuple[str, ...] = (draws.OWN,)
    precision: str = "strict"
    seed: int = 0

    def run(self) -> Trivial:
        return trivial(self.problem, self.device, rule(self.precision).for_small_sizes(), self.seed, self.draws)


@dataclass(frozen=True, kw_only=True)
class GpuTrivialJob(TrivialJob):
    """The same on the GPU, at full size; against the reference itself, since an oracle costs what a verification does."""

    kind = "gpu"
    device = "cuda"

    def run(self) -> Trivial:
        made = trials(self.problem, self.device, self.seed, with_oracle=False)
        return Trivial(made.accepted(rule(self.precision))) if made else Trivial(note=NO_TENSOR)


def merged(outcomes: Sequence[object]) -> Trivial:
    """One finding from those of several sizes; what a job could not find out (a Verdict) becomes a note."""
    found = [outcome for outcome in outcomes if isinstance(outcome, Trivial)]
    notes = [f"trivial candidates: {getattr(o, 'message', o)}" for o in outcomes if not isinstance(o, Trivial)]
    notes += [f.note for f in found if f.note] + ["no size at which trivial candidates could be tried"] * (not outcomes)
    accepted = tuple(dict.fromkeys(name for f in found for name in f.accepted))
    everywhere = tuple(dict.fromkeys(name for f in found for name in f.everywhere))
    return Trivial(accepted, everywhere, tuple(dict.fromkeys(d for f in found for d in f.draws)), "; ".join(notes))


def exacts(model: torch.nn.Module, inputs: tuple[Any, ...], seed: int, needed: int) -> Outputs | None:
    """The oracle's outputs, None where memory or an operation without fp64 forbids it."""
    import torch

    from mtmc.judge import oracle

    device = next((x.device for x in tensors(inputs)), torch.device("cpu"))
    if not oracle.fits(inputs, needed, device):
        return None
    try:
        return [y for y in tensors(oracle.whole(model, inputs, seed).result) if y.numel()]
    except oracle.NoOracle:
        return None


def _mean(y: torch.Tensor) -> torch.Tensor:
    """Mean as a scalar; of whole numbers the nearest, of booleans the majority."""
    mean = y.mean() if y.is_floating_point() or y.is_complex() else y.double().mean().round()
    return mean.reshape(())


def _as(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    """An input in the form of an output, None where it has another size."""
    x = x.to(y.dtype)
    if x.numel() == y.numel():
        return x.reshape(y.shape)
    if x.ndim <= y.ndim and all(n in (1, m) for n, m in zip(reversed(x.shape), reversed(y.shape), strict=False)):
        return x.expand(y.shape)
    return None
