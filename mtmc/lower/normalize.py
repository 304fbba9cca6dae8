"""ATen graph -> primitive graph: each node becomes kernels of the templates, a view, or stays a PyTorch call, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtmc.graph import Graph, Node, Ref, TensorType, walk
from mtmc.lower import rules_attention as attention
from mtmc.lower import rules_contraction as contraction
from mtmc.lower import rules_einsum as einsum
from mtmc.lower import rules_loss as loss
from mtmc.lower import rules_norm as norm
from mtmc.lower import rules_pointwise as pointwise
from mtmc.lower import rules_reduction as reduction
from mtmc.lower import rules_scan as scan
from mtmc.lower import rules_view as view
from mtmc.lower.attention_chain import joined, turned
from mtmc.lower.builder import FLOATS, Builder, NotMine, contiguous

Rule = Callable[[Builder, Node, TensorType], str]

RULES: dict[str, Rule] = {
    **dict.fromkeys([*pointwise.FORMULAS, "gelu", "pow", "clamp"], pointwise.pointwise),
    **dict.fromkeys(("_to_copy", "to", "type_as"), pointwise.cast),
    **dict.fromkeys([*view.METHODS, "slice"], view.view),
    **dict.fromkeys(view.NOTHING, view.nothing),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "prod", "max", "min"), reduction.reduction),
    **dict.fromkeys(("argmax", "argmin"), reduction.arg_reduction),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), norm.softmax),
    **dict.fromkeys(("var", "std"), reduction.variance),
    "linalg_vector_norm": reduction.vector_norm,
    "logsumexp": reduction.logsumexp,
    "layer_norm": norm.layer_norm,
    "group_norm": norm.group_norm,
    "instance_norm": norm.instance_norm,
    "rms_norm": norm.rms_norm,
    **dict.fromkeys(("mm", "bmm", "matmul"), contraction.matmul),
    **dict.fromkeys(("addmm", "baddbmm"), contraction.addmm),
    "linear": contraction.linear,
    "einsum": einsum.einsum,
    "scaled_dot_product_attention": attention.scaled_dot_product,
    "attention": attention.written_out,
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"), loss.elementwise),
    "cross_entropy_loss": loss.cross_entropy,
    "triplet_margin_loss": loss.triplet_margin,
    "cosine_similarity": loss.cosine_similarity,
    **dict.fromkeys(("cumsum", "cumprod"), scan.scan),
    "flip": scan.flip,
    "cat": scan.cat,
    "stack": view.stack,
    **dict.fromkeys(("embedding", "index_select", "index"), view.lookup),
    "gather": view.gather,
}
COPIES = ("clone", "_to_copy", "lift_fresh_copy")  # not done unless a result would be an input's memory
NAMES = {  # each to one of its own, in this order
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm_fixed",
    "_native_batch_norm_legit": "batch_norm_plain",
}
# Operators with several results: (rule of one result by index).
PARTS: dict[str, Callable[[Builder, Node, int, TensorType], str]] = {
    "max": reduction.extremum_with_index,
    "min": reduction.extremum_with_index,
    "_native_batch_norm_legit": norm.batch_norm,
    "_native_batch_norm_legit_functional": norm.batch_norm,
    "_native_batch_norm_legit_no_training": norm.batch_norm,
    "split": view.split,
    "split_with_sizes": view.split,
    "unbind": view.unbind,
    "broadcast_tensors": view.broadcast,
}


@dataclass(frozen=True)
class Normalized:
    """The primitive graph, SIZES at this size, why nodes stayed PyTorch calls (by node name), and choices by size."""

    graph: Graph
    sizes: dict[str, Any]
    reasons: dict[str, str]
    choices: dict[str, bool]


def normalize(graph: Graph, varying: frozenset[str] = frozenset(), choices: dict[str, bool] | None = None) -> Normalized:
    """Rewrites every node; `choices` are those made at the full size, to be made again."""
    b = Builder(varying, choices=dict(choices or {}))
    graph = joined(graph, b)
    b.turned = turned(graph)
    reasons: dict[str, str] = {}
    for node in graph.nodes:
        if node.op in ("input", "state", "constant"):
            name = b.fresh(node.target if node.op == "input" else node.name)
            b.aliases[node.name] = b.add(replace(node, name=name))
        else:
            _rewrite(b, node, graph, reasons)
    finished = _finished(graph, b)
    names = {node.name for node in finished.nodes}
    kept = {name: reason for name, reason in reasons.items() if b.aliases[name] in names}
    return Normalized(finished, b.sizes, kept, b.choices)


def _rewrite(b: Builder, node: Node, graph: Graph, reasons: dict[str, str]) -> None:
    """One operator: by its rule, or as a PyTorch call with the reason noted."""
    resolved = replace(_resolved(node, b.aliases), name=_short(node.name))
    before = dict(b.nodes), dict(b.sizes)
    try:
        result = _apply(b, resolved, graph)
    except NotMine as reason:
        b.nodes, b.sizes = before
        result = _call(b, resolved)
        if node.type is not None or node.op != "getitem":
            reasons[node.name] = str(reason)
    b.aliases[node.name] = result


def _short(name: str) -> str:
    """A name of the graph in the length that a reader likes."""
    for long, short in NAMES.items():
        name = name.replace(long, short)
    return name


# Overloads that are another operator by nature.
SYNONYMS = {"aten.max.other": "aten.maximum.default", "aten.min.other": "aten.minimum.default"}


def _apply(b: Builder, node: Node, graph: Graph) -> str:
    node = replace(node, op=SYNONYMS.get(node.op, node.op))
    if node.op == "getitem":
        return _part(b, node)
    base = node.op.split(".")[1] if node.op.startswith("aten.") else node.op
    if base in PARTS and node.type is None:
        b.add(Node(f"{node.name}__parts", "pending", node.args, {**node.kwargs, "op": node.op, "name": node.name}))
        return f"{node.name}__parts"
    if node.type is None or base not in RULES:
        raise NotMine(f"no template for {node.op}")
    if base == "add" and node.type.shape == () and node.type.dtype == "int64":
        raise NotMine("a counter")
    if base not in view.METHODS and node.type.dtype not in (*FLOATS, "int64", "int32", "bool"):
        raise NotMine(f"results of type {node.type.dtype}")
    return RULES[base](b, node, node.type)


def _part(b: Builder, node: Node) -> str:
    """One result of an operator with several."""
    source, index = node.args[0].name, node.args[1]
    pending = b.nodes.get(source)
    if pending is None or pending.op != "pending" or node.type is None:
        raise NotMine("element of a tuple")
    whole = Node(
        pending.kwargs["name"],
        pending.kwargs["op"],
        pending.args,
        {k: v for k, v in pending.kwargs.items() if k not in ("op", "name")},
    )
    return PARTS[whole.op.split(".")[1]](b, whole, index, node.type)


def _resolved(node: Node, aliases: dict[str, str]) -> Node:
    def visit(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(aliases.get(value.name, value.name))
        if isinstance(value, (tuple, list)):
            return tuple(visit(v) for v in value)
        return value

    return Node(node.name, node.op, visit(node.args), {k: visit(v) for k, v in node.kwargs.items()}, node.type, node.target)


def _call(b: Builder, node: Node) -> str:
    """The node as a PyTorch call; an element of a tuple or a small constant is no operator of its own."""
    if node.op == "getitem":
        source = node.args[0].name
        if b.nodes[source].op == "pending":
            b.nodes[source] = _torch_node(b, source, b.nodes[source])
        return b.add(Node(b.fresh(node.name), "item", node.args, {"call": f"{source}[{node.args[1]}]"}, node.type))
    made = _torch_node(b, b.fresh(node.name), node)
    return b.add(made)


def _torch_node(b: Builder, name: str, node: Node) -> Node:
    kwargs = {k: v for k, v in node.kwargs.items() if k not in ("op", "name")}
    op = node.kwargs.get("op", node.op)
    original = node.kwargs.get("name", node.name)
    numbers = {f"{original}.{k}": v for k, v in (*enumerate(node.args), *kwargs.items())}
    used = {k: v for k, v in numbers.items() if k in b.varying}
    b.sizes.update(used)
    return Node(name, "torch", node.args, {"op": op, "kwargs": kwargs, "key": original, "sizes": tuple(used)}, node.type)


def _finished(graph: Graph, b: Builder) -> Graph:
    """Only what the results need, in order; output and mutations renamed."""

    def visit(value: Any) -> Any:
        if isinstance(value, Ref):
            return Ref(b.aliases.get(value.name, value.name))
        if isinstance(value, dict):
            return {k: visit(v) for k, v in value.items()}
        return type(value)(visit(v) for v in value) if isinstance(value, (tuple, list)) else value

    laid = {ref.name: _laid_out(graph, b, ref.name) for ref in walk(graph.output)}
    b.aliases |= laid
    output = visit(graph.output)
    mutations = {path: _unshared(b, b.aliases.get(name, name)) for path, name in graph.mutations.items()}
    needed = {r.name for r in walk(output)} | set(mutations.values())
    for node in reversed(list(b.nodes.values())):
        if node.name in needed:
            needed.update(node.inputs)
    nodes = tuple(n for n in b.nodes.values() if n.name in needed or n.op == "input")
    return Graph(nodes, output, mutations)


def _unshared(b: Builder, name: str) -> str:
    """A buffer's new value in memory of its own: what is another buffer's memory may be written before it is read."""
    kind = b.type(name)
    if _owner(b, name).op != "state" or len(kind.shape) > 5:
        return name
    facts = {"template": "movement.copy"}
    return b.add(Node(b.fresh(f"{name}_kept"), "unit", (Ref(name),), facts, contiguous(kind.shape, kind.dtype)))


def _owner(b: Builder, name: str) -> Node:
    """The node whose memory a value is: itself, or what it is a view of."""
    node = b.nodes[name]
    while node.op == "view":
        node = b.nodes[node.inputs[0]]
    return node


def _laid_out(graph: Graph, b: Builder, result: str) -> str:
    """The value of a result with eager's strides, and in memory of its own where eager copied."""
    name = b.aliases.get(result, result)
    have, want = b.nodes[name].type, graph[result].type
    if have is None or want is None or not 0 < len(want.shape) <= 5:
        return name
    order = tuple(sorted(range(len(want.shape)), key=lambda d: -want.strides[d]))
    expected = contiguous([want.shape[d] for d in order], want.dtype).strides
    long = [d for d in range(len(want.shape)) if want.shape[d] > 1]
    dense = all(want.strides[d] == expected[order.index(d)] for d in long)
    strides = have.strides or contiguous(have.shape, have.dtype).strides
    if not dense or all(strides[d] == want.strides[d] for d in long) and not _lost_copy(graph, b, result):
        return name
    facts = {"template": "movement.restride", "extra": (order,)}
    return b.add(Node(b.fresh(f"{name}_result"), "unit", (Ref(name),), facts, want))


def _lost_copy(graph: Graph, b: Builder, result: str) -> bool:
    """Whether a result is memory of an input or of the model's state although eager made a copy on the way."""
    if _owner(b, b.aliases.get(result, result)).op not in ("input", "state"):
        return False
    source = graph[result]
    while source.op not in ("input", "state"):
        if source.op.split(".")[1] in COPIES:
            return True
        source = graph[source.inputs[0]]
    return False


def varying_arguments(full: Graph, others: Sequence[Graph]) -> frozenset[str]:
    """Keys `node.argument` whose plain values differ between the sizes."""
    found = set()
    for other in others:
        for mine, theirs in zip(full.nodes, other.nodes, strict=True):
            if mine.op in ("input", "state"):
                continue
            left, right = _named(mine), _named(theirs)
            found |= {f"{mine.name}.{k}" for k in left if repr(left[k]) != repr(right.get(k))}  # repr: NaN equals itself
    return frozenset(found)


def _named(node: Node) -> dict[Any, Any]:
    """Arguments by schema name and by position."""
    by_place = dict(enumerate(node.args)) | dict(node.kwargs)
    if not node.op.startswith("aten."):
        return by_place
    return by_place | pointwise.arguments(node)
