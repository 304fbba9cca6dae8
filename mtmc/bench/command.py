"""`mtmc bench`: the options of a run, and the commands that only read result files, which need no GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from mtmc.errors import BadInput

if TYPE_CHECKING:
    from mtmc.bench.rows import Row
    from mtmc.bench.runner import Plan

INTERRUPTED = 130
LISTED = Path(__file__).parents[2] / "benchmarks" / "degenerate.jsonl"  # in a checkout; a wheel has none

CODES = (
    "Exit codes: 0 every problem has its row, also a failed or skipped one; 1 a fault of mtmc itself; 2 an option cannot be "
    "used, or there is no GPU; 130 interrupted: --resume goes on."
)

bench = typer.Typer(add_completion=False)
Choice = {"rich_help_panel": "Problems"}
Asking = {"rich_help_panel": "Search and judging"}
Output = {"rich_help_panel": "Output"}
CACHED = "Take verdicts from the cache: what one policy had judged, another need not."
COLD = "Neither use nor keep what searches measured on this GPU."
DEGENERATE = "List of degenerate problems, which count as 1.0; else the project's own."


@bench.callback(invoke_without_command=True, epilog=CODES)
def bench_command(  # noqa: PLR0913  one parameter an option
    context: typer.Context,
    path: Annotated[Path | None, typer.Option(help="The suite's folder, e.g. a checkout of KernelBench.", **Choice)] = None,
    suite: Annotated[str, typer.Option(help="How the folder is laid out: kernelbench or folder.", **Choice)] = "kernelbench",
    levels: Annotated[str, typer.Option(help="Levels, by commas; else all.", **Choice)] = "",
    problems: Annotated[str, typer.Option(help="Problems, by commas: 1/6,2/37; else all.", **Choice)] = "",
    every: Annotated[int, typer.Option(min=1, help="Only numbers divisible by this: a sample.", **Choice)] = 1,
    baselines: Annotated[str, typer.Option(help="Beside eager, by commas: docs/timing.md.", **Asking)] = "compile-default",
    budget: Annotated[int, typer.Option(min=0, help="Candidates to judge, a problem.", **Asking)] = 16,
    minutes: Annotated[float, typer.Option(min=0, help="Search time of a problem; 0: no limit.", **Asking)] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the search, of weights and inputs.", **Asking)] = 0,
    precision: Annotated[str, typer.Option(help="strict, tf32 or bf16.", **Asking)] = "strict",
    no_warm_start: Annotated[bool, typer.Option("--no-warm-start", help=COLD, **Asking)] = False,
    policy: Annotated[str, typer.Option(help="As for mtmc optimize.", **Asking)] = "greedy",
    cached: Annotated[bool, typer.Option("--cached", help=CACHED, **Asking)] = False,
    cross_check: Annotated[bool, typer.Option("--cross-check", help="Ask KernelBench's own checker too.", **Asking)] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Problems side by side; 0: as many as fit.", **Asking)] = 0,
    memory: Annotated[float, typer.Option(min=0, help="GiB of host memory a problem may hold.", **Asking)] = 0.0,
    problem_minutes: Annotated[float, typer.Option(min=0.01, help="A problem is ended after this.", **Asking)] = 60.0,
    hours: Annotated[float, typer.Option(min=0, help="Start no problem after this; 0: no limit.", **Asking)] = 0.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Rows, appended.", **Output)] = Path("bench.jsonl"),
    runs: Annotated[Path, typer.Option(help="Where the run folders go.", **Output)] = Path("runs/bench"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last run in --output.", **Output)] = False,
    degenerate: Annotated[Path | None, typer.Option(help=DEGENERATE, **Output)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", **Output)] = False,
) -> None:
    """Optimise and time a folder of problems on the local GPU, one process each; `show` and `compare` read result files.

    Appends a row (a JSON line) for each problem, and draws a report and a page from all rows of the file.
    """
    if context.invoked_subcommand is not None:
        return
    from mtmc import policies
    from mtmc.bench import crosscheck, rows, runner
    from mtmc.bench import suite as suites
    from mtmc.bench.bar import Bar
    from mtmc.bench.guard import Guard
    from mtmc.bench.one import Asked

    facts = _machine()
    if path is None:
        raise BadInput("Give the suite's folder with --path, or use mtmc bench show or mtmc bench compare.")
    if cross_check:
        crosscheck.imported(path)
    known = _degenerate(degenerate)
    cases = suites.cases(suite, path, _numbers(levels), _names(problems), every)
    policies.check(policy)
    asked = Asked(_baselines(baselines), budget, minutes, seed, _precision(precision), not no_warm_start, policy, cached)
    if output.suffix in (".md", ".html"):
        raise BadInput(
            f"--output holds the rows, and report and page are written beside it: {output.name} would be overwritten."
        )
    there = rows.read(output) if output.exists() else []
    number = runner.next_run(there, output, runs)
    found = runner.left(there, number - 1, cases, asked, cross_check) if resume else runner.Left(number, cases)
    side_by_side = jobs or max(1, min(3, len(os.sched_getaffinity(0)) // 4))
    folder, checkout = runner.folder_of(output, runs, found.run), str(path.resolve()) if cross_check else ""
    plan = runner.Plan(found.cases, output, folder, found.run, asked, facts, side_by_side, checkout, problem_minutes, hours)
    with nullcontext(runner.Watcher()) if quiet else Bar(Console(stderr=True), len(found.cases)) as watcher:
        whole = runner.Runner(plan, Guard.of_host(side_by_side, memory), watcher, None, found.unasked, found.noted).run()
    _finish(plan, known)
    if not whole:
        raise typer.Exit(INTERRUPTED)


@bench.command("show")
def show_command(
    files: Annotated[list[Path], typer.Argument(help="Result files, joined: the last result of a problem counts.")],
    page: Annotated[Path | None, typer.Option("--page", "-o", help="Write one HTML page instead of Markdown.")] = None,
    degenerate: Annotated[Path | None, typer.Option(help=DEGENERATE)] = None,
) -> None:
    """Draw existing result files: Markdown on stdout, or a page readable without a network. Needs no GPU."""
    joined, known = _joined(files), _degenerate(degenerate)
    if page:
        from mtmc.bench import page as pages
        from mtmc.trajectories.files import put

        put(page, pages.page(joined, known))
        print(page)
    else:
        from mtmc.bench import tables

        print(tables.text(joined, known), end="")


@bench.command("compare")
def compare_command(
    before: Annotated[Path, typer.Argument(help="Result file.")],
    after: Annotated[Path, typer.Argument(help="Result file.")],
) -> None:
    """What became faster, slower, verified or lost from one result file to another; Markdown. Needs no GPU."""
    from mtmc.bench import compare

    print(compare.text(compare.compare(_joined([before]), _joined([after]))), end="")


def _machine() -> dict[str, str]:
    """GPU and versions for every row. Raises BadInput without a GPU."""
    from mtmc.hardware_profiles import detect
    from mtmc.judge.cache import gpu_driver, versions

    if detect() is None:
        raise BadInput(
            "mtmc bench times on a GPU and there is none here; mtmc bench show and mtmc bench compare work without one."
        )
    import torch

    return {"gpu": torch.cuda.get_device_name(0), **dict(entry.split(" ", 1) for entry in versions(gpu_driver()))}


def _finish(plan: Plan, known: frozenset[str] | None) -> None:
    """Report and page of the whole file, beside it; without plotly a sentence says that there is no page."""
    from mtmc.bench import page, tables
    from mtmc.trajectories.files import put

    if not plan.output.exists():
        return
    joined = _joined([plan.output])
    report, drawn = plan.output.with_suffix(".md"), plan.output.with_suffix(".html")
    put(report, tables.text(joined, known))
    print(report)
    try:
        put(drawn, page.page(joined, known))
        print(drawn)
    except BadInput as error:
        Console(stderr=True).print(f"[yellow]note[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def _joined(files: Sequence[Path]) -> list[Row]:
    """The joined rows of all files, in the order given. Raises BadInput without any."""
    from mtmc.bench import rows

    found = rows.join(row for file in files for row in rows.read(file))
    if not found:
        raise BadInput(f"There is no row in {', '.join(map(str, files))}.")
    return found


def _degenerate(given: Path | None) -> frozenset[str] | None:
    """The problems of the list that was given, else of the project's own; None where there is none."""
    from mtmc.bench import rows

    place = given or (LISTED if LISTED.exists() else None)
    return rows.degenerate(place) if place else None


def _baselines(text: str) -> tuple[str, ...]:
    from mtmc.judge.baselines import select

    return select(_names(text))


def _precision(name: str) -> str:
    from mtmc.judge import accuracy

    accuracy.rule(name)
    return name


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> tuple[int, ...]:
    names = _names(text)
    if wrong := [name for name in names if not name.isdecimal()]:
        raise BadInput(f'"{wrong[0]}" is not a level such as 2.')
    return tuple(map(int, names))
