"""The tree of a run as text: for the terminal (rich), for a README (Mermaid), for scripts (JSON)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rich.tree
from rich.markup import escape

from mtmc.step import Step
from mtmc.trajectories.store import Run
from mtmc.tree import Tree
from mtmc.wording import gain, result

COLOURS = {"verified": "green", "infra": "dim"}
FAILED = "red"


def as_rich(run: Run) -> rich.tree.Tree:
    """Programs under the program they were first reached from; the best path is bold."""
    tree = Tree(run.steps())
    best = _best_path(tree)
    root = rich.tree.Tree(f"[bold]{escape(run.info.problem)}[/] on {run.info.gpu}")
    branches = {"": root}
    for step in _arrivals(run):
        sentence = step.action.sentence if step.action else "first program"
        style = "bold " * (step.child in best) + COLOURS.get(step.verdict.status, FAILED)
        parent = branches[step.parent]
        label = f"[{style}]{escape(result(step.verdict))}[/] {escape(sentence)} [dim]{gain(step, tree)}[/]"
        branches[step.child] = parent.add(label.rstrip())
    return root


def as_mermaid(run: Run) -> str:
    """A flowchart for Markdown; the best path has thick borders."""
    tree = Tree(run.steps())
    numbers = {key: f"p{i}" for i, key in enumerate(tree.keys)}
    lines = ["flowchart LR"]
    for key, name in numbers.items():
        lines.append(f'  {name}["{result(tree.verdict(key))}"]:::{tree.verdict(key).status}')
    for step in tree.steps:
        assert step.action
        lines.append(f'  {numbers[step.parent]} -->|"{_quoted(step.action.sentence)}"| {numbers[step.child]}')
    best = [numbers[key] for key in tree.keys if key in _best_path(tree)]
    lines += ["  classDef verified fill:#e3f4e6,stroke:#2e7d46", "  classDef infra fill:#eeeeee,stroke:#888888"]
    lines += [f"  classDef {status} fill:#fbe6e4,stroke:#b3392f" for status in _failures(tree)]
    lines += [f"  style {name} stroke-width:4px" for name in best]
    return "\n".join(lines)


def as_json(run: Run) -> dict[str, Any]:
    """Everything recorded: the question, the steps, the best path (step numbers), the ending."""
    steps = run.steps()
    tree, ending = Tree(steps), run.ending()
    return {
        "problem": run.info.problem,
        "gpu": run.info.gpu,
        "timing": run.info.timing,
        "reason": ending.reason if ending else None,
        "answer": (ending.best or None) if ending else None,
        "final": ending.final.to_json() if ending and ending.final else None,
        "best": tree.best or None,
        "path": [step.index for step in tree.path(tree.best)] if tree.best else [],
        "steps": [step.to_json() for step in steps],
    }


def _best_path(tree: Tree) -> set[str]:
    return {tree.root, *(step.child for step in tree.path(tree.best))} if tree.best else set()


def _arrivals(run: Run) -> Iterator[Step]:
    """The step by which each program was first reached, parents before children."""
    seen: set[str] = set()
    for step in run.steps():
        if step.child not in seen:
            seen.add(step.child)
            yield step


def _failures(tree: Tree) -> list[str]:
    statuses = {tree.verdict(key).status for key in tree.keys}
    return sorted(statuses - {"verified", "infra"})


def _quoted(sentence: str) -> str:
    return sentence.replace('"', "#quot;")
