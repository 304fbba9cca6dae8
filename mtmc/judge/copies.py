"""A copy of a model from which nothing leads back to the original.

`copy.deepcopy` takes functions as they are: a lambda kept as an attribute (`self.mlp = lambda x: m.proj(m.act(x))`) would go
on calling the original's modules. Bound methods it copies itself.
"""

from __future__ import annotations

import copy
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Memo = dict[int, Any]  # id of an original → its copy, as `copy.deepcopy` keeps it


def duplicate(model: torch.nn.Module, memo: Memo | None = None) -> torch.nn.Module:
    """A deep copy whose function attributes hold the copy's modules and tensors; raises what `copy.deepcopy` raises."""
    from torch.utils._pytree import tree_leaves, tree_map_only

    memo = {} if memo is None else memo
    twin = copy.deepcopy(model, memo)
    for module in twin.modules():
        for name, value in vars(module).items():
            if any(isinstance(leaf, FunctionType) for leaf in tree_leaves(value)):
                vars(module)[name] = tree_map_only(FunctionType, lambda function: _remade(function, memo), value)
    return twin


def _remade(function: FunctionType, memo: Memo) -> FunctionType:
    """The function over the copies of what its closure and its defaults hold; itself where they hold nothing."""
    old = function.__closure__ or ()
    made: FunctionType
    if id(function) in memo or not (old or function.__defaults__ or function.__kwdefaults__):
        made = memo.get(id(function), function)
        return made
    cells = tuple(CellType() for _ in old)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, None, cells or None)
    memo[id(function)] = made  # before its cells are filled: one of them may hold the function itself
    vars(made).update(vars(function))
    made.__defaults__, made.__kwdefaults__ = _copied(function.__defaults__, memo), _copied(function.__kwdefaults__, memo)
    for mine, theirs in zip(cells, old, strict=True):
        try:
            mine.cell_contents = _copied(theirs.cell_contents, memo)
        except ValueError:  # a name that is not bound yet
            continue
    return made


def _copied(value: Any, memo: Memo) -> Any:
    """What a function holds, with copies of the modules and tensors in it; everything else is shared."""
    import torch
    from torch.utils._pytree import tree_map

    def leaf(x: Any) -> Any:
        if isinstance(x, FunctionType):
            return _remade(x, memo)
        return copy.deepcopy(x, memo) if isinstance(x, (torch.nn.Module, torch.Tensor, MethodType)) else x

    return memo[id(value)] if id(value) in memo else tree_map(leaf, value)
