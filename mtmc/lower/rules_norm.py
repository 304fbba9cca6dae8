"""Softmax and normalisations: which template, over which extents."""

from __future__ import annotations

from math import prod
from typing import Any

from mtmc.frames import Frame
from mtmc.graph import Node, Ref, TensorType
from mtmc.lower.builder import FLOATS, Builder, NotMine, compute_type, literal
from mtmc.lower.rules_pointwise import arguments
from mtmc.lower.rules_reduction import Over, extent, layout, moments, reduce

FEW_ROWS = 512  # programs of one row each below which a large GPU stays half empty
LONG_ROW = 2**20  # elements beyond which one program a row leaves the last round of a GPU half empty


def softmax(b: Builder, node: Node, type: TensorType) -> str:
    args = arguments(node)
    return softmax_over(b, node.name, args["self"].name, args["dim"], "log" in node.op, type.dtype)


def softmax_over(b: Builder, name: str, source: str, dim: int, log: bool = False, dtype: str = "") -> str:
    """Softmax of `source`, or its logarithm, along one dimension."""
    source = b.dense(source)
    have = b.type(source)
    rank = len(have.shape)
    if have.dtype not in FLOATS or rank == 0:
        raise NotMine("softmax of integers")
    dim, type = dim % rank, TensorType(have.shape, dtype or have.dtype)
    suffix, frame = layout([dim], rank)
    finish = "operand - top - tl.log(norm)" if log else "tl.exp(operand - top) / norm"
    return b.unit(
        name, f"normalization.softmax_{suffix}", [source], type, body=source, finish=finish, frame_in=frame,
        frame_out=frame, acc=compute_type(have.dtype), cols=extent(source, *frame[-1][1:]),
        reds=f"{source}.shape[{dim}]", shape=f"{source}.shape",
    )  # fmt: skip


def nll(b: Builder, name: str, source: str, target: str) -> str:
    """-log_softmax(source)[i, target[i]] of each row i, nothing but that is stored; a target outside gives any number."""
    source, target = b.dense(source), b.dense(target)
    have = b.type(source)
    frame: Frame = (("row", 0, 1), ("col", 1, 2))
    return b.unit(
        name, "normalization.nll_row", [source, target], TensorType(have.shape[:1], have.dtype), body=source, frame_in=frame,
        frame_out=(("row", 0, 1),), acc=compute_type(have.dtype), cols=f"{source}.shape[1]", shape=f"{source}.shape[:1]",
    )  # fmt: skip


Weights = tuple[Ref | None, Ref | None]


def _weights(args: dict[str, Any]) -> Weights:
    return args["weight"], args.get("bias")


def _affine(b: Builder, name: str, value: str, weights: Weights, tail: tuple[int, ...]) -> str:
    """value * weight + bias, each in its own kernel, where they are given; `tail` is the shape they broadcast in."""
    weight, bias = weights
    type = b.type(value)
    for ref, sign, last in ((weight, "*", bias is None), (bias, "+", True)):
        if ref is None:
            continue
        operand = ref.name
        if b.type(operand).shape != tail:
            operand = b.reshaped(operand, tail, f"({', '.join('-1' if s != 1 else '1' for s in tail)},)")
        value = b.pointwise(name if last else f"{name}_scaled", f"{value} {sign} {operand}", type)
    return value


def _normalize(b: Builder, name: str, source: str, split: int, eps: float, channels: int = 0) -> str:
    """(x - mean) / sqrt(var + eps) over the dimensions from `split` on, of which weights will cover those before `channels`.

    Few rows, or a few rounds of very long ones, cannot fill a GPU one program each: their statistics get a kernel of their
    own. Memory is read twice either way where rows fit no tile.
    """
    type = b.type(source)
    rank = len(type.shape)
    few = prod(type.shape[:split]) < FEW_ROWS
    if b.choose(f"{name}.apart", few or prod(type.shape[split:]) > LONG_ROW):
        mean, var = moments(b, name, source, list(range(split, rank)), True)
        rstd = b.pointwise(f"{name}_rstd", f"1.0 / tl.sqrt_rn({var} + {eps!r})", b.type(var))
        return b.pointwise(name, f"({source} - {mean}) * {rstd}", type, channels)
    frame: Frame = (("row", 0, split), ("col", split, rank))
    return b.unit(
        name, "normalization.normalize_row", [source], type, body=source, frame_in=frame, frame_out=frame,
        acc=compute_type(type.dtype), cols=extent(source, split, rank), eps=literal(eps), shape=f"{source}.shape",
    )  # fmt: skip


def _normal(name: str, args: dict[str, Any]) -> str:
    """The name of the normalised value: the node's own where no weights follow."""
    return name if _weights(args) == (None, None) else f"{name}_normal"


