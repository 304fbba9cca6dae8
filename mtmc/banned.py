"""What no edit may bring into a program: other compilers, code from text, other processes, global switches, private doors.

Uses are found in the syntax tree, under whatever name they go there: `import torch as t; t.compile`, `from torch import
compile as c`, `c = torch.compile` are all `torch.compile`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

BANNED = (
    "torch.compile",
    "torch.compiler",
    "torch.jit",
    "torch.fx",
    "torch.export",
    "torch.utils",
    "torch.library",
    "torch.hub",
    "torch.load",
    "torch.package",
    "torch.backends",
    "torch.multiprocessing",
    "torch.distributed",
    "torch.overrides",
    "torch.ops.load_library",
    "torch.classes",
    "torch.set_float32_matmul_precision",
    "torch.set_default_dtype",
    "torch.set_default_device",
    "torch.use_deterministic_algorithms",
    "triton.runtime",
    "triton.backends",
    "triton.compiler",
    "triton.compile",
    "triton.knobs",
    "triton.testing",
)
BUILTINS = (
    "eval", "exec", "compile", "__import__", "open", "breakpoint",
    "getattr", "setattr", "delattr", "vars", "globals", "locals",
)  # fmt: skip
MODULES = (
    "os", "sys", "subprocess", "ctypes", "importlib", "inspect", "builtins", "socket", "threading", "multiprocessing", "gc",
)  # fmt: skip
WATCHED = ("torch", "triton", *MODULES, *BUILTINS)


def imports(tree: ast.Module) -> Counter[str]:
    """Import statements anywhere in a program, one imported name each, as text."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(ast.unparse(ast.Import([name])) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(ast.unparse(ast.ImportFrom(node.module, [name], node.level)) for name in node.names)
    return found


def banned_uses(tree: ast.Module) -> Counter[str]:
    """Banned things a program uses, by full name, with how often."""
    return Counter(name for name in _uses(tree) if _is_banned(name))


def _is_banned(name: str) -> bool:
    root, *parts = name.split(".")
    if not parts:
        return root in BUILTINS
    private = any(
        part.startswith("_") and (root != "self" or part.startswith("__")) and part != "__init__" for part in parts
    )
    doors = root in ("torch", "triton", "?") and bool({"*", *MODULES} & set(parts))
    listed = any(f"{name}.".startswith(f"{banned}.") for banned in BANNED)
    return root in MODULES or "compile" in parts or private or doors or listed


def _uses(tree: ast.Module) -> Iterator[str]:
    """Full names of everything a program imports, reads or takes an attribute of; `?.name` where the owner has no name."""
    known = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield _full(node, known)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield known.get(node.id, node.id)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def _full(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_full(node.value, known)}.{node.attr}"
    return known.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Local name -> full name, of imports and of plain assignments of names (`t = torch`), wherever they stand."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {name.asname: name.name for name in node.names if name.asname}
        elif isinstance(node, ast.ImportFrom):
            known |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    given = [pair for node in ast.walk(tree) for pair in _given(node)]
    for _ in given:  # a name may be handed on as often as there are assignments
        found = {name: full for name, value in given if _root(full := _full(value, known)) in WATCHED}
        if known.items() >= found.items():
            break
        known |= found
    return known


def _root(name: str) -> str:
    return name.partition(".")[0]


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement or expression gives to names and attributes."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _matched(target, node.value)
    elif isinstance(node, (ast.NamedExpr, ast.AnnAssign)) and node.value:
        yield from _matched(node.target, node.value)


def _matched(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _matched(one, other)
    elif isinstance(target, ast.Name) and isinstance(value, (ast.Name, ast.Attribute)):
        yield target.id, value
