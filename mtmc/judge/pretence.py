"""Tensors elsewhere that call themselves CUDA tensors, so that foreign code written for a GPU runs in the interpreter.

Inside the block `x.is_cuda` is true and `x.device` is `cuda:0`; what asks PyTorch for memory on a GPU gets it on the host
(or on `meta`), and `.cuda()` and `.to("cuda")` do nothing. Kernels themselves see plain tensors. Streams, events and graphs
stay what they are without a GPU: errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CAPABILITY = (9, 0)
PROPERTIES = SimpleNamespace(  # few multiprocessors, so that a persistent kernel loops
    name="Triton's interpreter",
    multi_processor_count=4,
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    total_memory=8 << 30,
    L2_cache_size=8 << 20,
    warp_size=32,
    shared_memory_per_block_optin=227 << 10,
)
ANSWERS: dict[str, Callable[..., Any]] = {  # function of torch.cuda → what it is while we pretend
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "synchronize": lambda device=None: None,
    "set_device": lambda device: None,
    "empty_cache": lambda: None,
    "device": lambda device: nullcontext(),
    "get_device_properties": lambda device=None: PROPERTIES,
    "get_device_capability": lambda device=None: CAPABILITY,
    "get_device_name": lambda device=None: PROPERTIES.name,
}


@contextmanager
def pretended(place: str = "cpu") -> Iterator[None]:
    """Inside the block this process seems to have a GPU; its tensors are at `place`."""
    from unittest.mock import patch

    import torch

    with ExitStack() as stack:
        for name, answer in ANSWERS.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(_mode(torch.device(place)))
        yield


def _mode(place: torch.device) -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    class Pretence(TorchFunctionMode):
        """Answers the questions where a tensor is, and sends requests for CUDA memory to the host."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            if name == "__get__":
                if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
                    return True
                if func == torch.Tensor.device.__get__:
                    return torch.device("cuda", 0)
            elif name == "cuda":
                return args[0]
            elif name == "get_device":
                return 0
            elif name != "device":  # the type itself may be named
                args = tuple(_moved(value, place) for value in args)
                kwargs = {key: _moved(value, place) for key, value in (kwargs or {}).items()}
            return func(*args, **(kwargs or {}))

    return Pretence()


def _moved(value: Any, place: torch.device) -> Any:
    """`place` for a CUDA device or the name of one; anything else as it is."""
    import torch

    named = isinstance(value, str) and value.partition(":")[0] == "cuda"
    return place if named or (isinstance(value, torch.device) and value.type == "cuda") else value
