"""What the rules for matrix products share."""

from __future__ import annotations

import re
from typing import NamedTuple

from mtmc.actions.context import Context
from mtmc.errors import check

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
MATMUL, BATCHED = "contraction.matmul", ("contraction.bmm", "contraction.heads")
ATTENTIONS = ("attention.attention", "attention.weighted")
PRODUCTS = (MATMUL, *BATCHED)
DOTTED = (*PRODUCTS, *ATTENTIONS)

SPLIT = "fp16x3"  # split in registers by our own function
_PLAIN = re.compile(r'(\w+) = tl\.fma\(tl\.dot\((\w+), (\w+), input_precision="(\w+)"\), 1\.0, \1\)')
_CHAIN = re.compile(r'(\w+) = tl\.dot\((\w+), (\w+), \1, input_precision="(\w+)"\)')
_SPLIT = re.compile(rf"(\w+) = op_dot_split_{SPLIT}\((\w+), (\w+), \1\)")


class Dot(NamedTuple):
    """A statement that adds the product of two tiles to `sum`."""

    sum: str
    left: str
    right: str
    precision: str


def dot(text: str) -> Dot | None:
    """The fp32 product that a statement computes, None for others."""
    if found := _PLAIN.fullmatch(text) or _CHAIN.fullmatch(text):
        return Dot(found[1], found[2], found[3], found[4])
    found = _SPLIT.fullmatch(text)
    return Dot(found[1], found[2], found[3], SPLIT) if found else None


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
