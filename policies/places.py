"""A stored tree as arrays: what an environment that takes tens of thousands of steps a second can afford to look at."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from mtmc import reward
from mtmc.action import Family
from mtmc.trajectories.trees import Node, StoredTree
from mtmc.tree import offered
from mtmc.verdict import Timing, Verdict, Verified

FAMILIES = get_args(Family)
FACTS = len(FAMILIES) + 3
LIMIT = 20.0  # of logarithms
UNKNOWN, STOP = -1, -2  # in the place of a child
POTENTIALS = {"graded": reward.graded, "sigmoid": reward.sigmoid}
"""Rewards that are differences of what a program is worth."""


@dataclass(frozen=True)
class Place:
    """One program. `children` holds for each of its actions the number of the place it leads to, or why there is none.

    `mask` int8 [width] marks the actions that are offered at first; `facts` float32 [width, FACTS] are an action's family,
    whether it means the whole program, the log of its predicted gain (0 where there is none), and a mark that there is one.
    `gain` is the log speed-up, 0 of a failed program; `worth` is by a reward of POTENTIALS, else 0.
    """

    key: str
    verdict: Verdict
    children: tuple[int, ...]
    mask: NDArray[np.int8]
    facts: NDArray[np.float32]
    gain: float
    worth: float

    @property
    def timing(self) -> Timing | None:
        return self.verdict.timing if isinstance(self.verdict, Verified) else None


def places(tree: StoredTree, width: int, kind: str, hidden: bool = False) -> tuple[Place, ...]:
    """The programs of a tree, the first one first; arrays have room for `width` actions.

    `hidden` does not offer the actions that nobody tried.
    """
    numbers = {key: number for number, key in enumerate(tree.nodes)}
    found = []
    for key, node in tree.nodes.items():
        edges = tree.edges(key)
        children = [numbers[edges[a.id].child] if a.id in edges else UNKNOWN for a in node.legal[:-1]]
        shown = {action.id for action in offered(node.legal, node.verdict, key == tree.root)} - node.refused
        if hidden:
            shown &= edges.keys()
        mask = np.zeros(width, np.int8)
        mask[: len(node.legal)] = [action.id in shown for action in node.legal]
        mask[len(node.legal) - 1] = 1
        gain = node.verdict.log_speedup or 0.0
        worth = POTENTIALS[kind](node.verdict) if kind in POTENTIALS else 0.0
        found.append(Place(key, node.verdict, (*children, STOP), mask, _facts(node, width), gain, worth or 0.0))
    return tuple(found)


def _facts(node: Node, width: int) -> NDArray[np.float32]:
    facts = np.zeros((width, FACTS), np.float32)
    for slot, action in enumerate(node.legal):
        ms = node.predicted.get(action.id)
        facts[slot, FAMILIES.index(action.family)] = 1
        facts[slot, -3] = action.region == "model"
        if ms and node.predicted_ms:
            facts[slot, -2:] = log(node.predicted_ms / ms), 1
    return facts.clip(-LIMIT, LIMIT)
