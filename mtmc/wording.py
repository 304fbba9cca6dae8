"""Verdicts and figures in a few words, the same words everywhere they are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mtmc.step import Step
from mtmc.tree import Tree
from mtmc.verdict import CompileError, Infra, Rejected, RuntimeFault, Timeout, Timing, Verdict, Verified, Wrong

KINDS = {
    "verified": "verified",
    "wrong": "wrong",
    "compile_error": "did not compile",
    "runtime_fault": "crashed",
    "timeout": "timed out",
    "rejected": "rejected",
    "infra": "machine fault",
}
"""Verdict status → the word for it."""


def speedup(timing: Timing) -> str:
    """`1.83× predicted`, or `1.83× [1.80, 1.86]` when measured; with the decision where it is `equal` or `no verdict`."""
    if timing.kind == "predicted":
        return f"{timing.speedup:.2f}× predicted"
    said = f", {timing.decision}" if timing.decision in ("equal", "no verdict") else ""
    return f"{timing.speedup:.2f}× [{timing.low:.2f}, {timing.high:.2f}]{said}"


def beside(timing: Timing) -> Iterator[tuple[str, str]]:
    """What was measured beside device times: name and figure, those that there are."""
    if timing.floor_share is not None:
        yield "share of the hardware's floor", f"{timing.floor_share:.0%}"
    for name, us in (("guard of the program", timing.guard_us), ("launching", timing.launch_us)):
        if us is not None:
            yield name, f"{us:.3g} µs"
    if timing.graph_ms is not None:
        reference = timing.reference_graph_ms
        of_reference = f" (eager: {milliseconds(reference)})" if reference is not None else ""
        yield "under CUDA-graph replay", milliseconds(timing.graph_ms) + of_reference
    for name, unit in (("sm_mhz", "MHz"), ("memory_mhz", "MHz"), ("celsius", "°C"), ("watts", "W")):
        if name in timing.clocks:
            low, high = timing.clocks[name]
            yield name.partition("_")[0], f"{low:.0f} to {high:.0f} {unit}"
    if timing.clocks.get("throttled"):
        yield "throttled", ", ".join(timing.clocks["throttled"])


def milliseconds(ms: float) -> str:
    """Four significant digits, with the unit that keeps them short."""
    return f"{ms * 1000:.4g} µs" if ms < 0.1 else f"{ms:.4g} ms"


def outcome(verdict: Verdict) -> str:
    """The verdict in one short phrase, without the timing of a verified one."""
    word = KINDS[verdict.status]
    match verdict:
        case Wrong(check=detail) | Rejected(rule=detail) | Timeout(stage=detail):
            return f"{word} ({detail})"
        case CompileError(cause=cause) | RuntimeFault(cause=cause):
            return f"{word} ({cause.replace('_', ' ')})"
    return word


def details(verdict: Verdict) -> str:
    """What a failed verdict has to say, in full; empty for a verified one."""
    match verdict:
        case Timeout(stage=stage, seconds=seconds):
            return f"No end after {seconds:g} s of {stage}."
        case (
            CompileError(message=message)
            | RuntimeFault(message=message)
            | Wrong(message=message)
            | Rejected(message=message)
            | Infra(message=message)
        ):
            return message
    return ""


def result(verdict: Verdict) -> str:
    """The speed-up of a verified program, else why it failed."""
    return speedup(verdict.timing) if isinstance(verdict, Verified) else outcome(verdict)


def gain(step: Step, tree: Tree) -> str:
    """Speed-up of the step's program over its parent's, as `+12.3 %`; empty where one of them was not verified."""
    before = tree.timing(step.parent) if step.parent else None
    after = tree.timing(step.child)
    return f"{(after.speedup / before.speedup - 1) * 100:+.1f} %" if before and after else ""


def tally(steps: Iterable[Step]) -> str:
    """`12 verified, 3 wrong`: how many judged programs ended how; the empty string for none."""
    counts = Counter(KINDS[step.verdict.status] for step in steps if not step.cached)
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())
