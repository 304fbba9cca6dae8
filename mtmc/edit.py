"""The gate that every edit passes, whoever wrote it: at most 20 changed code lines, inside its region, nothing banned."""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from mtmc.action import Action, Edit
from mtmc.actions.library_functions import FUNCTIONS, library
from mtmc.banned import banned_uses, imports
from mtmc.errors import check
from mtmc.lower.splice import template, template_text
from mtmc.program import Program, parsed

LIMIT = 20
ALLOWED_IMPORTS = ("torch", "triton", "math")
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
CALL = re.compile(r"[\w, ()]+ = (launch_\w+) \(")  # a line of code as `code_lines` gives it
ASSERTION = re.compile(r"tl\.(static|device)_assert\(|assert ")


def gate(before: Program, after: Program, action: Action) -> Edit:
    """The edit as a value. Raises Illegal when it breaks a rule of the gate."""
    try:
        parsed(after.source)
    except (SyntaxError, ValueError) as error:
        check(False, f"the edit does not parse (line {getattr(error, 'lineno', None)}: {error})")
    _check_outside(before, after)
    brought = _brought(before, after)
    touched = [n for n in after.regions if n not in brought and after.text(n) != _text(before, n)]
    _check_region(before, after, action, touched)
    _check_removed(before, after)
    old, new = _scope(before.source, tuple(touched)), _scope(after.source, tuple(touched))
    _check_banned(old, new)
    added, removed = _difference(before, after, touched)
    added += (_imports_of_file(after.source) - _imports_of_file(before.source)).total()
    check(added + removed <= LIMIT, f"the edit changes {added + removed} lines; {LIMIT} are allowed")
    assertions = tuple((new.assertions - old.assertions).elements())
    return Edit(before, after, added, removed, assertions, brought)


def code_lines(source: str) -> list[str]:
    """Statements as tokens joined by blanks: comments, blank lines, spacing, line breaks and indentation do not count."""
    lines: list[str] = []
    current: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE or token.string == ";":
            lines.append(" ".join(current))
            current = []
        elif token.type not in LAYOUT:
            current.append(token.string)
    return [line for line in [*lines, " ".join(current)] if line]


def _text(program: Program, name: str) -> str:
    return program.text(name) if name in program.regions else ""


def _brought(before: Program, after: Program) -> tuple[str, ...]:
    """New functions whose text is that of the library: its device functions and the shared movement units."""
    known = {**{n: template_text("movement", n) for n in template("movement")}, **library()}
    new = [name for name in after.regions if name not in before.regions]
    return tuple(n for n in new if n in known and after.text(n).strip() == known[n].strip())


@dataclass(frozen=True)
class _Scope:
    """What an edit may have changed: imports, banned uses, and checks on the host and in kernels, each with how often."""

    imports: Counter[str]
    banned: Counter[str]
    assertions: Counter[str]


@lru_cache(maxsize=256)  # many edits of one program are tried
def _scope(source: str, touched: tuple[str, ...]) -> _Scope:
    """Of the functions touched, the file's imports, and its names for other names."""
    nodes: list[ast.stmt] = [
        node
        for node in parsed(source).body
        if (isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in touched)
        or isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)))
    ]
    tree = ast.Module(nodes, [])
    checks = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Assert, ast.Expr))]
    return _Scope(imports(tree), banned_uses(tree), Counter(filter(ASSERTION.match, checks)))


@lru_cache(maxsize=256)
def _imports_of_file(source: str) -> Counter[str]:
    body = [node for node in parsed(source).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return imports(ast.Module(list(body), []))


def _difference(before: Program, after: Program, touched: list[str]) -> tuple[int, int]:
    """Lines added and removed in the functions touched; calls of one unit that change alike count once.

    Library functions brought in whole and functions removed whole (which are dead: see `_check_removed`) do not count.
    """
    added = removed = 0
    for name in touched:
        a, b = code_lines(_text(before, name)), code_lines(after.text(name))
        old, new = list[str](), list[str]()
        for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if tag != "equal":
                old += a[i:j]
                new += b[k:m]
        removed += _distinct(old)
        added += _distinct(new)
    return added, removed


def _distinct(lines: list[str]) -> int:
    """How many lines, calls of one launcher as one."""
    launchers = [match[1] for line in lines if (match := CALL.match(line))]
    return len(lines) - len(launchers) + len(set(launchers))


def _check_outside(before: Program, after: Program) -> None:
    """Beside functions and classes, each defined once, only imports may be new: SIZES and CONFIG stay."""
    body = parsed(after.source).body
    names = Counter(node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    twice = [name for name, times in names.items() if times > 1]
    check(not twice, f"{', '.join(twice)} is defined twice")
    check(_loose(before.source) == _loose(after.source), "the edit touches statements outside functions")
    check(not _imports_of_file(before.source) - _imports_of_file(after.source), "the edit removes an import")


@lru_cache(maxsize=256)
def _loose(source: str) -> list[str]:
    """Text of the top-level statements that are neither definitions nor imports nor the docstring."""
    tree, lines = parsed(source), source.splitlines()
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    defined = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return ["\n".join(lines[n.lineno - 1 : n.end_lineno]) for n in body if not isinstance(n, defined)]


def _check_region(before: Program, after: Program, action: Action, touched: list[str]) -> None:
    """Only the action's kernel, its launcher and the fast path may differ; for a `model` action every unit."""
    own = (f"{action.region}_kernel", f"launch_{action.region}")
    for name in touched:
        model = action.region == "model" and after.regions[name].kind in (*FUNCTIONS, "forward")
        if model or name in own:
            continue
        check(name == "ModelNew", f"the edit touches {name}, outside its region {action.region}")
        check(_guard(before) == _guard(after), f"the edit touches ModelNew outside kernels, its region is {action.region}")


def _guard(program: Program) -> str:
    """The class `ModelNew` without the body of its method `kernels`."""
    tree = ast.parse(_text(program, "ModelNew"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "kernels":
            node.body = []
    return ast.dump(tree)


def _check_removed(before: Program, after: Program) -> None:
    """Only kernels, launchers and device functions that nothing mentions any more may go."""
    for name, region in before.regions.items():
        if name not in after.regions:
            dead = region.kind in FUNCTIONS and not re.search(rf"\b{name}\b", after.source)
            check(dead, f"the edit removes {name}, which is still needed")


def _check_banned(old: _Scope, new: _Scope) -> None:
    """New imports come from torch, triton or math, and nothing banned is used more often than before."""
    for line in new.imports - old.imports:
        check(line.split()[1].partition(".")[0] in ALLOWED_IMPORTS, f"{line} is not allowed")
    more = new.banned - old.banned
    check(not more, f"{min(more, key=len, default='')} is not allowed in a program")
