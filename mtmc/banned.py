"""What no edit may bring into a program: other compilers, code from text, other processes, global switches, private doors.

Uses are found in the syntax tree, under whatever name they go there: `import torch as t; t.compile`, `from torch import
compile as c`, `c = torch.compile` are all `torch.compile`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator

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
    known = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield full_name(node, known)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield known.get(node.id, node.id)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def full_name(node: ast.AST, known: dict[str, str]) -> str:
    """Full name of an expression, as far as it has one; a part without a name is `?`.

    Attributes asked for by a string (`getattr(torch, "com" + "pile")`, `vars(torch)["compile"]`) have their plain name.
    """
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, known)}.{node.attr}"
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Subscript):
        return _item(node, known)
    return _call(node, known) if isinstance(node, ast.Call) and not node.keywords else "?"


def _item(node: ast.Subscript, known: dict[str, str]) -> str:
    """`sys.modules["torch"]`, `vars(torch)["compile"]`, `globals()["torch"]`; `?` for any other item."""
    key = text(node.slice)
    if key is None:
        return "?"
    owner = node.value
    if isinstance(owner, ast.Attribute):
        if full_name(owner, known) == "sys.modules":
            return key
        return f"{full_name(owner.value, known)}.{key}" if owner.attr == "__dict__" else "?"
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name):
        if owner.func.id == "vars" and len(owner.args) == 1:
            return f"{full_name(owner.args[0], known)}.{key}"
        return known.get(key, key) if owner.func.id == "globals" else "?"
    return "?"


def _call(node: ast.Call, known: dict[str, str]) -> str:
    """What `getattr(owner, "name")`, `__import__("name")` and `importlib.import_module("name")` give."""
    function, arguments = full_name(node.func, known), node.args
    if function == "getattr" and len(arguments) >= 2 and (name := text(arguments[1])) is not None:
        return f"{full_name(arguments[0], known)}.{name}"
    if function in ("__import__", "importlib.import_module", "importlib.__import__") and arguments:
        return text(arguments[0]) or "?"
    return "?"


def text(node: ast.expr) -> str | None:
    """The string that an expression of literals is, or None: `"a" + "b"`, `f"a{'b'}"`, `"".join(["a"])`, `"ba"[::-1]`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([node.left, node.right])
    if isinstance(node, ast.JoinedStr):
        return _joined([v.value if isinstance(v, ast.FormattedValue) else v for v in node.values])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
        parts, between = node.args[0], text(node.func.value)
        return _joined(parts.elts, between) if isinstance(parts, (ast.List, ast.Tuple)) and between is not None else None
    backwards = isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "::-1"
    return whole[::-1] if backwards and (whole := text(node.value)) is not None else None  # type: ignore[attr-defined]


def _joined(parts: list[ast.expr], between: str = "") -> str | None:
    found = [text(part) for part in parts]
    return None if None in found else between.join(str(part) for part in found)


def aliases(tree: ast.Module, watched: Collection[str] = WATCHED) -> dict[str, str]:
    """Local name -> full name, of imports and of plain assignments of names (`t = torch`), wherever they stand.

    Assignments count when what they give begins with a name of `watched`.
    """
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {name.asname: name.name for name in node.names if name.asname}
        elif isinstance(node, ast.ImportFrom):
            known |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    given = [pair for node in ast.walk(tree) for pair in _given(node)]
    for _ in given:  # a name may be handed on as often as there are assignments
        found = {name: full for name, value in given if _root(full := full_name(value, known)) in watched}
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
    elif isinstance(target, ast.Name) and isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        yield target.id, value
