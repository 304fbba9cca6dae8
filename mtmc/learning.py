"""`mtmc learn`: from the actions as they are to an adapter in its place, a chain of commands that can each be resumed.

    collect → predict → pretrain → train → evaluate-policy → the adapter is put where `--policy llm` finds it

Every step is a process of its own, so that what it holds (a GPU's memory among it) is free again for the next, and is shown
as the command that it is. `learn.json` keeps which are done. A step whose time is over ends with the exit code UNFINISHED:
the same command goes on, and so does the chain.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from mtmc import actions
from mtmc.errors import UNFINISHED, BadInput, InfraError, OutOfTime
from mtmc.trajectories import archive
from mtmc.trajectories.files import folder, put

FILE = "learn.json"
GRACE = 90.0  # seconds past its time, after which a step is interrupted …
LAST = 30.0  # … and after these, killed
LEAST = 0.02  # minutes: 0 would be no limit
FAILED_FOR_SOME = 3  # `predict`: these trees have fewer predicted times, which the evaluation's report counts


@dataclass(frozen=True)
class Plan:
    """What is asked. `trees` are folders beside the one that `collect` fills; `model` is PATH of a base, empty the default.

    `limits` are the most minutes of a step over all calls, after which it counts as done with what it has; `options` more
    options of a step's command; `skipped` steps that are left out. The adapter is put to `place`.
    """

    out: Path
    place: Path
    trees: tuple[Path, ...] = ()
    model: str = ""
    tiny: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def store(self) -> Path:
        return self.out / "trees"

    @property
    def folders(self) -> list[str]:
        """All folders of trees."""
        grown = [] if "collect" in self.skipped and not self.tiny else [self.store]
        return [str(folder) for folder in (*grown, *self.trees)]

    def base(self) -> str:
        """The model that is trained, for `PATH+ADAPTER`; the empty text is the default one."""
        return str(self.out / "bc" / "model") if self.tiny and not self.model else self.model

    def trained(self, step: str) -> str:
        """The model with the adapter of a step."""
        return f"{self.base()}+{self.out / step / 'adapter'}"


def _collect(plan: Plan) -> list[str]:
    small = ["--problems", "1", "--grades", "1", "--budget", "2", "--predict", "--gpu", "h100"]
    return ["collect", "--store", str(plan.store), *(small if plan.tiny else [])]


def _predict(plan: Plan) -> list[str]:
    return ["predict", *plan.folders, "--side", "all", "--least", "1"]  # menus say as much in training as in the evaluation


def _pretrain(plan: Plan) -> list[str]:
    model = ["--model", plan.model] if plan.model else []
    return ["pretrain", *plan.folders, *model, "--out", str(plan.out / "bc"), *_tiny(plan)]


def _train(plan: Plan) -> list[str]:
    return ["train", *plan.folders, "--model", plan.trained("bc"), "--out", str(plan.out / "rl"), *_tiny(plan)]


def _evaluate(plan: Plan) -> list[str]:
    learnt = {
        "untrained": plan.base() or "+",
        "cloned": plan.trained("bc"),
        "learned": plan.trained("rl"),
    }
    specs = ["random", "greedy", "model", *(f"{label}=llm-on:{spec}" for label, spec in learnt.items())]
    asked = [part for spec in specs for part in ("--policy", spec)]
    return ["evaluate-policy", *plan.folders, *asked, "--out", str(plan.out / "evaluation"), *_tiny(plan)]


def _tiny(plan: Plan) -> list[str]:
    return ["--tiny"] if plan.tiny else []


STEPS: dict[str, Callable[[Plan], list[str]]] = {
    "collect": _collect,
    "predict": _predict,
    "pretrain": _pretrain,
    "train": _train,
    "evaluate": _evaluate,
}
"""In order, each with its command; `evaluate` reports on stdout."""
OPTIONAL = ("collect", "predict")
PRODUCTS = {"pretrain": "bc", "train": "rl"}  # folders of the trainings
LIMITED = ("collect", "predict", "pretrain", "train")
TINY_LIMITS = {"predict": 0.1}
Tell = Callable[[str], None]


@dataclass
class Entry:
    """What became of a step so far: `done` says how it ended (empty: it has not), `seconds` of all calls."""

    command: list[str] = field(default_factory=list)
    seconds: float = 0.0
    done: str = ""


def learn(plan: Plan, minutes: float, tell: Tell) -> None:
    """Do what is not done yet, within about so many minutes (0: no limit), and put the adapter into its place.

    Raises OutOfTime where the next call goes on, BadInput where `out` was begun with other options, and InfraError where a
    step failed: it has said why.
    """
    ends = time.monotonic() + 60 * minutes if minutes else math.inf
    folder(plan.out)
    if plan.tiny and not plan.store.exists():
        shutil.copytree(archive.SAMPLES, plan.store)
    record = _Record(plan.out / FILE)
    if record.rules != _rules():
        tell(
            f"the actions have changed since {plan.out} was begun, and its trees know only the old ones: take another --out"
        )
    for name in STEPS:
        if name not in plan.skipped:
            _do(name, plan, record, ends, tell)
    _install(plan.out / "rl" / "adapter", plan, tell)


def _do(name: str, plan: Plan, record: _Record, ends: float, tell: Tell) -> None:
    """One step, as far as the time goes."""
    entry, command = record.entries.setdefault(name, Entry()), [*STEPS[name](plan), *plan.options.get(name, ())]
    if entry.done:
        if entry.command != command:
            then, now = shlex.join(entry.command), shlex.join(command)
            raise BadInput(f"{plan.out} cannot go on: {name} was done by mtmc {then}, now it is {now}; take another --out.")
        tell(f"{name}: {entry.done}, {entry.seconds:.0f} s")
        return
    call, limit = ends - time.monotonic(), 60 * plan.limits.get(name, math.inf) - entry.seconds
    if call <= 0:
        raise OutOfTime
    left = min(call, limit)
    timed = [*command, "--minutes", f"{max(left / 60, LEAST):.2f}"] if left < math.inf else command
    tell(f"{name}: mtmc {shlex.join(timed)}")
    began = time.monotonic()
    code = _run([sys.executable, "-m", "mtmc", *timed], max(left, 60 * LEAST) + GRACE)
    entry.command, entry.seconds = command, entry.seconds + time.monotonic() - began
    if code == 0 or (name, code) == ("predict", FAILED_FOR_SOME):
        entry.done = "done"
    elif code == UNFINISHED and limit < call and _left_something(name, plan):
        entry.done = "cut short"
    record.write()
    if code == UNFINISHED and limit < call and not entry.done:
        raise InfraError(f"{name} has left nothing within its --limit; the same command with a larger one goes on")
    if code == UNFINISHED and not entry.done:
        raise OutOfTime
    if not entry.done:
        raise InfraError(f"{name} ended with the exit code {code}; the same command tries again")
    tell(f"{name}: {entry.done}, {entry.seconds:.0f} s")


def _left_something(name: str, plan: Plan) -> bool:
    """Has a step that was cut short something for the next one?"""
    if name == "collect":
        return any(plan.store.glob(f"*{archive.SUFFIX}"))
    return name == "predict" or (plan.out / PRODUCTS[name] / "adapter").exists()


def _run(command: list[str], seconds: float) -> int:
    """The exit code of a command; one that overstays its time is ended, and UNFINISHED."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(seconds if seconds < math.inf else None)
        except subprocess.TimeoutExpired:
            _end(process)
            return UNFINISHED
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LAST)  # a terminal has interrupted it as well
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(LAST)
    except subprocess.TimeoutExpired:
        process.kill()


