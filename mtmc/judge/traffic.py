"""Bytes between DRAM and the last-level cache for one launch: what programs share, and what the cache keeps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mtmc.hardware_profiles import Profile
from mtmc.judge.integers import SECTOR_BYTES
from mtmc.judge.work import Access, Counts
from mtmc.verdict import Launch

ITEMSIZE = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
SHORT_RUN = 0.3  # more time for each halving of a 128-byte line
PARTIAL_SECTORS = 4
KEPT_IN_CACHE = 0.8  # share of the last-level cache that data in use can count on


def dram_bytes(launch: Launch, profile: Profile, counts: Counts, blocks: int, warm: frozenset[tuple[str, int]]) -> float:
    """Bytes between DRAM and the last-level cache.

    Programs that run at one time share what they read at one time. What is read again later comes from the cache as far as
    the footprint of one wave fits; what is written goes out once. Tensors in `warm` (see `written`) need not be fetched.
    """
    wave = min(blocks * profile.sm_count, prod(launch.grid))
    waves = prod(launch.grid) / wave
    roots: dict[str, list[Access]] = {}
    for access in counts.accesses:
        roots.setdefault(access.root, []).append(access)
    traffic = {root: _wave_bytes(group, wave) for root, group in roots.items()}
    footprint = sum(min(traffic[root], _span_bytes(group)) for root, group in roots.items())
    kept = min(1.0, KEPT_IN_CACHE * profile.last_level_cache_bytes / max(footprint, 1.0))
    total = 0.0
    for root, group in roots.items():
        asked = traffic[root] * waves
        once = min(storage_bytes(launch.arguments.get(root)), asked)
        loaded = any(a.kind == "load" for a in group)
        fetched = 0.0 if loaded and _key(launch.arguments.get(root)) in warm else once
        total += (fetched + (asked - once) * (1 - kept) if loaded else once) * max(map(_penalty, group))
    return total


def _penalty(access: Access) -> float:
    """Slow-down of DRAM by rows of less than a 128-byte line; partly written sectors are fetched and written twice."""
    partial = access.kind == "store" and 0 < 2 * access.bytes <= access.sectors * SECTOR_BYTES
    return (1 + SHORT_RUN * access.short_runs) * (PARTIAL_SECTORS if partial else 1)


def written(launch: Launch, profile: Profile, counts: Counts) -> frozenset[tuple[str, int]]:
    """(dtype, elements) of the tensors that a launch writes and leaves in the last-level cache for the next one.

    Launches do not say which tensor is which, so the next launch's tensor of the same type and size is taken for it.
    """
    room = KEPT_IN_CACHE * profile.last_level_cache_bytes / 2
    stored = (launch.arguments.get(a.root) for a in counts.accesses if a.kind != "load")
    return frozenset(_key(t) for t in stored if isinstance(t, (tuple, list)) and storage_bytes(t) <= room)


def _key(argument: Any) -> tuple[str, int]:
    return (argument[1], prod(argument[2])) if isinstance(argument, (tuple, list)) else ("", 0)


def _wave_bytes(group: Sequence[Access], wave: int) -> float:
    """Bytes that one wave asks of one tensor: its distinct tiles, in whole sectors if nobody uses the rest."""
    whole = used = 0.0
    for access in group:
        tiles = (access.distinct or wave) * access.footprint_executions / max(access.executions, 1)
        whole += tiles * access.sectors * SECTOR_BYTES
        used += tiles * access.bytes
    return min(whole, max(_span_bytes(group), used))


def _span_bytes(group: Sequence[Access]) -> float:
    """Bytes between the first and the last address that a wave touches in one tensor."""
    if not all(a.corners for a in group):
        return float("inf")
    low = min(int(c.min()) for a in group for c in a.corners)
    high = max(int(c.max()) + a.extent for a in group for c in a.corners)
    return float((high - low) * group[0].itemsize)


def storage_bytes(argument: Any) -> float:
    """Bytes of the memory that a tensor argument `("tensor", dtype, shape, strides)` spans; infinite for anything else."""
    if not isinstance(argument, (tuple, list)):
        return float("inf")
    _, dtype, shape, strides = argument
    if 0 in shape:
        return 0.0
    touched = min(prod(shape), 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))
    return float(touched * ITEMSIZE.get(dtype, 1))
