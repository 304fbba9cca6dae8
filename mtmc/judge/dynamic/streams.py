"""Work that the current stream does not wait for: an honest result is there for whatever the caller enqueues next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mtmc.judge.device import tensors
from mtmc.judge.dynamic.contents import CHANGES, changed
from mtmc.judge.dynamic.memory import Guarded
from mtmc.judge.dynamic.subject import Subject, mismatch
from mtmc.verdict import Finding

HEAD_START = 20_000_000  # clock cycles, about 10 ms: the host enqueues everything behind it before any of it runs


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

    The contents are taken away, the stream is kept busy, and the contents come back just before the call.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    inputs = [x for x in tensors(subject.inputs) if 0 not in x.stride()]
    torch.manual_seed(subject.seed)
    with torch.no_grad():
        right = [x.clone() for x in inputs]
        for x in inputs:
            x.zero_()
        torch.cuda.synchronize()
        torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]
        for x, value in zip(inputs, right, strict=True):
            x.copy_(value)
        with Guarded(0.0):
            result = subject.call(subject.built, subject.inputs)
        copy = tree_map_only(torch.Tensor, lambda y: y.clone(), result)
        torch.cuda.synchronize()
    return result, copy
