"""What workers do. Every job is a frozen dataclass that travels to a worker; `run` happens there and returns a plain value.

A job raises what goes wrong; the worker's boundary turns it into a Verdict.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from mtmc.judge.door import Door
from mtmc.problem import Problem
from mtmc.verdict import Accuracy, Launch, Rejected, Timing, Wrong

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from mtmc.hardware_profiles import Profile
    from mtmc.judge.predict import Prediction
    from mtmc.judge.timing import Call, Clock

Sizes = dict[str, Any] | None
HOST_BOUND_MS = 0.2  # below this device time the launch cost decides, and other work on the cores would show
SLOW_MS = 100.0  # candidates slower than this are not measured with care
HOST_ROUNDS = {False: 5, True: 15}  # wall-time rounds in a search, in the last judgement


@dataclass(frozen=True, kw_only=True)
class Job:
    """`kind` of worker; `stage` named by a Timeout; deadline in `seconds`.

    `fresh` asks for a new process, `alone` for cores on which no other job runs.
    """

    kind: ClassVar[str]
    stage: ClassVar[str]
    seconds: float = 60.0
    fresh: bool = False
    alone: bool = False

    def run(self) -> Any:
        raise NotImplementedError


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
    """Run the candidate on meta tensors under the stand-in driver: everything is compiled, nothing computed."""

    kind = "compile"
    stage = "compile"
    problem: Problem
    source: str
    profile: Profile
    door: Door = Door()
    sizes: Sizes = None

    def run(self) -> Compiled:
        import torch

        from mtmc.judge import candidate
        from mtmc.judge.eager import EagerCalls
        from mtmc.judge.predict import predict
        from mtmc.judge.pretence import pretended
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

    def run(self) -> Accuracy | Wrong:
        from mtmc.judge.accuracy import rule
        from mtmc.judge.verify import Verifier

        chosen = rule(self.precision) if self.full_size else rule(self.precision).for_small_sizes()
        verifier = Verifier(self.problem, self.device, chosen, self.seed, self.door)
        return verifier.verify(self.source, self.sizes, self.draws, self.repeat)


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

    def run(self) -> Accuracy | Wrong:
        from triton import knobs

        with knobs.runtime.scope():
            knobs.runtime.debug = self.asserts
            return super().run()


@dataclass(frozen=True, kw_only=True)
class ReferenceJob(Job):
    """Time eager and torch.compile, interleaved."""

    kind = "gpu"
    stage = "time"
    problem: Problem
    modes: tuple[str, ...] = ("default",)
    budget_s: float = 0.5
    seed: int = 0

    def run(self) -> ReferenceTimes:
        import torch

        from mtmc.judge import timing
        from mtmc.judge.device import peak_above
        from mtmc.problem import instantiate

        instance = instantiate(self.problem, "cuda", self.seed)
        notes: list[str] = []
        with torch.no_grad():
            calls: dict[str, Call] = {"eager": lambda: instance.model(*instance.inputs)}
            calls["eager"]()  # what libraries keep from the first call on is not the model's
            with peak_above(torch.device("cuda")) as peak:
                calls["eager"]()
            calls |= _compiled(instance.model, instance.inputs, self.modes, notes)
            clock = timing.CudaClock()
            times = timing.interleave(calls, clock, timing.Budget(self.budget_s), seed=self.seed)
            host = timing.host_times({"eager": calls["eager"]}, clock)
        medians = {name: _median(values) for name, values in times.items()}
        best = min((ms for name, ms in medians.items() if name != "eager"), default=None)
        return ReferenceTimes("measured", medians["eager"], best, host["eager"], peak[0], tuple(notes))


@dataclass(frozen=True, kw_only=True)
class GpuTimeJob(Job):
    """Time the candidate against eager (and torch.compile for each of `modes`), interleaved in this process.

    `whole` times `forward` with its guard, as a user calls it; it must not fall back. A time below `floor_ms` is Rejected.
    After timing, candidate and reference are compared once more on the then current
    contents of the inputs; `tolerance` is the relative norm error allowed there.
    """

    kind = "gpu"
    stage = "time"
    problem: Problem
    source: str
    door: Door = Door()
    sizes: Sizes = None
    modes: tuple[str, ...] = ()
    floor_ms: float = 0.0
    budget_s: float = 2.0
    seed: int = 0
    tolerance: float = 1e-2
    units: bool = True
    whole: bool = False

    def run(self) -> Timing | Rejected | Wrong:
        from mtmc.judge import candidate
        from mtmc.judge.timing import CudaClock

        with candidate.imported(self.source, self.sizes) as module:
            return self._measure(module, CudaClock())

    def _measure(self, module: Any, clock: Clock) -> Timing | Rejected | Wrong:
        import torch

        from mtmc.judge import candidate, timing
        from mtmc.judge.device import peak_above
        from mtmc.problem import instantiate

        instance = instantiate(self.problem, "cuda", self.seed)
        built = candidate.prepare(module, self.door, self.problem, instance.model, torch.device("cuda"), self.seed)
        began = time.monotonic()
        with torch.no_grad():
            candidate.run(built, instance.inputs)
            first = time.monotonic() - began
            if self.whole and not candidate.holds(module, built.model, instance.inputs):
                return Wrong("the program's own guard refuses the inputs that it was made for", "fallback")
            fast: Any = built.model if self.whole else built.fast
            calls: dict[str, Call] = {
                "reference": lambda: instance.model(*instance.inputs),
                "candidate": lambda: fast(*instance.inputs),
            }
            with peak_above(torch.device("cuda")) as peak:
                calls["candidate"]()
            extra = _compiled(instance.model, instance.inputs, self.modes, [])
            budget = timing.Budget(self.budget_s)
            refresh = partial(timing.roll, instance.inputs)
            times = timing.interleave(calls | extra, clock, budget, refresh=refresh, seed=self.seed)
            slow = _median(times["candidate"]) > SLOW_MS
            host = timing.host_times(calls, clock, rounds=1 if slow else HOST_ROUNDS[self.whole])
            units = timing.unit_times(module, calls["candidate"], clock, rounds=1 if slow else 5) if self.units else {}
            wrong = self._still_right(calls)
        if wrong is not None:
            return wrong
        return self._timing(times, Extras(host, units, peak[0], first))

    def _still_right(self, calls: dict[str, Call]) -> Wrong | None:
        """The timed calls on the contents of the inputs as they are now: work that was skipped or remembered shows here."""
        import torch

        from mtmc.judge.accuracy import Errors, dtype_name, exact
        from mtmc.judge.device import tensors

        results = []
        for name in ("candidate", "reference"):
            torch.manual_seed(self.seed)
            results.append(tensors(calls[name]()))
        for number, (y, r) in enumerate(zip(*results, strict=True)):
            name = f"output {number} after timing"
            if not (r.is_floating_point() or r.is_complex()):
                found = exact(name, y, r)
                if found:
                    return replace(found, check="after_timing")
                continue
            errors = Errors(name, dtype_name(r))
            errors.add(y, r, r)
            if errors.strange or not errors.candidate_error <= self.tolerance:
                message = errors.strange or f"relative error {errors.candidate_error:.2e} against eager"
                return Wrong(f"{name}: {message}", "after_timing")
        return None

    def _timing(self, times: dict[str, NDArray[np.float64]], extras: Extras) -> Timing | Rejected:
        from mtmc.judge.timing import ratio_interval

        medians = {name: _median(values) for name, values in times.items()}
        if medians["candidate"] < self.floor_ms:
            message = f"{medians['candidate']:.4g} ms, but the hardware needs {self.floor_ms:.4g} ms"
            return Rejected("faster_than_hardware", message)
        interval = ratio_interval(times["reference"], times["candidate"], self.seed)
        return Timing(
            "measured",
            medians["reference"],
            medians["candidate"],
            interval.ratio,
            interval.low,
            interval.high,
            floor_ms=self.floor_ms,
            host_ms=extras.host["candidate"],
            reference_host_ms=extras.host["reference"],
            compiled_ms=min((medians[mode] for mode in self.modes if mode in medians), default=None),
            peak_bytes=extras.peak,
            first_call_s=extras.first_call_s,
            kernels_ms=extras.units,
        )


@dataclass(frozen=True)
class Extras:
    """What is measured beside the interleaved rounds: host times, units' times (ms), peak bytes, the first call (s)."""

    host: dict[str, float]
    units: dict[str, float]
    peak: int
    first_call_s: float


def _compiled(model: torch.nn.Module, inputs: tuple[Any, ...], modes: tuple[str, ...], notes: list[str]) -> dict[str, Call]:
    """torch.compile's calls by mode, each called once; a mode that fails is noted and left out."""
    import torch

    calls: dict[str, Call] = {}
    for mode in modes:
        torch.compiler.reset()
        fast = torch.compile(model, mode=mode)
        try:
            fast(*inputs)
        except RuntimeError as error:  # Dynamo's and Inductor's errors are RuntimeErrors
            notes.append(f"torch.compile({mode}) failed: {str(error).splitlines()[0]}")
            continue
        calls[mode] = partial(fast, *inputs)
    return calls


def _median(values: NDArray[np.float64]) -> float:
    import numpy as np

    return float(np.median(values))
