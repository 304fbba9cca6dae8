"""Graph: the operations of a model with their shapes, as captured from `torch.export` or normalised by `lower`.

A Graph is plain data: no torch object lives in it, so it can be hashed, printed and compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any


@dataclass(frozen=True)
class TensorType:
    """Shape (elements), strides (elements) and dtype name (`float32`, `int64`, …) of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Row-major dense; true as well when strides are unknown."""
        if not self.strides or self.numel <= 1:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True)
class Ref:
    """A use of another node's value inside `Node.args`."""

    name: str


@dataclass(frozen=True)
class TorchConst:
    """A dtype, layout, memory format or device inside `Node.args`, as the text that gives it back.

    `torch.float32`, `torch.strided`, …; the bare word `device` stands for the device of the model's first input.
    """

    text: str


@dataclass(frozen=True)
class Node:
    """One value of the graph.

    `op` is `input` (`target` is the parameter of `forward`; a scalar input has its value in `args`), `state` (parameter,
    buffer or tensor attribute; `target` is its dotted path), `constant` (`args[0]` holds the values as nested tuples),
    `getitem`, an ATen name such as `aten.linear.default`, or, after normalisation, a primitive name without dots
    (`pointwise`, `reduce`, …).
    `type` is None where the value is not a tensor (tuples, scalars).
    """

    name: str
    op: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    type: TensorType | None = None
    target: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the nodes this one reads, in order, each once."""
        return tuple(dict.fromkeys(ref.name for ref in walk((self.args, tuple(self.kwargs.values())))))


def bare(op: str) -> str:
    """`aten.conv2d.default` → `conv2d`; a name without `aten.` stays as it is up to its first dot."""
    return op.removeprefix("aten.").partition(".")[0]


def walk(value: Any) -> Iterator[Ref]:
    """Every `Ref` inside nested tuples, lists and dicts."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from walk(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from walk(item)


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order.

    `output` mirrors the module's return value with `Ref`s at its leaves (nested tuples, lists, dicts).
    `mutations` maps a buffer's dotted path to the node whose value it holds after the call.
    """

    nodes: tuple[Node, ...]
    output: Any
    mutations: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def users(self, name: str) -> tuple[Node, ...]:
        """Nodes that read `name`; the output and mutations are not nodes and are not listed."""
        return tuple(node for node in self.nodes if name in node.inputs)

    @property
    def results(self) -> frozenset[str]:
        """Names that leave the graph: outputs and mutated buffers."""
        return frozenset(ref.name for ref in walk(self.output)) | frozenset(self.mutations.values())
