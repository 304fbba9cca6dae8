"""dot_precision: fp32 products on the matrix unit, as three TF32 products (or one, where allowed)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.product import BATCHED, MATMUL, float32_check, operands, tensor_cores
from mtmc.actions.unit import Line, Unit, code, statement
from mtmc.errors import check
from mtmc.program import Program

PRECISIONS = {"strict": ("tf32x3",), "tf32": ("tf32", "tf32x3"), "bf16": ("tf32", "tf32x3")}


class DotPrecision(Rule):
    """Legal for fp32 dots on an NVIDIA GPU with matrix units, within the precision that the user allows."""

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
        pair = operands(context, action.region, (MATMUL, BATCHED))
        check(pair is not None and bool(_precision(context, action.region)), "there is no fp32 dot")
        assert pair is not None
        unit = Unit.of(context.program, action.region)

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            text = code(line)
            fresh = re.sub(r'input_precision="\w+"', f'input_precision="{new}"', text)
            return [statement(fresh)] if fresh != text else None

        return unit.edit_lines(change).beside("out", float32_check(*pair)).into(context.program)


def _precision(context: Context, unit: str) -> str:
    """Input precision of the unit's dot on fp32 operands, empty where there is none."""
    pair = operands(context, unit, (MATMUL, BATCHED))
    found = re.search(r'input_precision="(\w+)"', context.program.text(f"{unit}_kernel")) if pair else None
    return found[1] if found else ""
