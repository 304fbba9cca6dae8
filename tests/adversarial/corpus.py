"""The corpus of cheats and honest candidates: how a case is read, judged and counted.

A case is a candidate file, `cases/KIND/NAME.py`, that begins with comment lines:

    # reference: NAME                     of references/NAME.py
    # expect: rejected static.RULE | wrong CHECK | …    any of them is the right reason; `verified` for an honest one
    # needs: gpu                          where it makes no sense without one
    # twin: NAME                          the honest candidate it resembles, or the cheat
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from mtmc.hardware_profiles import detect
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.jobs import WakeCompile, WakeInterpret
from mtmc.problem import Problem, load
from mtmc.verdict import VARIANTS, Verdict
from mtmc.verification import Options, Verification, begin

FOLDER = Path(__file__).parent
HEADER = re.compile(r"# (reference|expect|needs|twin): *(.*)")
FIELDS = ("check", "rule", "cause", "stage")  # what a verdict says beside its status
OPTIONS = Options(baselines=())
STATUSES = tuple(VARIANTS)
AT_ONCE = 8  # cases judged at a time, at most


@dataclass(frozen=True)
class Case:
    """One candidate; `source` is its text without the header (blank lines in its place)."""

    name: str
    kind: str
    reference: str
    expect: tuple[str, ...]
    source: str
    needs: str = ""
    twin: str = ""

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def honest(self) -> bool:
        return "verified" in self.expect

    @property
    def problem(self) -> Problem:
        return load(FOLDER / "references" / f"{self.reference}.py")


@dataclass(frozen=True)
class Result:
    """A judged case. `outcome` is `verified`, or the failure's status with its check, rule or cause."""

    case: Case
    outcome: str
    message: str
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """As expected: `wrong` alone stands for every check."""
        return any(self.outcome == wanted or self.outcome.startswith(f"{wanted} ") for wanted in self.case.expect)


def cases() -> tuple[Case, ...]:
    """Every case, sorted by kind and name. Raises ValueError for a file without its header."""
    return tuple(_read(path) for path in sorted((FOLDER / "cases").glob("*/*.py")))


def runnable(found: Iterable[Case]) -> list[Case]:
    """The cases that can be judged on this machine."""
    gpu = detect() is not None
    return [case for case in found if gpu or case.needs != "gpu"]


@contextmanager
def benches(folder: Path) -> Iterator[list[LocalProcesses]]:
    """As many sets of workers as cases are judged at a time: a candidate's workers serve one case after the other.

    The sets share `folder` for what is compiled, and so take turns at the GPU.
    """
    count = min(len(os.sched_getaffinity(0)), AT_ONCE)
    limits = Limits(workers={"compile": 1, "interpret": 2, "gpu": 1})
    with ExitStack() as stack:
        yield [stack.enter_context(LocalProcesses(folder, limits)) for _ in range(count)]


def judged(found: Iterable[Case], executors: Sequence[LocalProcesses]) -> Iterator[Result]:
    """Results as they come in. This process prepares one case while workers judge the ones before it."""
    free: Queue[LocalProcesses] = Queue()
    for executor in executors:
        executor.submit(WakeInterpret())  # before a reference's folder is on this process's path, which workers inherit
        executor.submit(WakeCompile())
        free.put(executor)

    def finish(case: Case, judging: Callable[[], Verification], executor: LocalProcesses) -> Result:
        try:
            return _result(case, judging())
        finally:
            free.put(executor)

    with ThreadPoolExecutor(len(executors)) as waiting:
        futures = []
        for case in found:
            executor = free.get()
            futures.append(waiting.submit(finish, case, begin(case.problem, case.source, OPTIONS, executor), executor))
            while futures and futures[0].done():
                yield futures.pop(0).result()
        for future in futures:
            yield future.result()


def matrix(results: Iterable[Result]) -> str:
    """The confusion matrix, and below it every case that did not end as it should."""
    results = list(results)
    counts = Counter((result.case.honest, _column(result)) for result in results)
    columns = ("verified", "right reason", "other reason", "not judged")
    lines = [f"{'':<10}" + "".join(f"{column:>14}" for column in columns)]
    for honest, name in ((False, "cheats"), (True, "honest")):
        lines.append(f"{name:<10}" + "".join(f"{counts[honest, column]:>14}" for column in columns))
    kinds = Counter((result.case.kind, result.case.honest) for result in results)
    lines += ["", f"{'kind':<24}{'cheats':>8}{'honest':>8}"]
    lines += [f"{kind:<24}{kinds[kind, False]:>8}{kinds[kind, True]:>8}" for kind in sorted({kind for kind, _ in kinds})]
    for result in results:
        if not result.right:
            case = result.case
            wanted = " | ".join(case.expect)
            lines.append(f"{case.id}: {result.outcome} instead of {wanted}: {result.message}")
    return "\n".join(lines)


def _column(result: Result) -> str:
    if result.outcome == "verified":
        return "verified"
    if result.outcome.startswith("infra"):
        return "not judged"
    return "right reason" if result.right else "other reason"


def _result(case: Case, found: Verification) -> Result:
    warnings = tuple(finding.rule for finding in found.findings if finding.level == "warn")
    return Result(case, outcome(found.verdict), getattr(found.verdict, "message", ""), found.seconds, warnings)


def outcome(verdict: Verdict) -> str:
    """`wrong values`, `rejected static.copy`, `verified`, …"""
    detail = next((getattr(verdict, name) for name in FIELDS if hasattr(verdict, name)), "")
    return f"{verdict.status} {detail}".strip()


def _read(path: Path) -> Case:
    lines = path.read_text().splitlines(keepends=True)
    header = {}
    for place, line in enumerate(lines):
        match = HEADER.match(line)
        if match is None:
            break
        header[match[1]], lines[place] = match[2].strip(), "\n"
    if not {"reference", "expect"} <= header.keys():
        raise ValueError(f"{path} does not begin with its reference and what to expect")
    expect = tuple(part.strip() for part in header["expect"].split("|"))
    return Case(
        path.stem,
        path.parent.name,
        header["reference"],
        expect,
        "".join(lines),
        header.get("needs", ""),
        header.get("twin", ""),
    )
