"""A knob knows its own domain: the values it may take, and the next ones to try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class PowerOfTwo:
    """Powers of two from `low` to `high`."""

    low: int
    high: int

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high and value & (value - 1) == 0

    def neighbours(self, value: int) -> Iterator[int]:
        """Twice, four times, half: the steps tried from a value."""
        yield from (new for new in (value * 2, value * 4, value // 2) if new in self and new != value)


@dataclass(frozen=True)
class Whole:
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def neighbours(self, value: int) -> Iterator[int]:
        """One more, two more, one less."""
        yield from (new for new in (value + 1, value + 2, value - 1) if new in self)


TILES: dict[str, PowerOfTwo] = {
    "BLOCK": PowerOfTwo(32, 65536),
    "RED": PowerOfTwo(1, 1024),
    "BLOCK_M": PowerOfTwo(16, 256),
    "BLOCK_N": PowerOfTwo(16, 256),
    "BLOCK_K": PowerOfTwo(16, 128),
    "GROUP": PowerOfTwo(1, 32),
    "SPLIT": PowerOfTwo(2, 1024),
}
WARPS = PowerOfTwo(1, 16)
STAGES = Whole(1, 5)
AHEAD = (2, 3, 4)  # iterations a streaming loop loads ahead
UNROLL = (2, 4)
GROUPS = (4, 8, 16)  # rows of tiles walked together
MAX_TILE = 65536  # elements of one program's tile: beyond, registers cannot hold it on any GPU
COUNTS = ("GROUP", "SPLIT")  # constants that are no extent of a tile

# BLOCK_M, BLOCK_N, BLOCK_K, warps, stages: the best of a sweep over fp16x3 and tf32x3 products on an H200, and smaller ones.
PRODUCT_TILES: tuple[tuple[int, ...], ...] = (
    (128, 128, 64, 8, 3),
    (128, 256, 32, 8, 3),
    (128, 128, 32, 8, 3),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 3),
    (256, 64, 32, 8, 3),  # tf32x3, whose operands pass through registers
)

# Tiles that a product of fp16 pairs gets at first, the largest first; measured on an H200, stages slow the last one down.
PAIR_TILES: tuple[tuple[int, ...], ...] = (
    (128, 128, 64, 8, 3),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 1),
)

# BLOCK_M, BLOCK_N, warps, stages of an attention: rows of queries and keys, tried where registers and shared memory allow.
ATTENTION_TILES: tuple[tuple[int, ...], ...] = (
    (128, 64, 8, 2),
    (64, 64, 4, 2),
    (128, 32, 8, 3),
    (64, 32, 4, 3),
    (64, 128, 8, 2),
)

# The same of an attention whose keys and values are fp16 pairs: they are copied ahead, and four warps' registers suffice.
PAIR_ATTENTION_TILES: tuple[tuple[int, ...], ...] = (
    (64, 32, 4, 2),
    (64, 64, 4, 2),
    (64, 128, 4, 3),
    (128, 64, 8, 2),
)
