"""The analytic time model: launches and PyTorch calls to predicted milliseconds on a Profile.

A kernel's time is a soft maximum over its pipes (DRAM, L2, arithmetic, matrix unit, special functions, shared memory,
load/store) and its latency, plus a fixed start-up. docs/analytic_model.md has the formulas; every free constant is in
`Profile.efficiency`. Everything here is *predicted*; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod, sqrt

from mtmc.graph import TensorType
from mtmc.hardware_profiles import Profile
from mtmc.judge.counts import count
from mtmc.judge.integers import SECTOR_BYTES
from mtmc.judge.traffic import ITEMSIZE, dram_bytes, written
from mtmc.judge.work import Counts, Dot
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


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps resident on one SM; `limit` is `registers`, `shared`, `warps` or `blocks`."""

    blocks: int
    warps: int
    fraction: float
    limit: str


@dataclass(frozen=True)
class KernelTime:
    """Device milliseconds of one kernel (or PyTorch call); `bound` names the largest of `parts` (ms each)."""

    name: str
    ms: float
    bound: str
    parts: Mapping[str, float]
    dram_bytes: float = 0.0
    flops: float = 0.0
    occupancy: Occupancy | None = None


@dataclass(frozen=True)
class Prediction:
    """Kernels in order and what the host needs to launch them; predictions add up."""

    kernels: tuple[KernelTime, ...] = ()
    host_ms: float = 0.0

    @property
    def device_ms(self) -> float:
        return sum(k.ms for k in self.kernels)

    @property
    def total_ms(self) -> float:
        """Device and host work in parallel: the slower of the two counts."""
        return max(self.device_ms, self.host_ms)

    @property
    def kernels_ms(self) -> dict[str, float]:
        """Milliseconds by kernel name, calls of one kernel summed."""
        times: dict[str, float] = {}
        for kernel in self.kernels:
            times[kernel.name] = times.get(kernel.name, 0.0) + kernel.ms
        return times

    def __add__(self, other: Prediction) -> Prediction:
        return Prediction(self.kernels + other.kernels, self.host_ms + other.host_ms)


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


def predict(launches: Sequence[Launch], profile: Profile) -> Prediction:
    """Time of kernels launched one after the other. Raises ValueError when a launch carries no Triton IR."""
    kernels: list[KernelTime] = []
    warm: frozenset[tuple[str, int]] = frozenset()
    for launch in launches:
        counts = work(launch, profile)
        kernels.append(kernel_time(launch, profile, counts, warm))
        warm = written(launch, profile, counts)
    return Prediction(tuple(kernels), len(launches) * profile.efficiency.launch_host_us / 1e3)


def work(launch: Launch, profile: Profile) -> Counts:
    """What the launch's middle program does. Depends on the profile's facts only, not on its efficiency."""
    wave = max(occupancy(launch, profile).blocks, 1) * profile.sm_count
    return count(launch, profile.warp_size, wave)


def kernel_time(
    launch: Launch, profile: Profile, counts: Counts | None = None, warm: frozenset[tuple[str, int]] = frozenset()
) -> KernelTime:
    """Device time of one launch. `warm` are tensors (dtype, elements) that the launch before left in the cache.

    Raises ValueError without Triton IR.
    """
    resident = occupancy(launch, profile)
    counts = counts or work(launch, profile)
    machine = _Machine(launch, profile, counts, max(resident.blocks, 1), warm)
    parts = machine.parts()
    fixed = profile.efficiency.kernel_latency_us / 1e3
    flops = counts.dot_flops + counts.float_lanes
    ms = fixed + soft_maximum(list(parts.values()), profile.efficiency.overlap_exponent)
    bound = max(parts, key=lambda name: parts[name])
    return KernelTime(launch.kernel, ms, bound, parts, machine.dram_bytes, flops * machine.programs, resident)


def soft_maximum(times: Sequence[float], exponent: float) -> float:
    """(Σ tᵉ)^(1/e): the largest time, somewhat more when others come near it (pipes do not overlap perfectly)."""
    top = max(times)
    return top * float(sum((t / top) ** exponent for t in times)) ** (1 / exponent) if top > 0 else 0.0


