"""What `mtmc optimize` shows while it runs (on stderr) and at the end, and what `mtmc verify` found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from mtmc.hardware_profiles import Profile
from mtmc.judge.mutants import Trial, rates
from mtmc.optimizer import Listener
from mtmc.report import headline
from mtmc.step import Step
from mtmc.trajectories.store import Run, RunInfo
from mtmc.tree import Tree
from mtmc.verdict import Accuracy, Finding, Timing, Verdict, Verified
from mtmc.verification import Verification
from mtmc.wording import beside, details, gain, outcome, result, speedup, tally


class Progress(Listener):
    """One line a finished candidate, and below them a line that lives: what is done now, best so far, time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status = Status("reading the model", console=console)
        self._best = self._what = ""
        self._judged = self._recorded = self._budget = 0
        self._end = self._started = time.monotonic()
        self._limited = False

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def begin(self, info: RunInfo, folder: Path, recorded: int) -> None:
        self._recorded, self._budget = recorded, info.budget
        self._started, self._limited = time.monotonic(), info.minutes > 0
        self._end = self._started + info.minutes * 60
        title = info.profile.get("title", info.gpu)
        self.console.print(
            f"[bold]{escape(info.problem)}[/] for {escape(title)}, times {info.timing}, run folder {folder}", soft_wrap=True
        )
        for note in info.notes:
            self.console.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)
        if recorded:
            self.console.print(f"going on after {recorded} recorded steps")

    def doing(self, what: str) -> None:
        self._what = what
        self._refresh()

    def judged(self, step: Step, tree: Tree) -> None:
        self._judged += bool(step.parent) and not step.cached
        timing = tree.timing(tree.best) if tree.best else None
        self._best = f"best {speedup(timing)}" if timing else "nothing verified yet"
        self._recorded -= 1
        if self._recorded < 0:
            sentence = step.action.sentence if step.action else "First program, one plain kernel an operation."
            colour = "green" if step.verdict.correct else "red"
            figure = f"{self._judged:>3}/{self._budget} [{colour}]{escape(result(step.verdict)):<24}[/]"
            self.console.print(f"{figure} {escape(sentence)}", highlight=False, soft_wrap=True)
        self._refresh()

    def _refresh(self) -> None:
        parts = [part for part in (self._best, self._left(), self._what) if part]
        self._status.update(escape(" · ".join(parts)))

    def _left(self) -> str:
        """Time left: to the deadline, else at the pace so far; empty before there is a pace."""
        now = time.monotonic()
        seconds = self._end - now
        if not self._limited:
            if not self._judged:
                return ""
            seconds = (now - self._started) / self._judged * (self._budget - self._judged)
        minutes, seconds = divmod(int(max(seconds, 0)), 60)
        return f"at most {minutes}:{seconds:02d} left"


def summary(run: Run) -> Table:
    """The steps that led to the answer (or to the best program), and what else was tried."""
    steps, ending = run.steps(), run.ending()
    tree = Tree(steps)
    key = (ending.best if ending else "") or tree.best
    path = tree.path(key) if key else ()
    elsewhere = tally(step for step in steps if step.parent and step not in path)
    table = Table(caption=f"not on this path: {elsewhere}" if elsewhere else None, caption_justify="left")
    for name in ("step", "what", "lines", "verdict", "speed-up", "gain"):
        table.add_column(name, justify="right" if name in ("step", "lines", "gain") else "left", overflow="fold")
    first = tree.verdict(tree.root)
    table.add_row("0", "First program, one plain kernel an operation.", "", *_cells(first), "")
    for step in path:
        assert step.action
        cells = (str(step.changed_lines), *_cells(step.verdict), gain(step, tree))
        table.add_row(str(step.index), escape(step.action.sentence), *cells)
    return table


def _cells(verdict: Verdict) -> tuple[str, str]:
    return outcome(verdict), escape(speedup(verdict.timing)) if isinstance(verdict, Verified) else ""


def profiles(found: list[Profile]) -> Table:
    """One row a GPU."""
    table = Table(
        "name", "GPU", "chip", caption="TFLOP/s are dense peaks; fp16 is the matrix unit's.", caption_justify="left"
    )
    for name in ("GB", "GB/s", "fp32 TFLOP/s", "fp16 TFLOP/s"):
        table.add_column(name, justify="right")
    for profile in found:
        tensor = profile.fp16_tensor_dense_tflops
        numbers = (profile.memory_gb, profile.memory_bandwidth_gb_s, profile.fp32_tflops)
        cells = (*(f"{number:g}" for number in numbers), f"{tensor:g}" if tensor else "–")
        mark = "" if profile.tensor_cores_in_triton else " (not reached by Triton)"
        table.add_row(profile.name, profile.title, profile.architecture, *cells[:3], cells[3] + mark)
    return table


