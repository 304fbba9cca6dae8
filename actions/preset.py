"""Tiles that are known to feed a GPU's matrix units well, set in one step instead of one constant at a time."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.knobs import PRODUCT_TILES
from mtmc.actions.unit import Unit
from mtmc.errors import check
from mtmc.program import Program

NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K")


class ProductTile:
    """Tile, warps and stages of a product together."""

    kind = "product_tile"
    family: Family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            if not context.profile.tensor_cores_in_triton or set(NAMES) - set(unit.constants):
                continue
            for number, (m, n, k, warps, stages) in enumerate(PRODUCT_TILES):
                sentence = f"Give {unit.name} a tile of {m} x {n} x {k}, {warps} warps and {stages} stages."
                yield Action(self.kind, self.family, unit.name, (("tile", number),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit, number = Unit.of(context.program, action.region), int(action["tile"])
        check(not set(NAMES) - set(unit.constants), "not a product of matrices")
        check(0 <= number < len(PRODUCT_TILES), f"there are {len(PRODUCT_TILES)} tiles")
        *sizes, warps, stages = PRODUCT_TILES[number]
        for name, size in zip(NAMES, sizes, strict=True):
            unit = unit.with_constant(name, size)
        return unit.with_option("num_warps", warps).with_option("num_stages", stages).into(context.program)
