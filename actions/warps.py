"""warps: more or fewer warps work on one program's tile."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import WARPS
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program


class Warps(Rule):
    """Legal within the domain of the knob."""

    kind = "warps"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            value = unit.option("num_warps")
            for new in WARPS.neighbours(value):
                yield self.action(unit.name, f"Run {unit.name} with {new} warps instead of {value}.", value=new)

    def apply(self, context: Context, action: Action) -> Program:
        value = int(action["value"])
        check(value in WARPS, f"the number of warps cannot be {value}")
        return Unit.of(context.program, action.region).with_option("num_warps", value).into(context.program)
