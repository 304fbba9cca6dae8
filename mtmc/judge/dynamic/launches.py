"""Do the candidate's kernels run, and does the result come from them?

Triton launches are seen where Python makes them, compiled or interpreted. Replays of CUDA graphs are counted apart: what was
captured runs without a launch that could be seen. Kernels of inline CUDA are seen by the profiler alone, on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.judge import candidate
from mtmc.judge.device import synchronize, tensors
from mtmc.judge.dynamic.memory import Guarded, guardable
from mtmc.judge.dynamic.subject import Subject, mismatch
from mtmc.verdict import Finding

if TYPE_CHECKING:
    import torch

SMALL_SHARE = 0.3  # of the device time in kernels of its own, below which a candidate is looked at (Dr.Kernel's threshold)
ALREADY = 1e-5  # relative error below which an answer is the answer: PyTorch had it without the kernels
FINITE = -6e4  # what unwritten memory holds while launches are left out: unlike NaN it vanishes when multiplied by zero


@dataclass
class Seen:
    """Triton kernels launched, in order, by name; replays of CUDA graphs; `skip` leaves all launches out."""

    skip: bool = False
    kernels: list[str] = field(default_factory=list)
    replays: int = 0


@contextmanager
def watched(skip: bool = False) -> Iterator[Seen]:
    """Every launch inside the block is recorded, or left out."""
    import torch
    from triton.compiler import CompiledKernel
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    seen = Seen(skip)

    def recording(original: Any) -> Any:
        def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if not warmup:
                seen.kernels.append(self.fn.__name__)
                if seen.skip:
                    return None
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)

        return run

    def indexed(self: Any, grid: Any) -> Any:
        runner = get_compiled(self, grid)

        def run(*args: Any, **kwargs: Any) -> Any:
            seen.kernels.append(self.metadata.name)
            return None if seen.skip else runner(*args, **kwargs)

        return run

    def replay(self: Any) -> Any:
        seen.replays += 1
        return get_replay(self)

    get_compiled, get_replay = CompiledKernel.__getitem__, torch.cuda.CUDAGraph.replay
    with (
        patch.object(JITFunction, "run", recording(JITFunction.run)),
        patch.object(InterpretedFunction, "run", recording(InterpretedFunction.run)),
        patch.object(CompiledKernel, "__getitem__", indexed),
        patch.object(torch.cuda.CUDAGraph, "replay", replay),
    ):
        yield seen


def launches(subject: Subject) -> Iterator[Finding]:
    """A candidate with kernels launches them, in later calls as in the first."""
    counts = []
    with subject.anew() as built:
        for _ in range(2):
            with watched() as seen:
                subject.run(built=built)
            counts.append((len(seen.kernels), seen.replays))
    if counts[0][0] and not any(counts[-1]):
        why = f"the first call launches {counts[0][0]} kernels, the second none and replays no graph"
        yield Finding("dynamic.launches", 0, why)
    elif not any(map(any, counts)) and (kernels := _defined(subject)):
        level, how = ("reject", "certain") if subject.full_size else ("warn", "possible")
        yield Finding("dynamic.launches", 0, f"a call launches none of its kernels ({', '.join(kernels)})", how, level)


def _defined(subject: Subject) -> list[str]:
    """Names of the Triton functions in the candidate's module."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    kinds = (JITFunction, InterpretedFunction, Autotuner, Heuristics)
    return [name for name, value in vars(subject.module).items() if isinstance(value, kinds)]


def unused(subject: Subject) -> Iterator[Finding]:
    """Without its launches a candidate, imported anew, must give another result."""
    with watched() as seen:
        subject.run()
    if not seen.kernels and not seen.replays:
        return
    subject.calibrate()
    truth = subject.truth()
    if not any(guardable(y) and bool((y != 0).any()) for y in tensors(truth)):
        subject.notes.append("unused: the reference's answer is all zero")
        return
    with watched(skip=True) as seen, subject.anew() as built:
        outcome = _without_launches(subject, built) if built else None
    if built and not seen.kernels:
        subject.notes.append("unused: no launch could be left out (a graph made elsewhere, or inline CUDA)")
    elif outcome is not None and mismatch(outcome, truth) < ALREADY:
        yield Finding(
            "dynamic.unused", 0, f"without launching {', '.join(dict.fromkeys(seen.kernels))} the result is the same"
        )


