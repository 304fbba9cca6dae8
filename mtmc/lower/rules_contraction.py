"""Matrix products and contractions."""

from __future__ import annotations

from math import prod

from mtmc.frames import Frame
from mtmc.graph import Node, TensorType
from mtmc.lower.builder import FLOATS, Builder, NotMine, contiguous
from mtmc.lower.rules_pointwise import arguments

MOST_BATCHES = 65535  # the batch is the grid's second dimension
LEAST = 16  # a dot takes no smaller tile
PLAIN, FLAT = (32, 32, 32), 128  # tile of a plain product; columns where rows and sum are both small


def product(b: Builder, name: str, left: str, right: str, type: TensorType) -> str:
    """left [..., M, K] @ right [K, N], or batches [B, M, K] @ [B, K, N], [B, H, M, K] @ [B, H, K, N]."""
    a, c = b.type(left), b.type(right)
    if a.dtype != c.dtype or a.dtype not in FLOATS or a.dtype == "float64":
        raise NotMine(f"product of {a.dtype} and {c.dtype}")
    if left == right:
        right = b.view(f"{name}_right", f"{right}.detach()", right, c)
    rank = len(type.shape)
    frame: Frame = (("row", 0, rank - 1), ("col", rank - 1, rank))
    facts = {"frame_out": frame, "strided": True, "letters": ("a", "b")}
    if len(c.shape) == 2 and len(a.shape) >= 2:
        if len(a.shape) > 2:
            left = b.dense(left)
        if c.shape[1] == 1:
            return b.unit(name, "contraction.matvec", [left, right], type, **facts)
        facts["tile"] = _tile(b, name, prod(a.shape[:-1]), c)
        return b.unit(name, "contraction.matmul", [left, right], type, **facts)
    facts["tile"] = _tile(b, name, a.shape[-2], c)
    if len(a.shape) == 3 == len(c.shape) and a.shape[0] == c.shape[0] <= MOST_BATCHES:
        return b.unit(name, "contraction.bmm", [left, right], type, **facts)
    if len(a.shape) == 4 == len(c.shape) and a.shape[:2] == c.shape[:2] and prod(a.shape[:2]) <= MOST_BATCHES:
        return b.unit(name, "contraction.heads", [left, right], type, **facts)
    raise NotMine(f"product of shapes {a.shape} and {c.shape}")


def _tile(b: Builder, name: str, rows: int, right: TensorType) -> tuple[int, int, int]:
    """The tile of a product of so many rows: along small extents as short as a dot takes it."""
    m, n, k = PLAIN
    flat, shallow = b.choose(f"{name}.flat", rows <= LEAST), b.choose(f"{name}.shallow", right.shape[-2] <= LEAST)
    wide = flat and shallow and b.choose(f"{name}.broad", right.shape[-1] >= FLAT)
    return LEAST if flat else m, FLAT if wide else n, LEAST if shallow else k


def matmul(b: Builder, node: Node, type: TensorType) -> str:
    """mm, bmm and matmul of any ranks."""
    args = arguments(node)
    left = args["self"].name
    right = (args["mat2"] if "mat2" in args else args["other"]).name
    a, c = b.type(left), b.type(right)
    if len(a.shape) >= 2 and len(c.shape) >= 2:
        if len(c.shape) == 2 or len(a.shape) == len(c.shape) == 3:
            return product(b, node.name, left, right, type)
        return _batched(b, node.name, left, right, type)
    if len(c.shape) == 1 and len(a.shape) >= 2:
        column = b.view(f"{node.name}_column", f"{right}.unsqueeze(1)", right, TensorType((*c.shape, 1), c.dtype, (1, 1)))
        full = product(b, f"{node.name}_full", left, column, TensorType((*type.shape, 1), type.dtype))
        return b.view(node.name, f"{full}.squeeze(-1)", full, contiguous(type.shape, type.dtype))
    raise NotMine("product with a vector on the left")


def _batched(b: Builder, name: str, left: str, right: str, type: TensorType) -> str:
    """Equal leading dimensions as one batch, or two where strides cannot join them; more than two are copied then."""
    a, c = b.type(left).shape, b.type(right).shape
    if a[:-2] != c[:-2]:
        raise NotMine(f"product of shapes {a} and {c}")
    flat = [(prod(shape[:-2]), *shape[-2:]) for shape in (a, c)]
    joins = b.choose(f"{name}.joins", all(map(b.viewable, (left, right), flat)))
    if len(a) == 4 and not joins:
        return product(b, name, left, right, type)
    seen = []
    for source, shape in zip((left, right), flat, strict=True):
        dense = source if joins and b.viewable(source, shape) else b.dense(source)
        seen.append(b.merged(dense, shape, f"-1, {dense}.shape[-2], {dense}.shape[-1]"))
    full = product(b, f"{name}_batch", seen[0], seen[1], TensorType((flat[0][0], *type.shape[-2:]), type.dtype))
    lead = ", ".join(f"{left}.shape[{d}]" for d in range(len(a) - 2))
    return b.view(name, f"{full}.view({lead}, {full}.shape[1], {full}.shape[2])", full, contiguous(type.shape, type.dtype))


def linear(b: Builder, node: Node, type: TensorType) -> str:
    """x @ weight.T + bias; the bias is a kernel of its own."""
    args = arguments(node)
    bias = args["bias"]
    weight = args["weight"].name
    have = b.type(weight)
    turned = b.view(
        f"{node.name}_weight", f"{weight}.t()", weight, TensorType(have.shape[::-1], have.dtype, (1, have.shape[1]))
    )
    left = args["input"].name
    if len(b.type(left).shape) == 1:
        raise NotMine("linear of a vector")
    value = product(b, node.name if bias is None else f"{node.name}_product", left, turned, type)
    return value if bias is None else b.pointwise(node.name, f"{value} + {bias.name}", type)


def addmm(b: Builder, node: Node, type: TensorType) -> str:
    """beta * self + alpha * (a @ b)."""
    args = arguments(node)
    first, second = ("mat1", "mat2") if "mat1" in args else ("batch1", "batch2")
    value = product(b, f"{node.name}_product", args[first].name, args[second].name, type)
    alpha, beta = args["alpha"], args["beta"]
    left = value if alpha == 1 else f"{value} * {float(alpha)!r}"
    right = args["self"].name if beta == 1 else f"{args['self'].name} * {float(beta)!r}"
    return b.pointwise(node.name, f"{left} + {right}", type)
