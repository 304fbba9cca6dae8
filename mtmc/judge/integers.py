"""Exact integer values of Triton IR, for one program's whole tiles or for many programs at once (see counts.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtmc.judge.ttir import Function, Operation, Type
from mtmc.verdict import Launch

Ints = NDArray[np.int64]
SECTOR_BYTES = 32
LINE_BYTES = 128
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Value:
    """An SSA value. `data` has shape (programs, *tile), broadcastable; None when unknown. Pointers: offsets in elements.

    `level` is the depth of the innermost loop it varies in; `align` over how many elements a mask is known to be constant;
    `strides` belong to tensor descriptors; `fast_axis` is the axis along which a loaded tile lies contiguous in memory.
    """

    data: Ints | None = None
    root: str = ""
    level: int = 0
    align: int = VECTOR_BYTES
    constant: bool = False
    strides: tuple[Ints, ...] = ()
    fast_axis: int | None = None

    @property
    def ints(self) -> Ints:
        """The data, one for an unknown value."""
        return np.ones(1, dtype=np.int64) if self.data is None else self.data

    @property
    def scalar(self) -> int:
        """The value of the middle one of the walked programs."""
        flat = self.ints.reshape(-1)
        return int(flat[len(flat) // 2])


def parameters(launch: Launch, function: Function) -> dict[str, Value]:
    """SSA name → Value of each kernel parameter, from the launch's arguments.

    A host-side tensor descriptor is followed by its flattened sizes and strides as scalars of the same Python name.
    """
    values: dict[str, Value] = {}
    for ssa, name, kind in function.parameters:
        argument = launch.arguments.get(name)
        if isinstance(argument, (tuple, list)) and kind.startswith("!tt."):
            strides = tuple(_array(s) for s in argument[3]) if "tensordesc" in kind else ()
            values[ssa] = Value(_array(0), root=name, strides=strides)
        elif isinstance(argument, (tuple, list)):
            index = sum(1 for v, n, k in function.parameters[: len(values)] if n == name and not k.startswith("!tt."))
            values[ssa] = Value(_array([*argument[2], *argument[3]][index]))
        elif kind.startswith("!tt."):
            values[ssa] = Value(_array(0), root=name)
        else:
            values[ssa] = Value(_array(int(argument)) if isinstance(argument, (int, bool)) else None)
    return values


def evaluate(op: Operation, operands: Sequence[Value]) -> Value:
    """Result of an operation on integers, pointers or masks; unknown data where it cannot be told."""
    level = max((v.level for v in operands), default=0)
    if op.name == "arith.constant":
        return Value(_constant(op), constant=True)
    if op.name == "arith.select":
        return _select(operands, level)
    rank = len(op.type.shape)
    data = [v.data if v.data is None else _ranked(v.data, rank) for v in operands]
    result = Value(
        fast_axis=next((v.fast_axis for v in operands if v.fast_axis is not None), None),
        root=next((v.root for v in operands if v.root), ""),
        level=level,
        align=min((v.align for v in operands), default=VECTOR_BYTES),
        constant=bool(operands) and all(v.constant for v in operands),
    )
    if op.name == "tt.expand_dims":
        known = operands[0].data
        return replace(result, data=None if known is None else np.expand_dims(known, op.attribute("axis") + 1))
    if op.name == "tt.trans":
        return _transposed(op, operands[0])
    if op.name == "arith.cmpi":
        result = replace(result, align=_mask_align(operands))
    return replace(result, data=_arithmetic(op, data))


def loaded(kind: Type, pointer: Value, level: int) -> Value:
    """What a load gives: floats are unknown; integers scattered by their address, equal addresses giving equal values."""
    if not kind.integer or pointer.data is None:
        return Value(level=level)
    return Value((pointer.data * 2654435761 >> 7) % 65536, level=level)


def advance(start: Value, after: Value, times: int) -> Value:
    """A loop-carried value after `times` iterations, given its start and its value after one: linear for integers."""
    if start.data is None or after.data is None:
        return replace(start, data=None) if start.root == "" else start
    return replace(start, data=start.data + times * (after.data - start.data))


def vector_width(offsets: Ints | None, mask_align: int, tile: Type, threads: int) -> int:
    """Elements that one thread moves by one instruction, up to 16 bytes: contiguous, aligned, under one mask bit."""
    width = min(VECTOR_BYTES // min(tile.itemsize, VECTOR_BYTES), max(tile.numel // threads, 1), mask_align)
    if offsets is None:
        return 1
    while width > 1 and not any(_grouped(offsets, axis, width) for axis in reversed(range(offsets.ndim))):
        width //= 2
    return max(width, 1)


def touched(offsets: Ints | None, active: NDArray[np.bool_] | None, tile: Type) -> tuple[int, int, int]:
    """Active elements of a tile, the distinct 32-byte sectors and 128-byte lines they lie in; scattered if unknown."""
    elements = tile.numel if active is None else int(active.sum())
    if offsets is None:
        return elements, elements, elements
    chosen = offsets if active is None else offsets[active]
    sectors = np.unique(chosen * tile.itemsize // SECTOR_BYTES)
    return elements, int(sectors.size), int(np.unique(sectors // (LINE_BYTES // SECTOR_BYTES)).size)


def fast_axis(offsets: Ints | None) -> int | None:
    """The axis along which addresses of a tile grow by one element; None without one."""
    if offsets is None:
        return None
    axes = [a for a in range(offsets.ndim) if offsets.shape[a] > 1 and (np.diff(offsets.take([0, 1], a), axis=a) == 1).all()]
    return axes[-1] if axes else None


def _transposed(op: Operation, value: Value) -> Value:
    """`tt.trans`: result axis i is source axis order[i]."""
    order = [int(d) for d in op.text.split("order = array<i32:")[1].split(">")[0].split(",")]
    fast = None if value.fast_axis is None else order.index(value.fast_axis)
    data = value.data
    if data is not None and data.ndim > 1:
        data = data.transpose(0, *(d + 1 for d in order))
    return replace(value, data=data, fast_axis=fast)


def _array(value: int) -> Ints:
    return np.array([value], dtype=np.int64)


def _ranked(data: Ints, rank: int) -> Ints:
    """Per-program scalars spread to `rank` tile axes (`tt.splat`); tiles as they are."""
    return data.reshape(len(data), *(1,) * rank) if data.ndim == 1 else data


def _constant(op: Operation) -> Ints | None:
    if not op.type.integer:
        return None
    word = op.text.split("dense<")[-1] if "dense<" in op.text else op.text.split()[1]
    word = word.split(">")[0].split(":")[0].strip()
    if word in ("true", "false"):
        return _array(word == "true")
    return _ranked(_array(int(word)), len(op.type.shape)) if word.lstrip("-").isdigit() else None


def _select(operands: Sequence[Value], level: int) -> Value:
    condition, yes, no = operands
    if condition.data is None or yes.data is None or no.data is None:
        return replace(yes, level=level, constant=False)
    rank = max(condition.data.ndim, yes.data.ndim, no.data.ndim) - 1
    parts = [_ranked(v.data, rank) for v in (condition, yes, no) if v.data is not None]
    return replace(yes, data=np.where(parts[0] != 0, parts[1], parts[2]), level=level, constant=False)


def _mask_align(operands: Sequence[Value]) -> int:
    """A mask `index < n` flips at `n`: it is constant over groups that divide every bound (the side without a ramp)."""
    values = min((np.unique(v.data) for v in operands if v.data is not None), key=len, default=Value().ints)
    return gcd(VECTOR_BYTES, *(int(v) for v in values[:64]))


def _truncated(a: Ints, b: Ints) -> Ints:
    b = np.where(b == 0, 1, b)
    return np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)


def _remainder(a: Ints, b: Ints) -> Ints:
    return a - _truncated(a, b) * b


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "divsi": _truncated,
    "divui": _truncated,
    "remsi": _remainder,
    "remui": _remainder,
    "floordivsi": lambda a, b: a // np.where(b == 0, 1, b),
    "ceildivsi": lambda a, b: -(-a // np.where(b == 0, 1, b)),
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "shrui": np.right_shift,
    "minsi": np.minimum,
    "minui": np.minimum,
    "maxsi": np.maximum,
    "maxui": np.maximum,
    "addptr": np.add,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
SAME = (
    "tt.splat",
    "tt.broadcast",
    "tt.bitcast",
    "tt.int_to_ptr",
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.index_cast",
)


def _arithmetic(op: Operation, data: Sequence[Ints | None]) -> Ints | None:
    if op.name in SAME or len(data) == 1 and op.name == "tt.unsplat":
        return data[0]
    kind = op.name.rsplit(".", 1)[-1]
    if len(data) != 2 or op.name.startswith("math.") or (kind not in BINARY and kind != "cmpi"):
        return None
    a, b = data
    if kind == "andi" and (a is None or b is None):
        return b if a is None else a  # an unknown half of a mask counts as true
    if a is None or b is None:
        return None
    if kind == "cmpi":
        predicate = op.text.split()[1].rstrip(",").lstrip("su")
        result: Ints = COMPARE[predicate](a, b).astype(np.int64)
        return result
    result = BINARY[kind](a, b)
    return result


def _grouped(offsets: Ints, axis: int, width: int) -> bool:
    """Do aligned groups of `width` along the axis hold consecutive addresses that start on a multiple of `width`?"""
    size = offsets.shape[axis]
    if size % width:
        return False
    groups = np.moveaxis(offsets, axis, -1)
    groups = groups.reshape(*groups.shape[:-1], size // width, width)
    return bool((np.diff(groups, axis=-1) == 1).all() and (groups[..., 0] % width == 0).all())
