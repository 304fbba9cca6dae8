"""repair_spill: a kernel whose registers spill, or that takes too long, gets more warps or a smaller tile."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.repair import largest, lessened
from mtmc.actions.unit import Unit
from mtmc.program import Program
from mtmc.verdict import Timeout, Verdict, Verified


class RepairSpill(Rule):
    """Answers a timeout, and a verdict in which the unit's kernel spills."""

    kind = "repair_spill"
    family = "repair"

    def answer(self, context: Context, verdict: Verdict) -> Iterator[Action]:
        for unit in context.units:
            if isinstance(verdict, Timeout) or (isinstance(verdict, Verified) and _spills(verdict, unit.name)):
                for name in ("num_warps", *largest(unit)):
                    what = f"Run {unit.name} with twice the warps" if name == "num_warps" else f"Halve {name} of {unit.name}"
                    yield self.action(unit.name, f"{what} to keep its registers from spilling.", what=name)

    def apply(self, context: Context, action: Action) -> Program:
        return lessened(Unit.of(context.program, action.region), str(action["what"])).into(context.program)


def _spills(verdict: Verified, unit: str) -> bool:
    return any(launch.kernel == f"{unit}_kernel" and launch.stack_bytes > 0 for launch in verdict.launches)
