"""Attention: one kernel that keeps the scores in registers, or, for wide heads, the products and softmax it is made of."""

from __future__ import annotations

from math import isclose, prod
from typing import Any

from mtmc.frames import Frame
from mtmc.graph import Node, TensorType
from mtmc.lower.attention_chain import DEFAULT, SCORE, WIDEST, scaled, with_refs
from mtmc.lower.builder import FLOATS, Builder, NotMine, contiguous, literal, meta_of, rename
from mtmc.lower.rules_contraction import MOST_BATCHES, product
from mtmc.lower.rules_norm import softmax_over
from mtmc.lower.rules_pointwise import arguments, expression

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
        return _of_units(b, name, names, scale, type)
    seen = _heads(b, name, names)
    masks, facts = _scores(b, name, args, seen)
    facts |= {"scale": scale, "total": "tl.where(norm == 0.0, 1.0, norm)", "turned": node.name in b.turned}
    return _placed(b, name, "attention.attention", [*seen, *masks], type, facts)


def written_out(b: Builder, node: Node, type: TensorType) -> str:
    """A node that `attention_chain` made: its steps, put into one another, are the masked score, or what weighs a value."""
    name = b.fresh("attention")
    seen = _heads(b, name, [ref.name for ref in node.args])
    given = [Node(step, op, args, dict(named)) for step, op, args, named in node.kwargs["steps"]]
    scale, steps = scaled(tuple(given), b.type(seen[0]).shape[-1])
    masks: list[str] = []
    body = "score * scale"
    for step in steps:
        read = {ref: _mask(b, name, ref, seen) for ref in step.inputs if ref != SCORE.name}
        masks += read.values()
        body = rename(expression(b, with_refs(step, read), type), {SCORE.name: body})
    template = "attention.attention" if node.kwargs["softmax"] else "attention.weighted"
    facts = {"body": body, "last": "N", "scale": scale, "total": "norm", "turned": node.name in b.turned}
    return _placed(b, name, template, [*seen, *masks], type, facts)


def _heads(b: Builder, name: str, names: list[str]) -> list[str]:
    """Query, key and value seen as [batch, heads, rows, elements], each under a name of its own."""
    seen = [_four(b, n, f"{name}_{part}") for n, part in zip(names, ("query", "key", "value"), strict=True)]
    for number in (1, 2):
        if seen[number] in seen[:number]:
            seen[number] = b.view(f"{seen[number]}_again", f"{seen[number]}.detach()", seen[number], b.type(seen[number]))
    return seen


def _placed(b: Builder, name: str, template: str, operands: list[str], type: TensorType, facts: dict[str, Any]) -> str:
    """The unit, whose result is [batch, heads, M, E] or, turned, [batch, M, heads, E], seen in the shape asked for."""
    batch, heads, rows = b.type(operands[0]).shape[:3]
    made = (batch, rows, heads, type.shape[-1]) if facts["turned"] else (batch, heads, rows, type.shape[-1])
    out = b.unit(
        name if len(type.shape) == 4 else f"{name}_heads", template, operands, TensorType(made, type.dtype),
        strided=True, letters=("q", "k", "v"), frame_out=FRAME, **facts,
    )  # fmt: skip
    if facts["turned"]:
        out = b.seen(f"{name}_turned", f"{out}.transpose(1, 2)", out, meta_of(b.type(out)).transpose(1, 2))
    for rank in range(3, len(type.shape) - 1, -1):
        out = b.seen(f"{name}_{rank}", f"{out}.squeeze(0)", out, meta_of(b.type(out)).squeeze(0))
    return out


def _scores(b: Builder, name: str, args: dict[str, Any], seen: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The mask as an operand, if there is one, and what the template needs: masked score, end of the keys."""
    score, infinite = "score * scale", 'float("-inf")'
    if args["is_causal"]:
        return [], {"body": f"tl.where(n[None, :] <= m, {score}, {infinite})", "last": "tl.minimum(N, first + BLOCK_M)"}
    if args["attn_mask"] is None:
        return [], {"body": score, "last": "N"}
    mask = _mask(b, name, args["attn_mask"].name, seen)
    body = f"tl.where({mask}, {score}, {infinite})" if b.type(mask).dtype == "bool" else f"{score} + {mask}"
    return [mask], {"body": body, "last": "N"}


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
        return DEFAULT
    if f"{name}.scale" in b.varying:
        raise NotMine("attention with a scale that varies with the sizes")
    return literal(float(scale))


def _four(b: Builder, name: str, new: str) -> str:
    """`name` seen with four dimensions, ones put before its own."""
    for _ in range(4 - len(b.type(name).shape)):
        name = b.seen(new, f"{name}.unsqueeze(0)", name, meta_of(b.type(name)).unsqueeze(0))
    return name


def _mask(b: Builder, name: str, mask: str, seen: list[str]) -> str:
    """The mask expanded to [batch, heads, M, N]: any shape that broadcasts, by strides of zero."""
    have = b.type(mask)
    if have.dtype not in ("bool", *FLOATS) or have.dtype == "float64":
        raise NotMine(f"attention with a mask of {have.dtype}")
    query, key = (b.type(n).shape for n in seen[:2])
    meta = meta_of(have).expand(*query[:3], key[2])
    text = f"{mask}.expand(*{seen[0]}.shape[:3], {seen[1]}.shape[2])"
    return b.seen(f"{name}_mask", text, mask, meta)


def _of_units(b: Builder, name: str, parts: list[str], scale: str, type: TensorType) -> str:
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
    factor = b.scalar(f"{name}_scale", width**-0.5) if scale == DEFAULT else scale
    score = b.pointwise(f"{name}_score", f"{score} * {factor}", TensorType((count, M, N), type.dtype))
    share = softmax_over(b, f"{name}_share", score, 2)
    out = product(b, name, share, value, TensorType((count, M, shapes[2][-1]), type.dtype))
    if b.type(out).shape == type.shape:
        return out
    lead = ", ".join(f"{parts[0]}.shape[{d}]" for d in range(len(type.shape) - 1))
    return b.view(f"{name}_result", f"{out}.view({lead}, -1)", out, contiguous(type.shape, type.dtype))
