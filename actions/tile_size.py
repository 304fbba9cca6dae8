"""tile_size: one tile constant doubled, quadrupled or halved."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import COUNTS, MAX_TILE, TILES
from mtmc.actions.single_block import PROMISE
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program


class TileSize(Rule):
    """Legal within the domain of the constant, as long as the whole tile fits registers."""

    kind = "tile_size"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            for name, value in unit.constants.items():
                for new in TILES[name].neighbours(value) if name in TILES else ():
                    sentence = f"In {unit.name}, change {name} from {value} to {new}."
                    yield self.action(unit.name, sentence, constant=name, value=new)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        name, value = str(action["constant"]), int(action["value"])
        check(name in TILES and value in TILES[name], f"{name} cannot be {value}")
        tiles = [v for k, v in {**unit.constants, name: value}.items() if k not in COUNTS]
        check(prod(tiles) <= (MAX_TILE if "BLOCK_K" not in unit.constants else 16 * MAX_TILE), "the tile is too large")
        whole = any(f'<= {name}, "{PROMISE}' in line for line in unit.lines)
        check(not whole or value >= unit.constants[name], PROMISE)
        return unit.with_tile(name, value).into(context.program)
