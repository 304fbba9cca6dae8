"""Which problems there are: a suite's layout on disk, and the choice of some of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import BadInput


@dataclass(frozen=True, order=True)
class Case:
    """One problem of a suite: `1/19` is number 19 of level 1. Ordered by level and number."""

    level: int
    number: int
    file: Path

    @property
    def name(self) -> str:
        return f"{self.level}/{self.number}"

    @property
    def title(self) -> str:
        return self.file.stem


def place(name: str) -> tuple[int, int]:
    """`"2/37"` → (2, 37). Raises BadInput."""
    level, _, number = name.partition("/")
    if not (level.isdecimal() and number.isdecimal()):
        raise BadInput(f'"{name}" is not a problem such as 2/37 (level/number).')
    return int(level), int(number)


def _kernelbench(path: Path) -> Iterator[Case]:
    """`KernelBench/levelL/N_Title.py` under a checkout of https://github.com/ScalingIntelligence/KernelBench."""
    for file in path.glob("KernelBench/level[0-9]*/[0-9]*_*.py"):
        yield Case(int(file.parent.name.removeprefix("level")), int(file.stem.split("_")[0]), file)


def _folder(path: Path) -> Iterator[Case]:
    """Model files of any names in one folder: level 0, numbered in the order of their names from 1."""
    for number, file in enumerate(sorted(path.glob("[!_]*.py")), 1):
        if re.search(r"^class Model\b", file.read_text(errors="replace"), re.MULTILINE):
            yield Case(0, number, file)


SUITES: dict[str, Callable[[Path], Iterator[Case]]] = {"kernelbench": _kernelbench, "folder": _folder}


def cases(
    suite: str, path: Path, levels: Collection[int] = (), problems: Collection[str] = (), every: int = 1
) -> tuple[Case, ...]:
    """The chosen problems: of these levels (all without), of these names, with a number divisible by `every`.

    Named ones stand in the order in which they are named, others in that of their numbers. Raises BadInput for an unknown
    suite, a folder without problems, and a level or problem that is not there.
    """
    if suite not in SUITES:
        raise BadInput(f"unknown suite '{suite}'; known: {', '.join(SUITES)}")
    there = sorted(SUITES[suite](path))
    if not there:
        raise BadInput(f"{path} holds no problem of the suite {suite}.")
    places = {(case.level, case.number): case for case in there}
    for name in problems:
        if place(name) not in places:
            raise BadInput(f"{path} has no problem {name}.")
    for level in levels:
        if level not in {case.level for case in there}:
            raise BadInput(f"{path} has no level {level}.")
    named = [places[place(name)] for name in dict.fromkeys(problems)]
    chosen = [case for case in named or there if not levels or case.level in levels]
    found = tuple(case for case in chosen if case.number % every == 0)
    if not found:
        raise BadInput("No problem is left: --problems, --levels and --every have none in common.")
    return found
