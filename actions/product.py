"""What the rules for matrix products share."""

from __future__ import annotations

from mtmc.actions.context import Context
from mtmc.errors import check

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
MATMUL, BATCHED = "contraction.matmul", "contraction.bmm"
ATTENTION = "attention.attention"
DOTTED = (MATMUL, BATCHED, ATTENTION)


def operands(context: Context, unit: str, templates: tuple[str, ...] = (MATMUL,)) -> tuple[str, str] | None:
    """The two operands of a product of float32 matrices (query and key of an attention), None for other units."""
    host = context.host(unit)
    if host is None or host.kwargs["template"] not in templates or len(host.inputs) < 2:
        return None
    left, right = host.inputs[:2]
    type = context.graph[left].type
    return (left, right) if type and type.dtype == "float32" else None


def checked_operands(context: Context, unit: str, templates: tuple[str, ...] = (MATMUL,)) -> tuple[str, str]:
    """The two operands of a product of float32 matrices. Raises Illegal for other units."""
    found = operands(context, unit, templates)
    check(found is not None, "not a plain fp32 product")
    assert found is not None
    return found


def float32_check(a: str, b: str) -> str:
    """The assertion that both operands are what a split product assumes."""
    return f'assert {a}.dtype == {b}.dtype == torch.float32, "float32 products only"'


def tensor_cores(context: Context) -> bool:
    """Whether split float32 products can run on the matrix unit: other makers' units do not take them."""
    return context.profile.tensor_cores_in_triton and context.profile.backend == "cuda"
