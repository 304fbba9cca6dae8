"""The only way to a candidate's code: import it, build it, call it.

`ModelNew` of our own programs inherits the reference's `__init__` unchanged, so an object of it is the reference's state
under another class: made from the built reference (parameters shared, buffers copied) instead of being initialised anew.
Foreign candidates (see `door`) run their own constructor under the reference's seed and then get its state where names and
shapes match; a function gets the state it names as arguments. Exceptions that pass through a function named in `BLAMED` are
the candidate's fault.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mtmc.judge.copies import duplicate
from mtmc.judge.device import synchronize
from mtmc.judge.door import Door
from mtmc.problem import Problem, construct

if TYPE_CHECKING:
    import torch

BLAMED = ("_import", "_new_class", "_construct", "_call_function", "call", "run")
Sizes = dict[str, Any]


@dataclass(frozen=True)
class Built:
    """A candidate ready to be called.

    `fast` is what is verified: of our own programs `kernels`, which bypasses `supports` and so any fallback of `forward`; of
    others the model itself. `notes` say what of the reference's state it did not take.
    """

    model: torch.nn.Module
    fast: Callable[..., Any]
    notes: tuple[str, ...] = ()


@contextmanager
def imported(
    source: str, sizes: Sizes | None = None, around: AbstractContextManager[None] | None = None
) -> Iterator[ModuleType]:
    """The program as a module, from a file in the working directory (Triton reads kernels' source), until the block ends.

    `sizes` replaces the module's `SIZES`; `around` is entered while the file runs. Raises what its top level raises.
    """
    handle, path = tempfile.mkstemp(prefix="candidate_", suffix=".py", dir=Path.cwd())
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(source)
    name = Path(path).stem
    try:
        with around or nullcontext():
            module = _import(name, path)
        _forget_lines(module)
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


def _forget_lines(module: ModuleType) -> None:
    """Triton's cache keys hold the line on which a kernel begins; a kernel that an edit above only moved is the same one."""
    from triton.runtime import Autotuner, Heuristics, JITFunction

    for kernel in vars(module).values():
        while isinstance(kernel, (Autotuner, Heuristics)):
            kernel = kernel.fn
        if isinstance(kernel, JITFunction):
            kernel.starting_line_number = 1


def build(module: ModuleType, reference: torch.nn.Module) -> Built:
    """Our own `ModelNew` with the reference's state: parameters are the same tensors, everything else is a copy."""
    model = duplicate(reference, {id(p): p for p in reference.parameters()})
    model.__class__ = _new_class(module)
    return Built(model, model.kernels)  # type: ignore[arg-type]


def check_constructor(module: ModuleType, problem: Problem) -> None:
    """`ModelNew` made once by its own constructor, as a user makes it; raises what that raises.

    Skipped for a reference that cannot be built on meta tensors.
    """
    try:
        construct(problem, getattr(module, problem.entry))
    except (RuntimeError, NotImplementedError):  # it reads values while it is built
        return
    _construct(problem, _new_class(module))


def prepare(
    module: ModuleType, door: Door, problem: Problem, reference: torch.nn.Module, device: torch.device, seed: int = 0
) -> Built:
    """The candidate on a device, with the state of the reference, which was built there with the same seed."""
    if door.kind == "program":
        return build(module, reference)
    if door.kind == "function":
        model = _of_function(getattr(module, door.function), reference)
        return Built(model, model)
    model = _construct(problem, module.ModelNew, device, seed)
    return Built(model, model, adopt(model, reference))


def adopt(model: torch.nn.Module, reference: torch.nn.Module) -> tuple[str, ...]:
    """Copies every tensor of the reference's state whose name and shape the model has too; a note names the others."""
    import torch

    mine, left = model.state_dict(), []
    with torch.no_grad():
        for name, value in reference.state_dict().items():
            if name in mine and mine[name].shape == value.shape:
                mine[name].copy_(value)
            else:
                left.append(name)
    if not left:
        return ()
    what = ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
    return (f"state not copied, for ModelNew has none of that name and shape: {what}; built under the same seed instead",)


def _construct(
    problem: Problem, kind: type[torch.nn.Module], device: str | torch.device = "meta", seed: int = 0
) -> torch.nn.Module:
    import torch

    model = construct(problem, kind, device, seed)
    if not isinstance(model, torch.nn.Module):
        raise TypeError("ModelNew is no torch.nn.Module")
    return model.to(device)


def _new_class(module: ModuleType) -> type[torch.nn.Module]:
    found: type[torch.nn.Module] = module.ModelNew
    if not hasattr(found, "kernels"):
        raise AttributeError("ModelNew has no method kernels")
    return found


def _of_function(function: Callable[..., Any], reference: torch.nn.Module) -> torch.nn.Module:
    """The reference's state under a class whose forward calls the function."""
    import torch

    def forward(self: torch.nn.Module, *inputs: Any) -> Any:
        return _call_function(function, self, inputs)

    model = duplicate(reference, {id(p): p for p in reference.parameters()})
    model.__class__ = type("FunctionModel", (torch.nn.Module,), {"forward": forward})
    return model


def _call_function(function: Callable[..., Any], model: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """The inputs, then what the function asks for by name. Raises TypeError for a parameter that names nothing."""
    return function(*inputs, **_state(function, model, len(inputs)))


def _state(function: Callable[..., Any], model: torch.nn.Module, given: int) -> dict[str, Any]:
    """Arguments after the inputs: state `fc.weight` as `fc_weight`, or `weight` where no other ends so, or an attribute."""
    named = {name: value for name, value in (*model.named_parameters(), *model.named_buffers())}
    found: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[given:]:
        wanted = parameter.name
        fitting = [v for name, v in named.items() if name.replace(".", "_") == wanted]
        fitting = fitting or [v for name, v in named.items() if name.rpartition(".")[2] == wanted]
        if len(fitting) == 1:
            found[wanted] = fitting[0]
        elif hasattr(model, wanted) and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found[wanted] = getattr(model, wanted)
    return found


def call(built: Built, inputs: tuple[Any, ...]) -> Any:
    """One call of what is verified."""
    return built.fast(*inputs)


def run(built: Built, inputs: tuple[Any, ...]) -> Any:
    """One call, waited for, so that an error on the GPU is raised here."""
    result = call(built, inputs)
    synchronize()
    return result


def holds(module: ModuleType, model: torch.nn.Module, inputs: tuple[Any, ...]) -> bool:
    """Whether the program's guard lets these inputs through to the kernels."""
    model.train(model.training)  # a program notes its attributes when it is built or its mode changes
    return bool(module.supports(model, *inputs)) if hasattr(module, "supports") else True
