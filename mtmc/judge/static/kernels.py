"""What a Triton kernel stores: for each destination, which parameters the value comes from, and whether it is a copy.

A small dataflow over the kernel's text: values know the parameters that they are addressed by (`at`), the tensors whose
elements they hold (`data`), and whether they are those elements unchanged (`copy`).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.trees import Function

NONE: frozenset[str] = frozenset()
# Calls and methods after which an element is still the same number.
KEEPS = frozenset({
    "to", "cast", "reshape", "view", "broadcast_to", "broadcast", "expand_dims", "trans", "permute", "ravel", "split",
    "join", "interleave", "multiple_of", "max_contiguous", "cat", "flip", "static_range",
})  # fmt: skip
SAME_BY_TWO = frozenset({"maximum", "minimum", "max", "min"})
STORES = frozenset({"store", "store_tensor_descriptor", "_experimental_descriptor_store", "async_copy_local_to_global"})
DEPTH = 6


@dataclass(frozen=True)
class Value:
    """`number` is set for a known number; `element` for what was loaded and not computed with since."""

    at: frozenset[str] = NONE
    data: frozenset[str] = NONE
    element: bool = False
    number: Any = None
    text: str = ""
    parts: tuple[Value, ...] = ()

    @property
    def sources(self) -> frozenset[str]:
        return self.at | self.data


@dataclass(frozen=True)
class Store:
    """One store: parameters its address is made of, those the value comes from, and whether it stores what it loaded.

    `reads` are the parameters it loads from (with those that address them); without any, no input decides the value.
    """

    at: frozenset[str]
    sources: frozenset[str]
    reads: frozenset[str]
    copy: bool
    adds: bool = False


@dataclass
class _Run:
    candidate: Candidate
    stores: list[Store] = field(default_factory=list)
    depth: int = 0


def stores(candidate: Candidate, kernel: Function, numbers: Mapping[str, Any]) -> tuple[Store, ...]:
    """Stores of a kernel launched with some parameters known as numbers."""
    run = _Run(candidate)
    names = [a.arg for a in (*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs)]
    env = {n: Value(frozenset({n}), number=numbers.get(n), text=n) for n in names}
    _block(run, kernel.body, env)
    return tuple(run.stores)


def _block(run: _Run, body: list[ast.stmt], env: dict[str, Value]) -> Value | None:
    """Run statements; the value returned, if any."""
    result = None
    for node in body:
        found = _statement(run, node, env)
        result = found if result is None else (_union(result, found) if found else result)
    return result


def _statement(run: _Run, node: ast.stmt, env: dict[str, Value]) -> Value | None:
    if isinstance(node, ast.Assign):
        value = _value(run, node.value, env)
        for target in node.targets:
            _assign(target, value, env)
    elif isinstance(node, ast.AnnAssign) and node.value:
        _assign(node.target, _value(run, node.value, env), env)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        old, new = env.get(node.target.id, Value()), _value(run, node.value, env)
        env[node.target.id] = _binary(node.op, old, new)
    elif isinstance(node, ast.Expr):
        _value(run, node.value, env)
    elif isinstance(node, ast.Return) and node.value:
        return _value(run, node.value, env)
    elif isinstance(node, (ast.For, ast.While)):
        return _loop(run, node, env)
    elif isinstance(node, ast.If):
        return _branch(run, node, env)
    return None


def _loop(run: _Run, node: ast.For | ast.While, env: dict[str, Value]) -> Value | None:
    if isinstance(node, ast.For):
        _assign(node.target, replace(_value(run, node.iter, env), number=None), env)
    changed = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for name in changed & env.keys():
        env[name] = replace(env[name], number=None)
    _block(run, node.body, env)
    return _block(run, node.body, env)


def _branch(run: _Run, node: ast.If, env: dict[str, Value]) -> Value | None:
    test = _value(run, node.test, env).number
    if test is not None:
        return _block(run, node.body if test else node.orelse, env)
    other = dict(env)
    found = [_block(run, node.body, env), _block(run, node.orelse, other)]
    for name in env.keys() | other.keys():
        env[name] = _union(env.get(name, other.get(name, Value())), other.get(name, env.get(name, Value())))
    returned = [value for value in found if value]
    return _union(returned[0], returned[-1]) if returned else None


def _assign(target: ast.expr, value: Value, env: dict[str, Value]) -> None:
    if isinstance(target, ast.Name):
        env[target.id] = value if value.text else replace(value, text=f"{target.id}@{target.lineno}")
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = (
            value.parts if len(value.parts) == len(target.elts) else (replace(value, text="", parts=()),) * len(target.elts)
        )
        for one, part in zip(target.elts, parts, strict=True):
            _assign(one, part, env)


def _union(a: Value, b: Value) -> Value:
    same = a.number is not None and a.number == b.number
    element = (a.element and b.element) or (a.element and not b.data) or (b.element and not a.data)
    return Value(a.at | b.at, a.data | b.data, element, a.number if same else None, a.text if a.text == b.text else "")


def _computed(values: list[Value]) -> Value:
    return Value(NONE.union(*(v.at for v in values)), NONE.union(*(v.data for v in values)))


def _value(run: _Run, node: ast.expr, env: dict[str, Value]) -> Value:
    if isinstance(node, ast.Constant):
        return Value(number=node.value, text=repr(node.value))
    if isinstance(node, ast.Name):
        return env.get(node.id) or Value(number=_global(run.candidate, node.id), text=node.id)
    if isinstance(node, ast.BinOp):
        return _binary(node.op, _value(run, node.left, env), _value(run, node.right, env))
    if isinstance(node, ast.UnaryOp):
        return _unary(node.op, _value(run, node.operand, env))
    if isinstance(node, ast.Call):
        return _call(run, node, env)
    if isinstance(node, ast.Subscript):
        return replace(_value(run, node.value, env), number=None)
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = tuple(_value(run, e, env) for e in node.elts)
        return replace(_computed(list(parts)), parts=parts)
    if isinstance(node, ast.Attribute):
        return replace(_value(run, node.value, env), text="")
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compare(node, _value(run, node.left, env), _value(run, node.comparators[0], env))
    return _computed([_value(run, child, env) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])


def _global(candidate: Candidate, name: str) -> Any:
    """Number of a module-level constant, when it is assigned once."""
    values = candidate.origin(name)
    value = values[0] if len(values) == 1 else None
    if isinstance(value, ast.Call) and len(value.args) == 1:  # tl.constexpr(…)
        value = value.args[0]
    return value.value if isinstance(value, ast.Constant) else None


def _shifted(a: int, b: int) -> int | None:
    return a << b if 0 <= b < 128 and abs(a) < 1 << 64 else None


def _times(a: Any, b: Any) -> Any:
    plain = isinstance(a, (int, float)) and isinstance(b, (int, float))
    return a * b if plain and max(abs(a), abs(b)) < 1e300 else None


def _rest(a: float, b: float) -> float | None:
    return None if isinstance(a, str) else a % b


def _power(a: float, b: float) -> float | None:
    return a**b if abs(a) < 1 << 32 and abs(b) < 64 else None


OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: _times, ast.FloorDiv: operator.floordiv,
    ast.Mod: _rest, ast.Div: operator.truediv, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.LShift: _shifted, ast.RShift: operator.rshift, ast.Pow: _power,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
}  # fmt: skip


def apply(function: Any, *numbers: Any) -> Any:
    """What an operator makes of known values; None where it cannot."""
    if function is None or any(n is None for n in numbers):
        return None
    try:
        return function(*numbers)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _compare(node: ast.Compare, a: Value, b: Value) -> Value:
    return replace(_computed([a, b]), number=apply(COMPARISONS.get(type(node.ops[0])), a.number, b.number))


def _binary(op: ast.operator, a: Value, b: Value) -> Value:
    """x + 0, x - 0, x * 1 and x / 1 are x; x * 0 is no longer x."""
    if isinstance(op, (ast.Add, ast.Sub)) and b.number == 0 and b.number is not False:
        return a
    if isinstance(op, ast.Add) and a.number == 0:
        return b
    if isinstance(op, (ast.Mult, ast.Div, ast.Pow)) and b.number == 1 and b.number is not True:
        return a
    if isinstance(op, ast.Mult) and a.number == 1:
        return b
    if isinstance(op, ast.Mult) and 0 in (a.number, b.number):
        return Value(number=0)
    return replace(_computed([a, b]), number=apply(OPERATORS.get(type(op)), a.number, b.number))


def _unary(op: ast.unaryop, a: Value) -> Value:
    if isinstance(op, ast.UAdd):
        return a
    if isinstance(op, ast.USub) and a.text.startswith("-("):  # -(-x)
        return replace(a, element=True, text="")
    function = operator.neg if isinstance(op, ast.USub) else operator.not_ if isinstance(op, ast.Not) else None
    negated = f"-({a.text})" if isinstance(op, ast.USub) and a.element else ""
    return replace(_computed([a]), number=apply(function, a.number), text=negated)


def _call(run: _Run, node: ast.Call, env: dict[str, Value]) -> Value:
    arguments = [_value(run, a.value if isinstance(a, ast.Starred) else a, env) for a in node.args]
    named = {k.arg or "": _value(run, k.value, env) for k in node.keywords}
    if isinstance(node.func, ast.Name) and isinstance(function := run.candidate.kernels.get(node.func.id), Function):
        return _inlined(run, function, arguments, named)
    owner: list[Value] = []
    verb = node.func.id if isinstance(node.func, ast.Name) else ""
    if isinstance(node.func, ast.Attribute):
        verb = node.func.attr
        if not run.candidate.name(node.func):
            owner = [_value(run, node.func.value, env)]
    return _builtin(run, verb, [*owner, *arguments], named)


def _builtin(run: _Run, verb: str, values: list[Value], named: dict[str, Value]) -> Value:
    everything = [*values, *named.values()]
    pointer = values[0] if values else named.get("pointer", Value())
    if verb in STORES or verb.startswith("atomic_"):
        written = [v for n, v in (*enumerate(values[1:]), *named.items()) if n not in ("mask", "pointer")]
        sources = _computed(written)
        copy = any(v.element for v in written) and verb in STORES
        run.stores.append(Store(pointer.at, sources.sources, sources.data, copy, adds=verb.startswith("atomic_")))
        return Value(pointer.at, pointer.at)
    if "load" in verb:
        return Value(data=pointer.at | pointer.data, element=True)
    if verb in KEEPS and values:
        first = next((v for v in values if v.data), values[0])
        return replace(_computed(everything), element=first.element, number=None)
    if verb in SAME_BY_TWO and len(values) == 2:
        idle = float("-inf") if verb.startswith("max") else float("inf")
        if values[0] == values[1] or idle in (values[0].number, values[1].number):
            return values[1] if values[0].number == idle else values[0]
    if verb == "float" and len(values) == 1:
        return Value(number=apply(float, values[0].number))
    if verb == "where" and len(values) == 3:
        chosen = values[2] if values[0].number in (False, 0) else values[1]
        if values[0].number is not None or values[1] == values[2]:
            return chosen
    return _computed(everything)


def _inlined(run: _Run, function: Function, arguments: list[Value], named: dict[str, Value]) -> Value:
    if run.depth >= DEPTH:
        return _computed([*arguments, *named.values()])
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    env = {name: Value() for name in names}
    defaults = function.args.defaults
    env |= {n: _value(run, d, {}) for n, d in zip(names[len(names) - len(defaults) :], defaults, strict=False)}
    env |= dict(zip(names, arguments, strict=False)) | named
    run.depth += 1
    value = _block(run, function.body, env)
    run.depth -= 1
    return value or Value()
