"""split_reduction: a sum, or mean and variance, over long rows is spread over many programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.library_functions import with_library
from mtmc.actions.split import with_parts
from mtmc.actions.unit import Line, Unit, code, statement, target
from mtmc.errors import check
from mtmc.program import Program

PARTS = (16, 64, 256, 1024)
CHUNK = "{cdiv}({cdiv}({length}, {step}), SPLIT) * {step}"
LEAST = 4096  # elements that each part should have at least


class SplitReduction(Rule):
    """Legal for sums and moments over rows; proposed where there are too few rows to fill the GPU."""

    kind = "split_reduction"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            for parts in splits(context, unit):
                sentence = f"Split each reduction of {unit.name} over {parts} programs and join the parts after."
                yield self.action(unit.name, sentence, parts=parts)

    def apply(self, context: Context, action: Action) -> Program:
        unit, parts = Unit.of(context.program, action.region), int(action["parts"])
        check(_reduced(context, action.region)[0] > 0, "not a sum or variance of rows")
        check("SPLIT" not in unit.constants, "it is split already")
        if context.template(action.region).startswith("moments."):
            unit, joining = _split_moments(unit, parts), "launch_combine_moments"
        else:
            unit, joining = _split_sum(unit, parts), "launch_combine_add"
        return with_library(unit.into(context.program), joining, unit.name)


def splits(context: Context, unit: Unit) -> tuple[int, ...]:
    """Into how many parts each reduction of a unit should be split; none where its rows fill the GPU."""
    (results, length), sms = _reduced(context, unit.name), context.profile.sm_count
    columns = unit.constants["BLOCK"] if "RED" in unit.constants else 1  # that a program reduces side by side
    programs = -(-results // columns)
    if not results or programs >= 8 * sms or "SPLIT" in unit.constants:
        return ()
    return tuple(p for p in PARTS if length * columns >= p * LEAST and programs * p <= 64 * sms)


def _reduced(context: Context, unit: str) -> tuple[int, int]:
    """How many results a unit reduces to, and from how many elements each; (0, 0) where it cannot be split."""
    host = context.host(unit)
    if host is None or host.kwargs["template"] not in ("reduction.row", "moments.row", "moments.chan", "moments.mid"):
        return 0, 0
    source = context.graph[host.inputs[0]].type
    sums = host.kwargs.get("combine", "op_add") == "op_add"
    if source is None or host.type is None or not sums or host.type.dtype not in ("float32", "float16", "bfloat16"):
        return 0, 0
    results = max(host.type.numel, 1)
    return results, source.numel // results


def _split_sum(unit: Unit, parts: int) -> Unit:
    check(unit.stores == [f"tl.store(out_ptr + out_index, {unit.name})"], "something is fused behind")
    check(any(line.startswith(f"{unit.name} = op_sum_over(") for line in unit.lines), "something is fused behind")
    lines: list[Line] = []
    for line in unit.body:
        if isinstance(line, cst.For):
            lines += _bounds("cols")
            text = code(line.iter).replace("(0, cols,", "(first, last,")
            line = line.with_changes(iter=cst.parse_expression(text))
        lines.append(statement("out_index = row * SPLIT + tl.program_id(1)") if target(line) == "out_index" else line)
    partial = "torch.empty((out.numel(), SPLIT), dtype=torch.float32, device=out.device)"
    return with_parts(unit.with_body(lines), parts, {"out": ("partial", partial)}, "launch_combine_add(partial, out)")


def _bounds(length: str, step: str = "BLOCK") -> list[Line]:
    """Where a program's part begins and ends: at multiples of a step, so that loads stay aligned and the mask as it is."""
    return [
        statement(f"chunk = {CHUNK.format(cdiv='tl.cdiv', length=length, step=step)}"),
        statement("first = tl.program_id(1) * chunk"),
        statement(f"last = tl.minimum({length}, first + chunk)"),
    ]


def _split_moments(unit: Unit, parts: int) -> Unit:
    tiled = "RED" in unit.constants
    length, step = ("reds", "RED") if tiled else ("rows * cols" if "rows" in unit.parameters() else "cols", "BLOCK")

    def in_kernel(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        name, text = target(line), code(line)
        if name == "first":
            return []
        if name == "last":
            return _bounds(length, step)
        if name != "out_index":
            return None
        place = text.removeprefix("out_index = ")
        return [statement(f"out_index = {f'({place})' if tiled else place} * SPLIT + tl.program_id(1)")]

    means = "torch.empty((mean.numel(), SPLIT), dtype=mean.dtype, device=mean.device)"
    partials = {"mean": ("means", means), "var": ("variances", "torch.empty_like(means)")}
    chunk = CHUNK.format(cdiv="triton.cdiv", length=length, step=step)
    joined = f"launch_combine_moments(means, variances, mean, var, {length}, {chunk})"
    return with_parts(unit.edit_lines(in_kernel), parts, partials, joined)
