"""Predicted times for stored trees, by compiling alone: of all actions of a program, and of the whole tree on another GPU.

A tree that was grown knows the predicted times of what its searches looked at. A policy that is guided by them must see
them for every action, tried or not, or it profits from knowing what others thought worth a try: `filled` adds them, where
guided policies come by or everywhere. `rescored` is the tree as another GPU would have it: its rules' actions, the model's
times, and the outcomes of verification as they were found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from random import Random

from mtmc import policies, reward
from mtmc.action import Action, Edit
from mtmc.assembly import Options, Setup, assemble
from mtmc.errors import Illegal, InfraError
from mtmc.evaluation.course import Runner
from mtmc.growth import Recorder, step_of
from mtmc.judge.cache import made_with
from mtmc.judge.executor import LocalProcesses
from mtmc.judge.jobs import Compiled
from mtmc.step import Step
from mtmc.trajectories.trees import Node, Provenance, StoredTree
from mtmc.tree import offered
from mtmc.verdict import CompileError, Infra, Verdict, Verified

GUIDED = ("greedy", "model")
BUDGET = 32  # candidates of the courses whose programs are filled
Tell = Callable[[str], None]


def setup(tree: StoredTree, gpu: str, executor: LocalProcesses, doing: Tell) -> Setup:
    """Rules and judge for a tree's problem on a GPU, without one. Raises BadInput and InfraError."""
    device = tree.provenance.timing == "measured" and gpu == tree.provenance.gpu
    options = Options(gpu=gpu, precision=tree.provenance.precision, measure=False, cache_days=0, device_times=device)
    return assemble(tree.question.problem, options, doing, executor)


def filled(tree: StoredTree, roles: Setup, every: bool, doing: Tell) -> Iterator[StoredTree]:
    """The tree with more and more predicted times, complete when this ends; nothing comes where none is missing.

    Times by other versions are predicted anew, for only one model's times can be compared. By default the programs are
    filled that guided policies come by (see `evaluation.course`), with `every` all of them.
    """
    recorder, now = Recorder(roles.moves, roles.judge), made_with()
    if (tree.provenance.predictor or tree.provenance.versions) != now:
        doing("predicting the programs")
        tree = _predicted_anew(tree, recorder, now)
        yield tree
    recorder.predicted.update({key: node.predicted_ms for key, node in tree.nodes.items()})
    while key := next(_missing(tree) if every else _met(tree), ""):
        doing(f"predicting the {len(tree.nodes[key].legal) - 1} actions of a program")
        tree = _filled_at(tree, key, recorder)
        yield tree


def complete(tree: StoredTree, every: bool) -> bool:
    """Is there nothing to fill in, by these versions?"""
    current = (tree.provenance.predictor or tree.provenance.versions) == made_with()
    return current and not next(_missing(tree) if every else _met(tree), "")


def lacking(tree: StoredTree, key: str) -> tuple[Action, ...]:
    """Actions offered at a program whose time was never predicted."""
    node = tree.nodes[key]
    known = node.refused | node.predicted.keys()
    return tuple(action for action in offered(node.legal, node.verdict, key == tree.root) if action.id not in known)


def _missing(tree: StoredTree) -> Iterator[str]:
    return (key for key in tree.nodes if lacking(tree, key))


def _met(tree: StoredTree) -> Iterator[str]:
    """Programs with something lacking, each the first that a guided policy's course comes by."""
    for name in GUIDED:
        for view, _ in Runner(tree, policies.load(name), Random(0), BUDGET).choices():
            if lacking(tree, view.program.key):
                yield view.program.key
                break


def _predicted_anew(tree: StoredTree, recorder: Recorder, now: Mapping[str, str]) -> StoredTree:
    keys = list(tree.nodes)
    times = dict(zip(keys, recorder.predict([tree.nodes[key].program for key in keys]), strict=True))
    nodes = {
        key: replace(node, predicted_ms=times[key], predicted={name: times[s.child] for name, s in tree.edges(key).items()})
        for key, node in tree.nodes.items()
    }
    steps = tuple(replace(step, predicted_ms=times[step.child]) for step in tree.steps)
    return replace(tree, nodes=nodes, steps=steps, provenance=replace(tree.provenance, predictor=now))


