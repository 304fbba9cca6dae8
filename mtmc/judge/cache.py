"""Evaluation cache: verdicts by what was judged, in one SQLite file that several processes may use at once."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from mtmc.verdict import Infra, Timeout, Verdict, from_json

T = TypeVar("T")
DAY = 86400.0
SCHEMA = "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict TEXT NOT NULL, written REAL NOT NULL)"


def cache_folder() -> Path:
    """Where verdicts, compiled kernels and weights are kept: `$XDG_CACHE_HOME/mtmc`, by default `~/.cache/mtmc`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mtmc"


@dataclass(frozen=True)
class Key:
    """Everything a verdict depends on. `program` and `problem` are their hashes; `clock` says what measured, and how."""

    program: str
    problem: str
    profile: str
    measure: bool
    precision: str
    versions: tuple[str, ...]
    clock: str = ""

    @property
    def hash(self) -> str:
        return sha256(repr(astuple(self)).encode()).hexdigest()


def versions(driver: str = "") -> tuple[str, ...]:
    """Versions of mtmc, torch and triton, a hash of this package's own text, and the GPU driver's version as given."""
    return (*(f"{name} {_version(name)}" for name in ("mtmc", "torch", "triton")), f"code {_code()}", f"driver {driver}")


def made_with() -> dict[str, str]:
    """`versions` by name, and Python's: what a run or a tree of judged programs owes its verdicts to."""
    return {"python": platform.python_version(), **dict(entry.split(" ", 1) for entry in versions())}


@cache
def _code() -> str:
    """Hash of the judge and of the templates: another judge may judge otherwise, under the same version number."""
    package, digest = Path(__file__).parents[1], sha256()
    folders = [package / name for name in ("judge", "lower", "hardware_profiles")]
    modules = [package / f"{name}.py" for name in ("capture", "floor", "problem", "program", "shrink", "verdict")]
    for path in [*modules, *(path for folder in folders for path in sorted(folder.rglob("*")))]:
        if path.suffix in (".py", ".toml"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


class Cache:
    """Verdicts younger than `ttl_days`. A damaged file is warned about, set aside as `NAME.broken` and begun anew."""

    def __init__(self, path: Path, ttl_days: float = 7.0, now: Callable[[], float] = time.time) -> None:
        self.path, self.ttl, self.now = path, ttl_days * DAY, now
        path.parent.mkdir(parents=True, exist_ok=True)

    def get(self, key: Key) -> Verdict | None:
        """The verdict kept under `key`, or None when there is none or it is too old."""
        query = "SELECT verdict, written FROM verdicts WHERE key = ?"
        rows = self._do(lambda db: db.execute(query, (key.hash,)).fetchall())
        if not rows or self.now() - rows[0][1] > self.ttl:
            return None
        return from_json(json.loads(rows[0][0]))

    def put(self, key: Key, verdict: Verdict) -> None:
        """Keep a verdict, but no fault of the machine and no timeout, which a busy machine may cause. Drops old entries."""
        if isinstance(verdict, (Infra, Timeout)):
            return
        row = (key.hash, json.dumps(verdict.to_json()), self.now())

        def write(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM verdicts WHERE written < ?", (self.now() - self.ttl,))
            db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", row)

        self._do(write)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._once(work)
        except sqlite3.OperationalError:  # locked for 30 s, disk full, no permission: not damage, so not set aside
            raise
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            return self._once(work)

    def _once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """A connection of its own for each use, so that threads and processes need no lock of ours."""
        with closing(sqlite3.connect(self.path, timeout=30.0)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(SCHEMA)
            with db:
                return work(db)

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        broken = self.path.with_name(self.path.name + ".broken")
        with suppress(FileNotFoundError):  # another process was quicker
            self.path.replace(broken)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        warnings.warn(
            f"the evaluation cache {self.path} is damaged ({error}); moved to {broken}, starting anew", stacklevel=4
        )


def gpu_driver() -> str:
    """Version of the GPU driver as the kernel module tells it, without touching CUDA in this process."""
    place = Path("/sys/module/nvidia/version")
    return place.read_text().strip() if place.is_file() else "unknown"
