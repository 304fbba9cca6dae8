"""Turns at the GPU and at the cores, among all processes that share a cache folder: locks on files, let go by the system.

Both are shared by jobs that do not disturb one another, and held alone by one whose times or memory count. Who waits to be
alone holds the door, so that no new job comes in before. A job takes the GPU first and the cores after it, so no two can
wait for one another.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path


@contextmanager
def turn(folder: Path, gpu: bool, alone: bool, shares: bool = False) -> Iterator[None]:
    """Hold what a job needs, of the locks in `folder`.

    A job on the `gpu` has it to itself unless it `shares`, and leaves the cores to others unless it is `alone`: then it
    waits for every job on the cores and holds new ones back, of this process and others. Other jobs share the cores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if gpu:
            held.enter_context(_held(folder, _gpu(), alone=not shares))
        if alone or not gpu:
            held.enter_context(_held(folder, "cores", alone))
        yield


def _gpu() -> str:
    """The lock of the GPU that a job gets, the first visible one: named by its UUID where NVML tells, else by its number.

    CUDA, which this process need not have started, numbers from 0 where CUDA_VISIBLE_DEVICES is not set.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    uuids = _uuids()
    if first.isdigit() and int(first) < len(uuids):
        first = uuids[int(first)]
    elif first.startswith("GPU-"):  # CUDA takes any beginning that only one has
        first = next((uuid for uuid in uuids if uuid.startswith(first)), first)
    return re.sub(r"[^0-9A-Za-z]+", "-", f"gpu {first.removeprefix('GPU-')}").strip("-")


@cache
def _uuids() -> tuple[str, ...]:
    """UUIDs of this machine's GPUs in the order of the bus, in which CUDA numbers those of one kind; empty without NVML."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return tuple(str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles)
    except pynvml.NVMLError:
        return ()


@contextmanager
def _held(folder: Path, what: str, alone: bool) -> Iterator[None]:
    with ExitStack() as held:
        with _locked(folder / f"{what}.door", fcntl.LOCK_EX):
            held.enter_context(_locked(folder / f"{what}.lock", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, kind)
        yield
