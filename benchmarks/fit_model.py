"""How well the time model ranks a calibration run, and which constants would fit it better.

    python benchmarks/fit_model.py h200.json [--profile h200] [--fit] [--hold-out group|kernel]

Prints Spearman's rank correlation over everything and inside each group, and what the model's favourite costs against the
best of its group. `--fit` improves one constant at a time (coordinate search on the loss below) and prints TOML lines.
`--hold-out` predicts every problem, or every kernel, with constants fitted on the others only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from variants import variant_label, variants

from mtmc.hardware_profiles import Profile, load
from mtmc.judge.predict import kernel_time, work
from mtmc.judge.standin import stand_in
from mtmc.verdict import Launch

FITTED = (
    "l2_shared_bytes_per_clock_per_sm", "issue_fraction", "dot_ieee_fraction", "dot_tf32_fraction", "dot_tf32x3_fraction",
    "dot_16bit_fraction", "tf32_turn_clocks_per_element", "memory_latency_ns", "block_start_ns", "iteration_overhead_ns",
    "reduce_latency_ns", "overlap_exponent",
)  # fmt: skip
"""What the micro-benchmarks do not measure by themselves."""

ESTIMATES = {
    "l2_shared_bytes_per_clock_per_sm": 44.0, "issue_fraction": 0.7, "dot_ieee_fraction": 0.55, "dot_tf32_fraction": 0.6,
    "dot_tf32x3_fraction": 0.5, "dot_16bit_fraction": 0.685, "tf32_turn_clocks_per_element": 0.5, "memory_latency_ns": 700.0,
    "block_start_ns": 300.0, "iteration_overhead_ns": 60.0, "reduce_latency_ns": 120.0, "overlap_exponent": 4.0,
}  # fmt: skip
"""From before the calibration run: where a fit that holds problems out begins, so that it has not seen them."""
USAGE = ("registers", "stack_bytes", "shared_bytes")
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


def held_out(sweep: Sequence[dict[str, Any]], profile: Profile, rounds: int, by: str) -> np.ndarray:
    """Predictions for each problem (`group`) or each kernel from constants that were fitted on all the others."""
    keys = [row["group"] if by == "group" else row["launch"]["kernel"] for row in sweep]
    predicted = np.empty(len(sweep))
    start = replace(profile, efficiency=replace(profile.efficiency, **ESTIMATES))
    for key in dict.fromkeys(keys):
        inside = [row for row, k in zip(sweep, keys, strict=True) if k == key]
        others = [row for row, k in zip(sweep, keys, strict=True) if k != key]
        fitted = fit(Run(others, profile), start, rounds)
        predicted[[k == key for k in keys]] = Run(inside, profile).predicted(fitted)
    return predicted


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
        if best > before - 1e-3:
            break
    return profile


def _with(profile: Profile, name: str, value: float) -> Profile:
    return replace(profile, efficiency=replace(profile.efficiency, **{name: value}))


def _launch(data: dict[str, Any]) -> Launch:
    return Launch(**{**data, "grid": tuple(data["grid"])})


def slim(data: dict[str, Any]) -> str:
    """A calibration run without Triton IR, as JSON of one variant a line: `completed` gets the IR back."""
    rows = []
    for row in data["sweep"]:
        launch = row["launch"]
        usage = {name: launch[name] for name in USAGE}
        label = variant_label(launch["constants"], launch["num_warps"], launch["num_stages"])
        rows.append(json.dumps({"group": row["group"], "label": label, "ms": round(row["ms"], 5), **usage}))
    head = json.dumps({name: value for name, value in data.items() if name != "sweep"}, indent=1)
    return head[:-2] + ',\n "sweep": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"


def completed(sweep: Sequence[dict[str, Any]], profile: Profile) -> list[dict[str, Any]]:
    """Rows with their launches: compiled on meta tensors where left out, registers and memory as they were measured."""
    known = {(v.group, v.label): v for v in variants()}
    rows = []
    with stand_in(profile) as recorder:
        for row in sweep:
            if "launch" not in row:
                known[row["group"], row["label"]].launch("meta")
                launch = asdict(recorder.launches[-1]) | {name: row[name] for name in USAGE}
                row = {"group": row["group"], "ms": row["ms"], "launch": launch}
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--profile", default="h200")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--hold-out", choices=("group", "kernel"))
    parser.add_argument("--slim", type=Path, help="write the run here without Triton IR, to keep it")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    data = json.loads(args.file.read_text())
    print(data["device"], json.dumps(data["facts"], indent=1))
    if args.slim:
        args.slim.write_text(slim(data))
    profile = load(args.profile)
    sweep = completed(data["sweep"], profile)
    run = Run(sweep, profile)
    run.report(run.predicted(profile))
    if args.hold_out:
        print(f"held out by {args.hold_out}:")
        run.report(held_out(sweep, profile, args.rounds, args.hold_out))
    if args.fit:
        fitted = fit(run, profile, args.rounds)
        run.report(run.predicted(fitted))
        for name in FITTED:
            print(f"{name} = {getattr(fitted.efficiency, name):.4g}")


if __name__ == "__main__":
    main()
