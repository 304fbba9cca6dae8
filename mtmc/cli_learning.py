"""The commands about learning to choose: `mtmc collect`, `mtmc pretrain`, `mtmc train`, and all in one: `mtmc learn`."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mtmc.errors import BadInput, OutOfTime
from mtmc.evaluation.settings import Side

if TYPE_CHECKING:
    from mtmc.collecting import Order, Outcome, Plan
    from mtmc.crew import Crew
    from mtmc.trajectories.traces import Tally

GROWTH = {"rich_help_panel": "Growth"}
JUDGING = {"rich_help_panel": "Judging"}
MEASURE = "Time on the local GPUs, or model the time. Default: measure where there is a GPU."
INTERRUPTED = 130
COLLECT_CODES = (
    "Exit codes: 0 done; 1 a fault of mtmc itself; 2 an option or a file cannot be used; 3 the machine failed; "
    "75 the time was over first, the same command goes on; 130 interrupted, what is grown is kept."
)
DENSE = "Spend most on alternatives along the best path: trees to compare policies on."
TIMING = 0.1  # seconds of interleaved timing a program: a few hundred rounds of the small problems that are generated
JOBS = 8  # problems at once for each GPU: while one program is timed, others are written, compiled and verified


commands = typer.Typer()


@commands.command("collect", epilog=COLLECT_CODES)
def collect_command(  # noqa: PLR0913  one parameter an option
    files: Annotated[list[Path] | None, typer.Argument(help="Model files; without any, problems are generated.")] = None,
    store: Annotated[Path, typer.Option(help="Folder of trees, one file each; what is there already is kept.")] = Path(
        "trees"
    ),
    count: Annotated[bool, typer.Option("--count", help="Grow nothing: count the trajectories in the store.")] = False,
    problems: Annotated[int, typer.Option(min=1, help="How many generated problems are to have a tree.", **GROWTH)] = 300,
    grades: Annotated[str, typer.Option(help="Grades to generate: 1 one operator … 5 small networks.", **GROWTH)] = "1-5",
    side: Annotated[Side, typer.Option(help="Generated structures: kept for evaluation, or trained on.", **GROWTH)] = (
        Side.all
    ),
    budget: Annotated[int, typer.Option(min=1, help="Programs to judge for a problem.", **GROWTH)] = 50,
    dense: Annotated[bool, typer.Option("--dense", help=DENSE, **GROWTH)] = False,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal problems.", **GROWTH)] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="Wall time of all; 0: no limit.", **GROWTH)] = 0.0,
    problem_minutes: Annotated[float, typer.Option(min=0.1, help="Wall time of one problem.", **GROWTH)] = 5.0,
    jobs: Annotated[int, typer.Option(min=0, help="Problems at once; 0: eight a GPU, one without.", **GROWTH)] = 0,
    gpu: Annotated[str, typer.Option(help="Target: see `mtmc gpus`. Else the local GPU, else h100.", **JUDGING)] = "",
    measure: Annotated[bool | None, typer.Option("--measure/--predict", help=MEASURE, **JUDGING)] = None,
    precision: Annotated[str, typer.Option(help="strict, tf32 or bf16.", **JUDGING)] = "strict",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Grow trees of judged programs to learn from, over generated problems or model files; go on where a run ended."""
    if not count:
        from mtmc.assembly import Options
        from mtmc.collecting import Plan
        from mtmc.trajectories.files import folder

        options = Options(gpu=gpu, precision=precision, measure=measure, seed=seed, timing_seconds=TIMING, quiet=False)
        until = time.time() + 60 * minutes if minutes else 0.0
        plan = Plan(store, options, budget, seed, problem_minutes, until, side=side, dense=dense)
        crew = _crew(plan, jobs)
        orders = _orders(files or [], seed, _grades(grades))
        folder(store)
        interrupted = _watch(crew, orders, len(files) if files else problems, quiet)
        if interrupted:
            raise typer.Exit(INTERRUPTED)
        if plan.left() <= 0:
            raise OutOfTime
    _say(store, as_json)


def _grades(text: str) -> tuple[int, ...]:
    """`1-5`, `2` or `1,3,5`. Raises BadInput."""
    from mtmc.generator.problems import GRADES

    try:
        parts = [[int(end) for end in part.split("-")] for part in text.split(",")]
        found = tuple(grade for part in parts for grade in range(part[0], part[-1] + 1))
    except ValueError:
        found = ()
    if not found or not set(found) <= set(GRADES):
        raise BadInput(f'"{text}" is not a choice of grades such as 1-5, 2 or 1,3,5.')
    return found


