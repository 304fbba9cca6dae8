"""The jobs that time: the reference alone, and a candidate beside it. docs/timing.md says what each figure is."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtmc.judge.door import Door
from mtmc.judge.jobs import HOST_BOUND_MS, Job, ReferenceTimes, Sizes, watched
from mtmc.problem import Problem
from mtmc.verdict import Rejected, Timing, Wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from mtmc.judge.timing import Call, Clock

SLOW_MS = 100.0  # candidates slower than this are not measured with care
HOST_ROUNDS = {False: 5, True: 15}  # wall-time rounds in a search, in the last judgement
GUARD_ROUNDS = 30
GRAPH_ROUNDS = 20
BUSY = "the host's times were taken while other work ran on the cores"
LAUNCH_BOUND = 1.5  # wall time over device time, from which on launching decides
FIRST_LOOKS = (2, 9)  # the round whose result is looked at first is drawn from these; later ones two or three times as late


@dataclass(frozen=True, kw_only=True)
class ReferenceJob(Job):
    """Time eager and the other `baselines`, interleaved."""

    kind = "gpu"
    stage = "time"
    problem: Problem
    baselines: tuple[str, ...] = ("compile-default",)
    budget_s: float = 0.5
    seed: int = 0

    def run(self) -> ReferenceTimes:
        import torch

        from mtmc.judge import baselines, timing
        from mtmc.judge.device import peak_above
        from mtmc.problem import instantiate

        instance = instantiate(self.problem, "cuda", self.seed)
        notes: list[str] = []
        with torch.no_grad():
            calls: dict[str, Call] = {"eager": lambda: instance.model(*instance.inputs)}
            calls["eager"]()  # what libraries keep from the first call on is not the model's
            with peak_above(torch.device("cuda")) as peak:
                calls["eager"]()
            calls |= baselines.make(self.baselines, instance.model, instance.inputs, notes)
            clock = timing.CudaClock()
            times = timing.interleave(calls, clock, timing.Budget(self.budget_s), seed=self.seed)
            host = timing.host_times({"eager": calls["eager"]}, clock.host_ms)
        medians = {name: _median(values) for name, values in times.items()}
        best = min((ms for name, ms in medians.items() if name != "eager"), default=None)
        return ReferenceTimes("measured", medians["eager"], best, host["eager"], peak[0], tuple(notes))


@dataclass(frozen=True, kw_only=True)
class LoadCompilerJob(Job):
    """In the worker of a candidate, before others must wait for it to time: what compiling the first baseline needs."""

    kind = "gpu"
    stage = "load"
    idle = True
    source: str

    def run(self) -> None:
        from mtmc.judge import baselines

        baselines.load_compiler()


@dataclass(frozen=True, kw_only=True)
class GpuTimeJob(Job):
    """Time the candidate against eager and the other `baselines`, interleaved in this process.

    `whole` times `forward` with its guard, as a user calls it; it must not fall back. A time below `floor_ms` is Rejected.
    Results of timed calls are compared with the reference's on the then current contents of the inputs, in rounds drawn at
    random and once more at the end; `tolerance` is the relative norm error allowed there.
    """

    kind = "gpu"
    stage = "time"
    problem: Problem
    source: str
    door: Door = Door()
    sizes: Sizes = None
    baselines: tuple[str, ...] = ()
    floor_ms: float = 0.0
    budget_s: float = 2.0
    seed: int = 0
    tolerance: float = 1e-2
    units: bool = True
    whole: bool = False

    def run(self) -> Any:
        """A Timing, or the Verdict on a candidate that is not to be believed."""
        import torch

        from mtmc.judge import baselines, candidate
        from mtmc.judge.timing import CudaClock
        from mtmc.problem import instantiate

        instance, notes = instantiate(self.problem, "cuda", self.seed), list[str]()
        clock = CudaClock()
        with torch.no_grad():
            others = baselines.make(self.baselines, instance.model, instance.inputs, notes)

        def judge() -> Timing | Rejected | Wrong:
            with candidate.imported(self.source, self.sizes) as module, torch.no_grad():
                began = time.monotonic()
                built = candidate.prepare(module, self.door, self.problem, instance.model, torch.device("cuda"), self.seed)
                candidate.run(built, instance.inputs)
                first = time.monotonic() - began
                if self.whole and not candidate.holds(module, built.model, instance.inputs):
                    return Wrong("the program's own guard refuses the inputs that it was made for", "fallback")
                fast: Any = built.model if self.whole else built.fast
                bench = Bench(
                    self,
                    module,
                    lambda: instance.model(*instance.inputs),
                    lambda: fast(*instance.inputs),
                    instance.inputs,
                    clock,
                )
                bench.extras = Extras(first_call_s=first, notes=notes)
                if self.whole and hasattr(module, "supports"):
                    bench.guard = lambda: module.supports(built.model, *instance.inputs)
                return bench.measure(others)

        return watched(judge)

    def timing(self, times: dict[str, NDArray[np.float64]], extras: Extras) -> Timing | Rejected:
        from mtmc.judge.timing import ratio_interval

        medians = {name: _median(values) for name, values in times.items()}
        if medians["candidate"] < self.floor_ms:
            message = f"{medians['candidate']:.4g} ms, but the hardware needs {self.floor_ms:.4g} ms"
            return Rejected("faster_than_hardware", message)
        interval = ratio_interval(times["reference"], times["candidate"], self.seed)
        others = {name: ms for name, ms in medians.items() if name not in ("reference", "candidate")}
        return Timing(
            "measured",
            medians["reference"],
            medians["candidate"],
            interval.ratio,
            interval.low,
            interval.high,
            floor_ms=self.floor_ms,
            host_ms=extras.host.get("candidate"),
            reference_host_ms=extras.host.get("reference"),
            compiled_ms=min((ms for name, ms in others.items() if name.startswith("compile")), default=None),
            peak_bytes=extras.peak,
            first_call_s=extras.first_call_s,
            kernels_ms=extras.units,
            baselines_ms=others,
            graph_ms=extras.graphs.get("candidate"),
            reference_graph_ms=extras.graphs.get("reference"),
            guard_us=extras.guard_us,
            launch_us=extras.launch_us,
            library_ms=extras.library,
            rounds=len(times["candidate"]),
            clocks=extras.clocks,
            notes=tuple(extras.notes),
        )


@dataclass
class Extras:
    """What is measured beside the interleaved rounds: times (ms) on the host, of units, of graphs; peak bytes, and more."""

    host: dict[str, float] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=dict)
    library: float | None = None
    peak: int = 0
    first_call_s: float = 0.0
    graphs: dict[str, float] = field(default_factory=dict)
    guard_us: float | None = None
    launch_us: float | None = None
    clocks: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Bench:
    """One candidate beside the reference, both as calls without arguments on the same `inputs`."""

    guard: Call | None = None

    def __init__(
        self, job: GpuTimeJob, module: Any, reference: Call, candidate: Call, inputs: tuple[Any, ...], clock: Clock
    ) -> None:
        self.job, self.module, self.inputs, self.clock = job, module, inputs, clock
        self.reference, self.candidate = reference, candidate
        self.extras = Extras()
        self.looks = Looks(random.Random(job.seed), most=20 if job.whole else 1)  # a search cannot wait for more
        self.writes = False

    def measure(self, others: dict[str, Call]) -> Timing | Rejected | Wrong:
        import torch

        from mtmc.judge import timing
        from mtmc.judge.clocks import Clocks
        from mtmc.judge.device import peak_above

        clocks, calls = Clocks(), {"reference": self.reference, "candidate": self._timed}
        with peak_above(torch.device("cuda")) as peak:
            self.candidate()
        self.writes = written(self.inputs, self.reference)
        precise = timing.DECISIVE if self.job.whole else timing.PRECISE
        budget = timing.Budget(self.job.budget_s, precise=precise)
        wrong: list[Wrong] = []

        def between(number: int) -> None:
            clocks.sample()
            if self.looks.armed and not wrong:
                wrong.extend(self._look(number))
            if number % timing.FRESH_EVERY == 0:
                timing.roll(self.inputs)
            self.looks.arm(number + 1)

        times = timing.interleave(calls | others, self.clock, budget, between=between, seed=self.job.seed)
        self.extras.peak, self.extras.clocks = peak[0], clocks.record()
        self.extras.notes += [clocks.note] * bool(clocks.note)
        if not wrong:
            self._beside(times)
            wrong.extend(self._at_last())
        return wrong[0] if wrong else self.job.timing(times, self.extras)

    def _timed(self) -> object:
        """The call that is timed; in rounds that are looked at its result is kept, under a known seed."""
        if not self.looks.armed:
            return self.candidate()
        import torch

        torch.manual_seed(self.job.seed)
        self.looks.result = self.candidate()
        return self.looks.result

    def _look(self, number: int) -> Iterator[Wrong]:
        """The result of a timed call against the reference on the same contents."""
        result, self.looks.result = self.looks.result, None
        if not self.writes:
            yield from self._compared(result, self._answer(self.reference), f"in round {number} of the timing")

    def _at_last(self) -> Iterator[Wrong]:
        """Both once more on contents that no call has seen, candidate first and freed memory poisoned."""
        from mtmc.judge import timing
        from mtmc.judge.dynamic.memory import poison_freed

        timing.roll(self.inputs)
        poison_freed()
        mine = self._answer(self.candidate)
        yield from self._compared(mine, self._answer(self.reference), "after timing")

    def _answer(self, call: Call) -> Any:
        """The results; copies where inputs are written and so put back: a result may lie in them."""
        import torch

        from mtmc.judge.device import tensors

        torch.manual_seed(self.job.seed)
        if not self.writes:
            return tensors(call())
        saved = [(x, x.clone()) for x in tensors(self.inputs) if 0 not in x.stride()]
        results = [y.clone() for y in tensors(call())]
        for x, value in saved:
            x.copy_(value)
        return results

    def _compared(self, mine: Any, theirs: Any, when: str) -> Iterator[Wrong]:
        from mtmc.judge.device import tensors
        from mtmc.judge.dynamic.subject import mismatch

        error = mismatch(tensors(mine), tensors(theirs))
        if not error <= self.job.tolerance:
            yield Wrong(f"the result {when} is off by {error:.2e} (relative norm, against eager)", "after_timing")

    def _beside(self, times: dict[str, NDArray[np.float64]]) -> None:
        """What the host pays, the units' shares, and both sides under graph replay where launching decides."""
        from mtmc.judge import shares, timing

        job, extras, candidate_ms = self.job, self.extras, _median(times["candidate"])
        slow, calls = candidate_ms > SLOW_MS, {"reference": self.reference, "candidate": self.candidate}
        extras.host = timing.host_times(calls, self.clock.host_ms, rounds=1 if slow else HOST_ROUNDS[job.whole])
        extras.notes += [BUSY] * (candidate_ms < HOST_BOUND_MS and not job.alone)
        if job.units:
            split = job.whole and not job.door.foreign
            found = shares.shares(self.module, self.candidate, self.clock.anew(), 1 if slow else 5, library=split)
            extras.units, extras.library = found.units, found.library if split else None
        if not job.whole or slow:
            return
        extras.launch_us = 1e3 * timing.host_times({"": self.candidate}, self.clock.launch_ms)[""]
        if self.guard:
            extras.guard_us = 1e3 * timing.host_times({"": self.guard}, self.clock.launch_ms, GUARD_ROUNDS)[""]
        if candidate_ms < HOST_BOUND_MS or extras.host["candidate"] > LAUNCH_BOUND * candidate_ms:
            self._graphs(calls)

    def _graphs(self, calls: dict[str, Call]) -> None:
        """Wall time under replay: what is left when launching costs nothing."""
        from mtmc.judge import baselines, timing

        for name, call in calls.items():
            try:
                replay = baselines.graphed(call)
                self.extras.graphs[name] = timing.host_times({name: replay}, self.clock.host_ms, GRAPH_ROUNDS)[name]
            except RuntimeError as error:
                self.extras.notes.append(f"no CUDA graph of the {name}: {str(error).splitlines()[0]}")


