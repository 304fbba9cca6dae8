"""The interpreter's operations, with right numbers and watched memory.

bfloat16 blocks are float32 arrays whose values are bfloat16: each operation computes in float32 and rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as stock
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from mtmc.judge import interpreter_numbers as numbers
from mtmc.judge.interpreter import DeviceAssert
from mtmc.judge.interpreter_memory import Memory
from mtmc.judge.interpreter_numbers import Array

_stock_dtype: Callable[[Any], np.dtype[Any]] = cache(stock._get_np_dtype)  # which builds a table at every call
_fits: Callable[[Array, Any], bool] = stock._validate_np_data_size
PRECISIONS = {getattr(ir.INPUT_PRECISION, name): name for name in numbers.DOTS}
ALLOWED = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


def is_bfloat16(dtype: Any) -> bool:
    """Whether a scalar or block type is bfloat16 (a pointer to one is not)."""
    return bool(dtype.scalar.name == "bf16")


def memory_dtype(dtype: Any) -> np.dtype[Any]:
    """How values lie in memory: bfloat16 as uint16, pointers as uint64."""
    scalar = dtype.scalar
    return np.dtype(np.uint64) if scalar.is_ptr() else _stock_dtype(scalar)


def block_dtype(dtype: Any) -> np.dtype[Any]:
    """How values lie in an interpreter block: bfloat16 as float32."""
    return np.dtype(np.float32) if is_bfloat16(dtype) else memory_dtype(dtype)


def fits(data: Array, dtype: Any) -> bool:
    """Whether an array may stand for a Triton type."""
    return data.itemsize <= 4 if is_bfloat16(dtype) else _fits(data, dtype)


def rounded(handle: Any) -> Any:
    """The handle with bfloat16 values rounded; comparisons carry their operands' type and boolean data, and stay."""
    if is_bfloat16(handle.dtype) and handle.data.dtype == np.float32:
        handle.data = numbers.bfloat16(handle.data)
    return handle


