"""What measured outcomes of other problems save a search: prints Markdown.

    python benchmarks/warm_start.py                      how well gains are foretold, and searches over the measured trees
    python benchmarks/warm_start.py --path KernelBench   also searches over the measured steps of the benchmark
    python benchmarks/warm_start.py --distil RUNS        writes those steps, and adds to the outcomes that come with mtmc

Every problem is looked at with the outcomes of all others (leave one problem out). The search and the policy are those of
`mtmc optimize`; only actions whose outcome was measured are offered, and nothing is run. Over the benchmark's steps the
rules are the real ones too, and actions may come in another order than when they were measured: a program's kernels have the
times of the first program's, times the measured factor of each action taken, without the kernels that fusions removed. So it
is assumed that factors do not depend on the order. Predicted times are put together in the same way.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from mtmc.action import Action, Edit
from mtmc.assembly import Rules
from mtmc.capture import capture
from mtmc.evaluation.course import Course
from mtmc.evaluation.figures import NEAR
from mtmc.hardware_profiles import load
from mtmc.lower import lower
from mtmc.policies import experience
from mtmc.policies.experience import Experience, Outcome, Place
from mtmc.policies.greedy import GreedyPolicy
from mtmc.policies.replay import Untried
from mtmc.problem import load as load_problem
from mtmc.program import Program
from mtmc.search import Limits, Search
from mtmc.step import Step
from mtmc.trajectories import archive
from mtmc.trajectories.store import Run
from mtmc.trajectories.trees import StoredTree
from mtmc.verdict import Accuracy, Timing, Verdict, Verified

ROOT = Path(__file__).parents[1]
TREES, STEPS = ROOT / "trajectories/h200", ROOT / "benchmarks/h200/steps.jsonl"
BUDGET = 12  # candidates, as in the searches that measured the steps
MARKS = (3, 4, 6, 8)  # candidates after which speed-ups are compared
SPREAD = 0.002  # half width of an interval, as measured
Mock = Any  # Moves and Evaluator at once
Facts = dict[str, Any]


class Deaf(Experience):
    """Learns nothing: greedy as it was before."""

    def add(self, outcome: Outcome) -> None:
        pass


@dataclass
class World:
    """Moves and Evaluator at once, over the measured steps of one problem."""

    steps: Sequence[Facts]
    rules: Rules
    taken: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_key = {facts["child"]: facts for facts in self.steps}
        self.known: dict[str, Facts] = {}
        for facts in self.steps:
            if facts["action"] and facts["kernels_ms"]:
                self.known.setdefault(facts["action"], facts)

    def propose(self, program: Program, verdict: Verdict) -> tuple[Action, ...]:
        *proposed, stop = self.rules.propose(program, verdict)
        return (*(action for action in proposed if action.id in self.known), stop)

    def apply(self, program: Program, action: Action) -> Edit:
        edit = self.rules.apply(program, action)
        self.taken.setdefault(edit.after.key, (*self.taken.get(program.key, ()), action.id))
        return edit

    def predict(self, programs: Sequence[Program]) -> list[float | None]:
        return [self._predicted(self.taken.get(program.key, ())) for program in programs]

    def _predicted(self, taken: Sequence[str]) -> float:
        """Of kernels as long as they were measured at first, of which actions leave a part; fusions save milliseconds."""
        times, saved = dict(self.steps[0]["kernels_ms"]), 0.0
        for name in taken:
            facts = self.known[name]
            parent, region = self.by_key[facts["parent"]], _region(name)
            before, after = parent["predicted_ms"], facts["predicted_ms"]
            if before is None:  # of the first program no prediction was kept
                before = after * parent["candidate_ms"] / facts["candidate_ms"]
            if name.startswith("fuse_"):
                saved += before - after
            elif region in times:
                share = parent["kernels_ms"][region] / sum(parent["kernels_ms"].values())
                times[region] *= max(1 - (1 - after / before) / share, 1 / 64)
        return float(sum(times.values()) - saved)

    def kernels(self, program: Program) -> dict[str, float]:
        times = dict(self.steps[0]["kernels_ms"])
        for name in self.taken.get(program.key, ()):
            facts, region = self.known[name], _region(name)
            before, after = self.by_key[facts["parent"]]["kernels_ms"], facts["kernels_ms"]
            if region in before and region in after and region in times:
                times[region] *= after[region] / before[region]
            times |= {unit: after[unit] for unit in after.keys() - before.keys()}
        return {unit: ms for unit, ms in times.items() if unit in program.units}

    def judge(self, program: Program) -> Verdict:
        return verdict(self.kernels(program), self.steps[0]["reference_ms"])


def verdict(parts: dict[str, float], reference: float) -> Verdict:
    """Verified, with kernels of these times."""
    speedup = reference / sum(parts.values())
    low, high = speedup * (1 - SPREAD), speedup * (1 + SPREAD)
    timing = Timing("measured", reference, sum(parts.values()), speedup, low, high, kernels_ms=parts)
    return Verified(timing, Accuracy(0.0, 0.0))


def _region(action: str) -> str:
    """The unit in an action's id."""
    return action.split("(")[1].split(",")[0].rstrip(")")


@dataclass
class Grown:
    """Moves and Evaluator at once, over a measured tree: the actions whose outcome is known there."""

    tree: StoredTree

    def propose(self, program: Program, verdict: Verdict) -> tuple[Action, ...]:
        *legal, stop = self.tree.nodes[program.key].legal
        return (*(action for action in legal if action.id in self.tree.edges(program.key)), stop)

    def apply(self, program: Program, action: Action) -> Edit:
        child = self.tree.edges(program.key)[action.id].child
        return Edit(program, self.tree.nodes[child].program, 0, 0)

    def predict(self, programs: Sequence[Program]) -> list[float | None]:
        return [self.tree.nodes[program.key].predicted_ms for program in programs]

    def judge(self, program: Program) -> Verdict:
        return self.tree.nodes[program.key].verdict


