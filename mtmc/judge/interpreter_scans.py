"""Reductions and scans with a custom combine function, in log₂(n) steps over whole blocks.

Triton asks combine functions to be associative, so any bracketing is as right as another; the order of elements is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import ReduceOps, ReduceScanOpInterface, ScanOps

from mtmc.judge.interpreter_builder import rounded
from mtmc.judge.interpreter_numbers import Array


class _Blocks(ReduceScanOpInterface):  # type: ignore[misc]  # triton is untyped
    """What both share: results rounded to their type, and the combine function on whole arrays."""

    def to_tensor(self, ret: Any, dtype: Any) -> Any:
        made = super().to_tensor(ret, dtype)
        rounded(made.handle)
        return made

    def combine(self, left: list[Array], right: list[Array], dtypes: list[Any]) -> list[Array]:
        """The combine function on two tuples of arrays of one shape."""
        operands = [self.to_tensor(data, dtype) for data, dtype in zip(left + right, dtypes * 2, strict=True)]
        results = self.combine_fn.fn(*operands)
        results = results if isinstance(results, tuple) else (results,)
        return [np.broadcast_to(r.handle.data if isinstance(r, tl.tensor) else r, left[0].shape) for r in results]


class Reduce(_Blocks, ReduceOps):  # type: ignore[misc]
    """Takes the place of Triton's ReduceOps."""

    def generic_reduce(self, input: tuple[Any, ...]) -> list[Any]:
        axis, shape = self.axis, input[0].handle.data.shape
        dtypes = [tensor.dtype for tensor in input]
        parts = [_first(tensor.handle.data, axis) for tensor in input]
        while len(parts[0]) > 1:
            parts = self.combine([p[0::2] for p in parts], [p[1::2] for p in parts], dtypes)
        results = [part[0] for part in parts]
        if self.keep_dims:
            kept = [1] * len(shape) if axis is None else [1 if i == axis % len(shape) else n for i, n in enumerate(shape)]
            results = [part.reshape(kept) for part in results]
        return [self.to_tensor(part, dtype) for part, dtype in zip(results, dtypes, strict=True)]


class Scan(_Blocks, ScanOps):  # type: ignore[misc]
    """Takes the place of Triton's ScanOps."""

    def generic_scan(self, input: list[Any]) -> list[Any]:
        """Hillis and Steele (1986): after the step of distance d every element holds its last 2d predecessors."""
        dtypes = [tensor.dtype for tensor in input]
        parts = [_first(tensor.handle.data, self.axis) for tensor in input]
        length = len(parts[0])
        place = np.arange(length).reshape(-1, *[1] * (parts[0].ndim - 1))
        distance = 1
        while distance < length:
            summed = self.combine([np.roll(p, distance, axis=0) for p in parts], parts, dtypes)
            parts = [np.where(place >= distance, s, p) for s, p in zip(summed, parts, strict=True)]
            distance *= 2
        return [self.to_tensor(np.moveaxis(p, 0, self.axis), t) for p, t in zip(parts, dtypes, strict=True)]


def _first(data: Array, axis: int | None) -> Array:
    """The array with `axis` in front; flat without one."""
    return data.ravel() if axis is None else np.moveaxis(data, axis, 0)
