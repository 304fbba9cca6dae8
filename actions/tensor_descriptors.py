"""tensor_descriptors: the copy engine loads tiles of the split operands through tensor descriptors (Hopper's TMA)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.product import BATCHED, PRODUCTS, checked_operands, operands
from mtmc.actions.unit import Line, Unit, statement, target
from mtmc.errors import check
from mtmc.program import Program

IMPORT = "from triton.tools.tensor_descriptor import TensorDescriptor"
ALIGNED = "rows of a descriptor must be a multiple of 16 bytes"


class TensorDescriptors(Rule):
    """Legal on a GPU with TMA for a product of fp16 pairs whose rows are a multiple of 16 bytes."""

    kind = "tensor_descriptors"
    family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if context.profile.tma else ():
            if operands(context, unit.name, PRODUCTS) and "op_dot_fp16x3" in unit.text and "_desc" not in unit.text:
                yield self.action(
                    unit.name, f"Load the tiles of {unit.name} through tensor descriptors instead of pointers."
                )

    def apply(self, context: Context, action: Action) -> Program:
        check(context.profile.tma, f"{context.profile.title} has no tensor descriptors")
        a, b = checked_operands(context, action.region, PRODUCTS)
        batched = context.template(action.region) in BATCHED
        unit = Unit.of(context.program, action.region)
        blocks = {f"{n}_{p}": block for n, block in ((a, "BLOCK_M"), (b, "BLOCK_N")) for p in ("hi", "lo")}
        for part in blocks:
            check(any(line.startswith(f"{part} = tl.load({part}_ptr + ") for line in unit.lines), "loads have another form")
        unit = unit.edit_lines(lambda line: _in_kernel(line, a, blocks, batched))
        kernel = [f"{p.removesuffix('_ptr')}_desc" if p.removesuffix("_ptr") in blocks else p for p in unit.arguments]
        unit = unit.with_parameters(kernel, unit.parameters(unit.launcher))
        described = {p: [f"TensorDescriptor.from_tensor({p}, [{block}, BLOCK_K])"] for p, block in blocks.items()}
        unit = unit.with_arguments(described).beside("grid", f'assert {a}_hi.stride(0) % 8 == 0, "{ALIGNED}"', before=True)
        return _with_import(unit.into(context.program))


def _in_kernel(line: cst.SimpleStatementLine, a: str, blocks: dict[str, str], batched: bool) -> Sequence[Line] | None:
    """The same tiles by their first row; a tile that reaches into the next matrix of a batch is not stored there."""
    name = target(line)
    if name == "k":
        return []
    if name not in blocks:
        return None
    row, col = (f"batch.to(tl.int32) * {n} + " if batched else "" for n in "MN")
    if name.startswith(f"{a}_"):
        return [statement(f"{name} = {name}_desc.load([{row}pid_m * BLOCK_M, start])")]
    return [statement(f"{name} = {name}_desc.load([{col}pid_n * BLOCK_N, start]).T")]


def _with_import(program: Program) -> Program:
    if IMPORT in program.source:
        return program
    anchor = "import triton.language as tl\n"
    return Program(program.source.replace(anchor, f"{anchor}{IMPORT}\n", 1))