def _install(adapter: Path, plan: Plan, tell: Tell) -> None:
    """Put a copy of the adapter into its place; what was there is kept in the output folder."""
    if plan.place.is_dir() and _content(adapter) == _content(plan.place):
        tell(f"the adapter is in {plan.place}")
        return
    draft, before = plan.place.with_name(f".{plan.place.name}.{os.getpid()}"), plan.out / "adapter-before"
    draft.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(adapter, draft)
    if plan.place.exists():
        shutil.rmtree(before, ignore_errors=True)
        shutil.move(plan.place, before)
        tell(f"the adapter that was there is in {before}")
    draft.rename(plan.place)
    tell(f"the adapter is in {plan.place}")


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}


def _rules() -> str:
    """A hash of the actions' text."""
    texts = (path.read_bytes() for path in sorted(Path(actions.__file__).parent.glob("*.py")))
    return sha256(b"".join(texts)).hexdigest()[:16]


class _Record:
    """Entries of the steps, kept in one file that is replaced as a whole. Raises BadInput for one that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path, self.rules, self.entries = path, _rules(), dict[str, Entry]()
        if path.exists():
            try:
                known = json.loads(path.read_text())
                self.rules = str(known["actions"])
                self.entries = {name: Entry(**entry) for name, entry in known["steps"].items()}
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise BadInput(f"{path} is no record of `mtmc learn`: {error!r}; take another --out.") from error

    def write(self) -> None:
        entries = {name: asdict(entry) for name, entry in self.entries.items()}
        put(self.path, json.dumps({"actions": self.rules, "steps": entries}, indent=1) + "\n")
