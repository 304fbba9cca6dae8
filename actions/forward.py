"""The fast path as data: the statements of `ModelNew.kernels`, one call a line."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

from mtmc.errors import check
from mtmc.program import Program

INDENT = " " * 8


@dataclass(frozen=True)
class Call:
    """`targets = launcher(args)`; `line` counts from 0 inside the class text."""

    line: int
    targets: tuple[str, ...]
    launcher: str
    args: tuple[str, ...]

    @property
    def unit(self) -> str:
        return self.launcher.removeprefix("launch_")

    @property
    def text(self) -> str:
        return f"{INDENT}{', '.join(self.targets)} = {self.launcher}({', '.join(self.args)})\n"


@dataclass(frozen=True)
class View:
    """`target = source.view(…)`, or another name for it: the same elements in the same order."""

    line: int
    target: str
    source: str


@dataclass(frozen=True)
class Forward:
    """Lines of the class `ModelNew`, and the launcher calls and views in `kernels`."""

    lines: tuple[str, ...]
    calls: tuple[Call, ...]
    views: tuple[View, ...]
    first: int

    @staticmethod
    def of(program: Program) -> Forward:
        """Raises Illegal when the program has no `kernels` method."""
        check("ModelNew" in program.regions, "the program has no class ModelNew")
        return _parse(program.text("ModelNew"))

    def uses(self, name: str) -> int:
        """How often a variable is read in `kernels` (views included; keys of SIZES are no reads)."""
        body = "".join(self.lines[self.first :])
        reads = len(re.findall(rf'(?<!")\b{re.escape(name)}\b(?!\s*=[^=])', body))
        return reads - sum(name in c.targets and len(c.targets) > 1 for c in self.calls)

    def calls_reading(self, name: str) -> list[Call]:
        return [c for c in self.calls if name in c.args]

    def assigning(self, name: str) -> Call | None:
        return next((c for c in self.calls if name in c.targets), None)

    def followed(self, name: str) -> str:
        """The name under which a value is read at last, when nothing but views read it before."""
        while self.uses(name) == 1:
            view = next((v for v in self.views if v.source == name), None)
            if view is None:
                return name
            name = view.target
        return name

    def with_calls(self, changed: dict[int, Call | str | None]) -> str:
        """Class text with lines replaced by a call, by a statement's text, or (None) by nothing."""
        out = []
        for number, line in enumerate(self.lines):
            new = changed.get(number, line) if number in changed else line
            out.append(new.text if isinstance(new, Call) else "" if new is None else new)
        return "".join(out)


@lru_cache(maxsize=256)
def _parse(text: str) -> Forward:
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef)
    method = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "kernels"), None)
    check(method is not None, "the class ModelNew has no method kernels")
    assert method is not None
    calls = [c for s in method.body if (c := _call(s)) is not None]
    views = [v for s in method.body if (v := _view(s)) is not None]
    return Forward(tuple(text.splitlines(keepends=True)), tuple(calls), tuple(views), method.lineno - 1)


SAME_ORDER = ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")


def _view(statement: ast.stmt) -> View | None:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return None
    value, target = statement.value, statement.targets[0].id
    if isinstance(value, ast.Name):
        return View(statement.lineno - 1, target, value.id)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME_ORDER:
        source = value.func.value
        return View(statement.lineno - 1, target, source.id) if isinstance(source, ast.Name) else None
    return None


def _call(statement: ast.stmt) -> Call | None:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return None
    func, target = statement.value.func, statement.targets[0]
    if not (isinstance(func, ast.Name) and func.id.startswith("launch_")) or statement.value.keywords:
        return None
    names = [target] if isinstance(target, ast.Name) else target.elts if isinstance(target, ast.Tuple) else []
    targets = tuple(n.id for n in names if isinstance(n, ast.Name))
    args = tuple(ast.unparse(a).replace("'", '"') for a in statement.value.args)
    return Call(statement.lineno - 1, targets, func.id, args)
