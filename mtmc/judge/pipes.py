"""The pipes of one GPU: how long each of them needs for one launch. docs/analytic_model.md has the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod, sqrt

from mtmc.hardware_profiles import Profile
from mtmc.judge.integers import SECTOR_BYTES
from mtmc.judge.traffic import dram_bytes
from mtmc.judge.work import Access, Counts, Dot
from mtmc.verdict import Launch

DOT_UNITS: dict[str, tuple[str, str, int]] = {
    "f16": ("fp16", "dot_16bit_fraction", 1),
    "bf16": ("bf16", "dot_16bit_fraction", 1),
    "tf32": ("tf32", "dot_tf32_fraction", 1),
    "tf32x3": ("tf32", "dot_tf32x3_fraction", 3),
    "bf16x3": ("bf16", "dot_bf16x3_fraction", 3),
    "bf16x6": ("bf16", "dot_bf16x6_fraction", 6),
    "f8": ("fp8", "dot_16bit_fraction", 1),
    "i8": ("fp8", "dot_16bit_fraction", 1),
}
"""Operand type or input precision → (matrix unit, efficiency, products done per product asked)."""

L2_LATENCY = 0.4  # of the DRAM latency
WARPS_FOR_FULL_UNIT = 4  # one per scheduler
FULL_TILE = 64  # rows of a warp-group matrix instruction
SMALL_TILE = 0.6  # rate of the matrix unit by plain warp instructions
SPILLED_OUTSIDE = 160  # stack bytes a thread that cost nothing: ptxas spills first what no loop needs
SPILL_SLOWDOWN = 1.9  # of products: accumulators move between instructions, which then run one at a time
BROADCAST = 0.5  # reads of a left operand by the threads of a warp, scalar products
CONFLICTS = 7  # reads of a right operand that is contiguous along k: bank conflicts
L2_SHORT_RUN = 0.2  # more L2 time for each halving of a 128-byte line
SPLIT_INSTRUCTIONS = 5  # for each operand element read by a dot that Triton splits into parts (`tf32x3`, `bf16x3`)
DOT_LOOP_INSTRUCTIONS = 60, 20  # a warp and iteration: barriers, copies, matrix loads; with warp-group instructions


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps resident on one SM; `limit` is `registers`, `shared`, `warps` or `blocks`."""

    blocks: int
    warps: int
    fraction: float
    limit: str


def occupancy(launch: Launch, profile: Profile) -> Occupancy:
    """Blocks of `launch` that fit on one SM together; 0 when not even one does.

    Registers are handed out per warp in fixed portions, shared memory in fixed portions after a reserved part per block
    (CUDA occupancy calculator).
    """
    portion = profile.registers_per_warp_granularity
    per_warp = ceil(max(launch.registers, 1) * profile.warp_size / portion) * portion
    shared = launch.shared_bytes + profile.shared_reserved_per_block_bytes
    shared = ceil(shared / profile.shared_granularity_bytes) * profile.shared_granularity_bytes
    limits = {
        "registers": profile.registers_per_sm // per_warp // 4 * 4 // launch.num_warps,
        "shared": profile.shared_per_sm_bytes // shared if shared else profile.max_blocks_per_sm,
        "warps": profile.max_warps_per_sm // launch.num_warps,
        "blocks": profile.max_blocks_per_sm,
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * launch.num_warps, blocks * launch.num_warps / profile.max_warps_per_sm, limit)


