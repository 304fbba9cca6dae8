"""single_block: what is reduced or scanned fits one tile: it is loaded once, stays in registers, and the loops go."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import MAX_TILE, WARPS
from mtmc.actions.unit import Line, Unit, code, loops, statement, target
from mtmc.errors import check
from mtmc.program import Program

WALKING = ("reduction", "normalization", "scan")  # templates whose loops walk one extent
PRELUDE = ("col", "red", "mask", "index")
PROMISE = "what is reduced must fit one tile"
MAX_RED = 256  # rows of a tile whose columns stay contiguous
MOST = 32  # elements of the tile that a thread should hold: each takes several registers


class SingleBlock(Rule):
    """Legal for reductions, scans and normalisations of rows or middle extents that one tile can hold."""

    kind = "single_block"
    family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            walked = _walked(context, unit)
            if walked is None or not loops(unit.body):
                continue
            constant, length, others = walked
            block = 1 << max(length - 1, 0).bit_length()
            if length and block * others <= MAX_TILE and (constant == "BLOCK" or block <= MAX_RED):
                warps = _warps(unit, block * others)
                held = f"{constant} = {block}, {warps} warp{'s' * (warps > 1)}, no loops"
                sentence = f"Keep all that {unit.name} reduces in registers: {held}."
                yield self.action(unit.name, sentence, value=block)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        walked = _walked(context, unit)
        check(walked is not None and bool(loops(unit.body)), "there is no loop over what is reduced")
        assert walked is not None
        constant, size = walked[0], "cols" if walked[0] == "BLOCK" else "reds"
        unit = unit.with_option("num_warps", _warps(unit, int(action["value"]) * walked[2]))
        promise = f'{size} <= {constant}, "{PROMISE}"'
        unit = unit.with_body([statement(f"tl.device_assert({promise})"), *_unrolled(unit)])
        unit = unit.with_constant(constant, int(action["value"])).beside(constant, f"assert {promise}")
        return unit.into(context.program)


def held_easily(context: Context, unit: Unit) -> bool:
    """Whether registers hold a row that a unit goes over, without more than `MOST` elements a thread."""
    walked = _walked(context, unit)
    return walked is not None and walked[0] == "BLOCK" and walked[1] <= 32 * MOST * WARPS.high


def _warps(unit: Unit, elements: int) -> int:
    """Warps among which a tile is spread: as many as there are, or as many as it takes to hold it in their registers."""
    return max(unit.option("num_warps"), min(elements // (32 * MOST), WARPS.high))


def _unrolled(unit: Unit) -> list[Line]:
    """The kernel with its loops run once, their coordinates and loads kept once."""
    lines: list[Line] = []
    seen: set[str] = set()
    for line in unit.body:
        if not isinstance(line, cst.For):
            lines.append(line)
            continue
        for inner in line.body.body:
            text = code(inner).replace("start + tl.arange(", "tl.arange(")
            if text.startswith("carry, "):  # there is no next tile
                continue
            once = target(inner) in PRELUDE or "= tl.load(" in text
            if not (once and text in seen):
                lines.append(statement(text))
            seen.add(text)
    return lines


def _walked(context: Context, unit: Unit) -> tuple[str, int, int] | None:
    """The tile constant that walks the reduced extent, that extent, and the tile's other extent; None for other units."""
    host = context.host(unit.name)
    if host is None or "SPLIT" in unit.constants or "frame_in" not in host.kwargs:
        return None
    source = context.graph[host.inputs[0]].type
    sizes = {name: prod(source.shape[first:last]) for name, first, last in host.kwargs["frame_in"]} if source else {}
    module, kind = host.kwargs["template"].split(".")
    if module in WALKING and kind.endswith("row") and list(unit.constants) == ["BLOCK"]:
        return "BLOCK", sizes.get("col", 0), 1
    if module in WALKING and kind.endswith("mid") and list(unit.constants) == ["RED", "BLOCK"]:
        return "RED", sizes.get("red", 0), unit.constants["BLOCK"]
    return None
