"""What a candidate must leave as it found it: the judge's clock and functions, PyTorch's flags and modes, the threads.

    with watched() as found:                  # before the candidate is imported
        …                                     # import it, build it, call it
    rejection(found)

Names are compared by identity, functions by their code too. At the end everything is put back, so that the next job of the
process is judged by the functions it expects.
"""

from __future__ import annotations

import _thread
import builtins
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType
from typing import Any

from mtmc.verdict import Finding

MODULES = (  # looked at name by name, with the classes that they define
    "time",
    "random",
    "math",
    "gc",
    "threading",
    "torch",
    "torch._C",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.linalg",
    "torch.special",
    "torch.cuda",
    "torch.cuda.streams",
    "torch.cuda.graphs",
    "torch.cuda.memory",
    "torch.profiler",
    "torch.utils._pytree",
    "torch.utils._python_dispatch",
    "torch.testing",
    "triton",
    "triton.testing",
    "triton.runtime",
    "triton.runtime.jit",
    "triton.runtime.autotuner",
    "triton.runtime.driver",
    "triton.runtime.interpreter",
    "triton.compiler",
    "triton.compiler.compiler",
)
CLASSES = (
    "torch.Tensor",
    "torch._C.TensorBase",
    "torch.nn.Module",
    "torch.nn.Parameter",
    "torch.cuda.Event",
    "torch.cuda.Stream",
)
OURS = "mtmc."
OWN_CLASSES = (OURS, "triton.runtime", "triton.compiler")  # PyTorch's that matter are listed above
Change = tuple[str, Callable[[], None]]  # what differs, and the way back


class _Spaces:
    """The namespaces that are watched: owner by name, and its names as they were."""

    def __init__(self) -> None:
        self.owners: dict[str, Any] = {"builtins": builtins}
        for name, module in list(sys.modules.items()):
            if module is not None and (name in MODULES or name.startswith(OURS)):
                self.owners[name] = module
                self.owners |= {f"{name}.{n}": v for n, v in vars(module).items() if _class_of(v, name)}
        for path in CLASSES:
            owner = _reached(path)
            if owner is not None:
                self.owners[path] = owner
        self.before = {name: dict(vars(owner)) for name, owner in self.owners.items()}
        functions = {f for space in self.before.values() for f in map(_plain, space.values()) if isinstance(f, FunctionType)}
        self.codes = {f: f.__code__ for f in functions}
        self.defaults = {f: f.__defaults__ for f in functions}
        self.modules = {name: sys.modules[name] for name in self.owners if name in sys.modules}

    def changes(self) -> Iterator[Change]:
        """What differs now, each with the way back."""
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                yield f"sys.modules['{name}']", partial(sys.modules.__setitem__, name, module)
        for name, owner in self.owners.items():
            yield from self._names(name, owner)
        for value, code in self.codes.items():
            if value.__code__ is not code or value.__defaults__ is not self.defaults[value]:
                yield f"the code of {value.__qualname__}", partial(_recode, value, code, self.defaults[value])

    def _names(self, name: str, owner: Any) -> Iterator[Change]:
        before, now = self.before[name], vars(owner)
        for key, value in before.items():
            if now.get(key) is not value and _counts(value) and not _by_dynamo(f"{name}.{key}", now.get(key)):
                yield f"{name}.{key}", partial(setattr, owner, key, value)
        if isinstance(owner, type):
            for key in [key for key in now if key not in before and any(key in vars(base) for base in owner.__mro__[1:])]:
                if _counts(now[key]):
                    yield f"{name}.{key}", partial(delattr, owner, key)


def _by_dynamo(name: str, now: Any) -> bool:
    """torch._dynamo wraps this one function when something imports it, which costs seconds that are not spent here."""
    if name != "torch.manual_seed" or "torch._dynamo" not in sys.modules:
        return False
    from torch._compile import _disable_dynamo

    return getattr(now, "__code__", None) is _disable_dynamo(_by_dynamo).__code__


def _recode(value: FunctionType, code: Any, defaults: Any) -> None:
    value.__code__, value.__defaults__ = code, defaults


def _class_of(value: Any, module: str) -> bool:
    return isinstance(value, type) and value.__module__ == module and module.startswith(OWN_CLASSES)


def _plain(value: Any) -> Any:
    return getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value


def _counts(value: Any) -> bool:
    """Functions, classes and descriptors; plain values come and go."""
    return callable(value) or isinstance(value, (staticmethod, classmethod, property)) or hasattr(type(value), "__get__")


def _reached(path: str) -> Any:
    root, *names = path.split(".")
    owner = sys.modules.get(root)
    for name in names:
        owner = getattr(owner, name, None)
    return owner


