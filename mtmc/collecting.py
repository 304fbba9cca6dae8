"""`collect`: trees grown over many problems, kept as soon as each is done.

This module says what one problem is and what its tree becomes; `mtmc.crew` spreads problems over processes and GPUs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from mtmc import fingerprint
from mtmc.assembly import Options, Setup, assemble
from mtmc.capture import capture
from mtmc.errors import BadInput, InfraError
from mtmc.evaluation.settings import Side
from mtmc.generator import problems
from mtmc.growth import DENSE, MIX, Growth, Recorder
from mtmc.judge.cache import cache_folder, made_with
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.problem import Problem
from mtmc.trajectories import archive
from mtmc.trajectories.trees import Node, Provenance, Question, StoredTree
from mtmc.verdict import Verified

FINISHING = 20.0  # seconds kept for predicting and joining, of the time that is left for everything


@dataclass(frozen=True)
class Plan:
    """What is asked. `budget` programs a problem, the first included, within `problem_minutes`; `until` is the end of all
    (seconds as of `time.time`; 0: none). `options` say how programs are judged; `cores` how many processes may compile.
    Generated problems of another `side` get no tree. `dense` spends most on alternatives along the best path.
    """

    folder: Path
    options: Options
    budget: int = 50
    seed: int = 0
    problem_minutes: float = 5.0
    until: float = 0.0
    cores: int = 1
    side: Side = Side.all
    dense: bool = False

    def left(self) -> float:
        """Seconds for one problem from now on."""
        left = self.until - time.time() - FINISHING if self.until else float("inf")
        return min(left, 60 * self.problem_minutes)


@dataclass(frozen=True)
class Order:
    """One problem to grow a tree of. `generated`: it must not be one of KernelBench's."""

    problem: Problem
    grade: int = 0
    generated: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a problem; `note` says more in a sentence.

    `kind` is `grown`, `there` (it was before), `kept` (the larger one that was before), `excluded` or `failed`.

    `new` counts the programs judged now; `seconds` is wall time, `spent` what its workers did and waited for meanwhile.
    """

    name: str
    kind: str
    note: str = ""
    programs: int = 0
    new: int = 0
    speedup: float = 0.0
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """The problem has a tree."""
        return self.kind in ("grown", "there", "kept")


def generated(seed: int, grades: tuple[int, ...]) -> Iterator[Order]:
    """Orders for the stream of generated problems."""
    return (Order(made.problem, made.grade, True) for made in problems.stream(seed, grades))


def executor(cores: int) -> LocalProcesses:
    """Workers for all problems of one process, as many as its cores: starting them is paid once."""
    workers = {"compile": cores, "interpret": max(cores // 2, 1), "gpu": 1}
    return LocalProcesses(cache_folder() / "compiled", Limits(workers=workers), trusting=True)


def collect(order: Order, plan: Plan, workers: LocalProcesses, doing: Callable[[str], None]) -> Outcome:
    """Grow the tree of one problem and keep it; what an earlier, shorter try has judged is taken over."""
    began, problem = time.monotonic(), order.problem
    try:
        earlier = _earlier(plan.folder, problem)
        if earlier and enough(earlier, plan):
            return Outcome(problem.name, "there", programs=len(earlier.nodes), speedup=earlier.speedup)
        question = _question(order)
        if order.generated and (twin := problems.twin(question.structure)):
            return Outcome(problem.name, "excluded", f"its operators are those of KernelBench's {twin}")
        if order.generated and not plan.side.holds(question):
            return Outcome(problem.name, "excluded", f"it is not {plan.side}")
        before = dict(workers.spent)  # their threads go on adding to it
        setup = assemble(problem, plan.options, doing, workers)
    except (BadInput, InfraError) as error:
        return Outcome(problem.name, "failed", str(error))
    tree, new = _grown(question, setup, plan, earlier, doing)
    if not tree.nodes:
        return Outcome(problem.name, "failed", "the first program could not be judged: a fault of the machine")
    if earlier and not tree.provenance.budget and len(tree.nodes) < len(earlier.nodes):
        note = f"time ended at {len(tree.nodes)} programs, the tree there has {len(earlier.nodes)}"
        return Outcome(problem.name, "kept", note, len(earlier.nodes), new, earlier.speedup)
    archive.write(plan.folder, tree)
    seconds = time.monotonic() - began
    spent = {what: total - before.get(what, 0.0) for what, total in dict(workers.spent).items()}
    return Outcome(problem.name, "grown", "", len(tree.nodes), new, tree.speedup, seconds, spent)


def enough(tree: StoredTree, plan: Plan) -> bool:
    """Was a tree grown with this budget or a larger one, to the end?"""
    return tree.provenance.budget >= plan.budget


def _earlier(folder: Path, problem: Problem) -> StoredTree | None:
    """The problem's tree, if it has one. Raises BadInput where another problem of this name has."""
    path = archive.path_of(folder, problem.name)
    tree = archive.read(path) if path.exists() else None
    if tree and (tree.question.source, tree.question.entry) != (problem.source, problem.entry):
        raise BadInput(f"{path} is the tree of another problem of this name; take another --store")
    return tree


