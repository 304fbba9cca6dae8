"""MTMC: a PyTorch model in, verified and measured Triton kernels out.

The Python call is `mtmc.optimize(model, …) -> mtmc.Result`; it is loaded on first use, so that `import mtmc.program` and the
like stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtmc.optimizer import Result, optimize

__all__ = ["Result", "optimize"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mtmc' has no attribute '{name}'")
    from mtmc import optimizer

    return getattr(optimizer, name)
