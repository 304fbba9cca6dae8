"""How many trajectories a tree holds, when the order of steps that do not touch each other does not count.

Two actions are independent when either order leads to the same program. Words over actions, equal up to exchanging
neighbours that are independent, are one *trace* (Mazurkiewicz 1977); its Foata normal form (Cartier & Foata 1969) is the
list of sets of steps that can be made at once, each as early as possible. A trajectory starts at the root, takes known
steps, never comes back to a program, and may end anywhere, with `stop` or with a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mtmc.trajectories.trees import StoredTree

LONGEST = 8  # steps: longer trajectories are not counted
MOST = 20_000  # trajectories of one tree that are counted: there can be millions

Form = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Tally:
    """Sums over trees. `capped` trees hold more trajectories than were counted; `lengths` counts them by number of steps.

    `transitions` are distinct (program, action, program); `verified` counts programs, `successful` trajectories that end
    in a verified one.
    """

    trees: int = 0
    programs: int = 0
    verified: int = 0
    transitions: int = 0
    trajectories: int = 0
    successful: int = 0
    capped: int = 0
    lengths: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: Tally) -> Tally:
        mine, theirs = vars(self), vars(other)
        return Tally(**{name: mine[name] + theirs[name] for name in mine})


def tally(trees: Iterable[StoredTree], longest: int = LONGEST, most: int = MOST) -> Tally:
    """The count over all trees."""
    return sum((_tally(tree, longest, most) for tree in trees), Tally())


def appended(form: Form, letter: str, independent: frozenset[tuple[str, str]]) -> Form:
    """Normal form of a trace with one more step: it joins the first set after the last one that it depends on."""
    place = len(form)
    while place and all(_independent(letter, other, independent) for other in form[place - 1]):
        place -= 1
    if place == len(form):
        return (*form, (letter,))
    return (*form[:place], tuple(sorted((*form[place], letter))), *form[place + 1 :])


def _independent(a: str, b: str, pairs: frozenset[tuple[str, str]]) -> bool:
    return a != b and ((a, b) if a < b else (b, a)) in pairs


def _tally(tree: StoredTree, longest: int, most: int) -> Tally:
    found = _traces(tree, longest, most)
    correct = {key for key, node in tree.nodes.items() if node.verdict.correct}
    return Tally(
        trees=1,
        programs=len(tree.nodes),
        verified=len(correct),
        transitions=sum(len(tree.edges(key)) for key in tree.nodes),
        trajectories=len(found),
        successful=sum(key in correct for key, _ in found),
        capped=int(len(found) >= most),
        lengths=Counter(sum(map(len, form)) for _, form in found),
    )


def _traces(tree: StoredTree, longest: int, most: int) -> set[tuple[str, Form]]:
    """Program and normal form of every trajectory of at least one step, the shorter first, up to `most`."""
    found: set[tuple[str, Form]] = set()
    ends: list[tuple[str, Form, frozenset[str]]] = [(tree.root, (), frozenset({tree.root}))]
    for _ in range(longest):
        longer = []
        for key, form, met in ends:
            for action, step in tree.edges(key).items():
                if step.child in met:
                    continue
                end = (step.child, appended(form, action, tree.independent))
                if end not in found:
                    found.add(end)
                    if len(found) >= most:
                        return found
                    longer.append((*end, met | {step.child}))
        ends = longer
    return found
