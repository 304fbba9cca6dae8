"""Courses through stored trees, for training: a search for a tree's best program, as `mtmc evaluate-policy` makes it.

A `Hunt` always goes on from the best program, and does not stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from mtmc import reward
from mtmc.action import Action
from mtmc.policies.places import POTENTIALS
from mtmc.policies.policy import View
from mtmc.policies.replay import Replay
from mtmc.step import Step
from mtmc.trajectories.trees import StoredTree
from mtmc.tree import better
from mtmc.verdict import Verdict, Verified


@dataclass
class Way:
    """What walks of both orders are given, and `rewards`, what each choice earned."""

    stored: StoredTree
    horizon: int
    kind: str = "graded"
    known: bool = False
    guided: bool = True
    rewards: list[float] = field(default_factory=list)


@dataclass
class Hunt(Way):
    """A search for the tree's best program with `horizon` candidates, from the best program at each choice.

    Actions that nobody tried have no say; `shown` says which are shown, with predicted times where it is `guided`. By a
    reward of POTENTIALS a choice earns what the best program's worth rises by, times the part of the candidates that is left
    to enjoy it: a return is the mean worth over the course, the area under its curve. `stepwise` is earned over the program
    at hand. It is over where the best is found or nothing is left.
    """

    def __post_init__(self) -> None:
        self._replay, self._spent = Replay(self.stored), 0
        self._closed: set[str] = set()
        self._level = _level(self.stored.nodes[self.stored.root].verdict)
        self._most = max(_level(node.verdict) for node in self.stored.nodes.values())
        self._worth = self._worth_of(self.stored.tree.verdict(self.stored.root))
        self.view = self._look()

    def take(self, action: Action) -> None:
        """Take an action that has a say."""
        step = self._replay.take(self._key, action)
        assert step, "this action has no say"
        self.rewards.append(self._earned(step))
        self._spent += not step.cached
        self._level = max(self._level, _level(step.verdict))
        self.view = self._look() if self._spent < self.horizon and self._level < self._most else None

    def has_a_say(self, action: Action) -> bool:
        """Is its outcome known? What was taken here before is not offered."""
        return action.id in self.stored.edges(self._key)

    @property
    def gain(self) -> float:
        """Log speed-up of the best program so far over PyTorch; 0 while none is faster."""
        return max(self._level, 0.0)

    def _look(self) -> View | None:
        edges = self.stored.edges
        self._key = self._replay.at_hand(
            self._closed, lambda key: any(action.id in edges(key) for action in self._replay.moves(key))
        )
        if not self._key:
            return None
        return shown(self._replay.view(self._key, self.guided), self.stored, self.known)

    def _worth_of(self, verdict: Verdict) -> float:
        return (POTENTIALS[self.kind](verdict) if self.kind in POTENTIALS else None) or 0.0

    def _earned(self, step: Step) -> float:
        if self.kind in POTENTIALS:
            before, self._worth = self._worth, max(self._worth, self._worth_of(step.verdict))
            return (self._worth - before) * (1 - self._spent / self.horizon)
        old, new = self.stored.nodes[step.parent].verdict, step.verdict
        faster = isinstance(old, Verified) and isinstance(new, Verified) and better(new.timing, old.timing)
        return reward.stepwise(new, faster, len(self.rewards)) or 0.0


def shown(seen: View, stored: StoredTree, known: bool) -> View:
    """The decision without actions of which nothing is known, or with `known` without all that nobody tried.

    Of what is left nearly everything has a predicted time, as in an evaluation of filled trees; else a missing one would
    tell what others thought worth a look.
    """
    key = seen.program.key
    edges, times = stored.edges(key), {} if known else stored.nodes[key].predicted
    return replace(seen, legal=(*(a for a in seen.moves if a.id in edges or times.get(a.id)), seen.stop))


def _level(verdict: Verdict) -> float:
    """Log speed-up; minus infinity of a failed program."""
    return -math.inf if verdict.log_speedup is None else verdict.log_speedup
