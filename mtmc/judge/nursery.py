"""A nursery: `python -m mtmc.judge.nursery KIND` holds the imports of one kind of warden, and forks wardens.

    judge ── births, with their pipes ──▶ nursery ── fork ──▶ warden (own session, environment, folder)

Importing PyTorch and Triton costs seconds, forking milliseconds. There is one nursery of a kind for all executors of a
process; it holds no candidate, and ends with the judge.
"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mtmc.judge import warden
from mtmc.judge.processes import fork_into, keep_only, reap
from mtmc.judge.wire import Message, receive, send
from mtmc.judge.worker import prepare

PIPES = 3  # stdin, stdout and stderr of a warden


@dataclass(frozen=True)
class Birth:
    """What a warden is to begin with, beside its pipes."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    path: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Child:
    """The judge's end of a warden: its pipes and its process, which is the leader of its own group."""

    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]

    @property
    def ended(self) -> bool:
        """Whether an idle warden is gone: it says nothing unasked, so what can be read is the end."""
        return self._readable(0.0)

    def end(self, seconds: float) -> None:
        """Close the pipes, which tells it to clear up; kill it when it is not gone in time."""
        self.stdin.close()
        if not self._gone(seconds):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.stdout.close()

    def _gone(self, seconds: float) -> bool:
        while self._readable(seconds):
            if not os.read(self.stdout.fileno(), 1 << 16):
                return True
        return False

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self.stdout], [], [], seconds)[0])


class Nursery:
    """The judge's end of a nursery of one kind, started when first needed and replaced when it has ended."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, None before the first start."""
        return self._popen.pid if self._popen else None

    def bear(self, birth: Birth, log: IO[bytes], seconds: float) -> Child:
        """A new warden. Raises OSError when there is none to be had, or not in time."""
        with self._lock:
            try:
                return self._born(birth, log, seconds)
            except OSError:
                if not self._ended(1.0):
                    raise
                return self._born(birth, log, seconds)  # it had ended since the last birth

    def _ended(self, seconds: float = 0.0) -> bool:
        try:
            return self._popen is None or self._popen.wait(seconds) is not None
        except subprocess.TimeoutExpired:
            return False

    def _born(self, birth: Birth, log: IO[bytes], seconds: float) -> Child:
        if self._ended():
            self._start(birth.environment, seconds)
        assert self._line is not None
        orders, stdin = os.pipe()
        stdout, replies = os.pipe()
        try:
            socket.send_fds(self._line, [b"+"], [orders, replies, log.fileno()])
            send(self._line.fileno(), pickle.dumps(birth))
            pid = int(self._said(seconds))
        except OSError:
            os.close(stdin)
            os.close(stdout)
            raise
        finally:
            os.close(orders)
            os.close(replies)
        return Child(pid, os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0))

    def _start(self, environment: dict[str, str], seconds: float) -> None:
        """With what wardens may see of the environment: theirs shows the nursery's as well."""
        if self._line:
            self._line.close()
        self._line, far = socket.socketpair()
        own = {**environment, "HOME": tempfile.gettempdir(), "TMPDIR": tempfile.gettempdir()}
        with far, tempfile.TemporaryFile() as log:
            command = [sys.executable, "-m", "mtmc.judge.nursery", self.kind]
            self._popen = subprocess.Popen(
                command, env=own, cwd="/", stdin=far.fileno(), stdout=log, stderr=log, start_new_session=True
            )
            far.close()
            try:
                self._said(seconds)
            except OSError as error:
                log.seek(0)
                words = log.read().decode(errors="replace").strip().splitlines()
                raise OSError(words[-1] if words else str(error)) from None

    def _said(self, seconds: float) -> bytes:
        assert self._line is not None and self._popen is not None
        message, deadline = Message(self._line.fileno()), time.monotonic() + seconds
        while not message.read(max(deadline - time.monotonic(), 0.0)) and time.monotonic() < deadline:
            pass
        if message.whole:
            return message.body
        self._popen.kill()
        raise OSError("it ended" if message.ended else f"nothing came of it in {seconds:g} s")


@functools.cache
def nursery(kind: str) -> Nursery:
    """This process's nursery of a kind."""
    return Nursery(kind)


def main() -> None:
    """Serve the judge at the other end of stdin."""
    kind, line = sys.argv[1], socket.socket(fileno=os.dup(0))
    prepare(kind)
    gc.collect()
    gc.freeze()  # half a million objects that no worker's collector need look at: 0.13 s after every job
    warnings.simplefilter("ignore", DeprecationWarning)  # fork with NumPy's threads about: they know what to do
    send(line.fileno(), b"ready")
    while True:
        mark, pipes, _, _ = socket.recv_fds(line, 1, PIPES)
        message = receive(line.fileno()) if mark else None
        if message is None:
            os._exit(0)  # taking PyTorch down in order takes seconds
        pid = fork_into(functools.partial(_begin, kind, pickle.loads(message), pipes), pipes)
        for pipe in pipes:
            os.close(pipe)
        send(line.fileno(), str(pid).encode())
        reap()


def _begin(kind: str, birth: Birth, pipes: list[int]) -> None:
    """Be a warden."""
    os.setsid()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
    keep_only(range(PIPES))
    os.environ.clear()
    os.environ.update(birth.environment)
    sys.path[:] = birth.path
    os.chdir(birth.folder)
    tempfile.tempdir = None
    warden.main(kind, birth.arguments)


if __name__ == "__main__":
    main()