def layer_norm(b: Builder, node: Node, type: TensorType) -> str:
    args = arguments(node)
    source = b.dense(args["input"].name)
    split = len(type.shape) - len(args["normalized_shape"])
    value = _normalize(b, _normal(node.name, args), source, split, args["eps"])
    return _affine(b, node.name, value, _weights(args), tuple(args["normalized_shape"]))


def group_norm(b: Builder, node: Node, type: TensorType) -> str:
    """Rows are (sample, group): x seen as [N, G, C / G, …]."""
    args = arguments(node)
    source = b.dense(args["input"].name)
    n, c, *rest = type.shape
    groups = args["num_groups"]
    seen = (n, groups, c // groups, *rest)
    tail = "".join(f", {source}.shape[{d}]" for d in range(2, len(type.shape)))
    grouped = b.view(
        f"{node.name}_groups", f"{source}.view({source}.shape[0], {groups}, -1{tail})", source, TensorType(seen, type.dtype)
    )
    value = _normalize(b, f"{node.name}_rows", grouped, 2, args["eps"], 3 if rest else 2)
    back = b.view(f"{node.name}_flat", f"{value}.view({source}.shape)", value, TensorType(type.shape, type.dtype))
    if args["weight"] is None and args["bias"] is None:
        b.aliases[node.name] = back
        return back
    return _affine(b, node.name, back, _weights(args), (c, *(1 for _ in rest)))


def instance_norm(b: Builder, node: Node, type: TensorType) -> str:
    """Rows are (sample, channel)."""
    args = arguments(node)
    if not args["use_input_stats"] or args["running_mean"] is not None:
        raise NotMine("instance norm with running statistics")
    source = b.dense(args["input"].name)
    value = _normalize(b, _normal(node.name, args), source, 2, args["eps"])
    return _affine(b, node.name, value, _weights(args), (type.shape[1], *(1 for _ in type.shape[2:])))


def rms_norm(b: Builder, node: Node, type: TensorType) -> str:
    """x / sqrt(mean(x^2) + eps) * weight."""
    args = arguments(node)
    source = b.dense(args["input"].name)
    rank = len(type.shape)
    split = rank - len(args["normalized_shape"])
    dims = list(range(split, rank))
    eps = args["eps"] if args["eps"] is not None else 1.1920928955078125e-07
    wide = compute_type(type.dtype)
    squares = b.pointwise(f"{node.name}_square", f"{source} * {source}", TensorType(type.shape, wide))
    total = reduce(b, f"{node.name}_sum", "sum", squares, Over(dims, True))
    count = b.count_text(node.name, float(prod(type.shape[split:])))
    scale = b.pointwise(
        f"{node.name}_rms", f"1.0 / tl.sqrt_rn({total} / {count} + {eps!r})", TensorType(b.type(total).shape, wide)
    )
    value = b.pointwise(_normal(node.name, args), f"{source} * {scale}", type)
    return _affine(b, node.name, value, _weights(args), tuple(args["normalized_shape"]))


def batch_norm(b: Builder, node: Node, index: int, type: TensorType) -> str:
    """Result `index` of an ATen batch norm: 0 output, 3 new running mean, 4 new running variance."""
    args = arguments(node)
    source, name = args["input"].name, node.name
    have = b.type(source)
    if not args.get("training", False):
        if index or args["running_mean"] is None:
            raise NotMine("saved statistics of batch norm")
        return _batch_normalized(b, name, (args["running_mean"].name, args["running_var"].name), args, type)
    if f"{name}_mean" not in b.nodes:
        moments(b, name, source, [d for d in range(len(have.shape)) if d != 1], False)
    if index in (3, 4):
        momentum, old = args["momentum"], args["running_mean" if index == 3 else "running_var"].name
        count = prod(have.shape) // have.shape[1]
        fresh = f"{name}_mean" if index == 3 else f"{name}_var * {b.count_text(name, count / (count - 1))}"
        return b.pointwise(
            f"{name}_running_{'mean' if index == 3 else 'var'}", f"{old} * {1 - momentum!r} + {fresh} * {momentum!r}", type
        )
    if index:
        raise NotMine("saved statistics of batch norm")
    return _batch_normalized(b, name, (f"{name}_mean", f"{name}_var"), args, type)


def _batch_normalized(b: Builder, name: str, stats: tuple[str, str], args: dict[str, Any], type: TensorType) -> str:
    """(x - mean) / sqrt(var + eps) * weight + bias with the statistics (mean, var) of each channel."""
    source = args["input"].name
    channels = (type.shape[1], *(1 for _ in type.shape[2:]))
    text = f"({', '.join(['-1', *('1' for _ in channels[1:])])},)"
    rstd = b.pointwise(f"{name}_rstd", f"1.0 / tl.sqrt_rn({stats[1]} + {args['eps']!r})", b.type(stats[1]))
    mean, rstd = (b.reshaped(s, channels, text) for s in (stats[0], rstd))
    value = b.pointwise(_normal(name, args), f"({source} - {mean}) * {rstd}", type)
    return _affine(b, name, value, _weights(args), channels)
