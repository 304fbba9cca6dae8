"""A live `nn.Module` as a Problem, and an optimised file as a live module with the same weights."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.errors import BadInput
from mtmc.problem import FLOATS, InputSpec, Problem, instantiate, load, parse_init

if TYPE_CHECKING:
    import torch


def problem_of(module: torch.nn.Module, inputs: Sequence[torch.Tensor], init: str) -> Problem:
    """The problem that a module's class and example inputs pose.

    The class is read from its file and must be built by `init` (literal constructor arguments) into a module with the same
    state. Only shapes, dtypes and, for integers, the largest value of the inputs count. Raises BadInput.
    """
    kind = type(module)
    file = _file(kind)
    if "." in kind.__qualname__:
        raise BadInput(f"{kind.__qualname__} is not at the top level of {file}, so it cannot be embedded in the output.")
    place = kind.__module__ if "." in kind.__module__ else file
    specs = _specs(module, inputs)
    problem = load(place, kind.__name__, [f"{spec.name}={spec.dtype}[1]" for spec in specs], init)
    problem = replace(problem, inputs=specs)
    there, built = ({name: tuple(t.shape) for name, t in m.state_dict().items()} for m in (module, _rebuilt(problem)))
    if there != built:
        differing = sorted(name for name in there.keys() | built.keys() if there.get(name) != built.get(name))
        raise BadInput(
            f'{kind.__name__}({init}) has another state than the module given ({", ".join(differing[:3])}): set init="…".'
        )
    return problem


def with_weights(optimized: Path, problem: Problem, module: torch.nn.Module) -> torch.nn.Module:
    """`ModelNew` of an optimised file, on the module's device and with its weights and mode."""
    spec = importlib.util.spec_from_file_location(f"mtmc_optimized_{problem.hash}", optimized)
    assert spec and spec.loader
    namespace = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = namespace  # pickle and inspect look a class up there
    spec.loader.exec_module(namespace)
    args, kwargs = parse_init(problem.init)
    new: torch.nn.Module = namespace.ModelNew(*args, **kwargs)
    first = next(iter(module.state_dict().values()), None)
    if first is not None:
        new.to(first.device)
    new.load_state_dict(module.state_dict())
    return new.train(module.training)


def _rebuilt(problem: Problem) -> torch.nn.Module:
    return instantiate(problem, "meta").model


def _file(kind: type) -> str:
    try:
        return str(Path(inspect.getfile(kind)))
    except (TypeError, OSError) as error:
        raise BadInput(f"{kind.__name__} was not read from a file: save its source and give the file.") from error


def _specs(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[InputSpec, ...]:
    import torch

    names = list(inspect.signature(module.forward).parameters)
    if not inputs or len(inputs) > len(names) or not all(isinstance(value, torch.Tensor) for value in inputs):
        raise BadInput(f"Give one example tensor for each input of forward({', '.join(names)}).")
    return tuple(_spec(name, tensor) for name, tensor in zip(names, inputs, strict=False))


def _spec(name: str, tensor: torch.Tensor) -> InputSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    high = 2 if dtype in FLOATS else int(tensor.max()) + 1
    return InputSpec(name, dtype, tuple(tensor.shape), high)
