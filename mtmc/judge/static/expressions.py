"""Expressions in the dataflow: which cells one leads to, and its value where the text decides it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.kernels import COMPARISONS, OPERATORS, apply
from mtmc.judge.static.memory import EMPTY, MISSING, PLAIN, Cells, Memory, Name, Spec, State, is_data, joined
from mtmc.judge.static.operators import FACTS

DTYPES = {"torch.float": "torch.float32", "torch.half": "torch.float16", "torch.double": "torch.float64"}
DTYPES |= {"torch.long": "torch.int64", "torch.int": "torch.int32"}
IDENTITY = frozenset({"data_ptr", "_cdata", "_version", "untyped_storage", "storage"})
WEIGHTS = ("weight", "bias", "running_", "param", "buffer")


@dataclass
class Frame:
    """One call of a function: where its names are kept, the frame it was defined in, and what it has returned so far."""

    number: int
    function: ast.AST | None = None
    owner: str = ""
    parent: Frame | None = None
    outer: frozenset[str] = frozenset()
    returns: list[tuple[ast.AST, Cells, State]] = field(default_factory=list)
    exits: list[State] = field(default_factory=list)


@dataclass
class Expressions(Memory):
    candidate: Candidate = field(default_factory=lambda: Candidate(""))
    closures: dict[int, Frame] = field(default_factory=dict)
    lambdas: dict[str, ast.Lambda] = field(default_factory=dict)
    top: Frame = field(default_factory=lambda: Frame(0))

    def evaluate(self, node: ast.AST | None, frame: Frame) -> Cells:
        """Cells of an expression; effects of the calls in it take place."""
        if node is None:
            return EMPTY
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            found: Cells = method(node, frame)
            return found
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return self.mixed([self.evaluate(child, frame) for child in children])

    def mixed(self, operands: Sequence[Cells], *labels: str) -> Cells:
        """A new cell that holds what became of the operands."""
        return self.new(*(self.contents(*operands) or {"const"}), *labels)

    def call(self, node: ast.Call, frame: Frame) -> Cells:
        raise NotImplementedError

    def property_of(self, method: str, bound: Cells) -> Cells:
        raise NotImplementedError

    def _constant(self, node: ast.Constant, frame: Frame) -> Cells:
        return self.new("const", known=node.value)

    def _name(self, node: ast.Name, frame: Frame) -> Cells:
        return self.lookup(node.id, frame) or self._outside(node)

    def lookup(self, name: str, frame: Frame | None) -> Cells:
        while frame is not None:
            if (frame.number, name) in self.state.variables:
                return self.state.variables[frame.number, name]
            frame = frame.parent
        return EMPTY

    def _outside(self, node: ast.expr) -> Cells:
        """An imported thing or a builtin."""
        full = self.candidate.name(node)
        if not full:
            return self.new("?")
        full = DTYPES.get(full, full)
        return self.new(f"name:{full}", *(["env"] if full.startswith(("os.environ", "sys.argv")) else []), known=Name(full))

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Cells:
        return self.attribute(self.evaluate(node.value, frame), node.attr)

    def attribute(self, base: Cells, name: str) -> Cells:
        """`base.name` for a thing that is not being called."""
        value = self.value(base)
        if isinstance(value, Name):
            full = f"{value.full}.{name}"
            return self.new(f"name:{full}", *(self.labels(base) & {"env"}), known=Name(DTYPES.get(full, full)))
        found = EMPTY
        for kind in ("obj:", "class:", "fn:"):
            for thing in self.things(base, kind):
                found |= self._member(thing, name)
        for thing in self.things(base, "super:"):
            methods = [f"{c}.{name}" for c in self.candidate.bases(thing)[1:] if f"{c}.{name}" in self.candidate.functions]
            full = f"super.{name}"
            own = [f"self:{owner}" for owner in self.things(base, "self:")]
            found |= self.new(f"fn:{methods[0]}", *own) if methods else self.new(f"name:{full}", known=Name(full))
        labels = self.labels(base)
        if found or not is_data(labels):
            return found or self.new("meta", *(labels & PLAIN))
        if any(label.startswith("mod:") for label in labels):  # a module's weight, else a size or a module in it
            return self.new(f"param:{name}" if any(word in name for word in WEIGHTS) else f"mod:{name}")
        return self.fact(base, name) if name in FACTS or name in IDENTITY else base

    def _member(self, thing: str, name: str) -> Cells:
        for owner in self.candidate.bases(thing):
            if (f"@{owner}", name) in self.state.variables:
                return self.state.variables[f"@{owner}", name]
        if method := self.candidate.method(thing, name):
            bound = self.new(f"fn:{method}", f"self:{thing}")
            return self.property_of(method, bound)
        if name == "apply" and self.candidate.method(thing, "forward"):
            return self.new(f"apply:{thing}")
        if name == "training":
            return self.new("meta")
        plain = thing in self.candidate.classes and not any(self.candidate.foreign(c) for c in self.candidate.bases(thing))
        return self.new("?") if plain else self.new(f"param:{name}")

    def fact(self, base: Cells, name: str, arguments: Sequence[Any] = ()) -> Cells:
        """Something asked about a tensor that its elements do not decide; its value where the input's text tells."""
        spec = self.spec(base)
        extra = ["ptr"] if name in IDENTITY else ["count"] if "count" in self.labels(base) else []
        answer = _answer(spec, name, arguments) if spec is not None else MISSING
        found = self.new("meta", *extra, *(["past"] if "old" in self.labels(base) else []), known=answer)
        if extra:
            self.pointees[next(iter(found))] = base
        return found

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Cells:
        base, key = self.evaluate(node.value, frame), self.evaluate(node.slice, frame)
        values = self.value(base), self.value(key)
        if isinstance(values[0], tuple) and isinstance(values[1], (int, slice)):
            item = apply(operator.getitem, *values)
            return self.new(*self.labels(base), known=item if item is not None else MISSING)
        self.keyed(node, base, key)
        if self.labels(base) <= PLAIN:
            return self.new("meta", *self.labels(base))
        return base

    def keyed(self, node: ast.AST, base: Cells, key: Cells) -> None:
        """Notes a dictionary that is asked by a tensor's address or by the tensor itself, which hashes by identity."""
        asked = self.labels(key)
        if "dict" in self.labels(base) and ("ptr" in asked or "input" in asked):
            self.note("keyed", ast.unparse(node), node)

    def _slice(self, node: ast.Slice, frame: Frame) -> Cells:
        parts = [self.value(self.evaluate(p, frame)) if p else None for p in (node.lower, node.upper, node.step)]
        return self.new("meta", known=MISSING if MISSING in parts else slice(*parts))

    def _binop(self, node: ast.BinOp, frame: Frame) -> Cells:
        a, b = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        return self.binary(node, node.op, a, b)

    def binary(self, node: ast.AST, op: ast.operator, a: Cells, b: Cells) -> Cells:
        values = [self.value(a), self.value(b)]
        if isinstance(op, ast.Mult) and any(type(v) in (int, float) and v == 0 for v in values):
            return self.new("const")  # 0 * anything
        known = MISSING
        if all(isinstance(v, (int, float, tuple, str)) for v in values):
            known = _or_missing(apply(OPERATORS.get(type(op)), *values))
        return self._operated(node, type(op).__name__.lower(), [a, b], known)

    def _operated(self, node: ast.AST, name: str, operands: list[Cells], known: Any) -> Cells:
        """An operator's result: a plain value of plain operands, or the work of a PyTorch operator."""
        labels = self.contents(*operands)
        if labels <= PLAIN:
            return self.new("meta", *(labels - {"const"}), known=known)
        if labels <= PLAIN | {"old", "param:", "?"} or not is_data(labels):
            return self.new(*labels)
        self.note("library", f"operator {name}", node)
        return self.new(*labels, f"lib:{name}")

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> Cells:
        operand = self.evaluate(node.operand, frame)
        value = self.value(operand)
        functions: dict[type[ast.unaryop], Any] = {ast.USub: operator.neg, ast.Not: operator.not_, ast.UAdd: operator.pos}
        simple = isinstance(value, (int, float, str, tuple, type(None)))
        if isinstance(node.op, ast.Not) and value is None:
            return self.new("meta", known=True)
        if isinstance(node.op, ast.Not) and self.kept(operand):
            return self.new("meta", "past", known=False)
        known = _or_missing(apply(functions.get(type(node.op)), value)) if simple else MISSING
        if isinstance(node.op, ast.Not):
            return self.new("meta", *(self.contents(operand) - {"const"}), known=known)
        return self._operated(node, type(node.op).__name__.lower(), [operand], known)

    def _boolop(self, node: ast.BoolOp, frame: Frame) -> Cells:
        stop = isinstance(node.op, ast.Or)
        found = EMPTY
        for value_node in node.values:
            cells = self.evaluate(value_node, frame)
            value = self.value(cells)
            if value is not MISSING and not isinstance(value, Name) and bool(value) is not stop:
                last = cells
                continue
            found |= cells
            if value is not MISSING and not isinstance(value, Name):
                break
            last = EMPTY
        return found or last

    def _compare(self, node: ast.Compare, frame: Frame) -> Cells:
        operands = [self.evaluate(n, frame) for n in (node.left, *node.comparators)]
        values = [self.value(cells) for cells in operands]
        known = MISSING
        if len(values) == 2:
            known = _compared(node.ops[0], values[0], values[1])
        labels = self.contents(*operands)
        past = ["past"] if labels & {"old", "past"} else []
        if known is MISSING:
            known = self._existence(node.ops[0], operands)
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            same = None not in values and "input" in labels and len(labels) > 1
            return self.new("meta", *(["identity"] if same else []), *past, *(labels & PLAIN), known=known)
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            key = self.contents(operands[0])
            labels = key & PLAIN | ({"ptr"} if "input" in key and "dict" in labels else set())
        return self.new("meta", *past, *(labels - {"const", "old", "uninit", "dict"}), known=known)

    def _existence(self, op: ast.cmpop, operands: Sequence[Cells]) -> Any:
        """`x is None` for a tensor; in a steady state also for what earlier calls left, and `key in cache`."""
        subject = self.contents(operands[0])
        there = bool(subject & {"input", "tensor", "uninit"}) or any(x.startswith(("K:", "lib:")) for x in subject)
        sure = there and not subject & {"?", "old"}
        kept = self.steady and "old" in subject
        if isinstance(op, (ast.Is, ast.IsNot)) and self.value(operands[-1]) is None and (sure or kept):
            return isinstance(op, ast.IsNot)
        if isinstance(op, (ast.In, ast.NotIn)) and self.steady and "old" in self.contents(operands[-1]):
            return isinstance(op, ast.In)
        return MISSING

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Cells:
        test = self.truth(node.test, frame)
        if test is not None:
            return self.evaluate(node.body if test else node.orelse, frame)
        other = self.state.extended(node.test, False)
        self.state = self.state.extended(node.test, True)
        found = self.chosen(node.body, frame)
        one, self.state = self.state, other
        found |= self.chosen(node.orelse, frame)
        self.state = joined([one, self.state]) or one
        return found

    def chosen(self, node: ast.expr, frame: Frame) -> Cells:
        """One side of a conditional expression; noted where it is data."""
        cells = self.evaluate(node, frame)
        if is_data(self.labels(cells)):
            self.note("choice", ast.unparse(node), node)
        return cells

    def truth(self, test: ast.expr, frame: Frame) -> bool | None:
        """Value of a condition for the problem's own inputs; None when the text does not decide it."""
        cells = self.evaluate(test, frame)
        value = self.value(cells)
        if value is not MISSING and not isinstance(value, Name):
            return bool(value)
        if self.kept(cells):
            return True
        before = self.tests.get(id(test), (test, frozenset()))[1]
        self.tests[id(test)] = (test, self.labels(cells) | before)
        return None

    def kept(self, cells: Cells) -> bool:
        """Whether this is surely something that an earlier call left."""
        labels = self.labels(cells)
        return self.steady and "old" in labels and labels <= PLAIN | {"old"}

    def _tuple(self, node: ast.Tuple | ast.List, frame: Frame) -> Cells:
        found = [self.evaluate(element, frame) for element in node.elts]
        values = [self.value(cells) for cells in found]
        starred = any(isinstance(element, ast.Starred) for element in node.elts)
        if MISSING not in values and not starred and not any(_callable(v) for v in values):
            return self.new(*self.labels(EMPTY.union(*found)), "const", known=tuple(values))
        return EMPTY.union(*found)

    _list = _tuple

    def _set(self, node: ast.Set, frame: Frame) -> Cells:
        return EMPTY.union(*(self.evaluate(element, frame) for element in node.elts)) or self.new("const")

    def _starred(self, node: ast.Starred, frame: Frame) -> Cells:
        return self.evaluate(node.value, frame)

    def _dict(self, node: ast.Dict, frame: Frame) -> Cells:
        return self.new("const", "dict").union(*(self.evaluate(value, frame) for value in node.values))

    def _joinedstr(self, node: ast.JoinedStr, frame: Frame) -> Cells:
        return self.new("meta")

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Cells:
        name = f"lambda {node.lineno}:{node.col_offset}"
        self.lambdas[name] = node
        cells = self.new(f"fn:{name}")
        self.closures[next(iter(cells))] = frame
        return cells

    def _namedexpr(self, node: ast.NamedExpr, frame: Frame) -> Cells:
        cells = self.evaluate(node.value, frame)
        self.state.variables[frame.number, node.target.id] = cells
        return cells

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Cells:
        for generator in node.generators:
            self.bind(generator.target, self.evaluate(generator.iter, frame), frame)
            for test in generator.ifs:
                self.evaluate(test, frame)
        return self.evaluate(node.elt, frame)

    _setcomp = _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp, frame: Frame) -> Cells:
        for generator in node.generators:
            self.bind(generator.target, self.evaluate(generator.iter, frame), frame)
        return self.evaluate(node.value, frame)

    def _call(self, node: ast.Call, frame: Frame) -> Cells:
        return self.call(node, frame)

    def bind(self, target: ast.expr, cells: Cells, frame: Frame) -> None:
        raise NotImplementedError


