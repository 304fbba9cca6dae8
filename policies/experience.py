"""Experience: what tuning actions gained when they were measured, and by how much the time model was wrong about them.

The model ranks tiles of matrix products badly, and is wrong about them by nearly the same in problem after problem. So of
every measured step that changes how one kernel runs (fusions are predicted well) two numbers are kept, by the GPU that
measured it, the kernel as it was, and the action. The gain is the log of the kernel's own time t before over t' after; where
the kernel has the share s of the program's time, that changes by the factor 1 - s * (1 - t'/t). The surprise is the log gain
of the program, by that factor, less the predicted one, over s: where the kernel has another share the surprise has it too.

Where nothing is predicted yet, a shrunken mean of gains says what to expect; to a prediction one of surprises is added. With
m the mean over problems of their means m_p,

    r = m * max(0, 1 - v / (P * m^2)),    v = (SPREAD^2 + sum of (m_p - m)^2) / P,    P problems

which is the posterior mean of a normal number around zero whose variance is estimated from the same numbers (empirical
Bayes; Efron and Morris 1973): what problems agree on is believed, what is smaller than their disagreement is not. SPREAD
stands for one more problem. Problems count, not steps: those of one problem tell little more than one of them.

Only kernels of the same size (decade of milliseconds) speak for one another: what made small ones faster misled about large
ones, and the reverse.

What a search measures is added as it goes on, and believed at once: equal kernels of one program learn of each other.
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

SPREAD = 0.1  # of gains and of surprises from problem to problem, as the H200's outcomes have it
MOST = 1.0  # a larger surprise says that the model had the shares wrong, and is taken for this
SEVERAL = 2  # other problems that must be known before they are believed
APART = 1.4  # kernels that together take longer than their program, each with a cold L2, were measured on busy cores
SMALL = 0.05  # a kernel with less of the program's time tells nothing
LINES = 20_000  # the newest ones of a store are read
OTHERS = ("fusion", "library", "repair", "stop")  # families that change which kernels there are, or answer a fault
NAMING = ("ahead",)  # parameters that name an operand, otherwise in each problem
TELLING = re.compile(r"ieee|(tf32|fp16|bf16)(x\d)?|max|min|sum|reduce|cumsum")  # operations that decide how a kernel runs

Before = tuple[Program, Verdict, float | None]
"""Where a step starts: the program, its verdict, its predicted time (ms)."""


@dataclass(frozen=True)
class Outcome:
    """One measured step. `kernel` and `action` are texts (see `Place`).

    `size` is the decade of the kernel's time in ms; for `gain` and `surprise`, None without a prediction, see above.
    """

    problem: str
    step: str
    kernel: str
    action: str
    size: int
    gain: float
    surprise: float | None


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

    def of_program(self, gain: float) -> float:
        """The log gain of the program that a log gain of the kernel means."""
        return -log(1 - self.share * (1 - exp(-gain)))

    @staticmethod
    def of(program: Program, verdict: Verdict, action: Action) -> Place | None:
        """None where nothing was measured, or the action is not one of tuning a kernel."""
        timing = _measured(verdict)
        ms = timing.kernels_ms.get(action.region, 0.0) if timing else 0.0
        text = _kernel(program, action.region) if ms and action.family not in OTHERS else ""
        if not timing or not text:
            return None
        params = " ".join(name if name in NAMING else f"{name}={value}" for name, value in action.params)
        whole = max(timing.candidate_ms, sum(timing.kernels_ms.values()))
        return Place(text, f"{action.kind} {params}".strip(), floor(log10(ms)), ms / whole)


class Experience:
    """Outcomes, by kernel and action. An empty one knows nothing and changes nothing.

    `own` is the problem at hand: of others one alone is not believed, since only several tell how far problems agree.
    """

    def __init__(self, outcomes: Iterable[Outcome] = (), own: str = "") -> None:
        self.own = own
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

    def learn(self, before: Before, step: Step) -> None:
        """Take in a step that the search at hand has just measured."""
        if outcome := measured(self.own, before, step):
            self.add(outcome)

    def gain(self, program: Program, verdict: Verdict, action: Action, predicted: float | None = None) -> float | None:
        """Log gain of the whole program to expect, where the model says `predicted` or says nothing; None where unknown."""
        place = Place.of(program, verdict, action) if self._known else None
        number = self.expected(place, predicted is not None) if place else None
        if not place or number is None:
            return None
        return place.of_program(number) if predicted is None else predicted + place.share * number

    def expected(self, place: Place, predicted: bool) -> float | None:
        """The surprise to expect at a place where there is a prediction, else the gain; None where nothing is believed."""
        found = [o for o in self._known.get((place.kernel, place.action), {}).values() if o.size == place.size]
        said = [(o.problem, o.surprise if predicted else o.gain) for o in found]
        numbers = [(problem, number) for problem, number in said if number is not None]
        problems = {problem for problem, _ in numbers}
        return _shrunken(numbers) if self.own in problems or len(problems) >= SEVERAL else None


def measured(problem: str, before: Before, step: Step) -> Outcome | None:
    """What a step says; None where it was not measured, before or after, or the kernel is gone."""
    program, verdict, here = before
    place = Place.of(program, verdict, step.action) if step.action else None
    then, now = _measured(verdict), _measured(step.verdict)
    if not (place and then and now and step.action) or place.share < SMALL:
        return None
    region, name = step.action.region, f"{step.parent[:8]}>{step.child[:8]}"
    if not now.kernels_ms.get(region):
        return None
    gain = log(then.kernels_ms[region] / now.kernels_ms[region])
    surprise = None
    if here and step.predicted_ms:
        surprise = (place.of_program(gain) - log(here / step.predicted_ms)) / place.share
        surprise = round(max(-MOST, min(surprise, MOST)), 4)
    return Outcome(problem, name, place.kernel, place.action, place.size, round(gain, 4), surprise)


def outcomes(problem: str, steps: Iterable[Step], programs: Mapping[str, Program]) -> list[Outcome]:
    """What the steps of a problem say, oldest first; `programs` by key."""
    steps = list(steps)
    at = {step.child: (programs[step.child], step.verdict, step.predicted_ms) for step in steps}
    found = (measured(problem, at[step.parent], step) for step in steps if step.parent in at)
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


def _shrunken(known: Iterable[tuple[str, float]]) -> float:
    """Mean over problems of their means, shrunk towards 0."""
    problems: dict[str, list[float]] = {}
    for problem, number in known:
        problems.setdefault(problem, []).append(number)
    means = [fmean(numbers) for numbers in problems.values()]
    mean = fmean(means) if means else 0.0
    if not mean:
        return 0.0
    variance = (SPREAD**2 + sum((m - mean) ** 2 for m in means)) / len(means)
    return mean * max(0.0, 1 - variance / (len(means) * mean**2))


def _measured(verdict: Verdict) -> Timing | None:
    """The times, where they were measured and those of the kernels belong to the program."""
    timing = verdict.timing if isinstance(verdict, Verified) else None
    if timing is None or timing.kind != "measured":
        return None
    return timing if sum(timing.kernels_ms.values()) <= APART * timing.candidate_ms else None


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
    tile = [f"{name}={value}" for name, value in written.constants if name != "GROUP"]  # the order of tiles, none of them
    ways = ["descriptors"] * (".load([" in kernel) + ["evicts"] * ("eviction_policy" in kernel)
    counts = dict((what, count) for count, what in written.counts)
    if not counts["dot"]:  # tensors read and written decide the time; beside a product they do not
        ways += [f"loads={counts['load']}", f"stores={counts['store']}"]
    return " ".join([dtype, *operations, *loops, *tile, *ways, f"warps={warps}", f"stages={stages}"])
