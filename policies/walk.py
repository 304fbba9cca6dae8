"""Walks over stored trees, for training by reinforcement: the environment as a policy sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mtmc.action import Action
from mtmc.policies.environment import StoredTrees
from mtmc.policies.policy import View
from mtmc.trajectories.trees import StoredTree


@dataclass
class Walk:
    """One episode of `environment.StoredTrees` in one tree, of at most `horizon` candidates.

    Choices that nobody tried are shown, and have no say (with `known` they are not shown). `guided` shows predicted times.
    `rewards` holds what each choice earned; `view` is the decision at hand, None when the walk is over: stopped, at the
    horizon, or with nothing left to try.
    """

    stored: StoredTree
    horizon: int
    kind: str = "graded"
    known: bool = False
    guided: bool = True
    rewards: list[float] = field(default_factory=list)

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
