"""A worker process: `python -m mtmc.judge.worker KIND` reads jobs from stdin, runs them, writes outcomes to stdout.

This holds the one catch-all of the project: whatever a job raises becomes a Verdict.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import resource
import signal
import sys
from typing import IO, TYPE_CHECKING, Any

from mtmc.judge.executor import HEADER, send
from mtmc.judge.faults import classify, poisoned

if TYPE_CHECKING:
    from mtmc.judge.jobs import Job

PR_SET_PDEATHSIG = 1


def main(kind: str) -> None:
    """Serve jobs of one kind until stdin ends."""
    jobs, replies = _take_pipes()
    _limit()
    _prepare(kind)
    send(replies, pickle.dumps(("ready", False)))
    while (job := _receive(jobs)) is not None:
        outcome, leaves = attempt(job)
        send(replies, pickle.dumps((outcome, leaves)))
        if leaves:
            os._exit(0)  # a poisoned CUDA context must not run its own clean-up
        _tidy(kind)


def attempt(job: Job) -> tuple[Any, bool]:
    """The job's value or the Verdict on its failure, and whether this process must not be used again."""
    try:
        return job.run(), False
    except BaseException as error:  # noqa: BLE001  the boundary: a candidate may raise anything, SystemExit included
        return classify(error, job.stage, hasattr(job, "source")), poisoned(error)


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The two pipes under private descriptors; what the candidate reads is empty, what it prints goes to the log."""
    jobs, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return jobs, replies


def _limit() -> None:
    """No core dumps, no endless log, and no life after the parent's death (Linux; elsewhere the end of stdin tells)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 30, 8 << 30))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prepare(kind: str) -> None:
    """Pay for the imports before the first deadline runs."""
    import torch
    import triton  # noqa: F401

    if kind == "interpret":
        from mtmc.judge.interpreter import install

        install()
    elif kind == "gpu":
        torch.cuda.init()  # type: ignore[no-untyped-call]


def _receive(pipe: IO[bytes]) -> Any:
    head = pipe.read(HEADER.size)
    return pickle.loads(pipe.read(HEADER.unpack(head)[0])) if len(head) == HEADER.size else None


def _tidy(kind: str) -> None:
    gc.collect()
    if kind == "gpu":
        import torch

        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1])
