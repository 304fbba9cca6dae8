"""Verification: one reference, one candidate, every check there is. What `mtmc verify` runs; the corpus of cheats too.

    read the text (static checks) → compile → compare with the reference → watch it being called → time it

Nothing of the search is needed: the candidate may be any file (see `judge.door`). Without a GPU the candidate runs in the
repaired interpreter, at sizes that it can bear, and the notes say what that leaves open.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from mtmc.assembly import FALLBACK_GPU, aligned_with_sizes, variants_with_sizes
from mtmc.capture import Capture, capture
from mtmc.errors import BadInput, InfraError
from mtmc.floor import floor
from mtmc.hardware_profiles import Profile, detect, load
from mtmc.judge import accuracy, auditor, baselines, door, static
from mtmc.judge.cache import cache_folder
from mtmc.judge.executor import Executor, Limits, LocalProcesses
from mtmc.judge.jobs import WakeCompile, WakeGpu, WakeInterpret, wake
from mtmc.judge.judge import Deadlines, Judge, Variant
from mtmc.judge.mutants import Trial, strength
from mtmc.lower import lower
from mtmc.problem import Problem, instantiate
from mtmc.program import Program
from mtmc.shrink import ShrinkResult, find, sizes_of
from mtmc.verdict import Finding, Infra, RuntimeFault, Verdict, Verified, rejection

Names = tuple[str, ...] | None  # of checks; None for all

NO_GPU = (
    "No GPU here: kernels ran in the interpreter. Not checked: the compiled code's own arithmetic, races inside one "
    "program, shared memory, streams, and the time."
)
BUILDING = 300.0  # seconds for a job in which nvcc may have to run first
ASKS_FOR_CUDA = ("without CUDA", "compiled with CUDA", "NVIDIA driver", "dummy base class", "CUDA_HOME")  # what PyTorch says
NOT_OWN_SIZE = "The problem's own sizes are beyond the interpreter: values were checked at smaller ones only."
NOT_TIMED = "No time could be predicted: the candidate does not run on meta tensors."


@dataclass(frozen=True)
class Options:
    """How to verify. `gpu`, `measure`, `precision` and `seed` as in `mtmc optimize`.

    `function` is the candidate's entry where it is not ModelNew; `checks` are ids of static and dynamic checks (empty: all);
    `baselines` are timed beside eager; `sanitize` makes one call under compute-sanitizer; `auditor` asks the configured
    language model, whose word is advice; `mutants` breaks a verified candidate in so many ways and judges each.
    """

    gpu: str = ""
    measure: bool | None = None
    precision: str = "strict"
    seed: int = 0
    function: str = ""
    checks: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ("compile-default",)
    auditor: bool = False
    sanitize: bool = False
    mutants: int = 0


@dataclass(frozen=True)
class Verification:
    """What was found. `findings` hold warnings beside what rejected; `notes` say what could not be checked, and why.

    `opinion` is the auditor's, `trials` are the mutants'; empty where nobody asked for them. `spent` are the workers'
    seconds by what they did.
    """

    problem: str
    kind: str
    gpu: str
    measured: bool
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    opinion: str = ""
    trials: tuple[Trial, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; the verdict as in `steps.jsonl`."""
        return {
            "problem": self.problem,
            "candidate": self.kind,
            "gpu": self.gpu,
            "measured": self.measured,
            "verified": self.verdict.correct,
            "verdict": self.verdict.to_json(),
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
            "auditor": self.opinion or None,
            "mutants": [trial.to_json() for trial in self.trials],
            "seconds": round(self.seconds, 2),
            "spent": {name: round(seconds, 2) for name, seconds in self.spent.items()},
        }


def verify(
    problem: Problem, source: str, options: Options | None = None, doing: Callable[[str], None] = lambda _: None
) -> Verification:
    """Every check on one candidate's text. Raises BadInput for a reference, a candidate or an option of no use.

    `doing` is told what takes time.
    """
    workers = Limits(workers={"compile": 1, "interpret": min(len(os.sched_getaffinity(0)), 4), "gpu": 1})
    with LocalProcesses(cache_folder() / "compiled", workers) as executor:
        _wake(executor, options or Options())
        doing("looking for sizes to verify at")
        finish = begin(problem, source, options or Options(), executor)
        doing("judging")
        found = replace(finish(), spent=dict(executor.spent))
    if options and options.auditor:
        doing("asking the auditor")
        found = _audited(found, problem, source)
    return found


