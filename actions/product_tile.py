"""product_tile: tile, warps and stages of a product set together, to values that feed a matrix unit well."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import PRODUCT_TILES
from mtmc.actions.product import TILE
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program


class ProductTile(Rule):
    """Legal for matrix products; proposed on GPUs whose matrix units Triton reaches."""

    kind = "product_tile"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if context.profile.tensor_cores_in_triton else ():
            if set(TILE) <= set(unit.constants):
                for number, (m, n, k, warps, stages) in enumerate(PRODUCT_TILES):
                    sentence = f"Give {unit.name} a tile of {m} x {n} x {k}, {warps} warps and {stages} stages."
                    yield self.action(unit.name, sentence, tile=number)

    def apply(self, context: Context, action: Action) -> Program:
        unit, number = Unit.of(context.program, action.region), int(action["tile"])
        check(set(TILE) <= set(unit.constants), "not a product of matrices")
        check(0 <= number < len(PRODUCT_TILES), f"there are {len(PRODUCT_TILES)} tiles")
        *sizes, warps, stages = PRODUCT_TILES[number]
        for name, size in reversed([*zip(TILE, sizes, strict=True)]):
            unit = unit.with_tile(name, size)
        return unit.with_option("num_warps", warps).with_option("num_stages", stages).into(context.program)
