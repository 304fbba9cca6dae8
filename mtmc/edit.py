"""The gate that every edit passes, whoever wrote it: at most 20 changed code lines, inside its region, nothing banned."""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections import Counter
from functools import lru_cache

from mtmc.action import Action, Edit
from mtmc.actions.library_functions import library
from mtmc.banned import banned_uses, imports
from mtmc.errors import check
from mtmc.lower.splice import template, template_text
from mtmc.program import Program

LIMIT = 20
ALLOWED_IMPORTS = ("torch", "triton", "math")
FUNCTIONS = ("kernel", "launcher", "device")
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
ASSERTION = re.compile(r"tl\.(static|device)_assert\(|assert ")


def gate(before: Program, after: Program, action: Action) -> Edit:
    """The edit as a value. Raises Illegal when it breaks a rule of the gate."""
    try:
        tree = _tree(after.source)
    except (SyntaxError, ValueError) as error:
        check(False, f"the edit does not parse (line {getattr(error, 'lineno', None)}: {error})")
    brought = _brought(before, after)
    _check_outside(before, after, tree)
    _check_region(before, after, action, brought)
    _check_removed(before, after, tree)
    _check_banned(before, after)
    added, removed = _difference(before, after, brought)
    check(added + removed <= LIMIT, f"the edit changes {added + removed} lines; {LIMIT} are allowed")
    assertions = _assertions(after) - _assertions(before)
    return Edit(before, after, added, removed, tuple(assertions.elements()), brought)


@lru_cache(maxsize=16)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


@lru_cache(maxsize=16)
def _banned(source: str) -> Counter[str]:
    return banned_uses(_tree(source))


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


def _brought(before: Program, after: Program) -> tuple[str, ...]:
    """New functions whose text is that of the library: its device functions and the shared movement units."""
    known = {**{n: template_text("movement", n) for n in template("movement")}, **library()}
    new = [name for name in after.regions if name not in before.regions]
    return tuple(n for n in new if n in known and after.text(n).strip() == known[n].strip())


def _assertions(program: Program) -> Counter[str]:
    """Checks on the host and in kernels, as text."""
    nodes = [node for node in ast.walk(_tree(program.source)) if isinstance(node, (ast.Assert, ast.Expr))]
    return Counter(text for node in nodes if ASSERTION.match(text := ast.unparse(node)))


def _difference(before: Program, after: Program, brought: tuple[str, ...]) -> tuple[int, int]:
    """Lines added and removed over the functions and imports that differ.

    Library functions brought in whole and functions removed whole (which are dead: see `_check_removed`) do not count.
    """
    added, removed = (_file_imports(after) - _file_imports(before)).total(), 0
    for name in after.regions:
        old = before.text(name) if name in before.regions else ""
        if name in brought or old == after.text(name):
            continue
        a, b = code_lines(old), code_lines(after.text(name))
        for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if tag != "equal":
                removed += j - i
                added += m - k
    return added, removed


def _file_imports(program: Program) -> Counter[str]:
    body = [node for node in _tree(program.source).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return imports(ast.Module(list(body), []))


def _check_outside(before: Program, after: Program, tree: ast.Module) -> None:
    """Beside functions and classes, each defined once, only imports may be new: SIZES and CONFIG stay."""
    names = Counter(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    check(all(n == 1 for n in names.values()), f"{names.most_common(1)[0][0] if names else ''} is defined twice")
    old, new = _loose(_tree(before.source)), _loose(tree)
    check(old == new, "the edit touches statements outside functions")
    check(not _file_imports(before) - _file_imports(after), "the edit removes an import")


def _loose(tree: ast.Module) -> list[str]:
    """Top-level statements that are neither definitions nor imports nor the docstring."""
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return [ast.unparse(node) for node in body if not isinstance(node, kept)]


def _check_region(before: Program, after: Program, action: Action, brought: tuple[str, ...]) -> None:
    """Only the action's kernel, its launcher and the fast path may differ; for a `model` action every unit."""
    own = (f"{action.region}_kernel", f"launch_{action.region}")
    for name, region in after.regions.items():
        same = name in before.regions and before.text(name) == after.text(name)
        model = action.region == "model" and region.kind in (*FUNCTIONS, "forward")
        if same or model or name in own or name in brought:
            continue
        check(name == "ModelNew", f"the edit touches {name}, outside its region {action.region}")
        check(_guard(before) == _guard(after), f"the edit touches ModelNew outside kernels, its region is {action.region}")


def _guard(program: Program) -> str:
    """The class `ModelNew` without the body of its method `kernels`."""
    tree = ast.parse(program.text("ModelNew")) if "ModelNew" in program.regions else ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "kernels":
            node.body = []
    return ast.dump(tree)


def _check_removed(before: Program, after: Program, tree: ast.Module) -> None:
    """Only kernels, launchers and device functions that nothing uses any more may go."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name, region in before.regions.items():
        if name not in after.regions:
            check(region.kind in FUNCTIONS and name not in used, f"the edit removes {name}, which is still needed")


def _check_banned(before: Program, after: Program) -> None:
    """New imports come from torch, triton or math, and nothing banned is used more often than before."""
    for line in imports(_tree(after.source)) - imports(_tree(before.source)):
        check(line.split()[1].partition(".")[0] in ALLOWED_IMPORTS, f"{line} is not allowed")
    more = _banned(after.source) - _banned(before.source)
    check(not more, f"{min(more, key=len, default='')} is not allowed in a program")
