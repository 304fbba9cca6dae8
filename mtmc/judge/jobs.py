"""What workers do. Every job is a frozen dataclass that travels to a worker; `run` happens there and returns a plain value.

A job raises what goes wrong; the worker's boundary turns it into a Verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mtmc.judge.door import Door
from mtmc.problem import Problem
from mtmc.verdict import Accuracy, Finding, Launch, RuntimeFault, Wrong, rejection

if TYPE_CHECKING:
    from mtmc.hardware_profiles import Profile
    from mtmc.judge.executor import Executor
    from mtmc.judge.predict import Prediction
    from mtmc.judge.verify import Verifier

T = TypeVar("T")

Sizes = dict[str, Any] | None
HOST_BOUND_MS = 0.2  # below this device time the launch cost decides, and other work on the cores would show


@dataclass(frozen=True, kw_only=True)
class Job:
    """`kind` of worker; `stage` named by a Timeout; deadline in `seconds`.

    `fresh` asks for a new process, `alone` for cores on which no other job runs; a job that `shares` times
    nothing and needs little memory, so others may use the GPU meanwhile. An `idle` one leaves the GPU of its worker alone. A
    `paired` job can leave the candidate to another process (see `isolated`).
    """

    kind: ClassVar[str]
    stage: ClassVar[str]
    paired: ClassVar[bool] = False
    idle: ClassVar[bool] = False
    seconds: float = 60.0
    fresh: bool = False
    alone: bool = False
    shares: bool = False

    def run(self) -> Any:
        raise NotImplementedError


def watched(judge: Callable[[], Any]) -> Any:
    """What `judge` gives; Rejected where the candidate replaced functions or left flags, hooks or threads behind."""
    from mtmc.judge.dynamic import integrity

    with integrity.watched() as found:
        outcome = judge()
    return rejection(found) or outcome


@contextmanager
def asserting(wanted: bool) -> Iterator[None]:
    """Kernels launched meanwhile are compiled with their device assertions, or without."""
    from triton import knobs

    with knobs.runtime.scope():
        knobs.runtime.debug = wanted
        yield


@dataclass(frozen=True, kw_only=True)
class Wake(Job):
    """Nothing: a worker that is told so has started, and imported what takes seconds, while others were still reading."""

    stage = "start"

    def run(self) -> None:
        return None


class WakeCompile(Wake):
    kind = "compile"


class WakeInterpret(Wake):
    kind = "interpret"


class WakeGpu(Wake):
    kind = "gpu"
    idle = True


def wake(executor: Executor, *jobs: Wake) -> None:
    """Start the workers of these kinds; they import what takes seconds while this process does other things."""
    for job in jobs:
        executor.submit(job)


@dataclass(frozen=True)
class Compiled:
    """The launches of one call, as compiled for the target, and the predicted time of them and of the PyTorch calls."""

    launches: tuple[Launch, ...]
    prediction: Prediction
    seconds: float


@dataclass(frozen=True)
class ReferenceTimes:
    """Times (ms) of the reference: eager, and torch.compile's best mode (None where it failed or was not asked for).

    `kind` is `measured` or `predicted`; a predicted time is the larger of what device and host need. `peak_bytes` is what a
    call allocates above its inputs and parameters.
    """

    kind: str
    eager_ms: float
    compiled_ms: float | None = None
    host_ms: float | None = None
    peak_bytes: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompileJob(Job):
    """Run the candidate on meta tensors under the stand-in driver: everything is compiled, nothing computed.

    `asserts` compiles device assertions in, as `GpuVerifyJob` does, which then finds the kernels in the cache.
    """

    kind = "compile"
    stage = "compile"
    problem: Problem
    source: str
    profile: Profile
    door: Door = Door()
    sizes: Sizes = None
    asserts: bool = False

    def run(self) -> Any:
        with asserting(self.asserts):
            return watched(self._compile)

    def _compile(self) -> Compiled | RuntimeFault:
        import torch

        from mtmc.judge import candidate
        from mtmc.judge.eager import EagerCalls
        from mtmc.judge.predict import predict
        from mtmc.judge.pretence import pretended
        from mtmc.judge.reach import overflows
        from mtmc.judge.standin import stand_in
        from mtmc.problem import instantiate

        began = time.monotonic()
        instance = instantiate(self.problem, "meta")
        around = pretended("meta") if self.door.foreign else nullcontext()
        with stand_in(self.profile) as recorder, torch.no_grad(), around:
            with candidate.imported(self.source, self.sizes) as module:
                if not self.door.foreign:
                    candidate.check_constructor(module, self.problem)
                built = candidate.prepare(module, self.door, self.problem, instance.model, torch.device("meta"))
                with EagerCalls(self.profile) as eager:
                    candidate.run(built, instance.inputs)
        launches = tuple(recorder.launches)
        wrapped = [] if self.door.foreign else [text for launch in launches for text in overflows(launch)]
        if wrapped:  # of foreign kernels some are meant to, as random numbers are
            return RuntimeFault(f"at full size {wrapped[0]}", "out_of_bounds")
        prediction = predict(launches, self.profile) + eager.prediction
        return Compiled(launches, prediction, time.monotonic() - began)


@dataclass(frozen=True, kw_only=True)
class PredictReferenceJob(Job):
    """The model's time for the reference run eagerly, on meta tensors at full size."""

    kind = "compile"
    stage = "time"
    problem: Problem
    profile: Profile

    def run(self) -> ReferenceTimes:
        import torch

        from mtmc.judge.eager import EagerCalls
        from mtmc.problem import instantiate

        instance = instantiate(self.problem, "meta")
        with torch.no_grad(), EagerCalls(self.profile) as eager:
            instance.model(*instance.inputs)
        found = eager.prediction
        return ReferenceTimes("predicted", float(found.total_ms), host_ms=float(found.host_ms))


