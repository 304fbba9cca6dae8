"""Markdown of joined rows: levels, fast_p, every problem, and what the runs cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from mtmc.bench import figures
from mtmc.bench.figures import BEST, FAST, KINDS, Level, Mean
from mtmc.bench.rows import EAGER, Row
from mtmc.report import table

GIB = 2**30
MEMORY_TARGET = 0.92  # of the rate of a copy
MINOR = 0.05  # kernels with less of the time are not told
FAST_HEADS = tuple(f"fast_{p:g}" for p in FAST)
HOW = (
    "Of each problem the last result counts. Device times of eager, the other baselines and ours, interleaved in one "
    "process a problem; docs/bench.md says what every figure is."
)
COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "candidates": ("candidates", lambda value: f"{value:g}"),
    "seconds": ("seconds", lambda value: f"{value:.0f}"),
    "peak_bytes": ("peak memory of a call, GiB", lambda value: f"{value / GIB:.3g}"),
}


def text(rows: Sequence[Row], degenerate: Collection[str] | None) -> str:
    """The whole report of joined rows, Markdown. `degenerate` None: there was no list, and the text says so."""
    known, columns = degenerate or frozenset(), figures.baselines(rows)
    found = figures.levels(rows, known)
    sections = [
        "# Benchmark",
        origin(rows, degenerate),
        "## Levels",
        *(f"**{level.name}**: {accuracy(level)}\n\n{_means(level, columns)}" for level in found),
        "## fast_p",
        "Share of the problems that are correct and more than p times as fast, counted as in the headline.",
        _fast(found, columns),
        "## Cost of a problem",
        table(("", "median", "worst", "of"), costs(rows)),
        "## Problems",
        table(heads(columns), (cells(row, columns, known) for row in rows)),
        *_remarks(rows, columns),
        *_bounds(rows),
    ]
    return "\n\n".join(sections) + "\n"


def origin(rows: Sequence[Row], degenerate: Collection[str] | None) -> str:
    """Where the rows come from, in a few sentences."""
    gpus, dates = sorted({row.gpu for row in rows if row.gpu}), sorted({row.date for row in rows if row.date})
    torches = sorted({f"torch {row.torch}, triton {row.triton}" for row in rows if row.torch})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "date unknown"
    listed = (
        f"{sum(row.problem in degenerate for row in rows)} of them degenerate"
        if degenerate is not None
        else "no list of degenerate ones"
    )
    parts = [", ".join(gpus) or "GPU unknown", *torches, when, f"{len(rows)} problems ({listed})"]
    return f"{'; '.join(parts)}. {HOW}"


def accuracy(level: Level) -> str:
    """How many programs are right, by the judge and by KernelBench's checker, in a sentence."""
    said = f"{level.verified} of {level.problems} verified, {level.handed_back} ahead of eager beyond noise"
    said += f", {level.degenerate} degenerate" if level.degenerate else ""
    opinion = f"; KernelBench's checker accepts {level.agreed} of the {level.opinions} it was asked about"
    return said + (opinion if level.opinions else "; KernelBench's checker was not asked") + "."


def _means(level: Level, columns: Sequence[str]) -> str:
    rows = [(kind.name, *(mean(level.means[kind.name].get(column)) for column in columns)) for kind in KINDS]
    return table(("geometric mean (median), problems", *map(over, columns)), rows)


def mean(found: Mean | None) -> str:
    return f"{found.geometric:.2f} ({found.median:.2f}), {found.count}" if found else "–"


def over(column: str) -> str:
    return "over the best" if column == BEST else f"over {column}"


def _fast(found: Sequence[Level], columns: Sequence[str]) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for level in found:
            yield from ((level.name, over(column), *shares) for column, shares in fast(level, columns))

    return table(("", "", *FAST_HEADS, "problems"), lines())


