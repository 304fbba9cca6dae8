"""Walks over stored trees, for training by reinforcement: what is seen, what a choice leads to, what it earns.

A walk goes on from a verified program or from a failed one that can be repaired; from any other failure it goes back to
where it came from, and earns the difference back, so that the rewards of a walk add up to what it kept. It ends with `stop`,
after `horizon` steps, or where nothing known is left to try.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mtmc import reward
from mtmc.action import Action
from mtmc.policies import decisions
from mtmc.policies.policy import View
from mtmc.policies.replay import Replay
from mtmc.trajectories.trees import StoredTree
from mtmc.verdict import Verdict

Reward = Callable[[Verdict], float | None]
REWARDS: dict[str, Reward] = {"graded": reward.graded, "sigmoid": reward.sigmoid}


@dataclass
class Walk:
    """One walk. `rewards` holds what each step earned; `view` is None when it is over."""

    stored: StoredTree
    horizon: int
    kind: str = "graded"
    known: bool = False
    rewards: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replay, self.key = Replay(self.stored), self.stored.root
        self.view = self._look()

    def take(self, action: Action) -> None:
        """Take a known action, or `stop`."""
        step = self.replay.take(self.key, action) if action.family != "stop" else None
        if step is None:
            self.rewards.append(0.0)
            self.view = None
            return
        self.rewards.append(self._worth(step.child) - self._worth(self.key))
        before, self.key = self.key, step.child
        self.view = self._look()
        if self.view is None and not step.verdict.correct:
            self.rewards[-1] = 0.0
            self.key = before
            self.view = self._look()

    @property
    def gain(self) -> float:
        """Log speed-up of the best program reached over the first one's, as far as rewards see it."""
        return self._worth(self.replay.tree.best) - self._worth(self.stored.root) if self.replay.tree.best else 0.0

    def _look(self) -> View | None:
        if len(self.rewards) >= self.horizon:
            return None
        seen = decisions.view(self.replay, self.key, self.known)
        return seen if any(action.id in self.stored.edges(self.key) for action in seen.moves) else None

    def _worth(self, key: str) -> float:
        return REWARDS[self.kind](self.stored.nodes[key].verdict) or 0.0
