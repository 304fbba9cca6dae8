"""Program: the source text of one candidate, and the spans (Regions) that rules edit.

A program file has five parts, in order: imports, the embedded reference, device functions from the library, *units*
(a kernel `NAME_kernel` with its launcher `launch_NAME`), and `SIZES`, `CONFIG`, `supports`, `ModelNew`. The file is
the only truth: nothing about a program is stored beside it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class Region:
    """A named span of a Program: `kind` is `kernel`, `launcher`, `device`, `forward` or `other`; lines count from 1."""

    name: str
    kind: str
    first_line: int
    last_line: int


class _Strip(ast.NodeTransformer):
    """Removes docstrings, so that prose does not change a program's identity."""

    def visit_body(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_Module = visit_ClassDef = visit_FunctionDef = visit_body


def canonical_key(source: str) -> str:
    """Hash (16 hex digits) of the source's AST without comments, docstrings and layout. Raises SyntaxError."""
    tree = _Strip().visit(ast.parse(source))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Program:
    """One candidate. Two programs are the same when their canonical ASTs are."""

    source: str

    @cached_property
    def key(self) -> str:
        """Identity: hash of the canonical AST. Text that does not parse is hashed as it is."""
        try:
            return canonical_key(self.source)
        except SyntaxError:
            return "x" + hashlib.sha256(self.source.encode()).hexdigest()[:15]

    @cached_property
    def regions(self) -> dict[str, Region]:
        """Top-level functions and classes by name, in file order. Raises SyntaxError."""
        found = {}
        for node in parsed(self.source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                assert node.end_lineno is not None
                found[node.name] = Region(node.name, _kind(node), first, node.end_lineno)
        return found

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.splitlines(keepends=True)

    def text(self, region: str) -> str:
        """Source text of a top-level function or class, decorators included. Raises KeyError."""
        span = self.regions[region]
        return "".join(self._lines[span.first_line - 1 : span.last_line])

    def replace(self, region: str, text: str) -> Program:
        """The program with one region's text replaced; an empty text removes it with the blank lines after it."""
        return self.replace_all({region: text})

    def replace_all(self, texts: Mapping[str, str]) -> Program:
        """The program with several regions' texts replaced at once, as `replace` does."""
        lines = list(self._lines)
        for span in sorted((self.regions[region] for region in texts), key=lambda span: -span.first_line):
            text, last = texts[span.name], span.last_line
            while not text and last < len(lines) and not lines[last].strip():
                last += 1
            lines[span.first_line - 1 : last] = [text if text.endswith("\n") or not text else text + "\n"]
        return Program("".join(lines))

    def insert_before(self, region: str, text: str) -> Program:
        """The program with `text` and two blank lines placed before a region."""
        first = self.regions[region].first_line - 1
        return Program("".join([*self._lines[:first], text.rstrip("\n") + "\n\n\n", *self._lines[first:]]))

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the units: every launcher `launch_NAME`, in file order."""
        return tuple(n.removeprefix("launch_") for n, r in self.regions.items() if r.kind == "launcher")

    @property
    def fallback_calls(self) -> tuple[str, ...]:
        """The PyTorch operators the fast path calls, one entry a call (views cost nothing and are not listed)."""
        body = self.text("ModelNew") if "ModelNew" in self.regions else ""
        return tuple(re.findall(r"torch\.ops\.(aten\.\w+\.\w+)\(", body))


@lru_cache(maxsize=4)  # a program and the children looked at last: trees are large
def parsed(source: str) -> ast.Module:
    """The syntax tree of a program, which is only to be read. Raises SyntaxError."""
    return ast.parse(source)


def _kind(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return "forward" if node.name == "ModelNew" else "other"
    if node.name.startswith("launch_"):
        return "launcher"
    if any("jit" in ast.unparse(d) for d in node.decorator_list):
        return "kernel" if node.name.endswith("_kernel") else "device"
    return "other"
