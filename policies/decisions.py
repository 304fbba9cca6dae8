"""Decisions out of stored trees: what is seen at a program, and how good each known step from it is.

The worth of a step is found by looking: in a stored tree every outcome is known, so the discounted return of the best way on
from each program is a fixed point (Bellman's equation for a deterministic world), and the best paths follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from random import Random

from mtmc.action import Action
from mtmc.actions import STOP
from mtmc.errors import BadInput
from mtmc.policies import prompt
from mtmc.policies.hunt import Hunt, shown
from mtmc.policies.menu import Gains, Menu, menu
from mtmc.policies.policy import Choice, View
from mtmc.policies.replay import Replay
from mtmc.trajectories import archive
from mtmc.trajectories.store import Run
from mtmc.trajectories.trees import Node, Provenance, Question, StoredTree
from mtmc.tree import Tree, better
from mtmc.verdict import Infra, Verified

BROKEN = 0.3  # a program that fails counts as worse than the slowest verified one by this (log speed-up)
ROUNDS = 10_000  # of the fixed point; it is reached after as many as the longest best path has steps
CLOSE = 1e-9
MINOR = 0.02  # a menu that the expert opens more seldom is left out
LENGTH = 32  # candidates of a course
OWN = 0.5  # part of a course's steps that the expert takes, the others are drawn
BELIEF = 0.8  # of a predicted log gain that is found when it is measured: slope over 1,208 steps measured on an H200


@dataclass(frozen=True)
class Stage:
    """One menu to learn from. `target` is the share of each option in what the expert takes, summing to 1.

    Options of whose outcome the expert knows nothing have no say: `known` is false there. `weight` is how much the stage
    counts.
    """

    prefix: str
    menu: Menu
    target: tuple[float, ...]
    known: tuple[bool, ...]
    weight: float = 1.0

    def shuffled(self, rng: Random) -> Stage:
        """The same options in another order."""
        order = rng.sample(range(len(self.menu)), len(self.menu))
        return replace(
            self,
            menu=tuple(self.menu[i] for i in order),
            target=tuple(self.target[i] for i in order),
            known=tuple(self.known[i] for i in order),
        )


@dataclass(frozen=True)
class Expert:
    """How the expert looks at a tree.

    `discount` makes a gain now better than the same gain later; `temperature` (in log speed-up) softens its choice, so that
    steps of nearly the same worth share it. It is asked at every decision of so many `courses`, whose steps are its own or
    drawn, half and half: there it meets what a policy meets that does not choose as well. Of what nobody tried it `believes`
    the predicted time, as far as such times are right on average; else that has no say.
    """

    discount: float = 0.95
    temperature: float = 0.05
    courses: int = 6
    believes: bool = True


class ExpertPolicy:
    """Knows the outcomes in one tree: takes the step of most worth from the program at hand, never an untried one."""

    name, guided, staged = "expert", False, False

    def __init__(self, tree: StoredTree) -> None:
        self._worth = values(tree, Expert.discount)

    def choose(self, view: View, rng: Random) -> Choice:
        worth = self._worth.get(view.program.key, {})
        known = [action for action in view.moves if action.id in worth]
        return Choice(max(known, key=lambda action: worth[action.id], default=view.stop))


def trees(paths: Sequence[Path]) -> list[StoredTree]:
    """Trees of run folders, of folders of these, and of folders of stored trees. Raises BadInput where there is none."""
    return [tree for path in paths for tree in _trees(path)]


def summary(found: Sequence[StoredTree]) -> str:
    """What a training learns from, in a few words that differ where the trees do."""
    facts = [(tree.question.name, len(tree.nodes), len(tree.steps), _looks(tree)) for tree in found]
    digest = sha256(repr(facts).encode()).hexdigest()[:8]
    return f"{len(facts)} with {sum(nodes for _, nodes, *_ in facts)} programs ({digest})"


def _looks(tree: StoredTree) -> int:
    return sum(len(node.predicted) for node in tree.nodes.values())


def stages(
    tree: StoredTree, expert: Expert = Expert(), known: bool = False, hardware: bool = True, guided: bool = True
) -> Iterator[Stage]:
    """The menus of every decision that the expert is asked about, those inside groups as well, each decision once.

    `known`, `guided`: what a menu shows, see `Hunt`; `hardware` shows the GPU's card.
    """
    worth, met = values(tree, expert.discount), set[tuple[str, frozenset[str]]]()
    for number in range(expert.courses):
        rng, hunt = Random(f"{tree.question.name}:{number}"), Hunt(tree, LENGTH, known=known, guided=guided)
        while seen := hunt.view:
            key = seen.program.key
            left = _left(tree, seen, worth.get(key, {}), expert)
            if (key, frozenset(left)) not in met:
                met.add((key, frozenset(left)))
                yield from _asked(seen, left, expert, hardware)
            able = [action for action in seen.moves if hunt.has_a_say(action)]
            best = max(able, key=lambda action: left.get(action.id, -math.inf))
            hunt.take(best if rng.random() < OWN else rng.choice(able))
    if tree.best in worth:  # where the courses end
        replay = Replay(tree)
        replay.follow(tree.tree.path(tree.best))
        seen = shown(replay.view(tree.best, guided), tree, known)
        yield from _asked(seen, _left(tree, seen, worth[tree.best], expert), expert, hardware)


def _left(tree: StoredTree, seen: View, worth: Mapping[str, float], expert: Expert) -> dict[str, float]:
    """The worth of each action shown of which the expert knows or believes something."""
    found = {**(_believed(tree, seen.program.key, worth) if expert.believes else {}), **worth}
    return {action.id: found[action.id] for action in seen.legal if action.id in found}


def _asked(seen: View, left: Mapping[str, float], expert: Expert, hardware: bool) -> Iterator[Stage]:
    if len(left) > 1:
        shares, gains = _shares(left, expert.temperature), seen.gains
        yield from _stages(prompt.prefix(seen, hardware), menu(seen.legal, gains), gains, shares, 1.0)


def values(tree: StoredTree, discount: float) -> dict[str, dict[str, float]]:
    """The discounted return of each known step, `stop` included, by program and action id; in log speed-up.

    A search goes on from a program only if it is better than the one before, or failed and can be repaired: what could
    follow on another counts for nothing. Programs that no known step leaves, or whose outcome is the machine's fault, are
    left out.
    """
    level = _levels(tree)
    steps = {
        key: [(name, step.child) for name, step in tree.edges(key).items() if step.child in level and step.child != key]
        for key in level
    }
    ahead = {(key, child): discount * _goes_on(tree, key, child) for key in level for _, child in steps[key]}
    value = dict.fromkeys(level, 0.0)
    for _ in range(ROUNDS):
        new = {
            key: max([0.0, *(level[child] - level[key] + ahead[key, child] * value[child] for _, child in steps[key])])
            for key in level
        }
        done = all(abs(new[key] - value[key]) <= CLOSE for key in level)
        value = new
        if done:
            break
    gains = {
        key: {name: level[child] - level[key] + ahead[key, child] * value[child] for name, child in steps[key]}
        for key in level
    }
    return {key: {**found, tree.nodes[key].legal[-1].id: 0.0} for key, found in gains.items() if found}


def _goes_on(tree: StoredTree, key: str, child: str) -> bool:
    """Does a search that was at a program turn to the one that a step led to?"""
    old, new = tree.nodes[key].verdict, tree.nodes[child].verdict
    return not (isinstance(old, Verified) and isinstance(new, Verified)) or better(new.timing, old.timing)


def _levels(tree: StoredTree) -> dict[str, float]:
    """Log speed-up of each program; of a broken one a little below the slowest. The machine's faults are left out."""
    verdicts = {key: node.verdict for key, node in tree.nodes.items() if not isinstance(node.verdict, Infra)}
    known = {key: gain for key, verdict in verdicts.items() if (gain := verdict.log_speedup) is not None}
    floor = min(known.values(), default=0.0) - BROKEN
    return {key: known.get(key, floor) for key in verdicts}


