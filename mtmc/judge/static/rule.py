"""What a rule is: a level, how sure it is, and a function that looks at one candidate."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.cuda import CudaSource, cuda_sources
from mtmc.judge.static.flow import Flow, follow
from mtmc.judge.static.memory import Labels


@dataclass(frozen=True)
class Hit:
    """One place that a rule speaks of; `level` and `certainty` only where they differ from the rule's."""

    node: ast.AST | None
    why: str
    level: str = ""
    certainty: str = ""


@dataclass(frozen=True)
class Case:
    """One candidate with what was found out about it once, for all rules."""

    candidate: Candidate

    @cached_property
    def flow(self) -> Flow:
        return follow(self.candidate)

    @cached_property
    def reference(self) -> Flow:
        """Dataflow of the reference's own forward; empty without a problem."""
        original, problem = self.candidate.reference, self.candidate.problem
        if original is None or problem is None:
            return Flow()
        return follow(Candidate(original.source, None, "forward", problem.entry))

    @cached_property
    def cuda(self) -> tuple[CudaSource, ...]:
        """C++ and CUDA text compiled by the candidate."""
        return tuple(cuda_sources(self.candidate))


@dataclass(frozen=True)
class Rule:
    """`find` yields what it found; `level` is `reject` or `warn`, `certainty` `certain`, `likely` or `possible`."""

    level: str
    certainty: str
    find: Callable[[Case], Iterator[Hit]]


def computes(labels: Labels) -> bool:
    """Whether a PyTorch operator or module has worked on it."""
    return any(label.startswith("lib:") for label in labels)
