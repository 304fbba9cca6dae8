"""Runs problems side by side, each in a process of its own, and appends a row for each: also for one that was skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from mtmc.bench.guard import Guard
from mtmc.bench.one import Asked, Task
from mtmc.bench.rows import UNDECIDED, Row, append
from mtmc.bench.suite import Case
from mtmc.errors import BadInput
from mtmc.judge.processes import descendants, running

TICK = 0.5  # seconds between two looks at a process
CLEARING = 10.0  # seconds for a problem's processes to clear up when theirs has been told to end


class Watcher:
    """Told what happens; this one says nothing. Called from several threads, one call at a time."""

    def started(self, case: Case) -> None:
        """A problem's process starts."""

    def waiting(self, case: Case) -> None:
        """A problem waits until the host has memory again."""

    def finished(self, row: Row) -> None:
        """A problem's row is recorded."""


def command(task: Task) -> list[str]:
    """How a task is started."""
    return [sys.executable, "-m", "mtmc.bench.one", task.text()]


@dataclass(frozen=True)
class Plan:
    """One run: what to run, how, and where its rows and run folders go.

    `number` tells the run's rows from those of earlier ones; `facts` (GPU, versions) stand in each. `checkout` (empty: none)
    is where KernelBench's checker is asked. A problem may take `minutes`; none starts after `hours` (0: no limit).
    """

    cases: tuple[Case, ...]
    output: Path
    folder: Path
    number: int
    asked: Asked = Asked()
    facts: dict[str, str] = field(default_factory=dict)
    jobs: int = 1
    checkout: str = ""
    minutes: float = 60.0
    hours: float = 0.0


def folder_of(output: Path, runs: Path, number: int) -> Path:
    """Where a run into `output` keeps its run folders."""
    return runs / f"{output.stem}-{number:03d}"


def next_run(rows: Iterable[Row], output: Path, runs: Path) -> int:
    """A number for a new run: no row and no folder has it, so nothing of an earlier run is taken for its own."""
    number = max((row.run for row in rows), default=0) + 1
    while folder_of(output, runs, number).exists():
        number += 1
    return number


@dataclass(frozen=True)
class Left:
    """What is left of a run: its number, the problems to run, and those rows (by problem) that lack only the opinion.

    `noted` are problems of this run that have a row without a result: that they were not started again is not said twice.
    """

    run: int
    cases: tuple[Case, ...]
    unasked: dict[str, Row] = field(default_factory=dict)
    noted: frozenset[str] = frozenset()


def left(rows: Sequence[Row], number: int, cases: Sequence[Case], asked: Asked, opinions: bool) -> Left:
    """Where run `number`, the last one, goes on. Raises BadInput where there is none, or it was asked for something else.

    A run that was interrupted in its first problem has no row yet.
    """
    if not number:
        raise BadInput("There is no run to resume: the file has no row yet.")
    mine = [row for row in rows if row.run == number]
    if other := next((row.options for row in mine if row.options != asked.to_json()), None):
        said = ", ".join(f"{name} {value}" for name, value in other.items()) or "options that it does not name"
        raise BadInput(f"Run {number} was made with {said}: resume it with the same, or start a new run.")
    done = {row.problem: row for row in mine if row.status not in UNDECIDED}
    lacking = [row for row in done.values() if row.verified and row.kernelbench_correct is None]
    unasked = {row.problem: row for row in lacking if opinions}
    chosen = tuple(case for case in cases if case.name not in done or case.name in unasked)
    return Left(number, chosen, unasked, frozenset(row.problem for row in mine) - done.keys())


