"""What eager PyTorch would run: the operators that reach a kernel during a call on meta tensors, and their predicted time.

Operators are seen below autograd, so composite ones are already split as eager splits them (linear → addmm). Attention is
seen split as well, although a GPU would fuse it; so its predicted time is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.graph import TensorType
from mtmc.judge.device import tensors

if TYPE_CHECKING:
    import torch

    from mtmc.hardware_profiles import Profile
    from mtmc.judge.predict import Prediction

FREE = ("empty", "_unsafe_view", "detach", "lift_fresh", "alias", "_to_copy", "scalar_tensor")  # nothing is computed


class EagerCalls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the predicted time of the operators called inside the block."""

    def __init__(self, profile: Profile) -> None:
        from mtmc.judge.predict import Prediction

        super().__init__()  # type: ignore[no-untyped-call]
        self.profile = profile
        self.prediction: Prediction = Prediction()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from mtmc.judge.predict import predict_aten

        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if not func.is_view and not name.startswith(FREE):
            given, made = tensors((args, kwargs)), tensors(result)
            flops = _flops(func, args, kwargs or {}, result)
            types_in, types_out = ([tensor_type(t) for t in side] for side in (given, made))
            self.prediction += predict_aten(str(func), types_in, types_out, flops, self.profile)
        return result


def _flops(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    """Operations of matrix products, convolutions and attention by PyTorch's own table; 0 for everything else."""
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(func.overloadpacket)
    return float(count(*args, **kwargs, out_val=result)) if count else 0.0


def tensor_type(tensor: torch.Tensor) -> TensorType:
    return TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride()))
