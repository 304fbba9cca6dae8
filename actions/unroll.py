"""unroll: a streaming loop is unrolled, so that several independent loads are in flight."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import UNROLL
from mtmc.actions.unit import Unit, streams
from mtmc.program import Program


class Unroll(Rule):
    """Legal for plain loops; proposed for those without a dot."""

    kind = "unroll"
    family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            for times in UNROLL if streams(unit) else ():
                yield self.action(unit.name, f"Unroll the loops of {unit.name} {times} times.", value=times)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        return unit.with_range_option("loop_unroll_factor", int(action["value"])).into(context.program)
