"""Products: split fp16 operands on the matrix unit, tensor-descriptor loads, the order of programs, and back to cuBLAS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.forward import Call
from mtmc.actions.fusion import without_dead
from mtmc.actions.library import with_library
from mtmc.actions.split import keyword
from mtmc.actions.unit import Line, Unit, code, is_load, statement, target
from mtmc.errors import check
from mtmc.program import Program


def _product(context: Context, unit: str) -> tuple[str, str] | None:
    """The two operands of an fp32 matrix product, None for other units."""
    host = context.host(unit)
    if host is None or host.kwargs["template"] != "contraction.matmul":
        return None
    left, right = host.inputs
    type_ = context.graph[left].type
    return (left, right) if type_ and type_.dtype == "float32" else None


class SplitFp16:
    """fp32 operands split once a call into fp16 pairs; three fp16 products replace one fp32 product."""

    kind = "split_fp16"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        if not context.profile.tensor_cores_in_triton or context.profile.backend != "cuda":
            return
        for unit in units(context):
            if _product(context, unit.name) and "input_precision" in code(unit.kernel):
                sentence = (
                    f"Split the fp32 operands of {unit.name} into fp16 pairs and multiply three times on the matrix unit."
                )
                yield Action(self.kind, self.family, unit.name, (), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        pair = _product(context, action.region)
        check(pair is not None, "not a plain fp32 product")
        assert pair is not None
        a, b = pair
        unit = Unit.of(context.program, action.region)
        check(
            any(line.startswith(f"acc = tl.dot({a}, {b}, acc, input_precision=") for line in unit.lines),
            "the dot has another form",
        )
        check(any(line == f"{unit.name} = acc" for line in unit.lines), "the accumulator is used in another way")
        unit = unit.edit_lines(lambda line: _split_line(line, a, b, unit.name))
        strides = [f"{n}_stride_{d}" for n, ds in ((a, "mk"), (b, "kn")) for d in ds]
        kernel = [p.name.value for p in unit.kernel.params.params if not p.annotation and p.name.value not in strides]
        at = kernel.index(f"{a}_ptr")
        kernel[at : at + 2] = [
            f"{a}_hi_ptr",
            f"{a}_lo_ptr",
            f"{a}_scale_ptr",
            f"{b}_hi_ptr",
            f"{b}_lo_ptr",
            f"{b}_scale_ptr",
        ]
        unit = unit.with_parameters(kernel, unit.parameters(unit.launcher))
        unit = unit.edit_launcher(lambda line: _split_calls(line, a, b))
        kept = [x for x in unit.launch.args if not re.match(rf"({a}|{b})\.stride\(", code(x.value))]
        args: list[cst.Arg] = []
        for arg in kept:
            name = code(arg.value)
            parts = [f"{name}_hi", f"{name}_lo", f"{name}_scale"] if name in (a, b) and not arg.keyword else []
            args += [cst.Arg(cst.Name(p)) for p in parts] or [arg]
        program = unit.with_launch(args).into(context.program)
        for name in ("split_fp16", "op_dot_fp16x3"):
            program = with_library(program, name, before=f"launch_{unit.name}")
        return program


def _split_line(line: cst.SimpleStatementLine, a: str, b: str, name: str) -> Sequence[Line] | None:
    text = code(line)
    mask = re.search(r"mask=(.+), other=0\.0\)$", text)
    if is_load(line) and target(line) in (a, b) and mask:
        operand = target(line)
        at = "row * K + k[None, :]" if operand == a else "col * K + k[:, None]"
        loads = [f"{operand}_{p} = tl.load({operand}_{p}_ptr + {at}, mask={mask[1]}, other=0.0)" for p in ("hi", "lo")]
        return [statement(t) for t in loads]
    if text.startswith(f"acc = tl.dot({a}, {b}, acc"):
        return [statement(f"acc = op_dot_fp16x3({a}_hi, {a}_lo, {b}_hi, {b}_lo, acc)")]
    if text == f"{name} = acc":
        return [
            statement(f"{a}_scale = tl.load({a}_scale_ptr + row, mask=row < M)"),
            statement(f"{b}_scale = tl.load({b}_scale_ptr + col, mask=col < N)"),
            statement(f"{name} = acc * {a}_scale * {b}_scale"),
        ]
    return None


def _split_calls(line: cst.SimpleStatementLine, a: str, b: str) -> Sequence[Line] | None:
    if not code(line).startswith("out = "):
        return None
    return [
        line,
        statement(f"{a}_hi, {a}_lo, {a}_scale = split_fp16({a}.reshape(M, K))"),
        statement(f"{b}_hi, {b}_lo, {b}_scale = split_fp16({b}.t())"),
    ]


class TensorDescriptors:
    """Tiles of the split operands loaded by the copy engine through tensor descriptors (Hopper's TMA)."""

    kind = "tensor_descriptors"
    family: Family = "pipelining"

    def propose(self, context: Context) -> Iterator[Action]:
        if not context.profile.tma:
            return
        for unit in units(context):
            if _product(context, unit.name) and "op_dot_fp16x3" in code(unit.kernel) and "_desc" not in code(unit.kernel):
                sentence = f"Load the tiles of {unit.name} through tensor descriptors instead of pointers."
                yield Action(self.kind, self.family, unit.name, (), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        pair = _product(context, action.region)
        check(pair is not None, "not a plain fp32 product")
        assert pair is not None
        a, b = pair
        length = context.graph[a].type.shape[-1]  # type: ignore[union-attr]
        check(length % 8 == 0, "rows of a descriptor must be a multiple of 16 bytes")
        unit = Unit.of(context.program, action.region)
        parts = [f"{n}_{p}" for n in (a, b) for p in ("hi", "lo")]
        check(
            all(any(line.startswith(f"{p} = tl.load({p}_ptr + ") for line in unit.lines) for p in parts),
            "loads have another form",
        )

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            name = target(line)
            if name == "k":
                return []
            if name not in parts:
                return None
            if name.startswith(f"{a}_"):
                return [statement(f"{name} = {name}_desc.load([pid_m * BLOCK_M, start])")]
            return [statement(f"{name} = {name}_desc.load([pid_n * BLOCK_N, start]).T")]

        unit = unit.edit_lines(change)
        kernel = [p.name.value for p in unit.kernel.params.params if not p.annotation]
        kernel = [f"{p.removesuffix('_ptr')}_desc" if p.removesuffix("_ptr") in parts else p for p in kernel]
        unit = unit.with_parameters(kernel, unit.parameters(unit.launcher))
        args = [_described(x, a, parts) for x in unit.launch.args]
        unit = unit.with_launch(args).edit_launcher(_aligned)
        return _with_import(unit.into(context.program), "from triton.tools.tensor_descriptor import TensorDescriptor")


def _described(arg: cst.Arg, a: str, parts: list[str]) -> cst.Arg:
    name = code(arg.value)
    if name not in parts or arg.keyword:
        return arg
    block = "BLOCK_M" if name.startswith(f"{a}_") else "BLOCK_N"
    return arg.with_changes(value=cst.parse_expression(f"TensorDescriptor.from_tensor({name}, [{block}, BLOCK_K])"))


def _aligned(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
    if not code(line).startswith("out = "):
        return None
    return [line, statement('assert K % 8 == 0, "rows of a descriptor must be a multiple of 16 bytes"')]


def _with_import(program: Program, line: str) -> Program:
    if line in program.source:
        return program
    return Program(program.source.replace("import triton.language as tl\n", f"import triton.language as tl\n{line}\n", 1))


class Swizzle:
    """Programs walk the product in groups of tile rows, so that they share operands in the L2."""

    kind = "swizzle"
    family: Family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            if context.template(unit.name).startswith("contraction.") and any(t.startswith("pid_m = ") for t in unit.lines):
                for group in (4, 8, 16):
                    sentence = f"Let the programs of {unit.name} walk the tiles in groups of {group} rows."
                    yield Action(self.kind, self.family, unit.name, (("group", group),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        check(any(t.startswith("pid_m = ") for t in unit.lines), "the order of programs has another form")

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            if target(line) == "pid_m":
                text = "pid_m, pid_n = op_grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)"
                return [statement('tl.static_assert(GROUP > 0, "a group must not be empty")'), statement(text)]
            return [] if target(line) == "pid_n" else None

        kernel = unit.kernel.with_changes(
            params=unit.kernel.params.with_changes(
                params=[
                    *unit.kernel.params.params,
                    cst.Param(cst.Name("GROUP"), cst.Annotation(cst.parse_expression("tl.constexpr"))),
                ]
            )
        )
        unit = Unit(unit.name, kernel, unit.launcher).edit_lines(change)
        named = [a for a in unit.launch.args if a.keyword and a.keyword.value in ("num_warps", "num_stages")]
        args = [*(a for a in unit.launch.args if a not in named), keyword("GROUP", str(action["group"])), *named]
        return with_library(unit.with_launch(args).into(context.program), "op_grouped", before=f"launch_{unit.name}")


class Library:
    """A product given back to PyTorch (cuBLAS)."""

    kind = "library"
    family: Family = "library"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            host = context.host(unit.name)
            if host and host.kwargs["template"].startswith("contraction.") and len(context.calls(unit.name)) == 1:
                yield Action(self.kind, self.family, unit.name, (), f"Give {unit.name} back to PyTorch's matrix product.")

    def apply(self, context: Context, action: Action) -> Program:
        calls = context.calls(action.region)
        check(len(calls) == 1 and calls[0].targets == (action.region,), "something is fused into the product")
        host = context.host(action.region)
        check(host is not None and calls[0].args == host.inputs, "something is fused into the product")
        given = Call(calls[0].line, calls[0].targets, "torch.ops.aten.matmul.default", calls[0].args)
        program = context.program.replace("ModelNew", context.forward.with_calls({given.line: given}))
        return without_dead(program)
