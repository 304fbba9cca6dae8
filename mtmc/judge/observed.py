"""One call, watched: what it gives, what it writes to, and whose memory its results lie on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.judge import forms
from mtmc.judge.device import fingerprint, synchronize, tensors

if TYPE_CHECKING:
    import torch


class FillEmpty(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Memory that PyTorch hands out unwritten is filled: floats with `value`, integers with their largest."""

    def __init__(self, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.value = value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        result = func(*args, **(kwargs or {}))
        if "empty" in func._schema.name and isinstance(result, torch.Tensor) and result.device.type != "meta":
            numeric = result.is_floating_point() or result.is_complex()
            result.fill_(self.value if numeric else result.dtype == torch.bool or torch.iinfo(result.dtype).max)
        return result


@dataclass(frozen=True)
class Observed:
    """One call and what it left behind.

    `buffers` are copies after the call; `written` copies of the inputs whose bits changed, by position among the tensors;
    `shared` pairs outputs with whose memory they lie on; `parameters` and `updated` name those whose bits changed.
    """

    result: Any
    buffers: dict[str, torch.Tensor]
    written: dict[int, torch.Tensor]
    shared: frozenset[tuple[int, str]]
    parameters: tuple[str, ...]
    updated: frozenset[str] = frozenset()

    @property
    def form(self) -> str:
        return forms.skeleton(self.result)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Everything that is compared by value, with the name it has in messages."""
        return forms.named(self.result, self.buffers)

    @property
    def bits(self) -> list[tuple[int, int]]:
        """Fingerprints of the tensors among the leaves, in order."""
        return [fingerprint(leaf) for _, leaf in self.leaves() if hasattr(leaf, "numel")]


def observe(
    call: Callable[[], Any], model: torch.nn.Module, inputs: tuple[Any, ...], seed: int, fill: float | None = None
) -> Observed:
    """Call, watching inputs, parameters and buffers. Buffers are restored afterwards, inputs are not."""
    import torch

    given, parameters, buffers = tensors(inputs), dict(model.named_parameters()), dict(model.named_buffers())
    before = [fingerprint(x) for x in given]
    weights = {name: fingerprint(p) for name, p in parameters.items()}
    kept = {name: buffer.clone() for name, buffer in buffers.items()}
    torch.manual_seed(seed)
    with torch.no_grad(), FillEmpty(fill) if fill is not None else nullcontext():
        result = call()
    synchronize()
    seen = Observed(
        result,
        {name: buffer.clone() for name, buffer in buffers.items()},
        {i: x.clone() for i, x in enumerate(given) if fingerprint(x) != before[i]},
        _shared(result, given, (*parameters.values(), *buffers.values())),
        tuple(name for name, p in parameters.items() if fingerprint(p) != weights[name]),
        frozenset(name for name, buffer in buffers.items() if fingerprint(buffer) != fingerprint(kept[name])),
    )
    with torch.no_grad():
        for name in seen.updated:
            buffers[name].copy_(kept[name])
    return seen


def _shared(result: Any, given: list[torch.Tensor], state: Iterable[torch.Tensor]) -> frozenset[tuple[int, str]]:
    """Which output lies on memory of an input, of the model's state, or of an earlier output."""
    places = {x.untyped_storage().data_ptr(): "the model's state" for x in state}
    places |= {x.untyped_storage().data_ptr(): f"input {number}" for number, x in enumerate(given)}
    shared = set()
    for number, y in enumerate(tensors(result)):
        place = y.untyped_storage().data_ptr()
        if place in places and y.numel():
            shared.add((number, places[place]))
        places.setdefault(place, f"output {number}")
    return frozenset(shared)
