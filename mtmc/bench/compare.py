"""Two result files side by side: which problems became faster or slower, and which came and went.

Times of two runs were not interleaved, so what is compared is the ratio to eager, which was in each. A difference counts
when the intervals do not overlap and the ratios are more than 1 % apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from mtmc.bench.rows import EAGER, Row
from mtmc.bench.suite import place
from mtmc.report import table
from mtmc.verdict import NEAR

WORDS = ("lost", "slower", "faster", "found", "equal", "neither", "only before", "only after")
"""What can have become of a problem, in the order of the table; `neither` has a verified program on no side."""


@dataclass(frozen=True)
class Change:
    """One problem before and after; `factor` is the ratio to eager after over that before, where both were measured."""

    problem: str
    word: str
    before: Row | None = None
    after: Row | None = None

    @property
    def factor(self) -> float | None:
        old, new = (row.over(EAGER) if row else None for row in (self.before, self.after))
        return new / old if old and new else None


def compare(before: Sequence[Row], after: Sequence[Row]) -> list[Change]:
    """Every problem of either file's joined rows, by what became of it."""
    old, new = ({row.problem: row for row in rows} for rows in (before, after))
    found = [_change(name, old.get(name), new.get(name)) for name in sorted({*old, *new}, key=place)]
    return sorted(found, key=lambda change: WORDS.index(change.word))


def _change(problem: str, before: Row | None, after: Row | None) -> Change:
    if before is None or after is None:
        return Change(problem, "only after" if before is None else "only before", before, after)
    if before.verified and after.verified:
        return Change(problem, _between(before, after), before, after)
    word = "lost" if before.verified else "found" if after.verified else "neither"
    return Change(problem, word, before, after)


def _between(before: Row, after: Row) -> str:
    """`faster`, `slower` or `equal`."""
    old, new = before.over(EAGER) or 1.0, after.over(EAGER) or 1.0
    apart = (after.low or new) > (before.high or old) or (after.high or new) < (before.low or old)
    if not apart or abs(new / old - 1) <= NEAR:
        return "equal"
    return "faster" if new > old else "slower"


def text(changes: Sequence[Change]) -> str:
    """Markdown: a count of each kind, the mean of the factors, and the problems that are not equal."""
    counts = {word: sum(change.word == word for change in changes) for word in WORDS}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    factors = [change.factor for change in changes if change.factor]
    mean = (
        f" Over eager, the ratio changed by {geometric_mean(factors):.3f} (geometric mean of {len(factors)})."
        if factors
        else ""
    )
    shown = [change for change in changes if change.word not in ("equal", "neither")]
    heads = ("problem", "", "over eager before", "after", "factor", "why")
    return f"{said}.{mean}\n" + (f"\n{table(heads, map(_cells, shown))}\n" if shown else "")


def _cells(change: Change) -> Iterator[str]:
    yield change.problem
    yield change.word
    yield from (_figure(row) for row in (change.before, change.after))
    yield f"{change.factor:.3f}" if change.factor else ""
    yield change.after.message if change.word == "lost" and change.after else ""


def _figure(row: Row | None) -> str:
    if row is None:
        return "–"
    ratio = row.over(EAGER)
    interval = f" [{row.low:.2f}, {row.high:.2f}]" if row.low is not None and row.high is not None else ""
    return f"{ratio:.2f}{interval}" if row.verified and ratio else row.status