def figures(profile: Profile) -> Table:
    """Every field of a profile, one a line; nested tables are indented."""
    table = Table("figure", "value", title=profile.title)
    for name, value in asdict(profile).items():
        if not isinstance(value, dict):
            table.add_row(name, _figure(value))
    for name, value in asdict(profile.efficiency).items():
        table.add_row(f"efficiency.{name}", _figure(value))
    return table


def conclusion(run: Run) -> Iterator[str]:
    """The outcome in rich markup, one sentence a line."""
    ending = run.ending()
    assert ending
    tree = Tree(run.steps())
    yield headline(ending, tree).replace("**", "")
    yield from (escape(sentence) for sentence in (ending.reason, *ending.discarded))
    wanted = ("optimized.py", "report.md") if ending.best else ("report.md",)
    yield " ".join(str(run.folder / name) for name in wanted)


def verification(found: Verification) -> Iterator[Table | str]:
    """The verdict in a sentence, findings, figures, and what could not be checked."""
    verdict = found.verdict
    colour = "green" if verdict.correct else "yellow" if verdict.status == "infra" else "red"
    said = details(verdict) or ""
    yield f"[bold {colour}]{escape(outcome(verdict))}[/] {escape(said)}".rstrip()
    if found.findings:
        yield _findings(found.findings)
    if isinstance(verdict, Verified):
        yield _measures(verdict.accuracy, verdict.timing)
        yield f"checked: {escape(', '.join(verdict.accuracy.checked))}"
        yield from (f"[yellow]not checked[/] {escape(text)}" for text in verdict.accuracy.skipped)
    yield from (f"[yellow]note[/] {escape(note)}" for note in found.notes)
    if found.trials:
        yield _kill_rates(found.trials)
        yield from (_survivor(trial) for trial in found.trials if not trial.killed)
    if found.opinion:
        yield f"[yellow]auditor, advice only[/] {escape(found.opinion)}"


def _kill_rates(trials: tuple[Trial, ...]) -> Table:
    """How many mutants of each kind the judge refused."""
    table = Table("mutants", "killed", "of", "survived with the same bits")
    for kind, (killed, equal, decided) in rates(trials).items():
        table.add_row(kind.replace("_", " "), str(killed), str(decided), str(equal) if equal else "")
    return table


def _survivor(trial: Trial) -> str:
    mutant = trial.mutant
    why = "the same bits on every input judged" if trial.equal else "other bits, within what the accuracy rule allows"
    why = why if trial.decided else "not decided"
    return f"[yellow]survivor[/] {mutant.kind}, line {mutant.line}: {escape(mutant.what)} ({why})"


def _findings(found: tuple[Finding, ...]) -> Table:
    table = Table("level", "check", "line", "how sure", "why")
    for finding in found:
        line = str(finding.line) if finding.line else ""
        table.add_row(finding.level, finding.rule, line, finding.certainty, escape(finding.why))
    return table


def _measures(accuracy: Accuracy, timing: Timing) -> Table:
    """Errors and times of both sides, beside one another."""
    table = Table("", "reference", "candidate")
    table.add_row("relative error", f"{accuracy.reference_error:.2e}", f"{accuracy.candidate_error:.2e}")
    if accuracy.candidate_ulp and accuracy.reference_ulp:
        for place, name in enumerate(("largest error, ULP", "median error, ULP")):
            table.add_row(name, f"{accuracy.reference_ulp[place]:.3g}", f"{accuracy.candidate_ulp[place]:.3g}")
    if timing.kind != "unknown":
        table.add_row(f"time, {timing.kind}", f"{timing.reference_ms:.4g} ms", f"{timing.candidate_ms:.4g} ms")
        table.add_row("speed-up", "", escape(speedup(timing)))
        for name, ms in timing.baselines_ms.items():
            table.add_row(name, f"{ms:.4g} ms", "")
        for name, figure in beside(timing):
            table.add_row(name, "", escape(figure))
    return table


def _figure(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)
