"""Tiling: the sizes of tiles, the warps that work on one, and the arithmetic of a dot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.knobs import TILES, WARPS
from mtmc.actions.unit import Line, Unit, code, statement
from mtmc.errors import check
from mtmc.program import Program

MAX_TILE = 65536  # elements of one program's tile: beyond, registers cannot hold it on any GPU


class TileSize:
    """One tile constant doubled, quadrupled or halved."""

    kind = "tile_size"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            for name, value in unit.constants.items():
                for new in TILES[name].neighbours(value) if name in TILES else ():
                    sentence = f"In {unit.name}, change {name} from {value} to {new}."
                    yield Action(self.kind, self.family, unit.name, (("constant", name), ("value", new)), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        name, value = str(action["constant"]), int(action["value"])
        check(name in TILES and TILES[name].low <= value <= TILES[name].high, f"{name} cannot be {value}")
        tiles = {k: v for k, v in {**unit.constants, name: value}.items() if k not in ("GROUP", "SPLIT")}
        check(prod(tiles.values()) <= (MAX_TILE if "BLOCK_K" not in tiles else 16 * MAX_TILE), "the tile is too large")
        changed = unit.with_constant(name, value)
        assertion = f'tl.static_assert(({name} & ({name} - 1)) == 0, "{name} must be a power of two")'
        if assertion not in unit.lines and name in unit.parameters():
            changed = changed.with_body([statement(assertion), *changed.body])
        return changed.into(context.program)


class Warps:
    """More or fewer warps a program."""

    kind = "warps"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            value = unit.option("num_warps")
            for new in WARPS.neighbours(value):
                sentence = f"Run {unit.name} with {new} warps instead of {value}."
                yield Action(self.kind, self.family, unit.name, (("value", new),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        value = int(action["value"])
        check(value in (1, 2, 4, 8, 16), "the number of warps must be 1, 2, 4, 8 or 16")
        return Unit.of(context.program, action.region).with_option("num_warps", value).into(context.program)


PRECISIONS = {"strict": ("tf32x3",), "tf32": ("tf32", "tf32x3"), "bf16": ("tf32", "tf32x3")}


class DotPrecision:
    """fp32 products on the matrix unit: three TF32 products instead of scalar multiply-adds (or one, where allowed)."""

    kind = "dot_precision"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        if not context.profile.tensor_cores_in_triton or context.profile.backend != "cuda":
            return
        for unit in units(context):
            current = _precision(context, unit.name)
            for new in PRECISIONS[context.precision]:
                if current and new != current:
                    sentence = f"Compute the dot of {unit.name} as {new} on the matrix unit instead of {current}."
                    yield Action(self.kind, self.family, unit.name, (("precision", new),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        new = str(action["precision"])
        check(new in PRECISIONS[context.precision], f"{new} is not allowed at precision {context.precision}")
        check(bool(_precision(context, action.region)), "there is no fp32 dot")
        unit = Unit.of(context.program, action.region)

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            text = code(line)
            fresh = re.sub(r'input_precision="\w+"', f'input_precision="{new}"', text)
            return [statement(fresh)] if fresh != text else None

        return unit.edit_lines(change).into(context.program)


def _precision(context: Context, unit: str) -> str:
    """Input precision of the unit's dot on fp32 operands, empty where there is none."""
    host = context.host(unit)
    if host is None or host.kwargs["template"] not in ("contraction.matmul", "contraction.bmm"):
        return ""
    operand = context.graph[host.inputs[0]].type
    found = re.search(r'input_precision="(\w+)"', context.program.text(f"{unit}_kernel"))
    return found[1] if found and operand and operand.dtype == "float32" else ""
