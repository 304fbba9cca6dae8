"""stages: in a kernel whose loop feeds a dot, tiles are copied ahead into shared memory (`num_stages`)."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import STAGES
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program


class Stages(Rule):
    """Legal within the domain of the knob; proposed on GPUs with asynchronous copies."""

    kind = "stages"
    family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if context.profile.async_copy else ():
            if "dot" in unit.text:
                value = unit.option("num_stages")
                for new in STAGES.neighbours(value):
                    sentence = f"Pipeline the loop of {unit.name} in {new} stages instead of {value}."
                    yield self.action(unit.name, sentence, value=new)

    def apply(self, context: Context, action: Action) -> Program:
        value = int(action["value"])
        check(value in STAGES, f"{value} stages are not supported")
        return Unit.of(context.program, action.region).with_option("num_stages", value).into(context.program)
