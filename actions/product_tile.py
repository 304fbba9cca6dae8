"""product_tile: tile, warps and stages of a product or an attention set together, to values that feed a matrix unit well."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import ATTENTION_TILES, PRODUCT_TILES
from mtmc.actions.product import TILE
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program


class ProductTile(Rule):
    """Legal for matrix products and attention; proposed on GPUs whose matrix units Triton reaches."""

    kind = "product_tile"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if context.profile.tensor_cores_in_triton else ():
            for number, (*sizes, warps, stages) in enumerate(_tiles(unit)):
                tile = " x ".join(map(str, sizes))
                yield self.action(
                    unit.name, f"Give {unit.name} a tile of {tile}, {warps} warps and {stages} stages.", tile=number
                )

    def apply(self, context: Context, action: Action) -> Program:
        unit, number = Unit.of(context.program, action.region), int(action["tile"])
        tiles = _tiles(unit)
        check(bool(tiles), "neither a product of matrices nor an attention")
        check(0 <= number < len(tiles), f"there are {len(tiles)} tiles")
        *sizes, warps, stages = tiles[number]
        for name, size in reversed([*zip(TILE, sizes, strict=False)]):
            unit = unit.with_tile(name, size)
        return unit.with_option("num_warps", warps).with_option("num_stages", stages).into(context.program)


def _tiles(unit: Unit) -> tuple[tuple[int, ...], ...]:
    """The tiles a unit may be given; none for other units."""
    if set(TILE) <= set(unit.constants):
        return PRODUCT_TILES
    return ATTENTION_TILES if list(unit.constants) == ["BLOCK_M", "BLOCK_N"] else ()
