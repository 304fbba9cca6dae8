"""Triton IR text as a tree of operations: just enough of MLIR's custom syntax for the operations that Triton prints.

A function body is one `Block`; `scf.for`, `scf.if`, `scf.while` and the combine functions of reductions hold blocks of
their own. Early returns print as basic blocks (`^bb1:`); they are read as one straight line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

_LOCATION = re.compile(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_PARAMETER = re.compile(r'%(\w+): ((?:!tt\.\w+<.*?>+|\w+))(?: \{[^}]*\})?(?: loc\("([^"]+)")?(?=[,() ])')
_RESULT = re.compile(r"^%([\w-]+)(?::(\d+))? = (.*)$")  # negative constants have a sign in their name: %c-256_i32
_VALUE = re.compile(r"%([\w-]+(?:#\d+)?)")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([^<>]*(?:<[^<>]*>)?)>")
_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "index": 64}


@dataclass(frozen=True)
class Type:
    """Tile shape (empty for a scalar) and element: `f32`, `i64`, `!tt.ptr<f32>`."""

    shape: tuple[int, ...]
    element: str

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element, of the pointee for pointers; at least 1."""
        element = self.element.removeprefix("!tt.ptr<").rstrip(">")
        bits = _BITS.get(element) or int((re.search(r"\d+", element) or ["64"])[0])
        return max(bits // 8, 1)

    @property
    def integer(self) -> bool:
        return self.element == "index" or re.fullmatch(r"i\d+", self.element) is not None


@dataclass(frozen=True)
class Block:
    """Names of the block's own arguments, then its operations."""

    arguments: tuple[str, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Operation:
    """`text` is the printed operation without its result names; `type` the type of its first result (or stored value)."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    type: Type
    text: str
    blocks: tuple[Block, ...] = ()

    def attribute(self, name: str, default: int = 0) -> int:
        """Integer attribute `name = 3 : i32`."""
        found = re.search(rf"\b{name} = (-?\d+)", self.text)
        return int(found[1]) if found else default


@dataclass(frozen=True)
class Function:
    """One kernel. `parameters` are (SSA name, Python name, type text)."""

    parameters: tuple[tuple[str, str, str], ...]
    body: Block


@lru_cache(maxsize=256)
def parse(text: str) -> Function:
    """The first function of a Triton IR module. Raises ValueError when there is none."""
    lines = iter(text.splitlines())
    for line in lines:
        if "tt.func" in line:
            found = _PARAMETER.findall(line.split("attributes")[0])
            parameters = tuple((ssa, name or ssa, kind) for ssa, kind, name in found)
            operations, _ = _block(lines)
            return Function(parameters, Block((), operations))
    raise ValueError("no tt.func in the Triton IR")


def types(text: str) -> list[Type]:
    """The types printed after the last ` : ` of an operation, in order."""
    tail = text.rsplit(" : ", 1)[-1]
    return [
        _type(t)
        for t in re.findall(r"tensor<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>|!tt\.ptr<[^<>]*>|\b(?:bf|f|i)\d+\b|index", tail)
    ]


def _type(text: str) -> Type:
    found = _TENSOR.fullmatch(text)
    if not found:
        return Type((), text)
    return Type(tuple(int(d) for d in found[1].split("x") if d), found[2])


def _block(lines: Iterator[str]) -> tuple[tuple[Operation, ...], str]:
    """Operations up to the closing brace, and that closing line."""
    operations: list[Operation] = []
    for raw in lines:
        line = _LOCATION.sub("", raw).strip()
        if line.startswith("}"):
            return tuple(operations), line
        if line and not line.startswith(("^", "#")):
            operations.append(_operation(line, lines))
    return tuple(operations), ""


def _operation(line: str, lines: Iterator[str]) -> Operation:
    found = _RESULT.match(line)
    head = found[3] if found else line
    blocks: list[Block] = []
    opening = line
    text = head
    while opening.endswith("{"):
        arguments, operations, closing = _region(lines)
        blocks.append(Block(arguments, operations))
        opening = closing
        text = f"{head} {closing}"
    return Operation(
        name=head.split("(")[0].split()[0].strip('"') if not head.startswith('"') else head.split('"')[1],
        results=_results(found[1], int(found[2] or 0)) if found else (),
        operands=tuple(_VALUE.findall(head)),
        type=_result_type(text),
        text=text,
        blocks=tuple(blocks),
    )


def _region(lines: Iterator[str]) -> tuple[tuple[str, ...], tuple[Operation, ...], str]:
    """The region's arguments (from a `^bb0(…)` line), operations and closing line."""
    buffered = list(_until_close(lines))
    body, closing = buffered[:-1], buffered[-1]
    arguments: tuple[str, ...] = ()
    if body and body[0].lstrip().startswith("^bb0("):
        arguments = tuple(re.findall(r"%(\w+): ", body.pop(0)))
    operations, _ = _block(iter(body))
    return arguments, operations, _LOCATION.sub("", closing).strip()


def _until_close(lines: Iterator[str]) -> Iterator[str]:
    """Lines up to and with the one that closes the region just opened."""
    depth = 1
    for raw in lines:
        line = _LOCATION.sub("", raw).strip()
        depth -= line.startswith("}")
        yield raw
        if depth == 0:
            return
        depth += line.endswith("{")


def _results(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}#{i}" for i in range(count)) if count else (name,)


def _result_type(text: str) -> Type:
    """Type behind the last `->` or, without one, the last type printed."""
    found = types(text.rsplit("->", 1)[-1] if "->" in text else text)
    if "->" in text and found:
        return found[0]
    return found[-1] if found else Type((), "")
