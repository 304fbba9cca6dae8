"""Dynamic checks: what can be found out about a candidate by calling it.

Each takes a `Subject` and yields Findings; the first one ends it. Those of `integrity` are made around a whole job instead.
They run in the worker, in the last judgement of `mtmc optimize` and in `mtmc verify`; each costs a few calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING

from mtmc.errors import BadInput
from mtmc.judge.dynamic import contents, launches, memory, output, streams
from mtmc.verdict import Finding

if TYPE_CHECKING:
    from mtmc.judge.dynamic.subject import Subject

Check = Callable[["Subject"], Iterator[Finding]]

CHECKS: dict[
    str, Check
] = {  # in this order: the first call before the reference has run, writes outside before they spoil another check, calls
    # on the same contents before these change
    "output_type": output.output_type,
    "canaries": memory.canaries,
    "call_count": contents.call_count,
    "same_pointer": contents.same_pointer,
    "version_counter": contents.version_counter,
    "shifted_pointers": contents.shifted_pointers,
    "weights": contents.weights,
    "launches": launches.launches,
    "fig_leaf": launches.fig_leaf,
    "unused": launches.unused,
    "streams": streams.streams,
    "share": launches.share,
}
ON_DEMAND = {"sanitizer": "compute-sanitizer's memcheck finds no access outside an allocation"}
ANY_ANSWER = ("canaries", "output_type")  # those that make sense of a candidate that is wrong from the start
AROUND = {  # made by `integrity.watched` around every job that runs a candidate
    "patched": "functions, methods and modules of PyTorch, Triton, the clock and the judge are the same objects afterwards",
    "flags": "PyTorch's global switches are as they were",
    "hooks": "no mode, hook or override is left in place",
    "threads": "no thread is left running",
}


def select(names: Iterable[str] | None = None) -> dict[str, Check]:
    """The checks of these names (all without names), in the table's order. Raises BadInput listing the known ones."""
    wanted = list(CHECKS if names is None else names)
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        raise BadInput(f"unknown dynamic check '{unknown[0]}'; known: {', '.join(CHECKS)}")
    return {name: check for name, check in CHECKS.items() if name in wanted}


def run(subject: Subject, names: Iterable[str] | None = None, seconds: float = inf) -> tuple[Finding, ...]:
    """What the checks find, up to the first that rejects; none begins after `seconds`. Raises what the candidate raises."""
    found: list[Finding] = []
    wanted, end = select(names), time.monotonic() + seconds
    for number, (name, check) in enumerate(wanted.items()):
        if time.monotonic() > end:
            subject.notes.append(f"dynamic checks: no time for {', '.join(list(wanted)[number:])}")
            break
        if name not in ANY_ANSWER and (subject.calibrate(), subject.wrong)[1]:
            subject.notes.append("dynamic checks: the first call is wrong already")
            break
        found += [*check(subject), *subject.findings]
        subject.findings.clear()
        if any(finding.level == "reject" for finding in found):
            break
    return tuple(found)
