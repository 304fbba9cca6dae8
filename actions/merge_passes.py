"""merge_passes: the first two passes of a softmax or normalisation become one (running sums; Welford's update)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.single_block import held_easily
from mtmc.actions.unit import Line, Unit, code, in_loop, loops, statement, step_of, target
from mtmc.errors import check
from mtmc.program import Program

PASSES = {  # of the plain form, two of them for statistics
    "normalization.softmax_row": 3,
    "normalization.softmax_mid": 3,
    "normalization.normalize_row": 3,
    "normalization.nll_row": 2,
}


class MergePasses(Rule):
    """Legal while each statistic has a pass of its own; proposed where single_block, which does less work, would not fit."""

    kind = "merge_passes"
    family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            if len(loops(unit.body)) == PASSES.get(context.template(unit.name)) and not held_easily(context, unit):
                yield self.action(unit.name, f"Compute both statistics of {unit.name} in one pass over the row.")

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        found = loops(unit.body)
        template = context.template(action.region)
        check(len(found) == PASSES.get(template), "there is not a pass for each statistic")
        merged = _welford(unit, found) if template == "normalization.normalize_row" else _online_softmax(unit, found)
        return merged.into(context.program)


def _split_first(loop: cst.For, pattern: str) -> tuple[list[cst.BaseStatement], str]:
    """The first pass without its last line, and what that line takes in. Raises Illegal where it has another form."""
    *lines, last = (line for line in loop.body.body if isinstance(line, cst.BaseStatement))
    match = re.search(pattern, code(last))
    check(match is not None, "a pass has another form")
    assert match is not None
    return lines, match[1]


def _online_softmax(unit: Unit, found: list[cst.For]) -> Unit:
    """m' = max(m, x), t' = t exp(m - m') + exp(x - m'), a lane at a time (Milakov & Gimelshein 2018)."""
    lines, x = _split_first(found[0], r"tl\.where\(mask, (.+), float\(\"-inf\"\)\)")
    term = f'tl.where(mask & ({x} != float("-inf")), tl.exp({x} - fresh), 0.0)'  # while all so far is -inf, `fresh` is too
    update = [
        *lines,
        statement(f'fresh = tl.maximum(peak, tl.where(mask, {x}, float("-inf")))'),
        statement('less = tl.where(fresh == float("-inf"), 1.0, tl.exp(peak - fresh))'),
        statement(f"total, lost = op_add(total * less, lost * less, {term})"),
        statement("peak = fresh"),
    ]
    scaled = 'total * tl.where(peak == float("-inf"), 0.0, tl.exp(peak - top))'
    body: list[Line] = []
    for line in unit.body:
        if line is found[0]:
            body.append(in_loop(found[0], update))
        elif target(line) == "norm":
            body.append(statement(code(line).replace("tl.sum(total", f"tl.sum({scaled}")))
        elif line is not found[1]:
            body.append(line)
    return unit.with_body(body)


def _welford(unit: Unit, found: list[cst.For]) -> Unit:
    """Lane-wise count, mean and squared deviations, merged as in `templates/moments.py`."""
    lines, x = _split_first(found[0], r"tl\.where\(mask, (.+), 0\.0\)\)$")
    start, step = code(found[0].target), step_of(found[0])
    update = [
        *lines,
        statement("count += tl.where(mask, 1.0, 0.0)"),
        statement(f"delta = tl.where(mask, {x} - total, 0.0)"),
        statement(f"total, lost = op_add(total, lost, delta * (1.0 / ({start} // {step} + 1)))"),
        statement(f"squares, rest = op_add(squares, rest, delta * tl.where(mask, {x} - total, 0.0))"),
    ]
    again = [line for line in unit.body if target(line) == "lost"][-1]  # cleared for the second pass, which goes
    body: list[Line] = []
    for line in unit.body:
        if line is found[0]:
            body.append(in_loop(found[0], update))
        elif target(line) == "total":
            body += [line, *(statement(code(line).replace("total", name)) for name in ("count", "rest"))]
        elif target(line) == "mean":
            body += [
                statement("mean = tl.sum(count * total, axis=0) / cols"),
                statement("squares += count * (total - mean) * (total - mean)"),
            ]
        elif line is not found[1] and line is not again:
            body.append(line)
    return unit.with_body(body)
