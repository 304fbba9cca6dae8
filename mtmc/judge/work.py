"""Work of one program of a launch, as numbers: what counts.py finds and predict.py turns into time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import log2

import numpy as np

from mtmc.judge.integers import LINE_BYTES, SECTOR_BYTES, Ints


@dataclass
class Access:
    """One load, store or atomic. Totals are per program: `executions`, active `bytes`, distinct 32-byte `sectors`.

    `lanes` counts elements with inactive ones; `vector` is elements per instruction; `lines` are distinct 128-byte lines;
    `footprint_executions` leaves out loops in which the address stays the same; `corners` are first offsets for the walked
    programs, one array a visit.
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
    lines: float = 0
    lanes: float = 0
    descriptor: bool = False
    corners: list[Ints] = field(default_factory=list)

    @property
    def run(self) -> float:
        """Bytes that it touches of each 128-byte line, in whole sectors."""
        return min(SECTOR_BYTES * self.sectors / max(self.lines, 1.0), LINE_BYTES)

    @property
    def short_runs(self) -> float:
        """Halvings of a full line down to `run`: 0 for whole lines, 2 for single sectors."""
        return log2(LINE_BYTES / max(self.run, SECTOR_BYTES))

    @cached_property
    def distinct(self) -> int | None:
        """Different tiles among the walked programs; None when the addresses are unknown."""
        return int(np.unique(self.corners[0]).size) if self.corners else None

    @property
    def readers(self) -> float:
        """Walked programs for each distinct tile."""
        return self.corners[0].size / self.distinct if self.distinct else 1.0


@dataclass(frozen=True)
class Dot:
    """`executions` products of m×k by k×n tiles (`batch` of them); `unit` is the operand type or fp32's input precision.

    `turned` counts operand elements that lie the wrong way: not contiguous along k; for `ieee` those of b that do.
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
    over `pipeline_stages`; `iterations` counts loop iterations, `dot_iterations` those of loops with a dot, `reductions`
    cross-thread reductions and scans.
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
    dot_iterations: float = 0
    reductions: float = 0

    @property
    def dot_flops(self) -> float:
        return sum(dot.flops for dot in self.dots)

    def bytes(self, kind: str) -> float:
        return sum(a.bytes for a in self.accesses if a.kind == kind)
