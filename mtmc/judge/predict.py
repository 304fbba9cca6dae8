"""The analytic time model: launches and PyTorch calls to predicted milliseconds on a Profile.

A kernel's time is a soft maximum over its pipes (DRAM, L2, arithmetic, matrix unit, special functions, shared memory,
load/store) and its latency, plus a fixed start-up. docs/analytic_model.md has the formulas; every free constant is in
`Profile.efficiency`. Everything here is *predicted*; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from mtmc.graph import TensorType
from mtmc.hardware_profiles import Profile
from mtmc.judge.counts import count
from mtmc.judge.pipes import Machine, Occupancy, occupancy
from mtmc.judge.traffic import ITEMSIZE, written
from mtmc.judge.work import Counts
from mtmc.verdict import Known, Launch


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


def predict(launches: Sequence[Launch], profile: Profile) -> Prediction:
    """Time of kernels launched one after the other. Raises ValueError when a launch carries no Triton IR."""
    kernels: list[KernelTime] = []
    warm: frozenset[tuple[str, int]] = frozenset()
    for launch in launches:
        kernel, warm = _step(launch.known, profile, warm)
        kernels.append(kernel)
    return Prediction(tuple(kernels), len(launches) * profile.efficiency.launch_host_us / 1e3)


@lru_cache(maxsize=512)  # a candidate differs from the one before in a launch or two
def _step(known: Known, profile: Profile, warm: frozenset[tuple[str, int]]) -> tuple[KernelTime, frozenset[tuple[str, int]]]:
    """Time of one launch after one that left `warm`, and what it leaves itself."""
    counts = work(known.launch, profile)
    return kernel_time(known.launch, profile, counts, warm), written(known.launch, profile, counts)


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
    machine = Machine(launch, profile, counts, max(resident.blocks, 1), warm)
    parts = machine.parts()
    fixed = profile.efficiency.kernel_latency_us / 1e3
    flops = counts.dot_flops + counts.float_lanes
    pipes = [value for name, value in parts.items() if name != "dispatch"]
    ms = fixed + max(parts["dispatch"], soft_maximum(pipes, profile.efficiency.overlap_exponent))
    bound = max(parts, key=lambda name: parts[name])
    return KernelTime(launch.kernel, ms, bound, parts, machine.dram_bytes, flops * machine.programs, resident)


def soft_maximum(times: Sequence[float], exponent: float) -> float:
    """(Σ tᵉ)^(1/e): the largest time, somewhat more when others come near it (pipes do not overlap perfectly)."""
    top = max(times)
    return top * float(sum((t / top) ** exponent for t in times)) ** (1 / exponent) if top > 0 else 0.0


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
