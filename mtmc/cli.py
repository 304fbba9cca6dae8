"""The command `mtmc`. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from mtmc import cli_evaluation, cli_learning
from mtmc.bench.command import bench
from mtmc.errors import UNVERIFIED, BadInput, guarded

if TYPE_CHECKING:
    from mtmc.assembly import Options
    from mtmc.optimizer import Result
    from mtmc.problem import Problem

FAILED, INTERRUPTED = 4, 130

EXIT_CODES = (
    "Exit codes: 0 done, also when nothing beats PyTorch (it says so); 1 a fault of mtmc itself; 2 the file or an option "
    "cannot be used; 3 no program could be verified, or the machine failed; 130 interrupted, the best so far is kept."
)

VERSION = "Print the versions of mtmc (with a hash of its judge and templates), torch, triton and Python."

VERIFY_CODES = (
    "Exit codes: 0 verified; 1 a fault of mtmc itself; 2 a file or an option cannot be used; 3 nothing could be judged: the "
    "machine failed, or the candidate needs a GPU and there is none; 4 not verified: wrong, rejected, or it failed."
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
gpus = typer.Typer(help="The GPUs that are known, with their figures.", invoke_without_command=True)
app.add_typer(gpus, name="gpus")
app.add_typer(bench, name="bench")
app.add_typer(cli_learning.commands)
app.add_typer(cli_evaluation.commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        from mtmc.judge.cache import made_with

        print(", ".join(f"{name} {made_with()[name]}" for name in ("mtmc", "code", "torch", "triton", "python")))
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help=VERSION)] = False,
) -> None:
    """A PyTorch model in, verified and measured Triton kernels out."""


class Format(StrEnum):
    tree, mermaid, json = "tree", "mermaid", "json"


class Precision(StrEnum):
    strict, tf32, bf16 = "strict", "tf32", "bf16"


BASELINES = "compile-default"
POLICY = "Who picks the next action: greedy, random, model, llm or llm:PATH[+ADAPTER] (docs/policy.md)."
COLD = "Neither use nor keep what searches measured on this GPU."
MEASURE = "Time on the local GPU, or model the time. Default: measure where there is a GPU."
Search = {"rich_help_panel": "Search"}
Judging = {"rich_help_panel": "Judging"}
Output = {"rich_help_panel": "Output"}


@app.command("optimize", epilog=EXIT_CODES)
def optimize_command(  # noqa: PLR0913  one parameter an option
    file: Annotated[str | None, typer.Argument(help="Model file (Model, get_inputs, get_init_inputs) or module.")] = None,
    gpu: Annotated[str, typer.Option(help="Target: see `mtmc gpus`, or a .toml file. Else the local GPU, else h100.")] = "",
    entry: Annotated[str | None, typer.Option(help="Another class: CLASS or file.py:CLASS.")] = None,
    inputs: Annotated[list[str], typer.Option(help='One input, e.g. "x=float32[16,1024]"; repeatable.')] = [],  # noqa: B006
    init: Annotated[str, typer.Option(help='Constructor arguments, e.g. "64, bias=False".')] = "",
    policy: Annotated[str, typer.Option(help=POLICY, **Search)] = "greedy",
    budget: Annotated[int, typer.Option(min=0, help="Candidates to judge.", **Search)] = 40,
    minutes: Annotated[float, typer.Option(min=0, help="Wall time; 0: no limit.", **Search)] = 0.0,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal runs where times are predicted.", **Search)] = 0,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Even where PyTorch is at the floor.", **Search)] = False,
    no_library: Annotated[bool, typer.Option("--no-library", help="Give no region back to PyTorch.", **Search)] = False,
    no_warm_start: Annotated[bool, typer.Option("--no-warm-start", help=COLD, **Search)] = False,
    measure: Annotated[bool | None, typer.Option("--measure/--predict", help=MEASURE, **Judging)] = None,
    precision: Annotated[Precision, typer.Option(help="strict: no worse than eager.", **Judging)] = Precision.strict,
    cache_ttl: Annotated[float, typer.Option(min=0, help="Days for which verdicts are reused.", **Judging)] = 7.0,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Judge everything anew.", **Judging)] = False,
    run: Annotated[Path | None, typer.Option(help="Run folder; else the next free runs/NAME-GPU-NNN.", **Output)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with --run, or the model's last run.", **Output)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.", **Output)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", **Output)] = False,
) -> None:
    """Optimise a model: verified Triton kernels, the path to them, and a report, in a run folder."""
    from mtmc.assembly import Options

    problem = _problem(file, entry, inputs, init)
    days = 0.0 if no_cache else cache_ttl
    options = Options(gpu, policy, budget, minutes, seed, precision, measure, days, keep_going, not no_library)
    options = replace(options, warm_start=not no_warm_start)
    result = _run(problem, options, run, resume, quiet)
    if as_json:
        print(json.dumps(_facts(result)))
    else:
        _print_result(result)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not any(step.verdict.correct for step in result.steps):
        raise typer.Exit(UNVERIFIED)


@app.command("verify", epilog=VERIFY_CODES)
def verify_command(  # noqa: PLR0913  one parameter an option
    reference: Annotated[str, typer.Argument(help="Model file (Model, get_inputs, get_init_inputs) or module.")],
    candidate: Annotated[Path, typer.Argument(help="Any file with ModelNew, or a function: Triton, inline CUDA or torch.")],
    gpu: Annotated[str, typer.Option(help="Target: see `mtmc gpus`, or a .toml file. Else the local GPU, else h100.")] = "",
    entry: Annotated[str | None, typer.Option(help="Another reference class: CLASS or file.py:CLASS.")] = None,
    inputs: Annotated[list[str], typer.Option(help='One input, e.g. "x=float32[16,1024]"; repeatable.')] = [],  # noqa: B006
    init: Annotated[str, typer.Option(help='Constructor arguments, e.g. "64, bias=False".')] = "",
    function: Annotated[str, typer.Option(help="The candidate's entry, where it is a function and not the only one.")] = "",
    measure: Annotated[bool | None, typer.Option("--measure/--predict", help=MEASURE, **Judging)] = None,
    precision: Annotated[Precision, typer.Option(help="strict: no worse than eager.", **Judging)] = Precision.strict,
    seed: Annotated[int, typer.Option(help="Mixed with the candidate's text into the seed of weights and inputs.")] = 0,
    checks: Annotated[str, typer.Option(help="Ids of static and dynamic checks, by commas; else all.", **Judging)] = "",
    sanitize: Annotated[bool, typer.Option("--sanitize", help="One call under compute-sanitizer.", **Judging)] = False,
    baselines: Annotated[str, typer.Option(help="What else to time, by commas: see docs/timing.md.", **Judging)] = BASELINES,
    mutants: Annotated[bool, typer.Option("--mutants", help="Break a verified candidate in many ways.", **Judging)] = False,
    auditor: Annotated[bool, typer.Option("--auditor", help="Ask a language model too; advice only.", **Judging)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.", **Output)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", **Output)] = False,
) -> None:
    """Judge one candidate against a reference: is it honest, is it right, how fast is it."""
    from mtmc import verification
    from mtmc.judge.mutants import COUNT
    from mtmc.problem import read_text

    names, others = _names(checks), _names(baselines)
    options = verification.Options(
        gpu,
        measure,
        precision,
        seed,
        function,
        names,
        baselines=others,
        auditor=auditor,
        sanitize=sanitize,
        mutants=COUNT * mutants,
    )
    with nullcontext(lambda _: None) if quiet else _telling() as doing:
        found = verification.verify(_problem(reference, entry, inputs, init), read_text(candidate), options, doing=doing)
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        from mtmc import terminal

        for part in terminal.verification(found):
            Console().print(part, highlight=False, soft_wrap=isinstance(part, str))
    if not found.verdict.correct:
        raise typer.Exit(UNVERIFIED if found.verdict.status == "infra" else FAILED)


@gpus.callback()
def gpus_command(context: typer.Context) -> None:
    """List the GPUs that `--gpu` knows."""
    if context.invoked_subcommand is None:
        from mtmc import hardware_profiles, terminal

        found = [hardware_profiles.load(name) for name in hardware_profiles.names()]
        Console().print(terminal.profiles(found))


@gpus.command("show")
def show_gpu(name: Annotated[str, typer.Argument(help="A name from `mtmc gpus`, or a .toml profile.")]) -> None:
    """Every figure of one GPU, with its unit in the name."""
    from mtmc import hardware_profiles, terminal

    Console().print(terminal.figures(hardware_profiles.load(name)))


@app.command("show")
def show_command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    form: Annotated[Format, typer.Option("--format", help="tree, mermaid (for a README) or json.")] = Format.tree,
) -> None:
    """The tree of programs that a run went through."""
    from mtmc import show
    from mtmc.trajectories.store import Run

    opened = Run.open(run)
    if form is Format.tree:
        Console().print(show.as_rich(opened))
    else:
        print(show.as_mermaid(opened) if form is Format.mermaid else json.dumps(show.as_json(opened), indent=1))


@app.command("viz")
def viz_command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("page.html"),
) -> None:
    """One HTML page, readable without a network: the tree, and on a click the step's sentence, diff and figures."""
    from mtmc import viz
    from mtmc.trajectories.files import put
    from mtmc.trajectories.store import Run

    put(output, viz.page(Run.open(run)))
    print(output)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def main() -> None:
    """Run the command; errors meant for the user become one sentence and an exit code."""
    guarded(app)


