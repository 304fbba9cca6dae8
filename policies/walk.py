"""Episodes of the environment in stored trees, for training by reinforcement: what a policy sees, and what its choices earn.

A `Walk` goes on from the program that the last choice led to, and is over at `stop` or where nobody went on; a `Hunt`, the
other order, goes on from the best.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.action import Action
from mtmc.policies.environment import StoredTrees
from mtmc.policies.hunt import Hunt, Way, shown
from mtmc.policies.policy import View


@dataclass
class Walk(Way):
    """One episode of `environment.StoredTrees` in one tree, of at most `horizon` candidates.

    Choices that nobody tried have no say; which are shown is as in a `Hunt`.
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
        return shown(self.env.view(self.guided), self.stored, self.known)


ORDERS: dict[str, type[Hunt] | type[Walk]] = {"best": Hunt, "walk": Walk}
"""Ways by the program that comes next, as `mtmc evaluate-policy --order` names them."""
