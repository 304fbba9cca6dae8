"""split_fp16: fp32 operands are split once a call into fp16 pairs; three fp16 products replace one fp32 product."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.library_functions import with_library
from mtmc.actions.product import BATCHED, MATMUL, TILE, checked_operands, float32_check, operands, tensor_cores
from mtmc.actions.unit import Line, Unit, code, is_load, statement, target
from mtmc.errors import check
from mtmc.program import Program

LEAST_TILE = 64  # smaller tiles leave the matrix unit waiting: slower than plain multiply-adds


class SplitFp16(Rule):
    """Legal for a plain product of two fp32 matrices, or of batches of them, on an NVIDIA GPU with matrix units."""

    kind = "split_fp16"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if tensor_cores(context) else ():
            if operands(context, unit.name, (MATMUL, BATCHED)) and "input_precision" in unit.text:
                sentence = f"Split the fp32 operands of {unit.name} into fp16 pairs, for three products on the matrix unit."
                yield self.action(unit.name, sentence)

    def apply(self, context: Context, action: Action) -> Program:
        a, b = checked_operands(context, action.region, (MATMUL, BATCHED))
        batched = context.template(action.region) == BATCHED
        unit = Unit.of(context.program, action.region)
        dot = f"acc = tl.dot({a}, {b}, acc, input_precision="
        check(any(line.startswith(dot) for line in unit.lines), "the dot has another form")
        check(f"{unit.name} = acc" in unit.lines, "the accumulator is used in another way")
        unit = unit.edit_lines(lambda line: _in_kernel(line, a, b, unit, batched))
        strides = [f"{n}_stride_{d}" for n, ds in ((a, "bmk"), (b, "bkn")) for d in ds]
        parts = {n: [f"{n}_hi", f"{n}_lo", f"{n}_scale"] for n in (a, b)}
        pointers = {f"{n}_ptr": [f"{part}_ptr" for part in parts[n]] for n in (a, b)}
        kernel = [p for own in unit.arguments if own not in strides for p in pointers.get(own, [own])]
        unit = unit.with_parameters(kernel, unit.parameters(unit.launcher))
        passed = {code(x.value): () for x in unit.launch.args if re.match(rf"({a}|{b})\.stride\(", code(x.value))}
        left, right = (a, f"{b}.transpose(1, 2)") if batched else (f"{a}.reshape(M, K)", f"{b}.t()")
        found = ", ".join(f"({', '.join(parts[n])})" for n in (a, b))
        anchor, split = ("partial", ", SPLIT") if "SPLIT" in unit.constants else ("out", "")
        unit = unit.with_arguments({**passed, **parts, "K": [f"{a}_hi.shape[1]"]}).beside(
            anchor, float32_check(a, b), f"{found} = split_fp16({left}{split}), split_fp16({right}{split})"
        )
        for name in TILE:
            unit = unit.with_constant(name, max(unit.constants[name], LEAST_TILE))
        program = unit.into(context.program)
        for name in ("split_fp16", "op_dot_fp16x3"):
            program = with_library(program, name, unit.name)
        return program


def _in_kernel(line: cst.SimpleStatementLine, a: str, b: str, unit: Unit, batched: bool) -> Sequence[Line] | None:
    """Loads of both parts, the dot of them, and the scales on the sum; rows and columns count through batches.

    After split_k each part of a row or column has its own scale.
    """
    row, col = ("(batch * M + m)", "(batch * N + col)") if batched else ("row", "col")
    text, operand = code(line), target(line)
    mask = re.search(r"mask=(.+), other=0\.0\)$", text)
    if is_load(line) and operand in (a, b) and mask:
        at = f"{row} * K + k[None, :]" if operand == a else f"{col} * K + k[:, None]"
        loads = [f"{operand}_{p} = tl.load({operand}_{p}_ptr + {at}, mask={mask[1]}, other=0.0)" for p in ("hi", "lo")]
        return [statement(t) for t in loads]
    if text in (f"{n}_ptr += batch * {n}_stride_b" for n in (a, b)):
        return []
    if text.startswith(f"acc = tl.dot({a}, {b}, acc"):
        return [statement(f"acc = op_dot_fp16x3({a}_hi, {a}_lo, {b}_hi, {b}_lo, acc)")]
    if text == f"{unit.name} = acc":
        if "SPLIT" in unit.constants:
            row, col = (f"{at} * SPLIT + tl.program_id(1)" for at in (row, col))
        ends = ((a, row, "m < M" if batched else "row < M"), (b, col, "col < N"))
        scales = [f"tl.load({n}_scale_ptr + {at}, mask={end})" for n, at, end in ends]
        return [statement(f"{unit.name} = acc * {scales[0]} * {scales[1]}")]  # one by one: their product may underflow
    return None
