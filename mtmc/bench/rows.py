"""Rows: what was measured of one problem in one run, a JSON object a line, appended and never rewritten.

Files of several runs are joined by taking, of each problem, the last row that is a result. Each row names date and versions.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mtmc.bench.suite import place
from mtmc.errors import BadInput
from mtmc.passes import heavy
from mtmc.trajectories.files import folder
from mtmc.verdict import decide

EAGER, COMPILE = "eager", "compile-default"
UNDECIDED = ("skipped", "infra")
"""Statuses that say nothing of the problem: such a row is no result, and a resumed run tries the problem again."""


@dataclass(frozen=True)
class Row:
    """One problem in one run; times are device times in milliseconds, measured interleaved in one process.

    `status` is `verified`, `none` (no candidate was verified), the status of a failed last verdict, `timeout`, `failed`
    (its process ended without a word), or one of UNDECIDED; `message` says why. `over_eager` is eager's time over ours
    with its 95 % interval [`low`, `high`]. `handed_back`: ours beat eager beyond noise, so ours is the answer (rows older
    than the field: None, the interval says it). `passes_ms` is the floor of docs/bench.md, `floor_gb` its bytes (None
    where operations decide), `floor_ms` the data-sheet floor. `graph_ms` and `eager_graph_ms` are wall times under CUDA-
    graph replay. `kernel_share` is the part of the device time spent in our kernels; `traffic` of each: GB to and from
    DRAM, and the slowest pipe, by the model. Errors are relative norms against fp64. `peak_bytes` is what a call
    allocates, `seconds` all that was spent, `spent` what the optimiser's workers needed of it, by kind and stage
    (docs/bench.md). `kernelbench_correct` is the second opinion, None where it was not asked or has none. `options` are
    what was asked for. `borrowed` are baselines taken over from an earlier run when rows were joined: name → (ms, date).
    """

    problem: str
    title: str = ""
    date: str = ""
    run: int = 0
    gpu: str = ""
    torch: str = ""
    triton: str = ""
    mtmc: str = ""
    code: str = ""
    driver: str = ""
    status: str = "none"
    message: str = ""
    reason: str = ""
    candidates: int | None = None
    seconds: float | None = None
    spent: dict[str, float] = field(default_factory=dict)
    eager_ms: float | None = None
    compiled_ms: float | None = None
    baselines_ms: dict[str, float] = field(default_factory=dict)
    ours_ms: float | None = None
    over_eager: float | None = None
    low: float | None = None
    high: float | None = None
    handed_back: bool | None = None
    host_ms: float | None = None
    launch_us: float | None = None
    graph_ms: float | None = None
    eager_graph_ms: float | None = None
    sm_mhz: list[float] | None = None
    floor_ms: float | None = None
    passes_ms: float | None = None
    floor_gb: float | None = None
    kernels_ms: dict[str, float] = field(default_factory=dict)
    traffic: dict[str, tuple[float, str]] = field(default_factory=dict)
    kernel_share: float | None = None
    peak_bytes: int | None = None
    error: float | None = None
    eager_error: float | None = None
    checked: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    units: int | None = None
    fallback_calls: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    most_lines: int | None = None
    kernelbench_correct: bool | None = None
    kernelbench_note: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    borrowed: dict[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def memory_bound(self) -> bool:
        """Whether moving bytes decides the floor."""
        return bool(self.floor_gb and self.passes_ms)

    @property
    def level(self) -> int:
        return place(self.problem)[0]

    @property
    def verified(self) -> bool:
        return self.status == "verified" and self.ours_ms is not None

    @property
    def won(self) -> bool:
        """Whether our program is handed back: verified, and faster than eager by `mtmc.verdict.decide`."""
        if not self.verified or self.handed_back is False or not (self.over_eager and self.low and self.high):
            return False
        return decide(self.over_eager, self.low, self.high) == "faster"

    @property
    def times(self) -> dict[str, float]:
        """Milliseconds of eager and every other baseline, interleaved or borrowed."""
        found = {EAGER: self.eager_ms} if self.eager_ms else {}
        found |= {COMPILE: self.compiled_ms} if self.compiled_ms and not self.baselines_ms else {}
        return found | self.baselines_ms | {name: ms for name, (ms, _) in self.borrowed.items()}

    @property
    def best(self) -> str:
        """The fastest baseline; empty where none was measured."""
        return min(self.times, key=lambda name: self.times[name], default="")

    @property
    def asked(self) -> tuple[str, ...]:
        """The baselines that were asked for, eager among them."""
        return (EAGER, *self.options.get("baselines", (COMPILE,)))

    @property
    def floor_share(self) -> float | None:
        """The floor's part of our time; of the data-sheet floor in rows without the other."""
        least = self.passes_ms or self.floor_ms
        return least / self.ours_ms if least and self.ours_ms else None

    @property
    def all_ours(self) -> bool:
        """Whether every heavy operation of the verified program runs in our kernels."""
        return self.verified and bool(self.units) and not any(map(heavy, self.fallback_calls))

    def over(self, baseline: str) -> float | None:
        """A baseline's time over ours (`best`: the fastest one's); None where one of them was not measured."""
        if baseline == EAGER and self.over_eager is not None:
            return self.over_eager
        ms = self.times.get(self.best if baseline == "best" else baseline)
        return ms / self.ours_ms if ms and self.ours_ms and self.verified else None

    def to_json(self) -> dict[str, Any]:
        """Without fields that hold their default."""
        return {name: value for name, value in asdict(self).items() if value != DEFAULTS.get(name, ...)}


