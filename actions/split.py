"""What the two splits share: a unit launched SPLIT times over, whose parts a library function joins in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from mtmc.actions.unit import Line, Unit, code, power_of_two, statement


def with_parts(unit: Unit, parts: int, partials: dict[str, tuple[str, str]], joined: str) -> Unit:
    """The unit with a compile-time SPLIT, the launch grid's second dimension.

    `partials` maps each output to the name and allocation of its parts, which the kernel stores instead; `joined` is the
    expression that the launcher returns.
    """
    unit = unit.with_constexpr("SPLIT", parts)
    unit = unit.with_body([statement(power_of_two("SPLIT")), *unit.body])

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        text = code(line)
        if text.startswith("grid = "):
            return [*(statement(f"{name} = {made}") for name, made in partials.values()), _grid(text)]
        return [statement(f"return {joined}")] if text.startswith("return ") else None

    unit = unit.edit_launcher(change)
    return unit.with_arguments({output: [name] for output, (name, _) in partials.items()})


def _grid(text: str) -> Line:
    """`grid = (n,)` with the parts as its second dimension."""
    grid = cst.parse_expression(text.removeprefix("grid = "))
    assert isinstance(grid, cst.Tuple) and len(grid.elements) == 1
    return statement(f"grid = ({code(grid.elements[0].value)}, SPLIT)")
