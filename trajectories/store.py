"""The run folder: everything a run did, readable at any moment, also after kill −9.

run.json          what was asked: problem, GPU, options, seed, versions (written once, atomically)
steps.jsonl       one Step a line, append-only, each line flushed to the disk before the next candidate starts
programs/KEY.py   text of every candidate, by program key
patches/NNN.patch the unified diff of step NNN
outcomes.jsonl    measured outcomes of earlier searches that this one started from, where there are any
result.json       how it ended and the final verdict (written last, atomically)
optimized.py      the answer, when it beats the reference
report.md         the story in prose
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from mtmc.errors import BadInput
from mtmc.program import Program
from mtmc.step import SCHEMA_VERSION, Step
from mtmc.trajectories import files
from mtmc.verdict import Verdict, from_json

SETTLED = ("problem_hash", "gpu", "policy", "seed", "precision", "timing")
"""Fields of RunInfo that a resumed run must share; budget, minutes and versions may differ."""


@dataclass(frozen=True)
class RunInfo:
    """`run.json`. `timing` is `measured` or `predicted`; `minutes` 0 means no limit; `profile` holds the GPU's facts.

    `notes` are sentences for the report: what stayed a PyTorch call and why, and whether the chip at hand is the target.
    """

    problem: str
    problem_hash: str
    path: str
    entry: str
    gpu: str
    policy: str
    seed: int
    budget: int
    minutes: float
    precision: str
    timing: str
    profile: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """`result.json`. `best` is the key of the program handed back, empty when nothing beat the reference.

    `final` is its verdict from a fresh process; None when the run was interrupted or nothing was handed back.
    `discarded` says which faster-looking candidates failed that last judgement, one sentence each.
    """

    reason: str
    best: str = ""
    final: Verdict | None = None
    discarded: tuple[str, ...] = ()


class Run:
    """One run folder, locked by the process that writes it."""

    def __init__(self, folder: Path, info: RunInfo, lock: IO[str] | None = None) -> None:
        self.folder, self.info, self._lock = folder, info, lock

    @staticmethod
    def create(folder: Path, info: RunInfo) -> Run:
        """A new run in an absent or empty folder. Raises BadInput when the folder holds anything, or cannot be written."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadInput(_occupied(folder))
        for name in ("programs", "patches"):
            files.folder(folder / name)
        lock = _locked(folder)
        files.put(folder / "run.json", _dump({"schema": SCHEMA_VERSION, **asdict(info)}))
        return Run(folder, info, lock)

    @staticmethod
    def open(folder: Path) -> Run:
        """An existing run, for reading. Raises BadInput when the folder is no run of this schema, or damaged."""
        path = folder / "run.json"
        if not path.exists():
            raise BadInput(f"{folder} is not a run folder: it has no run.json.")
        with _readable(str(path)):
            data = _load(path)
            return Run(folder, RunInfo(**{**data, "notes": tuple(data["notes"])}))

    @staticmethod
    def resume(folder: Path, info: RunInfo) -> Run:
        """An existing run, for writing on. Raises BadInput when it answers another question than `info` asks."""
        run = Run.open(folder)
        for name in SETTLED:
            then, now = getattr(run.info, name), getattr(info, name)
            if then != now:
                raise BadInput(f"{folder} cannot be resumed: its {name.replace('_', ' ')} is {then}, now it is {now}.")
        run._lock = _locked(folder)
        run._drop_torn_line()
        return run

    def append(self, step: Step, program: Program) -> None:
        """Record a finished candidate; when this returns it survives a power cut. The step's line is written last."""
        self.write_program(program)
        if step.patch:
            files.put(self.folder / "patches" / f"{step.index:03d}.patch", step.patch)
        with (self.folder / "steps.jsonl").open("a") as file:
            file.write(json.dumps(step.to_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def steps(self) -> tuple[Step, ...]:
        """All whole steps, in order; a torn last line is left out. Raises BadInput for damage elsewhere."""
        return tuple(self._read())

    def write_program(self, program: Program) -> None:
        path = self.folder / "programs" / f"{program.key}.py"
        if not path.exists():
            files.put(path, program.source)

    def program(self, key: str) -> Program:
        """The candidate with this key. Raises BadInput."""
        path = self.folder / "programs" / f"{key}.py"
        with _readable(str(path)):
            return Program(path.read_text())

    def finish(self, ending: Ending) -> None:
        """Write `result.json`, and `optimized.py` where there is an answer."""
        if ending.best:
            files.put(self.folder / "optimized.py", self.program(ending.best).source)
        else:
            (self.folder / "optimized.py").unlink(missing_ok=True)
        final = ending.final.to_json() if ending.final else None
        data = {"reason": ending.reason, "best": ending.best, "final": final, "discarded": ending.discarded}
        files.put(self.folder / "result.json", _dump({"schema": SCHEMA_VERSION, **data}))

    def ending(self) -> Ending | None:
        """How the run ended; None while it is under way. Raises BadInput for a damaged file."""
        path = self.folder / "result.json"
        if not path.exists():
            return None
        with _readable(str(path)):
            data = _load(path)
            final = from_json(data["final"]) if data["final"] else None
            return Ending(data["reason"], data["best"], final, tuple(data["discarded"]))

    def write_report(self, text: str) -> None:
        files.put(self.folder / "report.md", text)

    def _read(self) -> Iterator[Step]:
        path = self.folder / "steps.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        for number, line in enumerate(lines, 1):
            with _readable(f"{path}, line {number},"):
                step = Step.from_json(json.loads(line))
            yield step

    def _drop_torn_line(self) -> None:
        path = self.folder / "steps.jsonl"
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def new_folder(problem: str, gpu: str, under: Path = Path("runs")) -> Path:
    """The next free `runs/PROBLEM-GPU-NNN`; not created."""
    taken = [number for number, _ in _numbered(problem, gpu, under)]
    return under / f"{problem}-{gpu}-{max(taken, default=0) + 1:03d}"


def last_folder(problem: str, gpu: str, under: Path = Path("runs")) -> Path:
    """The newest run folder of this problem and GPU. Raises BadInput when there is none."""
    found = [folder for _, folder in _numbered(problem, gpu, under) if (folder / "run.json").exists()]
    if not found:
        raise BadInput(f"There is no run of {problem} for {gpu} under {under}/ to resume; name its folder with --run.")
    return found[-1]


def _numbered(problem: str, gpu: str, under: Path) -> list[tuple[int, Path]]:
    prefix = f"{problem}-{gpu}-"
    folders = under.iterdir() if under.is_dir() else iter(())
    suffixes = [(f.name.removeprefix(prefix), f) for f in folders if f.name.startswith(prefix)]
    return sorted((int(number), folder) for number, folder in suffixes if number.isdecimal())


def _occupied(folder: Path) -> str:
    if (folder / "run.json").exists():
        return f"{folder} already holds a run: add --resume to go on with it, or name another folder with --run."
    return f"{folder} is not empty and is not a run folder: name another folder with --run."


def _locked(folder: Path) -> IO[str]:
    """Lock the folder for this process; the system lets go of it however the process ends. Raises BadInput."""
    lock = (folder / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise BadInput(f"{folder} is being written by another process.") from error
    return lock


@contextmanager
def _readable(place: str) -> Iterator[None]:
    """Whatever is wrong with the file at a place is BadInput."""
    try:
        yield
    except KeyError as error:
        raise BadInput(f"{place} cannot be read: it lacks {error}.") from error
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"{place} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _load(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    schema = data.pop("schema", None)
    if schema != SCHEMA_VERSION:
        raise BadInput(f"{path} has schema {schema}; this version reads schema {SCHEMA_VERSION}.")
    return data


def _dump(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1) + "\n"
