"""A worker: a forked child of a warden that runs jobs and answers each with its outcome, until its pipe ends.

This holds the one catch-all of the project: whatever a job raises becomes a Verdict. A reply begins with the nonce that came
with the job, so that bytes written blindly into the pipe are no reply, and a byte that says whether the worker leaves.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import socket
from typing import TYPE_CHECKING, Any

from mtmc.judge.faults import classify, poisoned
from mtmc.judge.wire import receive, send

if TYPE_CHECKING:
    from mtmc.judge.isolated import Partner
    from mtmc.judge.jobs import Job

NONCE = 16  # bytes
LEFT_BEHIND = 256 << 20  # bytes of GPU memory that a kept worker may hold after a job: libraries' workspaces
PRELOADED = (  # what jobs import sooner or later
    "numpy.fft",
    "numpy.ma",
    "numpy.random",
    "torch._dynamo",
    "torch.testing",
    "triton.backends.nvidia.compiler",
    "triton.compiler.code_generator",
    "triton.compiler.compiler",
    "triton.experimental.gluon",
    "triton.language.extra.libdevice",
    "triton.tools.disasm",
    "triton.tools.tensor_descriptor",
    "mtmc.judge.eager",
    "mtmc.judge.isolated",
    "mtmc.judge.predict",
    "mtmc.judge.standin",
    "mtmc.judge.timing",
    "mtmc.judge.verify",
)


def serve(kind: str, jobs: int, replies: int, line: socket.socket | None = None) -> None:
    """Serve jobs from one pipe to another; the first message out says that the worker is ready.

    With a `line` to a host, candidates are left to that.
    """
    _begin(kind)
    partner = None
    if line:
        from mtmc.judge.isolated import Partner

        partner = Partner(line)
    send(replies, b"ready")
    while (message := receive(jobs)) is not None:
        outcome, leaves = attempt(pickle.loads(message[NONCE:]), partner)
        send(replies, message[:NONCE] + bytes([leaves]) + pickle.dumps(outcome))
        if leaves or not _tidy(kind):
            if line:
                receive(jobs)  # the host ends with this process: the warden would take it for one that ended by itself
            os._exit(0)  # a poisoned CUDA context must not run its own clean-up


def hold(kind: str, line: socket.socket) -> None:
    """Hold candidates for a comparer at the other end of the line."""
    from mtmc.judge.isolated import Host

    _begin(kind)
    Host(line, "cuda" if kind == "gpu" else "cpu").serve()


def _begin(kind: str) -> None:
    if kind == "gpu":
        import torch

        torch.cuda.init()  # type: ignore[no-untyped-call]


def attempt(job: Job, partner: Partner | None = None) -> tuple[Any, bool]:
    """The job's value or the Verdict on its failure, and whether this process must not be used again."""
    try:
        if partner is not None:
            return partner.compare(job), partner.spent  # type: ignore[arg-type]
        return job.run(), False
    except BaseException as error:  # noqa: BLE001  the boundary: a candidate may raise anything, SystemExit included
        blamed = partner is None and hasattr(job, "source")
        return classify(error, job.stage, blamed), poisoned(error) or partner is not None


def prepare(kind: str) -> None:
    """Pay for imports and the like before workers are forked and deadlines run. Must not touch CUDA, nor start threads."""
    for name in PRELOADED:
        importlib.import_module(name)
    if kind == "interpret":
        from mtmc.judge.interpreter import install

        install()
    else:
        from triton.runtime.cache import triton_key

        triton_key()  # a hash of Triton's own files, computed once a process


def _tidy(kind: str) -> bool:
    """Free what the job has left; false when something holds on to the GPU's memory."""
    gc.collect()
    if kind != "gpu":
        return True
    import torch

    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated() <= LEFT_BEHIND