def begin(problem: Problem, source: str, options: Options, executor: Executor) -> Callable[[], Verification]:
    """What this process has to do for a verification; calling the result waits for the workers, in any thread."""
    began = time.monotonic()
    if options.auditor:
        auditor.endpoint()  # refused before anything runs
    pair = _pair(problem, source, options)
    found = replace(pair.start, findings=_static(pair))
    if rejected := rejection(found.findings):
        found = replace(found, verdict=rejected)
    elif not pair.local and (why := door.needs_gpu(source)):
        found = replace(found, verdict=Infra(f"needs a GPU: {why}"))
    else:
        judge = _judge(pair, executor)
        return lambda: replace(_judged(found, pair, judge), seconds=time.monotonic() - began)
    done = replace(found, seconds=time.monotonic() - began)
    return lambda: done


def _wake(executor: Executor, options: Options) -> None:
    """Start the workers that will be needed."""
    gpu = options.measure is not False and Path("/dev/nvidiactl").exists()  # asking torch would cost the seconds
    wake(executor, WakeGpu() if gpu else WakeCompile(), WakeInterpret())


def _audited(found: Verification, problem: Problem, source: str) -> Verification:
    """With the language model's opinion and findings, which are warnings whatever the verdict is."""
    try:
        advice = auditor.ask(auditor.endpoint(), problem.source, source)
    except auditor.NoAnswer as error:
        return replace(found, notes=(*found.notes, f"The auditor was of no use: {error}."))
    said = f"{advice.opinion}: {advice.reason}"
    return replace(found, findings=(*found.findings, *advice.findings), opinion=said)


@dataclass(frozen=True)
class _Pair:
    """Reference and candidate, and where they are judged. `local` says that there is a GPU to measure on."""

    problem: Problem
    source: str
    options: Options
    door: door.Door
    profile: Profile
    local: bool
    static: Names = None
    dynamic: Names = None

    @property
    def start(self) -> Verification:
        return Verification(self.problem.name, self.door.kind, self.profile.name, self.local, Infra("nothing was judged"))

    @property
    def seed(self) -> int:
        """Of weights and inputs: fixed for a candidate, but not to be known while it is written."""
        digest = hashlib.sha256(f"{self.options.seed} {self.source}".encode()).digest()
        return int.from_bytes(digest[:4], "big") % 1_000_000


def _pair(problem: Problem, source: str, options: Options) -> _Pair:
    accuracy.rule(options.precision)
    baselines.select(options.baselines)
    local = None if options.measure is False else detect()
    if options.measure and local is None:
        raise BadInput("--measure needs a GPU and there is none here.")
    profile = load(options.gpu) if options.gpu else local or load(FALLBACK_GPU)
    inputs = len(instantiate(problem, "meta").inputs)
    entry = door.find(source, inputs, options.function)
    return _Pair(problem, source, options, entry, profile, local is not None, *_selected(options.checks))


def _selected(ids: tuple[str, ...]) -> tuple[Names, Names]:
    """Static and dynamic checks by their ids, None for all. Raises BadInput listing the known ones for another id."""
    if not ids:
        return None, None
    from mtmc.judge import dynamic

    known = {f"static.{name}" for name in static.RULES} | {f"dynamic.{name}" for name in (*dynamic.CHECKS, *dynamic.AROUND)}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise BadInput(f"unknown check '{unknown[0]}'; known: {', '.join(sorted(known))}")
    chosen = [tuple(n.partition(".")[2] for n in ids if n.startswith(f"{kind}.")) for kind in ("static", "dynamic")]
    return chosen[0], tuple(name for name in chosen[1] if name in dynamic.CHECKS)


