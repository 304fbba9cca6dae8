"""What a rule sees, and what a rule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from mtmc.action import Action, Family, Value
from mtmc.actions.forward import Call, Forward
from mtmc.actions.unit import Unit
from mtmc.errors import Illegal
from mtmc.graph import Graph, Node, TensorType
from mtmc.hardware_profiles import Profile
from mtmc.program import Program
from mtmc.verdict import Verdict


@dataclass(frozen=True)
class Context:
    """A program with the primitive graph it computes and the GPU it is for. `precision` is `strict`, `tf32` or `bf16`."""

    program: Program
    graph: Graph
    profile: Profile
    precision: str = "strict"

    @cached_property
    def forward(self) -> Forward:
        """Raises Illegal when the program has no fast path."""
        return Forward.of(self.program)

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.graph.nodes}

    @cached_property
    def _hosts(self) -> dict[str, Node]:
        return {node.name: node for node in self.graph.nodes if node.op == "unit"}

    def host(self, unit: str) -> Node | None:
        """The primitive node a unit was lowered from; None for shared units (copy, cat, …)."""
        return self._hosts.get(unit)

    def type(self, name: str) -> TensorType | None:
        """Type of a value of the fast path; None for what is no tensor of the graph."""
        node = self._nodes.get(name)
        return node.type if node else None

    def template(self, unit: str) -> str:
        """`module.kind` of the template a unit came from, empty for shared ones."""
        host = self.host(unit)
        return host.kwargs["template"] if host else ""

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every unit lowered from the graph, as one kernel with one launch; units of the library are left as they are."""
        return tuple(unit for name in self.program.units if self.host(name) and (unit := _plain(self.program, name)))

    def calls(self, unit: str) -> tuple[Call, ...]:
        return tuple(call for call in self.forward.calls if call.unit == unit)

    def leading_call(self, unit: str) -> Call | None:
        """The call of a unit whose tensors are named as its launcher names them; other calls of it are like this one."""
        own = Unit.of(self.program, unit)
        names = own.parameters(own.launcher)
        named = [all(p == a for p, a in zip(names, c.args, strict=False) if a.isidentifier()) for c in self.calls(unit)]
        return next((call for call, fits in zip(self.calls(unit), named, strict=True) if fits), None)

    def other_calls(self, call: Call) -> tuple[Call, ...]:
        """The further calls of the same unit."""
        return tuple(other for other in self.calls(call.unit) if other != call)

    def only_reader(self, call: Call) -> Call | None:
        """The one call that reads the one result of `call`, directly or through views, if nothing else does."""
        if len(call.targets) != 1:
            return None
        name = self.forward.followed(call.targets[0])
        if {name, call.targets[0]} & self.graph.results or self.forward.uses(name) != 1:
            return None
        readers = self.forward.calls_reading(name)
        return readers[0] if len(readers) == 1 else None


def _plain(program: Program, name: str) -> Unit | None:
    try:
        unit = Unit.of(program, name)
        unit.option("num_warps")
    except Illegal:
        return None
    return unit


class Rule(ABC):
    """One kind of action: when it is legal, its sentence, its parameters, its edit; `examples/<kind>.md` shows one."""

    kind: ClassVar[str]
    family: ClassVar[Family]

    def propose(self, context: Context) -> Iterator[Action]:
        """The actions of this kind that look applicable; cheap, `apply` has the last word."""
        yield from ()

    def answer(self, context: Context, verdict: Verdict) -> Iterator[Action]:
        """Repairs of a failed verdict."""
        yield from ()

    @abstractmethod
    def apply(self, context: Context, action: Action) -> Program:
        """The edited program. Raises Illegal."""

    def action(self, region: str, sentence: str, **params: Value) -> Action:
        return Action(self.kind, self.family, region, tuple(params.items()), sentence)
