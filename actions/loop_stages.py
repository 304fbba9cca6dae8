"""loop_stages: a streaming loop issues its loads ahead of their use (`tl.range(…, num_stages=n)`)."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import AHEAD
from mtmc.actions.unit import Unit, streams
from mtmc.program import Program


class LoopStages(Rule):
    """Legal for plain loops; proposed for those without a dot on GPUs with asynchronous copies."""

    kind = "loop_stages"
    family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if context.profile.async_copy else ():
            for ahead in AHEAD if streams(unit) else ():
                sentence = f"Issue the loads of the loops of {unit.name} {ahead} iterations ahead."
                yield self.action(unit.name, sentence, value=ahead)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        return unit.with_range_option("num_stages", int(action["value"])).into(context.program)
