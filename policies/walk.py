"""Ways through stored trees, for training by reinforcement: what a policy sees, and what its choices earn.

A `Hunt` is a course of `mtmc evaluate-policy`: it always goes on from the best program, and does not stop. A `Walk` is an
episode of the environment: it goes on from the program that the last choice led to, and is over at `stop` or where nobody
went on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from mtmc import reward
from mtmc.action import Action
from mtmc.policies.environment import StoredTrees
from mtmc.policies.places import POTENTIALS
from mtmc.policies.policy import View
from mtmc.policies.replay import Replay
from mtmc.step import Step
from mtmc.trajectories.trees import StoredTree
from mtmc.tree import better
from mtmc.verdict import Verdict, Verified


@dataclass
class _Way:
    """What walks of both orders are given, and `rewards`, what each choice earned."""

    stored: StoredTree
    horizon: int
    kind: str = "graded"
    known: bool = False
    guided: bool = True
    rewards: list[float] = field(default_factory=list)


@dataclass
class Walk(_Way):
    """One episode of `environment.StoredTrees` in one tree, of at most `horizon` candidates.

    Choices that nobody tried are shown, and have no say (with `known` they are not shown). `guided` shows predicted times.
    `rewards` holds what each choice earned; `view` is the decision at hand, None when the walk is over: stopped, at the
    horizon, or with nothing left to try.
    """

    def __post_init__(self) -> None:
        self.env = StoredTrees((self.stored,), self.kind, self.horizon, untried=None)
        self.view = self._look()

    def take(self, action: Action) -> None:
        """Take an action that has a say."""
        _, earned, terminated, truncated, _ = self.env.step(self._slots[action.id])
        self.rewards.append(earned)
        self.view = None if terminated or truncated else self._look()

    def has_a_say(self, action: Action) -> bool:
        """Is its outcome known, and was it not taken here before?"""
        slot = self._slots.get(action.id)
        return slot is not None and bool(self._masks[slot])

    @property
    def gain(self) -> float:
        """Log speed-up of the best program so far over PyTorch; 0 while none is faster."""
        return self.env.gain

    def _look(self) -> View | None:
        self._slots = {action.id: slot for slot, action in enumerate(self.env.legal())}
        self._masks = self.env.action_masks()
        if self._masks.sum() <= 1:
            return None
        seen = self.env.view(self.guided)
        return replace(seen, legal=tuple(a for a in seen.legal if not self.known or self.has_a_say(a)))


@dataclass
class Hunt(_Way):
    """A search for the tree's best program with `horizon` candidates, from the best program at each choice; see `Walk`.

    By a reward of POTENTIALS a choice earns what the best program's worth rises by, so a return is what the best is worth
    over the first; `stepwise` is earned over the program at hand. It is over where the best is found or nothing is left.
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
        self._spent += not step.cached
        self.rewards.append(self._earned(step))
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
        seen = self._replay.view(self._key, self.guided)
        return replace(seen, legal=(*(a for a in seen.moves if not self.known or self.has_a_say(a)), seen.stop))

    def _worth_of(self, verdict: Verdict) -> float:
        return (POTENTIALS[self.kind](verdict) if self.kind in POTENTIALS else None) or 0.0

    def _earned(self, step: Step) -> float:
        if self.kind in POTENTIALS:
            before, self._worth = self._worth, max(self._worth, self._worth_of(step.verdict))
            return self._worth - before
        old, new = self.stored.nodes[step.parent].verdict, step.verdict
        faster = isinstance(old, Verified) and isinstance(new, Verified) and better(new.timing, old.timing)
        return reward.stepwise(new, faster, len(self.rewards)) or 0.0


def _level(verdict: Verdict) -> float:
    """Log speed-up; minus infinity of a failed program."""
    return -math.inf if verdict.log_speedup is None else verdict.log_speedup


ORDERS: dict[str, type[Hunt] | type[Walk]] = {"best": Hunt, "walk": Walk}
"""Ways by the program that comes next, as `mtmc evaluate-policy --order` names them."""
