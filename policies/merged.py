"""LoRA as the weights that it makes: W + s·B·A is computed once a call, and every token goes through one product a layer.

peft adds s·B·A·x to W·x for each token: several more kernels a layer, forward and backward, over tensors as large as the
activations. Here the sum is made of the weights, which are smaller than a batch's activations, and rounded to their dtype;
the gradients of A and B come back through it. So the network in training is also the one that `scoring.load` merges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Merged:
    """The plain LoRA layers over `nn.Linear` of a peft model, by the weights of one adapter or another.

    Layers of another kind (DoRA, dropout, other bases) go on as peft runs them, with the adapter that is set there.
    """

    def __init__(self, model: nn.Module) -> None:
        from peft.tuners.lora import Linear

        found: dict[tuple[float, ...], list[Any]] = {}
        for module in model.modules():
            if isinstance(module, Linear) and _plain(module):
                key = (*module.base_layer.weight.shape, *module.scaling.values(), *module.r.values())
                found.setdefault(key, []).append(module)
        self._groups = [_Group(layers) for layers in found.values()]
        self._weights: dict[Any, Tensor] = {}
        self._kept: dict[str, tuple[tuple[int, ...], dict[Any, Tensor]]] = {}
        for layer in (layer for layers in found.values() for layer in layers):
            layer.forward = partial(self._through, layer, layer.base_layer.bias)

    @contextmanager
    def of(self, adapter: str) -> Iterator[None]:
        """Calls of the model inside go through the weights of this adapter."""
        self._weights = self._made(adapter)
        try:
            yield
        finally:
            self._weights = {}

    def _made(self, adapter: str) -> dict[Any, Tensor]:
        """The weight of each layer. Without gradients they are kept until a parameter changes."""
        if torch.is_grad_enabled():
            self._kept.pop(adapter, None)
            return self._sums(adapter)
        versions = tuple(p._version for group in self._groups for p in group.parameters(adapter))
        if adapter not in self._kept or self._kept[adapter][0] != versions:
            self._kept[adapter] = versions, self._sums(adapter)
        return self._kept[adapter][1]

    def _sums(self, adapter: str) -> dict[Any, Tensor]:
        return {layer: weight for group in self._groups for layer, weight in group.weights(adapter)}

    def _through(self, layer: Any, bias: Tensor | None, x: Tensor) -> Tensor:
        return functional.linear(x, self._weights[layer], bias)


class _Group:
    """Layers of one shape, rank and scale. Their sums are one product: hundreds of small ones take long to start."""

    def __init__(self, layers: list[Any]) -> None:
        self._layers = layers
        self._base = torch.stack([layer.base_layer.weight.detach() for layer in layers])
        for layer, weight in zip(layers, self._base, strict=True):
            layer.base_layer.weight.data = weight  # a view: the base is held once

    def parameters(self, adapter: str) -> Iterator[Tensor]:
        for layer in self._layers:
            yield from (layer.lora_A[adapter].weight, layer.lora_B[adapter].weight)

    def weights(self, adapter: str) -> Iterator[tuple[Any, Tensor]]:
        """Each layer with W + s·B·A, in W's dtype."""
        down = torch.stack([layer.lora_A[adapter].weight for layer in self._layers])
        up = torch.stack([layer.lora_B[adapter].weight for layer in self._layers])
        scale = self._layers[0].scaling[adapter]
        update = up @ down * scale
        return zip(self._layers, (self._base + update).to(self._base.dtype).unbind(), strict=True)


def _plain(layer: Any) -> bool:
    straight = all(isinstance(dropout, nn.Identity) for dropout in layer.lora_dropout.values())
    return type(layer.base_layer) is nn.Linear and straight and not layer.fan_in_fan_out and not len(layer.lora_variant)
