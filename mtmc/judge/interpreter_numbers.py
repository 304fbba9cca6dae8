"""Number formats that numpy lacks, kept in float32 arrays: bfloat16, tf32 and float8; and dots in split precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl

Array = npt.NDArray[Any]

FLOAT8 = {
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}


def _round_mantissa(values: Array, dropped: int) -> Array:
    """Float32 with its last `dropped` mantissa bits rounded away, to nearest even; NaN stays NaN."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    half = np.uint32((1 << (dropped - 1)) - 1)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    rounded = ((bits + half + odd) & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view(np.float32)
    missing = np.isnan(values)
    return np.where(missing, values, rounded) if missing.any() else rounded


def bfloat16(values: Array) -> Array:
    """Rounded to bfloat16 (8 significant bits), as float32."""
    return _round_mantissa(values, 16)


def bfloat16_toward_zero(values: Array) -> Array:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def tf32(values: Array) -> Array:
    """Rounded to tf32 (11 significant bits), as float32."""
    return _round_mantissa(values, 13)


def bfloat16_bits(values: Array) -> Array:
    """The uint16 patterns of float32 values that are already bfloat16."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def from_bfloat16_bits(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float8_bits(values: Array, dtype: Any) -> Array:
    """The uint8 patterns of values rounded to a float8 type; finite values saturate, as Triton's casts do on a GPU."""
    kind = FLOAT8[dtype]
    limit = torch.finfo(kind).max
    clipped = np.where(np.isfinite(values), np.clip(values, -limit, limit), values).astype(np.float32)
    return torch.from_numpy(clipped).to(kind).view(torch.uint8).numpy()


def from_float8_bits(bits: Array, dtype: Any) -> Array:
    return torch.from_numpy(np.ascontiguousarray(bits)).view(FLOAT8[dtype]).float().numpy()


# Precision of a float32 dot: how one piece of an operand is rounded, and into how many pieces an operand is split.
DOTS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "TF32": (tf32, 1),
    "TF32x3": (tf32, 2),
    "BF16x3": (bfloat16, 2),
    "BF16x6": (bfloat16, 3),
}


def _pieces(values: Array, rounding: Callable[[Array], Array], count: int) -> list[Array]:
    """`values` as a sum of `count` rounded terms of falling size."""
    terms = []
    for _ in range(count):
        terms.append(rounding(values))
        values = values - terms[-1]
    return terms


def split_dot(a: Array, b: Array, precision: str) -> Array:
    """a @ b in float32 as tensor cores do it: the products of pieces i, j with i + j < count, smallest first."""
    rounding, count = DOTS[precision]
    left, right = _pieces(a, rounding, count), _pieces(b, rounding, count)
    pairs = [(i, j) for i in range(count) for j in range(count - i)]
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for i, j in sorted(pairs, key=sum, reverse=True):
        total = total + np.matmul(left[i], right[j])
    return total
