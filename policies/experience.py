"""Experience: what tuning actions gained when they were measured, and what to expect of them on a kernel like those.

The time model ranks tiles, warps and stages of one kernel badly, while their measured outcomes are nearly the same from
problem to problem. So every measured step that changes how one kernel runs (fusions are predicted well) is kept by the GPU
it was measured on, the kernel as it was, and the action, as the log of the kernel's own time before over after. What an
action is expected to gain is a mean shrunk towards the model's word g0, first over all sizes, then over kernels of the same
size (decade of milliseconds):

    g = (PRIOR * g0 + sum of m_p) / (PRIOR + number of problems),    m_p: mean of the gains measured in problem p

This is the posterior mean of a normal gain whose prior is the prediction, PRIOR being the variance of gains between problems
over the variance of the model's error (Gelman et al., Bayesian Data Analysis, 2.5). Problems count, not steps: those of one
problem tell little more than one of them. Gains are of kernels, not of programs, so that they hold where the kernel has
another share of the time: with share s the program's time changes by the factor 1 - s * (1 - exp(-g)).

What a search measures is added as it goes on under a name of its own, so equal kernels of one program learn of each other.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from math import exp, floor, log, log10
from pathlib import Path
from statistics import fmean

from mtmc.action import Action
from mtmc.actions.unit import Unit
from mtmc.errors import Illegal
from mtmc.policies import card
from mtmc.program import Program
from mtmc.step import Step
from mtmc.trajectories.files import folder
from mtmc.verdict import Timing, Verdict, Verified

PRIOR = 1.0  # problems that the model's prediction counts for
LINES = 20_000  # the newest ones of a store are read
LEAST = 1 / 64  # of a kernel's time is left at least, whatever was predicted
OTHERS = ("fusion", "library", "repair", "stop")  # families that change which kernels there are, or answer a fault
HERE = "this search"
TELLING = re.compile(r"ieee|(tf32|fp16|bf16)(x\d)?|max|min|sum|reduce|cumsum")  # operations that decide how a kernel runs


@dataclass(frozen=True)
class Outcome:
    """One measured step. `kernel` and `action` are texts (see `Place`), `gain` is log(time before / time after)."""

    problem: str
    step: str
    kernel: str
    action: str
    size: int
    gain: float


@dataclass(frozen=True)
class Place:
    """An action at a measured program: what is known of its kernel.

    `kernel` says dtype, operations, loops, tile, warps and stages, `action` kind and parameters, `size` the decade of the
    kernel's time in ms, `share` its part of the program's time, 0 to 1.
    """

    kernel: str
    action: str
    size: int
    share: float

    @staticmethod
    def of(program: Program, verdict: Verdict, action: Action) -> Place | None:
        """None where nothing was measured, or the action is not one of tuning a kernel."""
        timing = _measured(verdict)
        ms = timing.kernels_ms.get(action.region, 0.0) if timing else 0.0
        text = _kernel(program, action.region) if ms and action.family not in OTHERS else ""
        if not timing or not text:
            return None
        params = " ".join(f"{name}={value}" for name, value in action.params)
        whole = max(timing.candidate_ms, sum(timing.kernels_ms.values()))
        return Place(text, f"{action.kind} {params}".strip(), floor(log10(ms)), ms / whole)


class Experience:
    """Outcomes, by kernel and action. An empty one knows nothing and changes nothing."""

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._known: dict[tuple[str, str], dict[tuple[str, str], Outcome]] = {}
        for outcome in outcomes:
            self.add(outcome)

    def __iter__(self) -> Iterator[Outcome]:
        return (outcome for found in self._known.values() for outcome in found.values())

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def add(self, outcome: Outcome) -> None:
        """Take in an outcome; the same step measured again replaces what it was."""
        self._known.setdefault((outcome.kernel, outcome.action), {})[outcome.problem, outcome.step] = outcome

    def learn(self, before: Program, verdict: Verdict, step: Step) -> None:
        """Take in a step that the search at hand has just measured."""
        if outcome := measured(HERE, before, verdict, step):
            self.add(outcome)

    def gain(self, program: Program, verdict: Verdict, action: Action, predicted: float = 0.0) -> float | None:
        """Expected log gain of the whole program, whose `predicted` log gain is the model's; None where nothing is known."""
        place = Place.of(program, verdict, action) if self._known else None
        found = self._known.get((place.kernel, place.action)) if place else None
        if not place or not found:
            return None
        local = -log(max(1 - (1 - exp(-predicted)) / place.share, LEAST))
        return -log(1 - place.share * (1 - exp(-_shrunken(found.values(), place.size, local))))