def _filled_at(tree: StoredTree, key: str, recorder: Recorder) -> StoredTree:
    """All actions of one program predicted. One that leads to a program of the tree turns out to be a step."""
    node = tree.nodes[key]
    edits: dict[Action, Edit] = {}
    refused = set(node.refused)
    for action in lacking(tree, key):
        try:
            edits[action] = recorder.apply(node.program, action)
        except Illegal:
            refused.add(action.id)
    times = recorder.predict([edit.after for edit in edits.values()])
    predicted = {**node.predicted, **{action.id: ms for action, ms in zip(edits, times, strict=True)}}
    filled = replace(node, predicted=predicted, refused=frozenset(refused))
    steps = list(tree.steps)
    for action, edit in edits.items():
        if edit.after.key not in tree.nodes:
            continue
        step = step_of(action, edit, tree.nodes[edit.after.key].verdict)
        steps.append(replace(step, index=len(steps), predicted_ms=predicted[action.id], cached=True))
    return replace(tree, nodes={**tree.nodes, key: filled}, steps=tuple(steps))


def rescored(tree: StoredTree, roles: Setup, doing: Tell) -> StoredTree:
    """The tree on the GPU of `roles`: what compiles there has the model's times there, and its verification as it was.

    Left out are programs that did not compile before, for nobody verified them, steps that the rules do not propose on that
    GPU, and what cannot be reached without these. Predicted times are those of the programs; `filled` adds more. Raises
    InfraError when the first program cannot be compiled by the machine's fault.
    """
    doing(f"compiling {len(tree.nodes)} programs for {roles.profile.name}")
    found = roles.judge.compile_many([node.program for node in tree.nodes.values()])
    pairs = zip(tree.nodes.items(), found, strict=True)
    nodes = {key: new for (key, node), outcome in pairs if (new := _rescored_at(node, outcome, roles))}
    if tree.root not in nodes:
        raise InfraError(f"the first program of {tree.question.name} could not be compiled for {roles.profile.name}")
    legal = {key: {a.id for a in offered(node.legal, node.verdict, key == tree.root)} for key, node in nodes.items()}
    allowed = [
        step
        for step in tree.steps
        if not step.action or step.child in nodes and step.action.id in legal.get(step.parent, ())
    ]
    steps = tuple(_renewed(step, number, nodes) for number, step in enumerate(_reached(allowed)))
    edges: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for step in steps[1:]:
        edges[step.parent][step.action.id if step.action else ""] = step.predicted_ms
    known = {key: replace(nodes[key], predicted=edges[key]) for key in dict.fromkeys(step.child for step in steps)}
    names = {action.id for node in known.values() for action in node.legal}
    return StoredTree(
        question=tree.question,
        provenance=_provenance(tree.provenance, roles),
        nodes=known,
        steps=steps,
        independent=frozenset(pair for pair in tree.independent if names.issuperset(pair)),
    )


def _rescored_at(node: Node, outcome: Compiled | Verdict, roles: Setup) -> Node | None:
    """The program with its new verdict and the rules' actions; None where nothing is known of it."""
    verdict: Verdict = node.verdict
    if not isinstance(outcome, Compiled):
        verdict = outcome
    elif isinstance(node.verdict, Verified):
        launches = tuple(replace(launch, arguments={}, ttir="") for launch in outcome.launches)
        verdict = replace(node.verdict, timing=roles.judge.predicted(outcome), launches=launches)
    elif isinstance(node.verdict, CompileError):
        return None
    if isinstance(verdict, Infra):
        return None
    legal = roles.moves.propose(node.program, verdict)
    refused = node.refused & {action.id for action in legal}
    ms = float(outcome.prediction.total_ms) if isinstance(outcome, Compiled) else None
    return Node(node.program, verdict, legal, refused, {}, ms)


def _reached(steps: Sequence[Step]) -> list[Step]:
    """The steps that start where others lead to, the first one first, none of them before its parent is reached."""
    found, met, left = list(steps[:1]), {steps[0].child}, list(steps[1:])
    while True:
        later: list[Step] = []
        for step in left:
            if step.parent in met:
                found.append(step)
                met.add(step.child)
            else:
                later.append(step)
        if len(later) == len(left):
            return found
        left = later


def _renewed(step: Step, number: int, nodes: Mapping[str, Node]) -> Step:
    verdict, ms = nodes[step.child].verdict, nodes[step.child].predicted_ms
    return replace(step, index=number, verdict=verdict, reward=reward.graded(verdict), predicted_ms=ms)


def _provenance(old: Provenance, roles: Setup) -> Provenance:
    source = f"{old.timing} on {old.device}" if old.device else f"{old.timing} for {old.gpu}"
    note = f"Re-scored from a tree {source}: times are predicted, and which programs are correct was found there."
    notes = tuple(dict.fromkeys((*old.notes, note)))
    day = date.today().isoformat()
    return replace(
        old, gpu=roles.profile.name, timing="predicted", device="", date=day, versions=made_with(), predictor={}, notes=notes
    )
