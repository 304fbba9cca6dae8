"""eviction: loads and stores that are touched once tell the caches not to keep them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.unit import Line, Unit, code, is_load, is_store, statement, target
from mtmc.errors import check
from mtmc.program import Program

STREAMED = "+ index, mask=mask)"
HINT = ', eviction_policy="evict_first")'


class Eviction(Rule):
    """Legal where a load goes over the tensor row-major; a load that a later pass repeats is left as it is."""

    kind = "eviction"
    family = "reorder"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            if STREAMED in unit.text and "eviction_policy" not in unit.text and "dot" not in unit.text:
                yield self.action(unit.name, f"Mark the streamed loads and stores of {unit.name} as first to be evicted.")

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        check(any(STREAMED in line and "= tl.load(" in line for line in unit.lines), "nothing is streamed")
        left = Counter(target(line) for line in unit.lines if "= tl.load(" in line)

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            text = code(line)
            left[target(text)] -= 1
            streamed = is_store(line) and "+ index" in text or is_load(line) and STREAMED in text
            if not streamed or left[target(text)] > 0 or "eviction_policy" in text:
                return None
            return [statement(re.sub(r"mask=mask\)", f"mask=mask{HINT}", text, count=1))]

        return unit.edit_lines(change).into(context.program)