def _problem(file: str | None, entry: str | None, inputs: list[str], init: str) -> Problem:
    from mtmc.problem import load

    place = file or (entry or "").rpartition(":")[0]
    if not place:
        raise BadInput("Give a model file, or --entry file.py:CLASS.")
    return load(place, entry, inputs, init)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """What is being done, in one living line on stderr."""
    with Console(stderr=True).status("reading the files") as status:
        yield status.update


def _run(problem: Problem, options: Options, run: Path | None, resume: bool, quiet: bool) -> Result:
    from mtmc.optimizer import Listener, optimize_problem
    from mtmc.terminal import Progress

    with nullcontext(Listener()) if quiet else Progress(Console(stderr=True)) as listener:
        return optimize_problem(problem, options, run, resume, listener)


def _print_result(result: Result) -> None:
    from mtmc import terminal
    from mtmc.trajectories.store import Run

    console, opened = Console(), Run.open(result.run_folder)
    console.print(terminal.summary(opened))
    for line in terminal.conclusion(opened):
        console.print(line, highlight=False, soft_wrap=True)


def _facts(result: Result) -> dict[str, Any]:
    """What a script wants to know; `speedup` is 1 and `timing` null when nothing beat the reference."""
    optimized = str(result.run_folder / "optimized.py") if result.verdict else None
    return {
        "run": str(result.run_folder),
        "optimized": optimized,
        "speedup": result.speedup,
        "timing": asdict(result.verdict.timing) if result.verdict else None,
        "accuracy": asdict(result.verdict.accuracy) if result.verdict else None,
        "reason": result.reason,
        "interrupted": result.interrupted,
        "verified": any(step.verdict.correct for step in result.steps),
        "path": [step.action.sentence for step in result.path if step.action],
        "judged": sum(not step.cached for step in result.steps),
    }
