"""A unit as syntax trees, with the few readings and rewrites that rules share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import libcst as cst

from mtmc.errors import check
from mtmc.program import Program

Line = cst.BaseStatement
Change = Callable[[cst.SimpleStatementLine], Sequence[Line] | None]
OPTIONS = ("num_warps", "num_stages")


@lru_cache(maxsize=1 << 14)  # nodes are never changed, and most outlive an edit
def code(node: cst.CSTNode) -> str:
    """Text of a node, without comments' indentation tricks."""
    return cst.Module([]).code_for_node(node).strip()


def statement(text: str) -> cst.SimpleStatementLine:
    parsed = cst.parse_statement(text)
    assert isinstance(parsed, cst.SimpleStatementLine)
    return parsed


def power_of_two(name: str) -> str:
    """The assertion that a tile constant can be the length of a `tl.arange`."""
    return f'tl.static_assert(({name} & ({name} - 1)) == 0, "{name} must be a power of two")'


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
        return _unit(name, program.text(f"{name}_kernel"), program.text(f"launch_{name}"))

    def into(self, program: Program, fast_path: str = "") -> Program:
        """The program with this unit's text, and another text of the class `ModelNew` where one is given."""
        trees = {f"{self.name}_kernel": self.kernel, f"launch_{self.name}": self.launcher}
        texts = {region: _region(tree) for region, tree in trees.items()}
        return program.replace_all(texts | ({"ModelNew": fast_path} if fast_path else {}))

    # -- kernel ---------------------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """Text of the kernel."""
        return code(self.kernel)

    @property
    def body(self) -> tuple[Line, ...]:
        return tuple(line for line in self.kernel.body.body if isinstance(line, cst.BaseStatement))

    def with_body(self, lines: Sequence[Line]) -> Unit:
        body = self.kernel.body.with_changes(body=list(lines))
        return replace(self, kernel=self.kernel.with_changes(body=body))

    def edit_lines(self, change: Change) -> Unit:
        """Every simple line of the kernel passed through `change`: None keeps it, else what replaces it."""
        return replace(self, kernel=_edited(self.kernel, change))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Text of the kernel's simple lines, loops entered, docstring left out."""
        return tuple(text for text in _texts(self.kernel) if not text.startswith('"""'))

    @property
    def stores(self) -> list[str]:
        return [line for line in self.lines if line.startswith("tl.store(")]

    def parameters(self, function: cst.FunctionDef | None = None) -> list[str]:
        return [p.name.value for p in (function or self.kernel).params.params]

    @property
    def arguments(self) -> list[str]:
        """Names of the kernel's parameters that are not compile-time constants."""
        return [p.name.value for p in self.kernel.params.params if not p.annotation]

    def with_range_option(self, option: str, value: int) -> Unit:
        """Every plain loop `range(…)` as `tl.range(…, option=value)`. Raises Illegal when there is none."""
        lines: list[Line] = []
        for line in self.body:
            if isinstance(line, cst.For) and code(line.iter).startswith("range("):
                text = f"tl.{code(line.iter).removesuffix(')')}, {option}={value})"
                line = line.with_changes(iter=cst.parse_expression(text))
            lines.append(line)
        check(lines != list(self.body), "there is no plain loop")
        return self.with_body(lines)

    # -- launcher -------------------------------------------------------------------------------------------------------

    @cached_property
    def constants(self) -> dict[str, int]:
        """Tile constants assigned in the launcher, in order."""
        found: dict[str, int] = {}
        for text in _texts(self.launcher):
            match = re.match(r"([A-Z][A-Z_]*(?:, [A-Z][A-Z_]*)*) = ([\d, ]+)$", text)
            if match:
                found |= dict(zip(match[1].split(", "), map(int, match[2].split(", ")), strict=True))
        return found

    def with_constant(self, name: str, value: int) -> Unit:
        check(name in self.constants, f"{self.name} has no constant {name}")
        values = {**self.constants, name: value}

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            names = targets(line)
            if name not in names or not set(names) <= set(values):
                return None
            return [statement(f"{', '.join(names)} = {', '.join(str(values[n]) for n in names)}")]

        return self.edit_launcher(change)

    def with_tile(self, name: str, value: int) -> Unit:
        """Another value of a tile constant, and the assertion of what it has to be."""
        changed = self.with_constant(name, value)
        if name not in self.parameters() or power_of_two(name) in self.lines:
            return changed
        return changed.with_body([statement(power_of_two(name)), *changed.body])

    def with_constexpr(self, name: str, value: int) -> Unit:
        """A new tile constant: parameter of the kernel, assignment before the grid, argument of the launch."""
        check(name not in self.constants, f"{self.name} has a {name} already")
        param = cst.Param(cst.Name(name), cst.Annotation(cst.parse_expression("tl.constexpr")))
        params = self.kernel.params.with_changes(params=[*self.kernel.params.params, param])
        named = [a for a in self.launch.args if a.keyword and a.keyword.value in OPTIONS]
        others = [a for a in self.launch.args if a not in named]
        tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        unit = self.with_launch([*others, cst.Arg(cst.Name(name), keyword=cst.Name(name), equal=tight), *named])
        return replace(unit, kernel=self.kernel.with_changes(params=params)).beside("grid", f"{name} = {value}", before=True)

    def edit_launcher(self, change: Change) -> Unit:
        return replace(self, launcher=_edited(self.launcher, change))

    def beside(self, name: str, *texts: str, before: bool = False) -> Unit:
        """Statements put into the launcher after (or before) the one that assigns `name`; those there already are not."""
        present = set(_texts(self.launcher))
        new = [statement(text) for text in texts if text not in present]

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            if name not in targets(line):
                return None
            return [*new, line] if before else [line, *new]

        return self.edit_launcher(change) if new else self

    @cached_property
    def launch(self) -> cst.Call:
        """The launch `NAME_kernel[grid](…)`. Raises Illegal unless there is exactly one."""
        found = [call for line in self.launcher.body.body if (call := _launch(line, f"{self.name}_kernel"))]
        check(len(found) == 1, f"{self.name} is launched {len(found)} times")
        return found[0]

    def option(self, name: str) -> int:
        """A launch option such as num_warps. Raises Illegal when it is not a number there."""
        for arg in self.launch.args:
            if arg.keyword and arg.keyword.value == name and isinstance(arg.value, cst.Integer):
                return int(arg.value.value)
        check(False, f"the launch of {self.name} does not set {name}")
        raise AssertionError

    def with_launch(self, args: Sequence[cst.Arg]) -> Unit:
        call = cst.Expr(self.launch.with_changes(args=list(args)))

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            return [line.with_changes(body=[call])] if _launch(line, f"{self.name}_kernel") else None

        return self.edit_launcher(change)

    def with_arguments(self, values: Mapping[str, Sequence[str]]) -> Unit:
        """Positional arguments of the launch, found by their text, each replaced by others."""
        args: list[cst.Arg] = []
        for arg in self.launch.args:
            texts = None if arg.keyword else values.get(code(arg.value))
            args += [arg] if texts is None else [cst.Arg(cst.parse_expression(text)) for text in texts]
        return self.with_launch(args)

    def with_extra_arguments(self, names: Sequence[str]) -> Unit:
        """Positional arguments of the launch added behind those there are."""
        plain = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in self.launch.args if not a.keyword]
        named = [a for a in self.launch.args if a.keyword]
        return self.with_launch([*plain, *(cst.Arg(cst.Name(n)) for n in names), *named])

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
        params = [*(cst.Param(cst.Name(n)) for n in kernel), *constants]
        own = [cst.Param(cst.Name(n)) for n in launcher]
        return replace(
            self,
            kernel=self.kernel.with_changes(params=self.kernel.params.with_changes(params=params)),
            launcher=self.launcher.with_changes(params=self.launcher.params.with_changes(params=own)),
        )


