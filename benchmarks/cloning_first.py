"""How many iterations of reinforcement cloning saves: prints Markdown.

    python benchmarks/cloning_first.py --base rlb0 rlb1 rlb2 --cloned rl0 rl1 rl2

Folders of `mtmc train`, in pairs of one seed: from the bare model, and from a cloned adapter. Pairs of equal settings and
seed walk the same trees in the same iteration, so their returns are compared like with like. Which trees these are decides
most of a return, so all returns are shares of the expert's on the same trees, means over SMOOTH iterations; the plateau is
the mean of the base run's last quarter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from mtmc.errors import BadInput, guarded
from mtmc.policies.curves import read

FIGURE = "share of the expert"
SMOOTH = 5
QUARTER = 4


def returns(folder: Path, least: int) -> list[float]:
    """Of each iteration the return, as a share of the expert's. Raises BadInput where there are too few."""
    found = [float(row[FIGURE]) for row in read(folder) if FIGURE in row]
    if len(found) < least:
        raise BadInput(f"{folder} has {len(found)} iterations of reinforcement; it takes {least}.")
    return found


def plateau(found: Sequence[float]) -> float:
    return fmean(found[-(len(found) // QUARTER) :])


def reached(found: Sequence[float], level: float) -> int | None:
    """The iteration (from 1) at which the smoothed return is at a level for the first time; None if it never is."""
    smooth = (fmean(found[max(0, at - SMOOTH) : at]) for at in range(SMOOTH, len(found) + 1))
    return next((at for at, value in enumerate(smooth, SMOOTH) if value >= level), None)


def lines(pairs: Sequence[tuple[Path, Path]], share: float) -> Iterator[str]:
    yield f"First: the first {SMOOTH} iterations. Reached: the iteration with {share:.0%} of the base run's plateau."
    yield ""
    yield "| runs | plateau | first, base | first, cloned | reached, base | reached, cloned |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for base, cloned in pairs:
        runs = returns(base, QUARTER * SMOOTH), returns(cloned, SMOOTH)
        level = plateau(runs[0])
        first = [f"{fmean(run[:SMOOTH]):.3f}" for run in runs]
        places = [(reached(run, share * level), len(run)) for run in runs]
        at = [f"{place} of {count}" if place else f"not in {count}" for place, count in places]
        yield f"| {base.name}, {cloned.name} | {level:.3f} | {' | '.join([*first, *at])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    runs: dict[str, Any] = {"type": Path, "nargs": "+", "required": True, "metavar": "RUN"}
    parser.add_argument("--base", help="folders of mtmc train, from the bare model", **runs)
    parser.add_argument("--cloned", help="with the same seeds, from a cloned adapter", **runs)
    parser.add_argument("--share", type=float, default=0.9, help="of the plateau, to be reached (0.9)")
    options = parser.parse_args()
    if len(options.base) != len(options.cloned):
        raise BadInput("--base and --cloned must name as many runs.")
    for line in lines(list(zip(options.base, options.cloned, strict=True)), options.share):
        print(line)


if __name__ == "__main__":
    guarded(main)
