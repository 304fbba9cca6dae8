"""Ways to run the reference that a candidate is compared with, by name.

`eager` is the reference as the file leaves it, and always measured. The others are made before a candidate is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from mtmc.errors import BadInput
from mtmc.judge.copies import duplicate
from mtmc.judge.device import free_bytes, peak_above, tensors

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Make = Callable[["torch.nn.Module", tuple[Any, ...]], Call]
WARM_UPS = 3  # calls on a side stream before a graph is captured, as PyTorch's documentation asks


def _eager(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Call:
    return lambda: model(*inputs)


def _benchmark(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Call:
    """cuDNN tries its algorithms on the first call and keeps the fastest."""
    from torch.backends import cudnn

    def call() -> object:
        before, cudnn.benchmark = cudnn.benchmark, True
        try:
            return model(*inputs)
        finally:
            cudnn.benchmark = before

    return call


def _channels_last(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Call:
    """Weights and inputs are converted beforehand, as a user would hold them; the result is in channels-last too."""
    import torch
    from torch.utils._pytree import tree_map_only

    if not any(isinstance(x, torch.Tensor) and x.ndim == 4 for x in inputs):
        raise BadInput("no input has four dimensions")

    def converted(x: torch.Tensor) -> torch.Tensor:
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    twin = duplicate(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    given = tree_map_only(torch.Tensor, converted, inputs)
    return lambda: twin(*given)


def _graphed(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Call:
    return graphed(lambda: model(*inputs))


def _compiled(mode: str, model: torch.nn.Module, inputs: tuple[Any, ...]) -> Call:
    import torch

    return partial(torch.compile(model, mode=mode), *inputs)


class _Unrun(Exception):
    """A model was compiled and is not to be run."""


def load_compiler() -> None:
    """Have Dynamo and Inductor load what any model needs, by compiling a small one of tensors that hold nothing.

    A process's first compilation takes seconds more than its later ones; this part of it leaves the GPU alone.
    """
    import torch
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode

    def compiled_only(graph: Any, inputs: Any) -> Callable[..., object]:
        compile_fx(graph, inputs)

        def refuse(*_: object) -> object:
            raise _Unrun

        return refuse

    with FakeTensorMode(), torch.no_grad(), suppress(_Unrun):
        x = torch.empty(64, 64, device="cuda" if torch.cuda.is_available() else "cpu")
        torch.compile(lambda x, w: (x @ w).relu().softmax(-1), backend=compiled_only)(x, x)


BASELINES: dict[str, Make] = {
    "eager": _eager,
    "eager-cudnn-benchmark": _benchmark,
    "eager-channels-last": _channels_last,
    "eager-graph": _graphed,
    "compile-default": partial(_compiled, "default"),
    "compile-reduce-overhead": partial(_compiled, "reduce-overhead"),
    "compile-max-autotune": partial(_compiled, "max-autotune"),
}
DEFAULT = ("compile-default",)
KEEPING = {"eager-graph", "compile-reduce-overhead", "compile-max-autotune"}
"""Baselines that capture CUDA graphs, and so keep copies of inputs and all intermediate results."""

SLOW = {"compile-reduce-overhead": 120.0, "compile-max-autotune": 900.0}
"""Seconds that a baseline may take to compile, beyond what a job that times has for the others."""


def select(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the table's order, without `eager`. Raises BadInput listing the known ones."""
    wanted = tuple(names)
    unknown = [name for name in wanted if name not in BASELINES]
    if unknown:
        raise BadInput(f"unknown baseline '{unknown[0]}'; known: {', '.join(BASELINES)}")
    return tuple(name for name in BASELINES if name in wanted and name != "eager")


def crowded(name: str, kept_bytes: int, free_bytes: int) -> str:
    """Why a baseline that keeps its intermediate results would leave too little for the others; empty where it does not.

    `kept_bytes` are the inputs and what a call of eager allocates; twice as much must be left for eager and the candidate.
    """
    if name not in KEEPING or free_bytes >= 3 * kept_bytes:
        return ""
    return f"left out, it would keep {kept_bytes / 2**30:.1f} GiB of the {free_bytes / 2**30:.1f} GiB that are free"


def _kept_bytes(model: torch.nn.Module, inputs: tuple[Any, ...]) -> int:
    given = tensors(inputs)
    if not given or given[0].device.type != "cuda":
        return 0
    with peak_above(given[0].device) as peak:
        model(*inputs)
    return peak[0] + sum(x.numel() * x.element_size() for x in given)


def make(names: Iterable[str], model: torch.nn.Module, inputs: tuple[Any, ...], notes: list[str]) -> dict[str, Call]:
    """The calls by name, each called once; one that fails, or for which there is no memory, is noted and left out."""
    import torch

    chosen, calls = select(names), dict[str, Call]()
    kept = _kept_bytes(model, inputs) if KEEPING & set(chosen) else 0
    if any(name.startswith("compile") for name in chosen):
        torch.compiler.reset()  # once: a later one would have the modes made before it compile again while they are timed
    for name in chosen:
        try:
            if kept and (reason := crowded(name, kept, free_bytes(tensors(inputs)[0].device))):
                raise BadInput(reason)
            calls[name] = BASELINES[name](model, inputs)
            calls[name]()
        except (RuntimeError, BadInput) as error:  # Dynamo's and Inductor's errors are RuntimeErrors
            calls.pop(name, None)
            notes.append(f"baseline {name}: {str(error).splitlines()[0]}")
    return calls


def graphed(call: Call) -> Call:
    """The call captured in a CUDA graph; replays read the inputs where they lie. Raises RuntimeError where it cannot be."""
    import torch

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        kept.append(call())

    def replay() -> object:
        graph.replay()
        return kept[0]

    return replay
