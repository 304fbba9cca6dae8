"""What locks a candidate in: a user of its own, no network, Landlock, limits. Each where the machine allows it.

A warden calls `enter` once, in its beginning; every worker that will hold a candidate calls `confine` after
it was forked and before it does anything else. `report` says in sentences what holds on this machine; docs/sandbox.md says
what is not covered.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mtmc.judge import landlock, mounts
from mtmc.judge.processes import PR_SET_PDEATHSIG, prctl

GIB = 1 << 30
USERS = range(61184, 65184)  # systemd's range for users that exist for a while; containers map ids up to 65535
SHARED_USER = USERS[0]  # of wardens whose workers trust each other and share a cache
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
LARGEST_FILE = 64 * GIB  # outputs go to the comparer through shared memory, which counts as a file
OPEN_FILES = 65536
CORES = os.cpu_count() or 1
THREADS = 256 + 8 * CORES  # of all processes of a worker: OpenMP and the GPU's driver start one a core each
PROCESSES = 64 + 4 * CORES  # of a worker: a compiler of inline CUDA starts some for each core
SIGKILL = 9


@dataclass(frozen=True)
class Plan:
    """What confinement a warden's workers get.

    `user` is the unprivileged user id, None with the reason in `same_user`. `network` is `none` (a namespace of their own),
    `no TCP` or `open`. `landlock` is the kernel's version, 0 without. `exclusive`: nobody else runs as `user`. `closed`:
    folders that `user` may not enter, with what it needs below them.
    """

    user: int | None = None
    same_user: str = ""
    network: str = "open"
    landlock: int = 0
    exclusive: bool = False
    closed: dict[Path, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def sweep_user(self) -> int | None:
        """The user whose every process may be killed when a worker has ended."""
        return self.user if self.exclusive else None


@dataclass(frozen=True)
class Cell:
    """Where a confined worker lives: `folder` and `cache` are its own, the rest of `house` is hidden from it."""

    house: Path
    folder: Path
    cache: Path


def enter(folder: Path, shared_user: int | None = None, needs: Iterable[Path] = ()) -> Plan:
    """Leave the network, choose the user for this process's workers, and say what they will get.

    To be called while the process has one thread. `folder` and `needs` are what workers must reach beside Python itself.
    `shared_user`: use this id, whoever else does; by default one that no other warden uses.
    """
    closed, (user, reason) = {}, (None, "only root can change the user")
    if os.geteuid() == 0:
        reached = [*_python(), folder, *needs]
        closed, user = mounts.openings(reached), shared_user if shared_user is not None else _free_user()
        reason = _why_not(user, reached, closed)
        user = None if reason else user
    known = landlock.version()
    network = "none" if _leave_network() else "no TCP" if known >= landlock.TCP_FROM else "open"
    return Plan(user, reason, network, known, user is not None and shared_user is None, closed)


def confine(plan: Plan, cell: Cell) -> None:
    """Lock this process in, for good. Raises OSError when the machine refuses what `enter` found possible."""
    limit(plan.user)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # when the machine runs out of memory, this goes first
    if plan.user is not None:
        mounts.open_up(plan.closed)
        become(plan.user)
    if plan.landlock:
        own = [cell.folder, cell.cache, Path("/dev/shm")]
        devices = [Path("/dev"), Path("/proc")]  # CUDA names its threads in /proc
        landlock.restrict(landlock.everything_but(cell.house), own, devices, plan.network != "no TCP")
    prctl(PR_SET_PDEATHSIG, SIGKILL)  # after the change of user, which clears it


def limit(user: int | None = None) -> None:
    """No core dumps, no endless file, no endless forking. The address space stays free: CUDA reserves terabytes of it."""
    taken = 0 if user is not None else sum(owner == os.getuid() for owner in _owners())
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_NPROC: taken + THREADS,
    }
    for what, most in limits.items():
        hard = resource.getrlimit(what)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (value, value))


def become(user: int) -> None:
    """Change to a user and a group of the same number, for good, with no other group."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.umask(0o077)


