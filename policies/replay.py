"""A walk over a stored tree: the Views that a search would give a policy, and what its choices lead to; nothing is run.

replay = Replay(stored)
view = replay.view(stored.root)
step = replay.take(stored.root, policy.choose(view, rng).action)      None: nobody ever tried it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mtmc.action import Action
from mtmc.policies.policy import View
from mtmc.step import Step
from mtmc.trajectories.trees import StoredTree
from mtmc.tree import Tree


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

    def view(self, key: str, guided: bool = True, holds: Callable[[Action], bool] = everything) -> View:
        """The decision at a program that was reached. `guided` shows predicted times; `holds` is the scope of a stage.

        Raises KeyError for a program that was not reached.
        """
        node = self.stored.nodes[key]
        untried = self.tree.untried(key, node.legal)
        legal = tuple(action for action in untried if holds(action) and action.id not in node.refused)
        times = {action.id: ms for action in legal if guided and (ms := node.predicted.get(action.id)) is not None}
        best = self.tree.best
        best_ms = self.stored.nodes[best].predicted_ms if best and guided else None
        return View.at(self.tree, node.program, (*legal, node.legal[-1]), times, best_ms)

    def take(self, key: str, action: Action) -> Step | None:
        """Take an action: its step, now part of `tree`; None where the outcome is not in the stored tree."""
        known = self.stored.edges(key).get(action.id)
        if known is None:
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
