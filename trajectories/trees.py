"""Trees to learn from: everything that is known of the programs of one problem, as values.

A stored tree is what its Steps say (see `mtmc.tree`), and for each program every action that was proposed there, taken or
not, which of them the rules refuse, and the predicted times. `mtmc.trajectories.archive` keeps it on disk.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mtmc.action import Action
from mtmc.problem import Problem
from mtmc.program import Program
from mtmc.step import Step
from mtmc.tree import Tree
from mtmc.verdict import Verdict, Verified

HELD_OUT = 5  # one in so many operator structures is for evaluation alone


@dataclass(frozen=True)
class Question:
    """The problem of a tree. `grade` is 1 (one operator) to 5 (a small network), 0 for a file of the user's own.

    `structure` and `exact` are its fingerprints (`mtmc.fingerprint`), empty where it could not be captured.
    """

    name: str
    source: str
    entry: str = "Model"
    grade: int = 0
    structure: str = ""
    exact: str = ""

    @property
    def held_out(self) -> bool:
        """One structure in five is kept for evaluation; all problems of the same operators are on the same side."""
        return bool(self.structure) and int(self.structure, 16) % HELD_OUT == 0

    @property
    def problem(self) -> Problem:
        """As `mtmc.problem.load` gives it, without a path."""
        return Problem(self.name, self.source, f"{self.name}.py", self.entry)


@dataclass(frozen=True)
class Provenance:
    """Where the verdicts come from. `timing` is `measured` (on `device`) or `predicted` (by the analytic model of `gpu`).

    `date` is the day, as YYYY-MM-DD; `budget` counts the programs that were asked for, 0 where time ended the growth before;
    `growth` names the ways in which the tree was grown, with the programs that each judged. `predictor` holds the versions
    behind the predicted times where these are not `versions`.
    """

    gpu: str
    timing: str
    date: str
    device: str = ""
    precision: str = "strict"
    seed: int = 0
    budget: int = 0
    growth: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    predictor: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Node:
    """One program. `legal` is every action proposed here, `stop` last; `refused` those that the rules or the gate refuse.

    `predicted` maps ids of actions to the predicted time (ms) of the program they lead to, None where it cannot run; actions
    nobody looked at are missing. `predicted_ms` is this program's own, `seconds` what judging it took.
    """

    program: Program
    verdict: Verdict
    legal: tuple[Action, ...]
    refused: frozenset[str] = frozenset()
    predicted: Mapping[str, float | None] = field(default_factory=dict)
    predicted_ms: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class StoredTree:
    """`nodes` by program key in the order of their discovery, the root first; `steps` as they were taken.

    A step without a policy was not chosen by any: it is an action that leads from one known program to another. Patches are
    left out of the steps: `patch` makes them. `independent` are pairs of action ids, in order, that lead to the same program
    in either order wherever it was looked at.
    """

    question: Question
    provenance: Provenance
    nodes: Mapping[str, Node]
    steps: tuple[Step, ...]
    independent: frozenset[tuple[str, str]] = frozenset()

    @cached_property
    def tree(self) -> Tree:
        """The graph of programs; only to be read."""
        return Tree(self.steps)

    @property
    def root(self) -> str:
        return next(iter(self.nodes))

    @property
    def best(self) -> str:
        """Key of the best verified program; empty when there is none."""
        return self.tree.best

    @property
    def speedup(self) -> float:
        """The best program's, over the reference; 0 when none was verified."""
        verdict = self.nodes[self.best].verdict if self.best else None
        return verdict.timing.speedup if isinstance(verdict, Verified) else 0.0

    @cached_property
    def _edges(self) -> Mapping[str, Mapping[str, Step]]:
        found: dict[str, dict[str, Step]] = {key: {} for key in self.nodes}
        for step in self.steps:
            if step.action:
                found[step.parent].setdefault(step.action.id, step)
        return found

    def edges(self, key: str) -> Mapping[str, Step]:
        """The known steps from a program, by action id; the other legal actions were never tried."""
        return self._edges[key]

    def patch(self, step: Step) -> Step:
        """The step with its unified diff from parent to child."""
        if not step.parent:
            return step
        before, after = (self.nodes[key].program.source.splitlines(keepends=True) for key in (step.parent, step.child))
        return replace(step, patch="".join(difflib.unified_diff(before, after, "before.py", "after.py")))