class Builder(InterpreterBuilder):  # type: ignore[misc]  # triton is untyped
    """Takes the place of Triton's interpreter builder. `memory` is that of the running launch."""

    memory: Memory

    def __init__(self, round_tf32: bool) -> None:
        super().__init__()
        self.round_tf32 = round_tf32
        self.options = InterpreterOptions(debug=True, sanitize_overflow=False, allowed_dot_input_precisions=ALLOWED)

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        super().set_grid_idx(x, y, z)
        self.memory.enter((x, y, z), self.grid_dim)

    # numbers

    def get_bf16(self, value: float) -> Any:
        return TensorHandle(numbers.bfloat16(np.array([value])), tl.bfloat16)

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        found = super().binary_op(lhs, rhs, op)
        # A comparison is a truth value; Triton keeps the type of what it compared, which goes wrong where a scalar is splat.
        return TensorHandle(found.data, tl.int1) if found.data.dtype == bool else rounded(found)

    def unary_op(self, arg: Any, op: Any) -> Any:
        return rounded(super().unary_op(arg, op))

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        return rounded(super().ternary_op(lhs, rhs, other, op))

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        return rounded(super().create_fma(x, y, z))

    def create_rsqrt(self, arg: Any) -> Any:
        return rounded(super().create_rsqrt(arg))

    def create_fabs(self, arg: Any) -> Any:
        return TensorHandle(np.abs(arg.data), arg.dtype.scalar)

    def create_erf(self, arg: Any) -> Any:
        data = torch.from_numpy(np.ascontiguousarray(arg.data))
        return rounded(TensorHandle(torch.erf(data).numpy(), arg.dtype.scalar))

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        if is_bfloat16(dst_type):
            return TensorHandle(numbers.bfloat16(src.data.astype(np.float32)), dst_type.scalar)
        return TensorHandle(src.data.astype(block_dtype(dst_type)), dst_type.scalar)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        source, result = src.dtype.scalar, dst_type.scalar
        if source in numbers.FLOAT8:
            src = TensorHandle(numbers.from_float8_bits(src.data, source), tl.float32)
        if result in numbers.FLOAT8:
            return TensorHandle(numbers.float8_bits(src.data.astype(np.float32), result), result)
        if tl.float8e4b15 in (source, result):
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        if rounding_mode == ir.ROUNDING_MODE.RTZ and result == tl.bfloat16:
            return TensorHandle(numbers.bfloat16_toward_zero(src.data), result)
        if rounding_mode == ir.ROUNDING_MODE.RTZ and result.primitive_bitwidth < source.primitive_bitwidth:
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        data = numbers.bfloat16_bits(src.data) if is_bfloat16(src.dtype) else src.data
        if is_bfloat16(dst_type):
            return TensorHandle(numbers.from_bfloat16_bits(data.view(np.uint16)), dst_type.scalar)
        return TensorHandle(data.view(memory_dtype(dst_type)), dst_type.scalar)

    create_int_to_ptr = create_ptr_to_int = create_bitcast

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: int) -> Any:
        left, right = _operand(a), _operand(b)
        precision = PRECISIONS.get(input_precision)
        if a.dtype.scalar == tl.float32 and precision and (self.round_tf32 or precision != "TF32"):
            product = numbers.split_dot(left, right, precision)
        else:
            product = np.matmul(left.astype(d.data.dtype), right.astype(d.data.dtype))
        return rounded(TensorHandle(product + d.data, d.dtype.scalar))

    def create_assert(self, condition: Any, message: str) -> None:
        if not condition.data.all():
            raise DeviceAssert(f"{self.memory.kernel}, program {self.grid_idx}: device_assert failed: {message}")

    # memory

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *hints: Any, **more_hints: Any) -> Any:
        dtype = ptrs.get_element_ty()
        kind, active = memory_dtype(dtype), _lanes(mask, ptrs.data)
        addresses = self.memory.load(ptrs.data, active, kind.itemsize)
        if other is None:
            fill = np.zeros(addresses.shape, kind)
        else:
            fill = numbers.bfloat16_bits(other.data) if is_bfloat16(dtype) else other.data
        data = native.load(addresses, active, fill, kind)
        return TensorHandle(numbers.from_bfloat16_bits(data) if is_bfloat16(dtype) else data, dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *hints: Any, **more_hints: Any) -> None:
        dtype = ptrs.get_element_ty()
        kind, active = memory_dtype(dtype), _lanes(mask, ptrs.data)
        addresses = self.memory.store(ptrs.data, active, kind.itemsize)
        data = numbers.bfloat16_bits(value.data) if is_bfloat16(dtype) else value.data.astype(kind, copy=False)
        native.store(addresses, data, active)
        found = native.load(addresses, active, data, kind)
        self.memory.check_stored(ptrs.data, active, data, found)

    def create_atomic_rmw(self, op: Any, ptr: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        dtype = ptr.get_element_ty()
        active, acquires = _lanes(mask, ptr.data), sem != ir.MEM_SEMANTIC.RELAXED
        addresses = self.memory.atomic(ptr.data, active, memory_dtype(dtype).itemsize, acquires)
        plain = TensorHandle(addresses, ptr.dtype)
        if is_bfloat16(dtype):
            return _add_bfloat16(addresses, value, active)
        return super().create_atomic_rmw(op, plain, value, TensorHandle(active, tl.int1), sem, scope)

    def create_atomic_cas(self, ptr: Any, cmp: Any, value: Any, sem: Any, scope: Any) -> Any:
        size, acquires = memory_dtype(ptr.get_element_ty()).itemsize, sem != ir.MEM_SEMANTIC.RELAXED
        addresses = self.memory.atomic(ptr.data, np.ones(ptr.data.shape, bool), size, acquires)
        return super().create_atomic_cas(TensorHandle(addresses, ptr.dtype), cmp, value, sem, scope)


def _operand(handle: Any) -> Array:
    """A dot's operand as numbers that numpy can multiply."""
    if handle.dtype.scalar in numbers.FLOAT8:
        return numbers.from_float8_bits(handle.data, handle.dtype.scalar)
    data: Array = handle.data
    return data


def _lanes(mask: Any, pointers: Array) -> Array:
    """A mask (a handle, or the bare array of a block pointer) as booleans in the pointers' shape."""
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return np.broadcast_to(data, pointers.shape).astype(bool, copy=False)


def _add_bfloat16(addresses: Array, value: Any, active: Array) -> Any:
    """Atomic add, the only one that bfloat16 has, lane after lane; gives the old values."""
    values, old = np.broadcast_to(value.data, addresses.shape), np.zeros(addresses.shape, np.float32)
    on, kind = np.ones(1, bool), np.dtype(np.uint16)
    for lane in zip(*np.nonzero(active), strict=True):
        address = addresses[lane].reshape(1)
        before = numbers.from_bfloat16_bits(native.load(address, on, np.zeros(1, kind), kind))
        native.store(address, numbers.bfloat16_bits(numbers.bfloat16(before + values[lane])), on)
        old[lane] = before[0]
    return TensorHandle(old, tl.bfloat16)
