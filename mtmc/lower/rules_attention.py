"""Attention: one kernel that keeps the scores in registers, or, for wide heads, the products and softmax it is made of."""

from __future__ import annotations

from math import isclose, prod
from typing import Any

from mtmc.frames import Frame
from mtmc.graph import Node, TensorType
from mtmc.lower.builder import FLOATS, Builder, NotMine, contiguous, literal
from mtmc.lower.rules_contraction import MOST_BATCHES, product
from mtmc.lower.rules_norm import softmax_over
from mtmc.lower.rules_pointwise import arguments
from mtmc.lower.rules_view import meta_of

WIDEST = 256  # elements of a head, of which a program holds whole rows in registers
FRAME: Frame = (("row", 0, 3), ("col", 3, 4))


def scaled_dot_product(b: Builder, node: Node, type: TensorType) -> str:
    """softmax(scale * query @ key.T + mask) @ value over [..., heads, M, D], [..., heads, N, D], [..., heads, N, E]."""
    args, name = arguments(node), node.name.removeprefix("scaled_dot_product_")
    names = [args[part].name for part in ("query", "key", "value")]
    types = [b.type(n) for n in names]
    _check(args, types)
    scale = _scale(b, node.name, args["scale"], types[0].shape[-1])
    plain = args["attn_mask"] is None and not args["is_causal"]
    if b.choose(f"{name}.wide", max(types[0].shape[-1], types[2].shape[-1]) > WIDEST):
        if not plain:
            raise NotMine(f"masked attention of heads of more than {WIDEST}")
        return _written_out(b, name, names, scale, type)
    seen = [_four(b, n, f"{name}_{part}") for n, part in zip(names, ("query", "key", "value"), strict=True)]
    for number in (1, 2):
        if seen[number] in seen[:number]:
            seen[number] = b.view(f"{seen[number]}_again", f"{seen[number]}.detach()", seen[number], b.type(seen[number]))
    masks, facts = _scores(b, name, args, seen)
    made = (*b.type(seen[0]).shape[:3], types[2].shape[-1])
    out = b.unit(
        name if len(type.shape) == 4 else f"{name}_heads", "attention.attention", [*seen, *masks],
        TensorType(made, type.dtype), strided=True, letters=("q", "k", "v"), frame_out=FRAME, scale=scale, **facts,
    )  # fmt: skip
    for rank in range(3, len(type.shape) - 1, -1):
        out = b.view(f"{name}_{rank}", f"{out}.squeeze(0)", out, contiguous(made[4 - rank :], type.dtype))
    return out


def _scores(b: Builder, name: str, args: dict[str, Any], seen: list[str]) -> tuple[list[str], dict[str, str]]:
    """The mask as an operand, if there is one, and what the template needs: masked score, end of the keys, mask offset."""
    score, infinite = "score * scale", 'float("-inf")'
    if args["is_causal"]:
        body = f"tl.where(n[None, :] <= m, {score}, {infinite})"
        return [], {"body": body, "last": "tl.minimum(N, first + BLOCK_M)", "offset": ""}
    if args["attn_mask"] is None:
        return [], {"body": score, "last": "N", "offset": ""}
    mask = _mask(b, name, args["attn_mask"].name, seen)
    body = f"tl.where({mask}, {score}, {infinite})" if b.type(mask).dtype == "bool" else f"{score} + {mask}"
    offset = f"b * {mask}_stride_b + h * {mask}_stride_h + m * {mask}_stride_m + n[None, :] * {mask}_stride_n"
    return [mask], {"body": body, "last": "N", "offset": offset}


def _check(args: dict[str, Any], types: list[TensorType]) -> None:
    query, key, value = types
    if args["dropout_p"]:
        raise NotMine("attention with dropout")
    if len({t.dtype for t in types}) > 1 or query.dtype not in FLOATS or query.dtype == "float64":
        raise NotMine(f"attention of {query.dtype}, {key.dtype} and {value.dtype}")
    if not 2 <= len(query.shape) <= 4 or not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        raise NotMine(f"attention of shapes {query.shape}, {key.shape} and {value.shape}")
    if prod(query.shape[:-2]) > MOST_BATCHES:
        raise NotMine(f"attention of more than {MOST_BATCHES} heads")
    if 0 in (*query.shape, *key.shape, *value.shape):
        raise NotMine("attention of nothing")


def _scale(b: Builder, name: str, scale: float | None, width: int) -> str:
    """Launcher text of the factor on the scores: by default the head's width to the power -1/2."""
    if scale is None or isclose(scale, width**-0.5, rel_tol=1e-12):
        return "D ** -0.5"
    if f"{name}.scale" in b.varying:
        raise NotMine("attention with a scale that varies with the sizes")
    return literal(float(scale))


def _four(b: Builder, name: str, new: str) -> str:
    """`name` seen with four dimensions, ones put before its own."""
    for _ in range(4 - len(b.type(name).shape)):
        meta = meta_of(b.type(name)).unsqueeze(0)
        name = b.view(new, f"{name}.unsqueeze(0)", name, TensorType(tuple(meta.shape), b.type(name).dtype, meta.stride()))
    return name


def _mask(b: Builder, name: str, mask: str, seen: list[str]) -> str:
    """The mask expanded to [batch, heads, M, N]: any shape that broadcasts, by strides of zero."""
    have = b.type(mask)
    if have.dtype not in ("bool", *FLOATS) or have.dtype == "float64":
        raise NotMine(f"attention with a mask of {have.dtype}")
    query, key = (b.type(n).shape for n in seen[:2])
    meta = meta_of(have).expand(*query[:3], key[2])
    text = f"{mask}.expand(*{seen[0]}.shape[:3], {seen[1]}.shape[2])"
    return b.view(f"{name}_mask", text, mask, TensorType(tuple(meta.shape), have.dtype, meta.stride()))


def _written_out(b: Builder, name: str, parts: list[str], scale: str, type: TensorType) -> str:
    """Scores, softmax and weighted sum as kernels of their own, over one batch of heads."""
    shapes = [b.type(part).shape for part in parts]
    count = prod(shapes[0][:-2])
    query, key, value = (
        b.reshaped(part, (count, *shape[-2:]), f"-1, {b.dense(part)}.shape[-2], {b.dense(part)}.shape[-1]")
        for part, shape in zip(parts, shapes, strict=True)
    )
    width = shapes[0][-1]
    (_, M, _), (_, N, _) = b.type(query).shape, b.type(key).shape
    turned = b.view(
        f"{name}_key", f"{key}.transpose(1, 2)", key, TensorType((count, width, N), type.dtype, (N * width, 1, width))
    )
    score = product(b, f"{name}_product", query, turned, TensorType((count, M, N), type.dtype))
    factor = b.scalar(f"{name}_scale", width**-0.5) if scale == "D ** -0.5" else scale
    score = b.pointwise(f"{name}_score", f"{score} * {factor}", TensorType((count, M, N), type.dtype))
    share = softmax_over(b, f"{name}_share", score, 2)
    out = product(b, name, share, value, TensorType((count, M, shapes[2][-1]), type.dtype))
    if b.type(out).shape == type.shape:
        return out
    lead = ", ".join(f"{parts[0]}.shape[{d}]" for d in range(len(type.shape) - 1))
    return b.view(f"{name}_result", f"{out}.view({lead}, -1)", out, contiguous(type.shape, type.dtype))
