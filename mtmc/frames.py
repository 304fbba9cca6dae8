"""Frames: how a kernel's coordinates walk a tensor, and where a broadcast operand lies in that walk.

A frame over a shape is a tuple of `(coordinate, first, last)`: the coordinate runs row-major over dimensions first … last-1.
`(("row", 0, 2), ("col", 2, 3))` over [B, C, W] has row = b * C + c and col = w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Frame = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Offset:
    """Offset of an operand's element: an expression of coordinates and of `sizes`, which maps the size arguments it needs to
    expressions of `{shape}` (the full tensor's shape, to be filled in). `coordinates` are those that occur."""

    text: str
    sizes: dict[str, str]
    coordinates: tuple[str, ...]


def pad(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Shape with leading ones up to `rank`, as broadcasting does."""
    return (1,) * (rank - len(shape)) + shape


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that tensors of these shapes broadcast to."""
    rank = max(map(len, shapes), default=0)
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*(pad(s, rank) for s in shapes), strict=True))


def broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether a tensor of `shape` broadcasts to `full`."""
    return len(shape) <= len(full) and all(a in (1, b) for a, b in zip(pad(shape, len(full)), full, strict=True))


def _size(first: int, last: int, sizes: dict[str, str]) -> str:
    """Name of the size argument that is the product of dimensions first … last-1; notes it in `sizes`."""
    name = f"size_{first}" if last == first + 1 else f"size_{first}_{last}"
    sizes[name] = " * ".join(f"{{shape}}[{d}]" for d in range(first, last))
    return name


def _runs(first: int, last: int, used: list[bool], full: tuple[int, ...]) -> list[tuple[int, int]]:
    """Maximal runs of used dimensions in first … last-1; dimensions of size 1 join either side."""
    runs: list[tuple[int, int]] = []
    for d in range(first, last):
        if full[d] == 1 or not used[d]:
            continue
        if runs and all(full[e] == 1 for e in range(runs[-1][1], d)):
            runs[-1] = (runs[-1][0], d + 1)
        else:
            runs.append((d, d + 1))
    return runs


def operand_offset(frame: Frame, full: tuple[int, ...], shape: tuple[int, ...]) -> Offset:
    """Row-major offset, in a contiguous operand of `shape`, of the element at the frame's coordinates over `full`."""
    shape = pad(shape, len(full))
    used = [a == b for a, b in zip(shape, full, strict=True)]
    sizes: dict[str, str] = {}
    text, coordinates = "", []
    for name, first, last in frame:
        for i, j in _runs(first, last, used, full):
            term = name
            if prod(full[j:last]) > 1:
                term = f"{term} // {_size(j, last, sizes)}"
            if prod(full[first:i]) > 1:
                term = f"{term} % {_size(i, j, sizes)}"
            text = f"({text}) * {_size(i, j, sizes)} + {term}" if text else term
            coordinates.append(name)
    return Offset(text or "0", {k: v for k, v in sizes.items() if k in text}, tuple(dict.fromkeys(coordinates)))


def split_for(full: tuple[int, ...], shapes: list[tuple[int, ...]]) -> int:
    """First dimension of `col` for a rows kernel: the longest tail over which every operand is either whole or absent."""
    rank = len(full)
    padded = [pad(s, rank) for s in shapes]
    split = rank
    for d in reversed(range(rank)):
        tail = range(d, rank)
        uniform = all(all(p[e] == full[e] for e in tail) or all(p[e] == 1 for e in tail if full[e] != 1) for p in padded)
        if not uniform:
            break
        split = d
    return min(split, rank - 1)


def _groups(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[range, range]] | None:
    """Runs of dimensions of two shapes with equal products, aligned from the left; None for unlike shapes."""
    if prod(a) != prod(b) or 0 in a:
        return None
    groups, i, j = [], 0, 0
    while i < len(a) or j < len(b):
        k, m = min(i + 1, len(a)), min(j + 1, len(b))
        while prod(a[i:k]) != prod(b[j:m]):
            if prod(a[i:k]) < prod(b[j:m]):
                k += 1
            else:
                m += 1
            if k > len(a) or m > len(b):
                return None
        groups.append((range(i, k), range(j, m)))
        i, j = k, m
    return groups


def seen_through_view(shape: tuple[int, ...], full: tuple[int, ...], viewed: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape of a contiguous operand that broadcasts to `full`, as one that broadcasts to `viewed`, a view of `full`.

    None where a dimension of the view would be covered in part. [C, 1, 1] over [N, C, H, W] is [G, C/G, 1, 1] over
    [N, G, C/G, H, W].
    """
    groups = _groups(full, viewed)
    shape = pad(shape, len(full))
    if groups is None:
        return None
    found: list[int] = []
    for mine, theirs in groups:
        whole = all(shape[d] == full[d] for d in mine)
        if not whole and any(shape[d] != 1 for d in mine):
            return None
        found += [viewed[d] if whole else 1 for d in theirs]
    return tuple(found)
