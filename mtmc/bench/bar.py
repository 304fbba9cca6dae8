"""What a running benchmark shows on stderr: a bar over all problems, those under way, and a line for each finished one."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mtmc.bench.rows import EAGER, Row
from mtmc.bench.runner import Watcher
from mtmc.bench.suite import Case


class Bar(Watcher):
    """Use as a context manager around the run."""

    def __init__(self, console: Console, total: int) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console)
        self.whole = self.progress.add_task("problems", total=total)
        self.under_way: dict[str, TaskID] = {}

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def started(self, case: Case) -> None:
        self._clear(case.name)
        self.under_way[case.name] = self.progress.add_task(escape(f"{case.name} {case.title}"), total=None)

    def waiting(self, case: Case) -> None:
        self._clear(case.name)
        self.under_way[case.name] = self.progress.add_task(f"{case.name} waits for memory", total=None)

    def finished(self, row: Row) -> None:
        self._clear(row.problem)
        self.progress.advance(self.whole)
        colour = "green" if row.won else "yellow" if row.verified else "red"
        self.progress.console.print(f"[{colour}]{row.problem}[/] {escape(said(row))}", highlight=False, soft_wrap=True)

    def _clear(self, name: str) -> None:
        if name in self.under_way:
            self.progress.remove_task(self.under_way.pop(name))


def said(row: Row) -> str:
    """One row in a line."""
    if not row.verified:
        return f"{row.status}: {row.message or row.reason}"
    ratios = [f"{ratio:.2f} over {name}" for name in (EAGER, "best") if (ratio := row.over(name))]
    share = f", {row.floor_share:.0%} of the floor" if row.floor_share else ""
    opinion = {True: ", KernelBench: correct", False: ", KernelBench: not accepted", None: ""}[row.kernelbench_correct]
    return f"{', '.join(ratios)}{share}{opinion}, {row.candidates} candidates, {row.seconds:.0f} s"