@dataclass
class Looks:
    """Which rounds are looked at: the first soon, later ones ever rarer, none to be foreseen."""

    random: random.Random
    most: int = 20
    armed: bool = False
    result: Any = None
    next: int = 0

    def arm(self, number: int) -> None:
        """Called before round `number`."""
        if not self.next:
            self.next = self.random.randint(*FIRST_LOOKS)
        self.armed = number == self.next and self.most > 0
        if self.armed:
            self.most -= 1
            self.next = number * 2 + self.random.randint(0, number)


def launch_bound(timing: Timing, either: bool) -> bool:
    """Whether the candidate's launches decide its time, or (`either`) those of the reference too."""
    if not either:
        return timing.candidate_ms < HOST_BOUND_MS
    sides = ((timing.candidate_ms, timing.host_ms), (timing.reference_ms, timing.reference_host_ms))
    return any(ms < HOST_BOUND_MS or (host or 0.0) > LAUNCH_BOUND * ms for ms, host in sides)


def written(inputs: tuple[Any, ...], call: Callable[[], object]) -> bool:
    """Whether a call of PyTorch operators writes to its inputs, by their version counters."""
    from mtmc.judge.device import tensors

    before = [x._version for x in tensors(inputs)]
    call()
    return before != [x._version for x in tensors(inputs)]


def _median(values: NDArray[np.float64]) -> float:
    import numpy as np

    return float(np.median(values))
