"""Functions of our own template library: brought into a program whole (they count no changed lines), dropped when dead."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from importlib.resources import files

from mtmc.errors import check
from mtmc.program import Program

FUNCTIONS = ("kernel", "launcher", "device")
SOURCES = ("ops", "dots", "partials")


@cache
def library() -> dict[str, str]:
    """Name -> text of every function that may be brought in."""
    found: dict[str, str] = {}
    for module in SOURCES:
        text = (files("mtmc.lower.templates") / f"{module}.py").read_text()
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                found[node.name] = "".join(lines[first - 1 : node.end_lineno])
    return found


def needs(name: str) -> list[str]:
    """A library function with those it uses, callees first."""
    found: list[str] = []

    def visit(function: str) -> None:
        for other in dict.fromkeys(re.findall(r"\b\w+\b", library()[function])):
            if other in library() and other != function and other not in found:
                visit(other)
        if function not in found:
            found.append(function)

    visit(name)
    return found


def with_library(program: Program, name: str, unit: str) -> Program:
    """The program with a library function (and what it needs) placed before a unit's kernel, unless it is there."""
    check(name in library(), f"{name} is not in the library; it holds {', '.join(sorted(library()))}")
    for function in needs(name):
        if function not in program.regions:
            program = program.insert_before(f"{unit}_kernel", library()[function])
    return program


def without_dead(program: Program) -> Program:
    """The program without units and library functions that nothing mentions any more."""
    mentions = _words(program.source)
    kept = {n: _words(program.text(n)) for n, region in program.regions.items() if region.kind in FUNCTIONS}
    gone: dict[str, str] = {}
    while dead := [name for name, own in kept.items() if mentions[name] == own[name]]:
        for name in dead:
            mentions.subtract(kept.pop(name))
            gone[name] = ""
    return program.replace_all(gone) if gone else program


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))
