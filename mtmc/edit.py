"""The gate that every edit passes, whoever wrote it: at most 20 changed code lines, inside its region, nothing banned."""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize

from mtmc.action import Action, Edit
from mtmc.actions.library import library
from mtmc.errors import check
from mtmc.lower.splice import template, template_text
from mtmc.program import Program

LIMIT = 20
ALLOWED_IMPORTS = ("torch", "triton", "math")
BANNED = (
    "torch.compile",
    "torch._inductor",
    "torch._dynamo",
    "torch.jit",
    "eval(",
    "exec(",
    "subprocess",
    "os.system",
    "ctypes",
)
IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)


def code_lines(source: str) -> list[str]:
    """Logical lines as tokens joined by blanks: comments, blank lines, spacing and indentation do not count."""
    lines: list[str] = []
    current: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            lines.append(" ".join(current))
            current = []
        elif token.type not in IGNORED:
            current.append(token.string)
    return [*lines, *([" ".join(current)] if current else [])]


def _brought(before: Program, after: Program) -> tuple[str, ...]:
    """New functions whose text is that of the library."""
    new = [n for n in after.regions if n not in before.regions]
    return tuple(n for n in new if n in _known() and after.text(n).strip() == _known()[n].strip())


def _known() -> dict[str, str]:
    """Functions that may come in whole: the device library and the shared movement units."""
    return {**{n: template_text("movement", n) for n in template("movement")}, **library()}


def _without(program: Program, names: set[str]) -> str:
    for name in names:
        if name in program.regions:
            program = program.replace(name, "")
    return program.source


def gate(before: Program, after: Program, action: Action) -> Edit:
    """The edit as a value. Raises Illegal when it breaks a rule of the gate."""
    try:
        ast.parse(after.source)
    except SyntaxError as error:
        check(False, f"the edit does not parse (line {error.lineno}: {error.msg})")
    brought = _brought(before, after)
    dead = {n for n in before.regions if n not in after.regions}
    _check_region(before, after, action, {*brought, *dead})
    _check_imports(before, after)
    old, new = code_lines(_without(before, dead)), code_lines(_without(after, set(brought)))
    added, removed, lines = _difference(old, new)
    check(added + removed <= LIMIT, f"the edit changes {added + removed} lines; {LIMIT} are allowed")
    assertions = tuple(line for line in lines if re.match(r"(tl \. (static|device)_assert|assert) ", line))
    return Edit(before, after, added, removed, tuple(a.replace(" ", "") for a in assertions), brought)


def _difference(old: list[str], new: list[str]) -> tuple[int, int, list[str]]:
    added = removed = 0
    lines: list[str] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            removed += j - i
            added += m - k
            lines += new[k:m]
    return added, removed, lines


def _check_region(before: Program, after: Program, action: Action, exempt: set[str]) -> None:
    """Only the action's unit and the forward may differ (everything, for a `model` action, but the reference)."""
    unit = {f"{action.region}_kernel", f"launch_{action.region}", "ModelNew"}
    for name, region in after.regions.items():
        if name in exempt or name in unit:
            continue
        same = name in before.regions and before.text(name) == after.text(name)
        allowed = action.region == "model" and region.kind != "other"
        check(same or allowed, f"the edit touches {name}, outside its region {action.region}")


def _check_imports(before: Program, after: Program) -> None:
    def imports(program: Program) -> set[str]:
        lines = (line.strip() for line in program.source.splitlines())
        return {line for line in lines if line.startswith(("import ", "from ")) and " import" in f" {line}"}

    for line in imports(after) - imports(before):
        module = line.split()[1].split(".")[0]
        check(module in ALLOWED_IMPORTS, f"the import of {module} is not allowed")
    for text in BANNED:
        check(after.source.count(text) <= before.source.count(text), f"{text} is not allowed in a program")
