"""Figures over courses: curves of the best speed-up, the area under them, candidates needed; intervals over trees.

What is compared is log speed-up over the reference as a share of the tree's best: 0 is the reference itself, 1 the best
program of the tree. A tree counts once: its seeds are averaged first. Intervals (95 %) are percentiles of bootstrap samples
of trees (Efron 1979), the same samples for all policies, so that ratios to `random` are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtmc.evaluation.course import Course
from mtmc.policies.replay import Untried

Array = NDArray[np.float64]
MARKS = (1, 2, 4, 8, 16, 32)
NEAR = 0.95  # share of the best log speed-up at which a search has arrived
SAMPLES = 2000  # of the bootstrap
BASE = "random"
LIMIT = "tree's best"  # the name under which the best that is possible stands among the policies


@dataclass(frozen=True)
class Case:
    """One tree: what is known of it, its best log speed-up, and the best curve that is possible (see `course.limit`)."""

    name: str
    facts: Mapping[str, Any]
    best: float
    limit: tuple[float, ...]
    courses: Mapping[str, tuple[Course, ...]]

    @property
    def tried(self) -> bool:
        """Is the outcome of every choice known?"""
        return all(course.untried == 0 for courses in self.courses.values() for course in courses)

    @property
    def open(self) -> bool:
        """Is there anything to find: does the first program fall short of NEAR?"""
        return self.limit[0] < NEAR * self.best


@dataclass(frozen=True)
class Estimate:
    """A mean over trees with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> list[float]:
        return [round(number, 4) for number in (self.value, self.low, self.high)]


@dataclass(frozen=True)
class Figures:
    """One policy under one convention about untried choices.

    `speedup` [budget + 1] is the geometric mean of the best speed-up after that many candidates, `share` the mean share of
    the tree's best log speed-up, `area` the mean of `share` over 1 to `budget` candidates. `needed` is the mean number of
    candidates to NEAR, those that never arrive counted as `budget`, so it is a lower bound where `arrived` (the part of the
    courses that do) is below 1; `middle` is the median over trees and seeds, None when most never arrive. `saved` is
    `random`'s mean over this policy's. `untried` is the part of choices without outcome, `blind` see `Course`.
    """

    speedup: tuple[Estimate, ...]
    share: tuple[Estimate, ...]
    area: Estimate
    needed: Estimate
    middle: float | None
    arrived: float
    saved: Estimate | None
    untried: float
    blind: float

    def to_json(self) -> dict[str, Any]:
        marks = [mark for mark in (0, *MARKS) if mark < len(self.share)]
        return {
            "speedup": {mark: self.speedup[mark].to_json() for mark in marks},
            "share": {mark: self.share[mark].to_json() for mark in marks},
            "area": self.area.to_json(),
            "needed": self.needed.to_json(),
            "needed_median": self.middle,
            "arrived": round(self.arrived, 4),
            "times_fewer_than_random": self.saved.to_json() if self.saved else None,
            "untried": round(self.untried, 4),
            "blind": round(self.blind, 4),
        }


@dataclass(frozen=True)
class _Runs:
    """Curves of one policy [trees][seeds] as log speed-up, and its courses."""

    curves: Sequence[Sequence[tuple[float, ...]]]
    courses: Sequence[Course] = ()


def figures(cases: Sequence[Case], budget: int, untried: Untried) -> dict[str, Figures]:
    """By policy, the best that is possible last. `cases` must not be empty, and share their policies."""
    labels = list(cases[0].courses)
    runs = {label: _runs(cases, label, budget, untried) for label in labels}
    runs[LIMIT] = _Runs([[case.limit[: budget + 1]] for case in cases])
    best = np.array([case.best for case in cases])
    picks = np.random.default_rng(0).integers(len(cases), size=(SAMPLES, len(cases)))
    needed = {
        label: _per_tree(found, lambda curve, top: _arrival(curve, top, budget), best) for label, found in runs.items()
    }
    base = needed.get(BASE)
    return {label: _figures(found, best, needed[label], base, picks) for label, found in runs.items()}


def areas(case: Case, budget: int, untried: Untried) -> dict[str, float]:
    """Each policy's area in one tree, its seeds averaged."""
    curves = {label: [c.curve(budget, untried) for c in found] for label, found in case.courses.items()}
    return {label: float(np.mean(found, axis=0)[1:].mean()) / case.best for label, found in curves.items()}


def _runs(cases: Sequence[Case], label: str, budget: int, untried: Untried) -> _Runs:
    curves = [[course.curve(budget, untried) for course in case.courses[label]] for case in cases]
    return _Runs(curves, [course for case in cases for course in case.courses[label]])


def _figures(runs: _Runs, best: Array, needed: Array, base: Array | None, picks: NDArray[np.int64]) -> Figures:
    logs = np.array([np.mean(seeds, axis=0) for seeds in runs.curves])
    shares, budget = logs / best[:, None], logs.shape[1] - 1
    arrivals = [_arrival(curve, top, None) for seeds, top in zip(runs.curves, best, strict=True) for curve in seeds]
    middle = median(arrivals)
    return Figures(
        speedup=tuple(_estimate(logs[:, k], picks, np.exp) for k in range(budget + 1)),
        share=tuple(_estimate(shares[:, k], picks) for k in range(budget + 1)),
        area=_estimate(shares[:, 1:].mean(axis=1), picks),
        needed=_estimate(needed, picks),
        middle=middle if np.isfinite(middle) else None,
        arrived=float(np.mean(np.isfinite(arrivals))),
        saved=_ratio(base, needed, picks) if base is not None else None,
        untried=float(np.mean([course.untried for course in runs.courses] or [0.0])),
        blind=float(np.mean([course.blind for course in runs.courses] or [0.0])),
    )


def _per_tree(runs: _Runs, figure: Callable[[Sequence[float], float], float], best: Array) -> Array:
    """A figure of each curve, averaged over the seeds of a tree."""
    return np.array([np.mean([figure(curve, top) for curve in seeds]) for seeds, top in zip(runs.curves, best, strict=True)])


def _arrival(curve: Sequence[float], best: float, otherwise: int | None) -> float:
    """After how many candidates a curve reaches NEAR; `otherwise` (None: infinity) when it never does."""
    found = next((number for number, level in enumerate(curve) if level >= NEAR * best), None)
    return float(found if found is not None else inf if otherwise is None else otherwise)


def _estimate(values: Array, picks: NDArray[np.int64], shown: Callable[[Any], Any] = lambda mean: mean) -> Estimate:
    low, high = np.percentile(values[picks].mean(axis=1), (2.5, 97.5))
    return Estimate(*(float(shown(number)) for number in (values.mean(), low, high)))


def _ratio(base: Array, values: Array, picks: NDArray[np.int64]) -> Estimate | None:
    """Mean over mean, paired by tree; None where a policy needs no candidate at all."""
    samples = values[picks].mean(axis=1)
    if values.mean() <= 0 or samples.min() <= 0:
        return None
    low, high = np.percentile(base[picks].mean(axis=1) / samples, (2.5, 97.5))
    return Estimate(float(base.mean() / values.mean()), float(low), float(high))
