"""Rows summed up: accuracy, means of the ratios and fast_p by level, and what the runs cost. docs/bench.md defines each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from mtmc.bench.rows import EAGER, Row
from mtmc.judge.baselines import BASELINES

BEST = "best"
FAST = (1.0, 1.2, 2.0, 5.0)
"""Thresholds p of fast_p: the share of all problems that are correct and more than p times as fast."""


@dataclass(frozen=True)
class Mean:
    """Ratios to one baseline: geometric mean, median, and the share above each threshold of FAST."""

    count: int
    geometric: float
    median: float
    fast: tuple[float, ...]


@dataclass(frozen=True)
class Kind:
    """One way to average: its name, and the ratio a row contributes to a baseline (None: the row is left out)."""

    name: str
    ratio: Callable[[Row, str, Collection[str]], float | None]


@dataclass(frozen=True)
class Level:
    """One level's figures; `means` by kind and baseline, without those that no row has."""

    name: str
    problems: int
    verified: int
    handed_back: int
    degenerate: int
    opinions: int
    agreed: int
    means: dict[str, dict[str, Mean]]


@dataclass(frozen=True)
class Spent:
    """Median and worst of one cost, and the problem with the worst."""

    median: float
    worst: float
    problem: str


def headline(row: Row, baseline: str, degenerate: Collection[str]) -> float | None:
    """What counts in the headline: 1.0 where no program was verified or the problem is degenerate.

    Where ours did not beat eager, eager is handed back: 1.0 over eager, and over another baseline what eager is worth there,
    at most 1.0. None where a verified row has no time of the baseline, or a failed one was not asked for it.
    """
    if row.problem in degenerate or not row.verified:
        return 1.0 if baseline in (BEST, *row.asked, *row.times) else None
    ratio = row.over(baseline)
    if ratio is None or row.won:
        return ratio
    return min(1.0, ratio / (row.over(EAGER) or 1.0))


def own(row: Row, baseline: str, degenerate: Collection[str]) -> float | None:
    """As measured, also below 1.0, of problems whose heavy operations are all in our kernels; none that is degenerate."""
    return row.over(baseline) if row.all_ours and row.problem not in degenerate else None


def graphs(row: Row, baseline: str, degenerate: Collection[str]) -> float | None:
    """Both sides replayed from CUDA graphs, where that was measured (see docs/timing.md); eager only."""
    if baseline != EAGER or not (row.verified and row.graph_ms and row.eager_graph_ms) or row.problem in degenerate:
        return None
    return row.eager_graph_ms / row.graph_ms


KINDS = (
    Kind("headline", headline),
    Kind("heavy operations all ours", own),
    Kind("CUDA graphs on both sides", graphs),
)


def baselines(rows: Iterable[Row]) -> tuple[str, ...]:
    """Eager, the other baselines that any row has in the order of the judge's table, and the best of each row."""
    seen = {name for row in rows for name in row.times}
    return (EAGER, *(name for name in BASELINES if name in seen and name != EAGER), BEST)


def levels(rows: Sequence[Row], degenerate: Collection[str]) -> list[Level]:
    """Figures of each level of joined rows, and of all levels together where there are several."""
    numbers = sorted({row.level for row in rows})
    parts = [(f"level {n}" if n else "all", [row for row in rows if row.level == n]) for n in numbers]
    whole = [("all levels", list(rows))] if len(numbers) > 1 else []
    return [_level(name, mine, degenerate, baselines(rows)) for name, mine in parts + whole]


def _level(name: str, rows: list[Row], degenerate: Collection[str], columns: Sequence[str]) -> Level:
    found: dict[str, dict[str, Mean]] = {}
    for kind in KINDS:
        means = {column: _mean(kind.ratio(row, column, degenerate) for row in rows) for column in columns}
        found[kind.name] = {column: mean for column, mean in means.items() if mean}
    opinions = [row.kernelbench_correct for row in rows if row.kernelbench_correct is not None]
    return Level(
        name,
        len(rows),
        sum(row.verified for row in rows),
        sum(row.won for row in rows),
        sum(row.problem in degenerate for row in rows),
        len(opinions),
        sum(opinions),
        found,
    )


def _mean(ratios: Iterable[float | None]) -> Mean | None:
    values = [ratio for ratio in ratios if ratio is not None]
    if not values:
        return None
    fast = tuple(sum(value > p for value in values) / len(values) for p in FAST)
    return Mean(len(values), geometric_mean(values), median(values), fast)


def spent(rows: Iterable[Row]) -> Iterator[tuple[str, Spent]]:
    """Candidates, seconds and peak memory (bytes) of a problem: median and worst, of the rows that have the figure."""
    rows = list(rows)
    for name in ("candidates", "seconds", "peak_bytes"):
        there = [(float(value), row.problem) for row in rows if (value := getattr(row, name)) is not None]
        if there:
            worst, problem = max(there)
            yield name, Spent(median(value for value, _ in there), worst, problem)


def slower(rows: Iterable[Row]) -> list[Row]:
    """Verified rows whose whole interval lies below eager: slower beyond noise."""
    return [row for row in rows if row.verified and row.high is not None and row.high < 1.0]
