"""tile_shape: a reduction over a middle extent walks more rows, or more columns, of a tile of equal size."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.single_block import PROMISE
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program

NAMES = ["RED", "BLOCK"]
NARROWEST = 16  # columns: fewer waste a memory transaction


class TileShape(Rule):
    """Legal for a tile of two extents that still walks the reduced one."""

    kind = "tile_shape"
    family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            if list(unit.constants) != NAMES:
                continue
            red, block = unit.constants.values()
            for reds, blocks in ((red * 2, block // 2), (red // 2, block * 2)):
                if reds >= 1 and blocks >= NARROWEST:
                    sentence = f"Shape the tile of {unit.name} as {reds} x {blocks} instead of {red} x {block}."
                    yield self.action(unit.name, sentence, red=reds, block=blocks)

    def apply(self, context: Context, action: Action) -> Program:
        unit, red = Unit.of(context.program, action.region), int(action["red"])
        check(list(unit.constants) == NAMES, "there is no tile of two extents")
        whole = any(PROMISE in line for line in unit.lines)
        check(not whole or red >= unit.constants["RED"], PROMISE)
        return unit.with_tile("BLOCK", int(action["block"])).with_tile("RED", red).into(context.program)
