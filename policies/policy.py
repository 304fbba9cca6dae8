"""What a policy is: it looks at a View and names the next action. It edits nothing and times nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from mtmc.action import Action
from mtmc.hardware_profiles import Profile
from mtmc.program import Program
from mtmc.step import Step
from mtmc.tree import Tree
from mtmc.verdict import Verdict

NEUTRAL = 1.02
"""A fusion may cost 2 % and still be gone on from: what it opens up comes later."""


@dataclass(frozen=True)
class View:
    """One decision: a program, its verdict, and the actions that are legal and not yet tried.

    `legal` always ends with the `stop` action, which closes this program. `predicted` maps action ids to the predicted time
    (ms) of the program they lead to; an action that leads to no running program, or was not looked at, is missing. `best_ms`
    is the predicted time of the best program so far (None when nothing was predicted or verified); `measured` tells whether
    verdicts carry measured times, `losing` whether the best program is measured to be no faster than PyTorch. `history`
    holds the steps from the root to here, `tried` those taken from here, oldest first; `failures` counts the last ones of
    these that gained nothing. `profile` is the GPU
    that the program is for, None where nobody knows. `seen` are ids of actions whose predicted time rests on measured
    outcomes of kernels like theirs; `noise` is half the width of the best program's 95 % interval over its speed-up.
    """

    program: Program
    verdict: Verdict
    legal: tuple[Action, ...]
    predicted: Mapping[str, float] = field(default_factory=dict)
    best_ms: float | None = None
    measured: bool = False
    losing: bool = False
    history: tuple[Step, ...] = ()
    tried: tuple[Step, ...] = ()
    failures: int = 0
    profile: Profile | None = None
    seen: frozenset[str] = frozenset()
    noise: float = 0.0

    @staticmethod
    def at(
        tree: Tree, program: Program, legal: tuple[Action, ...], predicted: Mapping[str, float], best_ms: float | None
    ) -> View:
        """The decision at a program of a tree as far as it is known; the one place where Views are made."""
        best = tree.timing(tree.best) if tree.best else None
        measured = best is not None and best.kind == "measured"
        return View(
            program=program,
            verdict=tree.verdict(program.key),
            legal=legal,
            predicted=predicted,
            best_ms=best_ms,
            measured=measured,
            losing=measured and best is not None and best.low <= 1.0,
            history=tree.path(program.key),
            tried=tuple(step for step in tree.steps if step.parent == program.key and step.action),
            failures=tree.failures(program.key),
            noise=(best.high - best.low) / 2 / best.speedup if best else 0.0,
        )

    @property
    def stop(self) -> Action:
        return self.legal[-1]

    @property
    def gains(self) -> dict[str, float]:
        """By action id, the predicted speed-up over the best program so far, less 1; empty where that has no prediction."""
        return {name: self.best_ms / ms - 1 for name, ms in self.predicted.items()} if self.best_ms else {}

    @property
    def moves(self) -> tuple[Action, ...]:
        """The legal actions without `stop`."""
        return self.legal[:-1]


@dataclass(frozen=True)
class Choice:
    """The action taken, and the probability of every legal action where the policy has one (by action id)."""

    action: Action
    probabilities: Mapping[str, float] = field(default_factory=dict)


class Policy(Protocol):
    """`guided` asks the search to predict the outcome of the legal actions before `choose` is called.

    `staged` asks it to go on stage by stage, structure first; else every decision is among all legal actions.
    """

    @property
    def name(self) -> str: ...

    @property
    def guided(self) -> bool: ...

    @property
    def staged(self) -> bool: ...

    def choose(self, view: View, rng: Random) -> Choice:
        """Pick from `view.legal`; all randomness comes from `rng`."""
        ...
