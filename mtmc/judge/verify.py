"""Does a candidate compute what the reference computes? Runs both and the fp64 oracle, and applies the accuracy rule.

The candidate runs first, so that no buffer holds the reference's answer; memory from `torch.empty` is filled with NaN before
it sees it, and with another number in a second run, whose result must be the same bits or pass the rule as well. Modules run
as the user's file leaves them. Buffers are compared after the call and restored. The RNG is seeded alike before every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.judge import candidate, draws, forms, oracle
from mtmc.judge.accuracy import NO_FIT, NO_ORACLE, Errors, Rule, combined, dtype_name, exact, form, measured, strides
from mtmc.judge.device import fingerprint, peak_above, synchronize, tensors
from mtmc.judge.door import Door
from mtmc.judge.pretence import pretended
from mtmc.problem import Problem, instantiate
from mtmc.verdict import Accuracy, Wrong

if TYPE_CHECKING:
    import torch

FILLS = (float("nan"), -6e4)  # what unwritten memory holds in the first and in the second run
PROGRAM = Door()


class FillEmpty(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Memory that PyTorch hands out unwritten is filled: floats with `value`, integers with their largest."""

    def __init__(self, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.value = value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        result = func(*args, **(kwargs or {}))
        if "empty" in func._schema.name and isinstance(result, torch.Tensor) and result.device.type != "meta":
            numeric = result.is_floating_point() or result.is_complex()
            result.fill_(self.value if numeric else result.dtype == torch.bool or torch.iinfo(result.dtype).max)
        return result


@dataclass(frozen=True)
class Observed:
    """One call and what it left behind.

    `buffers` are copies after the call; `written` copies of the inputs whose bits changed, by position among the tensors;
    `shared` pairs outputs with whose memory they lie on; `parameters` and `updated` name those whose bits changed.
    """

    result: Any
    buffers: dict[str, torch.Tensor]
    written: dict[int, torch.Tensor]
    shared: frozenset[tuple[int, str]]
    parameters: tuple[str, ...]
    updated: frozenset[str] = frozenset()

    @property
    def form(self) -> str:
        return forms.skeleton(self.result)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Everything that is compared by value, with the name it has in messages."""
        found = list(forms.leaves(self.result))
        yield from ((f"output {i}" if len(found) > 1 else "output", leaf) for i, leaf in enumerate(found))
        yield from ((f"buffer {name}", buffer) for name, buffer in self.buffers.items())


def observe(
    call: Callable[[], Any], model: torch.nn.Module, inputs: tuple[Any, ...], seed: int, fill: float | None = None
) -> Observed:
    """Call, watching inputs, parameters and buffers. Buffers are restored afterwards, inputs are not."""
    import torch

    given, parameters, buffers = tensors(inputs), dict(model.named_parameters()), dict(model.named_buffers())
    before = [fingerprint(x) for x in given]
    weights = {name: fingerprint(p) for name, p in parameters.items()}
    kept = {name: buffer.clone() for name, buffer in buffers.items()}
    torch.manual_seed(seed)
    with torch.no_grad(), FillEmpty(fill) if fill is not None else nullcontext():
        result = call()
    synchronize()
    seen = Observed(
        result,
        {name: buffer.clone() for name, buffer in buffers.items()},
        {i: x.clone() for i, x in enumerate(given) if fingerprint(x) != before[i]},
        _shared(result, given, (*parameters.values(), *buffers.values())),
        tuple(name for name, p in parameters.items() if fingerprint(p) != weights[name]),
        frozenset(name for name, buffer in buffers.items() if fingerprint(buffer) != fingerprint(kept[name])),
    )
    with torch.no_grad():
        for name in seen.updated:
            buffers[name].copy_(kept[name])
    return seen


def _shared(result: Any, given: list[torch.Tensor], state: Iterable[torch.Tensor]) -> frozenset[tuple[int, str]]:
    """Which output lies on memory of an input, of the model's state, or of an earlier output."""
    places = {x.untyped_storage().data_ptr(): "the model's state" for x in state}
    places |= {x.untyped_storage().data_ptr(): f"input {number}" for number, x in enumerate(given)}
    shared = set()
    for number, y in enumerate(tensors(result)):
        place = y.untyped_storage().data_ptr()
        if place in places and y.numel():
            shared.add((number, places[place]))
        places.setdefault(place, f"output {number}")
    return frozenset(shared)


def differs_in_form(y: Observed, r: Observed, elsewhere: Callable[[], Mapping[str, Any]] = dict) -> Wrong | None:
    """Structure, types, shapes, strides, aliasing and side effects.

    A candidate may copy where the reference returns a view of its input, but not the other way round. Strides may also be
    those of the reference `elsewhere` (tensors by name): what PyTorch's attention returns depends on the device.
    """
    if y.form != r.form:
        return Wrong(f"output is {y.form}, not {r.form}", "type")
    theirs = dict(r.leaves())
    for name, mine in y.leaves():
        if name in theirs and (wrong := form(name, mine, theirs[name])):
            other = elsewhere().get(name) if wrong.check == "strides" else None
            if other is None or strides(other) != strides(mine):
                return wrong
    if left := r.updated - y.buffers.keys():
        return Wrong(f"the reference updates the buffer {min(left)}; the candidate has none of that name", "buffers")
    if set(y.parameters) != set(r.parameters):
        return Wrong(f"parameters written: {', '.join(y.parameters) or 'none'}", "mutation")
    if y.written.keys() != r.written.keys():
        return Wrong(f"inputs written: {sorted(y.written)}, by the reference: {sorted(r.written)}", "mutation")
    if y.shared - r.shared:
        out, whose = min(y.shared - r.shared)
        return Wrong(f"output {out} shares memory with {whose}", "aliasing")
    return None


def differs_in_values(y: Observed, r: Observed, parts: Iterable[oracle.Part], rule: Rule) -> Wrong | Accuracy:
    """The rule over every leaf, or the largest errors of candidate and reference."""
    theirs = dict(r.leaves())
    errors: dict[str, Errors] = {}
    for part in parts:
        exacts = dict(Observed(part.result, part.buffers, {}, frozenset(), ()).leaves())
        for name, mine in y.leaves():
            if name in exacts and name in theirs and _inexact(mine):
                rows = slice(None) if part.stop is None else slice(part.start, part.stop)
                pair = [t[rows] if t.ndim else t for t in (mine, theirs[name])]
                errors.setdefault(name, Errors(name, dtype_name(mine))).add(pair[0], pair[1], exacts[name])
    for name, mine in y.leaves():
        if name not in theirs:  # a buffer of the candidate's own
            continue
        wrong = errors[name].failure(rule) if name in errors else _without_oracle(name, mine, theirs[name])
        if wrong:
            return wrong
    for number, mine in y.written.items():
        if wrong := _without_oracle(f"input {number} after the call", mine, r.written[number]):
            return wrong
    return measured(errors.values())


def _inexact(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and leaf.numel() > 0


def _without_oracle(name: str, mine: Any, theirs: Any) -> Wrong | None:
    """Integers exactly; floats against the reference itself, within 64 fp32 eps."""
    if not hasattr(mine, "numel") or mine.numel() == 0:
        return None
    if not _inexact(mine):
        return exact(name, mine, theirs)
    errors = Errors(name, dtype_name(mine))
    errors.add(mine, theirs, theirs)
    return errors.failure(NO_ORACLE)


class Verifier:
    """One candidate against one problem (variant) on one device."""

    def __init__(self, problem: Problem, device: str, rule: Rule, seed: int = 0, door: Door = PROGRAM) -> None:
        import torch

        self.problem, self.rule, self.seed, self.door = problem, rule, seed, door
        self.device = torch.device(device)
        made = instantiate(problem, device, seed)
        self.reference, self.inputs = made.model, made.inputs
        self.skipped: list[str] = []

    def verify(
        self, source: str, sizes: candidate.Sizes | None, names: Iterable[str], repeat: bool = True
    ) -> Accuracy | Wrong:
        """Check every draw, `own` first, and that one twice if `repeat`. Raises what the candidate raises."""
        with candidate.imported(source, sizes, self._pretence()) as module:
            return self._all(self._built(module), names, repeat)

    def _all(self, built: candidate.Built, names: Iterable[str], repeat: bool) -> Accuracy | Wrong:
        """Every draw, up to the first that fails."""
        shape = "x".join(str(n) for n in next((x.shape for x in tensors(self.inputs)), ()))
        checked: list[str] = []
        errors: list[Accuracy] = []
        for number, draw in enumerate(names):
            if draw == draws.WEIGHTS and not self._moved(built):
                continue
            found, note = self._one(built, draw, self.seed + 100 * number, twice=repeat and number == 0)
            if isinstance(found, Wrong) and draw == draws.MISSING:  # honest kernels skip what is masked: PyTorch has 0 * NaN
                self.skipped.append(f"NaN in the inputs does not reach the results as in PyTorch: {found.message}")
                continue
            if isinstance(found, Wrong):
                notes = "".join(f"; {note}" for note in built.notes)
                return replace(found, message=f"{found.message} ({draw} inputs, {shape}{notes})")
            checked.append(f"{draw} {shape}{note}")
            errors.append(found)
        return replace(combined(errors), checked=tuple(checked), skipped=tuple(dict.fromkeys((*built.notes, *self.skipped))))

    def bits(self, source: str, sizes: candidate.Sizes | None, names: Iterable[str]) -> list[tuple[int, int]]:
        """Fingerprints of what a candidate gives on every draw, in order. Raises what the candidate raises."""
        found: list[tuple[int, int]] = []
        with candidate.imported(source, sizes, self._pretence()) as module:
            built = self._built(module)
            for number, draw in enumerate(names):
                if draw == draws.WEIGHTS and not self._moved(built):
                    continue
                self._draw(draw, seed := self.seed + 100 * number)
                seen = observe(lambda: self._call(built), built.model, self.inputs, seed, FILLS[0])
                self._renew(seen, draw, seed)
                found += _bits(seen)
        return found

    def _built(self, module: ModuleType) -> candidate.Built:
        with self._pretence():
            return candidate.prepare(module, self.door, self.problem, self.reference, self.device, self.seed)

    def _moved(self, built: candidate.Built) -> bool:
        """Other weights for both sides; not where the candidate has not taken the reference's by name."""
        if built.notes:
            self.skipped.append("other weights: ModelNew does not name them as the reference does")
            return False
        draws.move(self.reference, self.seed)
        self._adopt(built)
        return True

    def _adopt(self, built: candidate.Built) -> None:
        if self.door.kind == "class":
            candidate.adopt(built.model, self.reference)

    def _pretence(self) -> AbstractContextManager[None]:
        """Foreign code is often written for CUDA tensors alone; in the interpreter it is given what it takes for such."""
        return pretended() if self.door.foreign and self.device.type == "cpu" else nullcontext()

    def _call(self, built: candidate.Built) -> Any:
        with self._pretence():
            return candidate.run(built, self.inputs)

    def _observe(self, built: candidate.Built, seed: int, fill: float) -> Observed:
        return observe(lambda: self._call(built), built.model, self.inputs, seed, fill)

    def _one(self, built: candidate.Built, draw: str, seed: int, twice: bool) -> tuple[Wrong | Accuracy, str]:
        """The finding on one draw, and a remark on determinism for `checked`."""
        self._draw(draw, seed)
        tries = []
        for fill in FILLS[: 1 + twice]:
            tries.append(self._observe(built, seed, fill))
            self._renew(tries[-1], draw, seed)
        steady = _bits(tries[0]) == _bits(tries[-1])
        if steady:
            del tries[1:]  # the memory may be needed
        with peak_above(self.device) as taken:
            r = observe(lambda: self.reference(*self.inputs), self.reference, self.inputs, seed)
        self._renew(r, draw, seed)
        finding: Wrong | Accuracy = Accuracy(0.0, 0.0)
        rule = self.rule.for_probes() if draw in draws.PROBES else self.rule
        for y in tries:
            finding = differs_in_form(y, r, lambda: self._on_meta) or differs_in_values(
                y, r, self._oracle(r, taken[0], seed), rule
            )
            if isinstance(finding, Wrong):
                break
        if isinstance(finding, Accuracy) and finding.reference_error >= 1:
            self.skipped.append(f"{draw} inputs: PyTorch itself has no digit right there, so a result of zeros may pass")
        return finding, "" if steady else ", varies between runs"

    @cached_property
    def _on_meta(self) -> dict[str, Any]:
        """What the reference returns for tensors without values, by name; nothing where it needs values."""
        import torch

        made = instantiate(self.problem, "meta", self.seed)
        try:
            with torch.no_grad():
                found = made.model(*made.inputs)
        except (RuntimeError, NotImplementedError):
            return {}
        return {n: leaf for n, leaf in Observed(found, {}, {}, frozenset(), ()).leaves() if isinstance(leaf, torch.Tensor)}

    def _draw(self, draw: str, seed: int) -> None:
        """New contents of the inputs."""
        if draw == draws.AGAIN:
            self.inputs = ()  # the old ones' memory may be needed
            self.inputs = instantiate(self.problem, self.device, seed).inputs
        draws.redraw(self.inputs, draw, seed)

    def _renew(self, seen: Observed, draw: str, seed: int) -> None:
        """Draw the inputs again when a call has written to them."""
        if seen.written:
            again = seed if draw == draws.AGAIN else self.seed
            self.inputs = instantiate(self.problem, self.device, again).inputs
            draws.redraw(self.inputs, draw, seed)

    def _oracle(self, r: Observed, needed: int, seed: int) -> Iterator[oracle.Part]:
        """The oracle whole where that is modest; else by slices; else whole where it fits; else nothing, and a note."""
        fits = oracle.fits(self.inputs, needed, self.device)
        if fits and oracle.modest(self.inputs, r.result, needed):
            if part := self._whole(seed):
                yield part
            return
        parts = 0
        for part in oracle.sliced(self.reference, self.inputs, r.result, needed):
            parts += 1
            yield part
        if not parts and fits and (whole := self._whole(seed)):
            yield whole
        elif not parts:
            self.skipped.append(NO_FIT)

    def _whole(self, seed: int) -> oracle.Part | None:
        """One fp64 call; None, and a note, where the reference cannot make it."""
        import torch

        try:
            return oracle.whole(self.reference, self.inputs, seed)
        except torch.OutOfMemoryError:
            self.skipped.append(NO_FIT)
        except (RuntimeError, TypeError) as error:  # an operation without fp64, a dtype fixed in the user's code
            self.skipped.append(f"no fp64 oracle ({str(error).splitlines()[0]}); compared with the reference itself")
        return None


def _bits(seen: Observed) -> list[tuple[int, int]]:
    return [fingerprint(leaf) for _, leaf in seen.leaves() if hasattr(leaf, "numel")]
