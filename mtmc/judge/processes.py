"""Processes as /proc shows them: who descends from whom, what they hold, and ending all of them. Elsewhere: what is known.

A process that leaves its group and session, and whose parents have ended, falls to the nearest *subreaper* above it; a
warden is one, so whatever a worker leaves behind is found among the warden's descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = 30.0  # seconds for killed processes to go: one that waits in the GPU's driver takes its time


def prctl(option: int, value: int) -> None:
    """Linux's prctl; nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, itself not included; zombies included. Empty where there is no /proc."""
    below = defaultdict(list)
    for name in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            below[int(file.read().rpartition(b")")[2].split()[1])].append(int(name))
    found, waiting = [], list(below[pid])
    while waiting:
        found.append(waiting.pop())
        waiting += below[found[-1]]
    return found


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def exit_of(pid: int) -> int | None:
    """Exit code of an ended child (negative: the signal), which stays to be collected; None while it runs."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # collected already
        return 0
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 where the system does not tell (no /proc) or the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def available_bytes() -> int:
    """Memory that the host can still give; no limit (2⁶³) where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 1 << 63
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 1 << 63)


def proportional_bytes(pid: int) -> int:
    """Resident memory where a page that n processes share counts 1/n; as `resident_bytes` where that is not told."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return resident_bytes(pid)
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10


def memory_over(pids: list[int], limit: int) -> bool:
    """Whether the processes together hold more than `limit` bytes; forked pages are counted once."""
    return sum(map(resident_bytes, pids)) > limit and sum(map(proportional_bytes, pids)) > limit


def reap() -> None:
    """Collect ended children, adopted ones included."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_descendants(user: int | None = None) -> bool:
    """Kill everything below this process and collect it; true when nothing is left.

    With `user`, a user that runs nothing else, all its processes at once: no fork can be faster than that.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        if user is not None:
            _kill_user(user)
        for pid in (found := descendants(os.getpid())):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not found or time.monotonic() > deadline:
            return not found
        time.sleep(0.002)


def _kill_user(user: int) -> None:
    """SIGKILL to every process of a user, sent by a child that becomes this user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def fork_into(main: Callable[[], None], keep: Iterable[int]) -> int:
    """Fork a child that runs `main` and ends. Of the open files it has `keep`; what it prints goes where errors go."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        keep_only({0, 1, 2, *keep})
        main()
        code = 0
    except BaseException:  # noqa: BLE001  a forked child must end here, and not go on in its parent's place
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def keep_only(kept: Iterable[int]) -> None:
    """Close all files but these."""
    edges = sorted(kept)
    for low, high in zip(edges, [*edges[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
