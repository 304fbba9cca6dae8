"""swizzle: programs walk a product in groups of tile rows, so that they share operands in the L2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import GROUPS
from mtmc.actions.library_functions import with_library
from mtmc.actions.unit import Line, Unit, statement, target
from mtmc.errors import check
from mtmc.program import Program


class Swizzle(Rule):
    """Legal while the programs of a product walk it row by row."""

    kind = "swizzle"
    family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            if context.template(unit.name).startswith("contraction.") and _plain(unit):
                for group in GROUPS:
                    sentence = f"Let the programs of {unit.name} walk the tiles in groups of {group} rows."
                    yield self.action(unit.name, sentence, group=group)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        check(_plain(unit), "the order of programs has another form")
        unit = unit.edit_lines(_in_kernel).with_constexpr("GROUP", int(action["group"]))
        return with_library(unit.into(context.program), "op_grouped", unit.name)


def _plain(unit: Unit) -> bool:
    return any(line.startswith("pid_m = ") for line in unit.lines)


def _in_kernel(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
    if target(line) == "pid_m":
        text = "pid_m, pid_n = op_grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)"
        return [statement('tl.static_assert(GROUP > 0, "a group must not be empty")'), statement(text)]
    return [] if target(line) == "pid_n" else None
