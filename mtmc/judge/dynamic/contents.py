"""Does the result follow the contents? Same place with other contents, same contents at another place, other weights, later
calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mtmc.judge.device import free_bytes, tensors
from mtmc.judge.dynamic.memory import footprint, placed, poison_freed
from mtmc.judge.dynamic.subject import Subject
from mtmc.problem import instantiate
from mtmc.verdict import Finding

if TYPE_CHECKING:
    import torch

CALLS = 20  # the last one is compared; fewer where they would take longer than CALLS_SECONDS
CALLS_SECONDS = 2.0
LEAST_CALLS = 6
Change = Callable[[Subject], list["torch.Tensor | None"]]


def _redrawn(subject: Subject) -> list[torch.Tensor | None]:
    """As the file draws them from another seed: valid contents, all of them others."""
    return [*tensors(instantiate(subject.problem, subject.device, subject.seed + 17).inputs)]


def _inside_out(subject: Subject) -> list[torch.Tensor | None]:
    """Reversed between the first and the last element: corners, sum and maximum stay."""
    return [_reversed(x) for x in tensors(subject.inputs)]


def _reversed(x: torch.Tensor) -> torch.Tensor:
    import torch

    flat = x.reshape(-1)
    return torch.cat([flat[:1], flat[1:-1].flip(0), flat[-1:]]).reshape(x.shape) if x.numel() > 3 else x


def _halved(subject: Subject) -> list[torch.Tensor | None]:
    return [x * 0.5 if x.is_floating_point() or x.is_complex() else None for x in tensors(subject.inputs)]


CHANGES: dict[str, tuple[Change, ...]] = {"plainly": (_redrawn, _halved), "hidden": (_inside_out, _redrawn, _halved)}


@contextmanager
def changed(subject: Subject, change: Change, hidden: bool) -> Iterator[None]:
    """Other contents at the same addresses until the block ends; `hidden` leaves the tensors' version counters alone."""
    import torch

    new = change(subject)
    writable = [(x, n) for x, n in zip(tensors(subject.inputs), new, strict=True) if n is not None and 0 not in x.stride()]
    before = [x.clone() for x, _ in writable]
    with torch.no_grad():
        for x, value in writable:
            (x.data if hidden else x).copy_(value)
    try:
        yield
    finally:
        with torch.no_grad():
            for (x, _), value in zip(writable, before, strict=True):
                (x.data if hidden else x).copy_(value)


def same_pointer(subject: Subject) -> Iterator[Finding]:
    """New contents at an address that the candidate has seen must give the new answer."""
    yield from _follows(subject, "same_pointer", "plainly", "other contents at the same address")


def version_counter(subject: Subject) -> Iterator[Finding]:
    """The same, written so that neither address nor version counter, nor corners and sum where possible, tell."""
    yield from _follows(subject, "version_counter", "hidden", "other contents at the same address and version counter")


def _follows(subject: Subject, name: str, way: str, what: str) -> Iterator[Finding]:
    subject.calibrate()
    old = subject.truth()
    subject.run()  # whatever remembers these contents remembers them as they are now
    for change in CHANGES[way]:
        with changed(subject, change, hidden=way == "hidden"):
            result = subject.run()  # before the reference, whose answer may lie in freed memory
            truth = subject.truth()
            if subject.off(result, truth):
                yield Finding(f"dynamic.{name}", 0, f"with {what} the result is not the reference's")
                return
            if subject.material(truth, old):
                return
    subject.notes.append(f"{name}: no change of the inputs that was tried changes the reference's answer")


def shifted_pointers(subject: Subject) -> Iterator[Finding]:
    """The same contents at another address, others left at the old one, must give the same answer."""
    if footprint(subject.inputs) > free_bytes(subject.device) // 2:
        subject.notes.append("shifted_pointers: no memory for a second copy of the inputs")
        return
    subject.calibrate()
    subject.run()  # whatever remembers an address remembers this one
    moved, _ = placed(subject.inputs, 0.0)
    with changed(subject, _halved, hidden=False):
        result, truth = subject.run(moved), subject.truth(moved)
    if subject.off(result, truth):
        yield Finding("dynamic.shifted_pointers", 0, "the same contents at another address give another result")


def weights(subject: Subject) -> Iterator[Finding]:
    """Weights changed after construction must change the output as they change the reference's."""
    import torch

    targets = _weights(subject)
    if not targets:
        if any(True for _ in subject.reference.parameters()):
            subject.notes.append("weights: the candidate has none of the reference's parameters by name")
        return
    subject.calibrate()
    old = subject.truth()
    subject.run()
    before = [p.detach().clone() for p in targets]
    with torch.no_grad():
        for p in targets:
            p.mul_(0.5).add_(0.01)
    try:
        result, truth = subject.run(), subject.truth()
    finally:
        with torch.no_grad():
            for p, value in zip(targets, before, strict=True):
                p.copy_(value)
    if subject.off(result, truth):
        yield Finding("dynamic.weights", 0, "weights changed after construction do not change the result as the reference's")
    elif not subject.material(truth, old):
        subject.notes.append("weights: changing them does not change the reference's answer")


def _weights(subject: Subject) -> list[torch.Tensor]:
    """Floating parameters of the reference that the candidate holds too, shared or under the same name, and its copies."""
    mine = dict(subject.built.model.named_parameters())
    found: dict[int, torch.Tensor] = {}
    for name, parameter in subject.reference.named_parameters():
        twin = mine.get(name, parameter if not mine else None)
        if twin is not None and twin.shape == parameter.shape and parameter.is_floating_point():
            found |= {id(parameter): parameter, id(twin): twin}
    return list(found.values())


def call_count(subject: Subject) -> Iterator[Finding]:
    """Calls 1, 2 and N on the same input must give the same answer, which is not to be found in freed memory."""
    subject.calibrate()
    began, truth = time.monotonic(), None
    for number in range(1, CALLS + 1):
        poison_freed()
        result = subject.run()
        late = number >= LEAST_CALLS and time.monotonic() - began > CALLS_SECONDS
        if number in (1, 2, CALLS) or late:
            truth = subject.truth() if truth is None else truth
            if subject.off(result, truth):
                yield Finding(
                    "dynamic.call_count", 0, f"call {number} on the same input is not the reference's answer any more"
                )
                return
        if late:
            return
