"""repair_sum: a long product that is summed in one chain loses digits; partial products in parts lose fewer."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.split_k import SplitK, divisions
from mtmc.program import Program
from mtmc.verdict import Verdict, Wrong


class RepairSum(Rule):
    """Answers wrong values of a program with a product long enough to be split; the edit is that of split_k."""

    kind = "repair_sum"
    family = "repair"

    def answer(self, context: Context, verdict: Verdict) -> Iterator[Action]:
        for unit in context.units if isinstance(verdict, Wrong) and verdict.check == "values" else ():
            if parts := divisions(context, unit):
                sentence = f"Sum the products of {unit.name} in {parts[-1]} parts: shorter sums lose less to rounding."
                yield self.action(unit.name, sentence, parts=parts[-1])

    def apply(self, context: Context, action: Action) -> Program:
        return SplitK().apply(context, action)
