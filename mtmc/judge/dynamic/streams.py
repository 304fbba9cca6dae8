"""Work that the current stream does not wait for: an honest result is there for whatever the caller enqueues next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mtmc.judge.device import tensors
from mtmc.judge.dynamic.contents import CHANGES, changed
from mtmc.judge.dynamic.memory import Guarded, poison_freed
from mtmc.judge.dynamic.subject import Subject, mismatch
from mtmc.verdict import Finding

HEAD_STARTS = (20_000_000, 100_000_000, 500_000_000)  # clock cycles, from about 10 ms: enough for the host to get ahead


def streams(subject: Subject) -> Iterator[Finding]:
    """New contents arrive late on the current stream, and the result is copied as soon as that stream allows.

    Work on another stream that does not wait for the first reads the old contents; work that the current stream does not
    wait for is missing in the copy. Streams that are joined properly pass.
    """
    import torch

    if not subject.on_gpu:
        return
    subject.run()
    if subject.writes:
        subject.notes.append("streams: a call writes to its inputs")
        return
    before = torch.cuda.current_stream()
    for change in CHANGES["plainly"]:
        with changed(subject, change, hidden=False):
            result, copy = _hurried(subject)
            truth = subject.truth()
            wrong = subject.off(copy, truth)
        if wrong or mismatch(copy, result) > 0:
            yield Finding("dynamic.streams", 0, "the result is not complete on the stream it was asked for on")
            return
    if torch.cuda.current_stream() != before:
        yield Finding("dynamic.streams", 0, "another stream is the current one after a call")


def _hurried(subject: Subject) -> tuple[Any, Any]:
    """The result, and its copy made on the current stream right behind the call, without any wait of the host's.

    The contents are taken away, the stream is kept busy, and the contents come back just before the call. A host that was
    too slow to enqueue all of it meanwhile gets a longer start.
    """
    for cycles in HEAD_STARTS:
        result, copy, ahead = _raced(subject, cycles)
        if ahead:
            break
    return result, copy


def _raced(subject: Subject, cycles: int) -> tuple[Any, Any, bool]:
    """The same behind so much work, and whether that was still going on when everything was enqueued.

    No earlier result is left in the memory that this one gets.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    inputs = [x for x in tensors(subject.inputs) if 0 not in x.stride()]
    torch.manual_seed(subject.seed)
    with torch.no_grad():
        right = [x.clone() for x in inputs]
        for x in inputs:
            x.zero_()
        poison_freed()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        started = torch.cuda.Event()  # type: ignore[no-untyped-call]
        started.record()
        for x, value in zip(inputs, right, strict=True):
            x.copy_(value)
        with Guarded(0.0):
            result = subject.call(subject.built, subject.inputs)
        copy = tree_map_only(torch.Tensor, lambda y: y.clone(), result)
        ahead = not started.query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return result, copy, ahead