def report() -> list[str]:
    """What holds on this machine, found out in a process of its own (tenths of a second)."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *(entry for entry in sys.path if entry)])}
    command = [sys.executable, "-m", "mtmc.judge.sandbox"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def sentences(plan: Plan) -> list[str]:
    """The plan in words, for reports."""
    return [_about_user(plan), _about_files(plan), *NETWORK[plan.network], *ALWAYS]


NETWORK = {
    "none": ("Candidates have no network: a namespace of their own without any interface.",),
    "no TCP": ("Candidates cannot open TCP connections (Landlock); other sockets are NOT covered.",),
    "open": ("The network is within candidates' reach: neither a network namespace nor Landlock's TCP rules here.",),
}
ALWAYS = (
    "Each worker has its own session, a private temporary folder and a scrubbed environment; "
    "memory, processes and disk space are watched, and whatever is left behind is killed.",
)


def _about_user(plan: Plan) -> str:
    if plan.user is not None:
        return f"Candidates run as the unprivileged user {plan.user}, who owns nothing but their folders."
    return f"Candidates run with the rights of the user who started the judge ({plan.same_user})."


def _about_files(plan: Plan) -> str:
    if not plan.landlock:
        return "Files: only permissions protect them; this kernel has no Landlock" + (
            "." if plan.user is not None else ", so what this user may write is NOT protected."
        )
    signals = ", and signal or trace no process outside" if plan.landlock >= landlock.SCOPES_FROM else ""
    return f"Candidates write only into their folders, read no other candidate's files{signals} (Landlock {plan.landlock})."


def _free_user() -> int:
    """An id that no process has and that no other warden took; taken until this process ends."""
    start, busy = os.getpid() % len(USERS), set(_owners())
    order: list[int] = [*USERS[start:], *USERS[:start]]
    for user in order:
        if user not in busy and user != SHARED_USER and _claimed(user):
            return user
    raise OSError("no free user id")


def _claimed(user: int) -> bool:
    """Take an id by an abstract socket of its name, which ends with this process; false when another has it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0mtmc-user-{user}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open as long as this process lives
    return True


def _python() -> list[Path]:
    """What a Python process of this environment reads."""
    found = [Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), Path(__file__)]
    return found + [Path(entry) for entry in sys.path if entry]


def _why_not(user: int, needs: list[Path], closed: dict[Path, tuple[Path, ...]]) -> str:
    """Why a worker could not run as `user`, found by a child that tries; empty when it could."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        reason = "the change of user failed"
        try:
            mounts.open_up(closed)
            become(user)
            unusable = [path for path in _gpus() if not os.access(path, os.R_OK | os.W_OK)]
            reason = next((f"another could not use {p}" for p in [*(p for p in needs if not _reachable(p)), *unusable]), "")
        except OSError as error:
            reason = f"another could not be set up: {error.strerror}"
        finally:
            os.write(writing, reason.encode()[:4000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        reason = pipe.read().decode()
    os.waitpid(pid, 0)
    return reason


def _reachable(path: Path) -> bool:
    """Whether a path can be read; one that does not exist is nobody's loss, one below a closed folder is."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return os.access(path, os.X_OK if path.is_dir() else os.R_OK)


def _gpus() -> list[Path]:
    return [path for path in Path("/dev").glob("nvidia*") if path.is_char_device()]


def _leave_network() -> bool:
    """Into an empty network namespace: as root directly, else through a user namespace that maps this user to itself."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWNET) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if user == 0 or libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _owners() -> Iterator[int]:
    """The user of every thread that runs."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            yield from [process.stat().st_uid] * len(os.listdir(process / "task"))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="mtmc-") as name:
        os.chmod(name, 0o711)
        print(*sentences(enter(Path(name))), sep="\n")
