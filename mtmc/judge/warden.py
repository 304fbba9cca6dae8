"""A warden: forked from a `nursery`, with all imports, it forks workers, which run the jobs.

    judge ── orders ──▶ warden ── fork ──▶ worker (confined: own user, folder, session, no network)
          ◀─ replies ──        ◀─ bytes ──

It never runs a candidate and never unpickles what a worker says. It watches the clock, memory, processes and disk of its
workers, kills them with all they started, and forks the next one, which costs milliseconds because everything is imported.
A worker for the CPU serves one job; one for the GPU, whose context is dear, serves the jobs of one tenant until one fails.
"""

from __future__ import annotations

import argparse
import os
import pickle
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mtmc.judge import folders, sandbox
from mtmc.judge.processes import (
    PR_SET_PDEATHSIG,
    adopt_orphans,
    descendants,
    end_descendants,
    exit_of,
    fork_into,
    memory_over,
    prctl,
    running,
)
from mtmc.judge.wire import Message, Order, receive, send
from mtmc.judge.worker import NONCE, hold, serve
from mtmc.verdict import Infra, RuntimeFault, Timeout, Verdict

TICK = 0.2  # seconds between two looks at memory and processes
LOOKS_A_LOOK_AT_FILES = 5
KEPT = {"compile": False, "interpret": False, "gpu": True}  # whether a worker serves several jobs of its tenant


class Closed(Exception):
    """The judge has closed its end, or this warden can no longer keep order and leaves."""


@dataclass
class Worker:
    """A forked worker and the pipes to it; `host` is the process that holds the candidate for it, 0 when it does itself."""

    pid: int
    host: int
    orders: int
    replies: int
    tenant: str
    folder: Path
    cache: Path

    @property
    def family(self) -> set[int]:
        return {self.pid, self.host} - {0}

    def close(self) -> None:
        os.close(self.orders)
        os.close(self.replies)


