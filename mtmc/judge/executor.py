"""Where jobs run: the `Executor` protocol, and `LocalProcesses`, persistent worker processes by kind.

A job is a frozen dataclass with `kind`, `stage`, `seconds`, `fresh`, `alone` and `run()` (see `jobs`); its outcome is what
`run()` returns, or the Verdict that says how it failed. Both travel pickled over pipes, each message led by its length.

A worker is a process of its own session: scrubbed environment, its own folder as cwd and HOME, candidates' output in a log.
Past its deadline or memory limit the whole process group is killed and the next job gets a new worker. What is *not*
covered: candidates run with the user's rights; files outside the folder and the network are within their reach.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from mtmc.verdict import Infra, RuntimeFault, Timeout, Verdict

if TYPE_CHECKING:
    from mtmc.judge.jobs import Job

HEADER = struct.Struct(">Q")
TICK = 0.2  # seconds between two looks at a worker's memory
GIB = 1 << 30
INHERITED = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CC", "CXX", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_LIBCUDA_PATH")
SINGLE_THREADED = {"OMP_NUM_THREADS": "1"}
KINDS: dict[str, dict[str, str]] = {  # kind of worker → its environment
    "compile": SINGLE_THREADED,
    "interpret": {**SINGLE_THREADED, "TRITON_INTERPRET": "1"},
    "gpu": {},
}


class Executor(Protocol):
    """Runs jobs somewhere. `submit` never raises for what a job does: a failure is a Verdict in the future."""

    def submit(self, job: Job) -> Future[Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """`workers` per kind (one GPU means one `gpu` worker); resident memory of one worker in bytes; start-up in seconds."""

    workers: dict[str, int] = field(default_factory=lambda: {"compile": 2, "interpret": 2, "gpu": 1})
    memory_bytes: dict[str, int] = field(default_factory=lambda: {"compile": 8 * GIB, "interpret": 8 * GIB, "gpu": 64 * GIB})
    start_seconds: float = 120.0


class _Turns:
    """Lets jobs run side by side, except one that must run alone: it waits for the others and holds new ones back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._waiting = 0

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        with self._changed:
            self._waiting += alone
            self._changed.wait_for(lambda: self._running == 0 if alone else self._waiting == 0)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._waiting -= alone
                self._changed.notify_all()


