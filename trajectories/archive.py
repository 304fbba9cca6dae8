"""Trees on disk: a folder with one `NAME.jsonl.xz` a tree, JSON lines under LZMA.

    {"schema": 1, "question": …, "provenance": …, "nodes": N, "steps": M}
    {"texts": […]}        pieces of program text (functions, and what stands between them), each once
    {"actions": […]}      actions, each once
    {"node": …}           N times: its text as numbers of pieces, its verdict, its actions by number
    {"step": …}           M times: parent, child and action by number
    {"independent": …}    pairs of actions by number

Programs of one tree share almost all of their text, and LZMA sees what is left of the likeness: a program of 12 kB with its
verdict and its ninety actions comes to a few hundred bytes. A file is replaced as a whole, never changed.
"""

from __future__ import annotations

import ast
import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from mtmc import reward
from mtmc.action import Action
from mtmc.errors import BadInput
from mtmc.program import Program, parsed
from mtmc.step import Step
from mtmc.trajectories.files import put
from mtmc.trajectories.trees import Node, Provenance, Question, StoredTree
from mtmc.verdict import from_json

SCHEMA = 1
SUFFIX = ".jsonl.xz"
SAMPLES = Path(__file__).parent / "samples"
"""A few small trees that come with the package, with predicted times."""
FIELDS = ("index", "policy", "predicted_ms", "seconds", "cached", "changed_lines", "library", "assertions")
"""Fields of a Step that are stored as they are."""


def path_of(folder: Path, name: str) -> Path:
    """Where the tree of a problem lies."""
    return folder / f"{name}{SUFFIX}"


def write(folder: Path, tree: StoredTree) -> Path:
    """Keep a tree; one of the same name is replaced in one step."""
    path = path_of(folder, tree.question.name)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in _lines(tree))
    put(path, lzma.compress(text.encode(), preset=9))
    return path


def read(path: Path) -> StoredTree:
    """One tree. Raises BadInput for a damaged file or another schema."""
    try:
        lines = lzma.decompress(path.read_bytes()).decode().splitlines()
        head = json.loads(lines[0])
        if head["schema"] != SCHEMA:
            raise BadInput(f"{path} has schema {head['schema']}; this version reads schema {SCHEMA}.")
        return _tree(head, [json.loads(line) for line in lines[1:]])
    except (OSError, lzma.LZMAError, ValueError, KeyError, IndexError, TypeError) as error:
        raise BadInput(f"{path} is not a tree that can be read: {error!r}.") from error


def paths(folder: Path) -> tuple[Path, ...]:
    """The files of all trees of a folder, by name. Raises BadInput when there is none."""
    found = tuple(sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith(".")))
    if not found:
        raise BadInput(f"There are no trees (*{SUFFIX}) in {folder}.")
    return found


def load(*folders: Path) -> Iterator[StoredTree]:
    """All trees of the folders, one after the other, by name. Raises BadInput."""
    for folder in folders:
        yield from map(read, paths(folder))


def pieces(source: str) -> list[str]:
    """The text cut before every top-level function and class; joined, they are the text again."""
    try:
        body = parsed(source).body
    except (SyntaxError, ValueError):
        return [source]
    defined = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    starts = [min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1 for node in defined]
    lines = source.split("\n")
    bounds = sorted({0, *starts, len(lines)})
    parts = ["\n".join(lines[first:last]) + "\n" for first, last in pairwise(bounds)]
    return [*parts[:-1], parts[-1][:-1]]


class _Table:
    """Values numbered as they come, each once."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def all(self, values: Iterable[Any]) -> list[int]:
        return [self.number(value) for value in values]


def _lines(tree: StoredTree) -> Iterator[dict[str, Any]]:
    texts, actions, keys = _Table(), _Table(), _Table()
    nodes = [_node_line(key, node, texts, actions, keys) for key, node in tree.nodes.items()]
    steps = [_step_line(step, actions, keys) for step in tree.steps]
    by_id = {action.id: number for action, number in actions.numbers.items()}
    yield {
        "schema": SCHEMA,
        "question": asdict(tree.question),
        "provenance": asdict(tree.provenance),
        "nodes": len(nodes),
        "steps": len(steps),
    }
    yield {"texts": list(texts.numbers)}
    yield {"actions": [[a.kind, a.family, a.region, a.params, a.sentence] for a in actions.numbers]}
    yield from ({"node": line} for line in nodes)
    yield from ({"step": line} for line in steps)
    yield {"independent": sorted([by_id[a], by_id[b]] for a, b in tree.independent)}


def _node_line(key: str, node: Node, texts: _Table, actions: _Table, keys: _Table) -> dict[str, Any]:
    keys.number(key)
    by_id = {action.id: actions.number(action) for action in node.legal}
    return {
        "key": key,
        "text": texts.all(pieces(node.program.source)),
        "verdict": node.verdict.to_json(),
        "legal": list(by_id.values()),
        "refused": sorted(by_id[name] for name in node.refused),
        "predicted": [[by_id[name], ms] for name, ms in node.predicted.items()],
        "predicted_ms": node.predicted_ms,
        "seconds": node.seconds,
    }


def _step_line(step: Step, actions: _Table, keys: _Table) -> dict[str, Any]:
    parent = keys.number(step.parent) if step.parent else None
    action = actions.number(step.action) if step.action else None
    fields = {name: getattr(step, name) for name in FIELDS}
    return {"parent": parent, "child": keys.number(step.child), "action": action, **fields}


def _tree(head: dict[str, Any], lines: list[dict[str, Any]]) -> StoredTree:
    texts: list[str] = lines[0]["texts"]
    actions = [_action(entry) for entry in lines[1]["actions"]]
    nodes = {line["node"]["key"]: _node(line["node"], texts, actions) for line in lines if "node" in line}
    keys = tuple(nodes)
    steps = tuple(_step(line["step"], keys, actions, nodes) for line in lines if "step" in line)
    if (len(nodes), len(steps)) != (head["nodes"], head["steps"]):
        raise ValueError(f"{len(nodes)} of {head['nodes']} programs and {len(steps)} of {head['steps']} steps are there")
    independent = frozenset((actions[a].id, actions[b].id) for a, b in lines[-1]["independent"])
    provenance = {**head["provenance"], "notes": tuple(head["provenance"]["notes"])}
    return StoredTree(Question(**head["question"]), Provenance(**provenance), nodes, steps, independent)


def _action(entry: list[Any]) -> Action:
    kind, family, region, params, sentence = entry
    return Action(kind, family, region, tuple((name, value) for name, value in params), sentence)


def _node(line: dict[str, Any], texts: list[str], actions: list[Action]) -> Node:
    program = Program("".join(texts[number] for number in line["text"]))
    vars(program)["key"] = line["key"]  # what the cached property would find by parsing, for thousands of programs
    return Node(
        program,
        from_json(line["verdict"]),
        tuple(actions[number] for number in line["legal"]),
        frozenset(actions[number].id for number in line["refused"]),
        {actions[number].id: ms for number, ms in line["predicted"]},
        line["predicted_ms"],
        line["seconds"],
    )


def _step(line: dict[str, Any], keys: tuple[str, ...], actions: list[Action], nodes: dict[str, Node]) -> Step:
    child = keys[line["child"]]
    verdict = nodes[child].verdict
    fields = {name: line[name] for name in FIELDS}
    fields |= {name: tuple(line[name]) for name in ("library", "assertions")}
    return Step(
        parent="" if line["parent"] is None else keys[line["parent"]],
        child=child,
        action=None if line["action"] is None else actions[line["action"]],
        verdict=verdict,
        reward=reward.graded(verdict),
        **fields,
    )