def _orders(files: list[Path], seed: int, grades: tuple[int, ...]) -> Iterator[Order]:
    from mtmc import collecting
    from mtmc.problem import load

    if files:
        return iter([collecting.Order(load(file)) for file in files])
    return collecting.generated(seed, grades)


def _crew(plan: Plan, jobs: int) -> Crew:
    """Jobs over GPUs, and the cores shared out among them. Raises BadInput where a GPU is asked for and there is none."""
    import os
    from dataclasses import replace

    from mtmc import collecting
    from mtmc.crew import Crew
    from mtmc.hardware_profiles import load
    from mtmc.judge import accuracy

    accuracy.rule(plan.options.precision)
    if plan.options.gpu:
        load(plan.options.gpu)
    found = () if plan.options.measure is False else collecting.gpus()
    if plan.options.measure and not found:
        raise BadInput("--measure needs a GPU and there is none here: leave it out, and times are predicted.")
    jobs = jobs or JOBS * len(found) or 1
    cores = max(len(os.sched_getaffinity(0)) // jobs, 1)
    return Crew(replace(plan, cores=cores), jobs, found)


def _watch(crew: Crew, orders: Iterator[Order], count: int, quiet: bool) -> bool:
    """Run the crew and tell of it on stderr; whether it was interrupted."""
    console = Console(stderr=True, quiet=quiet)
    began, done, judged, spent = time.monotonic(), 0, 0, dict[str, float]()
    with console.status("starting") as status:
        crew.doing = lambda name, what: status.update(f"{_pace(done, count, judged, began)} · {name}: {what}")
        try:
            for outcome in crew.run(orders, count):
                done += outcome.good
                judged += outcome.new
                spent |= {what: spent.get(what, 0.0) + seconds for what, seconds in outcome.spent.items()}
                if outcome.kind != "there":
                    console.print(_line(outcome, done, count), highlight=False, soft_wrap=True)
                status.update(_pace(done, count, judged, began))
        except KeyboardInterrupt:
            console.print("interrupted: the same command goes on from here")
            return True
    console.print(_pace(done, count, judged, began), highlight=False)
    if judged:
        console.print(_spent(spent, judged), highlight=False, soft_wrap=True)
    return False


def _pace(done: int, count: int, judged: int, began: float) -> str:
    seconds = time.monotonic() - began
    return f"{done} of {count} problems, {judged} programs judged in {seconds:.0f} s ({judged / max(seconds, 1e-9):.2f}/s)"


def _spent(spent: Mapping[str, float], judged: int) -> str:
    """What workers did and waited for, the longest first."""
    parts = (f"{what} {seconds / judged:.2f}" for what, seconds in sorted(spent.items(), key=lambda item: -item[1]))
    return f"workers' seconds a program: {', '.join(parts)}"


def _line(outcome: Outcome, done: int, count: int) -> str:
    if outcome.kind != "grown":
        return f"{'':>9} [yellow]{outcome.kind}[/] {outcome.name}: {outcome.note}"
    best = f"best {outcome.speedup:.2f}×" if outcome.speedup else "[red]nothing verified[/]"
    return f"{done:>4}/{count} {outcome.name}: {outcome.programs} programs, {best}, {outcome.seconds:.0f} s"


def _say(store: Path, as_json: bool) -> None:
    """What the store holds."""
    from mtmc.trajectories import archive, traces

    found = traces.tally(archive.load(store))
    size = sum(path.stat().st_size for path in archive.paths(store))
    if as_json:
        print(json.dumps({**vars(found), "bytes": size}))
    else:
        Console().print(_table(found, size))


def _table(found: Tally, size: int) -> Table:
    more = f" (more in {found.capped} trees)" if found.capped else ""
    table = Table("trees", str(found.trees), title=None)
    table.add_row("programs, verified", f"{found.programs}, {found.verified}")
    table.add_row("distinct transitions", str(found.transitions))
    table.add_row("trajectories, order of independent steps not counted", f"{found.trajectories}{more}")
    table.add_row("of them to a verified program", str(found.successful))
    table.add_row("by number of steps", ", ".join(f"{length}: {n}" for length, n in sorted(found.lengths.items())))
    table.add_row("size", f"{size / 1e6:.2f} MB")
    return table


LEARN_CODES = (
    "Exit codes: 0 done, the adapter is in its place; 1 a fault of mtmc itself; 2 an option or a file cannot be used; 3 a "
    "step failed, it has said why; 75 the time was over first; 130 interrupted. After these the same command goes on."
)
LIMIT = "STEP=MINUTES: the most that a step may take over all calls; it counts as done then. Repeatable."
MORE = 'STEP="OPTIONS" of a step\'s own command; repeatable.'


@commands.command("learn", epilog=LEARN_CODES)
def learn_command(  # noqa: PLR0913  one parameter an option
    out: Annotated[Path, typer.Option(help="Folder of everything: trees, trainings, evaluation, learn.json.")] = Path(
        "runs/learn"
    ),
    minutes: Annotated[float, typer.Option(min=0, help="Wall time of this call, about; 0: no limit.")] = 0.0,
    limit: Annotated[list[str] | None, typer.Option(help=LIMIT)] = None,
    with_: Annotated[list[str] | None, typer.Option("--with", help=MORE)] = None,
    skip: Annotated[list[str] | None, typer.Option(help="collect or predict: leave it out; repeatable.")] = None,
    trees: Annotated[
        list[Path] | None, typer.Option(help="Trees there are already, `predict` changes them; repeatable.")
    ] = None,
    model: Annotated[str, typer.Option(help="Folder or id of another base model.")] = "",
    adapter: Annotated[Path | None, typer.Option(help="Where the adapter goes; else where --policy llm finds it.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="On the samples, a model of random weights, on the CPU.")] = False,
) -> None:
    """Collect, predict, pretrain, train, evaluate, and put the adapter into its place; go on where a call ended."""
    from mtmc import learning
    from mtmc.policies.weights import ADAPTERS

    plan = learning.Plan(
        out=out,
        place=adapter or (out / "adapter" if tiny else ADAPTERS / "default"),
        trees=tuple(trees or ()),
        model=model,
        tiny=tiny,
        limits={**(learning.TINY_LIMITS if tiny else {}), **_limits(limit or [], learning.LIMITED)},
        options={name: tuple(shlex.split(text)) for name, text in _pairs(with_ or [], tuple(learning.STEPS))},
        skipped=tuple(name for name, _ in _pairs([f"{name}=" for name in skip or []], learning.OPTIONAL)),
    )
    if "collect" in plan.skipped and not plan.folders:
        raise BadInput("Without collect there must be --trees.")
    console = Console(stderr=True)
    try:
        learning.learn(plan, minutes, lambda what: console.print(what, highlight=False, soft_wrap=True, markup=False))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _pairs(texts: list[str], known: tuple[str, ...]) -> list[tuple[str, str]]:
    """STEP=VALUE, taken apart. Raises BadInput for an unknown step."""
    pairs = [(name, value) for name, _, value in (text.partition("=") for text in texts)]
    for name, _ in pairs:
        if name not in known:
            raise BadInput(f'"{name}" is none of {", ".join(known)}.')
    return pairs


def _limits(texts: list[str], known: tuple[str, ...]) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in _pairs(texts, known)}
    except ValueError as error:
        raise BadInput(f"--limit wants STEP=MINUTES: {error}.") from error


PASSED_ON: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}
"""For commands whose options stand beside what they run, in modules too heavy to import for every other command."""


@commands.command("pretrain", **PASSED_ON)
def pretrain_command(context: typer.Context) -> None:
    """Behaviour cloning: learn to take the steps that were best in stored trees; writes an adapter."""
    with _libraries():
        from mtmc.policies import pretrain_bc

    pretrain_bc.app(context.args, prog_name="mtmc pretrain")


@commands.command("train", **PASSED_ON)
def train_command(context: typer.Context) -> None:
    """Reinforcement: PPO on stored trees; no kernel runs. Writes an adapter."""
    with _libraries():
        from mtmc.policies import train_rl

    train_rl.app(context.args, prog_name="mtmc train")


@contextmanager
def _libraries() -> Iterator[None]:
    """Say in a sentence which extra is missing."""
    try:
        yield
    except ImportError as error:
        raise BadInput(f"Training needs libraries that are not here ({error}): pip install 'mtmc[train]'.") from error
