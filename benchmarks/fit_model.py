"""How well the time model ranks a calibration run, and which constants would fit it better.

    python benchmarks/fit_model.py h200.json [--profile h200] [--fit]

Prints Spearman's rank correlation over everything and inside each group, and what the model's favourite costs against the
best of its group. `--fit` improves one constant at a time (coordinate search on the loss below) and prints TOML lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from mtmc.hardware_profiles import Profile, load
from mtmc.judge.predict import kernel_time, work
from mtmc.verdict import Launch

FITTED = (
    "l2_shared_bytes_per_clock_per_sm", "issue_fraction", "dot_ieee_fraction", "dot_tf32_fraction", "dot_tf32x3_fraction",
    "dot_16bit_fraction", "tf32_turn_clocks_per_element", "memory_latency_ns", "block_start_ns", "iteration_overhead_ns",
    "reduce_latency_ns", "overlap_exponent",
)  # fmt: skip
"""What the micro-benchmarks do not measure by themselves."""
STEPS = (0.6, 0.8, 0.9, 1.1, 1.25, 1.6)


def ranks(values: Sequence[float]) -> np.ndarray:
    """Average ranks, ties shared."""
    array = np.asarray(values)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation; NaN when one side is constant."""
    first, second = ranks(a), ranks(b)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


class Run:
    """The sweep of one calibration file, grouped."""

    def __init__(self, sweep: Sequence[dict[str, Any]], profile: Profile) -> None:
        launches = [_launch(row["launch"]) for row in sweep]
        self.launches = [(launch, work(launch, profile)) for launch in launches]
        self.ms = np.array([row["ms"] for row in sweep])
        names = list(dict.fromkeys(row["group"] for row in sweep))
        self.groups = {name: [i for i, row in enumerate(sweep) if row["group"] == name] for name in names}

    def predicted(self, profile: Profile) -> np.ndarray:
        return np.array([kernel_time(launch, profile, counts).ms for launch, counts in self.launches])

    def loss(self, predicted: np.ndarray) -> float:
        """Mean absolute log error, plus one minus the mean rank correlation inside groups, plus the favourites' regret."""
        error = float(np.abs(np.log(predicted / self.ms)).mean())
        inside = [spearman(predicted[g], self.ms[g]) for g in self.groups.values()]
        regret = [self.regret(predicted, g) for g in self.groups.values()]
        return error + (1 - float(np.nanmean(inside))) + float(np.mean(regret))

    def regret(self, predicted: np.ndarray, group: list[int]) -> float:
        """Measured time of the model's favourite over the best measured, minus one."""
        return float(self.ms[group[int(predicted[group].argmin())]] / self.ms[group].min() - 1)

    def report(self, predicted: np.ndarray) -> None:
        inside = []
        print(f"{'group':36s} {'n':>3s} {'spearman':>8s} {'regret':>7s} {'predicted/measured':>19s}")
        for name, group in self.groups.items():
            inside.append(spearman(predicted[group], self.ms[group]))
            ratio = float(np.exp(np.log(predicted[group] / self.ms[group]).mean()))
            print(f"{name:36s} {len(group):3d} {inside[-1]:8.2f} {self.regret(predicted, group):7.1%} {ratio:19.2f}")
        regrets = [self.regret(predicted, g) for g in self.groups.values()]
        print(
            f"overall spearman {spearman(predicted, self.ms):.3f}, median inside groups {np.nanmedian(inside):.2f}, ", end=""
        )
        print(f"median regret {np.median(regrets):.1%}, worst {max(regrets):.1%}")


def fit(run: Run, profile: Profile, rounds: int) -> Profile:
    """Coordinate search: each constant in turn takes the step that lowers the loss most."""
    best = run.loss(run.predicted(profile))
    for _ in range(rounds):
        before = best
        for name in FITTED:
            value = getattr(profile.efficiency, name)
            steps = [s for s in STEPS if value * s <= 1 or not name.endswith("_fraction")]
            tried = [_with(profile, name, value * step) for step in steps]
            losses = [run.loss(run.predicted(p)) for p in tried]
            if min(losses) < best:
                best, profile = min(losses), tried[int(np.argmin(losses))]
        print(f"loss {best:.4f}", flush=True)
        if best > before - 1e-3:
            break
    return profile


def _with(profile: Profile, name: str, value: float) -> Profile:
    return replace(profile, efficiency=replace(profile.efficiency, **{name: value}))


def _launch(data: dict[str, Any]) -> Launch:
    return Launch(**{**data, "grid": tuple(data["grid"])})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--profile", default="h200")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    data = json.loads(args.file.read_text())
    print(data["device"], json.dumps(data["facts"], indent=1))
    profile = load(args.profile)
    run = Run(data["sweep"], profile)
    run.report(run.predicted(profile))
    if args.fit:
        fitted = fit(run, profile, args.rounds)
        run.report(run.predicted(fitted))
        for name in FITTED:
            print(f"{name} = {getattr(fitted.efficiency, name):.4g}")


if __name__ == "__main__":
    main()