def _believed(tree: StoredTree, key: str, worth: Mapping[str, float]) -> dict[str, float]:
    """The worth of steps that nobody took, as predicted; what follows is worth as much as after the known ones (mean)."""
    node, edges = tree.nodes[key], tree.edges(key)
    here, level = node.predicted_ms, node.verdict.log_speedup
    if not here or level is None:
        return {}
    reached = {name: tree.nodes[step.child].verdict.log_speedup for name, step in edges.items() if name in worth}
    after = [worth[name] - (gained - level) for name, gained in reached.items() if gained is not None]
    later = sum(after) / len(after) if after else 0.0
    times = {name: ms for name, ms in node.predicted.items() if ms and name not in worth}
    return {name: BELIEF * math.log(here / ms) + later for name, ms in times.items()}


def _shares(worth: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Softmax of the steps' worth."""
    top = max(worth.values())
    weights = {name: math.exp((value - top) / temperature) for name, value in worth.items()}
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in weights.items()}


def _stages(prefix: str, options: Menu, gains: Gains, shares: Mapping[str, float], weight: float) -> Iterator[Stage]:
    masses = [sum(shares.get(action.id, 0.0) for action in option.actions) for option in options]
    known = [any(action.id in shares for action in option.actions) for option in options]
    whole = sum(masses)
    if whole <= 0.0:
        return
    target = tuple(mass / whole for mass in masses)
    if sum(known) > 1:
        yield Stage(prefix, options, target, tuple(known), weight)
    for option, share in zip(options, target, strict=True):
        if len(option.actions) > 1 and share * weight > MINOR:
            yield from _stages(prefix, menu(option.actions, gains), gains, shares, share * weight)


def _trees(path: Path) -> Iterator[StoredTree]:
    if (path / "run.json").exists():
        yield from_run(Run.open(path))
        return
    if not path.is_dir():
        raise BadInput(f"{path} is no folder of trees or runs.")
    runs = [Run.open(folder.parent) for folder in sorted(path.glob("*/run.json"))]
    yield from (from_run(run) for run in runs if run.steps())  # one may have ended before its first program
    if not runs or any(path.glob(f"*{archive.SUFFIX}")):
        yield from archive.load(path)


def from_run(run: Run) -> StoredTree:
    """A run folder as a tree; of the legal actions only those that were taken are known there."""
    steps = tuple(replace(step, patch="") for step in run.steps())
    tree = Tree(steps)
    legal = {key: {a.id: a for a in _taken(tree, key)} for key in tree.keys}
    nodes = {
        key: Node(run.program(key), tree.verdict(key), (*(legal[key][name] for name in sorted(legal[key])), STOP))
        for key in tree.keys
    }
    provenance = Provenance(run.info.gpu, run.info.timing, date.today().isoformat(), precision=run.info.precision)
    return StoredTree(Question(run.info.problem, ""), provenance, nodes, steps)


def _taken(tree: Tree, key: str) -> Iterator[Action]:
    for _, _, steps in tree.graph.out_edges(key, data="steps"):
        yield from (step.action for step in steps if step.action)
