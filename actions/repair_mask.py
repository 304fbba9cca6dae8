"""repair_mask: a load or store at `index` that lost its mask gets it back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.unit import Line, Unit, code, statement
from mtmc.errors import check
from mtmc.program import Program
from mtmc.verdict import RuntimeFault, Verdict, Wrong


class RepairMask(Rule):
    """Answers wrong results and faults of a kernel that has a `mask` and accesses without one."""

    kind = "repair_mask"
    family = "repair"

    def answer(self, context: Context, verdict: Verdict) -> Iterator[Action]:
        for unit in context.units if isinstance(verdict, (Wrong, RuntimeFault)) else ():
            if _unmasked(unit):
                yield self.action(unit.name, f"Mask the loads and stores of {unit.name} that have no mask.")

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        unmasked = _unmasked(unit)
        check(bool(unmasked), "every load and store has a mask")

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            text = code(line)
            call = re.search(r"tl\.(load|store)\(", text)
            if text not in unmasked or call is None:
                return None
            end = _closing(text, call.end())
            return [statement(f"{text[:end]}, mask=mask{text[end:]}")]

        return unit.edit_lines(change).into(context.program)


def _unmasked(unit: Unit) -> list[str]:
    """Loads and stores addressed by `index` without a mask, where the kernel has one."""
    if not any(line.startswith("mask = ") for line in unit.lines):
        return []
    return [t for t in unit.lines if re.search(r"tl\.(load|store)\(\w+_ptr \+ index\b", t) and "mask=" not in t]


def _closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one before `start`."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)
