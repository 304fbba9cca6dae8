"""Puts the repaired parts into Triton's interpreter: builder, scans, libdevice, autotuner, and a watch on each launch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as stock
from triton.language.semantic import TritonSemantic
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, TensorHandle
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from mtmc.judge import interpreter_libdevice as libdevice
from mtmc.judge.interpreter import DeviceAssert, OutOfBounds, Race
from mtmc.judge.interpreter_builder import Builder, block_dtype, fits
from mtmc.judge.interpreter_memory import Memory
from mtmc.judge.interpreter_scans import Reduce, Scan

LIBDEVICE_MODULES = (
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice",
)

_patch_lang = stock._patch_lang
_implicit_cvt = stock._implicit_cvt
_init_autotuner = Autotuner.__init__


def replace_parts(round_tf32: bool) -> None:
    """Replaces parts of `triton.runtime.interpreter`; a second call does nothing."""
    if isinstance(stock.interpreter_builder, Builder):
        return
    stock.interpreter_builder = Builder(round_tf32)
    stock.interpreter_semantic = TritonSemantic(stock.interpreter_builder)
    stock._get_np_dtype, stock._validate_np_data_size = block_dtype, fits
    stock._patch_lang, stock._implicit_cvt = _patch_language, _tagged
    stock.GridExecutor, stock.ReduceOps, stock.ScanOps = Executor, Reduce, Scan
    InterpretedFunction.__call__ = _call_device_function
    Autotuner.__init__ = _init_with_one_config
    for name in LIBDEVICE_MODULES:
        libdevice.patch(importlib.import_module(name))


class Executor(GridExecutor):  # type: ignore[misc]  # triton is untyped
    """Runs one launch over its grid. Raises OutOfBounds, Race or DeviceAssert as they are, other faults as Triton does."""

    def _init_args_hst(self, args_dev: Any, kwargs: Any) -> Any:
        on_host = super()._init_args_hst(args_dev, kwargs)
        named = [*zip(self.arg_names, on_host[0], strict=False), *on_host[1].items()]
        tensors = [found for name, value in named for found in _tensors(name, value)]
        stock.interpreter_builder.memory = Memory(self.fn.__name__, tensors)
        return on_host

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        try:
            with torch._C.DisableTorchFunction(), np.errstate(all="ignore"):  # kernels see where their tensors really are
                super().__call__(*args, **kwargs)
        except InterpreterError as error:
            root: BaseException = error
            while isinstance(root, InterpreterError) and root.__cause__ is not None:
                root = root.__cause__
            if isinstance(root, (OutOfBounds, Race, DeviceAssert)):
                raise root from None
            raise


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors inside an argument, each with a name to report it by."""
    if isinstance(value, TensorDescriptor):
        yield from _tensors(name, value.base)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}[{index}]", item)
    elif isinstance(value, (torch.Tensor, TensorWrapper)):
        yield name, _plain(value)


def _plain(value: Any) -> Any:
    return value.base if isinstance(value, TensorWrapper) else value


def _tagged(argument: Any) -> Any:
    """A launch argument as the kernel sees it; pointers carry the number of their tensor."""
    made = _implicit_cvt(argument)
    if hasattr(argument, "data_ptr"):
        address = stock.interpreter_builder.memory.tag(_plain(argument))
        return tl.tensor(TensorHandle(np.array([address], np.uint64), made.handle.dtype), made.type)
    return made


def _patch_language(function: Any) -> Any:
    """Puts the interpreter's operations into `tl` and `tl.core`, whichever the kernel names; gives what restores them."""
    scope = _patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    scope.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))
    return scope


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The launch has patched the language already, so a device function is a plain call."""
    return self.rewrite()(*args, **kwargs)


def _init_with_one_config(self: Any, *args: Any, **kwargs: Any) -> None:
    """With a single configuration an autotuner does not measure, so it needs no driver."""
    _init_autotuner(self, *args, **kwargs)
    self.configs = self.configs[:1]
