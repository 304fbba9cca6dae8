"""Reductions and moments: which template, over which extents, in one step or in two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from mtmc.frames import Frame
from mtmc.graph import Node, Ref, TensorType
from mtmc.lower.builder import FLOATS, Builder, NotMine, compute_type
from mtmc.lower.rules_pointwise import arguments

MANY_ROWS = 1024  # programs that keep any GPU busy
LONG_STEP = 4096  # elements that a program of the first of two steps should have at least …
SHORT_STEP = 512  # … and where the alternative divides every index by an extent
PLAIN = (256, 1)  # tile and warps of a row before any step
JOIN = (4096, 8)  # … and of rows that are too few for all SMs, so that each can do with more
FEW_ROWS = 128

# kind: (identity for floats, combine, finish)
KINDS = {
    "sum": ("0.0", "op_add", "op_sum_over"),
    "prod": ("1.0", "op_keep_product", "op_prod_over"),
    "max": ('float("-inf")', "op_keep_max", "op_max_over"),
    "min": ('float("inf")', "op_keep_min", "op_min_over"),
}


@dataclass(frozen=True)
class Over:
    """What a reduction runs over: dimensions in ascending order, and whether they stay with size 1.

    `tile` is the block and the warps of a kernel over rows.
    """

    dims: list[int]
    keepdim: bool = False
    tile: tuple[int, int] = PLAIN


def shape_text(name: str, dims: list[int], rank: int, keepdim: bool) -> str:
    """Launcher text of the reduced shape, read from the operand."""
    parts = [f"{name}.shape[{d}]" if d not in dims else "1" for d in range(rank) if keepdim or d not in dims]
    return f"({', '.join(parts)},)" if parts else "()"


def extent(name: str, first: int, last: int) -> str:
    """Launcher text of the product of dimensions first … last-1."""
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


def two_steps(b: Builder, name: str, have: TensorType, dims: list[int]) -> tuple[list[int], list[int]] | None:
    """(inner, outer) dimensions of a reduction over `dims` in two steps: rows of the inner ones, then what these gave.

    That fills the GPU where there are few results, walks memory in order where the reduced dimensions have others between
    them, and leaves operands that broadcast over the outer dimensions one address a row. None where one step is better.
    """
    rank = len(have.shape)
    inside = [d for d in dims if all(e in dims for e in range(d, rank))]
    if len(inside) < len(dims) and inside:
        if b.choose(f"{name}.steps", prod(have.shape[d] for d in inside) >= SHORT_STEP):
            return inside, [d for d in dims if d not in inside]
        return None
    if not inside or not b.choose(f"{name}.few", have.numel < MANY_ROWS * prod(have.shape[d] for d in dims)):
        return None
    for first in reversed(inside[1:]):
        length = prod(have.shape[first:])
        if b.choose(f"{name}.from_{first}", length >= LONG_STEP and have.numel >= MANY_ROWS * length):
            return [d for d in dims if d >= first], [d for d in dims if d < first]
    return None


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
    """A reduction over some dimensions of `source`, of one kernel or of two; `kind` is a key of KINDS."""
    source = b.dense(source)
    have = b.type(source)
    steps = two_steps(b, name, have, over.dims)
    if steps is None:
        return _reduce(b, name, kind, source, replace(over, tile=_tile(b, name, have, over.dims)), dtype)
    inner, outer = steps
    wide = compute_type(dtype or have.dtype) if (dtype or have.dtype) in FLOATS else dtype
    rows = _reduce(b, f"{name}_rows", kind, source, Over(inner, over.keepdim), wide)
    final = dtype or (have.dtype if have.dtype in FLOATS else "")
    tile = _tile(b, f"{name}_join", b.type(rows), outer)
    return _reduce(b, name, kind, rows, Over(outer, over.keepdim, tile), final)


def _tile(b: Builder, name: str, have: TensorType, dims: list[int]) -> tuple[int, int]:
    """Block and warps over rows: few of them want as many loads in flight as there can be."""
    length = prod(have.shape[d] for d in dims)
    few = PLAIN[0] < length <= 8 * JOIN[0] and have.numel <= FEW_ROWS * length
    return JOIN if b.choose(f"{name}.tile", few) else PLAIN


def _reduce(b: Builder, name: str, kind: str, source: str, over: Over, dtype: str) -> str:
    """One reduction kernel."""
    dims, keepdim = over.dims, over.keepdim
    have = b.type(source)
    rank = len(have.shape)
    if rank == 0 or prod(have.shape) == 0:
        raise NotMine("reduction of a scalar or of nothing")
    suffix, frame = layout(dims, rank)
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
        cols=extent(source, *cols_from["col"]), reds=extent(source, *cols_from.get("red", (0, 0))),
        identity=identity, combine=combine, finish=finish, acc=acc, tile=over.tile,
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
        cols=extent(source, *places["col"]), reds=extent(source, *places.get("red", (0, 0))),
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
    if have.dtype not in FLOATS:
        raise NotMine("variance of integers")
    steps = two_steps(b, name, have, dims)
    if steps is None:
        return _moments(b, name, source, Over(dims, keepdim))
    inner, outer = steps
    means, variances = _moments(b, f"{name}_rows", source, Over(inner, keepdim))
    return _joined(b, name, (means, variances), Over(outer, keepdim))


def _moments(b: Builder, name: str, source: str, over: Over) -> tuple[str, str]:
    """One kernel for both."""
    dims, have = over.dims, b.type(source)
    rank = len(have.shape)
    suffix, frame = layout(dims, rank)
    places = {c: (i, j) for c, i, j in frame}
    pair = b.unit(
        f"{name}_moments", f"moments.{suffix}", [source], _kept(have, over), body=source, frame_in=frame, frame_out=(),
        shape=shape_text(source, dims, rank, over.keepdim), cols=extent(source, *places["col"]),
        reds=extent(source, *places.get("red", (0, 0))), acc=compute_type(have.dtype),
        results=(f"{name}_mean", f"{name}_var"),
    )  # fmt: skip
    return _parts(b, name, pair)


def _joined(b: Builder, name: str, parts: tuple[str, str], over: Over) -> tuple[str, str]:
    """Mean and variance of sets of equal size, given by their means and variances, over `over.dims` of these."""
    means, have = parts[0], b.type(parts[0])
    _, frame = layout(over.dims, len(have.shape))
    places = {c: (i, j) for c, i, j in frame}
    red = places.get("red", places["col"])
    col = places["col"] if "red" in places else (0, 0)
    pair = b.unit(
        f"{name}_moments", "moments.join", list(parts), _kept(have, over), frame_in=frame, frame_out=(),
        shape=shape_text(means, over.dims, len(have.shape), over.keepdim), cols=extent(means, *col),
        reds=extent(means, *red), acc=have.dtype, results=(f"{name}_mean", f"{name}_var"),
    )  # fmt: skip
    return _parts(b, name, pair)


def _kept(have: TensorType, over: Over) -> TensorType:
    """The type of moments of `have`."""
    shape = tuple(1 if d in over.dims else s for d, s in enumerate(have.shape) if over.keepdim or d not in over.dims)
    return TensorType(shape, compute_type(have.dtype))


def _parts(b: Builder, name: str, pair: str) -> tuple[str, str]:
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