def foretold(found: Sequence[Outcome]) -> Iterator[str]:
    """Errors of log gains of kernels: of the model, and of the model corrected by what other problems say."""
    rows: list[tuple[float, float]] = []
    for outcome in found:
        known = Experience(experience.without(found, outcome.problem))
        place = Place(outcome.kernel, outcome.action, outcome.size, 1.0)
        if outcome.surprise is not None and (expected := known.expected(place, True)) is not None:
            rows.append((abs(outcome.surprise), abs(outcome.surprise - expected)))
    yield f"Tuning steps of which other problems say something: {len(rows)} of {len(found)}."
    for name, errors in zip(("model", "corrected"), zip(*rows, strict=True), strict=True):
        yield f"Error of the log gain, {name}: median {median(errors):.3f}, mean {fmean(errors):.3f}."


def arrival(curve: Sequence[float], best: float) -> int:
    """Candidates to NEAR of the best log speed-up; one more than there are where it is never reached."""
    return next((n for n, level in enumerate(curve) if level >= NEAR * best), len(curve))


def searches(found: Sequence[Outcome], worlds: Iterable[tuple[str, Mock, Program]]) -> Iterator[str]:
    """Candidates that searches as `mtmc optimize` makes them need, and the geometric mean of their speed-ups on the way."""
    yield "\n| problem | best | greedy | learning in the search | warm start |\n|---|---|---|---|---|"
    totals, speedups = list[list[int]](), list[list[list[float]]]()
    for name, world, first in worlds:
        others = experience.without(found, name)
        curves = [curve(world, first, known) for known in (Deaf(), Experience(), Experience(others))]
        best = max(way[-1] for way in curves)
        totals.append([arrival(way, best) for way in curves])
        speedups.append([[way[mark] for mark in MARKS] for way in curves])
        yield f"| {name} | {math.exp(best):.2f} | " + " | ".join(map(str, totals[-1])) + " |"
    means = [fmean(column) for column in zip(*totals, strict=True)]
    yield "| mean | | " + " | ".join(f"{mean:.1f}" for mean in means) + " |"
    for number, mark in enumerate(MARKS):
        means = [math.exp(fmean(each[way][number] for each in speedups)) for way in range(3)]
        yield f"| speed-up after {mark} | | " + " | ".join(f"{mean:.2f}" for mean in means) + " |"


def curve(world: Mock, first: Program, known: Experience) -> tuple[float, ...]:
    """Log speed-up of the best program after 0, 1, … candidates of one search; 0 while none beats PyTorch."""
    search = Search(world, world, GreedyPolicy(), Limits(BUDGET, keep_going=True), experience=known)
    start, *levels = [step.verdict.log_speedup or 0.0 for step in search.steps(first)]
    return Course(start, tuple(levels)).curve(BUDGET, Untried.free)


def grown(trees: Path) -> Iterator[tuple[str, Grown, Program]]:
    for tree in archive.load(trees):
        yield tree.question.name, Grown(tree), tree.nodes[tree.root].program


def recorded(path: Path) -> Iterator[tuple[str, World, Program]]:
    """The problems of the measured steps, their sources from a checkout of KernelBench."""
    rows, profile = [json.loads(line) for line in STEPS.read_text().splitlines()], load("h200")
    for name in dict.fromkeys(row["problem"] for row in rows):
        problem = load_problem(str(next(path.rglob(f"{name}.py"))))
        lowering = lower(problem, capture(problem))
        assert lowering.graph
        world = World(
            [row for row in rows if row["problem"] == name], Rules(lowering.graph, profile, "strict", library=False)
        )
        yield name, world, lowering.program


def distil(runs: Path) -> None:
    """Adds what the run folders below a folder say: outcomes, and steps without programs for a problem's older ones."""
    rows, outcomes = list[Facts](), experience.seed("h200")
    for folder in sorted(path.parent for path in runs.rglob("steps.jsonl")):
        run = Run.open(folder)
        steps = run.steps()
        outcomes += experience.outcomes(run.info.problem, steps, {step.child: run.program(step.child) for step in steps})
        rows += [_facts(run.info.problem, step) for step in steps if isinstance(step.verdict, Verified)]
    there = {row["problem"] for row in rows}
    rows = [row for row in map(json.loads, STEPS.read_text().splitlines()) if row["problem"] not in there] + rows
    STEPS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (ROOT / "policies/outcomes/h200.jsonl").write_text(experience.text(Experience(outcomes)))


def _facts(problem: str, step: Step) -> Facts:
    assert isinstance(step.verdict, Verified)
    timing = step.verdict.timing
    return {
        "problem": problem,
        "parent": step.parent,
        "child": step.child,
        "action": step.action.id if step.action else "",
        "predicted_ms": step.predicted_ms,
        "candidate_ms": timing.candidate_ms,
        "reference_ms": timing.reference_ms,
        "kernels_ms": {unit: round(ms, 6) for unit, ms in timing.kernels_ms.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--path", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--distil", type=Path, metavar="RUNS", help="a folder of measured run folders")
    options = parser.parse_args()
    if options.distil:
        distil(options.distil)
        return
    found = experience.seed("h200")
    worlds = [grown(TREES), *([recorded(options.path)] if options.path else [])]
    for lines in (foretold(found), *(searches(found, each) for each in worlds)):
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
