"""Pipelining: how many loads are in flight while a tile is worked on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.knobs import STAGES
from mtmc.actions.unit import Unit, code, loops
from mtmc.errors import check
from mtmc.program import Program


class Stages:
    """`num_stages` of a kernel whose loop feeds a dot: tiles are copied ahead into shared memory."""

    kind = "stages"
    family: Family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            if "dot" not in code(unit.kernel) or not context.profile.async_copy:
                continue
            value = unit.option("num_stages")
            for new in STAGES.neighbours(value):
                sentence = f"Pipeline the loop of {unit.name} in {new} stages instead of {value}."
                yield Action(self.kind, self.family, unit.name, (("value", new),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        value = int(action["value"])
        check(STAGES.low <= value <= STAGES.high, f"{value} stages are not supported")
        return Unit.of(context.program, action.region).with_option("num_stages", value).into(context.program)


class LoopStages:
    """`tl.range(…, num_stages=n)` on a streaming loop: its loads are issued ahead of their use."""

    kind = "loop_stages"
    family: Family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            text = code(unit.kernel)
            if "dot" in text or " in range(" not in text or not context.profile.async_copy:
                continue
            for new in (2, 3, 4):
                sentence = f"Issue the loads of the loops of {unit.name} {new} iterations ahead."
                yield Action(self.kind, self.family, unit.name, (("value", new),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        lines = []
        for line in unit.body:
            if isinstance(line, cst.For) and code(line.iter).startswith("range("):
                text = re.sub(r"^range\((.*)\)$", rf"tl.range(\1, num_stages={action['value']})", code(line.iter))
                line = line.with_changes(iter=cst.parse_expression(text))
            lines.append(line)
        check(bool(loops(unit.body)), "there is no loop")
        return unit.with_body(lines).into(context.program)


class Unroll:
    """A streaming loop unrolled, so that several independent loads are in flight."""

    kind = "unroll"
    family: Family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            text = code(unit.kernel)
            if "dot" in text or " in range(" not in text:
                continue
            for new in (2, 4):
                sentence = f"Unroll the loops of {unit.name} {new} times."
                yield Action(self.kind, self.family, unit.name, (("value", new),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        found = [line for line in unit.body if isinstance(line, cst.For) and code(line.iter).startswith("range(")]
        check(bool(found), "there is no plain loop")
        lines = []
        for line in unit.body:
            if line in found and isinstance(line, cst.For):
                text = re.sub(r"^range\((.*)\)$", rf"tl.range(\1, loop_unroll_factor={action['value']})", code(line.iter))
                line = line.with_changes(iter=cst.parse_expression(text))
            lines.append(line)
        return unit.with_body(lines).into(context.program)