def _static(pair: _Pair) -> tuple[Finding, ...]:
    """What the text gives away; of text that does not parse nothing, for compiling it says what is wrong."""
    names = pair.static
    if not pair.door.foreign:  # what goes back to PyTorch is told anyway
        names = names or tuple(name for name in static.RULES if name not in static.LIBRARY_USE)
    try:
        return static.check(pair.source, pair.problem, pair.door.function, names)
    except SyntaxError:
        return ()


def _judged(found: Verification, pair: _Pair, judge: Judge) -> Verification:
    """Candidates that do no work first; then this one compiled, compared, watched and timed; then its mutants."""
    notes: list[str] = []
    trials: tuple[Trial, ...] = ()
    try:
        notes += [text for text in (judge.trivial.sentence, judge.trivial.note) if text]
        verdict = judge.final(Program(pair.source))
        if verdict.correct and pair.options.mutants:
            trials = strength(judge, pair.source, pair.options.seed, pair.options.mutants)
    except InfraError as error:
        verdict = Infra(str(error))
    if not pair.local:
        verdict = _without_gpu(verdict)
    if not pair.local and verdict.compiled:
        notes += [NO_GPU] if judge.small else [NO_GPU, NOT_OWN_SIZE]
    if not isinstance(verdict, Verified):
        return replace(found, verdict=verdict, notes=tuple(notes))
    if verdict.timing.kind == "unknown":
        notes.append(NOT_TIMED)
    findings = (*found.findings, *verdict.findings)
    return replace(found, verdict=verdict, findings=findings, notes=tuple(notes), trials=trials)


def _without_gpu(verdict: Verdict) -> Verdict:
    """Infra in the place of a verdict that the missing GPU has caused."""
    if isinstance(verdict, Verified) and not verdict.accuracy.checked:
        return Infra("needs a GPU: no size that the interpreter can bear fits the reference")
    if isinstance(verdict, RuntimeFault) and any(word in verdict.message for word in ASKS_FOR_CUDA):
        return Infra(f"needs a GPU: {verdict.message}")
    return verdict


_captured = lru_cache(maxsize=8)(capture)  # a problem often has many candidates
_sizes = lru_cache(maxsize=64)(sizes_of)


def _graph(pair: _Pair) -> Capture | None:
    """Our own programs need the graph for their sizes, and the hardware's floor is counted on it; else nobody does."""
    if pair.door.foreign and not pair.local:
        return None
    try:
        return _captured(pair.problem)
    except BadInput:  # what no program of ours could return may still be verified
        return None


def _judge(pair: _Pair, executor: Executor) -> Judge:
    """The judge for this pair. Our own programs need a graph for their sizes at other variants; others only sizes."""
    captured = _graph(pair)
    graph = captured.graph if captured else None
    least = floor(pair.problem, graph, pair.profile, pair.options.precision).hard_ms if graph else 0.0
    variants: tuple[Variant, ...]
    aligned: Variant | None
    sizes = _sizes(pair.problem)
    if pair.door.foreign or captured is None:
        variants = tuple((variant, None) for variant in sizes.variants)
        aligned = (sizes.aligned, None) if sizes.aligned else None
    else:
        small = find(pair.problem, graph=graph) if graph else ShrinkResult(())
        lowering = lower(pair.problem, captured, (*small.graphs, *((small.aligned[1],) if small.aligned else ())))
        variants, aligned = variants_with_sizes(small.variants, lowering), aligned_with_sizes(small, lowering)
    return Judge(
        executor=executor,
        problem=pair.problem,
        profile=pair.profile,
        variants=variants,
        aligned=aligned,
        measure=pair.local,
        precision=pair.options.precision,
        floor_ms=least,
        seed=pair.seed,
        door=pair.door,
        small=sizes.small,
        fresh=False,  # nothing but this candidate has run in these workers
        baselines=pair.options.baselines,
        checks=pair.dynamic,
        deadlines=Deadlines(verify=BUILDING) if door.needs_gpu(pair.source) else Deadlines(),
        sanitize=pair.options.sanitize,
    )