DEFAULTS = {f.name: f.default for f in fields(Row) if f.name not in ("problem", "status")}
DEFAULTS |= {f.name: f.default_factory() for f in fields(Row) if callable(f.default_factory)}
KNOWN = frozenset(f.name for f in fields(Row))


def read(path: Path) -> list[Row]:
    """The rows of a file, in order; a torn last line is left out. Raises BadInput for a file that is none, or damaged."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        lines = lines[:-1] if _torn(lines[-1]) else lines
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from error
    return [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _torn(line: str | bytes) -> bool:
    """Is it what a killed process has left of a line? One that only lacks its end is a row."""
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def _row(path: Path, number: int, line: str) -> Row:
    try:
        data = json.loads(line)
        if missing := [name for name in ("problem", "status") if name not in data]:
            raise BadInput(f"it has no {missing[0]}.")
        row = Row(**{name: value for name, value in data.items() if name in KNOWN})
        place(row.problem)
    except (ValueError, TypeError, AttributeError, BadInput) as error:
        raise BadInput(f"{path}, line {number}, is not a row of mtmc bench: {error}") from error
    return row


def append(path: Path, row: Row) -> None:
    """Add a row; when this returns it survives a power cut. A torn last line of a killed process is cut off first."""
    folder(path.parent)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another bench may write into the same file
        file.seek(0)
        last = file.read().rpartition(b"\n")[2]
        if last and _torn(last):
            file.truncate(file.tell() - len(last))
        elif last:
            file.write(b"\n")
        file.write(json.dumps(row.to_json()).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def join(rows: Iterable[Row]) -> list[Row]:
    """One row a problem, in order of level and number: the last result, else the last row that there is.

    Baselines that the last result lacks are borrowed from the newest earlier result with the same GPU and torch:
    the ratio to eager in that run, times eager's time in this one.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.problem, []).append(row)
    return sorted((_joined(mine) for mine in found.values()), key=lambda row: place(row.problem))


def _joined(rows: Sequence[Row]) -> Row:
    results = [row for row in rows if row.status not in UNDECIDED]
    if not results:
        return rows[-1]
    last, borrowed = results[-1], dict[str, tuple[float, str]]()
    for row in reversed(results[:-1]):
        if (row.gpu, row.torch) != (last.gpu, last.torch) or not (row.eager_ms and last.eager_ms):
            continue
        for name, ms in row.times.items():
            if name not in last.times and name not in borrowed and name not in row.borrowed:
                borrowed[name] = (ms / row.eager_ms * last.eager_ms, row.date)
    return replace(last, borrowed=borrowed)


def degenerate(path: Path) -> frozenset[str]:
    """Problems on a frozen list (see docs/degenerate.md): a candidate without work passes the judge's rule or 1e-4 there.

    Of two rows of a problem the one made on a GPU decides. Raises BadInput.
    """
    found: dict[str, Mapping[str, Any]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["device"] == "cuda" or row["problem"] not in found:
                found[row["problem"]] = row
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a list of degenerate problems: {error}") from error
    return frozenset(name for name, row in found.items() if row.get("accepted") or row.get("accepted_1e-4"))
