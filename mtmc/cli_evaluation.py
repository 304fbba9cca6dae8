"""The commands about stored trees: `mtmc evaluate-policy`, and `mtmc predict` and `mtmc rescore`, which compile for them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mtmc.errors import BadInput, InfraError, OutOfTime
from mtmc.evaluation.settings import Contender, Order, Settings, Side

if TYPE_CHECKING:
    from mtmc.judge.executor import LocalProcesses
    from mtmc.trajectories.trees import StoredTree

    Work = Callable[[Path, StoredTree, LocalProcesses, Callable[[str], None]], str]

INTERRUPTED = 130
DONE = "Exit codes: 0 done; 1 a fault of mtmc itself; 2 an option or a file cannot be used; "
LATER = "75 the time was over first, the same command goes on; 130 interrupted, what is done is kept."
CODES = f"{DONE}3 it failed for some tree; {LATER}"
FAILED = 3

commands = typer.Typer()
EVALUATED = {"rich_help_panel": "What is evaluated"}
MINUTES = "Begin nothing after this; 0: no limit."
POLICY = (
    "SPEC or LABEL=SPEC; repeatable, equal labels are pooled as seeds: random, greedy, model, expert, llm:PATH[+ADAPTER], …"
)
RUNS = "LABEL=FOLDER with run folders of a policy (mtmc bench --runs); repeatable: searches in the place of trees."


@commands.command("evaluate-policy", epilog=DONE + LATER)
def evaluate_command(  # noqa: PLR0913  one parameter an option
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders of stored trees.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help=POLICY, **EVALUATED)] = None,
    runs: Annotated[list[str] | None, typer.Option(help=RUNS, **EVALUATED)] = None,
    side: Annotated[Side, typer.Option(help="Which structures: kept for evaluation, or trained on.", **EVALUATED)] = (
        Side.held_out
    ),
    least: Annotated[float, typer.Option(min=1.01, help="Speed-up of a tree's best program to count.", **EVALUATED)] = 1.2,
    budget: Annotated[int, typer.Option(min=1, help="Candidates.", **EVALUATED)] = 32,
    seeds: Annotated[int, typer.Option(min=1, help="Courses a tree of a policy that draws.", **EVALUATED)] = 3,
    order: Annotated[Order, typer.Option(help="Next program: the best as in optimize, or the last.", **EVALUATED)] = (
        Order.best
    ),
    out: Annotated[Path, typer.Option(help="Folder of the report; courses that are there are kept.")] = Path(
        "runs/evaluation"
    ),
    minutes: Annotated[float, typer.Option(min=0, help=MINUTES)] = 0.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="On the samples: 8 candidates, 2 seeds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON instead of the tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Compare policies on stored trees or by their own runs: speed-up by number of candidates, without running a kernel."""
    from mtmc.trajectories import archive

    settings = Settings(budget=budget, seeds=seeds, least=least, side=side, order=order)
    if policy or runs:
        settings = replace(settings, contenders=tuple(map(Contender.of, policy or runs or ())), online=bool(runs))
    settings = settings.tiny() if tiny else settings
    if runs and (folders or policy or tiny):
        raise BadInput("--runs goes without folders of trees, --policy and --tiny: what is compared are the runs.")
    _evaluate(folders or ([archive.SAMPLES] if tiny else []), settings, out, _end(minutes), quiet)
    name = "evaluation.json" if as_json else "evaluation.md"
    print((out / name).read_text(), end="")


def _end(minutes: float) -> float:
    """The moment that many minutes from now, never for 0."""
    return time.monotonic() + 60 * minutes if minutes else math.inf


def _evaluate(folders: list[Path], settings: Settings, out: Path, until: float, quiet: bool) -> None:
    """Run the courses and write the report. Raises BadInput, also where a library is missing."""
    from mtmc.evaluation import evaluate, online, pages
    from mtmc.trajectories import files

    if not folders and not settings.online:
        raise BadInput("Give folders of stored trees, or --tiny for the samples.")
    if find_spec("matplotlib") is None:
        raise BadInput("The report's curves need matplotlib: pip install 'mtmc[train]'.")
    if settings.online:
        pages.write(files.folder(out), online.cases(online.read(settings.contenders), settings), settings)
        return
    trees = evaluate.chosen(folders, settings)
    with Console(stderr=True, quiet=quiet).status("reading the trees") as status:
        try:
            cases = evaluate.evaluate(trees, settings, out, status.update, until)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        status.update("drawing samples of trees")
        pages.write(out, cases, settings)


