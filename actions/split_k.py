"""split_k: in a product with few tiles, the summed extent is split over programs and the partial products added after."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.library_functions import with_library
from mtmc.actions.split import with_parts
from mtmc.actions.unit import Line, Unit, code, statement, target
from mtmc.errors import check
from mtmc.program import Program

PARTS = (4, 8, 16, 32, 64, 128)
LEAST = 1024  # summed elements that each part should have at least


class SplitK(Rule):
    """Legal for a product of two matrices that nothing is fused behind; proposed where its tiles do not fill the GPU."""

    kind = "split_k"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            tiles = _outputs(context, unit) // max(unit.constants.get("BLOCK_M", 1) * unit.constants.get("BLOCK_N", 1), 1)
            for parts in divisions(context, unit):
                if tiles * parts <= 16 * context.profile.sm_count:
                    sentence = (
                        f"Split the summed extent of {unit.name} over {parts} programs and add the partial products after."
                    )
                    yield self.action(unit.name, sentence, parts=parts)

    def apply(self, context: Context, action: Action) -> Program:
        check(context.template(action.region) == "contraction.matmul", "not a product of two matrices")
        unit, parts = Unit.of(context.program, action.region), int(action["parts"])
        check("SPLIT" not in unit.constants, "it is split already")
        check(unit.stores == [f"tl.store(out_ptr + index, {unit.name}, mask=mask)"], "something is fused behind")
        check(any(line.startswith(f"{unit.name} = acc") for line in unit.lines), "something is fused behind")
        partial = "torch.empty((SPLIT, M, N), dtype=torch.float32, device=out.device)"
        joined = "launch_combine_products(partial, out)"
        unit = with_parts(_bounded(unit), parts, {"out": ("partial", partial)}, joined)
        return with_library(unit.into(context.program), "launch_combine_products", unit.name)


def divisions(context: Context, unit: Unit) -> list[int]:
    """Numbers of parts that leave each enough to sum, ascending; none for what is no product or is split already."""
    host = context.host(unit.name)
    if not host or host.kwargs["template"] != "contraction.matmul" or "SPLIT" in unit.constants:
        return []
    left = context.graph[host.inputs[0]].type
    return [parts for parts in PARTS if left and left.shape[-1] >= parts * LEAST]


def _outputs(context: Context, unit: Unit) -> int:
    host = context.host(unit.name)
    return host.type.numel if host and host.type else 0


def _bounded(unit: Unit) -> Unit:
    """The kernel with its loop from `first` to `last`, storing into the part of its program."""
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
    return unit.with_body(lines)
