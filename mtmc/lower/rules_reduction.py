"""Reductions, softmax and normalisations: which template, over which extents."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from mtmc.frames import Frame
from mtmc.graph import Node, Ref, TensorType
from mtmc.lower.builder import FLOATS, Builder, NotMine, compute_type, literal
from mtmc.lower.rules_pointwise import arguments

FEW_ROWS = 512  # programs of one row each below which a large GPU stays half empty

# kind: (identity for floats, combine, finish)
KINDS = {
    "sum": ("0.0", "op_add", "op_sum_over"),
    "prod": ("1.0", "op_keep_product", "op_prod_over"),
    "max": ('float("-inf")', "op_keep_max", "op_max_over"),
    "min": ('float("inf")', "op_keep_min", "op_min_over"),
}


@dataclass(frozen=True)
class Over:
    """What a reduction runs over: dimensions in ascending order, and whether they stay with size 1."""

    dims: list[int]
    keepdim: bool = False


def shape_text(name: str, dims: list[int], rank: int, keepdim: bool) -> str:
    """Launcher text of the reduced shape, read from the operand."""
    parts = [f"{name}.shape[{d}]" if d not in dims else "1" for d in range(rank) if keepdim or d not in dims]
    return f"({', '.join(parts)},)" if parts else "()"


def _extent(name: str, first: int, last: int) -> str:
    return " * ".join(f"{name}.shape[{d}]" for d in range(first, last)) or "1"


def layout(dims: list[int], rank: int) -> tuple[str, Frame]:
    """Template suffix and input frame for a reduction over `dims`."""
    first, last = dims[0], dims[-1] + 1
    kept = [d for d in range(rank) if d not in dims]
    if len(dims) == last - first:
        if last == rank:
            return "row", (("row", 0, first), ("col", first, rank))
        return "mid", (("row", 0, first), ("red", first, last), ("col", last, rank))
    if kept and kept[-1] - kept[0] + 1 == len(kept):
        return "chan", (("row", 0, kept[0]), ("red", kept[0], kept[-1] + 1), ("col", kept[-1] + 1, rank))
    raise NotMine(f"reduction over dimensions {dims} of {rank}")


def _check_extent(suffix: str, have: TensorType, dims: list[int]) -> None:
    """Kernels over the outer and inner extents count their elements in 32 bits."""
    if suffix == "chan" and prod(have.shape[d] for d in dims) >= 2**31:
        raise NotMine("2^31 elements or more a result")


def frame_after(frame: Frame, dims: list[int], rank: int, keepdim: bool) -> Frame:
    """The output's frame: the kept coordinates, over the dimensions they have in the output."""

    def position(d: int) -> int:
        return d if keepdim else d - sum(1 for e in dims if e < d)

    return tuple((c, position(i), position(j)) for c, i, j in frame if not any(i <= d < j for d in dims) and i < j)


def dims_of(value: object, rank: int) -> list[int]:
    if value is None or value == ():
        return list(range(rank))
    items = value if isinstance(value, (tuple, list)) else (value,)
    return sorted(d % rank if rank else 0 for d in items)


def reduce(b: Builder, name: str, kind: str, source: str, over: Over, dtype: str = "") -> str:
    """A reduction kernel over some dimensions of `source`; `kind` is a key of KINDS."""
    source, dims, keepdim = b.dense(source), over.dims, over.keepdim
    have = b.type(source)
    rank = len(have.shape)
    if rank == 0 or prod(have.shape) == 0:
        raise NotMine("reduction of a scalar or of nothing")
    suffix, frame = layout(dims, rank)
    _check_extent(suffix, have, dims)
    shape = tuple(1 if d in dims else s for d, s in enumerate(have.shape) if keepdim or d not in dims)
    out = dtype or (have.dtype if have.dtype in FLOATS else "int64")
    identity, combine, finish = KINDS[kind]
    if out not in FLOATS:
        if kind != "sum":
            raise NotMine(f"{kind} of integers")
        identity, combine = "0", "op_count"
    cols_from = {c: (i, j) for c, i, j in frame}
    acc = compute_type(out)
    return b.unit(
        name, f"reduction.{suffix}", [source], TensorType(shape, out), body=b.cast(source, acc), frame_in=frame,
        frame_out=frame_after(frame, dims, rank, keepdim), shape=shape_text(source, dims, rank, keepdim),
        cols=_extent(source, *cols_from["col"]), reds=_extent(source, *cols_from.get("red", (0, 0))),
        identity=identity, combine=combine, finish=finish, acc=acc,
    )  # fmt: skip


