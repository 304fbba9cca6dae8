"""repair_shared: a kernel that asks for too much shared memory gets fewer stages or a smaller tile."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.repair import largest, lessened
from mtmc.actions.unit import Unit
from mtmc.program import Program
from mtmc.verdict import CompileError, Verdict


class RepairShared(Rule):
    """Answers a compile error whose cause is shared memory."""

    kind = "repair_shared"
    family = "repair"

    def answer(self, context: Context, verdict: Verdict) -> Iterator[Action]:
        if not (isinstance(verdict, CompileError) and verdict.cause == "shared_memory"):
            return
        for unit in context.units:
            if unit.option("num_stages") > 1:
                yield self.action(unit.name, f"Pipeline {unit.name} one stage less.", what="num_stages")
            for name in largest(unit):
                yield self.action(unit.name, f"Halve {name} of {unit.name} to save shared memory.", what=name)

    def apply(self, context: Context, action: Action) -> Program:
        return lessened(Unit.of(context.program, action.region), str(action["what"])).into(context.program)