class Warden:
    """Serves the orders of one judge, one at a time."""

    def __init__(self, kind: str, house: Path, folder: Path, plan: sandbox.Plan, memory: int) -> None:
        self.kind, self.house, self.folder, self.plan, self.memory = kind, house, folder, plan, memory
        self.worker: Worker | None = None
        self.born = self.looks = 0

    def serve(self, orders: int, replies: int) -> None:
        """Until the judge closes its end."""
        self.orders = orders
        try:
            while (message := receive(orders)) is not None:
                send(replies, self._obey(pickle.loads(message)))
        except (Closed, BrokenPipeError):
            pass
        finally:
            self._end()

    def _obey(self, order: Order) -> bytes:
        """The pickled outcome of the order's job, or None when the order was to be ready."""
        found: bytes | Verdict | None = self._ready(order)
        if found is None and order.data:
            found = self._run(order)
        return found if isinstance(found, bytes) else pickle.dumps(found)

    def _ready(self, order: Order) -> Verdict | None:
        """Have a worker for the order's tenant; Infra when there is none to be had."""
        worker = self.worker
        if worker and not order.fresh and worker.tenant == order.tenant and exit_of(worker.pid) is None:
            return None
        self._end()
        return self._start(order)

    def _start(self, order: Order) -> Verdict | None:
        self.worker = self._fork(order)
        said = self._reply(self.worker, 120.0, Infra("the worker took too long to start"))
        if said == b"ready":
            return None
        self._end()
        return Infra(f"the worker did not start: {getattr(said, 'message', said)!s}")

    def _run(self, order: Order) -> bytes | Verdict:
        """The job's reply; afterwards the worker is gone, unless it is one to be kept and has left nothing behind."""
        assert self.worker is not None
        worker, nonce = self.worker, secrets.token_bytes(NONCE)
        try:
            send(worker.orders, nonce + order.data)
        except BrokenPipeError:
            self._end()
            return Infra("the worker left while it was idle")
        said = self._reply(worker, order.seconds, Timeout(order.stage, order.seconds))
        leaves = True
        if isinstance(said, bytes):
            if said[:NONCE] != nonce or len(said) <= NONCE:
                said = RuntimeFault("the worker's reply is not the reply to its job", "died")
            else:
                leaves, said = bool(said[NONCE]), said[NONCE + 1 :]
        if worker.host and exit_of(worker.host) is not None:
            said, leaves = self._obituary(worker.host), True
        if leaves or not KEPT[self.kind] or {pid for pid in descendants(os.getpid()) if running(pid)} != worker.family:
            self._end()
        return said

    def _reply(self, worker: Worker, seconds: float, too_late: Verdict) -> bytes | Verdict:
        """The worker's message, or why there is none. Watches the clock, the judge, and what the worker takes."""
        deadline, look = time.monotonic() + seconds, time.monotonic() + TICK
        message = Message(worker.replies)
        while True:
            now = time.monotonic()
            heard = select.select([worker.replies, self.orders], [], [], max(min(look, deadline) - now, 0.0))[0]
            if self.orders in heard:  # the judge sends one order at a time, so this is its end
                raise Closed
            if heard and message.read(0):
                return message.body if message.whole else self._obituary(worker.pid)
            if time.monotonic() >= deadline:
                return too_late
            if time.monotonic() >= look:
                look = time.monotonic() + TICK
                if fault := self._excess(worker):
                    return fault

    def _excess(self, worker: Worker) -> Verdict | None:
        """What the worker and its children take too much of, or its obituary if a child of its own outlived it."""
        family = descendants(os.getpid())
        if exit_of(worker.pid) is not None:
            return self._obituary(worker.pid)
        if len(family) > sandbox.PROCESSES:
            return RuntimeFault(f"started more than {sandbox.PROCESSES} processes", "died")
        if memory_over(family, self.memory):
            return RuntimeFault(f"used more than {self.memory / sandbox.GIB:.1f} GiB of host memory", "died")
        self.looks += 1
        if self.looks % LOOKS_A_LOOK_AT_FILES == 0:
            if much := folders.too_full(worker.folder) or worker.host and folders.too_full(worker.cache):
                return RuntimeFault(f"wrote more than {much}", "died")
        return None

    def _obituary(self, pid: int) -> Verdict:
        """How the worker ended; one that has only closed its pipe is helped to."""
        deadline = time.monotonic() + 0.5  # the pipe closes a moment before the process is gone
        while (code := exit_of(pid)) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        how = "by closing its pipe" if code is None else f"with exit code {code}"
        if code is not None and code < 0:
            how = f"with signal {signal.Signals(-code).name}"
        words = folders.last_words(self.folder / "log")
        return RuntimeFault(f"the worker process ended {how}" + (f": {words}" if words else ""), "died")

    def _fork(self, order: Order) -> Worker:
        self.born += 1
        folder, cache = self.folder / str(self.born), Path(order.cache)
        for path in (folder, cache, cache / "triton", cache / "inductor"):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        jobs_out, jobs_in = os.pipe()
        replies_out, replies_in = os.pipe()
        inside = Inside(self.kind, self.plan if order.confined else None, sandbox.Cell(self.house, folder, cache))
        os.truncate(self.folder / "log", 0)
        if order.paired:
            host, pid = self._pair(inside, jobs_out, replies_in)
        else:
            main = partial(serve, self.kind, jobs_out, replies_in)
            host, pid = 0, fork_into(lambda: inside.main(main), (jobs_out, replies_in))
        os.close(jobs_out)
        os.close(replies_in)
        return Worker(pid, host, jobs_in, replies_out, order.tenant, folder, cache)

    def _pair(self, inside: Inside, jobs: int, replies: int) -> tuple[int, int]:
        """A confined host with the candidate, and an unconfined worker that compares, with a line between them."""
        near, far = socket.socketpair()
        with near, far:
            held = fork_into(lambda: inside.main(partial(hold, self.kind, far)), (far.fileno(),))
            own = _made(inside.cell.folder.with_suffix(".own"))
            outside = replace(inside, plan=None, cell=replace(inside.cell, folder=own, cache=own))
            main = partial(serve, self.kind, jobs, replies, near)
            return held, fork_into(lambda: outside.main(main), (jobs, replies, near.fileno()))

    def _end(self) -> None:
        """Kill the worker and whatever came of it, and remove its folder. Raises Closed when something cannot be killed."""
        if self.worker is None:
            return
        gone = end_descendants(self.plan.sweep_user)
        self.worker.close()
        for folder in (self.worker.folder, self.worker.folder.with_suffix(".own")):
            folders.remove(folder)
        self.worker = None
        if not gone:
            raise Closed


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Inside:
    """What a forked child does before it serves."""

    kind: str
    plan: sandbox.Plan | None
    cell: sandbox.Cell

    def main(self, serve: Callable[[], None]) -> None:
        os.setsid()
        self._own_folder()
        if self.plan is not None:
            sandbox.confine(self.plan, self.cell)
        else:
            sandbox.limit()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        serve()

    def _own_folder(self) -> None:
        folder, cache = self.cell.folder, self.cell.cache
        if self.plan is not None and self.plan.user is not None:
            for path in (folder, cache):
                folders.give(path, self.plan.user)
        os.chdir(folder)
        os.environ.update(
            HOME=str(folder),
            TMPDIR=str(folder),
            TRITON_CACHE_DIR=str(cache / "triton"),
            TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"),
            TORCH_EXTENSIONS_DIR=str(cache / "extensions"),
        )
        import tempfile

        tempfile.tempdir = None


def main(kind: str, arguments: Sequence[str]) -> None:
    """Serve a judge over stdin and stdout; the first message says what confinement there is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("house", type=Path, help="folder of the judge's executor, hidden from workers")
    parser.add_argument("folder", type=Path, help="this warden's folder in it")
    parser.add_argument("--memory", type=int, required=True, help="bytes that a worker and its children may hold")
    parser.add_argument("--share", type=Path, help="cache folder of programs that trust each other")
    given = parser.parse_args(arguments)
    orders, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    adopt_orphans()
    share = [given.share] if given.share else []
    plan = sandbox.enter(given.folder, sandbox.SHARED_USER if share else None, share)
    send(replies, pickle.dumps(sandbox.sentences(plan)))
    Warden(kind, given.house, given.folder, plan, given.memory).serve(orders, replies)
