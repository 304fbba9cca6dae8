"""Verdict: what the judge says of one candidate. A sum type; the status decides which fields exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from math import log
from typing import Any, ClassVar


@dataclass(frozen=True)
class Launch:
    """One kernel launch as seen by a driver (real or stand-in).

    Registers per thread, stack (spill) bytes per thread, shared memory in bytes per block. `arguments` maps each
    parameter name to its type: `("tensor", dtype, shape, strides)`, or the scalar itself. `ttir` is the kernel's Triton IR,
    `load_bits` the widths of its loads from global memory as compiled, where they can be read.
    """

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    arguments: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    ttir: str = ""
    load_bits: tuple[int, ...] = ()

    @property
    def known(self) -> Known:
        """As the key of a memo."""
        return Known(repr(self), self)


@dataclass(frozen=True)
class Known:
    """A launch, equal to others by its text, in which 1, 1.0 and True differ: as values they are equal, to a kernel not."""

    text: str
    launch: Launch = field(compare=False)


@dataclass(frozen=True)
class Timing:
    """Times in milliseconds, device time with a flushed L2; `kind` is `measured` or `predicted` (`unknown`: there is none).

    `speedup` is reference over candidate (best reference: eager), with a 95 % interval [`low`, `high`] when measured
    (equal to `speedup` when predicted). `host_ms` is wall time per call after synchronisation. `floor_ms` is the time the
    hardware needs at least. `kernels_ms` splits the candidate's time by unit, `library_ms` is what its PyTorch calls take
    beside them; `compiled_ms` is torch.compile's best time.

    `baselines_ms` are other ways to run the reference, by name. `graph_ms` and `reference_graph_ms` are wall times under
    CUDA-graph replay, where launching decides. `guard_us` is the program's own check of its inputs, `launch_us` how long a
    call takes to return, both on the host. `clocks` is what NVML said meanwhile (MHz, °C, W, throttle reasons). `notes` say
    what failed.
    """

    kind: str
    reference_ms: float
    candidate_ms: float
    speedup: float
    low: float
    high: float
    floor_ms: float = 0.0
    host_ms: float | None = None
    reference_host_ms: float | None = None
    compiled_ms: float | None = None
    peak_bytes: int | None = None
    first_call_s: float | None = None
    kernels_ms: dict[str, float] = field(default_factory=dict)
    baselines_ms: dict[str, float] = field(default_factory=dict)
    graph_ms: float | None = None
    reference_graph_ms: float | None = None
    guard_us: float | None = None
    launch_us: float | None = None
    library_ms: float | None = None
    rounds: int = 0
    clocks: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def decision(self) -> str:
        """`faster`, `slower`, `equal` (within 1 %) or `no verdict`: the candidate against the reference."""
        return decide(self.speedup, self.low, self.high)

    @property
    def floor_share(self) -> float | None:
        """The part of the candidate's time that the hardware needs; None where the floor is unknown."""
        return self.floor_ms / self.candidate_ms if self.floor_ms else None

    @property
    def kernel_share(self) -> float | None:
        """The part of the candidate's device time that is spent in its own kernels; None where it was not split."""
        whole = sum(self.kernels_ms.values()) + (self.library_ms or 0.0)
        return sum(self.kernels_ms.values()) / whole if self.library_ms is not None and whole else None


NEAR = 0.01  # relative difference that counts as none
SURER = 1.314  # half width of a 99 % interval over that of a 95 % interval (normal)


def decide(ratio: float, low: float, high: float) -> str:
    """What a ratio of times with its 95 % interval says: `faster` (above 1), `slower`, `equal` or `no verdict`.

    An interval that spans 1 is no verdict, unless all of it is within 1 %: then the two are equal for every purpose. For a
    difference to be found the 99 % interval must exclude 1: under the 95 % one, one in twenty pairs of equals would differ.
    """
    below, above = ratio - SURER * (ratio - low), ratio + SURER * (high - ratio)
    if below > 1 - NEAR and above < 1 + NEAR:
        return "equal"
    if below <= 1 <= above:
        return "no verdict"
    return "faster" if ratio > 1 else "slower"


@dataclass(frozen=True)
class Accuracy:
    """Relative norm errors against the fp64 oracle, the largest over the checked inputs.

    `checked` names what was run (`uniform full size`, `odd sizes 3x65`, …); `skipped` says what could not be checked.
    `candidate_ulp` and `reference_ulp` are the largest and the median error in units in the last place of the output's
    dtype, None in runs older than they are.
    """

    candidate_error: float
    reference_error: float
    checked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    candidate_ulp: tuple[float, float] | None = None
    reference_ulp: tuple[float, float] | None = None