def reduction(b: Builder, node: Node, type: TensorType) -> str:
    """sum, mean, amax, amin, prod, max, min in their variants with one tensor result."""
    args = arguments(node)
    base = node.op.split(".")[1]
    source = args["self"].name
    rank = len(b.type(source).shape)
    over = Over(dims_of(args.get("dim"), rank), bool(args.get("keepdim", False)))
    if base == "mean":
        if b.type(source).dtype not in FLOATS:
            raise NotMine("mean of integers")
        total = reduce(b, f"{node.name}_sum", "sum", source, over, compute_type(type.dtype))
        count = float(prod(b.type(source).shape[d] for d in over.dims))
        return b.pointwise(node.name, f"{total} / {b.count_text(node.name, count)}", type)
    kind = {"sum": "sum", "amax": "max", "amin": "min", "max": "max", "min": "min", "prod": "prod"}[base]
    return reduce(b, node.name, kind, source, over, type.dtype)


def extremum_with_index(b: Builder, node: Node, index: int, type: TensorType) -> str:
    """One of the two results of max/min along a dimension."""
    args = arguments(node)
    base = node.op.split(".")[1]
    source = args["self"].name
    over = Over(dims_of(args["dim"], len(b.type(source).shape)), args["keepdim"])
    if index == 0:
        return reduce(b, f"{node.name}_values", base, source, over, type.dtype)
    return _arg(b, f"{node.name}_indices", base, source, over, type)


def arg_reduction(b: Builder, node: Node, type: TensorType) -> str:
    args = arguments(node)
    source = args["self"].name
    over = Over(dims_of(args["dim"], len(b.type(source).shape)), args["keepdim"])
    return _arg(b, node.name, node.op.split(".")[1].removeprefix("arg"), source, over, type)


def _arg(b: Builder, name: str, kind: str, source: str, over: Over, type: TensorType) -> str:
    source, dims, keepdim = b.dense(source), over.dims, over.keepdim
    have = b.type(source)
    if have.dtype not in FLOATS:
        raise NotMine("index of an extremum of integers")
    rank = len(have.shape)
    suffix, frame = layout(dims, rank)
    places = {c: (i, j) for c, i, j in frame}
    return b.unit(
        name, f"arg_reduction.{suffix}", [source], type, body=source, frame_in=frame,
        frame_out=frame_after(frame, dims, rank, keepdim), shape=shape_text(source, dims, rank, keepdim),
        cols=_extent(source, *places["col"]), reds=_extent(source, *places.get("red", (0, 0))),
        identity=KINDS[kind][0], better="op_greater" if kind == "max" else "op_less", finish=KINDS[kind][2],
        acc=compute_type(have.dtype),
    )  # fmt: skip


def vector_norm(b: Builder, node: Node, type: TensorType) -> str:
    """linalg_vector_norm of order 1, 2 or inf."""
    args = arguments(node)
    source, order = args["self"].name, args["ord"]
    have = b.type(source)
    over = Over(dims_of(args["dim"], len(have.shape)), bool(args["keepdim"]))
    name, wide = node.name, compute_type(type.dtype)
    if order == 2:
        squares = b.pointwise(f"{name}_square", f"{source} * {source}", TensorType(have.shape, wide))
        total = reduce(b, f"{name}_sum", "sum", squares, over)
        return b.pointwise(name, f"tl.sqrt_rn({total})", type)
    if order not in (1, float("inf")):
        raise NotMine(f"norm of order {order}")
    magnitude = b.pointwise(f"{name}_abs", f"tl.abs({source})", TensorType(have.shape, wide))
    return reduce(b, name, "sum" if order == 1 else "max", magnitude, over, type.dtype)


