"""The roles of one run, built and joined: the only place that knows how capture, lowering, rules and judge fit together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mtmc import actions
from mtmc.action import Action, Edit
from mtmc.capture import capture, check_outputs
from mtmc.edit import gate
from mtmc.errors import BadInput
from mtmc.floor import Floor, floor
from mtmc.graph import Graph
from mtmc.hardware_profiles import Profile, detect, load
from mtmc.judge import accuracy
from mtmc.judge.baselines import DEFAULT, select
from mtmc.judge.cache import Cache, cache_folder
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.jobs import Compiled, WakeCompile, WakeGpu, WakeInterpret, wake
from mtmc.judge.judge import SEARCH_SECONDS, Judge, Variant
from mtmc.lower import Lowering, lower
from mtmc.problem import Problem, instantiate, user_code
from mtmc.program import Program
from mtmc.search import Evaluator, Moves
from mtmc.shrink import ShrinkResult, find
from mtmc.verdict import Timing, Verdict

FALLBACK_GPU = "h100"


@dataclass(frozen=True)
class Options:
    """How to optimise.

    `gpu` is a profile's name or TOML file, empty for the local GPU, else h100. `measure` None measures where there is a GPU.
    `budget` counts candidates, `minutes` wall time (0: no limit). `cache_days` 0 neither reads nor writes the cache of
    verdicts. `keep_going` searches on where PyTorch is already within 5 % of what the hardware needs. `library` allows
    actions that give a region back to PyTorch. `baselines` are what the last judgement compares with beside eager;
    `warm_start` lets what earlier searches measured on this GPU correct the model, and adds what this one measures.
    `timing_seconds` is the most that timing one candidate of the search takes; `device_times` and `quiet` as in
    `judge.Judge`.
    """

    gpu: str = ""
    policy: str = "greedy"
    budget: int = 40
    minutes: float = 0.0
    seed: int = 0
    precision: str = "strict"
    measure: bool | None = None
    cache_days: float = 7.0
    keep_going: bool = False
    library: bool = True
    baselines: tuple[str, ...] = DEFAULT
    timing_seconds: float = SEARCH_SECONDS
    warm_start: bool = True
    device_times: bool | None = None
    quiet: bool = True


class Judging(Evaluator, Protocol):
    """The search's evaluator, the model's word alone, a last judgement in a fresh process, and the end of its workers."""

    def compile_many(self, programs: Sequence[Program]) -> list[Compiled | Verdict]: ...

    def predicted(self, compiled: Compiled | None) -> Timing: ...

    def final(self, program: Program) -> Verdict: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Setup:
    """The roles for one problem.

    `notes` are sentences for the user: what stays a PyTorch call and why, whether the chip that measures is the target.
    `attainable_ms` is the time that good kernels come down to (0: unknown). `chip` is the profile's name of the GPU that
    measures, empty where times are predicted. `spent` are the executor's seconds, which go on growing.
    """

    first: Program
    moves: Moves
    judge: Judging
    profile: Profile
    measured: bool
    notes: tuple[str, ...] = ()
    attainable_ms: float = 0.0
    chip: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)


def assemble(
    problem: Problem, options: Options, doing: Callable[[str], None], executor: LocalProcesses | None = None
) -> Setup:
    """The roles for a problem; `doing` is told what takes time. Raises BadInput for a problem or an option of no use.

    `executor` is one that runs already and serves other problems too; its owner closes it, not the judge.
    """
    accuracy.rule(options.precision)  # unknown ones are refused before anything runs
    select(options.baselines)
    local = None if options.measure is False else detect()
    if options.measure and local is None:
        raise BadInput("--measure needs a GPU and there is none here: leave it out, and times are predicted.")
    profile = load(options.gpu) if options.gpu else local or load(FALLBACK_GPU)
    if executor is not None:
        return _assemble(problem, options, (profile, local), executor, doing)
    executor = LocalProcesses(cache_folder() / "compiled", limits(), trusting=True)
    try:
        wake(executor, WakeCompile(), WakeInterpret(), *([WakeGpu()] if local else []))
        return _assemble(problem, options, (profile, local), executor, doing)
    except BaseException:
        executor.close()
        raise


def _assemble(
    problem: Problem,
    options: Options,
    gpus: tuple[Profile, Profile | None],
    executor: LocalProcesses,
    doing: Callable[[str], None],
) -> Setup:
    """The same with the target, and the GPU that measures if one does, found out."""
    profile, local = gpus
    doing("capturing the model")
    captured = capture(problem)
    if captured.graph is None:
        _check_outputs(problem)
    doing("looking for small sizes to verify at")
    small = find(problem, graph=captured.graph) if captured.graph else ShrinkResult(())
    least = floor(problem, captured.graph, local or profile, options.precision) if captured.graph else Floor()
    doing("writing the first program")
    aligned = (small.aligned[1],) if small.aligned else ()
    lowering = lower(problem, captured, (*small.graphs, *aligned))
    judge = Judge(
        executor=executor,
        problem=problem,
        profile=profile,
        variants=variants_with_sizes(small.variants, lowering),
        aligned=aligned_with_sizes(small, lowering),
        measure=local is not None,
        precision=options.precision,
        cache=Cache(cache_folder() / "verdicts.sqlite", options.cache_days) if options.cache_days else None,
        floor_ms=least.hard_ms,
        baselines=options.baselines,
        search_seconds=options.timing_seconds,
        device_times=options.device_times,
        quiet=options.quiet,
        chip=local.name if local else "",
    )
    doing("timing PyTorch" if local else "predicting PyTorch's time")
    degenerate = (judge.trivial.sentence,) if judge.trivial.degenerate else ()
    notes = (*degenerate, *_other_chip(local, profile), *_kept(lowering), *judge.reference.notes)
    moves = Rules(lowering.graph or Graph((), None), profile, options.precision, options.library)
    measured, least_ms = local is not None, least.attainable_ms
    return Setup(lowering.program, moves, judge, profile, measured, notes, least_ms, judge.chip, executor.spent)


SMALL = 10_000_000  # elements of all inputs up to which a model is run on the CPU to see what it returns


def _check_outputs(problem: Problem) -> None:
    """What capture could not see: raise BadInput when the model, run on the CPU, returns what is not a tensor."""
    import torch

    meta = instantiate(problem, "meta")
    if sum(x.numel() for x in meta.inputs if isinstance(x, torch.Tensor)) > SMALL:
        return
    instance = instantiate(problem, "cpu")
    with user_code("Running the model"), torch.no_grad():
        result = instance.model(*instance.inputs)
    check_outputs(result)


@dataclass(frozen=True)
class Rules:
    """The rule-based coder as the search's Moves: rules propose and edit, the gate has the last word."""

    graph: Graph
    profile: Profile
    precision: str
    library: bool = True

    def propose(self, program: Program, verdict: Verdict) -> tuple[Action, ...]:
        found = actions.propose(self._context(program), verdict)
        return tuple(action for action in found if self.library or action.family != "library")

    def apply(self, program: Program, action: Action) -> Edit:
        return gate(program, actions.apply(self._context(program), action), action)

    def _context(self, program: Program) -> actions.Context:
        return actions.Context(program, self.graph, self.profile, self.precision)


