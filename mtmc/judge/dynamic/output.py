"""Is the result what it says it is: a plain tensor, with memory of its own, that has been computed?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mtmc.judge.device import tensors
from mtmc.judge.dynamic.subject import Subject
from mtmc.verdict import Finding

if TYPE_CHECKING:
    import torch


def output_type(subject: Subject) -> Iterator[Finding]:
    """Every tensor of the result is exactly a `torch.Tensor` (or as the reference's) on real memory of the right device."""
    import torch

    found = tensors(subject.run())
    kinds: set[type] = {torch.Tensor}
    if any(type(y) not in kinds for y in found):
        kinds |= {type(r) for r in tensors(subject.truth())}
    for number, y in enumerate(found):
        if why := _strange(y, subject.device, kinds):
            yield Finding("dynamic.output_type", 0, f"output {number} {why}")
            return


def _strange(y: torch.Tensor, device: torch.device, kinds: set[type]) -> str:
    import torch

    if type(y) not in kinds:
        return f"is a {type(y).__name__}, not a torch.Tensor"
    if y.layout != torch.strided or not y.numel():
        return ""  # compared with the reference's form elsewhere
    if y.device.type != device.type:
        return f"is on {y.device}, not on {device.type}"
    storage = y.untyped_storage()
    last = sum((size - 1) * stride for size, stride in zip(y.shape, y.stride(), strict=True))
    if storage.data_ptr() == 0 or storage.nbytes() < (y.storage_offset() + last + 1) * y.element_size():
        return "has no memory behind it"
    return ""