def logsumexp(b: Builder, node: Node, type: TensorType) -> str:
    """m + log(sum(exp(x - m))), m = max x (0 where infinite)."""
    args = arguments(node)
    source = args["self"].name
    have = b.type(source)
    dims = dims_of(args["dim"], len(have.shape))
    top = reduce(b, f"{node.name}_max", "max", source, Over(dims, True))
    kept = b.type(top).shape
    top = b.pointwise(
        f"{node.name}_top", f'tl.where(tl.abs({top}) == float("inf"), 0.0, {top})', TensorType(kept, have.dtype)
    )
    terms = b.pointwise(f"{node.name}_exp", f"tl.exp({source} - {top})", have)
    total = reduce(b, f"{node.name}_sum", "sum", terms, Over(dims, True))
    if args["keepdim"]:
        return b.pointwise(node.name, f"{top} + tl.log({total})", type)
    full = b.pointwise(f"{node.name}_full", f"{top} + tl.log({total})", TensorType(kept, type.dtype))
    return b.reshaped_as(node.name, full, type, shape_text(b.dense(source), dims, len(have.shape), False))


def moments(b: Builder, name: str, source: str, dims: list[int], keepdim: bool) -> tuple[str, str]:
    """Mean and biased variance over `dims`, as two nodes."""
    source = b.dense(source)
    have = b.type(source)
    rank = len(have.shape)
    suffix, frame = layout(dims, rank)
    if suffix == "mid" and frame[0][1] == frame[0][2]:  # leading dimensions only: channels are the rest
        suffix, frame = "chan", (("row", 0, dims[-1] + 1), ("red", dims[-1] + 1, rank), ("col", rank, rank))
    _check_extent(suffix, have, dims)
    if suffix == "mid" or have.dtype not in FLOATS:
        raise NotMine(f"variance over dimensions {dims} of {rank}")
    places = {c: (i, j) for c, i, j in frame}
    shape = tuple(1 if d in dims else s for d, s in enumerate(have.shape) if keepdim or d not in dims)
    wide = compute_type(have.dtype)
    pair = b.unit(
        f"{name}_moments", f"moments.{suffix}", [source], TensorType(shape, wide), body=source, frame_in=frame, frame_out=(),
        shape=shape_text(source, dims, rank, keepdim), cols=_extent(source, *places["col"]),
        reds=_extent(source, *places.get("red", (0, 0))), acc=wide, results=(f"{name}_mean", f"{name}_var"),
    )  # fmt: skip
    type = b.type(pair)
    mean, var = (b.add(Node(b.fresh(f"{name}_{part}"), "part", (Ref(pair),), {}, type)) for part in ("mean", "var"))
    return mean, var


def variance(b: Builder, node: Node, type: TensorType) -> str:
    """var and std with any correction."""
    args = arguments(node)
    source = args["self"].name
    have = b.type(source)
    dims = dims_of(args.get("dim"), len(have.shape))
    correction = args.get("correction", 1 if args.get("unbiased", True) else 0)
    correction = 1 if correction is None else correction
    _, var = moments(b, node.name, source, dims, bool(args.get("keepdim", False)))
    count = prod(have.shape[d] for d in dims)
    if count <= correction:
        raise NotMine("variance of too few elements")
    scale = b.count_text(node.name, count / (count - correction))
    body = var if not correction else f"{var} * {scale}"
    if node.op.split(".")[1] == "std":
        body = f"tl.sqrt_rn({body})"
    return b.pointwise(node.name, body, type)


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
        frame_out=frame, acc=compute_type(have.dtype), cols=_extent(source, *frame[-1][1:]),
        reds=f"{source}.shape[{dim}]", shape=f"{source}.shape",
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


def _normalize(b: Builder, name: str, source: str, split: int, eps: float) -> str:
    """(x - mean) / sqrt(var + eps) over the dimensions from `split` on.

    Few long rows cannot fill a GPU one program each: their statistics get a kernel of their own, which can be split.
    """
    type = b.type(source)
    rank = len(type.shape)
    if b.choose(f"{name}.few_rows", prod(type.shape[:split]) < FEW_ROWS):
        mean, var = moments(b, name, source, list(range(split, rank)), True)
        rstd = b.pointwise(f"{name}_rstd", f"1.0 / tl.sqrt_rn({var} + {eps!r})", b.type(var))
        return b.pointwise(name, f"({source} - {mean}) * {rstd}", type)
    frame: Frame = (("row", 0, split), ("col", split, rank))
    return b.unit(
        name, "normalization.normalize_row", [source], type, body=source, frame_in=frame, frame_out=frame,
        acc=compute_type(type.dtype), cols=_extent(source, split, rank), eps=literal(eps), shape=f"{source}.shape",
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
    value = _normalize(b, f"{node.name}_rows", grouped, 2, args["eps"])
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
