"""What travels between the judge, the wardens and the workers: framed messages, orders, and outcomes that are plain values.

Downwards (judge → warden → worker) everything is trusted and pickled. Upwards nothing is: a reply is read by an unpickler
that knows the classes of outcomes and no others, and must be of a class that its job may return.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import select
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtmc.verdict import RuntimeFault

if TYPE_CHECKING:
    from mtmc.judge.jobs import Job

HEADER = struct.Struct(">Q")
LONGEST_REPLY = 256 << 20  # bytes
# Classes that a reply may hold. `Verified` is not among them: only the judge says that.
OUTCOMES: dict[str, tuple[str, ...]] = {
    "mtmc.verdict": (
        "Accuracy",
        "CompileError",
        "Finding",
        "Infra",
        "Launch",
        "Rejected",
        "RuntimeFault",
        "Timeout",
        "Timing",
        "Wrong",
    ),
    "mtmc.judge.jobs": ("Compiled", "Observations", "ReferenceTimes"),
    "mtmc.judge.predict": ("KernelTime", "Prediction"),
    "mtmc.judge.pipes": ("Occupancy",),
    "mtmc.judge.trivial": ("Trivial",),
    "numpy._core.multiarray": ("scalar",),
    "numpy": ("dtype",),
}
FAILURES = {"CompileError", "Infra", "Rejected", "RuntimeFault", "Timeout", "Wrong"}
ANSWERS = {"compile": "Compiled", "verify": "Accuracy", "dynamic": "Observations", "time": "Timing"}  # of candidates' jobs


@dataclass(frozen=True)
class Order:
    """A job for a warden; without `data` only "have a worker ready".

    `tenant` names whose code the worker holds: workers and their caches are never shared between tenants. `confined` workers
    are locked in; `cache` is their folder for compiled code. `paired` jobs get a second, confined worker that holds the
    candidate while the job itself stays outside.
    """

    tenant: str
    confined: bool
    cache: str
    fresh: bool = False
    paired: bool = False
    stage: str = ""
    seconds: float = 0.0
    data: bytes = b""


def framed(data: bytes) -> bytes:
    return HEADER.pack(len(data)) + data


def send(fd: int, data: bytes) -> None:
    """Write one message whole. Raises BrokenPipeError when nobody reads."""
    rest = memoryview(framed(data))
    while rest:
        rest = rest[os.write(fd, rest) :]


def receive(fd: int, longest: int = 1 << 62) -> bytes | None:
    """Wait for one message; None when the other side has closed, or begins one that is longer than `longest`."""
    message = Message(fd, longest)
    while not message.read(None):
        pass
    return message.body if message.whole else None


class Message:
    """A message being read from a pipe without ever waiting longer than told, nor growing longer than `longest`."""

    def __init__(self, fd: int, longest: int = LONGEST_REPLY) -> None:
        self.fd, self.longest, self.ended = fd, longest, False
        self._data = bytearray()

    @property
    def _size(self) -> int:
        """Bytes of the whole message, header included, as far as is known."""
        known = len(self._data) >= HEADER.size
        return HEADER.size + (int(HEADER.unpack_from(self._data)[0]) if known else 0)

    @property
    def whole(self) -> bool:
        return len(self._data) >= HEADER.size and len(self._data) >= self._size

    @property
    def body(self) -> bytes:
        return bytes(memoryview(self._data)[HEADER.size : self._size])

    def read(self, seconds: float | None) -> bool:
        """Read what is there within `seconds`; true when the message is whole, too long, or the pipe has ended."""
        if select.select([self.fd], [], [], seconds)[0]:
            piece = os.read(self.fd, min(max(self._size - len(self._data), 1), 1 << 20))
            self._data += piece
            self.ended = self.ended or not piece or self._size > self.longest
        return self.whole or self.ended


def outcome_of(job: Job, reply: bytes) -> Any:
    """The outcome in a reply, or the RuntimeFault of a worker whose reply is none or is not of this job."""
    try:
        outcome = plain(reply)
    except (pickle.UnpicklingError, ValueError, EOFError, TypeError, AttributeError, IndexError, KeyError) as error:
        return RuntimeFault(f"the worker's reply cannot be read: {error}", "died")
    returns = str(type(job).run.__annotations__.get("return", "Any")).replace("None", "NoneType")
    wanted = FAILURES | set(re.findall(r"\w+", returns))
    if "Any" in wanted and job.stage in ANSWERS:
        wanted.add(ANSWERS[job.stage])
    if type(outcome).__name__ not in wanted:
        found = type(outcome).__name__
        return RuntimeFault(f"the worker replied with {found}, which {type(job).__name__} never does", "died")
    return outcome


def plain(data: bytes) -> Any:
    """A value that nobody trusted has pickled. Raises UnpicklingError for anything but plain values and outcomes."""
    return PlainUnpickler(io.BytesIO(data)).load()


class PlainUnpickler(pickle.Unpickler):
    """Reads outcomes: plain values, NumPy scalars and the classes in `OUTCOMES`; nothing else can be sent."""

    def find_class(self, module: str, name: str) -> Any:
        if name in OUTCOMES.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no outcome (known: see OUTCOMES in mtmc/judge/wire.py)")
