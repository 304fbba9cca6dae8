"""Tensors between two processes of one machine: values in shared memory, whose descriptor travels over a Unix socket.

A parcel is a plain value and some tensors. What comes from the other side is checked before memory is taken for it, and
copied, so that it cannot change any more once it is looked at. Both ends keep the memory mapped: its first touch costs more
than all copies after it.
"""

from __future__ import annotations

import fcntl
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


@dataclass(frozen=True)
class Shared:
    """Shared memory of fixed size, mapped here."""

    fd: int
    room: int
    memory: mmap.mmap

    @staticmethod
    def made(room: int) -> Shared:
        """New memory of `room` bytes."""
        fd = os.memfd_create("mtmc", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, room)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _seals())
        return Shared(fd, room, _mapped(fd, room))

    @staticmethod
    def of(fd: int) -> Shared:
        """The memory of a descriptor from the other side. Raises Strange where that could still take it away."""
        try:
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() == _seals()
        except OSError:  # a file of another kind
            sealed = False
        room = os.fstat(fd).st_size
        if not sealed or not room:
            raise Strange("shared memory whose size may change")
        return Shared(fd, room, _mapped(fd, room))

    def is_of(self, fd: int) -> bool:
        """Whether a descriptor stands for this memory."""
        return os.path.sameopenfile(self.fd, fd)

    def close(self) -> None:
        """Give it back. No tensor may lie in it any more."""
        self.memory.close()
        os.close(self.fd)


def _seals() -> int:
    """Against another size; known on Linux alone."""
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def _mapped(fd: int, room: int) -> mmap.mmap:
    return mmap.mmap(fd, room, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


class Post:
    """One end of a socket over which parcels go. What it sends stays valid until it sends again."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._own: Shared | None = None
        self._theirs: Shared | None = None

    def send(self, value: bytes, tensors: list[torch.Tensor]) -> None:
        """Raises BrokenPipeError when the other end is gone."""
        import pickle

        slots, room = _slots(tensors)
        if room and (self._own is None or room > self._own.room):
            if self._own:
                self._own.close()
            self._own = Shared.made(room)
        if room and self._own:
            _fill(self._own.memory, slots, tensors)
        socket.send_fds(self.line, [b"+" if room else b"-"], [self._own.fd] if room and self._own else [])
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
            shared = self._shared(fds.pop()) if fds else None
            slots = [_slot(entry).checked(shared.room if shared else 0) for entry in plain(head)]
            return value, _taken(shared.memory if shared else b"", slots, device)
        finally:
            for fd in fds:
                os.close(fd)

    def _shared(self, fd: int) -> Shared:
        """The memory that the other side has filled, which is mostly that of the last time."""
        if self._theirs and self._theirs.is_of(fd):
            os.close(fd)
            return self._theirs
        if self._theirs:
            self._theirs.close()
        self._theirs = None
        self._theirs = Shared.of(fd)
        return self._theirs


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


def _fill(memory: mmap.mmap, slots: list[Slot], tensors: list[torch.Tensor]) -> None:
    for slot, tensor in zip(slots, tensors, strict=True):
        if prod(slot.base):
            values = tensor.detach().as_strided(slot.base, slot.strides)
            _view(memory, slot).copy_(values.resolve_conj().resolve_neg())


def _taken(memory: mmap.mmap | bytes, slots: list[Slot], device: torch.device) -> list[torch.Tensor]:
    import torch

    found = []
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