@lru_cache(maxsize=1024)
def _region(function: cst.FunctionDef) -> str:
    """A function's text as it stands in a file."""
    return cst.Module([function]).code


@lru_cache(maxsize=1024)
def _unit(name: str, kernel: str, launcher: str) -> Unit:
    """Equal texts give one object, and what was read off it is kept."""
    return Unit(name, _function(kernel), _function(launcher))


def _launch(line: cst.CSTNode, kernel: str) -> cst.Call | None:
    """The call, where a line is the launch `kernel[grid](…)`."""
    match line:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call(func=cst.Subscript(value=name)) as call)]):
            return call if code(name) == kernel else None
    return None


class _Lines(cst.CSTTransformer):
    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return False  # a line is changed as a whole

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine] | cst.RemovalSentinel:
        new = self.change(original_node)
        if new is None:
            return updated_node
        return cst.FlattenSentinel(new) if new else cst.RemoveFromParent()  # type: ignore[arg-type]


def _edited(function: cst.FunctionDef, change: Change) -> cst.FunctionDef:
    edited = function.visit(_Lines(change))
    assert isinstance(edited, cst.FunctionDef)
    return edited


def _texts(function: cst.FunctionDef) -> list[str]:
    """Text of a function's simple lines, loops entered."""
    found: list[str] = []
    _edited(function, lambda line: found.append(code(line)))
    return found


