"""Losses, as the formulas of torch.nn.functional over elementwise steps and reductions."""

from __future__ import annotations

from typing import Any

from mtmc.graph import Node, TensorType
from mtmc.lower.builder import FLOATS, Builder, NotMine
from mtmc.lower.rules_norm import nll
from mtmc.lower.rules_pointwise import arguments
from mtmc.lower.rules_reduction import Over, reduce

NONE, MEAN, SUM = 0, 1, 2


def _finish(b: Builder, name: str, terms: str, reduction: int) -> str:
    """Mean or sum of all terms."""
    have = b.type(terms)
    dims = list(range(len(have.shape)))
    if reduction == SUM:
        return reduce(b, name, "sum", terms, Over(dims))
    total = reduce(b, f"{name}_sum", "sum", terms, Over(dims))
    number = b.count_text(name, float(have.numel))
    return b.pointwise(name, f"{total} / {number}", TensorType((), have.dtype))


def elementwise(b: Builder, node: Node, type: TensorType) -> str:
    """Losses that are one formula of (input, target) a term."""
    args = arguments(node)
    x, t = args["self"].name, args["target"].name
    have = b.type(x)
    if b.type(t).shape != have.shape or b.type(t).dtype != have.dtype:
        raise NotMine("loss of unlike tensors")
    base = node.op.split(".")[1]
    formula = {
        "mse_loss": f"({x} - {t}) * ({x} - {t})",
        "l1_loss": f"tl.abs({x} - {t})",
        "smooth_l1_loss": f"op_smooth_l1({x} - {t}, {args.get('beta', 1.0)!r})",
        "huber_loss": f"op_huber({x} - {t}, {args.get('delta', 1.0)!r})",
        "kl_div": f"tl.exp({t}) * ({t} - {x})" if args.get("log_target") else f"op_xlogx_minus({t}, {x})",
    }[base]
    if args.get("reduction") == NONE:
        return b.pointwise(node.name, formula, type)
    terms = b.pointwise(f"{node.name}_terms", formula, have)
    return _finish(b, node.name, terms, args["reduction"])


def cross_entropy(b: Builder, node: Node, type: TensorType) -> str:
    """Mean or sum of -log_softmax(x)[target]; class indices, no weights, no smoothing. Ignored targets count for nothing."""
    args = arguments(node)
    x, t = args["self"].name, args["target"].name
    have, target = b.type(x), b.type(t)
    if (
        args["weight"] is not None
        or args["label_smoothing"]
        or target.dtype != "int64"
        or args["reduction"] == NONE
        or len(have.shape) != 2
        or have.dtype not in FLOATS
    ):
        raise NotMine("cross entropy with weights, smoothing, class probabilities or more than two dimensions")
    ignored = args["ignore_index"]
    losses = nll(b, f"{node.name}_nll", x, t)
    terms = b.pointwise(
        f"{node.name}_terms", f"tl.where({t} == {ignored}, 0.0, {losses})", TensorType(target.shape, have.dtype)
    )
    if args["reduction"] == SUM:
        return _finish(b, node.name, terms, SUM)
    total = _finish(b, f"{node.name}_sum", terms, SUM)
    kept = b.pointwise(f"{node.name}_kept", f"({t} != {ignored}).to(tl.float32)", TensorType(target.shape, "float32"))
    count = _finish(b, f"{node.name}_number", kept, SUM)
    return b.pointwise(node.name, f"{total} / {count}", type)


def _distance(b: Builder, name: str, x: str, y: str, args: dict[str, Any]) -> str:
    """||x - y + eps||_2 over the last dimension."""
    have = b.type(x)
    if args["p"] != 2 or b.type(y).shape != have.shape:
        raise NotMine("pairwise distance of another order")
    eps = args["eps"]
    squares = b.pointwise(f"{name}_square", f"({x} - {y} + {eps!r}) * ({x} - {y} + {eps!r})", have)
    total = reduce(b, f"{name}_sum", "sum", squares, Over([len(have.shape) - 1]))
    return b.pointwise(name, f"tl.sqrt_rn({total})", b.type(total))


def triplet_margin(b: Builder, node: Node, type: TensorType) -> str:
    """mean(max(d(a, p) - d(a, n) + margin, 0))."""
    args = arguments(node)
    if args["swap"] or args["reduction"] == NONE:
        raise NotMine("triplet loss with swap")
    a, p, n = (args[k].name for k in ("anchor", "positive", "negative"))
    near, far = _distance(b, f"{node.name}_near", a, p, args), _distance(b, f"{node.name}_far", a, n, args)
    terms = b.pointwise(f"{node.name}_terms", f"op_clamp_min({near} - {far} + {float(args['margin'])!r}, 0.0)", b.type(near))
    return _finish(b, node.name, terms, args["reduction"])


def cosine_similarity(b: Builder, node: Node, type: TensorType) -> str:
    """x . y / (max(|x|, eps) * max(|y|, eps)) along a dimension."""
    args = arguments(node)
    x, y, eps = args["x1"].name, args["x2"].name, args["eps"]
    have = b.type(x)
    if b.type(y).shape != have.shape:
        raise NotMine("cosine similarity of unlike tensors")
    dims = [args["dim"] % len(have.shape)]
    sums = []
    for part, (p, q) in {"dot": (x, y), "left": (x, x), "right": (y, y)}.items():
        terms = b.pointwise(f"{node.name}_{part}_terms", f"{p} * {q}", have)
        sums.append(reduce(b, f"{node.name}_{part}", "sum", terms, Over(dims)))
    dot, left, right = sums
    body = f"{dot} / (op_clamp_min(tl.sqrt_rn({left}), {eps!r}) * op_clamp_min(tl.sqrt_rn({right}), {eps!r}))"
    return b.pointwise(node.name, body, type)
