"""Overrides: other values for the constants of a user's file, written into its text.

Three kinds of slot can be overridden: a module-level constant, by its name (`N = 4096`, also inside `a, b = 1, 2`); an
integer literal inside a module-level value, by its position (`shape[1]` in `shape = (batch, 3, 224)` is 224); and an integer
literal inside `get_inputs` or `get_init_inputs`, likewise (`get_inputs[2]` is the third one).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Iterator
from typing import Any

CALLERS = ("get_inputs", "get_init_inputs")

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def literal(node: ast.expr) -> Any:
    """Value of an expression of literals and arithmetic (`2048 * 2`). Raises ValueError when a name or a call is in it."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](literal(node.left), literal(node.right))
    if isinstance(node, (ast.Tuple, ast.List)):
        items = [literal(item) for item in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    return ast.literal_eval(node)


def constants(source: str) -> dict[str, Any]:
    """Slot → value of every overridable constant of the file, in file order. Raises SyntaxError."""
    found: dict[str, Any] = {}
    for name, node in _slots(ast.parse(source)):
        try:
            found[name] = literal(node)
        except (ValueError, TypeError, ArithmeticError):
            continue
    return found


def override(source: str, overrides: Iterable[tuple[str, Any]]) -> str:
    """The text with other values in the named slots; slots that the text does not have are skipped. Raises SyntaxError."""
    values = dict(overrides)
    if not values:
        return source
    lines = source.encode().splitlines(keepends=True)
    slots = [(node, values[name]) for name, node in _slots(ast.parse(source)) if name in values]
    for node, value in sorted(slots, key=lambda slot: (slot[0].lineno, slot[0].col_offset), reverse=True):
        assert node.end_lineno is not None and node.end_col_offset is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        text = lines[first][: node.col_offset] + repr(value).encode() + lines[last][node.end_col_offset :]
        # Blank lines keep the numbers of the lines below.
        lines[first : last + 1] = [text, *[b"\n"] * (last - first)]
    return b"".join(lines).decode()


def _slots(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = list(_pairs(node.targets[0], node.value))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = list(_pairs(node.target, node.value))
        yield from pairs
        for name, value in pairs:
            if not _is_number(value):
                yield from _numbered(name, value)
        if isinstance(node, ast.FunctionDef) and node.name in CALLERS:
            yield from _numbered(node.name, node)


def _is_number(value: ast.expr) -> bool:
    try:
        return isinstance(literal(value), (int, float))
    except (ValueError, TypeError, ArithmeticError):
        return False


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for name, item in zip(target.elts, value.elts, strict=True):
            yield from _pairs(name, item)


def _numbered(name: str, part: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    found = [node for node in ast.walk(part) if isinstance(node, ast.Constant) and type(node.value) is int]
    for position, number in enumerate(sorted(found, key=lambda node: (node.lineno, node.col_offset))):
        yield f"{name}[{position}]", number
