"""Policies compared by searches that they made themselves: run folders in the place of stored trees.

`mtmc bench --policy …` makes them, with `--cached` at little cost: a program that several policies come to is judged once.
What is best is the best that any of them found, and the shortest way to it leads through all of their steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path

from mtmc.errors import BadInput
from mtmc.evaluation.course import Course, best_gain, limit, outcome_of
from mtmc.evaluation.figures import Case
from mtmc.evaluation.settings import Contender, Settings
from mtmc.policies.decisions import from_run
from mtmc.step import Step
from mtmc.trajectories.store import Run
from mtmc.trajectories.trees import Node, StoredTree

Found = Mapping[str, Mapping[str, Sequence[Run]]]


def read(contenders: Sequence[Contender]) -> Found:
    """Runs by problem and label; each contender names a folder with run folders somewhere below it.

    Raises BadInput for a folder without any, and where times of one problem are of different kinds or GPUs.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for contender in contenders:
        paths = sorted(path.parent for path in Path(contender.spec).rglob("run.json"))
        runs = [run for run in map(Run.open, paths) if run.steps()]  # one may have ended before its first program
        if not runs:
            raise BadInput(f"{contender.spec} holds no run folder with a program.")
        for run in runs:
            found.setdefault(run.info.problem, {}).setdefault(contender.label, []).append(run)
    for problem, by_label in found.items():
        infos = [run.info for made in by_label.values() for run in made]
        if len({info.problem_hash for info in infos}) > 1:
            raise BadInput(f"The runs of {problem} are of different problems of this name.")
        kinds = {f"{info.timing} on {info.gpu}, {info.precision}" for info in infos}
        if len(kinds) > 1:
            raise BadInput(f"The times of {problem} cannot be compared: {' and '.join(sorted(kinds))}.")
    return found


def cases(found: Found, settings: Settings) -> list[Case]:
    """The problems that every label has searched, and whose best program is `settings.least` times as fast as the reference.

    Raises BadInput when there is none.
    """
    labels = list(dict.fromkeys(label for runs in found.values() for label in runs))
    made = [_case(problem, runs, labels, settings) for problem, runs in found.items() if runs.keys() == set(labels)]
    chosen = [case for case in made if case.best >= log(settings.least)]
    if not chosen:
        raise BadInput(f"No problem was searched by all of {', '.join(labels)} to {settings.least:g}× or more.")
    return chosen


def _case(problem: str, runs: Mapping[str, Sequence[Run]], labels: Sequence[str], settings: Settings) -> Case:
    tree = _joined(from_run(run) for label in labels for run in runs[label])
    info = runs[labels[0]][0].info
    facts = {"gpu": info.gpu, "timing": info.timing, "programs": len(tree.nodes)}
    courses = {label: tuple(_course(run.steps()) for run in runs[label]) for label in labels}
    return Case(problem, facts, best_gain(tree), limit(tree, settings.budget), courses)


def _joined(trees: Iterable[StoredTree]) -> StoredTree:
    """All programs and steps of searches, each step once; of a program that was timed several times the best time."""
    found = list(trees)
    steps = {(step.parent, step.action): step for tree in found for step in tree.steps}
    nodes: dict[str, Node] = {}  # the first program first
    for key, node in (entry for tree in found for entry in tree.nodes.items()):
        nodes[key] = max(nodes.get(key, node), node, key=lambda one: one.verdict.log_speedup or 0.0)
    return replace(found[0], nodes=nodes, steps=tuple(replace(step, index=n) for n, step in enumerate(steps.values())))


def _course(steps: Sequence[Step]) -> Course:
    first, *others = steps
    return Course(first.verdict.log_speedup or 0.0, tuple(map(outcome_of, others)))