def _question(order: Order) -> Question:
    captured, problem = capture(order.problem), order.problem
    prints = (fingerprint.structure(captured.graph), fingerprint.exact(captured.graph)) if captured.graph else ("", "")
    return Question(problem.name, problem.source, problem.entry, order.grade, *prints)


def _grown(
    question: Question, setup: Setup, plan: Plan, earlier: StoredTree | None, doing: Callable[[str], None]
) -> tuple[StoredTree, int]:
    recorder, timing = Recorder(setup.moves, setup.judge), "measured" if setup.measured else "predicted"
    provenance = Provenance(
        gpu=setup.profile.name,
        timing=timing,
        date=date.today().isoformat(),
        device=_device() if setup.measured else "",
        precision=plan.options.precision,
        seed=plan.seed,
        versions=made_with(),
        notes=setup.notes,
    )
    earlier = earlier if earlier and _same(earlier.provenance, provenance) else None
    if earlier:
        _take_over(recorder, earlier)
    before = len(recorder.verdicts)
    growth = Growth(recorder, setup.first, plan.budget, plan.seed, plan.left(), doing)
    growth.grow(DENSE if plan.dense else MIX)
    if earlier:
        growth.adopt(earlier)
    independent = growth.finish()
    provenance = replace(provenance, budget=plan.budget if growth.whole else 0, growth=growth.shares)
    nodes = _filled(growth.nodes(), earlier) if earlier else growth.nodes()
    tree = StoredTree(question, provenance, nodes, tuple(growth.steps), independent)
    return tree, len(recorder.verdicts) - before


def _same(one: Provenance, other: Provenance) -> bool:
    """Verdicts of one may stand in a tree of the other."""
    return all(getattr(one, name) == getattr(other, name) for name in ("gpu", "timing", "device", "precision", "versions"))


def _take_over(recorder: Recorder, tree: StoredTree) -> None:
    for key, node in tree.nodes.items():
        recorder.verdicts[key], recorder.seconds[key] = node.verdict, node.seconds
        if node.predicted_ms is not None or not isinstance(node.verdict, Verified):
            recorder.predicted[key] = node.predicted_ms


def _filled(nodes: Mapping[str, Node], earlier: StoredTree) -> dict[str, Node]:
    """What `mtmc predict` has found of the earlier tree's programs is kept, where the same versions said it."""
    if (earlier.provenance.predictor or earlier.provenance.versions) != made_with():
        return dict(nodes)
    return {key: _joined(node, earlier.nodes.get(key, node)) for key, node in nodes.items()}


def _joined(new: Node, old: Node) -> Node:
    ids = {action.id for action in new.legal}
    predicted = {name: ms for name, ms in old.predicted.items() if name in ids} | {**new.predicted}
    return replace(new, predicted=predicted, refused=new.refused | old.refused & ids)


def _device() -> str:
    import torch

    return torch.cuda.get_device_name(0)


def gpus() -> tuple[str, ...]:
    """The GPUs of this machine, each as a value of CUDA_VISIBLE_DEVICES; empty without any."""
    import torch

    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return tuple(name.strip() for name in visible.split(",") if name.strip())
    return tuple(str(number) for number in range(torch.cuda.device_count()))
