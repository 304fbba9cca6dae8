"""Tensors between two processes of one machine: values in shared memory, whose descriptor travels over a Unix socket.

A parcel is a plain value and some tensors. What comes from the other side is checked before memory is taken for it, and
copied, so that it cannot change any more once it is looked at.
"""

from __future__ import annotations

import mmap
import os
import socket
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from mtmc.judge.wire import LONGEST_REPLY, plain, receive, send

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64
LOOSE = 4  # times its elements that a tensor's strides may span


class Strange(ValueError):
    """A parcel that no honest sender packs."""


@dataclass(frozen=True)
class Slot:
    """Where a tensor's values lie in the shared memory, and how they are to be laid out: in elements, as PyTorch does."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    @property
    def base(self) -> tuple[int, ...]:
        """The shape without repetition: dimensions of stride 0 hold their values once."""
        return tuple(min(n, 1) if s == 0 else n for n, s in zip(self.shape, self.strides, strict=True))

    def checked(self, room: int) -> Slot:
        """Itself. Raises Strange for what cannot lie in `room` bytes, or takes far more room than it has elements."""
        import torch

        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype) or len(self.shape) != len(self.strides):
            raise Strange(f"a tensor of dtype {self.dtype}, shape {self.shape} and strides {self.strides}")
        size = prod(self.base) * dtype.itemsize
        span = 1 + sum((n - 1) * s for n, s in zip(self.base, self.strides, strict=True))
        if min((*self.shape, *self.strides, self.start), default=0) < 0 or self.start + size > room:
            raise Strange(f"a tensor of shape {self.shape} that is not there")
        if span > LOOSE * max(prod(self.base), 1) + 1024:
            raise Strange(f"shape {self.shape} with strides {self.strides}")
        return self


class Post:
    """One end of a socket over which parcels go. What it sends stays valid until it sends again."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._fd, self._room = -1, 0

    def send(self, value: bytes, tensors: list[torch.Tensor]) -> None:
        """Raises BrokenPipeError when the other end is gone."""
        import pickle

        slots, room = _slots(tensors)
        if room > self._room:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._room = os.memfd_create("mtmc"), room
            os.ftruncate(self._fd, room)
        if room:
            _fill(self._fd, room, slots, tensors)
        socket.send_fds(self.line, [b"+" if room else b"-"], [self._fd] if room else [])
        head = [(slot.dtype, slot.shape, slot.strides, slot.start) for slot in slots]
        send(self.line.fileno(), pickle.dumps(head))
        send(self.line.fileno(), value)

    def receive(self, device: torch.device) -> tuple[bytes, list[torch.Tensor]]:
        """The value, still pickled, and the tensors on `device`. Raises EOFError when the other end is gone, Strange."""
        mark, fds, _, _ = socket.recv_fds(self.line, 1, 1)
        try:
            head, value = (receive(self.line.fileno(), LONGEST_REPLY) if mark else None for _ in range(2))
            if not mark or head is None or value is None:
                raise EOFError("the other process is gone")
            room = os.fstat(fds[0]).st_size if fds else 0
            slots = [_slot(entry).checked(room) for entry in plain(head)]
            return value, _taken(fds[0] if fds else -1, room, slots, device)
        finally:
            for fd in fds:
                os.close(fd)


def _slot(entry: Any) -> Slot:
    dtype, shape, strides, start = entry
    numbers = (*shape, *strides, start)
    if not isinstance(dtype, str) or not all(type(n) is int for n in numbers):
        raise Strange("a description of a tensor that is none")
    return Slot(dtype, tuple(shape), tuple(strides), start)


def _slots(tensors: list[torch.Tensor]) -> tuple[list[Slot], int]:
    """A slot for each tensor, and the bytes that all take."""
    slots, end = [], 0
    for tensor in tensors:
        name = str(tensor.dtype).removeprefix("torch.")
        slots.append(Slot(name, tuple(tensor.shape), tuple(tensor.stride()), end))
        end += -(-prod(slots[-1].base) * tensor.element_size() // ALIGNMENT) * ALIGNMENT
    return slots, end


def _fill(fd: int, room: int, slots: list[Slot], tensors: list[torch.Tensor]) -> None:
    with mmap.mmap(fd, room) as memory:
        for slot, tensor in zip(slots, tensors, strict=True):
            if prod(slot.base):
                values = tensor.detach().as_strided(slot.base, slot.strides)
                _view(memory, slot).copy_(values.resolve_conj().resolve_neg())


def _taken(fd: int, room: int, slots: list[Slot], device: torch.device) -> list[torch.Tensor]:
    import torch

    found = []
    with mmap.mmap(fd, room) if room else open(os.devnull) as memory:
        for slot in slots:
            dtype = getattr(torch, slot.dtype)
            tensor = torch.empty_strided(slot.base, slot.strides, dtype=dtype, device=device)
            if tensor.numel():
                tensor.copy_(_view(memory, slot))
            found.append(tensor.as_strided(slot.shape, slot.strides))
    return found


def _view(memory: Any, slot: Slot) -> torch.Tensor:
    """The values of a slot as a tensor on the shared memory; it must be gone before the memory is closed."""
    import torch

    dtype = getattr(torch, slot.dtype)
    return torch.frombuffer(memory, dtype=dtype, count=prod(slot.base), offset=slot.start).view(slot.base)