@dataclass(frozen=True)
class _Machine:
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
    def per_sm(self) -> int:
        """Programs of the busiest SM."""
        return ceil(self.programs / self.profile.sm_count)

    @property
    def rounds(self) -> int:
        """Waves: how often the resident blocks are replaced."""
        return ceil(self.programs / (self.profile.sm_count * self.blocks))

    @property
    def l2_bytes(self) -> float:
        """Traffic between L2 and all SMs; atomics are done in L2, read and write."""
        sectors = sum(a.sectors * (2 if a.kind == "atomic" else 1) for a in self.counts.accesses)
        return (sectors * SECTOR_BYTES + self.spill_bytes) * self.programs

    @property
    def spill_bytes(self) -> float:
        """Per program: spilled registers go out and in again each loop iteration."""
        threads = self.launch.num_warps * self.profile.warp_size
        return 2.0 * self.launch.stack_bytes * threads * max(self.counts.iterations, 1)

    @cached_property
    def dram_bytes(self) -> float:
        return dram_bytes(self.launch, self.profile, self.counts, self.blocks, self.warm)

    def parts(self) -> dict[str, float]:
        p, e = self.profile, self.profile.efficiency
        busy = min(self.programs, p.sm_count)
        seconds = {
            "dram": self.dram_bytes / (p.memory_bandwidth_gb_s * 1e9 * e.dram_fraction),
            "l2": self.l2_bytes / (e.l2_bytes_per_clock_per_sm * p.clock_hz * busy),
            "arithmetic": self.per_sm * self.arithmetic_seconds,
            "special": self.per_sm * self.counts.special_lanes / (e.sfu_lanes_per_clock_per_sm * p.clock_hz),
            "matrix": self.per_sm * sum(self.dot_seconds(d) for d in self.counts.dots),
            "shared": self.per_sm * self.shared_bytes / (e.shared_bytes_per_clock_per_sm * p.clock_hz),
            "load_store": self.per_sm * self.load_store_clocks / p.clock_hz,
            "latency": self.rounds * self.program_seconds,
        }
        return {name: 1e3 * value for name, value in seconds.items()}

    @property
    def arithmetic_seconds(self) -> float:
        """One program's instructions on one SM; address arithmetic is shared by the elements of a vector."""
        p, c = self.profile, self.counts
        rate = p.fp32_tflops * 1e12 / 2 / p.sm_count * p.efficiency.issue_fraction
        lanes = c.float_lanes + c.integer_lanes / self.vector + c.double_lanes * p.fp32_tflops / p.fp64_tflops
        return lanes / rate

    @property
    def vector(self) -> float:
        """Elements per memory instruction, on average."""
        lanes = sum(a.lanes for a in self.counts.accesses)
        return lanes / max(sum(a.lanes / a.vector for a in self.counts.accesses), 1.0) if lanes else 1.0

    def dot_seconds(self, dot: Dot) -> float:
        """Time of one program's products at the rate of the SM it has alone."""
        p = self.profile
        unit, fraction, products = DOT_UNITS.get(dot.unit[:2] if dot.unit.startswith("f8") else dot.unit, ("", "", 1))
        peak = p.tensor_tflops(unit) if unit else None
        if peak is None:
            peak, fraction = p.fp64_tflops if dot.unit == "f64" else p.fp32_tflops, "dot_ieee_fraction"
            products, fill = 1, 1.0
        else:
            fill = self.fill(dot)
        rate = peak * 1e12 / p.sm_count * float(getattr(p.efficiency, fraction)) * fill
        clocks = dot.turned * p.efficiency.tf32_turn_clocks_per_element if p.wgmma and unit == "tf32" else 0.0
        return dot.flops * products / rate + clocks * dot.executions / p.clock_hz

    def fill(self, dot: Dot) -> float:
        """Share of the matrix unit that a tile can use: warp-group instructions want 64 rows and 4 warps."""
        if self.profile.wgmma and (dot.m < FULL_TILE or self.launch.num_warps < WARPS_FOR_FULL_UNIT):
            return 0.6
        return 1.0

    @property
    def shared_bytes(self) -> float:
        """Operand tiles into shared memory once, and out as often as warps (or warp groups) read them."""
        total = 0.0
        for dot in self.counts.dots:
            grouped = self.profile.wgmma and dot.unit != "ieee" and self.fill(dot) == 1.0
            if grouped:
                reads = dot.m + dot.n * ceil(dot.m / FULL_TILE)
            else:
                reads = ceil(2 * self.launch.num_warps * sqrt(dot.m * dot.n / self.launch.num_warps))
            total += dot.batch * dot.k * (dot.m + dot.n + reads) * dot.itemsize * dot.executions
        return total

    @property
    def load_store_clocks(self) -> float:
        """128 bytes or one warp instruction or two sectors a clock, whichever is more."""
        clocks = 0.0
        for a in self.counts.accesses:
            instructions = a.lanes / a.vector / self.profile.warp_size
            clocks += max(instructions, a.lanes * a.itemsize / 128, a.sectors / 2) * (4 if a.kind == "atomic" else 1)
        return clocks

    @property
    def program_seconds(self) -> float:
        """One program from start to end when it has its SM for itself."""
        e, c = self.profile.efficiency, self.counts
        far = min(self.dram_bytes / max(self.l2_bytes, 1.0), 1.0)
        wait = e.memory_latency_ns * 1e-9 * (L2_LATENCY + (1 - L2_LATENCY) * far)
        share = min(self.launch.num_warps / WARPS_FOR_FULL_UNIT, 1.0)
        work = (self.arithmetic_seconds + sum(self.dot_seconds(d) for d in c.dots)) / share
        straight = 1 if any(a.kind == "load" for a in c.accesses) else 0
        ahead = max(c.pipeline_stages - 1, 1) if self.profile.async_copy else 1
        hidden = 0.0 if c.pipelined_phases == 0 else max(c.pipelined_phases * wait / ahead - work, wait)
        overheads = e.block_start_ns + c.iterations * e.iteration_overhead_ns + c.reductions * e.reduce_latency_ns
        return overheads * 1e-9 + (c.phases + straight) * wait + hidden + work