def measured(problem: str, before: Program, verdict: Verdict, step: Step) -> Outcome | None:
    """What a step from a program with its verdict says; None where nothing was measured, or the kernel is gone."""
    place = Place.of(before, verdict, step.action) if step.action else None
    then, now = _measured(verdict), _measured(step.verdict)
    if not place or not then or not now or not step.action or not now.kernels_ms.get(step.action.region):
        return None
    gain = log(then.kernels_ms[step.action.region] / now.kernels_ms[step.action.region])
    name = f"{step.parent[:8]}>{step.child[:8]}"
    return Outcome(problem, name, place.kernel, place.action, place.size, round(gain, 4))


def outcomes(problem: str, steps: Iterable[Step], programs: Mapping[str, Program]) -> list[Outcome]:
    """What the steps of a problem say, oldest first; `programs` by key."""
    steps = list(steps)
    verdicts = {step.child: step.verdict for step in steps}
    found = (
        measured(problem, programs[s.parent], verdicts[s.parent], s) for s in steps if s.parent and s.parent in verdicts
    )
    return [outcome for outcome in found if outcome]


def seed(gpu: str) -> list[Outcome]:
    """What comes with mtmc of outcomes on a GPU, by its profile's name."""
    path = files("mtmc.policies") / "outcomes" / _file(gpu)
    return _parsed(path.read_text()) if path.is_file() else []


def read(path: Path) -> list[Outcome]:
    """The newest outcomes of a file, none where there is no file; damaged lines are passed over."""
    return _parsed(path.read_text()) if path.is_file() else []


def append(path: Path, found: Iterable[Outcome]) -> None:
    """Add outcomes to a file that other processes may be adding to. Raises BadInput where there can be no such file."""
    folder(path.parent)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text(found))


def text(found: Iterable[Outcome]) -> str:
    """Outcomes as JSON lines."""
    return "".join(json.dumps(asdict(outcome)) + "\n" for outcome in found)


def store(cache: Path, gpu: str) -> Path:
    """The file of a GPU's outcomes in the cache folder."""
    return cache / "outcomes" / _file(gpu)


def without(found: Iterable[Outcome], problem: str) -> list[Outcome]:
    """The outcomes of other problems."""
    return [outcome for outcome in found if outcome.problem != problem]


def _file(gpu: str) -> str:
    return re.sub(r"[^\w.-]", "_", gpu) + ".jsonl"


def _parsed(lines: str) -> list[Outcome]:
    found = []
    for line in deque(lines.splitlines(), maxlen=LINES):
        with suppress(ValueError, TypeError):  # torn, or of another version
            found.append(Outcome(**json.loads(line)))
    return found


def _shrunken(found: Iterable[Outcome], size: int, prior: float) -> float:
    """The formula above: over all sizes, then over the same one."""
    found = list(found)
    for wanted in (found, [outcome for outcome in found if outcome.size == size]):
        problems: dict[str, list[float]] = {}
        for outcome in wanted:
            problems.setdefault(outcome.problem, []).append(outcome.gain)
        prior = (PRIOR * prior + sum(map(fmean, problems.values()))) / (PRIOR + len(problems))
    return prior


def _measured(verdict: Verdict) -> Timing | None:
    measured = isinstance(verdict, Verified) and verdict.timing.kind == "measured"
    return verdict.timing if measured and isinstance(verdict, Verified) else None


@lru_cache(maxsize=1 << 12)
def _kernel(program: Program, unit: str) -> str:
    """How a unit's kernel runs, in words; empty for one that is not of the usual form."""
    if not {f"{unit}_kernel", f"launch_{unit}"} <= set(program.regions):
        return ""
    supports = program.text("supports") if "supports" in program.regions else ""
    dtype = re.search(r"\.dtype == torch\.(\w+)", supports)
    return _words(unit, program.text(f"{unit}_kernel"), program.text(f"launch_{unit}"), dtype[1] if dtype else "unknown")


@lru_cache(maxsize=1 << 14)
def _words(name: str, kernel: str, launcher: str, dtype: str) -> str:
    alone = Program(f"{kernel}\n\n{launcher}")
    try:
        unit = Unit.of(alone, name)
        warps, stages = unit.option("num_warps"), unit.option("num_stages")
    except Illegal:
        return ""
    written = card.written(alone, name)
    operations = sorted(operation for operation in written.operations if TELLING.fullmatch(operation))
    loops = [" ".join(option for option in loop.split() if "=" in option) or "loop" for loop in written.loops]
    tile = [f"{name}={value}" for name, value in written.constants]
    ways = ["descriptors"] * (".load([" in kernel) + ["evicts"] * ("eviction_policy" in kernel)
    return " ".join([dtype, *operations, *loops, *tile, *ways, f"warps={warps}", f"stages={stages}"])


