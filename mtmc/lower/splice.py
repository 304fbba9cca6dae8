"""Splicing: a template's functions with the placeholder `operand` repeated per operand and the formulas put in.

Templates are real Triton files in `templates/`; this module reads them as syntax trees and never runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import libcst as cst
import libcst.matchers as m


@dataclass(frozen=True)
class Operand:
    """One input of a kernel: a tensor loaded at `offset` (masked unless `uniform`), or a plain number (`offset` empty)."""

    name: str
    offset: str = ""
    uniform: bool = False
    cast: str = ""

    @property
    def parameter(self) -> str:
        return f"{self.name}_ptr" if self.offset else self.name


@dataclass(frozen=True)
class Filling:
    """What goes into a template: new identifiers, expressions for placeholder names and calls, operands, size arguments.

    In a `wide` kernel the extents are 64-bit numbers, and so is all that is computed of them.
    """

    names: dict[str, str]
    expressions: dict[str, str] = field(default_factory=dict)
    operands: tuple[Operand, ...] = ()
    sizes: dict[str, str] = field(default_factory=dict)
    wide: bool = False


EXTENTS = ("rows", "reds", "cols")  # parameters of a kernel that count its coordinates


@cache
def template(module: str) -> dict[str, cst.FunctionDef]:
    """The functions of `templates/<module>.py` by name."""
    text = (files("mtmc.lower.templates") / f"{module}.py").read_text()
    return {s.name.value: s for s in cst.parse_module(text).body if isinstance(s, cst.FunctionDef)}


@cache
def template_text(module: str, function: str) -> str:
    """Source text of one template function, without the blank lines before it."""
    return cst.Module([template(module)[function].with_changes(leading_lines=[])]).code


@cache
def library() -> dict[str, str]:
    """Device functions that a program may bring in whole: name -> text."""
    return {name: template_text("ops", name) for name in template("ops")}


def load_statement(operand: Operand) -> cst.SimpleStatementLine:
    """`name = tl.load(name_ptr + offset, mask=mask)`, 16-bit values widened."""
    offset = f" + {operand.offset}" if operand.offset != "0" else ""
    mask = "" if operand.uniform else ", mask=mask"
    text = f"{operand.name} = tl.load({operand.parameter}{offset}{mask}){operand.cast}"
    statement = cst.parse_statement(text)
    assert isinstance(statement, cst.SimpleStatementLine)
    return statement


def _is_load(line: cst.SimpleStatementLine) -> bool:
    return m.matches(line, m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name("operand"))])]))


class _Splice(cst.CSTTransformer):
    def __init__(self, filling: Filling) -> None:
        super().__init__()
        self.filling = filling

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        if _is_load(original_node):
            return cst.FlattenSentinel([load_statement(o) for o in self.filling.operands if o.offset])
        if m.matches(original_node, m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name("out"))])])):
            extra = [cst.parse_statement(f"{name} = {text}") for name, text in self.filling.sizes.items()]
            return cst.FlattenSentinel([updated_node, *extra])  # type: ignore[list-item]
        return updated_node

    def leave_Parameters(self, original_node: cst.Parameters, updated_node: cst.Parameters) -> cst.Parameters:
        params: list[cst.Param] = []
        kernel = any(p.name.value.endswith("_ptr") for p in original_node.params)
        for original, param in zip(original_node.params, updated_node.params, strict=True):
            if original.name.value in ("operand", "operand_ptr"):
                params += [cst.Param(cst.Name(o.parameter if kernel else o.name)) for o in self.filling.operands]
                continue
            if kernel and param.annotation and not any(p.annotation for p in params):
                params += [cst.Param(cst.Name(s)) for s in self.filling.sizes]
            params.append(param)
        if params and not kernel:
            params[-1] = params[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(params=params)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = original_node.func
        if isinstance(func, cst.Name) and func.value in self.filling.expressions:
            return cst.parse_expression(self.filling.expressions[func.value])
        if m.matches(original_node, m.Call(m.Subscript(slice=[m.SubscriptElement(m.Index(m.Name("grid")))]))):
            return updated_node.with_changes(args=list(self._launch_args(original_node, updated_node)))
        return updated_node

    def _launch_args(self, original: cst.Call, call: cst.Call) -> list[cst.Arg]:
        args: list[cst.Arg] = []
        placed = False
        for before, arg in zip(original.args, call.args, strict=True):
            if m.matches(before, m.Arg(m.Name("operand"), keyword=None)):
                args += [cst.Arg(cst.Name(o.name)) for o in self.filling.operands]
                continue
            if arg.keyword and not placed:
                args += [cst.Arg(cst.Name(s)) for s in self.filling.sizes]
                placed = True
            args.append(arg)
        return args

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        name = original_node.value
        if name in self.filling.names:
            return updated_node.with_changes(value=self.filling.names[name])
        if name in self.filling.expressions:
            return cst.parse_expression(self.filling.expressions[name])
        return updated_node


def splice(module: str, functions: Sequence[str], filling: Filling) -> str:
    """The named functions of a template, filled in, as program text (two blank lines between functions)."""
    filled = []
    for name in functions:
        function = template(module)[name].with_changes(leading_lines=[])
        # keyword names of calls (`BLOCK=BLOCK`) and attributes are not identifiers of ours
        node = function.visit(_Splice(filling))
        assert isinstance(node, cst.FunctionDef)
        if filling.wide:
            node = _widened(node)
        filled.append(cst.Module([node]).code.strip("\n"))
    return "\n\n\n".join(filled) + "\n"


def _widened(function: cst.FunctionDef) -> cst.FunctionDef:
    """A kernel whose extents are cast to 64 bits before anything else; other functions as they are."""
    names = [p.name.value for p in function.params.params]
    casts = [cst.parse_statement(f"{n} = tl.cast({n}, tl.int64)") for n in names if n in EXTENTS]
    if not any(name.endswith("_ptr") for name in names):
        return function
    return function.with_changes(body=function.body.with_changes(body=[*casts, *function.body.body]))
