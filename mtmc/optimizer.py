"""`optimize`: passes values between the roles, from the user's model to the run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc import live, policies, report
from mtmc.assembly import Judging, Options, Setup, assemble
from mtmc.errors import InfraError
from mtmc.judge.cache import cache_folder, made_with
from mtmc.policies import experience
from mtmc.policies.experience import Experience, Outcome
from mtmc.problem import Problem, load
from mtmc.program import Program
from mtmc.search import Limits, Search
from mtmc.step import Step
from mtmc.trajectories.files import put
from mtmc.trajectories.store import Ending, Run, RunInfo, last_folder, new_folder
from mtmc.tree import Tree, faster_than_reference
from mtmc.verdict import Infra, Verdict, Verified
from mtmc.wording import details, result

if TYPE_CHECKING:
    import torch

OUTCOMES = "outcomes.jsonl"  # in the run folder: what was known when it began
CONFIRMATIONS = 3  # candidates judged once more at the end before we say that nothing is faster


class Listener:
    """Told what happens; this one says nothing."""

    def begin(self, info: RunInfo, folder: Path, recorded: int) -> None:
        """A run starts, with so many steps already recorded."""

    def doing(self, what: str) -> None:
        """Something that takes time starts."""

    def judged(self, step: Step, tree: Tree) -> None:
        """A step is finished and recorded."""


@dataclass(frozen=True)
class Result:
    """What came out. `source`, `verdict` and `module` are None when nothing beat the reference; `reason` says why it ended.

    `steps` are all steps of the run, `path` those that led to the best program. `module` is a `ModelNew` with the weights of
    the module given to `optimize`, None where a file was given. `spent` is what the judge's workers did, in seconds by kind
    and stage, and waited for.
    """

    run_folder: Path
    reason: str
    steps: tuple[Step, ...]
    path: tuple[Step, ...]
    source: str | None = None
    verdict: Verified | None = None
    module: torch.nn.Module | None = None
    interrupted: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """Over the reference; 1.0 when nothing beat it, for then the reference is the answer."""
        return self.verdict.timing.speedup if self.verdict else 1.0


def optimize(
    model: str | Path | torch.nn.Module,
    inputs: tuple[torch.Tensor, ...] = (),
    init: str = "",
    run: str | Path | None = None,
    **options: Any,
) -> Result:
    """Optimise a model file, or a live module with example inputs; `options` are the fields of `Options`.

    A live module's class must stand at the top level of a file, and `init` holds its constructor's arguments as text
    (`"64, bias=False"`). The run folder is `run`, or the next free `runs/NAME-GPU-NNN`. Raises BadInput and InfraError.
    """
    if isinstance(model, (str, Path)):
        return optimize_problem(load(model, init=init), Options(**options), run)
    problem = live.problem_of(model, inputs, init)
    found = optimize_problem(problem, Options(**options), run)
    optimized = found.run_folder / "optimized.py"
    return replace(found, module=live.with_weights(optimized, problem, model)) if found.verdict else found


def optimize_problem(
    problem: Problem,
    options: Options,
    folder: str | Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
) -> Result:
    """One run from a loaded problem to a finished run folder. Nothing is written before the input is known to be good.

    Ctrl-C during the search ends it with the best program so far. Raises BadInput and InfraError.
    """
    listener = listener or Listener()
    notes: list[str] = []
    policy = policies.load(options.policy, listener.doing, notes.append)
    setup = assemble(problem, options, listener.doing)
    try:
        warm = _warm(problem, setup, options)
        setup = replace(setup, notes=(*notes, *setup.notes, *(_said(warm, setup) if policy.guided else ())))
        run = _run_folder(_info(problem, options, setup), folder, resume)
        recorded = run.steps()
        listener.begin(run.info, run.folder, len(recorded))
        known = {step.child: step.verdict for step in recorded if not isinstance(step.verdict, Infra)}
        limits = Limits(options.budget, options.minutes * 60 or math.inf, setup.attainable_ms, options.keep_going)
        warm = _kept(run, warm, resume)
        before = frozenset(warm)
        search = Search(
            setup.moves, setup.judge, policy, limits, options.seed, known, listener.doing, setup.profile, warm,
            waited=lambda: setup.spent.get("gpu wait", 0.0),
        )  # fmt: skip
        try:
            _record(search, setup.first, run, listener)
            ending, interrupted = _confirm(run, search.reason, setup.judge, listener), False
        except KeyboardInterrupt:
            ending, interrupted = _stop_early(run), True
    finally:
        setup.judge.close()
    _remember(warm, before, setup, options)
    run.finish(ending)
    run.write_report(report.text(run))
    return replace(_result(run, ending, interrupted), spent=dict(setup.spent))


def _record(search: Search, first: Program, run: Run, listener: Listener) -> None:
    """Run the search and write its steps down, but for those that were there before."""
    written = run.steps()
    there = {(step.parent, step.child, step.action) for step in written if not isinstance(step.verdict, Infra)}
    count = len(written)
    for step in search.steps(first):
        if (step.parent, step.child, step.action) not in there:
            run.append(replace(step, index=count), search.programs[step.child])
            count += 1
        listener.judged(step, search.tree)


def _warm(problem: Problem, setup: Setup, options: Options) -> Experience:
    """What was measured on this GPU before, here and by those who made mtmc; nothing where times are predicted."""
    if not (options.warm_start and setup.chip):
        return Experience(own=problem.name)
    stored = experience.read(experience.store(cache_folder(), setup.chip))
    return Experience([*experience.seed(setup.chip), *stored], problem.name)


def _said(warm: Experience, setup: Setup) -> tuple[str, ...]:
    problems = len({outcome.problem for outcome in warm})
    known = f"{len(warm)} outcomes measured on {setup.chip} in searches of {problems} problem{'s' * (problems != 1)}"
    return (f"Warm start: where kernels are alike, the time model is corrected by {known}.",) if problems else ()


def _kept(run: Run, warm: Experience, resume: bool) -> Experience:
    """The outcomes that the run starts from, kept in its folder: a resumed one takes those, so that it chooses the same."""
    path = run.folder / OUTCOMES
    if resume:
        return Experience(experience.read(path), run.info.problem)
    if len(warm):
        put(path, experience.text(warm))
    return warm


def _remember(warm: Experience, before: frozenset[Outcome], setup: Setup, options: Options) -> None:
    """Add what the search has measured to the store of its GPU."""
    if options.warm_start and setup.chip:
        found = [outcome for outcome in warm if outcome not in before]
        experience.append(experience.store(cache_folder(), setup.chip), found)


def _confirm(run: Run, reason: str, judge: Judging, listener: Listener) -> Ending:
    """Judge the best programs once more in a fresh process; the first that holds and beats the reference is the answer."""
    tree = Tree(run.steps())
    discarded: list[str] = []
    promising = [key for key in tree.ranking if faster_than_reference(tree.verdict(key))]
    for key in promising[:CONFIRMATIONS]:
        listener.doing("judging the best program once more in a fresh process")
        verdict = _last_judgement(judge, run.program(key))
        if faster_than_reference(verdict):
            return Ending(reason, key, verdict, tuple(discarded))
        discarded.append(f"{key} did not hold in a fresh process: {details(verdict) or result(verdict)}")
    return Ending(reason, discarded=tuple(discarded))


def _last_judgement(judge: Judging, program: Program) -> Verdict:
    """Once more where the machine failed, which says nothing of the program. Raises InfraError where it fails again."""
    verdict = judge.final(program)
    verdict = judge.final(program) if isinstance(verdict, Infra) else verdict
    if isinstance(verdict, Infra):
        raise InfraError(f"The last judgement failed twice ({details(verdict)}); --resume tries again.")
    return verdict


def _stop_early(run: Run) -> Ending:
    tree = Tree(run.steps())
    best = tree.best if tree.best and faster_than_reference(tree.verdict(tree.best)) else ""
    return Ending("Interrupted; the best program so far was not judged once more. Continue with --resume.", best)


def _run_folder(info: RunInfo, folder: str | Path | None, resume: bool) -> Run:
    if resume:
        return Run.resume(Path(folder) if folder else last_folder(info.problem, info.gpu), info)
    return Run.create(Path(folder) if folder else new_folder(info.problem, info.gpu), info)


def _info(problem: Problem, options: Options, setup: Setup) -> RunInfo:
    return RunInfo(
        problem=problem.name,
        problem_hash=problem.hash,
        path=problem.path,
        entry=problem.entry,
        gpu=setup.profile.name,
        policy=options.policy,
        seed=options.seed,
        budget=options.budget,
        minutes=options.minutes,
        precision=options.precision,
        timing="measured" if setup.measured else "predicted",
        profile=asdict(setup.profile),
        versions=made_with(),
        notes=setup.notes,
    )


def _result(run: Run, ending: Ending, interrupted: bool) -> Result:
    steps = run.steps()
    tree = Tree(steps)
    key = ending.best or tree.best
    verdict = (ending.final or tree.verdict(ending.best)) if ending.best else None
    return Result(
        run_folder=run.folder,
        reason=ending.reason,
        steps=steps,
        path=tree.path(key) if key else (),
        source=run.program(ending.best).source if ending.best else None,
        verdict=verdict if isinstance(verdict, Verified) else None,
        interrupted=interrupted,
    )
