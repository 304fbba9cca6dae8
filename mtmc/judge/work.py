"""Work of one program of a launch, as numbers: what counts.py finds and predict.py turns into time."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtmc.judge.integers import Ints


@dataclass
class Access:
    """One load, store or atomic. Totals are per program: `executions`, active `bytes`, distinct 32-byte `sectors`.

    `lanes` counts elements with inactive ones; `vector` is elements per instruction; `footprint_executions` leaves out
    loops in which the address stays the same; `corners` are first offsets for the walked programs, one array a visit.
    """

    kind: str
    root: str
    itemsize: int
    shape: tuple[int, ...]
    vector: int = 1
    extent: int = 0
    executions: float = 0
    footprint_executions: float = 0
    bytes: float = 0
    sectors: float = 0
    lanes: float = 0
    corners: list[Ints] = field(default_factory=list)


@dataclass(frozen=True)
class Dot:
    """`executions` products of m×k by k×n tiles (`batch` of them); `unit` is the operand type or fp32's input precision.

    `turned` counts the operands' elements that do not lie contiguous along k in memory.
    """

    batch: int
    m: int
    n: int
    k: int
    unit: str
    itemsize: int
    executions: float
    turned: int = 0

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k * self.executions


@dataclass
class Counts:
    """Work of the middle program. Lanes are instructions × elements, at least one a thread.

    `phases` are serial waits for memory, `pipelined_phases` those a software pipeline can hide (loads that feed a dot),
    over `pipeline_stages`; `iterations` counts loop iterations, `reductions` cross-thread reductions and scans.
    """

    accesses: list[Access] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    float_lanes: float = 0
    double_lanes: float = 0
    integer_lanes: float = 0
    special_lanes: float = 0
    phases: float = 0
    pipelined_phases: float = 0
    pipeline_stages: int = 1
    iterations: float = 0
    reductions: float = 0

    @property
    def dot_flops(self) -> float:
        return sum(dot.flops for dot in self.dots)

    def bytes(self, kind: str) -> float:
        return sum(a.bytes for a in self.accesses if a.kind == kind)