@dataclass(frozen=True, kw_only=True)
class DrawsJob(Job):
    """Which input distributions the reference takes; on the CPU, so for a small variant."""

    kind = "interpret"
    stage = "verify"
    problem: Problem
    seed: int = 0

    def run(self) -> tuple[str, ...]:
        from mtmc.judge.draws import usable

        return usable(self.problem, self.seed)


@dataclass(frozen=True, kw_only=True)
class VerifyJob(Job):
    """The accuracy rule on one variant of the problem; the subclasses say where. `repeat` runs the first draw twice."""

    stage = "verify"
    paired = True
    device: ClassVar[str]
    problem: Problem
    source: str
    door: Door = Door()
    sizes: Sizes = None
    draws: tuple[str, ...] = ("own",)
    precision: str = "strict"
    seed: int = 0
    repeat: bool = True
    full_size: bool = False

    def run(self) -> Any:
        from mtmc.judge.verify import Verifier

        return self.watch(lambda: self.verify(Verifier))

    def watch(self, call: Callable[[], Any]) -> Any:
        """`call` as it is to be made in a candidate's process."""
        return watched(call)

    def verify(self, kind: Callable[..., Verifier]) -> Accuracy | Wrong:
        return self.verifier(kind).verify(self.source, self.sizes, self.draws, self.repeat)

    def verifier(self, kind: Callable[..., T]) -> T:
        """A Verifier of a kind, for this job's problem and rule."""
        from mtmc.judge.accuracy import rule
        from mtmc.judge.dynamic.memory import poison_freed

        poison_freed()
        chosen = rule(self.precision) if self.full_size else rule(self.precision).for_small_sizes()
        return kind(self.problem, self.device, chosen, self.seed, self.door)


@dataclass(frozen=True, kw_only=True)
class InterpretJob(VerifyJob):
    """In Triton's interpreter, against eager on the CPU."""

    kind = "interpret"
    device = "cpu"


@dataclass(frozen=True, kw_only=True)
class GpuVerifyJob(VerifyJob):
    """On the GPU, at full size or on a variant; `asserts` compiles device assertions in."""

    kind = "gpu"
    device = "cuda"
    asserts: bool = False

    def watch(self, call: Callable[[], Any]) -> Any:
        with asserting(self.asserts):
            return super().watch(call)


@dataclass(frozen=True)
class Observations:
    """What the dynamic checks found, and what they could not check."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    def __add__(self, other: Observations) -> Observations:
        return Observations(self.findings + other.findings, self.notes + other.notes, self.checked + other.checked)


@dataclass(frozen=True, kw_only=True)
class DynamicJob(Job):
    """The dynamic checks of these `names` (all without names); the subclasses say where."""

    stage = "dynamic"
    device: ClassVar[str]
    problem: Problem
    source: str
    door: Door = Door()
    sizes: Sizes = None
    names: tuple[str, ...] | None = None
    seed: int = 0
    full_size: bool = True

    def run(self) -> Observations:
        """Findings of the checks, and of the watch around them."""
        from mtmc.judge import dynamic
        from mtmc.judge.dynamic import integrity
        from mtmc.judge.dynamic.memory import poison_freed
        from mtmc.judge.dynamic.subject import Source, opened

        with integrity.watched() as around:
            poison_freed()
            source = Source(self.problem, self.source, self.device, self.sizes, self.door)
            with opened(source, self.seed, self.full_size) as subject:
                found = dynamic.run(subject, self.names, self.seconds / 2)
        return Observations((*around, *found), tuple(dict.fromkeys(subject.notes)), tuple(dynamic.select(self.names)))


@dataclass(frozen=True, kw_only=True)
class InterpretDynamicJob(DynamicJob):
    """In Triton's interpreter."""

    kind = "interpret"
    device = "cpu"


@dataclass(frozen=True, kw_only=True)
class GpuDynamicJob(DynamicJob):
    """On the GPU."""

    kind = "gpu"
    device = "cuda"


@dataclass(frozen=True, kw_only=True)
class SanitizeJob(Job):
    """One call under compute-sanitizer, where the tool is."""

    kind = "gpu"
    stage = "sanitize"
    problem: Problem
    source: str
    door: Door = Door()
    sizes: Sizes = None
    seed: int = 0

    def run(self) -> Observations:
        from mtmc.judge.dynamic import sanitizer
        from mtmc.judge.dynamic.subject import Source

        source = Source(self.problem, self.source, "cuda", self.sizes, self.door)
        return Observations(*sanitizer.sanitize(source, self.seed, self.seconds))
