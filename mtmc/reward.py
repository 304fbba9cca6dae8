"""Reward of a verdict (DESIGN §7): 0.1 compiled + 0.3 correct + clipped log speed-up."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from mtmc.verdict import Infra, Verdict, Verified

SLOWEST = -0.25  # a correct slow program (0.15) still beats a wrong one (0.1)
SIGMOID_DELTA = 1.8
STEPWISE_DECAY = 0.9


def graded(verdict: Verdict) -> float | None:
    """`0.1·compiled + 0.3·correct + correct·clip(ln speedup, −0.25, ln roofline)`; None for an infrastructure fault.

    The roofline is the reference's time over the floor of the hardware, when a floor is known.
    """
    if isinstance(verdict, Infra):
        return None
    if not isinstance(verdict, Verified):
        return 0.1 * verdict.compiled
    timing = verdict.timing
    gain = max(log(timing.speedup), SLOWEST)
    if timing.floor_ms > 0:
        gain = min(gain, max(log(timing.reference_ms / timing.floor_ms), 0.0))
    return 0.4 + gain


@dataclass(frozen=True)
class Parts:
    """What `graded` adds up: 0.1 for compiling, 0.3 for being correct, the clipped log speed-up."""

    compiled: float
    correct: float
    gain: float


def parts(verdict: Verdict) -> Parts | None:
    """The summands of `graded`; None for an infrastructure fault."""
    total = graded(verdict)
    if total is None:
        return None
    compiled, correct = 0.1 * verdict.compiled, 0.3 * verdict.correct
    return Parts(compiled, correct, total - compiled - correct if verdict.correct else 0.0)


def sigmoid(verdict: Verdict) -> float | None:
    """`σ(1 + speedup − 1.8)·correct`; None for an infrastructure fault."""
    if isinstance(verdict, Infra):
        return None
    if not isinstance(verdict, Verified):
        return 0.0
    return 1.0 / (1.0 + exp(-(1.0 + verdict.timing.speedup - SIGMOID_DELTA)))


def stepwise(verdict: Verdict, faster: bool, number: int) -> float | None:
    """What step `number` (from 0) earns by itself; None for an infrastructure fault.

    `0.9^number` times the sum of −1 or +0.1 for compiling, −0.5 or +0.5 for being correct (only asked of what compiles), and
    +1 where the program is `faster` than the one before it.
    """
    if isinstance(verdict, Infra):
        return None
    if not verdict.compiled:
        return -(STEPWISE_DECAY**number)
    earned = 0.1 + (0.5 + faster if verdict.correct else -0.5)
    return STEPWISE_DECAY**number * earned