def streams(unit: Unit) -> bool:
    """Whether the kernel has plain loops without a dot."""
    return " in range(" in unit.text and "dot" not in unit.text


def loops(lines: Sequence[Line]) -> list[cst.For]:
    return [line for line in lines if isinstance(line, cst.For)]


def step_of(loop: cst.For) -> str:
    """The step of a loop over a range of three; options such as an unrolling stand behind it by name."""
    assert isinstance(loop.iter, cst.Call)
    return code([x.value for x in loop.iter.args if x.keyword is None][-1])


def in_loop(loop: cst.For, lines: Sequence[cst.BaseStatement]) -> cst.For:
    """The loop with another body."""
    return loop.with_changes(body=loop.body.with_changes(body=list(lines)))


def target(line: cst.CSTNode | str) -> str:
    """The single name a line assigns, or empty."""
    match = re.match(r"(\w+) [-+*/]?= ", line if isinstance(line, str) else code(line))
    return match[1] if match else ""


def targets(line: cst.CSTNode) -> list[str]:
    """The names a line assigns."""
    names, equals, _ = code(line).partition(" = ")
    return names.split(", ") if equals else []


def is_load(line: cst.CSTNode) -> bool:
    return re.match(r"\w+ = tl\.load\(\w+_ptr\b", code(line)) is not None


def is_store(line: cst.CSTNode) -> bool:
    return code(line).startswith("tl.store(")


@dataclass(frozen=True)
class Access:
    """Texts of a load or store at `NAME_ptr + index`; empty where it has none. `value` is what is stored."""

    index: str
    mask: str
    value: str = ""

    @staticmethod
    def of(line: cst.CSTNode | str) -> Access:
        text = line if isinstance(line, str) else code(line)
        call = cst.parse_expression(re.sub(r"^\w+ = ", "", text).removesuffix(".to(tl.float32)"))
        assert isinstance(call, cst.Call)
        plain = [code(a.value) for a in call.args if not a.keyword]
        masks = [code(a.value) for a in call.args if a.keyword and a.keyword.value == "mask"]
        return Access(plain[0].partition(" + ")[2], masks[0] if masks else "", plain[1] if len(plain) > 1 else "")


def replace_names(text: str, names: Mapping[str, str]) -> str:
    """Whole identifiers replaced, attributes and keywords of calls excepted."""

    def swap(found: re.Match[str]) -> str:
        return names.get(found.group(), found.group())

    return re.sub(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\s*=[^=])", swap, text)
