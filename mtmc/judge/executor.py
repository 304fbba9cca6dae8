"""Where jobs run: the `Executor` protocol, and `LocalProcesses`, wardens with worker processes by kind.

A job (see `jobs`) is a frozen dataclass; its outcome is what its `run()` returns, or the Verdict that says how it failed.
`warden` says how a worker lives; `sandbox` what locks it in.

Each candidate is a tenant: its workers and its compile caches serve no other. Jobs that hold no candidate run unconfined,
with the rights of the user, whose file the reference is.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mtmc.judge import folders
from mtmc.judge.nursery import Birth, Child, Nursery, nursery
from mtmc.judge.turns import turn
from mtmc.judge.wire import Message, Order, outcome_of, send
from mtmc.verdict import Infra, Timeout, Verdict

if TYPE_CHECKING:
    from mtmc.judge.jobs import Job

GIB = 1 << 30
GRACE = 30.0  # seconds after a job's deadline in which its warden must have answered
CLOSING = 10.0  # seconds for a warden to clear up
INHERITED = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CC", "CXX", "LANG", "LC_ALL", "TZ")
INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_LIBCUDA_PATH")
SINGLE_THREADED = {"OMP_NUM_THREADS": "1"}
KINDS: dict[str, dict[str, str]] = {  # kind of worker → its environment
    "compile": SINGLE_THREADED,
    "interpret": {**SINGLE_THREADED, "TRITON_INTERPRET": "1"},
    "gpu": {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},  # a question that a process may ask and still fork
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


class LocalProcesses:
    """Workers on this machine, started when first needed. Use as a context manager, or call `close`.

    `cache` is the folder for what is compiled; without one it lives as long as the executor. `trusting`: the candidates are
    programs that our own rules wrote, so they share workers and cache. By default none sees what another has left.
    `spent` counts seconds of jobs by kind and stage, of starting workers and of waiting for a turn by kind (`gpu verify`,
    `gpu start`, `gpu wait`).
    """

    def __init__(self, cache: Path | None = None, limits: Limits | None = None, trusting: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mtmc-", ignore_cleanup_errors=True)
        os.chmod(self._folder.name, 0o711)
        self._cache = (cache or Path(self._folder.name) / "cache").resolve()
        self._limits, self._trusting = limits or Limits(), trusting
        self._queues: dict[str, queue.Queue[tuple[Job, bytes, Future[Any]] | None]] = {kind: queue.Queue() for kind in KINDS}
        self._lanes: dict[str, list[_Lane]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.spent: dict[str, float] = defaultdict(float)
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

    def confinement(self) -> tuple[str, ...]:
        """What locks the candidates of this executor in, in sentences; empty before the first job has run."""
        wardens = [lane.warden for lanes in self._lanes.values() for lane in lanes]
        return next((warden.confinement for warden in wardens if warden.confinement), ())

    def _lane(self, kind: str, name: str) -> _Lane:
        house = Path(self._folder.name)
        folder = house / name
        folder.mkdir(mode=0o711)
        arguments = [str(house), str(folder), "--memory", str(self._limits.memory_bytes[kind])]
        if self._trusting:
            arguments += ["--share", str(_made(self._cache / "programs"))]
        address = _Addresses(self._cache, folder, self._trusting)
        birth = Birth(tuple(arguments), _environment(kind, folder), tuple(sys.path), folder)
        warden = _Warden(nursery(kind), birth, self._limits.start_seconds)
        return _Lane(warden, address, self._queues[kind], name, self._cache, self.spent)

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
            lane.leave()
        for waiting in self._queues.values():
            while not waiting.empty():
                if entry := waiting.get_nowait():
                    entry[-1].set_result(Infra("the executor was closed"))
        folders.remove(Path(self._folder.name))
        self._folder.cleanup()


@dataclass(frozen=True)
class _Addresses:
    """Whose worker a job needs, and where that worker keeps what it compiles."""

    cache: Path
    folder: Path
    trusting: bool

    def order(self, job: Job) -> Order:
        """The order to have a worker ready for a job."""
        source = getattr(job, "source", None)
        if self.trusting:
            return Order("programs", True, str(self.cache / "programs"), job.fresh)
        if source is None:
            return Order("reference", False, str(self.cache / "reference"), job.fresh)
        name = sha256(source.encode()).hexdigest()[:16]
        paired = job.paired and hasattr(os, "memfd_create")
        return Order(name + "+" * paired, True, str(self.folder / "caches" / name), job.fresh, paired)


@dataclass
class _Lane:
    """One warden and the thread that feeds it."""

    warden: _Warden
    addresses: _Addresses
    jobs: queue.Queue[Any]
    name: str
    cache: Path
    spent: dict[str, float]

    def __post_init__(self) -> None:
        self.waits = False  # for a turn: nobody can wake the thread then
        self.thread = threading.Thread(target=self._feed, name=f"mtmc {self.name}", daemon=True)
        self.thread.start()

    def _feed(self) -> None:
        while (entry := self.jobs.get()) is not None:
            job, data, future = entry
            if not future.set_running_or_notify_cancel():
                continue
            future.set_result(self._outcome(job, data))
        self.warden.end()

    def _outcome(self, job: Job, data: bytes) -> Any:
        order = self.addresses.order(job)
        with self._counted(f"{job.kind} start"):
            failed = self.warden.ready(order)
        with ExitStack() as held:
            try:
                with self._waiting(f"{job.kind} wait"):
                    held.enter_context(turn(self.cache, job.kind == "gpu" and not job.idle, job.alone, job.shares))
            except OSError as error:  # of the files that turns are taken with: another user's, a full disk
                return Infra(f"no turn at the machine was to be had: {error}")
            with self._counted(f"{job.kind} {job.stage}"):
                return failed or self.warden.run(job, replace(order, data=data, fresh=False))

    @contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.spent[what] += time.monotonic() - began

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        self.waits = True
        try:
            with self._counted(what):
                yield
        finally:
            self.waits = False

    def stop(self) -> None:
        self.warden.closing = True
        self.jobs.put(None)

    def leave(self) -> None:
        """Wait for the thread to end, but not while another process holds the turn that it waits for."""
        while self.thread.is_alive() and not self.waits:
            self.thread.join(0.1)
        if self.thread.is_alive():
            self.warden.end()


class _Warden:
    """The judge's end of one warden: started when needed, replaced when it ends."""

    def __init__(self, home: Nursery, birth: Birth, start_seconds: float) -> None:
        self.home, self.birth, self.start_seconds = home, birth, start_seconds
        self.child: Child | None = None
        self.closing = False
        self.confinement: tuple[str, ...] = ()

    def ready(self, order: Order) -> Verdict | None:
        """Have a worker ready for the order's tenant; Infra when there is none to be had."""
        failed = self._start()
        if failed:
            return failed
        said = self._ask(order, self.start_seconds)
        return said if isinstance(said, Verdict) else pickle.loads(said)

    def run(self, job: Job, order: Order) -> Any:
        """The job's outcome. Never raises for what the job or the worker does."""
        said = self._ask(replace(order, stage=job.stage, seconds=job.seconds), job.seconds + GRACE)
        if isinstance(said, Timeout):
            return Timeout(job.stage, job.seconds)
        return said if isinstance(said, Verdict) else outcome_of(job, said)

    def _start(self) -> Verdict | None:
        """Start a warden unless one runs; Infra when it does not say that it is ready."""
        if self.closing:
            return Infra("the executor was closed")
        if self.child is not None and not self.child.ended:
            return None
        self.end()
        try:
            with open(self.birth.folder / "log", "ab") as log:
                self.child = self.home.bear(self.birth, log, self.start_seconds)
        except OSError as error:  # no memory, no process, no disk
            return Infra(f"the worker did not start: {error.strerror or error}")
        said = self._reply(self.start_seconds)
        if isinstance(said, bytes):
            self.confinement = tuple(pickle.loads(said))
            return None
        return said if self.closing else Infra(f"the worker did not start: {folders.last_words(self.birth.folder / 'log')}")

    def _ask(self, order: Order, seconds: float) -> bytes | Verdict:
        if self.closing or self.child is None:
            return Infra("the executor was closed" if self.closing else "the worker's warden is gone")
        try:
            send(self.child.stdin.fileno(), pickle.dumps(order))
        except BrokenPipeError:
            self.end()
            return Infra("the worker's warden left while it was idle")
        return self._reply(seconds)

    def _reply(self, seconds: float) -> bytes | Verdict:
        """The warden's message; without one in time the warden is ended, and a Verdict says why."""
        assert self.child is not None
        deadline = time.monotonic() + seconds
        message = Message(self.child.stdout.fileno())
        while not self.closing and time.monotonic() < deadline:
            if message.read(0.2):
                break
        if message.whole:
            return message.body
        self.end()
        if self.closing:
            return Infra("the executor was closed")
        return Infra("the worker's warden ended") if message.ended else Timeout("", seconds)

    def end(self) -> None:
        """Tell the warden to clear up; kill it when it does not."""
        if self.child is not None:
            self.child.end(CLOSING)
        self.child = None


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _environment(kind: str, folder: Path) -> dict[str, str]:
    """What a warden sees of the environment: an allow-list, and its own folder as HOME."""
    kept = {k: v for k, v in os.environ.items() if k in INHERITED or k.startswith(INHERITED_PREFIXES)}
    root = str(Path(__file__).resolve().parents[2])
    return {
        **kept,
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "HOME": str(folder),
        "LOGNAME": "candidate",  # its own user has no name that could be looked up
        "TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join([root, *(entry for entry in sys.path if entry)]),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of helper processes that could outlive the worker
        **KINDS[kind],
    }
