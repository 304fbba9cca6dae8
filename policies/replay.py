"""A walk over a stored tree: the Views that a search would give a policy, and what its choices lead to; nothing is run.

replay = Replay(stored)
view = replay.view(stored.root)
step = replay.take(stored.root, policy.choose(view, rng).action)      None: nobody ever tried it

What a choice costs that nobody ever tried (its outcome is unknown) is for whoever counts to say: see `Untried`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

from mtmc.action import Action
from mtmc.hardware_profiles import Profile, load
from mtmc.policies.policy import View
from mtmc.step import Step
from mtmc.trajectories.trees import StoredTree
from mtmc.tree import Tree


class Untried(StrEnum):
    """What a choice means that is legal but was never tried in the tree. It changes nothing, and is not offered again.

    `free`: it is skipped at no cost, as if the rules had refused it. That flatters a policy that chooses badly, and most of
    all one that chooses without thought. `charged`: it costs one candidate, as if it had failed. That punishes a policy for
    what the makers of the tree did not think of. The truth lies between the two.
    """

    free = "free"
    charged = "charged"

    @property
    def cost(self) -> int:
        """In candidates."""
        return int(self is Untried.charged)


def everything(_: Action) -> bool:
    """All actions: the scope of a search's last stage."""
    return True


@dataclass
class Replay:
    """What is known so far of a stored tree: at first its root. `tree` grows with every step taken.

    A View lists what the rules propose, tried by the makers of the tree or not, without what they refuse (a search finds
    that out at no cost). Steps carry no patch.
    """

    stored: StoredTree

    def __post_init__(self) -> None:
        self.tree = Tree(step for step in self.stored.steps if not step.parent)
        self._struck: dict[str, set[str]] = {}

    def view(self, key: str, guided: bool = True, holds: Callable[[Action], bool] = everything) -> View:
        """The decision at a program that was reached. `guided` shows predicted times; `holds` is the scope of a stage.

        Raises KeyError for a program that was not reached.
        """
        node = self.stored.nodes[key]
        legal = self.moves(key, holds)
        times = {action.id: ms for action in legal if guided and (ms := node.predicted.get(action.id)) is not None}
        best = self.tree.best
        best_ms = self.stored.nodes[best].predicted_ms if best and guided else None
        seen = View.at(self.tree, node.program, (*legal, node.legal[-1]), times, best_ms)
        return replace(seen, profile=_profile(self.stored.provenance.gpu))

    def moves(self, key: str, holds: Callable[[Action], bool] = everything) -> tuple[Action, ...]:
        """The legal actions of a program that was reached, `stop` left out."""
        node = self.stored.nodes[key]
        out = node.refused | self._struck.get(key, set())
        return tuple(action for action in self.tree.untried(key, node.legal) if action.id not in out and holds(action))

    def at_hand(self, closed: set[str], open_at: Callable[[str], bool], last: str = "") -> str:
        """The program to decide about, as `mtmc optimize` would have it; empty where none is left.

        A failed one that can be repaired, else `last` if named, else the best verified one, of those not `closed` at which
        something is open; where nothing is, it is closed, for what is exhausted stays so.
        """
        failed = [key for key in reversed(self.tree.keys) if self.tree.repairable(key)]
        for key in dict.fromkeys((*failed, *[last] * bool(last), *self.tree.ranking)):
            if key not in closed and open_at(key):
                return key
            closed.add(key)
        return ""

    def take(self, key: str, action: Action) -> Step | None:
        """Take an action: its step, now part of `tree`; None where the outcome is not in the stored tree."""
        known = self.stored.edges(key).get(action.id)
        if known is None:
            self._struck.setdefault(key, set()).add(action.id)
            return None
        step = replace(known, index=len(self.tree.steps) + 1, cached=known.child in self.tree)
        self.tree.add(step)
        return step

    def follow(self, steps: tuple[Step, ...]) -> str:
        """Take known steps one after the other; the key of the program at the end."""
        key = self.stored.root
        for step in steps:
            assert step.action
            taken = self.take(step.parent, step.action)
            key = taken.child if taken else key
        return key


@cache
def _profile(gpu: str) -> Profile:
    return load(gpu)
