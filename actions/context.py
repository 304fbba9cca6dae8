"""What a rule sees, and what a rule is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from mtmc.action import Action, Family
from mtmc.actions.forward import Call, Forward
from mtmc.actions.unit import Unit
from mtmc.errors import Illegal
from mtmc.graph import Graph, Node
from mtmc.hardware_profiles import Profile
from mtmc.program import Program


@dataclass(frozen=True)
class Context:
    """A program with the primitive graph it computes and the GPU it is for. `precision` is `strict`, `tf32` or `bf16`."""

    program: Program
    graph: Graph
    profile: Profile
    precision: str = "strict"

    @property
    def forward(self) -> Forward:
        return Forward.of(self.program)

    def host(self, unit: str) -> Node | None:
        """The primitive node a unit was lowered from; None for shared units (copy, cat, …)."""
        return next((n for n in self.graph.nodes if n.name == unit and n.op == "unit"), None)

    def template(self, unit: str) -> str:
        """`module.kind` of the template a unit came from, empty for shared ones."""
        host = self.host(unit)
        return host.kwargs["template"] if host else ""

    def calls(self, unit: str) -> tuple[Call, ...]:
        return tuple(c for c in self.forward.calls if c.launcher == f"launch_{unit}")


class Rule(Protocol):
    """One kind of action: when it is legal, its sentence, its parameters, its edit."""

    kind: str
    family: Family

    def propose(self, context: Context) -> Iterator[Action]:
        """The actions of this kind that look applicable; cheap, `apply` has the last word."""
        ...

    def apply(self, context: Context, action: Action) -> Program:
        """The edited program. Raises Illegal."""
        ...


def units(context: Context) -> Iterator[Unit]:
    """Every unit lowered from the graph, as one kernel with one launch; units of the library are left as they are."""
    for name in context.program.units:
        if context.host(name) is None:
            continue
        try:
            unit = Unit.of(context.program, name)
            unit.option("num_warps")
        except Illegal:
            continue
        yield unit
