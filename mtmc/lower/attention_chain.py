"""Attention that is written out, found in the ATen graph: product, elementwise steps, softmax, product become one node.

The node is called as the last product, its operator is `attention`, its arguments are query, key and value; `steps` holds
the elementwise operators between product and softmax as (name, operator, arguments, keywords), in which `score` stands for
what is made of the product. Without a softmax the steps' result weighs the values as it is. The chain is left as it is where
a value inside has another reader, an operand does not broadcast to the scores, or a number that varies with the sizes would
have to be text.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import isclose, prod
from typing import Any

from mtmc.frames import broadcasts
from mtmc.graph import Graph, Node, Ref, TensorType, bare
from mtmc.lower.builder import FLOATS, Builder, meta_of
from mtmc.lower.rules_contraction import MOST_BATCHES
from mtmc.lower.rules_pointwise import arguments
from mtmc.lower.rules_view import NOTHING

WIDEST = 256  # elements of a head, of which a program holds whole rows in registers
PRODUCTS = ("matmul", "bmm")
SOFTMAX = ("softmax", "_softmax")
LINEAR = ("mul", "div", "neg", "add", "sub", "rsub")
NONLINEAR = ("relu", "leaky_relu", "relu6", "sigmoid", "tanh", "silu", "exp", "square", "softplus", "masked_fill", "where")
SCORE = Ref("score")
DEFAULT = "D ** -0.5"  # launcher text of the factor on the scores that is the usual one
MASKS = ("bool", *(t for t in FLOATS if t != "float64"))  # types of what a step reads besides the scores


@dataclass(frozen=True)
class _Scores:
    """A product and the elementwise steps that follow, with the names of all values on the way."""

    product: Node
    steps: tuple[Node, ...] = ()
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Reader:
    """A graph's nodes by name, who reads them, and what leaves the graph."""

    nodes: dict[str, Node]
    readers: dict[str, list[Node]]
    results: frozenset[str]

    @classmethod
    def of(cls, graph: Graph) -> _Reader:
        readers: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for name in node.inputs:
                readers[name].append(node)
        return cls({node.name: node for node in graph.nodes}, readers, graph.results)

    def only(self, name: str) -> Node | None:
        """The one node that reads a value, None where there are others or it leaves the graph."""
        found = self.readers[name]
        return found[0] if len(found) == 1 and name not in self.results else None

    def plain(self, name: str) -> tuple[Node, tuple[str, ...]] | None:
        """The node that makes a value, seen through copies, and the names met; None where one of them is read elsewhere."""
        inside: tuple[str, ...] = ()
        while self.only(name):
            inside, node = (*inside, name), self.nodes[name]
            if bare(node.op) not in NOTHING:
                return node, inside
            name = node.inputs[0]
        return None

    def scores(self, name: str) -> _Scores | None:
        """What makes a value, if that is a product and elementwise steps of its shape and type."""
        found = self.plain(name)
        if found is None or found[0].type is None:
            return None
        node, inside = found
        if bare(node.op) in PRODUCTS:
            return _Scores(node, (), inside)
        if bare(node.op) not in (*LINEAR, *NONLINEAR) or arguments(node).get("rounding_mode"):
            return None
        for operand in node.inputs:
            before = self.scores(operand)
            if before and _alike(before.product, node):
                step = with_refs(node, {operand: SCORE.name})
                return _Scores(before.product, (*before.steps, step), (*before.inside, *inside))
        return None


def _alike(left: Node, right: Node) -> bool:
    types = left.type, right.type
    return None not in types and len({(t.shape, t.dtype) for t in types if t}) == 1


