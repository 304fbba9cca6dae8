"""What the dynamic checks work on: one candidate beside its reference, called as often as a check needs.

Both are called alike: seeded, without gradients, waited for; buffers are put back afterwards, and so are inputs where a call
writes to them. Results are compared with the reference, on the same contents, in relative norm: these checks look for
answers that belong to other contents, other memory or other weights, which are off by far more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, sqrt
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mtmc.judge import candidate, forms
from mtmc.judge.accuracy import FLOORS, Errors, dtype_name
from mtmc.judge.device import fingerprint, synchronize, tensors
from mtmc.judge.door import Door
from mtmc.judge.dynamic import integrity
from mtmc.judge.pretence import pretended
from mtmc.problem import Instance, Problem, instantiate
from mtmc.verdict import Finding

if TYPE_CHECKING:
    import torch

LIMIT = 2e-3  # relative norm error that rounding never reaches at fp32; ten times the first call's own, where that is more
MOST = 0.1  # the limit never passes this: a candidate that is further off from the start is left to the accuracy rule
MATERIAL = 4.0  # a change of the reference's answer counts when it is so many limits large


@dataclass(frozen=True)
class Source:
    """A candidate's text, the problem (or a variant of it, with the SIZES there), and the device: `cuda` or `cpu`."""

    problem: Problem
    text: str
    device: str
    sizes: candidate.Sizes | None = None
    door: Door = Door()

    def pretence(self) -> AbstractContextManager[None]:
        """Foreign code believes that it runs on a GPU."""
        return pretended() if self.door.foreign and self.device == "cpu" else nullcontext()


@contextmanager
def opened(source: Source, seed: int = 0, full_size: bool = True) -> Iterator[Subject]:
    """The subject, while its module is imported. The reference is made first."""
    instance = instantiate(source.problem, source.device, seed)
    with candidate.imported(source.text, source.sizes, source.pretence()) as module:
        yield Subject(module, source, instance, seed, full_size)


class Subject:
    """A candidate's module beside the reference, on one device. `full_size` is false for a shrunken variant of the problem.

    `notes` gathers what could not be checked, `findings` what any call shows. `wrong`, known after `calibrate`: not even
    the first call gave the answer.
    """

    wrong = False

    def __init__(
        self, module: ModuleType, source: Source, instance: Instance, seed: int = 0, full_size: bool = True
    ) -> None:
        self.module, self.source, self.seed, self.full_size = module, source, seed, full_size
        self.reference, self.inputs = instance.model, instance.inputs
        self.built = self._built(module)
        self.notes: list[str] = []
        self.findings: list[Finding] = []
        self._writes: bool | None = None
        self._limit: float | None = None

    @property
    def problem(self) -> Problem:
        return self.source.problem

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device(self.source.device)

    @contextmanager
    def anew(self) -> Iterator[candidate.Built | None]:
        """The candidate imported and built a second time, with no memory of earlier calls; None where it cannot be.

        A file that registers operators with PyTorch, for one, may run only once in a process.
        """
        with ExitStack() as stack:
            source, built = self.source, None
            try:
                module = stack.enter_context(candidate.imported(source.text, source.sizes, source.pretence()))
                built = self._built(module)
            except (RuntimeError, ValueError, TypeError, AttributeError) as error:
                self.notes.append(
                    f"imported once only: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
                )
            yield built

    def _built(self, module: ModuleType) -> candidate.Built:
        source = self.source
        with source.pretence():
            return candidate.prepare(module, source.door, source.problem, self.reference, self.device, self.seed)

    @property
    def writes(self) -> bool:
        """Whether the candidate writes to its inputs, known after its first call."""
        return bool(self._writes)

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def run(self, inputs: tuple[Any, ...] | None = None, built: candidate.Built | None = None) -> Any:
        """The candidate's result; raises what it raises."""
        chosen = built or self.built
        return self._call(partial(self.call, chosen), chosen.model, inputs)

    def call(self, built: candidate.Built, inputs: tuple[Any, ...]) -> Any:
        """The bare call."""
        with self.source.pretence():
            return candidate.call(built, inputs)

    def truth(self, inputs: tuple[Any, ...] | None = None) -> Any:
        """The reference's result, in memory of its own."""
        result = self._call(lambda given: self.reference(*given), self.reference, inputs)
        places = {x.untyped_storage().data_ptr() for x in tensors(self.inputs if inputs is None else inputs)}
        return cloned(result, lambda y: y.untyped_storage().data_ptr() in places)

    def off(self, result: Any, truth: Any) -> bool:
        """Whether a result is another answer than the reference's."""
        return mismatch(result, truth) > self.calibrate()

    def material(self, truth: Any, before: Any) -> bool:
        """Whether the reference's answer has changed enough to tell one from the other."""
        return mismatch(truth, before) > MATERIAL * self.calibrate()

    def calibrate(self) -> float:
        """The limit, from one call of each on the inputs as they are: to be called before they are changed."""
        if self._limit is None:
            error = mismatch(self.run(), self.truth())
            self.wrong, self._limit = error > MOST, min(max(LIMIT, 10 * error), MOST)
        return self._limit

    def _call(self, call: Callable[[tuple[Any, ...]], Any], model: Any, inputs: tuple[Any, ...] | None) -> Any:
        import torch

        given = self.inputs if inputs is None else inputs
        found = [x for x in tensors(given) if 0 not in x.stride()]
        saved = [x.clone() for x in found] if self._writes is not False else []
        kept = _buffers(model)
        torch.manual_seed(self.seed)
        with torch.no_grad():
            running = integrity.threads()
            result = call(given)
            synchronize()
            self.findings += integrity.left_threads(running)
            if self._writes is None:
                self._writes = any(fingerprint(x) != fingerprint(s) for x, s in zip(found, saved, strict=True))
            if self._writes:
                result = cloned(result)
                for x, s in zip(found, saved, strict=True):
                    x.copy_(s)
            for buffer, value in kept:
                buffer.copy_(value)
        return result


def _buffers(model: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(buffer, buffer.clone()) for buffer in model.buffers()] if hasattr(model, "buffers") else []


def cloned(result: Any, wanted: Callable[[torch.Tensor], bool] = lambda _: True) -> Any:
    """The result with copies of its dense tensors, or of those that are `wanted`."""
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda y: y.clone() if y.layout == torch.strided and wanted(y) else y, result)


def mismatch(y: Any, r: Any) -> float:
    """Largest relative norm error over the leaves; for integers the share of elements that differ.

    Infinite where structure, shapes, or the places of NaN and Inf differ.
    """
    if forms.skeleton(y) != forms.skeleton(r):
        return inf
    return max((_leaf_mismatch(a, b) for a, b in zip(forms.leaves(y), forms.leaves(r), strict=True)), default=0.0)


def _leaf_mismatch(y: Any, r: Any) -> float:
    import torch

    if not isinstance(r, torch.Tensor) or not isinstance(y, torch.Tensor):
        return 0.0 if type(y) is type(r) and y == r else inf
    if y.shape != r.shape or y.dtype != r.dtype or y.device != r.device:
        return inf
    if r.numel() == 0:
        return 0.0
    if dtype_name(r) not in FLOORS:
        return float((y != r).double().mean())
    errors = Errors("", dtype_name(r))
    errors.add(y, r, r)
    if errors.strange:
        return inf
    return sqrt(errors.candidate_sq / max(errors.oracle_sq, 1e-60))
