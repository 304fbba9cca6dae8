"""A Gymnasium environment over stored trees: choose the next optimisation, see what it led to; no kernel runs.

    env = StoredTrees(tuple(archive.load(Path("trees"))), reward="graded", budget=16)
    observation, info = env.reset(seed=0)                   a tree drawn at random; options={"tree": 3} names one
    slot = rng.choice(np.flatnonzero(env.action_masks()))   a place in env.legal()
    observation, earned, terminated, truncated, info = env.step(slot)

An action is a place in the list of actions proposed at the program at hand, `stop` last. A verified program is gone on
from; a failed one is only repaired, and where nothing is left to repair, or on `stop`, the walk goes back to the program
before. `stop` elsewhere ends the episode; so does the budget, in candidates: programs met for the first time, and choices
that nobody tried where these are charged (`mtmc.policies.replay.Untried`). A masked place changes nothing and costs one.

`graded` and `sigmoid` earn what the program at hand gained in worth, going back included: a return is the worth of what was
kept over that of the first program. `stepwise` earns by the step (see `mtmc.reward`), by going back nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsInt

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mtmc import reward as rewards
from mtmc.action import Action
from mtmc.errors import BadInput
from mtmc.policies.places import FACTS, LIMIT, POTENTIALS, STOP, UNKNOWN, Place, places
from mtmc.policies.policy import View
from mtmc.policies.replay import Replay, Untried
from mtmc.trajectories.trees import StoredTree
from mtmc.tree import better

Observation = dict[str, Any]
"""Arrays by name."""
REWARDS = (*POTENTIALS, "stepwise")
STATE = ("compiled", "correct", "log speed-up", "best log speed-up so far", "part of the budget spent")


class StoredTrees(gymnasium.Env[Observation, np.int64]):
    """See the module. `untried` says what a choice costs that nobody ever tried; None masks these choices.

    Observations: `action_mask` int8 [width], `actions` float32 [width, FACTS] (see `places.Place`), `program` float32
    [STATE]. Raises BadInput for an unknown reward, no trees, or a budget below one.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        trees: Sequence[StoredTree],
        reward: str = "graded",
        budget: int = 16,
        untried: Untried | None = Untried.free,
    ) -> None:
        if reward not in REWARDS:
            raise BadInput(f"There is no reward {reward}; known are {', '.join(REWARDS)}.")
        if not trees or budget < 1:
            raise BadInput("The environment needs at least one tree and a budget of one candidate.")
        self.trees, self.reward, self.budget, self.untried = tuple(trees), reward, budget, untried
        width = max(len(node.legal) for tree in trees for node in tree.nodes.values())
        self._worlds = tuple(places(tree, width, reward, hidden=untried is None) for tree in trees)
        self.action_space = spaces.Discrete(width)
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.MultiBinary(width),
                "actions": spaces.Box(-LIMIT, LIMIT, (width, FACTS), np.float32),
                "program": spaces.Box(-LIMIT, LIMIT, (len(STATE),), np.float32),
            }
        )
        self._replay: Replay | None = None
        self._shown = self._spent = self._steps = 0
        self._begin(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """A new episode at a first program. `options["tree"]` is the number of the tree, by default drawn at random."""
        super().reset(seed=seed)
        named = (options or {}).get("tree")
        self._begin(int(self.np_random.integers(len(self.trees))) if named is None else int(named))
        return self._observation(), self._info("reset")

    def step(self, action: SupportsInt) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take the action at a place of the list. `info["outcome"]` is the verdict's status, or what else became of it."""
        slot, earned, terminated = int(action), 0.0, False
        child = self._here.children[slot] if self._mask[slot] else None
        if child is None:
            self._spent, outcome = self._spent + 1, "masked"
        elif child == STOP:
            terminated, earned, outcome = not self._may_retreat, self._retreat(), "stop"
        elif child == UNKNOWN:
            self._strike(slot)
            self._spent, outcome = self._spent + (self.untried.cost if self.untried else 0), "untried"
        else:
            earned, outcome = self._go(slot, child), self._worlds[self._number][child].verdict.status
        truncated = not terminated and self._spent >= self.budget
        return self._observation(), earned, terminated, truncated, self._info(outcome)

    def action_masks(self) -> NDArray[np.bool_]:
        """Which places may be chosen now [width]."""
        return self._mask.astype(np.bool_)

    def legal(self) -> tuple[Action, ...]:
        """The actions behind the places of the program at hand, masked ones too."""
        return self.tree.nodes[self._here.key].legal

    @property
    def tree(self) -> StoredTree:
        return self.trees[self._number]

    @property
    def gain(self) -> float:
        """Log speed-up of the best program so far over the reference; 0 while none is faster, for then that is kept."""
        return self._best

    def view(self, guided: bool = False) -> View:
        """The decision as a policy sees it, actions that nobody tried included. `guided` shows predicted times."""
        if self._replay is None:
            self._replay = Replay(self.tree)
        for key, slot in self._choices[self._shown :]:
            self._replay.take(key, self.tree.nodes[key].legal[slot])
        self._shown = len(self._choices)
        return self._replay.view(self._here.key, guided)

    def _begin(self, number: int) -> None:
        self._number, self._path, self._met = number, [0], {0}
        self._masks: dict[int, NDArray[np.int8]] = {}
        self._choices: list[tuple[str, int]] = []
        self._replay = None  # made when somebody looks: it is far slower than a step
        self._shown = self._spent = self._steps = 0
        self._best = 0.0
        self._look()

    def _look(self) -> None:
        """Turn to the program at the end of the path."""
        number = self._path[-1]
        self._here: Place = self._worlds[self._number][number]
        if number not in self._masks:
            self._masks[number] = self._here.mask.copy()
        self._mask = self._masks[number]
        self._best = max(self._best, self._here.gain)

    def _strike(self, slot: int) -> None:
        self._choices.append((self._here.key, slot))
        self._mask[slot] = 0

    def _go(self, slot: int, child: int) -> float:
        """To a known program, and back where it failed and cannot be repaired; what that earned."""
        before = self._here
        self._strike(slot)
        self._spent += child not in self._met
        self._met.add(child)
        self._path.append(child)
        self._look()
        earned = self._earned(before)
        self._steps += 1
        return earned + self._retreat() if self._may_retreat and not self._open else earned

    @property
    def _open(self) -> bool:
        """Is anything offered here besides `stop`?"""
        return int(self._mask.sum()) > 1

    @property
    def _may_retreat(self) -> bool:
        return not self._here.verdict.correct and len(self._path) > 1

    def _retreat(self) -> float:
        """From a failed program to the last one before it that was verified or can still be repaired; what that earned."""
        before = self._here
        while self._may_retreat:
            self._path.pop()
            self._look()
            if self._open:
                break
        return self._here.worth - before.worth

    def _earned(self, before: Place) -> float:
        if self.reward in POTENTIALS:
            return self._here.worth - before.worth
        old, new = before.timing, self._here.timing
        faster = old is not None and new is not None and better(new, old)
        return rewards.stepwise(self._here.verdict, faster, self._steps) or 0.0

    def _observation(self) -> Observation:
        here = self._here
        state = (here.verdict.compiled, here.verdict.correct, here.gain, self._best, self._spent / self.budget)
        return {
            "action_mask": self._mask.copy(),
            "actions": here.facts.copy(),
            "program": np.array(state, np.float32).clip(-LIMIT, LIMIT),
        }

    def _info(self, outcome: str) -> dict[str, Any]:
        return {"tree": self.tree.question.name, "program": self._here.key, "outcome": outcome}