JOBS = "Compilations at once; 0: as many as there are cores."


@commands.command("predict", epilog=CODES)
def predict_command(  # noqa: PLR0913  one parameter an option
    folders: Annotated[list[Path], typer.Argument(help="Folders of stored trees; changed in place.")],
    side: Annotated[Side, typer.Option(help="Which structures: kept for evaluation, or trained on.")] = Side.held_out,
    least: Annotated[float, typer.Option(min=1, help="Speed-up of a tree's best program to count; 1: all trees.")] = 1.2,
    every: Annotated[
        bool, typer.Option("--every", help="At every program, not only where greedy and model come by.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, help=JOBS)] = 0,
    minutes: Annotated[float, typer.Option(min=0, help=MINUTES)] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Fill in the predicted times of all legal actions, for greedy and model, on the CPU; go on where a run ended."""
    from mtmc import foresight
    from mtmc.evaluation.evaluate import chosen
    from mtmc.trajectories import archive

    def work(path: Path, tree: StoredTree, workers: LocalProcesses, doing: Callable[[str], None]) -> str:
        roles, last = foresight.setup(tree, tree.provenance.gpu, workers, doing), tree
        for last in foresight.filled(tree, roles, every, doing):
            archive.write(path.parent, last)
            if time.monotonic() >= until:
                raise OutOfTime
        lacking = sum(len(foresight.lacking(last, key)) > 0 for key in last.nodes)
        return f"all actions predicted at {len(last.nodes) - lacking} of {len(last.nodes)} programs"

    until = _end(minutes)
    trees = chosen(folders, Settings(side=side, least=least))
    todo = [(path, tree) for path, tree in trees if not foresight.complete(tree, every)]
    _each(todo, work, (jobs, until), quiet)


@commands.command("rescore", epilog=CODES)
def rescore_command(
    folders: Annotated[list[Path], typer.Argument(help="Folders of stored trees.")],
    gpu: Annotated[str, typer.Option(help="Target: see `mtmc gpus`, or a .toml file.")],
    out: Annotated[Path, typer.Option(help="Folder of the new trees; what is there already is kept.")],
    jobs: Annotated[int, typer.Option(min=0, help=JOBS)] = 0,
    minutes: Annotated[float, typer.Option(min=0, help=MINUTES)] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """The same trees on another GPU: its rules, the analytic model's times; on the CPU; go on where a run ended."""
    from mtmc import foresight
    from mtmc.hardware_profiles import load
    from mtmc.trajectories import archive

    load(gpu)
    if out.resolve() in [folder.resolve() for folder in folders]:
        raise BadInput(f"{out} holds the trees themselves: --out must be another folder.")

    def work(path: Path, tree: StoredTree, workers: LocalProcesses, doing: Callable[[str], None]) -> str:
        new = foresight.rescored(tree, foresight.setup(tree, gpu, workers, doing), doing)
        archive.write(out, new)
        return f"{len(new.nodes)} of {len(tree.nodes)} programs, best {new.speedup:.2f}×"

    paths = [path for folder in folders for path in archive.paths(folder) if not (out / path.name).exists()]
    _each([(path, archive.read(path)) for path in paths], work, (jobs, _end(minutes)), quiet)


def _each(todo: list[tuple[Path, StoredTree]], work: Work, limits: tuple[int, float], quiet: bool) -> None:
    """Do the work for one tree after the other, and tell of it on stderr; one that fails does not end the others.

    `limits` are the jobs at once, and the moment after which nothing is begun. Raises OutOfTime.
    """
    from mtmc import collecting

    jobs, until = limits
    console, failures = Console(stderr=True, quiet=quiet), 0
    with collecting.executor(jobs or len(os.sched_getaffinity(0))) as workers, console.status("starting") as status:
        for number, (path, tree) in enumerate(todo, 1):
            if time.monotonic() >= until:
                raise OutOfTime
            place = f"{number}/{len(todo)} {tree.question.name}"
            try:
                said = work(path, tree, workers, lambda what, place=place: status.update(f"{place}: {what}"))  # type: ignore[misc]
            except (BadInput, InfraError) as error:
                said, failures = f"failed, {error}", failures + 1
            except KeyboardInterrupt:
                console.print("interrupted: the same command goes on from here")
                raise typer.Exit(INTERRUPTED) from None
            console.print(f"{place}: {said}", highlight=False, soft_wrap=True)
    if failures:
        raise typer.Exit(FAILED)
