"""Passes over a row: two statistics in one pass, a row kept in registers, a long reduction split over programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod

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
    """What is reduced fits one tile: it is loaded once and stays in registers, and the loops go."""

    kind = "single_block"
    family: Family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            walked = _walked(context, unit)
            if walked is None or not loops(unit.body):
                continue
            constant, length, others = walked
            block = 1 << max(length - 1, 0).bit_length()
            if 0 < length and block * others <= MOST and (constant == "BLOCK" or block <= 256):
                sentence = f"Keep all that {unit.name} reduces in registers: {constant} = {block}, no loops."
                yield Action(self.kind, self.family, unit.name, (("value", block),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        walked = _walked(context, unit)
        check(walked is not None and bool(loops(unit.body)), "there is no loop over what is reduced")
        assert walked is not None
        constant, size = walked[0], "cols" if walked[0] == "BLOCK" else "reds"
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
        promise = f'{size} <= {constant}, "what is reduced must fit one tile"'
        unit = unit.with_body([statement(f"tl.device_assert({promise})"), *lines])
        unit = unit.with_constant(constant, int(action["value"]))

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            if constant not in code(line).partition(" = ")[0].split(", "):
                return None
            return [line, statement(f"assert {promise}")]

        return unit.edit_launcher(change).into(context.program)


MOST = 65536  # elements of a tile


def _walked(context: Context, unit: Unit) -> tuple[str, int, int] | None:
    """The tile constant that walks the reduced extent, that extent, and the tile's other extent; None for other units."""
    host = context.host(unit.name)
    if host is None or "SPLIT" in unit.constants or "frame_in" not in host.kwargs:
        return None
    sizes = {name: _extent(context, host.inputs[0], i, j) for name, i, j in host.kwargs["frame_in"]}
    module, kind = host.kwargs["template"].split(".")
    if module in ("reduction", "normalization") and kind.endswith("row") and list(unit.constants) == ["BLOCK"]:
        return "BLOCK", sizes["col"], 1
    if module in ("reduction", "normalization") and kind.endswith("mid") and list(unit.constants) == ["RED", "BLOCK"]:
        return "RED", sizes["red"], unit.constants["BLOCK"]
    return None


def _extent(context: Context, operand: str, first: int, last: int) -> int:
    type_ = context.graph[operand].type
    return prod(type_.shape[first:last]) if type_ else 0