@dataclass(frozen=True)
class Machine:
    """One launch on one GPU: the time of each pipe, in milliseconds."""

    launch: Launch
    profile: Profile
    counts: Counts
    blocks: int
    warm: frozenset[tuple[str, int]]

    @property
    def programs(self) -> int:
        return prod(self.launch.grid)

    @property
    def threads(self) -> int:
        return self.launch.num_warps * self.profile.warp_size

    @property
    def busy(self) -> int:
        """SMs with at least one program."""
        return min(self.programs, self.profile.sm_count)

    @property
    def per_sm(self) -> int:
        """Programs of the busiest SM."""
        return ceil(self.programs / self.profile.sm_count)

    @property
    def rounds(self) -> int:
        """Waves: how often the resident blocks are replaced."""
        return ceil(self.programs / (self.profile.sm_count * self.blocks))

    @cached_property
    def dram_bytes(self) -> float:
        return dram_bytes(self.launch, self.profile, self.counts, self.blocks, self.warm)

    def parts(self) -> dict[str, float]:
        p, e = self.profile, self.profile.efficiency
        seconds = {
            "dispatch": self.programs * e.block_dispatch_ns * 1e-9,
            "dram": self.dram_seconds,
            "l2": self.programs * self.l2_seconds / self.busy,
            "arithmetic": self.per_sm * self.arithmetic_seconds,
            "special": self.per_sm * self.counts.special_lanes / (e.sfu_lanes_per_clock_per_sm * p.clock_hz),
            "matrix": self.per_sm * self.matrix_seconds,
            "shared": self.per_sm * sum(map(self.shared_seconds, self.counts.dots)),
            "load_store": self.per_sm * self.load_store_clocks / p.clock_hz,
            "latency": self.rounds * self.program_seconds,
        }
        return {name: 1e3 * value for name, value in seconds.items()}

    @property
    def dram_seconds(self) -> float:
        return self.dram_bytes / (self.profile.memory_bandwidth_gb_s * 1e9 * self.profile.efficiency.dram_fraction)

    @cached_property
    def l2_seconds(self) -> float:
        """One program's traffic with L2. Tiles that several programs read at a time cost less; atomics are done in L2."""
        return (
            sum(self.l2_clocks(a) * (2 if a.kind == "atomic" else 1) for a in self.counts.accesses) / self.profile.clock_hz
        )

    def l2_clocks(self, access: Access) -> float:
        e = self.profile.efficiency
        rate = e.l2_shared_bytes_per_clock_per_sm if access.readers >= 2 else e.l2_bytes_per_clock_per_sm
        return access.sectors * SECTOR_BYTES * (1 + L2_SHORT_RUN * access.short_runs) / rate

    @cached_property
    def spilled(self) -> int:
        """Stack bytes a thread that go out and in again each iteration. Descriptors leave no pointers to spill in a loop."""
        outside = SPILLED_OUTSIDE if self.counts.iterations > 1 else 0
        descriptors = any(a.descriptor for a in self.counts.accesses)
        return self.launch.stack_bytes if self.launch.stack_bytes > outside * (2 if descriptors else 1) else 0

    @cached_property
    def arithmetic_seconds(self) -> float:
        """One program's instructions on one SM; address arithmetic is shared by the elements of a vector."""
        p, c = self.profile, self.counts
        rate = p.fp32_tflops * 1e12 / 2 / p.sm_count * p.efficiency.issue_fraction
        lanes = c.float_lanes + c.integer_lanes / self.vector + c.double_lanes * p.fp32_tflops / p.fp64_tflops
        loop = DOT_LOOP_INSTRUCTIONS[any(map(self.grouped, c.dots))]
        lanes += c.dot_iterations * self.threads * loop + sum(map(self.split_lanes, c.dots))
        return lanes / rate

    def split_lanes(self, dot: Dot) -> float:
        """Instructions that split fp32 operands: of a tile once by warp groups, of what it reads by each single warp."""
        if not dot.unit.endswith(("x3", "x6")):
            return 0.0
        read = dot.m + dot.n if self.grouped(dot) else self.shared_reads(dot)
        return SPLIT_INSTRUCTIONS * dot.batch * dot.k * read * dot.executions

    @property
    def vector(self) -> float:
        """Elements per memory instruction, on average."""
        lanes = sum(a.lanes for a in self.counts.accesses)
        return lanes / max(sum(a.lanes / a.vector for a in self.counts.accesses), 1.0) if lanes else 1.0

    @cached_property
    def matrix_seconds(self) -> float:
        """One program's products."""
        return sum(self.dot_seconds(d) for d in self.counts.dots) * (SPILL_SLOWDOWN if self.spilled else 1.0)

    def dot_seconds(self, dot: Dot) -> float:
        """Time of one program's products at the rate of the SM it has alone."""
        p = self.profile
        unit, fraction, products = DOT_UNITS.get(dot.unit[:2] if dot.unit.startswith("f8") else dot.unit, ("", "", 1))
        peak = p.tensor_tflops(unit) if unit else None
        if peak is None:
            peak, fraction = p.fp64_tflops if dot.unit == "f64" else p.fp32_tflops, "dot_ieee_fraction"
            products = 1
        grouped = self.grouped(dot)
        rate = peak * 1e12 / p.sm_count * float(getattr(p.efficiency, fraction))
        rate *= SMALL_TILE if p.wgmma and unit and not grouped else 1.0
        turned = dot.turned * sqrt(dot.n / FULL_TILE) if grouped and unit == "tf32" else 0.0  # wide tiles conflict more
        clocks = turned * p.efficiency.tf32_turn_clocks_per_element
        return dot.flops * products / rate + clocks * dot.executions / p.clock_hz

    def grouped(self, dot: Dot) -> bool:
        """Does it become warp-group instructions? They want 64 rows and 4 warps."""
        full = dot.m >= FULL_TILE and self.launch.num_warps >= WARPS_FOR_FULL_UNIT
        return self.profile.wgmma and dot.unit in DOT_UNITS and full

    def shared_seconds(self, dot: Dot) -> float:
        """Operand tiles into shared memory once, and out as often as warps (warp groups, threads) read them."""
        moved = dot.batch * dot.k * (dot.m + dot.n + self.shared_reads(dot)) * dot.itemsize * dot.executions
        return moved / (self.profile.efficiency.shared_bytes_per_clock_per_sm * self.profile.clock_hz)

    def shared_reads(self, dot: Dot) -> float:
        """Operand elements read for each step along k."""
        if self.grouped(dot):
            return dot.m + dot.n * ceil(dot.m / FULL_TILE)
        if dot.unit != "ieee":
            return 2 * sqrt(dot.m * dot.n * self.launch.num_warps)
        return sqrt(dot.m * dot.n * self.threads) * (BROADCAST + (CONFLICTS if dot.turned else 1))

    @property
    def load_store_clocks(self) -> float:
        """128 bytes or one warp instruction or two sectors a clock, whichever is more; spilled registers at half that."""
        clocks = 2.0 * self.spilled * self.threads * max(self.counts.iterations, 1) / 64
        for a in self.counts.accesses:
            instructions = a.lanes / a.vector / self.profile.warp_size
            clocks += max(instructions, a.lanes * a.itemsize / 128, a.sectors / 2) * (4 if a.kind == "atomic" else 1)
        return clocks

    @property
    def program_seconds(self) -> float:
        """One program from start to end when it has its SM for itself; stores need not be waited for."""
        e, c = self.profile.efficiency, self.counts
        moved = sum(a.sectors * SECTOR_BYTES for a in c.accesses)
        loaded = sum(a.sectors * SECTOR_BYTES for a in c.accesses if a.kind != "store")
        far = min(self.dram_bytes / max(moved * self.programs, 1.0), 1.0)
        wait = e.memory_latency_ns * 1e-9 * (L2_LATENCY + (1 - L2_LATENCY) * far)
        own = max(self.dram_seconds * self.busy / self.programs, self.l2_seconds) * loaded / max(moved, 1.0)
        share = min(self.launch.num_warps / WARPS_FOR_FULL_UNIT, 1.0)
        alone = [d for d in c.dots if not self.grouped(d) or not c.pipelined_phases]
        operands = sum(map(self.shared_seconds, alone))  # nothing runs meanwhile
        work = (self.arithmetic_seconds + self.matrix_seconds + operands) / share
        straight = 1 if loaded else 0
        if c.pipelined_phases:
            ahead = max(c.pipeline_stages - 1, 1) if self.profile.async_copy else 1
            own = max((own + c.pipelined_phases * wait) / ahead, wait)
        overheads = e.block_start_ns + c.iterations * e.iteration_overhead_ns + c.reductions * e.reduce_latency_ns
        return overheads * 1e-9 + (c.phases + straight) * wait + own + work