def _callable(value: Any) -> bool:
    return isinstance(value, Name) and not value.full.startswith("torch.")


def _or_missing(value: Any) -> Any:
    return MISSING if value is None else value


def _compared(op: ast.cmpop, a: Any, b: Any) -> Any:
    if a is MISSING or b is MISSING:
        return MISSING
    names = isinstance(a, Name) or isinstance(b, Name)
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(b, (tuple, str)):
        try:
            return (a in b) is isinstance(op, ast.In)
        except TypeError:
            return MISSING
    if isinstance(op, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
        if names and not (isinstance(a, Name) and isinstance(b, Name)):
            return MISSING
        return (a == b) is isinstance(op, (ast.Eq, ast.Is))
    return MISSING if names else _or_missing(apply(COMPARISONS.get(type(op)), a, b))


def _answer(spec: Spec, name: str, arguments: Sequence[Any]) -> Any:
    """What a tensor of this spec answers."""
    if name in ("shape", "size", "ndim", "dim", "numel", "nelement") and spec.shape is not None:
        return _of_shape(spec.shape, name, arguments)
    facts: dict[str, Any] = {"dtype": Name(spec.dtype), "is_cuda": True, "is_contiguous": True, "is_cpu": False}
    facts |= {"is_floating_point": "float" in spec.dtype, "requires_grad": False, "is_sparse": False, "is_quantized": False}
    return facts.get(name, MISSING) if not arguments else MISSING


def _of_shape(shape: tuple[int, ...], name: str, arguments: Sequence[Any]) -> Any:
    if name in ("ndim", "dim"):
        return len(shape)
    if name in ("numel", "nelement"):
        total = 1
        for size in shape:
            total *= size
        return total
    if not arguments:
        return shape
    return _or_missing(apply(operator.getitem, shape, arguments[0]))
