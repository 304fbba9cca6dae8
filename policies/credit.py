"""What the choices of walks are given for what they led to: advantages and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Stage:
    """One menu of a choice: its tokens, which options have a say, the one taken, and the start's log-probabilities [26]."""

    row: list[int]
    known: list[bool]
    taken: int
    reference: Tensor


@dataclass
class Choice:
    """One step of a walk: its menus, its log-probability and value when it was drawn, later its advantage and return."""

    stages: list[Stage] = field(default_factory=list)
    log_probability: float = 0.0
    value: float = 0.0
    advantage: float = 0.0
    target: float = 0.0


def credit(made: Sequence[Choice], rewards: Sequence[float], discount: float, trace: float) -> None:
    """Generalised advantage estimation (Schulman et al. 2016) and the returns that the value head learns."""
    running, following = 0.0, 0.0
    for choice, earned in zip(reversed(made), reversed(rewards), strict=True):
        surprise = earned + discount * following - choice.value
        running = surprise + discount * trace * running
        choice.advantage, choice.target, following = running, running + choice.value, choice.value


def compare(walks: Sequence[Sequence[Choice]]) -> None:
    """Takes from each advantage the mean of the others' at the same step: walks of one tree, 0 where one has ended.

    A baseline without bias, which leaves one out (Kool, van Hoof, Welling 2019). Which tree it is decides nearly all of a
    return, and a new value head cannot tell.
    """
    if len(walks) < 2:
        return
    for column in zip_longest(*walks):
        whole = sum(choice.advantage for choice in column if choice)
        for choice in filter(None, column):
            choice.advantage -= (whole - choice.advantage) / (len(walks) - 1)


def normalised(choices: list[Choice]) -> list[Choice]:
    """Advantages to mean 0 and deviation 1."""
    advantages = [choice.advantage for choice in choices]
    middle, spread = fmean(advantages), stdev(advantages) if len(choices) > 1 else 1.0
    for choice in choices:
        choice.advantage = (choice.advantage - middle) / (spread + 1e-6)
    return choices