def variants_with_sizes(smaller: tuple[Problem, ...], lowering: Lowering) -> tuple[Variant, ...]:
    """The smaller problems on which the programs can run, each with its SIZES."""
    return tuple((variant, sizes) for variant, sizes in zip(smaller, lowering.sizes, strict=False) if sizes is not None)


def aligned_with_sizes(small: ShrinkResult, lowering: Lowering) -> Variant | None:
    """The variant of round sizes, lowered last."""
    sizes = lowering.sizes[-1] if small.aligned else None
    return (small.aligned[0], sizes) if small.aligned and sizes is not None else None


def limits() -> Limits:
    """As many compiling and interpreting workers as there are cores for, up to six; one GPU is timed by one worker."""
    cores = min(len(os.sched_getaffinity(0)), 6)
    return Limits(workers={"compile": cores, "interpret": cores, "gpu": 1})


def _other_chip(local: Profile | None, target: Profile) -> tuple[str, ...]:
    if local is None or local.name == target.name:
        return ()
    return (
        f"Measured on the {local.title} in this machine, not on the target {target.title}: it may rank programs otherwise.",
    )


def _kept(lowering: Lowering) -> tuple[str, ...]:
    """Why operations stay PyTorch calls: one sentence a reason, with the graph nodes it holds for."""
    nodes: dict[str, list[str]] = {}
    for node, reason in lowering.reasons.items():
        nodes.setdefault(reason, []).append(node)
    return tuple(f"{', '.join(names)}: stays a PyTorch call, {reason}" for reason, names in nodes.items())
