"""Dynamic checks: what can be found out about a candidate by calling it.

Each takes a `Subject` and yields Findings; the first one ends it. Those of `integrity` are made around a whole job instead.
They run in the worker, in the last judgement of `mtmc optimize` and in `mtmc verify`; each costs a few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from mtmc.errors import BadInput
from mtmc.judge.dynamic import contents, launches, memory, output, streams
from mtmc.verdict import Finding

if TYPE_CHECKING:
    from mtmc.judge.dynamic.subject import Subject

Check = Callable[["Subject"], Iterator[Finding]]

CHECKS: dict[str, Check] = {  # in this order: the first call is a guarded one, made before the reference has run
    "canaries": memory.canaries,
    "output_type": output.output_type,
    "same_pointer": contents.same_pointer,
    "version_counter": contents.version_counter,
    "shifted_pointers": contents.shifted_pointers,
    "call_count": contents.call_count,
    "weights": contents.weights,
    "launches": launches.launches,
    "fig_leaf": launches.fig_leaf,
    "unused": launches.unused,
    "streams": streams.streams,
    "share": launches.share,
}
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


def run(subject: Subject, names: Iterable[str] | None = None) -> tuple[Finding, ...]:
    """What the checks find, up to the first that rejects. Raises what the candidate raises."""
    found: list[Finding] = []
    for check in select(names).values():
        found += list(check(subject))
        if any(finding.level == "reject" for finding in found):
            break
    return tuple(found)
