"""dot_precision: fp32 products on the matrix unit, as three of TF32 or fp16 parts or six of bf16 (or one of TF32)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.library_functions import with_library, without_dead
from mtmc.actions.product import DOTTED, SPLIT, Dot, dot, float32_check, operands, tensor_cores
from mtmc.actions.unit import Line, Unit, code, statement
from mtmc.errors import check
from mtmc.program import Program

EXACT = (SPLIT, "tf32x3", "bf16x6")  # 22 bits of each operand, 22, and 24: half as fast, for sums that cancel
PRECISIONS = {"strict": EXACT, "tf32": ("tf32", *EXACT), "bf16": ("tf32", *EXACT)}


class DotPrecision(Rule):
    """Legal for fp32 products and attention on NVIDIA GPUs with matrix units, within the precision that the user allows."""

    kind = "dot_precision"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if tensor_cores(context) else ():
            current = _precision(context, unit.name)
            for new in PRECISIONS[context.precision]:
                if current and new != current:
                    sentence = f"Compute the dot of {unit.name} as {new} on the matrix unit instead of {current}."
                    yield self.action(unit.name, sentence, precision=new)

    def apply(self, context: Context, action: Action) -> Program:
        new = str(action["precision"])
        check(new in PRECISIONS[context.precision], f"{new} is not allowed at precision {context.precision}")
        pair = operands(context, action.region, DOTTED)
        check(pair is not None and bool(_precision(context, action.region)), "there is no fp32 dot")
        assert pair is not None
        unit = Unit.of(context.program, action.region)

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            found = dot(code(line))
            return [statement(_text(found._replace(precision=new)))] if found else None

        program = unit.edit_lines(change).beside("out", float32_check(*pair)).into(context.program)
        return with_library(program, "op_dot_split_fp16x3", unit.name) if new == SPLIT else without_dead(program)


def _text(dot: Dot) -> str:
    if dot.precision == SPLIT:
        return f"{dot.sum} = op_dot_split_fp16x3({dot.left}, {dot.right}, {dot.sum})"
    return f'{dot.sum} = tl.dot({dot.left}, {dot.right}, {dot.sum}, input_precision="{dot.precision}")'


def _precision(context: Context, unit: str) -> str:
    """Input precision of the unit's dots on fp32 operands, empty where there is none."""
    if not operands(context, unit, DOTTED):
        return ""
    return next((found.precision for found in map(dot, Unit.of(context.program, unit).lines) if found), "")
