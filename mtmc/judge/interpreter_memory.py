"""The memory of one launch: which tensor an address belongs to, and which program touched each element.

Every pointer handed to a kernel carries the number of its tensor in bits 48 and up, so that arithmetic on it keeps the
origin; user-space addresses need 47 bits. An access gives the plain addresses back, or raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mtmc.judge.interpreter import OutOfBounds, Race

Array = npt.NDArray[Any]

SHIFT = 48
ADDRESS = np.uint64((1 << SHIFT) - 1)
UNTOUCHED, SHARED, ATOMIC = 0, -1, -2  # besides the number of a program, from 1: nobody, several programs, an atomic


class Cells:
    """Last writer and last reader of each element of a span of memory that one or several overlapping tensors cover."""

    def __init__(self, start: int, stop: int, item: int) -> None:
        self.start, self.stop, self.item = start, stop, item
        self.writers: Array | None = None
        self._readers: Array | None = None

    @property
    def readers(self) -> Array:
        if self._readers is None:
            self._readers = self._fresh()
        return self._readers

    def _fresh(self) -> Array:
        return np.zeros((self.stop - self.start) // self.item + 1, np.int32)  # all UNTOUCHED

    def own(self) -> Array:
        if self.writers is None:
            self.writers = self._fresh()
        return self.writers

    def index(self, addresses: Array) -> Array:
        """Element numbers; item sizes are powers of two."""
        return (addresses - np.uint64(self.start)) >> np.uint64(self.item.bit_length() - 1)


@dataclass(frozen=True)
class Argument:
    """A tensor of the launch: first and last+1 byte address, and the cells beneath."""

    name: str
    start: int
    stop: int
    cells: Cells


class Memory:
    """All tensors of one launch, by number from 1."""

    def __init__(self, kernel: str, tensors: list[tuple[str, Any]]) -> None:
        self.kernel = kernel
        spans = [(name, tensor, *_span(tensor)) for name, tensor in tensors if tensor.numel()]
        cells = _merge([(start, stop, tensor.element_size()) for _, tensor, start, stop in spans])
        self.arguments = {
            number: Argument(name, start, stop, next(c for c in cells if c.start <= start < c.stop))
            for number, (name, _, start, stop) in enumerate(spans, start=1)
        }
        self.numbers = {id(tensor): number for number, (_, tensor, _, _) in enumerate(spans, start=1)}
        self.grid: tuple[int, int, int] = (1, 1, 1)
        self.program: tuple[int, int, int] = (0, 0, 0)
        self.me = 0
        self.ordered = False  # after an acquiring atomic a program may rely on what others did before theirs

    def tag(self, tensor: Any) -> int:
        """The address of a launch argument with its number; an empty tensor has none."""
        return int(tensor.data_ptr()) | self.numbers.get(id(tensor), 0) << SHIFT

    def enter(self, program: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
        """A program starts."""
        self.program, self.grid, self.ordered = program, grid, False
        self.me = (program[0] * grid[1] + program[1]) * grid[2] + program[2] + 1

    def load(self, pointers: Array, mask: Array, size: int) -> Array:
        """Plain addresses of a load of `size` bytes per lane, same shape as `pointers`. Raises OutOfBounds or Race."""
        for argument, addresses in self._inside(pointers, mask, size, "tl.load"):
            cells = argument.cells
            index = cells.index(addresses)
            if cells.writers is not None:
                self._check(cells.writers[index], index, argument, "loads what {} stored")
            seen = cells.readers[index]
            cells.readers[index] = np.where((seen == UNTOUCHED) | (seen == self.me), self.me, SHARED)
        return pointers & ADDRESS

    def store(self, pointers: Array, mask: Array, size: int) -> Array:
        """As `load`, for a store; the caller shows with `check_stored` that no two lanes differ."""
        self._write(pointers, mask, size, "tl.store", self.me)
        return pointers & ADDRESS

    def atomic(self, pointers: Array, mask: Array, size: int, acquires: bool) -> Array:
        """As `load`, for an atomic, which never races with another atomic."""
        self._write(pointers, mask, size, "tl.atomic", ATOMIC)
        self.ordered = self.ordered or acquires
        return pointers & ADDRESS

    def check_stored(self, pointers: Array, mask: Array, wanted: Array, found: Array) -> None:
        """Raises Race when a store's lanes wrote different values to one element (`found` is what memory holds now)."""
        size = found.dtype.itemsize
        bits = f"u{size}"
        wrong = mask & (np.ascontiguousarray(wanted).view(bits) != found.view(bits))
        if wrong.any():
            argument, addresses = next(iter(self._inside(pointers, wrong, size, "tl.store")))
            where = int(argument.cells.index(addresses)[0])
            raise Race(f"{self._who()}: lanes of one tl.store give element {where} of '{argument.name}' different values")

    def _write(self, pointers: Array, mask: Array, size: int, operation: str, owner: int) -> None:
        for argument, addresses in self._inside(pointers, mask, size, operation):
            cells = argument.cells
            index, writers = cells.index(addresses), cells.own()
            last = writers[index]
            if owner == ATOMIC:
                last = np.where(last == ATOMIC, UNTOUCHED, last)
            self._check(last, index, argument, "stores what {} stored")
            self._check(cells.readers[index], index, argument, "stores what {} loaded")
            # a plain store stays on record when its own program goes on with atomics
            writers[index] = np.where(last > UNTOUCHED, last, ATOMIC) if owner == ATOMIC else owner

    def _check(self, last: Array, index: Array, argument: Argument, deed: str) -> None:
        if self.ordered:
            return
        foreign = (last != UNTOUCHED) & (last != self.me)
        if foreign.any():
            lane = int(np.argmax(foreign))
            other = deed.format(self._name(int(last[lane])))
            raise Race(f"{self._who()} {other}, element {int(index[lane])} of '{argument.name}', in no fixed order")

    def _inside(self, pointers: Array, mask: Array, size: int, operation: str) -> Iterator[tuple[Argument, Array]]:
        """The active lanes' plain addresses, by tensor. Raises OutOfBounds."""
        active = pointers.ravel() if mask.all() else pointers[mask]
        if not active.size:
            return
        first, last = int(active.min()), int(active.max())
        if first >> SHIFT == last >> SHIFT:
            yield self._bounded(active, first, last, size, operation), active & ADDRESS
            return
        numbers = active >> np.uint64(SHIFT)
        for number in np.unique(numbers):
            lanes = active[numbers == number]
            yield self._bounded(lanes, int(lanes.min()), int(lanes.max()), size, operation), lanes & ADDRESS

    def _bounded(self, lanes: Array, first: int, last: int, size: int, operation: str) -> Argument:
        """The tensor that all lanes (tagged, from `first` to `last`) lie in."""
        argument = self.arguments.get(first >> SHIFT)
        if argument is None:
            raise OutOfBounds(f"{self._who()}: {operation} through a pointer that comes from no tensor of the launch")
        plain = int(ADDRESS)
        if argument.start <= first & plain and last & plain <= argument.stop - size:
            return argument
        addresses = lanes & ADDRESS
        outside = (addresses < np.uint64(argument.start)) | (addresses > np.uint64(argument.stop - size))
        address = int(addresses[outside][0])
        before = address < argument.start
        distance = argument.start - address if before else address - argument.stop
        raise OutOfBounds(
            f"{self._who()}: {operation} has {int(outside.sum())} of {lanes.size} lanes out of bounds of "
            f"'{argument.name}', the first {distance} bytes {'before its start' if before else 'past its end'}"
        )

    def _who(self) -> str:
        return f"{self.kernel}, program {self.program}"

    def _name(self, owner: int) -> str:
        if owner < UNTOUCHED:
            return {SHARED: "other programs", ATOMIC: "an atomic of another program"}[owner]
        return f"program {tuple(int(n) for n in np.unravel_index(owner - 1, self.grid))}"


def _span(tensor: Any) -> tuple[int, int]:
    """First and last+1 byte address of a strided tensor."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()


def _merge(spans: list[tuple[int, int, int]]) -> list[Cells]:
    """Disjoint cells over all spans (start, stop, item size); overlapping spans share theirs at the smaller item size."""
    merged: list[Cells] = []
    for start, stop, item in sorted(spans):
        if merged and start < merged[-1].stop:
            merged[-1].stop = max(merged[-1].stop, stop)
            merged[-1].item = min(merged[-1].item, item)
        else:
            merged.append(Cells(start, stop, item))
    return merged
