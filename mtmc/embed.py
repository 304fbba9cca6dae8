"""Embed: the part of the user's file that the output file carries: the entry class and all it needs, imports included.

Left out are `get_inputs`, `get_init_inputs`, the `__main__` block, what only they use, and imports that nothing uses. Files
next to the user's file are inlined where `from mylayers import Block` names them.
"""

from __future__ import annotations

import ast
import symtable
import sys
from dataclasses import dataclass, field
from pathlib import Path

from mtmc.errors import BadInput
from mtmc.overrides import CALLERS, override
from mtmc.problem import Problem

PROVIDED = frozenset({"torch", "triton", "numpy"})  # third-party modules that the output file may always import
# Names of the output file's own parts: an equal one of the user's would be replaced by ours.
RESERVED = frozenset({"ModelNew", "SIZES", "CONFIG", "config", "supports", "triton", "tl", "libdevice"})


@dataclass
class _Parts:
    """What was collected so far: import lines and code in order, and the file that defines each name."""

    imports: dict[str, None] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    extras: dict[str, None] = field(default_factory=dict)
    done: dict[Path, frozenset[str]] = field(default_factory=dict)


def reference_source(problem: Problem) -> str:
    """Text that defines the entry class on its own. Raises BadInput for packages, `import mylayers` and name collisions."""
    parts = _collect(problem)
    future = [line for line in parts.imports if line.startswith("from __future__")]
    rest = [line for line in parts.imports if line not in future]
    head = "\n\n".join("\n".join(lines) for lines in (future, rest) if lines)
    return head + "\n\n\n" + "\n\n\n".join(parts.code) + "\n"


def extra_imports(problem: Problem) -> tuple[str, ...]:
    """Installed third-party modules that the embedded text imports, apart from torch, triton and numpy."""
    return tuple(_collect(problem).extras)


def _collect(problem: Problem) -> _Parts:
    parts = _Parts()
    _add(parts, Path(problem.path), override(problem.source, problem.overrides), frozenset({problem.entry}))
    if taken := RESERVED & parts.owners.keys():
        raise BadInput(f"{problem.path} uses the name {min(taken)}, which the output file needs for itself.")
    return parts


def _add(parts: _Parts, file: Path, source: str, wanted: frozenset[str]) -> None:
    """Add what `wanted` needs of one file; the files it imports from come first."""
    statements = _kept(ast.parse(source).body, wanted)
    code = []
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            code += _import(parts, file, statement)
            continue
        for name in _bound(statement):
            _own(parts, name, str(file))
        text = _text(source, statement)
        if text not in code[-1:]:  # two statements of one line
            code.append(text)
    if code:
        parts.code.append(_join(code))


def _import(parts: _Parts, file: Path, statement: ast.Import | ast.ImportFrom) -> list[str]:
    """Keep an import line, or inline the local file it names; returns lines that rename what was inlined."""
    if isinstance(statement, ast.ImportFrom) and statement.level:
        raise BadInput(f"{file} line {statement.lineno} imports from its own package; only single files can be embedded.")
    sources = statement.names if isinstance(statement, ast.Import) else [ast.alias(statement.module or "")]
    for source in sources:
        root = source.name.partition(".")[0]
        if (file.parent / root).is_dir() and any((file.parent / root).glob("*.py")):
            raise BadInput(f"{file} line {statement.lineno} imports the local package {root}; only files can be embedded.")
        local = file.parent / f"{root}.py"
        if local.is_file():
            return _inline(parts, file, local, statement)
        if root not in PROVIDED and root not in sys.stdlib_module_names:
            parts.extras[root] = None
    line = ast.unparse(statement)
    for name in _bound(statement):
        if name != "*":
            _own(parts, name, line)
    parts.imports[line] = None
    return []


def _inline(parts: _Parts, file: Path, local: Path, statement: ast.Import | ast.ImportFrom) -> list[str]:
    names = frozenset(alias.name for alias in statement.names)
    if isinstance(statement, ast.Import) or "*" in names:
        raise BadInput(f'{file} line {statement.lineno}: write "from {local.stem} import NAME" so that it can be embedded.')
    if not names <= parts.done.get(local, frozenset()):
        if local in parts.done:
            raise BadInput(f"{local} is imported from two places with different names; import them all in one statement.")
        parts.done[local] = names
        _add(parts, local, local.read_text(encoding="utf-8"), names)
    renamed = [alias for alias in statement.names if alias.asname and alias.asname != alias.name]
    for alias in renamed:
        _own(parts, str(alias.asname), str(file))
    return [f"{alias.asname} = {alias.name}" for alias in renamed]


def _own(parts: _Parts, name: str, owner: str) -> None:
    other = parts.owners.setdefault(name, owner)
    if other != owner:
        raise BadInput(f"The name {name} has two meanings, in {other} and in {owner}, so they cannot share one file.")


def _kept(body: list[ast.stmt], wanted: frozenset[str]) -> list[ast.stmt]:
    """The statements that the wanted names need, directly or not; statements with an effect of their own stay too."""
    candidates = _without_test_code(body)
    missing = wanted - {name for statement in candidates for name in _bound(statement)}
    if missing:
        raise BadInput(f"The name {min(missing)} is not defined at the top level of its file.")
    needed = set(wanted)
    kept: list[ast.stmt] = []
    while more := [statement for statement in candidates if statement not in kept and _is_needed(statement, needed)]:
        kept += more
        needed |= {name for statement in more for name in _used(statement)}
    return [statement for statement in candidates if statement in kept]


def _without_test_code(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements but for the docstring, the `__main__` block, the callers, and what is computed with the callers."""
    gone = set(CALLERS)
    kept = []
    for statement in body:
        definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        main = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        if docstring or main or gone & set(_bound(statement)) or (not definition and gone & _used(statement)):
            gone.update(_bound(statement))
        else:
            kept.append(statement)
    return kept


def _is_needed(statement: ast.stmt, needed: set[str]) -> bool:
    if isinstance(statement, ast.ImportFrom) and (statement.module == "__future__" or statement.names[0].name == "*"):
        return True
    names = _bound(statement)
    effect = not names or isinstance(statement, (ast.For, ast.While, ast.With))
    return effect or bool(needed & set(names))


def _bound(statement: ast.stmt) -> list[str]:
    """Names that a top-level statement defines; of compound statements, those in all their branches."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    inner = [name for block in blocks for item in block for name in _bound(item)]
    stores = [n.id for n in _own_expressions(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return list(dict.fromkeys(stores + inner))


def _own_expressions(statement: ast.stmt) -> list[ast.AST]:
    """Nodes of a statement's own expressions, not of the blocks inside it."""
    parts = [value for value in ast.iter_child_nodes(statement) if isinstance(value, (ast.expr, ast.withitem))]
    return [node for part in parts for node in ast.walk(part)]


def _used(statement: ast.stmt) -> set[str]:
    """Module-level names that a statement reads, in any scope inside it."""
    tables = [symtable.symtable(ast.unparse(statement), "statement", "exec")]
    names = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_referenced()}
    for table in tables:
        tables += table.get_children()
        names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names


def _text(source: str, statement: ast.stmt) -> str:
    """Whole lines of a statement, with its decorators and the comment lines right above it."""
    lines = source.splitlines()
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(line.rstrip() for line in lines[first : statement.end_lineno])


def _join(chunks: list[str]) -> str:
    """Chunks with two blank lines around functions and classes, and none between single lines."""
    text = chunks[0]
    for previous, chunk in zip(chunks, chunks[1:], strict=False):
        text += ("\n\n\n" if "\n" in previous or "\n" in chunk else "\n") + chunk
    return text
