"""Elementwise ATen operators as formulas over the operator's own argument names."""

from __future__ import annotations

from typing import Any

from mtmc.graph import Node, Ref, TensorType, bare
from mtmc.lower.builder import FLOATS, Builder, NotMine, literal, rename

# Formula over the schema's argument names. Arguments that are tensors become node names, numbers become literals.
FORMULAS: dict[str, str] = {
    "relu": "op_relu(self)",
    "relu6": "op_hardtanh(self, 0.0, 6.0)",
    "leaky_relu": "op_leaky_relu(self, negative_slope)",
    "sigmoid": "op_sigmoid(self)",
    "tanh": "op_tanh(self)",
    "silu": "op_silu(self)",
    "elu": "op_elu(self, alpha, scale, input_scale)",
    "selu": "op_elu(self, 1.6732632423543772, 1.0507009873554805, 1.0)",
    "celu": "op_elu(self, alpha, 1.0, 1.0 / alpha)",
    "softplus": "op_softplus(self, beta, threshold)",
    "hardtanh": "op_hardtanh(self, min_val, max_val)",
    "hardsigmoid": "op_hardsigmoid(self)",
    "hardswish": "op_hardswish(self)",
    "mish": "op_mish(self)",
    "log_sigmoid": "op_log_sigmoid(self)",
    "threshold": "tl.where(self <= threshold, value, self)",
    "abs": "tl.abs(self)",
    "neg": "-self",
    "exp": "op_exp(self)",
    "expm1": "op_expm1(self)",
    "log": "tl.log(self)",
    "log1p": "op_log1p(self)",
    "log2": "tl.log2(self)",
    "sqrt": "tl.sqrt_rn(self)",
    "rsqrt": "1.0 / tl.sqrt_rn(self)",
    "reciprocal": "1.0 / self",
    "square": "self * self",
    "sin": "tl.sin(self)",
    "cos": "tl.cos(self)",
    "erf": "tl.erf(self)",
    "floor": "tl.floor(self)",
    "ceil": "tl.ceil(self)",
    "sign": "op_sign(self)",
    "sub": "self - alpha * other",
    "add": "self + alpha * other",
    "rsub": "other - alpha * self",
    "mul": "self * other",
    "div": "self / other",
    "maximum": "op_nan_maximum(self, other)",
    "minimum": "op_nan_minimum(self, other)",
    "eq": "self == other",
    "ne": "self != other",
    "lt": "self < other",
    "le": "self <= other",
    "gt": "self > other",
    "ge": "self >= other",
    "logical_not": "self == 0",
    "logical_and": "(self != 0) & (other != 0)",
    "logical_or": "(self != 0) | (other != 0)",
    "bitwise_and": "self & other",
    "bitwise_or": "self | other",
    "bitwise_xor": "self ^ other",
    "bitwise_not": "self ^ 1",
    "__and__": "self & other",
    "__or__": "self | other",
    "__xor__": "self ^ other",
    "clamp_min": "op_clamp_min(self, min)",
    "clamp_max": "op_clamp_max(self, max)",
    "where": "tl.where(condition, self, other)",
    "masked_fill": "tl.where(mask, value, self)",
    "addcmul": "self + value * tensor1 * tensor2",
    "addcdiv": "self + value * tensor1 / tensor2",
    "lerp": "self + weight * (end - self)",
    "tril": "tl.where(col - row <= diagonal, self, 0.0)",
    "triu": "tl.where(col - row >= diagonal, self, 0.0)",
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or")
CONDITIONS = ("condition", "mask")
LOGICAL = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__")
POWERS = {
    2: "self * self",
    3: "self * self * self",
    0.5: "tl.sqrt_rn(self)",
    1: "self",
    -1: "1.0 / self",
    -0.5: "1.0 / tl.sqrt_rn(self)",
}


def arguments(node: Node) -> dict[str, Any]:
    """The node's arguments by schema name, defaults filled in."""
    import torch

    packet = node.op.split(".")
    schema = getattr(getattr(torch.ops.aten, packet[1]), packet[2])._schema
    bound = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    bound.update(zip([a.name for a in schema.arguments], node.args, strict=False))
    return {**bound, **node.kwargs}


def _formula(node: Node, args: dict[str, Any]) -> str:
    base = node.op.split(".")[1]
    if base == "gelu":
        return "op_gelu_tanh(self)" if args["approximate"] == "tanh" else "op_gelu(self)"
    if base == "pow":
        exponent = args["exponent"]
        if node.op == "aten.pow.Scalar" or isinstance(exponent, Ref):
            raise NotMine("power with a tensor exponent")
        return POWERS.get(exponent, "op_power(self, exponent)")
    if base == "clamp":
        low, high = args["min"], args["max"]
        if low is not None and high is not None:
            return "op_hardtanh(self, min, max)"
        return "op_clamp_min(self, min)" if high is None else "op_clamp_max(self, max)"
    if base == "div" and args.get("rounding_mode"):
        raise NotMine("division with rounding")
    if base in ("add", "sub", "rsub") and args.get("alpha", 1) == 1:
        return {"add": "self + other", "sub": "self - other", "rsub": "other - self"}[base]
    if base not in FORMULAS:
        raise NotMine(f"no formula for {node.op}")
    return FORMULAS[base]


def pointwise(b: Builder, node: Node, type: TensorType) -> str:
    """One elementwise ATen node."""
    if bare(node.op) in ("tril", "triu") and len(type.shape) != 2:
        raise NotMine("triangle of a batch")
    return b.pointwise(node.name, expression(b, node, type), type)


def expression(b: Builder, node: Node, type: TensorType) -> str:
    """An elementwise ATen node as kernel text. An argument that is no node is a kernel's value, of the result's type."""
    args = arguments(node)
    base = node.op.split(".")[1]
    formula = _formula(node, args)
    tensors = {k: v.name for k, v in args.items() if isinstance(v, Ref)}
    target = type.dtype
    if base in COMPARISONS:
        target = _promoted(b, list(tensors.values()), args)
    elif base in LOGICAL and target != "bool":
        raise NotMine("bitwise operation on integers")
    texts: dict[str, str] = {}
    for key, value in args.items():
        if key in tensors:
            own = tensors[key] not in b.nodes or key in CONDITIONS
            texts[key] = tensors[key] if own else b.cast(tensors[key], target)
        elif isinstance(value, (bool, int, float)):
            number = float(value) if target in FLOATS and key != "diagonal" else value
            varies = f"{node.name}.{key}" in b.varying
            texts[key] = b.scalar(f"{node.name}_{key}", number) if varies else literal(number)
    return rename(formula, texts)


def _promoted(b: Builder, names: list[str], args: dict[str, Any]) -> str:
    """The type a comparison is made in."""
    import torch

    found = getattr(torch, b.type(names[0]).dtype)
    for name in names[1:]:
        found = torch.promote_types(found, getattr(torch, b.type(name).dtype))
    if isinstance(args.get("other"), float) and not found.is_floating_point:
        found = torch.float32
    return str(found).removeprefix("torch.")


def cast(b: Builder, node: Node, type: TensorType) -> str:
    """Conversions and clones: nothing, or a copy with another dtype."""
    source: str = node.args[0].name
    if b.type(source).dtype == type.dtype:
        b.aliases[node.name] = source
        return source
    if type.dtype == "bool":
        return b.pointwise(node.name, f"{source} != 0", type)
    return b.pointwise(node.name, f"{source}.to(tl.{type.dtype})", type)