def _flags() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Global switches of PyTorch: how to read each, and how to set it."""
    import torch
    from torch.backends import cuda, cudnn

    def attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)

    return {
        "float32 matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "cuda.matmul.allow_tf32": attribute(cuda.matmul, "allow_tf32"),
        "fp16 reduced precision reduction": attribute(cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        "bf16 reduced precision reduction": attribute(cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        "fp16 accumulation": attribute(cuda.matmul, "allow_fp16_accumulation"),
        "cudnn.allow_tf32": attribute(cudnn, "allow_tf32"),
        "cudnn.benchmark": attribute(cudnn, "benchmark"),
        "cudnn.deterministic": attribute(cudnn, "deterministic"),
        "cudnn.enabled": attribute(cudnn, "enabled"),
        "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
        "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "default device": (torch.get_default_device, lambda _: torch.set_default_device(None)),
        "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
        "flash attention": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        "memory-efficient attention": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        "plain attention": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
        "threads of PyTorch": (torch.get_num_threads, torch.set_num_threads),
        "fp32_precision": attribute(torch.backends, "fp32_precision"),
        "cuda.matmul.fp32_precision": attribute(cuda.matmul, "fp32_precision"),
        "cudnn.conv.fp32_precision": attribute(getattr(cudnn, "conv", None), "fp32_precision"),
    }


def _read(get: Callable[[], Any]) -> Any:
    """The flag, or what reading it says: mixed old and new settings of one switch raise, and some versions lack a switch."""
    try:
        return get()
    except (RuntimeError, AttributeError) as error:
        return str(error).splitlines()[0]


def _hooks() -> dict[str, int]:
    """How many things are hooked in that act on every call or every line."""
    import torch
    from torch.nn.modules import module
    from triton import knobs

    runtime = knobs.runtime
    return {
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "forward hooks": len(module._global_forward_hooks) + len(module._global_forward_pre_hooks),
        "operator overrides": sum(key.startswith("aten/") for key in torch.library._impls),
        "launch hooks": len(getattr(runtime.launch_enter_hook, "calls", ()))
        + len(getattr(runtime.launch_exit_hook, "calls", ())),
        "trace functions": (sys.gettrace() is not None) + (sys.getprofile() is not None),
        "collector callbacks": len(gc.callbacks),
    }


@contextmanager
def watched() -> Iterator[list[Finding]]:
    """Fills the yielded list when the block ends, however it ends, and puts back what was changed."""
    found: list[Finding] = []
    flags = _flags()
    values, hooks, running = {name: _read(get) for name, (get, _) in flags.items()}, _hooks(), threads()
    spaces = _Spaces()
    try:
        yield found
    finally:
        found += [*_patched(spaces), *_left_flags(flags, values), *_left_hooks(hooks), *left_threads(running)]


def _patched(spaces: _Spaces) -> Iterator[Finding]:
    changes = list(spaces.changes())
    for _, undo in changes:
        undo()
    if changes:
        names = ", ".join(name for name, _ in changes[:3])
        yield Finding(
            "dynamic.patched", 0, f"replaced {names}" + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
        )


def _left_flags(flags: dict[str, Any], values: dict[str, Any]) -> Iterator[Finding]:
    for name, (get, put) in flags.items():
        now = _read(get)
        if now != values[name]:
            with suppress(RuntimeError):  # a switch that has an old and a new name is put back by the other one
                put(values[name])
            yield Finding("dynamic.flags", 0, f"{name} was {values[name]} and is {now}")


def _left_hooks(before: dict[str, int]) -> Iterator[Finding]:
    for name, count in _hooks().items():
        if count > before[name]:
            yield Finding("dynamic.hooks", 0, f"{count - before[name]} {name} left in place")


def threads() -> tuple[int, frozenset[threading.Thread]]:
    """How many threads run Python code unknown to the module `threading`, and those that it knows."""
    known = frozenset(t for t in threading.enumerate() if not isinstance(t, threading._DummyThread))
    return _thread._count() - len(known), known


def left_threads(before: tuple[int, frozenset[threading.Thread]]) -> Iterator[Finding]:
    """Threads still alive; one that is just ending is given a moment. That older ones end meanwhile hides none."""
    end = time.monotonic() + 0.2
    while (left := _started_since(before)) and time.monotonic() < end:
        time.sleep(0.005)
    if left:
        yield Finding("dynamic.threads", 0, f"left threads running: {', '.join(left)}")


def _started_since(before: tuple[int, frozenset[threading.Thread]]) -> list[str]:
    """Names of the threads that were not there."""
    unnamed, known = threads()
    return sorted(t.name for t in known - before[1]) or ["unnamed"] * (unnamed > before[0])
