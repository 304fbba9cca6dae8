"""Small questions about syntax trees that know nothing of a candidate."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef


def dump(node: ast.AST | Iterable[ast.AST]) -> str:
    """Text of a syntax tree, positions left out."""
    return ast.dump(node) if isinstance(node, ast.AST) else "\n".join(ast.dump(n) for n in node)


def code(body: list[ast.stmt]) -> list[ast.stmt]:
    """A body without its docstring."""
    first = body[0] if body else None
    docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if docstring else body


def is_main(node: ast.stmt) -> bool:
    """Whether a statement is the block that runs only when the file is started as a program."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test)


def root_of(node: ast.AST) -> ast.Name | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
    elif isinstance(node, ast.Call):  # importlib.import_module("os")
        yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value)


def hidden_names(tree: ast.Module) -> dict[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        node, hidden = waiting.pop()
        if isinstance(node, (Function, ast.Lambda)):
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
            hidden |= {one.arg for one in every if one is not None}
        if hidden and isinstance(node, ast.Name):
            found[id(node)] = hidden
        waiting += [(child, hidden) for child in ast.iter_child_nodes(node)]
    return found


def collect(body: Iterable[ast.stmt], prefix: str, found: dict[str, Function]) -> None:
    for node in body:
        if isinstance(node, (Function, ast.ClassDef)):
            if isinstance(node, Function):
                found[prefix + node.name] = node
            collect(node.body, f"{prefix}{node.name}.", found)
        else:
            for part in ("body", "orelse", "finalbody"):
                collect(getattr(node, part, []), prefix, found)
            for handler in getattr(node, "handlers", []):
                collect(handler.body, prefix, found)
