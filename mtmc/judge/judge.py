"""The judge: one problem's candidates in, Verdicts out.

Without a GPU: compile for the target (stand-in driver, full size) → interpret on the small variants → predicted time. With
one: compile → verify on the GPU, on the variants and at full size → time against eager, interleaved. Everything that runs a
candidate is a job of the executor; this class only orders jobs and turns their outcomes into one Verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from mtmc.errors import InfraError
from mtmc.hardware_profiles import Profile
from mtmc.judge.accuracy import NO_FIT, combined, in_parts
from mtmc.judge.baselines import DEFAULT, SLOW
from mtmc.judge.cache import Cache, Key, gpu_driver, versions
from mtmc.judge.door import Door
from mtmc.judge.draws import AGAIN
from mtmc.judge.executor import Executor
from mtmc.judge.faults import by_compiler
from mtmc.judge.jobs import (
    HOST_BOUND_MS,
    Compiled,
    CompileJob,
    DrawsJob,
    DynamicJob,
    GpuDynamicJob,
    GpuVerifyJob,
    InterpretDynamicJob,
    InterpretJob,
    Observations,
    PredictReferenceJob,
    ReferenceTimes,
    SanitizeJob,
    Sizes,
)
from mtmc.judge.measure import GpuTimeJob, LoadCompilerJob, ReferenceJob, launch_bound
from mtmc.judge.outcomes import UNTIMED, need, only_at_its_sizes, predicted_timing, refused, verdict_of
from mtmc.judge.static import own_program
from mtmc.judge.trivial import GpuTrivialJob, Trivial, TrivialJob, merged
from mtmc.problem import Problem
from mtmc.program import Program
from mtmc.shrink import largest
from mtmc.verdict import Accuracy, CompileError, Timing, Verdict, Verified, Wrong, rejection

Variant = tuple[Problem, Sizes]

SEARCH_DRAWS = {False: 2, True: 1}  # tried besides the file's own, in the interpreter and on a GPU
SEARCH_VARIANTS = 3
SEARCH_SECONDS, FINAL_SECONDS = 0.25, 2.0  # of interleaved timing
ORACLE_ELEMENTS = 2e9  # computed by a variant whose fp64 oracle surely fits
LARGE = 2 << 30  # bytes that the reference allocates, from which on verifying costs seconds
FINAL_SEED = 1_000  # the last judgement draws weights and inputs that no earlier one has seen
NO_VARIANT = "no small variant of the problem: values were not checked without a GPU"


@dataclass(frozen=True)
class Deadlines:
    """Seconds per job. `verify` is per variant; ten runs of 10 s in the interpreter would be far over it."""

    compile: float = 60.0
    verify: float = 60.0
    time: float = 120.0
    reference: float = 300.0

    def last(self, baselines: Sequence[str]) -> float:
        """Of timing beside these baselines, which are compiled in the same job."""
        return self.reference + sum(SLOW.get(name, 0.0) for name in baselines)


@dataclass(frozen=True)
class Judge:
    """Judges programs for one problem on one GPU profile.

    `variants` are smaller sizes of the problem, each with the programs' SIZES there, smallest first: the first is tried with
    every usable input distribution, the others with the file's own; `aligned` is one more, of multiples of 16. `measure`:
    the local GPU verifies and times, the search at full size, the last judgement at all sizes.
    `floor_ms` is what no program can beat; `baselines` are what the last judgement compares with beside eager (see the
    module). `door` says what the candidates are; `small` that the interpreter can run the problem's own sizes; `fresh` that
    the last judgement starts new processes; `checks` names its dynamic checks (None: all), `sanitize` adds one call under
    compute-sanitizer; `search_seconds` is the most that timing a candidate of the search takes, on `quiet` cores where
    launching decides, `chip` the GPU that measures. Predictions are of what verdicts time: `device_times` without the host
    (None: where it is measured).
    """

    executor: Executor
    problem: Problem
    profile: Profile
    variants: tuple[Variant, ...] = ()
    aligned: Variant | None = None
    measure: bool = False
    precision: str = "strict"
    cache: Cache | None = None
    floor_ms: float = 0.0
    baselines: tuple[str, ...] = DEFAULT
    seed: int = 0
    deadlines: Deadlines = field(default_factory=Deadlines)
    door: Door = Door()
    small: bool = False
    fresh: bool = True
    checks: tuple[str, ...] | None = None
    sanitize: bool = False
    search_seconds: float = SEARCH_SECONDS
    device_times: bool | None = None
    quiet: bool = True
    chip: str = ""

    @cached_property
    def reference(self) -> ReferenceTimes:
        """Times of the reference, measured or predicted. Raises InfraError when it cannot be run."""
        if self.measure:
            job = ReferenceJob(problem=self.problem, baselines=(), seed=self.seed, seconds=self.deadlines.reference)
            return need(self.executor.submit(job).result(), ReferenceTimes)
        predicted = PredictReferenceJob(problem=self.problem, profile=self.profile, seconds=self.deadlines.compile)
        found = self.executor.submit(predicted).result()
        if not isinstance(found, ReferenceTimes):
            raise InfraError(f"the model's time cannot be predicted without a GPU: {getattr(found, 'message', found)}")
        return found

    @cached_property
    def draws(self) -> tuple[str, ...]:
        """Input distributions that the reference takes; only the file's own without small sizes to try them on."""
        if not self.variants and not self.small:
            return ("own",)
        problem = self.variants[0][0] if self.variants else self.problem
        job = DrawsJob(problem=problem, seed=self.seed, seconds=self.deadlines.verify)
        found: tuple[str, ...] = need(self.executor.submit(job).result(), tuple)
        return found

    @cached_property
    def trivial(self) -> Trivial:
        """Which candidates that do no work pass: on the first small variant, and on a GPU at full size unless large."""
        jobs: list[TrivialJob] = []
        if self.variants:
            small, seconds = self.variants[0][0], self.deadlines.verify
            jobs.append(TrivialJob(problem=small, draws=self.draws, precision=self.precision, seconds=seconds))
        if self.measure and not (jobs and self._large):
            seconds, shares = self.deadlines.verify, not self._large
            jobs.append(GpuTrivialJob(problem=self.problem, precision=self.precision, shares=shares, seconds=seconds))
        return merged([future.result() for future in [self.executor.submit(job) for job in jobs]])

    @property
    def _large(self) -> bool:
        return self.measure and (self.reference.peak_bytes or 0) > LARGE

    def _draws(self, program: Program, final: bool) -> tuple[str, ...]:
        """In the last judgement all usable distributions; in a search the own and few more, others for other programs.

        At the full size of problems that are large on the GPU the last judgement takes the own and one more. Products of
        split operands are tried on all there at once: that they are not exact enough should not show at the end.
        """
        own, *others = self.draws if final else [draw for draw in self.draws if draw != AGAIN]
        if not others or (final and not self._large) or (not final and self.measure and in_parts(program.source)):
            return (own, *others)
        start = sum(map(ord, program.key))
        few = dict.fromkeys(others[(start + n) % len(others)] for n in range(SEARCH_DRAWS[self.measure]))
        return (own, *few)

    def _draws_at(self, number: int, problem: Problem, program: Program, final: bool) -> tuple[str, ...]:
        """`_draws` for the full size, and in a search for the first small one; in the end that gets all, others the own."""
        if problem is self.problem or (number == 0 and not final):
            return self._draws(program, final)
        return self.draws if number == 0 else ("own",)

    def judge(self, program: Program, thorough: bool = False) -> Verdict:
        """Compile, verify, and time or predict; from the cache where it was judged before.

        `thorough` verifies as the last judgement does, and asks no cache.
        """
        if thorough:
            return self._judge(program, self.seed, thorough=True)
        key = self._key(program)
        known = self.cache.get(key) if self.cache else None
        if known is not None:
            return known
        verdict = self._judge(program, self.seed)
        if self.cache:
            self.cache.put(key, verdict)
        return verdict

    def compile_many(self, programs: Sequence[Program]) -> list[Compiled | Verdict]:
        """Compile side by side, as many at once as the executor has workers; for ordering before anything is timed."""
        futures = [self.executor.submit(self._compile(program)) for program in programs]
        return [future.result() for future in futures]

    def predict(self, programs: Sequence[Program]) -> list[float | None]:
        """Predicted milliseconds of each program; None where it does not compile."""
        device = self.measure if self.device_times is None else self.device_times
        found = (c.prediction if isinstance(c, Compiled) else None for c in self.compile_many(programs))
        return [None if p is None else float(p.device_ms if device else p.total_ms) for p in found]

    def final(self, program: Program) -> Verdict:
        """Verify and time once more, in a fresh process, on new weights and inputs, against eager and torch.compile."""
        return self._judge(program, self.seed + FINAL_SEED, final=True)

    def close(self) -> None:
        self.executor.close()

    def _judge(self, program: Program, seed: int, final: bool = False, thorough: bool = False) -> Verdict:
        if not self.door.foreign and (rejected := own_program(self.problem, program)):
            return rejected
        compiling = self._compiling(program)
        if not final and isinstance(found := self._compiled(compiling), Verdict):
            return found
        seen = self._observe(program, seed) if final else Observations()  # knows better than wrong values what is wrong
        compiled = self._compiled(compiling)  # the last judgement compiles and watches side by side
        if isinstance(compiled, Verdict):
            return compiled
        if isinstance(seen, Verdict):
            return self._unwritten(program, seed) or seen
        accuracy = self._verify(program, seed, final or thorough)
        if not isinstance(accuracy, Accuracy):
            return accuracy
        accuracy = replace(accuracy, skipped=(*accuracy.skipped, *seen.notes))
        timing = self._time(program, compiled, seed, final) if self.measure else self.predicted(compiled)
        if not isinstance(timing, Timing):
            return timing
        return Verified(timing, accuracy, compiled.launches if compiled else (), seen.findings)

    def _compiling(self, program: Program) -> Future[Any] | None:
        """The compile job under way; None for a foreign candidate that a GPU will compile."""
        return None if self.door.foreign and self.measure else self.executor.submit(self._compile(program))

    def _compiled(self, compiling: Future[Any] | None) -> Compiled | Verdict | None:
        """None for a foreign candidate that a GPU will compile, or that asks what meta tensors cannot answer."""
        if compiling is None:
            return None
        outcome = compiling.result()
        if isinstance(outcome, Compiled):
            return outcome
        ours = isinstance(outcome, CompileError) and (outcome.cause != "compile" or by_compiler(outcome.message))
        return verdict_of(outcome) if ours or not self.door.foreign else None

    def _compile(self, program: Program, variant: Variant | None = None, asserts: bool = False) -> CompileJob:
        problem, sizes = variant or (self.problem, None)
        return CompileJob(
            problem=problem,
            source=program.source,
            profile=self.profile,
            door=self.door,
            sizes=sizes,
            asserts=asserts,
            seconds=self.deadlines.compile,
        )

    def _verify(self, program: Program, seed: int, final: bool) -> Accuracy | Verdict:
        """All variants (and the full size on a GPU); the first failure decides.

        Where the program's own checks refuse the odd sizes, the aligned variant takes their place, and the report says so; a
        foreign candidate may refuse that too.
        """
        targets = [*self.variants] if final else self._searched
        targets += [(self.problem, None)] * (self.measure and (final or not targets) or self.small)
        if not targets:
            return Accuracy(0.0, 0.0, (), (NO_VARIANT,))
        outcomes = self._verified(program, targets, seed, final)
        own = outcomes[-1] if targets[-1][0] is self.problem else None
        refusals = [o for o in outcomes if refused(o)]
        if refusals and self.aligned:
            outcomes = [o for o in outcomes if o not in refusals] + self._verified(program, [self.aligned], seed, final)
        if self.door.foreign and any(isinstance(o, Accuracy) for o in outcomes):
            outcomes = [o for o in outcomes if not refused(o)]
        if failures := [outcome for outcome in outcomes if not isinstance(outcome, Accuracy)]:
            return only_at_its_sizes(own, failures) or verdict_of(failures[0])
        no_fit = any(NO_FIT in o.skipped for o in outcomes)
        more = self._verified_where_it_fits(program, seed) if no_fit else []
        if failures := [o for o in more if not isinstance(o, Accuracy) and not refused(o)]:
            return verdict_of(failures[0])
        refusals += [o for o in more if refused(o)]
        total = combined(o for o in (*outcomes, *more) if isinstance(o, Accuracy))
        notes = dict.fromkeys(f"other sizes: refused by the program itself ({r.message})" for r in refusals)
        return replace(total, skipped=(*total.skipped, *notes))

    @property
    def _searched(self) -> list[Variant]:
        """Small sizes that a search verifies at: on a GPU for large problems only, and instead of their own size."""
        return [*self.variants[:SEARCH_VARIANTS]] if self._large or not self.measure else []

    def _verified(self, program: Program, targets: Sequence[Variant], seed: int, final: bool) -> list[Any]:
        """Outcome of each target; the first small one and the full size get every usable distribution."""
        if self.measure and not self.door.foreign:  # the GPU need not wait for a compiler
            new = [target for target in targets if final or target[0] is not self.problem]
            wait([self.executor.submit(self._compile(program, target, asserts=final)) for target in new])
        kind = GpuVerifyJob if self.measure else InterpretJob
        options: dict[str, Any] = {"asserts": final} if self.measure else {}
        jobs = [
            kind(
                problem=problem,
                source=program.source,
                door=self.door,
                sizes=sizes,
                draws=self._draws_at(number, problem, program, final),
                full_size=problem is self.problem and self.measure,  # eager on a CPU is too exact to be matched
                precision=self.precision,
                seed=seed,
                repeat=self._twice(number, problem),
                shares=not (self._large and problem is self.problem),
                seconds=self.deadlines.verify,
                fresh=final and self.fresh and number == 0 and not self.measure,  # on a GPU the dynamic checks were
                **options,
            )
            for number, (problem, sizes) in enumerate(targets)
        ]
        return [future.result() for future in [self.executor.submit(job) for job in jobs]]

    def _twice(self, number: int, problem: Problem) -> bool:
        """Whether the first draw is called twice, to see races: the interpreter has none, and large calls are dear."""
        return number == 0 if not self.measure else problem is not self.problem or not self._large

    def _observe(self, program: Program, seed: int) -> Observations | Verdict:
        """The dynamic checks: at the problem's own sizes where they are cheap there, else on a smaller variant."""
        own: list[Variant] = [(self.problem, None)]
        smaller = [*self.variants[:1], *([self.aligned] if self.aligned else [])]
        cheap = self.small or self.measure and not self._large
        for problem, sizes in own + smaller if cheap else smaller + own * self.measure:
            outcome = self.executor.submit(self._observing(program, problem, sizes, seed)).result()
            if refused(outcome):
                continue
            if isinstance(outcome, Observations) and self.sanitize:
                outcome = self._sanitized(program, problem, sizes, seed, outcome)
            return (rejection(outcome.findings) or outcome) if isinstance(outcome, Observations) else verdict_of(outcome)
        return Observations()

    def _sanitized(self, program: Program, problem: Problem, sizes: Sizes, seed: int, seen: Observations) -> Any:
        """What was seen, and what compute-sanitizer sees at the smallest sizes."""
        if not self.measure:
            return replace(seen, notes=(*seen.notes, "compute-sanitizer: needs a GPU"))
        if self.variants and problem is self.problem:
            problem, sizes = self.variants[0]
        seconds = self.deadlines.reference
        job = SanitizeJob(problem=problem, source=program.source, door=self.door, sizes=sizes, seed=seed, seconds=seconds)
        found = self.executor.submit(job).result()
        return seen + found if isinstance(found, Observations) else found

    def _observing(self, program: Program, problem: Problem, sizes: Sizes, seed: int) -> DynamicJob:
        kind = GpuDynamicJob if self.measure else InterpretDynamicJob
        return kind(
            problem=problem,
            source=program.source,
            door=self.door,
            sizes=sizes,
            names=self.checks,
            seed=seed,
            full_size=problem is self.problem,
            seconds=self.deadlines.verify,
            fresh=self.fresh,
            shares=not (self._large and problem is self.problem),
        )

    def _unwritten(self, program: Program, seed: int) -> Wrong | None:
        """The plainer finding where memory is left unwritten: what it holds then changes from call to call."""
        smallest = [*self.variants[:1], (self.problem, None)][0]
        if smallest[0] is self.problem and not (self.measure or self.small):
            return None
        (found,) = self._verified(program, [smallest], seed, False)
        return found if isinstance(found, Wrong) and found.check == "nan" else None

    def _verified_where_it_fits(self, program: Program, seed: int) -> list[Any]:
        """Outcome at the largest sizes that leave room for an fp64 oracle; none where SIZES would be needed."""
        variant = largest(self.problem, ORACLE_ELEMENTS) if self.door.foreign or "SIZES = {}" in program.source else None
        return self._verified(program, [(variant, None)], seed, True) if variant else []

    def _time(self, program: Program, compiled: Compiled | None, seed: int, final: bool) -> Timing | Verdict:
        """Measured time; on quiet cores (in a search if asked for) where launching decides, known before or afterwards."""
        quiet = final or self.quiet
        job = GpuTimeJob(
            problem=self.problem,
            source=program.source,
            door=self.door,
            baselines=self.baselines if final else (),
            floor_ms=self.floor_ms,
            seed=seed,
            seconds=self.deadlines.last(self.baselines) if final else self.deadlines.time,
            budget_s=FINAL_SECONDS if final else self.search_seconds,
            whole=final,
            alone=quiet and (compiled is None or compiled.prediction.device_ms < HOST_BOUND_MS),
        )
        if any(name.startswith("compile") for name in job.baselines):  # what fails there fails, and is told, in the next job
            self.executor.submit(LoadCompilerJob(source=program.source, seconds=self.deadlines.compile))
        outcome = self.executor.submit(job).result()
        if quiet and isinstance(outcome, Timing) and not job.alone and launch_bound(outcome, final):
            outcome = self.executor.submit(replace(job, alone=True)).result()
        return outcome if isinstance(outcome, Timing) else verdict_of(outcome)

    def predicted(self, compiled: Compiled | None) -> Timing:
        """The model's word; nothing where the candidate could not be compiled without a GPU."""
        return predicted_timing(self.reference, compiled.prediction, self.floor_ms) if compiled else UNTIMED

    def _key(self, program: Program) -> Key:
        profile = f"{self.profile.name} {sha256(repr(self.profile).encode()).hexdigest()[:16]}"
        clock = f"{self.chip}, {self.search_seconds:g} s, quiet {self.quiet}" if self.measure else ""
        made_with = versions(gpu_driver() if self.measure else "")
        return Key(program.key, self.problem.hash, profile, self.measure, self.precision, made_with, clock)
