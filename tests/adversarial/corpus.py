"""The corpus of cheats and honest candidates: how a case is read, judged and counted.

A case is a candidate file, `cases/KIND/NAME.py`, that begins with comment lines:

    # reference: NAME                     of references/NAME.py
    # expect: rejected static.RULE | wrong CHECK | …    any of them is the right reason; `verified` for an honest one
    # needs: gpu                          where it makes no sense without one
    # twin: NAME                          the honest candidate it resembles, or the cheat
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from mtmc.assembly import limits
from mtmc.hardware_profiles import detect
from mtmc.judge.executor import Executor, LocalProcesses
from mtmc.judge.jobs import WakeCompile, WakeInterpret
from mtmc.problem import Problem, load
from mtmc.verdict import VARIANTS, Verdict
from mtmc.verification import Options, Verification, begin

FOLDER = Path(__file__).parent
HEADER = re.compile(r"# (reference|expect|needs|twin): *(.*)")
FIELDS = ("check", "rule", "cause", "stage")  # what a verdict says beside its status
OPTIONS = Options(baselines=())
STATUSES = tuple(VARIANTS)
AT_ONCE = 8  # cases that wait for workers at a time
LANES = 6  # GPU workers: each case needs some of its own, and one can start while another has the GPU


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


def workers(cache: Path) -> LocalProcesses:
    """The executor for many cases at once; `cache` is its folder for what is compiled."""
    usual = limits()
    return LocalProcesses(cache, replace(usual, workers={**usual.workers, "gpu": LANES}))


def judged(found: Iterable[Case], executor: Executor) -> Iterator[Result]:
    """Results in order, as they come in. This process prepares one case while workers judge the ones before it."""
    for job in (WakeCompile(), WakeInterpret()):
        executor.submit(job)  # before a reference's folder is on this process's path, which workers inherit
    with ThreadPoolExecutor(AT_ONCE) as waiting:
        futures = [(case, waiting.submit(begin(case.problem, case.source, OPTIONS, executor))) for case in found]
        for case, future in futures:
            yield _result(case, future.result())


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