CONVERSION_PASSES = 2  # extra reads and writes of everything: cuDNN converts NCHW to channels-last and back
DEPTHWISE_FLOPS = 128  # per output element; below this a convolution has too few channels for the matrix unit
DEPTHWISE_SLOWDOWN = 4.5
VOLUME_SLOWDOWN = 6.5  # three-dimensional convolutions in cuDNN against two-dimensional ones
LONG_ROW = 4096  # elements; shorter rows stay on the chip between the passes of a softmax or LayerNorm
PASSES = {
    "batch_norm": 2.3,
    "group_norm": 3.8,
    "layer_norm": 3.0,
    "softmax": 2.0,
    "max_pool": 3.8,
    "avg_pool": 2.7,
    "cum": 2.2,
    "max.dim": 1.35,
    "min.dim": 1.35,
    "argm": 1.35,
}
"""Time of PyTorch's own kernels over that of moving their bytes once, by part of the name (H200, torch 2.11)."""
MATRIX_CALLS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "einsum", "mv", "addmv", "dot", "bilinear")
MATRIX_PREFIXES = ("scaled_dot_product", "_scaled_dot_product", "lstm", "gru", "rnn_")


def predict_aten(
    op: str, inputs: Sequence[TensorType], outputs: Sequence[TensorType], flops: float, profile: Profile, kernels: int = 1
) -> Prediction:
    """Time of one ATen operator run eagerly by PyTorch: bytes moved as often as its kernels do, `flops` (two a multiply-add)
    at library rates.

    fp32 matmuls run at the fp32 rate, fp32 convolutions in TF32 (PyTorch's default flags), NCHW convolutions with a layout
    conversion around them. `kernels` is how many kernels the operator launches, one after the other (RNN steps).
    """
    e = profile.efficiency
    name = op.removeprefix("aten.").split(".")[0]
    moved = sum(t.numel * ITEMSIZE.get(t.dtype, 4) for t in (*inputs, *outputs))
    memory = moved / (profile.memory_bandwidth_gb_s * 1e9 * e.dram_fraction)
    dtype = inputs[0].dtype if inputs else "float32"
    conversion = compute = 0.0
    if "conv" in name and len(inputs) > 1:
        slowdown, passes = _convolution(inputs[1], outputs, flops)
        memory, conversion = memory * slowdown[0], memory * passes
        compute = flops * slowdown[1]
        compute /= _library_rate("tf32" if dtype == "float32" else dtype, e.library_convolution_fraction, profile)
    elif name in MATRIX_CALLS or name.startswith(MATRIX_PREFIXES):
        compute = flops / _library_rate(dtype, e.library_tensor_fraction, profile)
    elif inputs:
        memory *= _passes(op, inputs, profile)
    parts = {"dram": 1e3 * (memory + conversion), "matrix": 1e3 * compute}
    ms = kernels * e.kernel_latency_us / 1e3 + 1e3 * conversion
    ms += soft_maximum([1e3 * memory, 1e3 * compute], e.overlap_exponent)
    bound = max(parts, key=lambda part: parts[part])
    return Prediction((KernelTime(op, ms, bound, parts, moved, flops),), kernels * e.aten_host_us / 1e3)


