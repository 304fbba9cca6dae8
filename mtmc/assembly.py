"""The roles of one run, built and joined: the only place that knows how capture, lowering, rules and judge fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mtmc.hardware_profiles import Profile
from mtmc.problem import Problem
from mtmc.program import Program
from mtmc.search import Evaluator, Moves
from mtmc.verdict import Verdict


@dataclass(frozen=True)
class Options:
    """How to optimise. `gpu` is a profile's name or TOML file; `measure` None measures where there is a GPU.

    `budget` counts candidates, `minutes` wall time (0: no limit). `cache_days` 0 neither reads nor writes the cache of
    verdicts. `keep_going` searches on where PyTorch is already within 5 % of what the hardware needs.
    """

    gpu: str = "h100"
    policy: str = "greedy"
    budget: int = 40
    minutes: float = 0.0
    seed: int = 0
    precision: str = "strict"
    measure: bool | None = None
    cache_days: float = 7.0
    keep_going: bool = False


class Judge(Evaluator, Protocol):
    """The search's evaluator, the last judgement in a fresh process, and the end of its workers."""

    def final(self, program: Program) -> Verdict: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Setup:
    """The roles for one problem. `notes` are sentences for the user: fallbacks and why, whether this chip is the target."""

    first: Program
    moves: Moves
    judge: Judge
    profile: Profile
    measured: bool
    notes: tuple[str, ...] = ()


def assemble(problem: Problem, options: Options, doing: Callable[[str], None]) -> Setup:
    """The roles for a problem; `doing` is told what takes time. Raises BadInput for a problem or an option of no use."""
    raise NotImplementedError
