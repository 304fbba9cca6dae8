"""The least time that a GPU needs for a model: its bytes moved once, its products through the fastest lawful unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtmc.graph import Graph, Node
from mtmc.hardware_profiles import Profile
from mtmc.judge import predict
from mtmc.passes import extra_bytes, type_bytes
from mtmc.problem import Problem, instantiate

PARTIAL = ("embedding", "index", "gather", "slice", "select", "narrow", "split", "chunk", "diagonal", "unfold", "take")
"""Operators (by prefix) that may read a part of their operand only; at most as much as they give back."""

SPARSE = ("triu", "tril", "diag", "scaled_dot_product", "block_diag", "one_hot", "eye")
"""Where one of these occurs, products with zeros may be left out, so products are not counted (attention: where masked)."""

MASKS = {"attn_mask": 3, "is_causal": 5}  # arguments of an attention that leave scores out, and their places

SPLIT_PRODUCTS = 3  # 16-bit products that stand for one exact fp32 product (Ootomo & Yokota 2022)


@dataclass(frozen=True)
class Floor:
    """Milliseconds. No correct program beats `hard_ms` (data-sheet peaks); good kernels come down to `attainable_ms`.

    `passes_ms` is the same at rates that kernels reach, where bytes count once for every pass that the algorithm needs;
    `passes_gb` are those bytes, 0 where it is operations that decide.
    """

    hard_ms: float = 0.0
    attainable_ms: float = 0.0
    passes_ms: float = 0.0
    passes_gb: float = 0.0


def floor(problem: Problem, graph: Graph, profile: Profile, precision: str) -> Floor:
    """The floors of a captured model. Anything doubtful counts as free, so they are lower bounds."""
    read = sum(_read_bytes(graph, node) for node in graph.nodes if node.op in ("input", "state"))
    written = sum(type_bytes(graph[name].type) for name in graph.results)
    operations = _operations(problem, graph, precision)
    practice = _in_practice(profile)
    again, stored = extra_bytes(graph, profile.last_level_cache_bytes)
    passes_ms = predict.floor_ms(read + again, written + stored, operations, practice)
    moved_ms = predict.floor_ms(read + again, written + stored, {}, practice)
    return Floor(
        predict.floor_ms(read, written, operations, profile),
        predict.floor_ms(read, written, operations, practice),
        passes_ms,
        moved_ms * practice.memory_bandwidth_gb_s / 1e3 if moved_ms == passes_ms else 0.0,
    )


def _in_practice(profile: Profile) -> Profile:
    """The profile with the rates that well-written kernels reach in the place of the peaks."""
    tensor = profile.fp16_tensor_dense_tflops
    return replace(
        profile,
        memory_bandwidth_gb_s=profile.memory_bandwidth_gb_s * profile.efficiency.dram_fraction,
        fp16_tensor_dense_tflops=tensor and tensor * profile.efficiency.dot_16bit_fraction,
    )


def _read_bytes(graph: Graph, node: Node) -> float:
    """What must be read of an input or a parameter: nothing when unused, a part when all users read parts."""
    users = graph.users(node.name)
    if node.name in graph.results or any(not _named(user, PARTIAL) for user in users):
        return type_bytes(node.type)
    width = type_bytes(node.type) / max(node.type.numel, 1) if node.type else 0.0
    return min(type_bytes(node.type), sum(user.type.numel * width for user in users if user.type))


def _operations(problem: Problem, graph: Graph, precision: str) -> dict[str, float]:
    """FLOPs by unit. fp32 products may run as three 16-bit ones; convolutions run in TF32 anyway, so as one."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from mtmc.meta import recurrent_shapes

    if any(_named(node, SPARSE) and not _whole(node) for node in graph.nodes):
        return {}
    instance = instantiate(problem, "meta")
    with torch.no_grad(), recurrent_shapes(), FlopCounterMode(display=False) as counter:
        instance.model(*instance.inputs)
    dtypes = {node.type.dtype for node in graph.nodes if node.type}
    if dtypes & {"float64", "complex64", "complex128"}:
        return {}
    exact = precision == "strict" and not dtypes & {"float16", "bfloat16"}
    counts = counter.get_flop_counts().get("Global", {})
    return {"fp16": sum(flops * (SPLIT_PRODUCTS if exact and "conv" not in str(op) else 1) for op, flops in counts.items())}


def _whole(node: Node) -> bool:
    """Whether a node is an attention of every query to every key."""
    masks = [
        node.kwargs.get(name) or (node.args[place] if len(node.args) > place else None) for name, place in MASKS.items()
    ]
    return _named(node, ("scaled_dot_product",)) and not any(masks)


def _named(node: Node, prefixes: tuple[str, ...]) -> bool:
    return node.op.removeprefix("aten.").lstrip("_").startswith(prefixes)