def _without_launches(subject: Subject, built: candidate.Built) -> Any:
    """The result, or None where the candidate fails without its kernels: then it needs them."""
    try:
        with Guarded(FINITE):
            return subject.run(built=built)
    except (RuntimeError, IndexError, ValueError, TypeError, AttributeError):
        return None


class Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first PyTorch operator whose result is the reference's answer, while no kernel has been launched."""

    def __init__(self, seen: Seen, truth: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen, self.found = seen, ""
        self.wanted = [r for r in tensors(truth) if guardable(r) and r.is_floating_point() and _varied(r)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        result = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            self._look(func, result)
        return result

    def _look(self, func: Any, result: Any) -> None:
        quiet = not self.seen.kernels and not self.seen.replays and not self.found
        stale = func.is_view or "empty" in func._schema.name  # unwritten memory may hold the answer of an earlier call
        if quiet and not stale and any(_same(y, r) for y in tensors(result) for r in self.wanted):
            self.found = func._schema.name.removeprefix("aten::")


def _varied(r: torch.Tensor) -> bool:
    """More than one value: a constant is found anywhere."""
    return r.numel() == 1 or bool((r != r.reshape(-1)[0]).any())


def _same(y: torch.Tensor, r: torch.Tensor) -> bool:
    alike = guardable(y) and y.is_floating_point() and y.numel() == r.numel() and y.device == r.device
    return alike and mismatch(y.reshape(r.shape).to(r.dtype), r) < ALREADY


def fig_leaf(subject: Subject) -> Iterator[Finding]:
    """PyTorch must not have had the answer before the candidate's first kernel."""
    subject.calibrate()
    truth = subject.truth()
    if any(_same(x, r) for x in tensors(subject.inputs) for r in tensors(truth) if guardable(r)):
        subject.notes.append("fig_leaf: the reference gives back its input")
        return
    with watched() as seen, Answers(seen, truth) as answers:
        subject.run()
    if answers.found and seen.kernels:
        why = f"torch.{answers.found} had the whole answer before {seen.kernels[0]} was launched"
        yield Finding("dynamic.fig_leaf", 0, why)


def share(subject: Subject) -> Iterator[Finding]:
    """Kernels of its own should take a good part of the device time (profiler; on a GPU only)."""
    if not subject.on_gpu:
        return
    with watched() as seen:
        subject.run()
    times = _kernel_times(subject)
    own = {
        name for name in times if name in seen.kernels or any(f"{k}(" in f"{name}(" for k in _inline(subject.source.text))
    }
    total = sum(times.values())
    if not total:
        subject.notes.append("share: the profiler sees no kernels here")
        return
    part = sum(times[name] for name in own) / total
    if part < SMALL_SHARE:
        what = (
            f"{part:.0%} of the device time is in kernels of its own; most is in {max(times, key=lambda n: times[n])[:80]}"
        )
        yield Finding("dynamic.share", 0, what, "likely", "warn")


def _kernel_times(subject: Subject) -> dict[str, float]:
    """Device microseconds by kernel name in one call."""
    from torch.autograd import DeviceType  # type: ignore[attr-defined]
    from torch.profiler import ProfilerActivity, profile

    subject.run()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        subject.run()
        synchronize()
    times: dict[str, float] = {}
    for event in profiled.events() or ():
        if event.device_type == DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset")):
            times[event.name] = times.get(event.name, 0.0) + float(event.self_device_time_total)
    return times


def _inline(source: str) -> list[str]:
    """Names of CUDA kernels written in the file's strings."""
    return re.findall(r"__global__[^;{(]*?\b(\w+)\s*\(", source)
