"""A unit as syntax trees, with the few readings and rewrites that rules share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import libcst as cst
import libcst.matchers as m

from mtmc.errors import check
from mtmc.program import Program

Line = cst.BaseStatement


def code(node: cst.CSTNode) -> str:
    """Text of a node, without comments' indentation tricks."""
    return cst.Module([]).code_for_node(node).strip()


def statement(text: str) -> cst.SimpleStatementLine:
    parsed = cst.parse_statement(text)
    assert isinstance(parsed, cst.SimpleStatementLine)
    return parsed


@lru_cache(maxsize=1024)
def _function(text: str) -> cst.FunctionDef:
    parsed = cst.parse_module(text).body[0]
    assert isinstance(parsed, cst.FunctionDef)
    return parsed


@dataclass(frozen=True)
class Unit:
    """Kernel and launcher of one unit."""

    name: str
    kernel: cst.FunctionDef
    launcher: cst.FunctionDef

    @staticmethod
    def of(program: Program, name: str) -> Unit:
        """Raises Illegal when the program lacks one of the two."""
        for region in (f"{name}_kernel", f"launch_{name}"):
            check(region in program.regions, f"the program has no {region}")
        return Unit(name, _function(program.text(f"{name}_kernel")), _function(program.text(f"launch_{name}")))

    def into(self, program: Program) -> Program:
        """The program with this unit's text."""
        for region, tree in ((f"{self.name}_kernel", self.kernel), (f"launch_{self.name}", self.launcher)):
            program = program.replace(region, cst.Module([tree]).code)
        return program

    # -- kernel ---------------------------------------------------------------------------------------------------------

    @property
    def body(self) -> tuple[Line, ...]:
        return tuple(line for line in self.kernel.body.body if isinstance(line, cst.BaseStatement))

    def with_body(self, lines: Sequence[Line]) -> Unit:
        return replace(self, kernel=_with_body(self.kernel, lines))

    def edit_lines(self, change: Callable[[cst.SimpleStatementLine], Sequence[Line] | None]) -> Unit:
        """Every simple line of the kernel passed through `change`: None keeps it, else what replaces it."""
        kernel = self.kernel.visit(_Lines(change))
        assert isinstance(kernel, cst.FunctionDef)
        return replace(self, kernel=kernel)

    @property
    def lines(self) -> list[str]:
        """Text of the kernel's simple lines, loops entered, docstring left out."""
        found: list[str] = []

        def note(line: cst.SimpleStatementLine) -> None:
            found.append(code(line))

        self.edit_lines(note)
        return [t for t in found if not t.startswith('"""')]

    def parameters(self, function: cst.FunctionDef | None = None) -> list[str]:
        return [p.name.value for p in (function or self.kernel).params.params]

    # -- launcher -------------------------------------------------------------------------------------------------------

    @property
    def constants(self) -> dict[str, int]:
        """Tile constants assigned in the launcher, in order."""
        found: dict[str, int] = {}
        for line in self.launcher.body.body:
            text = code(line)
            match = re.match(r"([A-Z][A-Z_]*(?:, [A-Z][A-Z_]*)*) = ([\d, ]+)$", text)
            if match:
                found |= dict(zip(match[1].split(", "), map(int, match[2].split(", ")), strict=True))
        return found

    def with_constant(self, name: str, value: int) -> Unit:
        values = {**self.constants, name: value}
        check(name in self.constants, f"{self.name} has no constant {name}")

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            names = code(line).partition(" = ")[0].split(", ")
            if name not in names or not set(names) <= set(values):
                return None
            return [statement(f"{', '.join(names)} = {', '.join(str(values[n]) for n in names)}")]

        return self.edit_launcher(change)

    def edit_launcher(self, change: Callable[[cst.SimpleStatementLine], Sequence[Line] | None]) -> Unit:
        launcher = self.launcher.visit(_Lines(change))
        assert isinstance(launcher, cst.FunctionDef)
        return replace(self, launcher=launcher)

    @property
    def launch(self) -> cst.Call:
        """The launch `NAME_kernel[grid](…)`. Raises Illegal unless there is exactly one."""
        found = m.findall(self.launcher, m.Call(m.Subscript(m.Name(f"{self.name}_kernel"))))
        check(len(found) == 1, f"{self.name} is launched {len(found)} times")
        call = found[0]
        assert isinstance(call, cst.Call)
        return call

    def option(self, name: str) -> int:
        """A launch option such as num_warps. Raises Illegal when it is not a number there."""
        for arg in self.launch.args:
            if arg.keyword and arg.keyword.value == name and isinstance(arg.value, cst.Integer):
                return int(arg.value.value)
        check(False, f"the launch of {self.name} does not set {name}")
        raise AssertionError

    def with_launch(self, args: Sequence[cst.Arg]) -> Unit:
        launcher = self.launcher.deep_replace(self.launch, self.launch.with_changes(args=list(args)))
        assert isinstance(launcher, cst.FunctionDef)
        return replace(self, launcher=launcher)

    def with_option(self, name: str, value: int) -> Unit:
        self.option(name)
        args = [
            a.with_changes(value=cst.Integer(str(value))) if a.keyword and a.keyword.value == name else a
            for a in self.launch.args
        ]
        return self.with_launch(args)

    def with_parameters(self, kernel: Sequence[str], launcher: Sequence[str]) -> Unit:
        """Other non-constexpr parameters, constexpr ones kept behind them."""
        constants = [p for p in self.kernel.params.params if p.annotation]
        params = [cst.Param(cst.Name(n)) for n in kernel] + constants
        return replace(
            self,
            kernel=self.kernel.with_changes(params=self.kernel.params.with_changes(params=params)),
            launcher=self.launcher.with_changes(
                params=self.launcher.params.with_changes(params=[cst.Param(cst.Name(n)) for n in launcher])
            ),
        )


class _Lines(cst.CSTTransformer):
    def __init__(self, change: Callable[[cst.SimpleStatementLine], Sequence[Line] | None]) -> None:
        super().__init__()
        self.change = change

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine] | cst.RemovalSentinel:
        new = self.change(original_node)
        if new is None:
            return updated_node
        return cst.FlattenSentinel(new) if new else cst.RemoveFromParent()  # type: ignore[arg-type]


def _with_body(function: cst.FunctionDef, lines: Sequence[Line]) -> cst.FunctionDef:
    return function.with_changes(body=function.body.with_changes(body=list(lines)))


def loops(lines: Sequence[Line]) -> list[cst.For]:
    return [line for line in lines if isinstance(line, cst.For)]


def target(line: cst.CSTNode) -> str:
    """The single name a line assigns, or empty."""
    match = re.match(r"(\w+) [-+*/]?= ", code(line))
    return match[1] if match else ""


def is_load(line: cst.CSTNode) -> bool:
    return re.match(r"\w+ = tl\.load\(\w+_ptr\b", code(line)) is not None


def is_store(line: cst.CSTNode) -> bool:
    return code(line).startswith("tl.store(")


def replace_names(text: str, names: dict[str, str]) -> str:
    """Whole identifiers replaced, attributes and keywords of calls excepted."""

    def swap(found: re.Match[str]) -> str:
        return names.get(found.group(), found.group())

    return re.sub(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\s*=[^=])", swap, text)
