"""split_fp16: fp32 operands are split once a call into fp16 pairs; three fp16 products replace one fp32 product."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.library_functions import with_library
from mtmc.actions.product import TILE, checked_operands, float32_check, operands, tensor_cores
from mtmc.actions.unit import Line, Unit, code, is_load, statement, target
from mtmc.errors import check
from mtmc.program import Program

LEAST_TILE = 64  # smaller tiles leave the matrix unit waiting: slower than plain multiply-adds


class SplitFp16(Rule):
    """Legal for a plain product of two fp32 matrices on an NVIDIA GPU with matrix units."""

    kind = "split_fp16"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if tensor_cores(context) else ():
            if operands(context, unit.name) and "input_precision" in unit.text:
                sentence = f"Split the fp32 operands of {unit.name} into fp16 pairs, for three products on the matrix unit."
                yield self.action(unit.name, sentence)

    def apply(self, context: Context, action: Action) -> Program:
        a, b = checked_operands(context, action.region)
        unit = Unit.of(context.program, action.region)
        dot = f"acc = tl.dot({a}, {b}, acc, input_precision="
        check(any(line.startswith(dot) for line in unit.lines), "the dot has another form")
        check(f"{unit.name} = acc" in unit.lines, "the accumulator is used in another way")
        unit = unit.edit_lines(lambda line: _in_kernel(line, a, b, unit.name))
        strides = [f"{n}_stride_{d}" for n, ds in ((a, "mk"), (b, "kn")) for d in ds]
        parts = {n: [f"{n}_hi", f"{n}_lo", f"{n}_scale"] for n in (a, b)}
        pointers = {f"{n}_ptr": [f"{part}_ptr" for part in parts[n]] for n in (a, b)}
        kernel = [p for own in unit.arguments if own not in strides for p in pointers.get(own, [own])]
        unit = unit.with_parameters(kernel, unit.parameters(unit.launcher))
        passed = {code(x.value): () for x in unit.launch.args if re.match(rf"({a}|{b})\.stride\(", code(x.value))}
        unit = unit.with_arguments({**passed, **parts}).beside(
            "out",
            float32_check(a, b),
            f"{a}_hi, {a}_lo, {a}_scale = split_fp16({a}.reshape(M, K))",
            f"{b}_hi, {b}_lo, {b}_scale = split_fp16({b}.t())",
        )
        for name in TILE:
            unit = unit.with_constant(name, max(unit.constants[name], LEAST_TILE))
        program = unit.into(context.program)
        for name in ("split_fp16", "op_dot_fp16x3"):
            program = with_library(program, name, unit.name)
        return program


def _in_kernel(line: cst.SimpleStatementLine, a: str, b: str, name: str) -> Sequence[Line] | None:
    text, operand = code(line), target(line)
    mask = re.search(r"mask=(.+), other=0\.0\)$", text)
    if is_load(line) and operand in (a, b) and mask:
        at = "row * K + k[None, :]" if operand == a else "col * K + k[:, None]"
        loads = [f"{operand}_{p} = tl.load({operand}_{p}_ptr + {at}, mask={mask[1]}, other=0.0)" for p in ("hi", "lo")]
        return [statement(t) for t in loads]
    if text.startswith(f"acc = tl.dot({a}, {b}, acc"):
        return [statement(f"acc = op_dot_fp16x3({a}_hi, {a}_lo, {b}_hi, {b}_lo, acc)")]
    if text == f"{name} = acc":
        scales = [f"tl.load({n}_scale_ptr + {at}, mask={at} < {end})" for n, at, end in ((a, "row", "M"), (b, "col", "N"))]
        return [statement(f"{name} = acc * {scales[0]} * {scales[1]}")]  # one by one: their product may underflow
    return None
