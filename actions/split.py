"""Splitting: a reduction with few results is spread over many programs; a small kernel joins the parts in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.library import with_library
from mtmc.actions.unit import Line, Unit, code, statement, target
from mtmc.errors import check
from mtmc.program import Program

PARTS = (16, 64, 256, 1024)
LEAST = 4096  # elements that each part should have at least


def _reduced(context: Context, unit: str) -> tuple[int, int]:
    """How many results a unit reduces to, and from how many elements each; (0, 0) where it cannot be split."""
    host = context.host(unit)
    if host is None or host.kwargs["template"] not in ("reduction.row", "moments.row", "moments.chan"):
        return 0, 0
    source = context.graph[host.inputs[0]].type
    if (
        source is None
        or host.type is None
        or host.kwargs.get("combine", "op_add") != "op_add"
        or host.type.dtype not in ("float32", "float16", "bfloat16")
    ):
        return 0, 0
    results = max(host.type.numel, 1)
    return results, source.numel // results


def splits(context: Context, unit: Unit) -> tuple[int, ...]:
    """Into how many parts each reduction of a unit may be split; none for other units."""
    results, length = _reduced(context, unit.name)
    if not results or results >= 8 * context.profile.sm_count or "SPLIT" in unit.constants:
        return ()
    return tuple(p for p in PARTS if length >= p * LEAST and results * p <= 64 * context.profile.sm_count)


def _with_split(unit: Unit, parts: int) -> Unit:
    """The unit with a compile-time SPLIT: parameter, constant and launch argument."""
    annotation = cst.Annotation(cst.parse_expression("tl.constexpr"))
    params = [*unit.kernel.params.params, cst.Param(cst.Name("SPLIT"), annotation)]
    kernel = unit.kernel.with_changes(params=unit.kernel.params.with_changes(params=params))
    unit = Unit(unit.name, kernel, unit.launcher)
    named = [a for a in unit.launch.args if a.keyword and a.keyword.value in ("num_warps", "num_stages")]
    others = [a for a in unit.launch.args if a not in named]
    unit = unit.with_launch([*others, keyword("SPLIT", "SPLIT"), *named])

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        return [statement(f"SPLIT = {parts}"), line] if code(line).startswith("grid = ") else None

    return unit.edit_launcher(change)


def keyword(name: str, value: str) -> cst.Arg:
    """`name=value` as a call argument, written without blanks."""
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(cst.parse_expression(value), keyword=cst.Name(name), equal=tight)


def _grid(line: cst.SimpleStatementLine) -> Line:
    """The launch grid with the parts as its second dimension."""
    first = code(line).removeprefix("grid = (").rstrip(")").rstrip(",")
    first = first if first.count("(") == first.count(")") else first + ")"
    return statement(f"grid = ({first}, SPLIT)")


class SplitReduction:
    """A sum, or mean and variance, over long rows."""

    kind = "split_reduction"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            for parts in splits(context, unit):
                sentence = f"Split each reduction of {unit.name} over {parts} programs and join the parts after."
                yield Action(self.kind, self.family, unit.name, (("parts", parts),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit, parts = Unit.of(context.program, action.region), int(action["parts"])
        check(_reduced(context, action.region)[0] > 0, "not a sum or variance of rows")
        check("SPLIT" not in unit.constants, "it is split already")
        if context.template(action.region).startswith("moments."):
            return _split_moments(unit, parts).into(
                with_library(context.program, "launch_combine_moments", f"launch_{unit.name}")
            )
        stores = [line for line in unit.lines if line.startswith("tl.store(")]
        check(stores == [f"tl.store(out_ptr + out_index, {unit.name})"], "something is fused behind")
        check(any(line.startswith(f"{unit.name} = op_sum_over(") for line in unit.lines), "something is fused behind")
        return _split_sum(unit, parts).into(with_library(context.program, "launch_combine_add", f"launch_{unit.name}"))


def _split_sum(unit: Unit, parts: int) -> Unit:
    bounds = [
        statement("first = tl.program_id(1) * tl.cdiv(cols, SPLIT)"),
        statement("last = tl.minimum(cols, first + tl.cdiv(cols, SPLIT))"),
    ]
    lines: list[Line] = []
    for line in unit.body:
        if isinstance(line, cst.For):
            inner = [statement("mask = col < last") if target(s) == "mask" else s for s in line.body.body]
            text = code(line.iter).replace("(0, cols,", "(first, last,")
            line = line.with_changes(iter=cst.parse_expression(text), body=line.body.with_changes(body=inner))
        lines.append(statement("out_index = row * SPLIT + tl.program_id(1)") if target(line) == "out_index" else line)
    unit = _with_split(unit.with_body([*bounds, *lines]), parts)

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if code(line).startswith("grid = "):
            partial = "partial = torch.empty((out.numel(), SPLIT), dtype=torch.float32, device=out.device)"
            return [statement(partial), _grid(line)]
        return [statement("return launch_combine_add(partial, out)")] if code(line) == "return out" else None

    unit = unit.edit_launcher(change)
    partial = cst.Name("partial")
    return unit.with_launch([a.with_changes(value=partial) if code(a.value) == "out" else a for a in unit.launch.args])


def _split_moments(unit: Unit, parts: int) -> Unit:
    def in_kernel(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        name, text = target(line), code(line)
        if name == "first":
            return []
        if name == "last":
            length = text.removeprefix("last = ")
            return [
                statement(f"first = tl.minimum({length}, tl.program_id(1) * tl.cdiv({length}, SPLIT))"),
                statement(f"last = tl.minimum({length}, first + tl.cdiv({length}, SPLIT))"),
            ]
        if name == "out_index":
            return [statement(f"{text} * SPLIT + tl.program_id(1)")]
        return [statement("n = tl.maximum(last - first, 1)")] if name == "n" else None

    unit = _with_split(unit.edit_lines(in_kernel), parts)
    length = "rows * cols" if "rows" in unit.parameters() else "cols"

    def in_launcher(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if code(line).startswith("grid = "):
            means = "means = torch.empty((mean.numel(), SPLIT), dtype=mean.dtype, device=mean.device)"
            return [statement(means), statement("variances = torch.empty_like(means)"), _grid(line)]
        joined = f"return launch_combine_moments(means, variances, mean, var, {length})"
        return [statement(joined)] if code(line) == "return (mean, var)" or code(line) == "return mean, var" else None

    unit = unit.edit_launcher(in_launcher)
    new = {"mean": cst.Name("means"), "var": cst.Name("variances")}
    return unit.with_launch(
        [a.with_changes(value=new[code(a.value)]) if code(a.value) in new else a for a in unit.launch.args]
    )


class SplitK:
    """A product with few tiles: the summed extent is split over programs, the partial products added after."""

    kind = "split_k"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            host = context.host(unit.name)
            if (
                host is None
                or host.kwargs["template"] != "contraction.matmul"
                or "SPLIT" in unit.constants
                or host.type is None
            ):
                continue
            summed = context.graph[host.inputs[0]].type.shape[-1]  # type: ignore[union-attr]
            tiles = host.type.numel // max(unit.constants.get("BLOCK_M", 1) * unit.constants.get("BLOCK_N", 1), 1)
            for parts in (4, 8, 16, 32):
                if summed >= parts * 1024 and tiles * parts <= 16 * context.profile.sm_count:
                    sentence = (
                        f"Split the summed extent of {unit.name} over {parts} programs and add the partial products after."
                    )
                    yield Action(self.kind, self.family, unit.name, (("parts", parts),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        check(context.template(action.region) == "contraction.matmul", "not a product of two matrices")
        unit, parts = Unit.of(context.program, action.region), int(action["parts"])
        check("SPLIT" not in unit.constants, "it is split already")
        stores = [line for line in unit.lines if line.startswith("tl.store(")]
        check(stores == [f"tl.store(out_ptr + index, {unit.name}, mask=mask)"], "something is fused behind")
        check(any(line.startswith(f"{unit.name} = acc") for line in unit.lines), "something is fused behind")
        lines: list[Line] = []
        for line in unit.body:
            if isinstance(line, cst.For):
                lines += [
                    statement("first = tl.program_id(1) * tl.cdiv(K, SPLIT * BLOCK_K) * BLOCK_K"),
                    statement("last = tl.minimum(K, first + tl.cdiv(K, SPLIT * BLOCK_K) * BLOCK_K)"),
                ]
                line = line.with_changes(iter=cst.parse_expression(code(line.iter).replace("(0, K,", "(first, last,")))
            elif target(line) == "index":
                line = statement("index = (tl.program_id(1) * M + row) * N + col")
            lines.append(line)
        unit = _with_split(unit.with_body(lines), parts)

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            if code(line).startswith("grid = "):
                partial = "partial = torch.empty((SPLIT, M, N), dtype=torch.float32, device=out.device)"
                return [statement(partial), _grid(line)]
            return [statement("return launch_combine_products(partial, out)")] if code(line) == "return out" else None

        unit = unit.edit_launcher(change)
        args = [a.with_changes(value=cst.Name("partial")) if code(a.value) == "out" else a for a in unit.launch.args]
        return unit.with_launch(args).into(with_library(context.program, "launch_combine_products", f"launch_{unit.name}"))