@dataclass(frozen=True)
class Finding:
    """What a static or dynamic check found. `rule` is its id, `static.NAME` or `dynamic.NAME`.

    `line` counts from 1 in the candidate's source; 0 where no line is to blame. `why` is one sentence for a person.
    `certainty` is `certain`, `likely` or `possible`; `level` is `reject` or `warn`.
    """

    rule: str
    line: int
    why: str
    certainty: str = "certain"
    level: str = "reject"


def rejection(findings: Iterable[Finding]) -> Rejected | None:
    """The verdict of the first finding that rejects; None where all only warn."""
    for finding in findings:
        if finding.level == "reject":
            where = f"line {finding.line}: " if finding.line else ""
            return Rejected(finding.rule, where + finding.why)
    return None


@dataclass(frozen=True)
class Verdict:
    """Base of the variants below; never built itself."""

    status: ClassVar[str] = ""

    @property
    def compiled(self) -> bool:
        return not isinstance(self, (CompileError, Infra))

    @property
    def correct(self) -> bool:
        return isinstance(self, Verified)

    @property
    def log_speedup(self) -> float | None:
        """Over the reference, natural logarithm; None unless verified."""
        return log(self.timing.speedup) if isinstance(self, Verified) else None

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, **asdict(self)}


@dataclass(frozen=True)
class CompileError(Verdict):
    """`cause` is `syntax`, `shared_memory` or `compile`."""

    status: ClassVar[str] = "compile_error"
    message: str
    cause: str = "compile"


@dataclass(frozen=True)
class RuntimeFault(Verdict):
    """The candidate raised, crashed or left its worker.

    `cause` is `raised`, `out_of_bounds`, `race`, `assert` (on the device), `refused` (a check before a launch) or `died`.
    """

    status: ClassVar[str] = "runtime_fault"
    message: str
    cause: str = "raised"


@dataclass(frozen=True)
class Wrong(Verdict):
    """The candidate's output differs; `check` names the failed rule (`values`, `shape`, `dtype`, `nan`, `mutation`, …)."""

    status: ClassVar[str] = "wrong"
    message: str
    check: str = "values"
    candidate_error: float | None = None
    reference_error: float | None = None


@dataclass(frozen=True)
class Timeout(Verdict):
    """`stage` is `compile`, `verify` or `time`."""

    status: ClassVar[str] = "timeout"
    stage: str
    seconds: float


@dataclass(frozen=True)
class Rejected(Verdict):
    """Not believed: a hack check or a time below what the hardware can do."""

    status: ClassVar[str] = "rejected"
    rule: str
    message: str


@dataclass(frozen=True)
class Infra(Verdict):
    """The machine's fault; carries no reward and is never learnt from."""

    status: ClassVar[str] = "infra"
    message: str


@dataclass(frozen=True)
class Verified(Verdict):
    """Correct as far as was checked, with its time. `findings` are warnings."""

    status: ClassVar[str] = "verified"
    timing: Timing
    accuracy: Accuracy
    launches: tuple[Launch, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON without the bulky IR text and the arguments of the launches."""
        data = super().to_json()
        for launch in data["launches"]:
            launch.pop("ttir")
            launch.pop("load_bits")
            launch.pop("arguments")
        return data


VARIANTS: dict[str, type[Verdict]] = {
    v.status: v for v in (CompileError, RuntimeFault, Wrong, Timeout, Rejected, Infra, Verified)
}


def from_json(data: dict[str, Any]) -> Verdict:
    """Inverse of `to_json`. Raises KeyError for an unknown status."""
    fields = {k: v for k, v in data.items() if k != "status"}
    if data["status"] == Verified.status:
        lists = {name: tuple(value) for name, value in fields["accuracy"].items() if isinstance(value, list)}
        accuracy = {**fields["accuracy"], **lists}
        launches = tuple(Launch(**{**launch, "grid": tuple(launch["grid"])}) for launch in fields["launches"])
        timing = {**fields["timing"], "notes": tuple(fields["timing"].get("notes", ()))}
        findings = tuple(Finding(**finding) for finding in fields.get("findings", ()))
        return Verified(Timing(**timing), Accuracy(**accuracy), launches, findings)
    return VARIANTS[data["status"]](**fields)
