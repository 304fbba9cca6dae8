"""How many bytes an algorithm must move: each tensor once for every pass over it that cannot be avoided.

A reduction and a later use of what was reduced (softmax, a norm, `x / x.norm()`) need the data twice. Where one slice, the
elements that are reduced to one result, fits in the last-level cache, the second look comes from there and memory is read
once. Where it does not, the data is read again: an input once more; the result of a heavy operation, which nobody computes
twice, is written and read back. Moments, or a maximum and a sum, come of one pass (Welford 1962; Milakov & Gimelshein 2018),
so reductions of one tensor written one after the other count as one. What is doubtful counts as free.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod

from mtmc.graph import Graph, Node, TensorType, bare

HEAVY = (
    *("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "einsum", "mv", "addmv", "dot", "inner", "outer", "bilinear"),
    *("conv", "_convolution", "scaled_dot_product", "_scaled_dot_product", "lstm", "gru", "rnn_", "cdist", "embedding_bag"),
    *("max_pool", "avg_pool", "adaptive_", "fractional_max_pool", "lp_pool", "im2col", "col2im", "grid_sampler", "upsample"),
    *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort", "topk", "fft_"),
)
"""Operators (by prefix) that do more than look at each element as it streams by: products, windows, scans, sorts."""

NORMS = (
    *("softmax", "log_softmax", "_softmax", "_log_softmax", "layer_norm", "native_layer_norm", "rms_norm", "group_norm"),
    *("native_group_norm", "instance_norm", "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "normalize"),
)
"""Operators (by prefix) that reduce their first operand and use it again."""

REDUCTIONS = (
    *("sum", "mean", "amax", "amin", "max", "min", "prod", "var", "std", "norm", "linalg_vector_norm", "argmax", "argmin"),
    *("logsumexp", "nansum", "any", "all", "count_nonzero", "aminmax", "frobenius_norm"),
)
"""Operators whose result has one element a slice of their operand; elementwise where it has as many."""


def heavy(op: str) -> bool:
    """Whether an ATen operator is heavy work: see `HEAVY`; norms, softmaxes and reductions are as well."""
    name = bare(op)
    return name.startswith((*HEAVY, *NORMS)) or name in REDUCTIONS or name.endswith("_loss")


@dataclass
class _Value:
    """What a value is made of: `roots` it streams from, and the largest slice (bytes) of each root reduced on the way."""

    roots: frozenset[str] = frozenset()
    reduced: dict[str, float] = field(default_factory=dict)


def extra_bytes(graph: Graph, cache_bytes: float) -> tuple[float, float]:
    """(bytes read, bytes written) beyond inputs, parameters and outputs once, for a cache of so many bytes."""
    values: dict[str, _Value] = {}
    norms: list[str] = []
    met: set[str] = set()  # once a root: reductions that follow one another may come of one pass
    for node in graph.nodes:
        given = [values[name] for name in node.inputs]
        if not _norm(node):
            met |= _met(given, cache_bytes)
        elif given and _slice_bytes(graph, node) > cache_bytes:
            norms += given[0].roots
        values[node.name] = _after(graph, node, given)
    again = Counter([*norms, *met])
    nodes = {node.name: node for node in graph.nodes}
    stored = [type_bytes(nodes[root].type) for root in again if nodes[root].op not in ("input", "state")]
    return sum(type_bytes(nodes[root].type) * count for root, count in again.items()), sum(stored)


def _after(graph: Graph, node: Node, given: list[_Value]) -> _Value:
    if node.op in ("input", "state") or bare(node.op).startswith(HEAVY):
        return _Value(frozenset((node.name,)))
    roots, reduced = frozenset[str]().union(*(v.roots for v in given)), dict[str, float]()
    for value in given:
        for root, size in value.reduced.items():
            reduced[root] = max(size, reduced.get(root, 0.0))
    size = _slice_bytes(graph, node)
    if bare(node.op) not in REDUCTIONS or not size:
        return _Value(roots, reduced)
    return _Value(frozenset(), reduced | {root: max(size, reduced.get(root, 0.0)) for root in roots})


def _met(given: list[_Value], cache_bytes: float) -> set[str]:
    """Roots whose large slices were reduced and meet here what they were reduced from."""
    streamed = frozenset[str]().union(*(value.roots for value in given))
    return {root for v in given for root, size in v.reduced.items() if root in streamed and size > cache_bytes}


def _norm(node: Node) -> bool:
    name = bare(node.op)
    return name.startswith(NORMS) and "no_training" not in name and not (name == "batch_norm" and node.args[5] is False)


def _slice_bytes(graph: Graph, node: Node) -> float:
    """Bytes of the first operand that are reduced to one result; 0 where that is not known."""
    operand = graph[node.inputs[0]].type if node.inputs else None
    if operand is None or not operand.numel:
        return 0.0
    slices = _slices(node, operand) if _norm(node) else node.type.numel if node.type else operand.numel
    return type_bytes(operand) / slices if slices < operand.numel else 0.0


def _slices(node: Node, operand: TensorType) -> int:
    """How many independent parts a norm has."""
    name, shape = bare(node.op), operand.shape
    if "softmax" in name:
        dim = int(node.args[1])
        return operand.numel // int(shape[dim]) if shape else 1
    if "batch_norm" in name:
        return shape[1]
    if "instance_norm" in name:
        return shape[0] * shape[1]
    if name == "group_norm":
        return shape[0] * int(node.args[1])
    if name in ("layer_norm", "rms_norm", "native_layer_norm"):
        return operand.numel // int(prod(node.args[1]))
    return operand.numel  # of another form: as if nothing were reduced


def type_bytes(kind: TensorType | None) -> float:
    """Bytes of a dense tensor of this type; 0 for what is none."""
    import torch

    if kind is None:
        return 0.0
    dtype: torch.dtype = getattr(torch, kind.dtype)
    return float(kind.numel * dtype.itemsize)
