"""Passes over a row: two statistics in one pass, a row kept in registers, a long reduction split over programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.unit import Line, Unit, code, loops, statement, target
from mtmc.errors import check
from mtmc.program import Program

PRELUDE = ("col", "red", "mask", "index")


def _in_loop(loop: cst.For, lines: Sequence[Line]) -> cst.For:
    return loop.with_changes(body=loop.body.with_changes(body=list(lines)))


class MergePasses:
    """The first two passes of a softmax or normalisation become one (running maximum and sum; Welford's update)."""

    kind = "merge_passes"
    family: Family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            if context.template(unit.name).startswith("normalization.") and len(loops(unit.body)) == 3:
                sentence = f"Compute both statistics of {unit.name} in one pass over the row."
                yield Action(self.kind, self.family, unit.name, (), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        found = loops(unit.body)
        check(len(found) == 3, "there are not three passes")
        softmax = "softmax" in context.template(action.region)
        merged = _online_softmax(unit, found) if softmax else _welford(unit, found)
        return merged.into(context.program)


def _last(loop: cst.For) -> Line:
    return loop.body.body[-1]  # type: ignore[return-value]


def _value(line: Line, pattern: str) -> str:
    match = re.search(pattern, code(line))
    check(match is not None, "a pass has another form")
    assert match is not None
    return match[1]


def _online_softmax(unit: Unit, found: list[cst.For]) -> Unit:
    """m' = max(m, x), t' = t exp(m - m') + exp(x - m'), a lane at a time (Milakov & Gimelshein 2018)."""
    x = _value(_last(found[0]), r"tl\.where\(mask, (.+), float\(\"-inf\"\)\)")
    first = [
        *found[0].body.body[:-1],
        statement(f'fresh = tl.maximum(peak, tl.where(mask, {x}, float("-inf")))'),
        statement('less = tl.where(fresh == float("-inf"), 1.0, tl.exp(peak - fresh))'),
        statement(f"total, lost = op_add(total * less, lost * less, tl.where(mask, tl.exp({x} - fresh), 0.0))"),
        statement("peak = fresh"),
    ]
    lines: list[Line] = []
    for line in unit.body:
        if line is found[0]:
            lines.append(_in_loop(found[0], first))
        elif line is found[1]:
            continue
        elif target(line) == "norm":
            scaled = 'total * tl.where(peak == float("-inf"), 0.0, tl.exp(peak - top))'
            lines.append(statement(code(line).replace("tl.sum(total", f"tl.sum({scaled}")))
        else:
            lines.append(line)
    return unit.with_body(lines)


def _welford(unit: Unit, found: list[cst.For]) -> Unit:
    """Lane-wise count, mean and squared deviations, merged as in `templates/moments.py`."""
    x = _value(_last(found[0]), r"tl\.where\(mask, (.+), 0\.0\)\)$")
    update = [
        *found[0].body.body[:-1],
        statement("count += tl.where(mask, 1.0, 0.0)"),
        statement(f"delta = tl.where(mask, {x} - total, 0.0)"),
        statement("total, lost = op_add(total, lost, delta / tl.maximum(count, 1.0))"),
        statement(f"squares, rest = op_add(squares, rest, delta * tl.where(mask, {x} - total, 0.0))"),
    ]
    again = [line for line in unit.body if target(line) == "lost"][-1]  # cleared for the second pass, which goes
    lines: list[Line] = []
    for line in unit.body:
        if line is found[0]:
            lines.append(_in_loop(found[0], update))
        elif line is found[1]:
            continue
        elif target(line) == "total":
            lines += [line, *(statement(code(line).replace("total", name)) for name in ("count", "rest"))]
        elif target(line) == "mean":
            lines += [
                statement("mean = tl.sum(count * total, axis=0) / cols"),
                statement("squares += count * (total - mean) * (total - mean)"),
            ]
        elif line is not again:
            lines.append(line)
    return unit.with_body(lines)


class SingleBlock:
    """A row that fits one tile is loaded once and stays in registers: the loops go."""

    kind = "single_block"
    family: Family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            if loops(unit.body) and list(unit.constants) == ["BLOCK"] and context.template(unit.name).endswith("_row"):
                host = context.host(unit.name)
                row = _row_length(context, host.inputs[0], host.kwargs["frame_in"]) if host else 0
                if 0 < row <= 65536:
                    block = 1 << (row - 1).bit_length()
                    sentence = f"Keep a whole row of {unit.name} in registers: one tile of {block}, no loops."
                    yield Action(self.kind, self.family, unit.name, (("value", block),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        check(bool(loops(unit.body)), "there is no loop")
        lines: list[Line] = []
        seen: set[str] = set()
        for line in unit.body:
            if not isinstance(line, cst.For):
                lines.append(line)
                continue
            for inner in line.body.body:
                text = code(inner).replace("start + tl.arange(", "tl.arange(")
                once = target(inner) in PRELUDE or "= tl.load(" in text
                if not (once and text in seen):
                    lines.append(statement(text))
                seen.add(text)
        unit = unit.with_body([statement('tl.device_assert(cols <= BLOCK, "a row must fit one tile")'), *lines])
        unit = unit.with_constant("BLOCK", int(action["value"]))

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            if not code(line).startswith("BLOCK = "):
                return None
            return [line, statement('assert cols <= BLOCK, "a row must fit one tile"')]

        return unit.edit_launcher(change).into(context.program)


def _row_length(context: Context, operand: str, frame: tuple[tuple[str, int, int], ...]) -> int:
    type_ = context.graph[operand].type
    length = 1
    for size in type_.shape[frame[-1][1] : frame[-1][2]] if type_ else ():
        length *= size
    return length
