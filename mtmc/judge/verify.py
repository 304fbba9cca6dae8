"""Does a candidate compute what the reference computes? Runs both and the fp64 oracle, and applies the accuracy rule.

The candidate runs first, so that no buffer holds the reference's answer; memory from `torch.empty` is filled with NaN before
it sees it, and with another number in a second run, whose result must be the same bits or pass the rule as well. Modules run
as the user's file leaves them. Buffers are compared after the call and restored. The RNG is seeded alike before every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import Any

from mtmc.judge import candidate, conditioning, draws, forms, oracle
from mtmc.judge.accuracy import (
    NO_ORACLE,
    NOTHING,
    Allowance,
    Errors,
    Rule,
    combined,
    dtype_name,
    exact,
    form,
    inexact,
    measured,
    strides,
)
from mtmc.judge.device import peak_above, tensors
from mtmc.judge.door import Door
from mtmc.judge.observed import Observed, observe
from mtmc.judge.pretence import pretended
from mtmc.problem import Problem, instantiate
from mtmc.verdict import Accuracy, Wrong

FILLS = (float("nan"), -6e4)  # what unwritten memory holds in the first and in the second run
PROGRAM = Door()


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


def errors_of(y: Observed, r: Observed, parts: Iterable[oracle.Part]) -> dict[str, Errors]:
    """Errors of candidate and reference against the oracle, by leaf."""
    theirs = dict(r.leaves())
    errors: dict[str, Errors] = {}
    for part in parts:
        exacts = dict(part.leaves())
        for name, mine in y.leaves():
            if name in exacts and name in theirs and inexact(mine):
                rows = slice(None) if part.stop is None else slice(part.start, part.stop)
                pair = [t[rows] if t.ndim else t for t in (mine, theirs[name])]
                errors.setdefault(name, Errors(name, dtype_name(mine))).add(pair[0], pair[1], exacts[name])
    return errors


def differs_in_values(
    y: Observed, r: Observed, errors: Mapping[str, Errors], rule: Rule, allowed: Mapping[str, Allowance] | None = None
) -> Wrong | Accuracy:
    """The rule over every leaf, with what it may be `allowed` beyond; or the largest errors of candidate and reference."""
    theirs, allowed = dict(r.leaves()), allowed or {}
    for name, mine in y.leaves():
        if name not in theirs:  # a buffer of the candidate's own
            continue
        known = errors.get(name)
        wrong = known.failure(rule, allowed.get(name, NOTHING)) if known else _without_oracle(name, mine, theirs[name])
        if wrong:
            return wrong
    for number, mine in y.written.items():
        if wrong := _without_oracle(f"input {number} after the call", mine, r.written[number]):
            return wrong
    return measured(errors.values())


def _without_oracle(name: str, mine: Any, theirs: Any) -> Wrong | None:
    """Integers exactly; floats against the reference itself, within 64 fp32 eps."""
    if not hasattr(mine, "numel") or mine.numel() == 0:
        return None
    if not inexact(mine):
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
                found += seen.bits
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
        steady = tries[0].bits == tries[-1].bits
        if steady:
            del tries[1:]  # the memory may be needed
        with peak_above(self.device) as taken:
            r = observe(lambda: self.reference(*self.inputs), self.reference, self.inputs, seed)
        self._renew(r, draw, seed)
        finding: Wrong | Accuracy = Accuracy(0.0, 0.0)
        for y in tries:
            finding = differs_in_form(y, r, lambda: self._on_meta) or self._values(y, r, taken[0], draw, seed)
            if isinstance(finding, Wrong):
                break
        if isinstance(finding, Accuracy) and finding.reference_error >= 1:
            self.skipped.append(f"{draw} inputs: PyTorch itself has no digit right there, so a result of zeros may pass")
        return finding, "" if steady else ", varies between runs"

    def _values(self, y: Observed, r: Observed, taken: int, draw: str, seed: int) -> Wrong | Accuracy:
        """The rule on one draw; far from the file's inputs, once more by what the reference's conditioning allows there."""
        rule = self.rule.for_probes() if draw in draws.PROBES else self.rule
        exacts, errors = None, dict[str, Errors]()
        try:
            exacts = oracle.planned(self.reference, self.inputs, r.result, taken, seed)
            errors = errors_of(y, r, exacts.parts())
        except oracle.NoOracle as none:
            self.skipped.append(str(none))
        found = differs_in_values(y, r, errors, rule)
        swayed = draw in draws.SWAYED and isinstance(found, Wrong) and found.check == "values"
        if not (swayed and exacts and errors):
            return found
        try:
            again = differs_in_values(y, r, errors, rule, conditioning.allowances(exacts))
        except oracle.NoOracle:
            return found
        if isinstance(again, Accuracy):
            self.skipped.append(f"{draw} inputs: {conditioning.NOTE}")
        return again

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
        return {n: leaf for n, leaf in forms.named(found, {}) if isinstance(leaf, torch.Tensor)}

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
