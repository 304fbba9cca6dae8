"""Memory order: what a cache should keep, and what is aligned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.unit import Line, Unit, code, is_load, is_store, statement
from mtmc.errors import check
from mtmc.program import Program


class Eviction:
    """Loads and stores that are touched once tell the caches not to keep them."""

    kind = "eviction"
    family: Family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            text = code(unit.kernel)
            if "eviction_policy" not in text and "dot" not in text and "+ index, mask=mask)" in text:
                sentence = f"Mark the streamed loads and stores of {unit.name} as first to be evicted."
                yield Action(self.kind, self.family, unit.name, (), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        hint = ', eviction_policy="evict_first")'
        last = [i for i, t in enumerate(unit.lines) if "+ index, mask=mask)" in t and "= tl.load(" in t]
        position = -1

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            nonlocal position
            position += 1
            text = code(line)
            streamed = is_store(line) and "+ index" in text or is_load(line) and "+ index, mask=mask)" in text
            names = [t.partition(" = ")[0] for t in unit.lines[position + 1 :] if "= tl.load(" in t]
            again = text.partition(" = ")[0] in names  # a later pass reads it once more: keep it
            if not streamed or again or "eviction_policy" in text:
                return None
            return [statement(re.sub(r"mask=mask\)", f"mask=mask{hint}", text, count=1))]

        check(bool(last), "nothing is streamed")
        return unit.edit_lines(change).into(context.program)


class LoopOrder:
    """A reduction over a middle extent walks more rows, or more columns, of a tile of equal size."""

    kind = "tile_shape"
    family: Family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in units(context):
            sizes = unit.constants
            if list(sizes) == ["RED", "BLOCK"]:
                for red, block in ((sizes["RED"] * 2, sizes["BLOCK"] // 2), (sizes["RED"] // 2, sizes["BLOCK"] * 2)):
                    if red >= 1 and block >= 16:
                        sentence = (
                            f"Shape the tile of {unit.name} as {red} x {block} instead of {sizes['RED']} x {sizes['BLOCK']}."
                        )
                        yield Action(self.kind, self.family, unit.name, (("red", red), ("block", block)), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        check(list(unit.constants) == ["RED", "BLOCK"], "there is no tile of two extents")
        unit = unit.with_constant("RED", int(action["red"])).with_constant("BLOCK", int(action["block"]))
        return unit.into(context.program)