def with_refs(node: Node, names: dict[str, str]) -> Node:
    """A node whose references are renamed."""

    def visit(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(names.get(value.name, value.name))
        return tuple(visit(item) for item in value) if isinstance(value, (tuple, list)) else value

    return replace(node, args=visit(node.args), kwargs={key: visit(value) for key, value in node.kwargs.items()})


def joined(graph: Graph, b: Builder) -> Graph:
    """The graph with every attention that is written out as one node."""
    reader = _Reader.of(graph)
    made: dict[str, tuple[Node, ...]] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        scores = _of(reader, node)
        if scores is None or not _fits(reader, scores, node, b.varying):
            continue
        if b.choose(f"{node.name}.joined", _right_size(reader, scores, node)):
            made[node.name] = _joined(reader, scores, node)
            gone.update(scores.inside)
    nodes = [new for node in graph.nodes if node.name not in gone for new in made.get(node.name, (node,))]
    return replace(graph, nodes=tuple(nodes))


def _of(reader: _Reader, last: Node) -> _Scores | None:
    """The scores whose softmax, or which themselves where that is no linear function, are the left side of a product."""
    if bare(last.op) not in PRODUCTS or len(last.inputs) < 2 or last.type is None or len(last.type.shape) not in (3, 4):
        return None
    found = reader.plain(last.args[0].name)
    if found is None or bare(found[0].op) not in SOFTMAX:
        scores = reader.scores(last.args[0].name)
        return scores if scores and not all(_linear(step) for step in scores.steps) else None
    softmax, inside = found
    args = arguments(softmax)
    last_one = softmax.type is not None and args["dim"] in (-1, len(softmax.type.shape) - 1)
    if not last_one or args.get("dtype") or args.get("half_to_float"):
        return None
    scores = reader.scores(args["self"].name)
    return scores and replace(scores, inside=(*scores.inside, *inside))


def _linear(step: Node) -> bool:
    return bare(step.op) in LINEAR and step.inputs == (SCORE.name,)


def _operands(reader: _Reader, scores: _Scores, last: Node) -> list[TensorType]:
    """Types of query, turned key and value."""
    names = (*(ref.name for ref in scores.product.args[:2]), last.args[1].name)
    return [found for name in names if (found := reader.nodes[name].type)]


def _fits(reader: _Reader, scores: _Scores, last: Node, varying: frozenset[str]) -> bool:
    """Whether shapes and types are those of attention, and all that the steps read can be read in the kernel."""
    types = _operands(reader, scores, last)
    full = scores.product.type
    if len(types) < 3 or full is None or len({t.dtype for t in types}) > 1 or types[0].dtype not in MASKS[1:]:
        return False
    if any(t.shape[:-2] != full.shape[:-2] or len(t.shape) != len(full.shape) for t in types):
        return False
    besides = [reader.nodes[name].type for step in scores.steps for name in step.inputs if name != SCORE.name]
    if not all(t and t.dtype in MASKS and broadcasts(t.shape, full.shape) for t in besides):
        return False
    _, steps = scaled(scores.steps, types[0].shape[-1])
    return not any(key.rpartition(".")[0] == step.name for key in varying for step in steps)


def _right_size(reader: _Reader, scores: _Scores, last: Node) -> bool:
    query, key, value = _operands(reader, scores, last)
    if 0 in (*query.shape, *key.shape, *value.shape):
        return False
    return max(query.shape[-1], value.shape[-1]) <= WIDEST and prod(query.shape[:-2]) <= MOST_BATCHES


def scaled(steps: tuple[Node, ...], width: int) -> tuple[str, tuple[Node, ...]]:
    """Launcher text of the factor on the scores, 1 if it is not the usual one of heads of `width`, and the other steps."""
    if steps and bare(steps[0].op) in ("mul", "div") and steps[0].inputs == (SCORE.name,):
        args = arguments(steps[0])
        number = args["other"]
        if isinstance(number, (int, float)) and number > 0:
            factor = 1 / number if bare(steps[0].op) == "div" else number
            if isclose(factor, width**-0.5, rel_tol=1e-12):
                return DEFAULT, steps[1:]
    return "1.0", steps


def _joined(reader: _Reader, scores: _Scores, last: Node) -> tuple[Node, ...]:
    """The node in place of the last product, after the view that the key is where no node of the graph is the key."""
    query, right = scores.product.args[:2]
    source = reader.nodes[right.name]
    assert source.type is not None
    rank, added = len(source.type.shape), tuple[Node, ...]()
    if bare(source.op) == "transpose" and {d % rank for d in source.args[1:]} == {rank - 2, rank - 1}:
        key = source.args[0]
    else:
        key = Ref(f"{last.name}_key")
        meta = meta_of(source.type).transpose(-2, -1)
        kind = TensorType(tuple(meta.shape), source.type.dtype, tuple(meta.stride()))
        added = (Node(key.name, "aten.transpose.int", (right, -2, -1), type=kind),)
    steps = tuple((step.name, step.op, step.args, tuple(step.kwargs.items())) for step in scores.steps)
    softmax = any(bare(reader.nodes[name].op) in SOFTMAX for name in scores.inside)
    facts = {"steps": steps, "softmax": softmax}
    return *added, replace(last, op="attention", args=(query, key, last.args[1]), kwargs=facts)


def turned(graph: Graph) -> frozenset[str]:
    """Attentions whose only reader swaps heads and rows: [.., H, M, E] is wanted as [.., M, H, E]."""
    reader = _Reader.of(graph)
    named = [node for node in graph.nodes if bare(node.op) in ("attention", "scaled_dot_product_attention")]
    return frozenset(node.name for node in named if (user := reader.only(node.name)) and _swaps(user))


def _swaps(node: Node) -> bool:
    if node.type is None or (rank := len(node.type.shape)) < 3:
        return False
    order = [*range(rank)]
    order[-3], order[-2] = order[-2], order[-3]
    if bare(node.op) == "transpose":
        return {d % rank for d in node.args[1:]} == {rank - 3, rank - 2}
    return bare(node.op) == "permute" and [d % rank for d in node.args[1]] == order
