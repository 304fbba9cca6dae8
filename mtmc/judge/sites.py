"""A Triton program as text and tree: its functions, and which of their expressions compute addresses and which values.

Names that hold addresses (what a pointer, a mask or a loop bound is made of) are told from values by following assignments
back from the loads and stores.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

ACCESS = {"load": 1, "store": 2, "atomic_add": 2, "atomic_max": 2, "atomic_min": 2}  # call → position of its mask
ADDRESSING = ("arange", "program_id", "num_programs", "cdiv", "zeros", "full", "static_assert", "device_assert")
COMPENSATION = frozenset(("lost", "rest"))


@dataclass(frozen=True)
class Change:
    """Bytes `start:end` of the source become `text`; `line` counts from 1, `what` says it in a sentence."""

    start: int
    end: int
    text: str
    line: int
    what: str


@dataclass(frozen=True)
class Function:
    """A function that takes part: `role` is `kernel`, `device` (jitted, no access) or `host` (it launches a kernel)."""

    node: ast.FunctionDef
    role: str
    addresses: frozenset[str]
    of_addresses: bool = False  # a device function whose results are addresses


@dataclass(frozen=True)
class Code:
    """The program as text and tree. Raises SyntaxError when it does not parse."""

    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.source.encode().splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def change(self, node: ast.expr | ast.stmt, text: str, what: str) -> Change:
        """Another text in a node's place."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return Change(start, self._starts[node.end_lineno - 1] + node.end_col_offset, text, node.lineno, what)

    def after(self, node: ast.stmt, text: str, what: str) -> Change:
        """One more statement after one."""
        made = self.change(node, f"\n{' ' * node.col_offset}{text}", what)
        return Change(made.end, made.end, made.text, made.line, what)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Jitted functions, and those that launch one, in file order."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        jitted = {node.name: _addresses(node) for node in found if any("jit" in ast.unparse(d) for d in node.decorator_list)}
        used = {name for node in found if node.name in jitted for name in _called_for(node, jitted[node.name])}
        made = []
        for node in found:
            if node.name in jitted:
                role = "kernel" if any(accesses(node)) else "device"
                made.append(Function(node, role, jitted[node.name], node.name in used))
            elif any(launches(node)):
                made.append(Function(node, "host", frozenset()))
        return tuple(made)

    def jitted(self) -> Iterator[Function]:
        return (f for f in self.functions if f.role != "host")

    def hosts(self) -> Iterator[Function]:
        return (f for f in self.functions if f.role == "host")


# Looking around -----------------------------------------------------------------------------------------------------------


def called(node: ast.AST) -> str:
    """Last part of the name of what a call calls; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def names(node: ast.AST | None) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()


def accesses(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call) and called(n) in ACCESS and n.args)


def launches(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript))


def mask_of(call: ast.Call) -> ast.expr | None:
    place = ACCESS[called(call)]
    found = [keyword.value for keyword in call.keywords if keyword.arg == "mask"]
    return found[0] if found else call.args[place] if len(call.args) > place else None


def assignments(node: ast.AST) -> Iterator[tuple[set[str], ast.stmt, ast.expr]]:
    for n in ast.walk(node):
        if isinstance(n, ast.Assign):
            yield set().union(*(names(target) for target in n.targets)), n, n.value
        elif isinstance(n, (ast.AugAssign, ast.AnnAssign)) and n.value is not None:
            yield names(n.target), n, n.value


def _addresses(function: ast.FunctionDef) -> frozenset[str]:
    """Names that pointers, masks and loop bounds are made of."""
    found: set[str] = set()
    for call in accesses(function):
        found |= names(call.args[0]) | names(mask_of(call))
    for node in ast.walk(function):
        if isinstance(node, ast.For):
            found |= names(node.iter) | names(node.target)
    before = -1
    while len(found) > before:
        before = len(found)
        for targets, _, value in assignments(function):
            if targets & found:
                found |= names(value)
    return frozenset(found - {"tl", "triton"})


def _called_for(function: ast.FunctionDef, addresses: frozenset[str]) -> Iterator[str]:
    """Functions whose results are addresses."""
    for targets, _, value in assignments(function):
        if targets & addresses:
            yield from (called(n) for n in ast.walk(value))


def values(function: Function) -> Iterator[ast.expr]:
    """Expressions that compute values, as against addresses: assigned, stored or returned."""
    for targets, _, value in assignments(function.node):
        if not targets & function.addresses and not targets <= COMPENSATION:
            yield from _inside(value)
    for call in accesses(function.node):
        if called(call) != "load" and len(call.args) > 1:
            yield from _inside(call.args[1])
    for node in ast.walk(function.node):
        if isinstance(node, ast.Return) and node.value and not function.of_addresses:
            yield from _inside(node.value)


def _inside(node: ast.expr) -> Iterator[ast.expr]:
    """The expression and those in it; of one that compensates, only the arguments of its call that do not."""
    if names(node) & COMPENSATION:
        parts = (
            node.elts
            if isinstance(node, ast.Tuple)
            else node.args
            if isinstance(node, ast.Call) and called(node) not in ("", "where")
            else []
        )
        for part in parts:
            yield from _inside(part)
        return
    yield node
    if called(node) in ACCESS or called(node) in ADDRESSING:
        return
    children = [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
    for child in children:
        if isinstance(child, ast.expr):
            yield from _inside(child)


def addressing(function: Function) -> Iterator[ast.expr]:
    """Expressions that compute addresses and masks."""
    for targets, _, value in assignments(function.node):
        if targets & function.addresses and "load" not in {called(n) for n in ast.walk(value)}:
            yield from (n for n in ast.walk(value) if isinstance(n, ast.expr))
    for call in accesses(function.node):
        for part in (call.args[0], mask_of(call)):
            yield from (n for n in (ast.walk(part) if part else ()) if isinstance(n, ast.expr))
    if function.of_addresses:
        yield from (n for n in ast.walk(function.node) if isinstance(n, ast.expr))


def short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
