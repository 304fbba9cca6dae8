"""An evaluation: which trees, which policies, all their courses (kept as they come, so it can be resumed), the report."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from math import log
from pathlib import Path
from typing import Any

from mtmc import policies
from mtmc.errors import BadInput, OutOfTime
from mtmc.evaluation.course import Course, best_gain, courses, limit
from mtmc.evaluation.figures import Case
from mtmc.evaluation.settings import Contender, Settings
from mtmc.policies.decisions import ExpertPolicy
from mtmc.policies.policy import Policy
from mtmc.trajectories import archive, files
from mtmc.trajectories.files import put
from mtmc.trajectories.trees import StoredTree

FILE = "courses.jsonl"


def chosen(folders: Sequence[Path], settings: Settings) -> list[tuple[Path, StoredTree]]:
    """The trees that count. Raises BadInput when there is none."""
    found = []
    for path in (path for folder in folders for path in archive.paths(folder)):
        tree = archive.read(path)
        side = settings.side.holds(tree.question)
        if side and best_gain(tree) >= log(settings.least):
            found.append((path, tree))
    if not found:
        where = " ".join(map(str, folders))
        raise BadInput(f"There is no tree in {where} that is {settings.side} and whose best is {settings.least:g}× or more.")
    return found


def load(contender: Contender) -> Policy:
    """The policy. Raises BadInput for an unknown one, and where another would silently stand in for it."""
    missing: list[str] = []
    policy = policies.load(contender.spec, note=missing.append)
    if missing:
        raise BadInput(f"{missing[0].partition(';')[0]}.")
    return policy


def evaluate(
    trees: Sequence[tuple[Path, StoredTree]],
    settings: Settings,
    folder: Path,
    doing: Callable[[str], None],
    until: float = math.inf,
) -> list[Case]:
    """Run what has not been run, and return every tree with all courses.

    Raises BadInput for a policy of no use here, and OutOfTime where something is left to run `until` a moment of
    `time.monotonic`.
    """
    for contender in settings.contenders:
        if contender.spec != ExpertPolicy.name:
            policies.check(contender.spec)
    files.folder(folder)
    record, found = _Record(folder / FILE), dict[tuple[str, str], list[Course]]()
    for turn, contender in enumerate(settings.contenders):
        policy: Policy | None = None
        for number, (path, tree) in enumerate(trees, 1):
            key = _key(contender, path, settings)
            if key not in record.known:
                if time.monotonic() >= until:
                    raise OutOfTime
                doing(f"{contender.label}, policy {turn + 1} of {len(settings.contenders)}: tree {number} of {len(trees)}")
                expert = contender.spec == ExpertPolicy.name
                policy = ExpertPolicy(tree) if expert else policy or load(contender)
                record.add(key, courses(tree, policy, range(settings.seeds), settings.budget, settings.order))
            found.setdefault((str(path), contender.label), []).extend(record.known[key])
    labels = list(dict.fromkeys(contender.label for contender in settings.contenders))
    return [_case(path, tree, {label: tuple(found[str(path), label]) for label in labels}, settings) for path, tree in trees]


def _case(path: Path, tree: StoredTree, made: Mapping[str, tuple[Course, ...]], settings: Settings) -> Case:
    question, provenance = tree.question, tree.provenance
    facts = {
        "grade": question.grade,
        "held_out": question.held_out,
        "structure": question.structure,
        "gpu": provenance.gpu,
        "timing": provenance.timing,
        "programs": len(tree.nodes),
    }
    return Case(path.name.removesuffix(archive.SUFFIX), facts, best_gain(tree), limit(tree, settings.budget), made)


def _key(contender: Contender, path: Path, settings: Settings) -> str:
    """Whatever decides a course: the policy's name, the tree's content, seeds, budget and order."""
    digest = sha256(path.read_bytes()).hexdigest()[:16]
    return f"{contender.spec} {digest} {settings.seeds} {settings.budget} {settings.order}"


class _Record:
    """Courses in a file of JSON lines, by key; a torn last line is written anew."""

    def __init__(self, path: Path) -> None:
        self.path, self.known = path, dict(_read(path))
        if path.exists():
            put(path, "".join(_line(key, made) for key, made in self.known.items()))

    def add(self, key: str, made: list[Course]) -> None:
        self.known[key] = made
        with self.path.open("a") as file:
            file.write(_line(key, made))


def _line(key: str, made: Sequence[Course]) -> str:
    return json.dumps({"key": key, "courses": [asdict(course) for course in made]}) + "\n"


def _read(path: Path) -> Iterator[tuple[str, list[Course]]]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    for line in lines:
        try:
            entry: dict[str, Any] = json.loads(line)
            yield entry["key"], [Course(**{**c, "outcomes": tuple(c["outcomes"])}) for c in entry["courses"]]
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{path} is not a record of courses: {error!r}; take another --out.") from error