def _convolution(weight: TensorType, outputs: Sequence[TensorType], flops: float) -> tuple[tuple[float, float], float]:
    """((slowdown of memory, of products), layout-conversion passes) of a cuDNN convolution."""
    taps = weight.shape[2:]
    if flops < DEPTHWISE_FLOPS * max(sum(t.numel for t in outputs), 1):
        return (DEPTHWISE_SLOWDOWN, 1.0), 0.0
    if prod(taps) == 1:  # a matrix product in place
        return (1.0, 1.0), 0.0
    return (1.0, VOLUME_SLOWDOWN if len(taps) == 3 and min(taps) > 1 else 1.0), CONVERSION_PASSES


def _passes(op: str, inputs: Sequence[TensorType], profile: Profile) -> float:
    """How often the bytes are moved; norms that give one block a channel or a row leave SMs idle when those are few."""
    x = inputs[0]
    passes = next((times for part, times in PASSES.items() if part in op), 1.0)
    blocks = profile.sm_count
    row = x.shape[-1] if x.shape else 1
    if "batch_norm" in op and len(x.shape) > 1:
        blocks = x.shape[1]
    elif "layer_norm" in op and len(inputs) > 1:
        row = inputs[1].numel
        blocks = x.numel // max(row, 1)
    if ("layer_norm" in op or "softmax" in op) and row <= LONG_ROW:
        passes = 1.0
    return passes * max(1.0, profile.sm_count / max(blocks, 1))


def _library_rate(dtype: str, fraction: float, profile: Profile) -> float:
    """FLOP/s of cuBLAS or cuDNN on operands of a dtype; `tf32` falls back to the fp32 rate where there is no such unit."""
    unit = {"float16": "fp16", "bfloat16": "bf16", "tf32": "tf32"}.get(dtype, "")
    peak: float | None = getattr(profile, f"{unit}_tensor_dense_tflops") if unit else None
    if peak is not None:
        return peak * 1e12 * fraction
    scalar = profile.fp64_tflops if dtype == "float64" else profile.fp32_tflops
    return scalar * 1e12 * profile.efficiency.library_fp32_fraction


def floor_ms(input_bytes: float, output_bytes: float, operations: Mapping[str, float], profile: Profile) -> float:
    """Milliseconds that no program can beat, from data-sheet peaks without any efficiency factor.

    `operations` maps a unit (`fp32`, `fp64`, `tf32`, `fp16`, `bf16`, `fp8`) to the FLOPs it must do; units work in parallel.
    Inputs come from DRAM once (the cache is flushed before timing); output may still lie in the last-level cache at the end.
    """
    written = max(output_bytes - profile.last_level_cache_bytes, 0.0)
    times = [(input_bytes + written) / (profile.memory_bandwidth_gb_s * 1e9)]
    for unit, flops in operations.items():
        scalar = profile.fp64_tflops if unit == "fp64" else profile.fp32_tflops
        peak = getattr(profile, f"{unit}_tensor_dense_tflops", None) or scalar
        times.append(flops / (peak * 1e12))
    return 1e3 * max(times)