@contextmanager
def _machine_turn(lock: Path | None) -> Iterator[None]:
    """The GPU to oneself among all runs that share a cache folder: neither times nor memory are disturbed."""
    if lock is None:
        yield
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class LocalProcesses:
    """Workers on this machine, started when first needed. Use as a context manager, or call `close`.

    `cache` holds what workers share (Triton's and Inductor's compile caches); without one it lives as long as the executor.
    """

    def __init__(self, cache: Path | None = None, limits: Limits | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mtmc-", ignore_cleanup_errors=True)
        self._cache = (cache or Path(self._folder.name) / "cache").resolve()
        self._limits = limits or Limits()
        self._queues: dict[str, queue.Queue[tuple[Job, bytes, Future[Any]] | None]] = {kind: queue.Queue() for kind in KINDS}
        self._turns = _Turns()
        self._lanes: dict[str, list[_Lane]] = {}
        self._lock = threading.Lock()
        self._closed = False
        atexit.register(self.close)

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, job: Job) -> Future[Any]:
        """Queue a job for its kind. Raises RuntimeError after `close`, PicklingError for a job that cannot travel."""
        future: Future[Any] = Future()
        data = pickle.dumps(job)
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is closed")
            if job.kind not in self._lanes:
                names = [f"{job.kind}-{index}" for index in range(self._limits.workers[job.kind])]
                self._lanes[job.kind] = [self._lane(job.kind, name) for name in names]
            self._queues[job.kind].put((job, data, future))
        return future

    def _lane(self, kind: str, name: str) -> _Lane:
        folder = Path(self._folder.name) / name
        folder.mkdir()
        command = [sys.executable, "-m", "mtmc.judge.worker", kind]
        process = _Process(command, _environment(kind, folder, self._cache), folder, self._limits, kind)
        lock = self._cache / "gpu.lock" if kind == "gpu" else None
        return _Lane(process, self._queues[kind], self._turns, name, lock)

    def close(self) -> None:
        """Kill every worker; jobs that have not ended end as Infra. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        lanes = [lane for lanes in self._lanes.values() for lane in lanes]
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.thread.join()
        for waiting in self._queues.values():
            while not waiting.empty():
                if entry := waiting.get_nowait():
                    entry[-1].set_result(Infra("the executor was closed"))
        self._folder.cleanup()


class _Lane:
    """One worker process and the thread that feeds it."""

    def __init__(self, process: _Process, jobs: queue.Queue[Any], turns: _Turns, name: str, lock: Path | None) -> None:
        self.process, self.jobs, self.turns, self.lock = process, jobs, turns, lock
        self.thread = threading.Thread(target=self._feed, name=f"mtmc {name}", daemon=True)
        self.thread.start()

    def _feed(self) -> None:
        while (entry := self.jobs.get()) is not None:
            job, data, future = entry
            if not future.set_running_or_notify_cancel():
                continue
            failed = self.process.ready(job.fresh)
            with self.turns.turn(job.alone), _machine_turn(self.lock):
                future.set_result(failed or self.process.run(job, data))
        self.process.end()

    def stop(self) -> None:
        self.process.closing = True
        self.jobs.put(None)


class _Process:
    """The life of one worker: started when needed, killed when it misbehaves, replaced after that."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Path, limits: Limits, kind: str) -> None:
        self.command, self.env, self.folder, self.limits = command, env, folder, limits
        self.memory = limits.memory_bytes[kind]
        self.popen: subprocess.Popen[bytes] | None = None
        self.closing = False

    def ready(self, fresh: bool) -> Verdict | None:
        """Have a worker running, a new one if asked for; Infra when there is none to be had."""
        if self.closing:
            return Infra("the executor was closed")
        if fresh:
            self.end()
        return self._start()

    def run(self, job: Job, data: bytes) -> Any:
        """The job's outcome. Never raises for what the job or the worker does."""
        if self.closing:
            return Infra("the executor was closed")
        assert self.popen is not None and self.popen.stdin is not None
        try:
            send(self.popen.stdin, data)
        except BrokenPipeError:
            self.end()
            return Infra("the worker left while it was idle")
        outcome, leaves = self._reply(job.seconds, Timeout(job.stage, job.seconds))
        if leaves:
            self.end()
        return outcome

    def _start(self) -> Verdict | None:
        """Start a worker unless one runs; Infra when it does not say that it is ready."""
        if self.popen is not None and self.popen.poll() is None:
            return None
        self.end()
        with open(self.folder / "log", "wb") as log:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )
        ready, leaves = self._reply(self.limits.start_seconds, Infra("the worker took too long to start"))
        if ready == "ready":
            return None
        self.end()
        return Infra(f"the worker did not start: {self._last_words()}" if leaves else str(ready))

    def _reply(self, seconds: float, too_late: Verdict) -> tuple[Any, bool]:
        """The worker's message and whether the worker is to be replaced. Watches the clock and the resident memory."""
        assert self.popen is not None and self.popen.stdout is not None
        deadline = time.monotonic() + seconds
        message = _Message(self.popen.stdout.fileno())
        while not self.closing:
            if message.read(min(TICK, max(deadline - time.monotonic(), 0.0))):
                return message.value() if message.whole else (self._obituary(), True)
            if time.monotonic() >= deadline:
                return too_late, True
            if resident_bytes(self.popen.pid) > self.memory:
                return RuntimeFault(f"used more than {self.memory / GIB:.1f} GiB of host memory", "died"), True
        return Infra("the executor was closed"), True

    def _obituary(self) -> Verdict:
        assert self.popen is not None
        code = self.popen.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        words = self._last_words()
        return RuntimeFault(f"the worker process ended with {how}" + (f": {words}" if words else ""), "died")

    def _last_words(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def end(self) -> None:
        """Kill the process group, whatever is left of it."""
        if self.popen is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        self.popen = None


class _Message:
    """A message being read from a pipe without ever waiting longer than told."""

    def __init__(self, fd: int) -> None:
        self.fd, self.data, self.ended = fd, b"", False

    @property
    def whole(self) -> bool:
        return len(self.data) >= HEADER.size and len(self.data) - HEADER.size >= HEADER.unpack_from(self.data)[0]

    def read(self, seconds: float) -> bool:
        """Read what is there within `seconds`; true when the message is whole or the pipe has ended."""
        if select.select([self.fd], [], [], seconds)[0]:
            piece = os.read(self.fd, 1 << 20)
            self.data, self.ended = self.data + piece, not piece
        return self.whole or self.ended

    def value(self) -> tuple[Any, bool]:
        """The outcome, and whether the worker says that it leaves."""
        try:
            outcome, leaves = PlainUnpickler.loads(self.data[HEADER.size :])
        except (pickle.UnpicklingError, ValueError, EOFError) as error:
            return RuntimeFault(f"the worker's reply cannot be read: {error}", "died"), True
        return outcome, bool(leaves)


def send(pipe: IO[bytes], data: bytes) -> None:
    """Write one message. Raises BrokenPipeError when nobody reads."""
    pipe.write(HEADER.pack(len(data)) + data)
    pipe.flush()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 where the system does not tell (no /proc) or the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _environment(kind: str, folder: Path, cache: Path) -> dict[str, str]:
    """What a worker sees of the environment: an allow-list, its own folder as HOME, compile caches in the shared one."""
    kept = {k: v for k, v in os.environ.items() if k in INHERITED or k.startswith(INHERITED_PREFIXES)}
    root = str(Path(__file__).resolve().parents[2])
    return {
        **kept,
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join([root, *(entry for entry in sys.path if entry)]),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of helper processes that could outlive the worker
        **KINDS[kind],
    }


class PlainUnpickler(pickle.Unpickler):
    """Reads outcomes: plain values, NumPy scalars and the classes that mtmc itself defines; nothing else can be sent."""

    NUMPY = (("numpy._core.multiarray", "scalar"), ("numpy", "dtype"))

    @staticmethod
    def loads(data: bytes) -> Any:
        import io

        return PlainUnpickler(io.BytesIO(data)).load()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.NUMPY:
            return super().find_class(module, name)
        if module.startswith("mtmc.") and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")
