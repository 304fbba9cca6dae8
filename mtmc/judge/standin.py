"""A Triton driver that compiles for a chosen GPU and records launches instead of making them. Needs no GPU, touches none.

    with stand_in(profile) as recorder, torch.device("meta"):
        ModelNew(*init)(*inputs)          # the candidate's own code, at full size, on meta tensors
    recorder.launches                     # grid, arguments, registers, stack, shared memory, IR of every launch

Everything before the launch is Triton's own: specialisation (a meta view's `data_ptr()` is its byte offset, so misaligned
views are seen), compilation down to the binary, `@triton.autotune` over all configurations, and `OutOfResources` for too
much shared memory. Use it in a process that imports the candidate afresh: an autotuner remembers its choice for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import InfraError
from mtmc.judge.resources import Usage, usage
from mtmc.verdict import Launch

if TYPE_CHECKING:
    import torch

    from mtmc.hardware_profiles import Profile

MAX_GRID = {"cuda": (2**31 - 1, 65535, 65535), "hip": (2**31 - 1, 2**31 - 1, 2**31 - 1)}
MAX_THREADS = 1024  # per block, on every GPU of both makers so far


@dataclass
class Recorder:
    """`launches` as the candidate would make them; `tried` are those made only to choose an autotuned configuration."""

    launches: list[Launch] = field(default_factory=list)
    tried: list[Launch] = field(default_factory=list)
    tuning: bool = False

    def add(self, launch: Launch) -> None:
        (self.tried if self.tuning else self.launches).append(launch)


@contextmanager
def stand_in(profile: Profile) -> Iterator[Recorder]:
    """Replaces the active Triton driver inside the block. Raises InfraError in a process that interprets kernels."""
    from triton import knobs
    from triton.runtime.driver import driver

    if knobs.runtime.interpret:
        raise InfraError("with TRITON_INTERPRET=1 nothing is compiled: the stand-in driver needs a process of its own")
    before = driver._active  # the property `active` would look for a GPU
    active = _Driver(profile)
    driver.set_active(active)
    try:
        yield active.recorder
    finally:
        driver.set_active(before)


class _Driver:
    """The part of Triton's driver interface that compiling and launching use."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.device = f"{profile.name} {profile.capability} {profile.shared_per_block_bytes}"
        self.recorder = Recorder()
        self.utils = _Utils(profile)
        self.launcher_cls = _Launcher

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.profile.backend, self.profile.capability, self.profile.warp_size)

    def get_current_device(self) -> str:
        """Triton keys its kernel caches by this value: one cache a profile, none shared with a real device."""
        return self.device

    def get_current_stream(self, device: str) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        import torch

        return torch.device("meta")

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return _benchmark


@dataclass(frozen=True)
class _Utils:
    """What Triton asks of the loaded driver library."""

    profile: Profile

    def get_device_properties(self, device: str) -> dict[str, int]:
        return {
            "max_shared_mem": self.profile.shared_per_block_bytes,
            "max_num_regs": self.profile.registers_per_sm,
            "multiprocessor_count": self.profile.sm_count,
            "warpSize": self.profile.warp_size,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: str) -> tuple[object, Usage, int, int, int]:
        """(module, function, registers, spill bytes, threads per block); the usage stands in for the function."""
        used = usage(binary, self.profile.backend)
        return object(), used, used.registers, used.stack_bytes, MAX_THREADS

    def unload_module(self, module: object) -> None:
        """Nothing was loaded."""


def _benchmark(call: Callable[[], object], quantiles: Sequence[float] = (0.5,), **options: object) -> Sequence[float]:
    """Compiles a configuration (the first that fits wins). An autotuner keeps this function, so it asks who is active."""
    from triton.runtime.driver import driver

    if not isinstance(driver.active, _Driver):
        times: Sequence[float] = driver.active.get_benchmarker()(call, quantiles=quantiles, **options)
        return times
    recorder = driver.active.recorder
    recorder.tuning = True
    try:
        call()
    finally:
        recorder.tuning = False
    return [1.0] * len(quantiles)


class _Launcher:
    """Called in place of a kernel launch. Kernels outlive the block, so it asks for the recorder at every call."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.metadata = metadata
        self.parameters = [(p.name, p.is_constexpr) for p in src.fn.params]
        self.limits = MAX_GRID[metadata.target.backend]
        self.ttir = _saved(metadata.hash, f"{src.name[:150]}.ttir")

    def __call__(self, *call: Any) -> None:
        from triton.runtime.driver import driver

        grid, function, values = tuple(int(n) for n in call[:3]), call[4], call[9:]
        if any(n > limit for n, limit in zip(grid, self.limits, strict=True)):
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument: the grid {grid} exceeds {self.limits}")
        self._check_allocator()
        arguments: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for (name, constant), value in zip(self.parameters, values, strict=True):
            (constants if constant else arguments)[name] = _describe(value)
        made = self.metadata
        driver.active.recorder.add(
            Launch(
                kernel=made.name,
                grid=(grid[0], grid[1], grid[2]),
                num_warps=made.num_warps,
                num_stages=made.num_stages,
                registers=function.registers,
                stack_bytes=function.stack_bytes,
                shared_bytes=made.shared,
                arguments=arguments,
                constants=constants,
                ttir=self.ttir,
                load_bits=function.load_bits,
            )
        )

    def _check_allocator(self) -> None:
        """A kernel that builds descriptors on the device fails without `triton.set_allocator`, as on the card."""
        from triton.runtime import _allocation

        size = getattr(self.metadata, "global_scratch_size", 0)  # AMD's back end has none
        allocate = _allocation._allocator.get()
        if size > 0 and isinstance(allocate, _allocation.NullAllocator):
            allocate(size, self.metadata.global_scratch_align, None)


def _saved(key: str, name: str) -> str:
    """Text of one stage of a compiled kernel, from Triton's cache folder."""
    from triton.runtime.cache import get_cache_manager

    path = get_cache_manager(key).get_file(name)
    return Path(path).read_text() if path else ""


def _describe(value: Any) -> Any:
    """An argument as plain data; raises ValueError for a tensor in host memory, as the real launcher does."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_describe(item) for item in value)
    if hasattr(value, "data_ptr"):
        return _tensor(value, value.shape, value.stride())
    if hasattr(value, "block_shape"):  # a TensorDescriptor
        return _tensor(value.base, value.shape, value.strides)
    return getattr(value, "__name__", str(value))  # a device function, a tl.dtype


def _tensor(base: Any, shape: Sequence[int], strides: Sequence[int]) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    """`base` is a torch tensor or Triton's reinterpretation of one."""
    if getattr(base, "base", base).device.type == "cpu":
        raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
    return "tensor", str(base.dtype).removeprefix("torch."), tuple(shape), tuple(strides)
