"""Shapes of recurrent layers on meta tensors, without walking through their time steps.

PyTorch finds the result shape of `lstm` and `gru` on meta tensors by running every step (half a minute for a six-layer LSTM
over 512 steps). Capture and the stand-in driver only need the shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

OPERATORS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Inside the block, recurrent operators give empty results at once: only for meta tensors and export.

    Leans on torch internals (`OpOverload.py_kernels`, `decomposition_table`, `torch.library._scoped_library`).
    """
    from unittest.mock import patch

    import torch
    from torch._C import DispatchKey
    from torch._decomp import decomposition_table

    keys = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
    with ExitStack() as stack:
        library = stack.enter_context(torch.library._scoped_library("aten", "IMPL"))
        for name in OPERATORS:
            shapes = _lstm if name == "lstm" else _single_state
            operator = getattr(torch.ops.aten, name).input
            stack.enter_context(patch.dict(operator.py_kernels, dict.fromkeys(keys, shapes)))
            stack.enter_context(patch.dict(decomposition_table, {operator: shapes}))
            operator._dispatch_cache.clear()
            stack.callback(operator._dispatch_cache.clear)
            with warnings.catch_warnings():  # torch warns of the override that is meant here
                warnings.simplefilter("ignore")
                library.impl(f"{name}.input", shapes, "CompositeImplicitAutograd")
        yield


def _lstm(x: Tensor, hx: list[Tensor], *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    output, hidden = _single_state(x, hx[0], *settings)
    return output, hidden, hx[1].new_empty(hx[1].shape)


def _single_state(x: Tensor, hx: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """`settings`: parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first.

    Input [time, batch, features] (batch and time exchanged if batch_first); state [layers, batch, features].
    """
    *_, bidirectional, batch_first = settings
    time, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    output = x.new_empty(time, batch, hx.shape[-1] * (2 if bidirectional else 1))
    return output.transpose(0, 1) if batch_first else output, hx.new_empty(hx.shape)
