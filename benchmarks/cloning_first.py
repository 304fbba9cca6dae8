"""How many iterations of reinforcement cloning saves: prints Markdown.

    python benchmarks/cloning_first.py --base rlb0 rlb1 rlb2 --cloned rl0 rl1 rl2

Folders of `mtmc train`, in pairs of one seed: from the bare model, and from a cloned adapter. Pairs of equal settings and
seed walk the same trees in the same iteration, so their returns are compared like with like. A return is a mean over SMOOTH
iterations; the plateau is the mean of the base run's last quarter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from mtmc.errors import BadInput, guarded
from mtmc.policies.curves import read

SMOOTH = 5
QUARTER = 4
SHARE = 0.9  # of the plateau


def returns(folder: Path) -> list[float]:
    """Mean return of each iteration. Raises BadInput where there are too few to speak of a plateau."""
    found = [float(row["return"]) for row in read(folder) if "return" in row]
    if len(found) < QUARTER * SMOOTH:
        raise BadInput(f"{folder} has {len(found)} iterations of reinforcement; it takes {QUARTER * SMOOTH}.")
    return found


def plateau(found: Sequence[float]) -> float:
    return fmean(found[-(len(found) // QUARTER) :])


def reached(found: Sequence[float], level: float) -> int | None:
    """The iteration (from 1) at which the smoothed return is at a level for the first time; None if it never is."""
    smooth = (fmean(found[max(0, at - SMOOTH) : at]) for at in range(SMOOTH, len(found) + 1))
    return next((at for at, value in enumerate(smooth, SMOOTH) if value >= level), None)


def lines(pairs: Sequence[tuple[Path, Path]]) -> Iterator[str]:
    yield f"First: mean return of the first {SMOOTH} iterations. Reached: the first at {SHARE:.0%} of the base's plateau."
    yield ""
    yield "| runs | plateau | first, base | first, cloned | reached, base | reached, cloned |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for base, cloned in pairs:
        runs = returns(base), returns(cloned)
        level = plateau(runs[0])
        first = [f"{fmean(run[:SMOOTH]):.3f}" for run in runs]
        places = [(reached(run, SHARE * level), len(run)) for run in runs]
        at = [f"{place} of {count}" if place else f"not in {count}" for place, count in places]
        yield f"| {base.name}, {cloned.name} | {level:.3f} | {' | '.join([*first, *at])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    runs: dict[str, Any] = {"type": Path, "nargs": "+", "required": True, "metavar": "RUN"}
    parser.add_argument("--base", help="folders of mtmc train, from the bare model", **runs)
    parser.add_argument("--cloned", help="with the same seeds, from a cloned adapter", **runs)
    options = parser.parse_args()
    if len(options.base) != len(options.cloned):
        raise BadInput("--base and --cloned must name as many runs.")
    for line in lines(list(zip(options.base, options.cloned, strict=True))):
        print(line)


if __name__ == "__main__":
    guarded(main)
