"""Trials: one run of a model on meta tensors, which costs milliseconds at any size, and what it called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtmc.meta import recurrent_shapes
from mtmc.problem import Problem, instantiate, user_code


@dataclass(frozen=True)
class Trace:
    """What one run on meta tensors called: the operations, their matrix-unit flops, the elements they made.

    An operation is its name with, for each result, which dimensions have size 1 and whether it is contiguous: what
    `compatible` asks of graphs.
    """

    operations: tuple[str, ...]
    flops: float
    elements: float


def trace(problem: Problem) -> Trace:
    """Run the model once on meta tensors. Raises BadInput when the sizes do not fit it."""
    import torch

    instance = instantiate(problem, "meta")
    mode = _recorder()
    with user_code("Running the model"), recurrent_shapes(), torch.no_grad(), mode:
        instance.model(*instance.inputs)
    inputs = sum(value.numel() for value in instance.inputs if isinstance(value, torch.Tensor))
    return Trace(tuple(mode.operations), mode.flops, mode.elements + inputs)


def _recorder() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.operations: list[str] = []
            self.flops = self.elements = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
            self.operations.append(f"{func} {[([n == 1 for n in t.shape], t.is_contiguous()) for t in tensors]}")
            if count := flop_registry.get(func._overloadpacket):
                self.flops += count(*args, **(kwargs or {}), out_val=result)
            if not any(returned.alias_info for returned in func._schema.returns):
                self.elements += sum(t.numel() for t in tensors)
            return result

    return Recorder()
