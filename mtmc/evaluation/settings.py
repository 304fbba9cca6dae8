"""What an evaluation is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtmc.trajectories.trees import Question

DEFAULT = ("random", "greedy", "model")


class Side(StrEnum):
    """Which trees: the structures that are kept for evaluation, those that are trained on, or both."""

    held_out = "held-out"
    training = "training"
    all = "all"

    def holds(self, question: Question) -> bool:
        """Is the problem on this side?"""
        return self is Side.all or question.held_out == (self is Side.held_out)


class Order(StrEnum):
    """Which program is looked at next (see `course`)."""

    best = "best"
    walk = "walk"


@dataclass(frozen=True)
class Contender:
    """A policy by its name for `mtmc.policies.load`; the report calls it `label`. Equal labels are pooled as seeds."""

    label: str
    spec: str

    @staticmethod
    def of(text: str) -> Contender:
        """`SPEC` or `LABEL=SPEC`; a label has no colon, so that a path may have an equals sign."""
        label, equals, spec = text.partition("=")
        return Contender(label, spec) if equals and ":" not in label else Contender(text, text)


@dataclass(frozen=True)
class Settings:
    """What is asked. `least` is the speed-up of a tree's best program from which on it counts; `seeds` is how many.

    `online`: contenders are folders of their runs, and `seeds`, `side` and `order` do not matter.
    """

    contenders: tuple[Contender, ...] = tuple(map(Contender.of, DEFAULT))
    budget: int = 32
    seeds: int = 3
    least: float = 1.2
    side: Side = Side.held_out
    order: Order = Order.best
    online: bool = False

    def tiny(self) -> Settings:
        """The same as a run that takes seconds."""
        return replace(self, budget=8, seeds=2)