def fast(level: Level, columns: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each baseline with its cells of the fast_p table: a share a threshold, and the number of problems."""
    for column in columns:
        if one := level.means[KINDS[0].name].get(column):
            yield column, (*(f"{share:.0%}" for share in one.fast), str(one.count))


def costs(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Cells of the cost table: figure, median, worst, problem."""
    for name, found in figures.spent(rows):
        title, form = COSTS[name]
        yield title, form(found.median), form(found.worst), found.problem


def heads(columns: Sequence[str]) -> tuple[str, ...]:
    names = ("problem", "eager ms", "ours ms", "ours over eager", "interval")
    others = (*(f"{column} over eager" for column in others_of(columns)), over(BEST))
    more = ("share of floor", "our kernels", "error", "eager's", "peak GiB", "candidates", "seconds", "KernelBench", "date")
    return (*names, *others, *more)


def cells(row: Row, columns: Sequence[str], degenerate: Collection[str]) -> tuple[str, ...]:
    """One problem's line; a failed one says why in the place of its times."""
    others = (*(_gained(row, column) for column in others_of(columns)), _ratio(row, BEST))
    times = ("", status(row), "", "") if not row.verified else _times(row)
    share = "" if row.kernel_share is None else f"{row.kernel_share:.0%}"
    return (
        name(row, degenerate),
        *times,
        *others,
        f"{row.floor_share:.0%}" if row.verified and row.floor_share else "",
        share,
        *("" if error is None else f"{error:.1e}" for error in (row.error, row.eager_error)),
        "" if row.peak_bytes is None else f"{row.peak_bytes / GIB:.3g}",
        "" if row.candidates is None else str(row.candidates),
        "" if row.seconds is None else f"{row.seconds:.0f}",
        {True: "correct", False: "not accepted", None: "no opinion" if row.kernelbench_note else "not asked"}[
            row.kernelbench_correct
        ],
        row.date,
    )


def name(row: Row, degenerate: Collection[str]) -> str:
    """`1/19 ReLU`, with a mark on a degenerate problem."""
    title = row.title.partition("_")[2] if row.title.split("_")[0].isdecimal() else row.title
    return f"{row.problem} {title.strip('_')}".strip() + (" (degenerate)" if row.problem in degenerate else "")


def status(row: Row) -> str:
    """Why there is no time, in short."""
    return f"none: {row.status}"


def _times(row: Row) -> tuple[str, ...]:
    ms = (f"{row.eager_ms:.3f}" if row.eager_ms else "", f"{row.ours_ms:.3f}")
    interval = "" if row.low is None or row.high is None else f"{row.low:.2f}–{row.high:.2f}"
    return (*ms, _ratio(row, EAGER), interval)


def others_of(columns: Sequence[str]) -> Sequence[str]:
    """The baselines among the columns but for eager."""
    return [column for column in columns if column not in (EAGER, BEST)]


def _gained(row: Row, baseline: str) -> str:
    """Eager's time over another baseline's."""
    ms = row.times.get(baseline)
    return f"{row.eager_ms / ms:.2f}{'†' * (baseline in row.borrowed)}" if ms and row.eager_ms else ""


def _ratio(row: Row, column: str) -> str:
    ratio = row.over(column)
    mark = "†" if column in row.borrowed or (column == BEST and row.best in row.borrowed) else ""
    return "" if ratio is None else f"{ratio:.2f}{mark}"


def _remarks(rows: Sequence[Row], columns: Sequence[str]) -> Iterator[str]:
    if any(row.borrowed for row in rows):
        yield "† The baseline's time comes from an earlier run of this problem, by its ratio to eager there."
    if late := figures.slower(rows):
        listed = ", ".join(f"{row.problem} ({row.over(EAGER):.2f})" for row in late)
        yield f"Slower than eager beyond noise, so eager is handed back: {listed}."
    for row in rows:
        if not row.verified:
            yield f"- {row.problem}, {row.status}: {' '.join((row.message or row.reason or 'no reason was given').split())}"
    for row in rows:
        if said := [*(note for note in row.notes if note.startswith("baseline ")), row.kernelbench_note]:
            yield from (f"- {row.problem}: {note}" for note in said if note)


def _bounds(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each memory-bound problem below the target: what its kernels move, how fast, and what holds them up."""
    lines = [_bound(row) for row in rows if row.verified and row.memory_bound and (row.floor_share or 0.0) < MEMORY_TARGET]
    if lines:
        yield f"## Memory-bound problems below {MEMORY_TARGET:.0%} of copy bandwidth"
        yield "Bytes and the slowest pipe of each kernel are the time model's, milliseconds measured."
        yield "\n".join(lines)


def _bound(row: Row) -> str:
    moved, least = sum(gb for gb, _ in row.traffic.values()), row.floor_gb or 0.0
    copy = least / (row.passes_ms or 1.0)  # GB a millisecond
    parts = [
        f"{unit} {ms:.2f} ms" + (f", {gb:.2f} GB at {gb / ms / copy:.0%} of copy bandwidth ({bound})" if bound else "")
        for unit, ms in row.kernels_ms.items()
        if ms >= MINOR * sum(row.kernels_ms.values())
        for gb, bound in [row.traffic.get(unit, (0.0, ""))]
    ]
    return f"- {row.problem}, {row.floor_share:.0%}: moves {moved:.2f} GB, the floor {least:.2f}. {'; '.join(parts)}."
