"""The only door to a candidate's code: import it, build it, call it.

`ModelNew` inherits the reference's `__init__` unchanged, so an object of it is the reference's state under another class:
the candidate is made from the built reference (parameters shared, buffers copied) instead of being initialised anew.
Exceptions that pass through a function named in `BLAMED` are the candidate's fault.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mtmc.judge.device import synchronize
from mtmc.problem import Problem, construct

if TYPE_CHECKING:
    import torch

BLAMED = ("_import", "_new_class", "_construct", "call", "run")
Sizes = dict[str, Any]


@contextmanager
def imported(source: str, sizes: Sizes | None = None) -> Iterator[ModuleType]:
    """The program as a module, from a file in the working directory (Triton reads kernels' source), until the block ends.

    `sizes` replaces the module's `SIZES`. Raises what the program's top level raises.
    """
    handle, path = tempfile.mkstemp(prefix="candidate_", suffix=".py", dir=Path.cwd())
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(source)
    name = Path(path).stem
    try:
        module = _import(name, path)
        if sizes is not None:
            module.SIZES = sizes  # type: ignore[attr-defined]
        yield module
    finally:
        sys.modules.pop(name, None)
        os.unlink(path)


def _import(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(module: ModuleType, reference: torch.nn.Module) -> torch.nn.Module:
    """`ModelNew` with the reference's state: parameters are the same tensors, everything else is a copy."""
    shared = {id(parameter): parameter for parameter in reference.parameters()}
    model = copy.deepcopy(reference, memo=dict(shared))
    model.__class__ = _new_class(module)
    return model


def check_constructor(module: ModuleType, problem: Problem) -> None:
    """`ModelNew` made once by its own constructor, as a user makes it; raises what that raises.

    Skipped for a reference that cannot be built on meta tensors.
    """
    try:
        construct(problem, getattr(module, problem.entry))
    except (RuntimeError, NotImplementedError):  # it reads values while it is built
        return
    _construct(problem, _new_class(module))


def _construct(problem: Problem, kind: type[torch.nn.Module]) -> None:
    construct(problem, kind)


def _new_class(module: ModuleType) -> type[torch.nn.Module]:
    found: type[torch.nn.Module] = module.ModelNew
    if not hasattr(found, "kernels"):
        raise AttributeError("ModelNew has no method kernels")
    return found


def call(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """One call of the fast path, which bypasses `supports` and so any fallback of `forward`."""
    kernels: Callable[..., Any] = model.kernels  # type: ignore[assignment]
    return kernels(*inputs)


def run(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """One call, waited for, so that an error on the GPU is raised here."""
    result = call(model, inputs)
    synchronize()
    return result


def holds(module: ModuleType, model: torch.nn.Module, inputs: tuple[Any, ...]) -> bool:
    """Whether the program's guard lets these inputs through to the kernels."""
    model.train(model.training)  # a program notes its attributes when it is built or its mode changes
    return bool(module.supports(model, *inputs)) if hasattr(module, "supports") else True
