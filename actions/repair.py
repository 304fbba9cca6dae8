"""What the repairs share: which tiles can shrink."""

from __future__ import annotations

from mtmc.actions.knobs import COUNTS, WARPS
from mtmc.actions.unit import Unit
from mtmc.errors import check

SMALLEST = 16  # a dot takes no smaller tile


def largest(unit: Unit) -> list[str]:
    """Tile constants that can be halved, the largest first."""
    sizes = {k: v for k, v in unit.constants.items() if k not in COUNTS and v > SMALLEST}
    return sorted(sizes, key=lambda k: -sizes[k])


def lessened(unit: Unit, what: str) -> Unit:
    """One stage less, twice the warps, or half the named tile constant. Raises Illegal at the end of its domain."""
    if what == "num_stages":
        check(unit.option(what) > 1, "there is one stage only")
        return unit.with_option(what, unit.option(what) - 1)
    if what == "num_warps":
        check(unit.option(what) * 2 in WARPS, f"there are {WARPS.high} warps already")
        return unit.with_option(what, unit.option(what) * 2)
    check(unit.constants.get(what, 0) > SMALLEST, f"{what} cannot be halved")
    return unit.with_tile(what, unit.constants[what] // 2)