class Runner:
    """Carries a plan out. `start` gives the command of a task; `unasked` and `noted` are those of `Left`."""

    def __init__(
        self,
        plan: Plan,
        guard: Guard,
        watcher: Watcher | None = None,
        start: Callable[[Task], Sequence[str]] | None = None,
        unasked: Mapping[str, Row] | None = None,
        noted: Collection[str] = (),
    ) -> None:
        self.plan, self.guard, self.watcher, self.start = plan, guard, watcher or Watcher(), start or command
        self.unasked, self.noted = unasked or {}, noted
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._end = time.monotonic() + plan.hours * 3600 if plan.hours else float("inf")

    def run(self) -> bool:
        """Run every problem; false when interrupted (Ctrl-C): what was running is ended and has no row."""
        pool = ThreadPoolExecutor(self.plan.jobs)
        futures = [pool.submit(self._one, case) for case in self.plan.cases]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            return False
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)
        return True

    def _one(self, case: Case) -> None:
        """One problem from its start to its row; nothing is written once the run is stopped."""
        if row := self._row(case):
            with self._lock:
                append(self.plan.output, row)
                self.watcher.finished(row)

    def _row(self, case: Case) -> Row | None:
        if time.monotonic() > self._end:
            if case.name in self.noted or case.name in self.unasked:
                return None
            return self._made(case, {"status": "skipped", "message": f"not started within {self.plan.hours:g} hours"})
        if not self._room(case):
            return None
        self._tell(self.watcher.started, case)
        row = self.unasked.get(case.name)
        if row is None:
            began = time.monotonic()
            said = self._ask(self._task(case))
            if said is None:
                return None
            row = self._made(case, {"seconds": round(time.monotonic() - began, 1), **said})
        if self.plan.checkout and row.verified and row.kernelbench_correct is None:
            opinion = self._ask(replace(self._task(case), checkout=self.plan.checkout))
            if opinion is None:
                return None
            correct, note = opinion.get("kernelbench_correct"), opinion.get("kernelbench_note") or opinion.get("message", "")
            row = replace(row, kernelbench_correct=correct, kernelbench_note=note)
        return row

    def _made(self, case: Case, fields: dict[str, Any]) -> Row:
        plan = self.plan
        facts: dict[str, Any] = {"date": date.today().isoformat(), "run": plan.number, **plan.facts, **fields}
        return Row(problem=case.name, title=case.title, options=plan.asked.to_json(), **facts)

    def _task(self, case: Case) -> Task:
        folder = self.plan.folder / case.name.replace("/", "-")
        return Task(str(case.file.resolve()), str(folder), str(folder.with_suffix(".answer")), self.plan.asked)

    def _room(self, case: Case) -> bool:
        """Wait until the host has memory for another problem; false when the run is stopped meanwhile."""
        told = False
        while not self._stop.is_set():
            if self.guard.room():
                return True
            if not told:
                self._tell(self.watcher.waiting, case)
            told = True
            self._stop.wait(TICK)
        return False

    def _ask(self, task: Task) -> dict[str, Any] | None:
        """What the task's process answers, or a status that says how it ended; None when the run is stopped."""
        answer = Path(task.answer)
        answer.parent.mkdir(parents=True, exist_ok=True)
        answer.unlink(missing_ok=True)
        log = answer.with_suffix(".log")
        with log.open("ab") as out:
            began = out.tell()
            process = subprocess.Popen(
                self.start(task), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
            early = self._watch(process)
        if self._stop.is_set():
            return None
        if early:
            return early
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text())
            return found
        return {"status": "failed", "message": _last_words(log, began) or f"its process ended with {process.returncode}"}

    def _watch(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        """Until the process ends; one that takes too long or too much is ended, and the reason given."""
        end = time.monotonic() + self.plan.minutes * 60
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK)
                return {}
            excess = self.guard.excess(process.pid)
            late = time.monotonic() > end
            if excess or late or self._stop.is_set():
                _end(process)
                late_said = {"status": "timeout", "message": f"no end after {self.plan.minutes:g} minutes"}
                return {"status": "skipped", "message": excess} if excess else late_said

    def _tell(self, what: Callable[[Case], None], case: Case) -> None:
        with self._lock:
            what(case)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a problem's process; its wardens see their pipes close and clear up, and what is left after a while is killed."""
    family = descendants(process.pid)
    process.kill()
    process.wait()
    _await_end(family)
    for pid in filter(running, family):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    _await_end(family)


def _await_end(family: Iterable[int]) -> None:
    deadline = time.monotonic() + CLEARING
    while any(map(running, family)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _last_words(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else ""
