"""Small questions about tensors and the device they are on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mtmc.judge import forms

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 24  # elements hashed at a time


def tensors(tree: Any) -> list[torch.Tensor]:
    """Tensor leaves of nested tuples, lists, dicts and dataclasses, in order."""
    import torch

    return [leaf for leaf in forms.leaves(tree) if isinstance(leaf, torch.Tensor)]


def synchronize() -> None:
    """Wait for the whole GPU when CUDA is in use in this process; nothing otherwise."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def fingerprint(tensor: torch.Tensor) -> tuple[int, int]:
    """Two checksums of a tensor's bits (plain and weighted by position, modulo 2⁶⁴), computed where it lies."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().reshape(-1).view(whole)
    plain = weighted = torch.zeros((), dtype=torch.int64, device=tensor.device)
    weights = _mixed(torch.arange(1, min(CHUNK, bits.numel()) + 1, device=tensor.device))
    for number, start in enumerate(range(0, bits.numel(), CHUNK)):
        wide = bits[start : start + CHUNK].to(torch.int64)
        plain = plain + wide.sum()
        weighted = weighted + (wide * weights[: wide.numel()]).sum() * (2 * number + 1)
    return int(plain), int(weighted)


def _mixed(index: torch.Tensor) -> torch.Tensor:
    """Odd 64-bit weights without a pattern (a multiply-xor-multiply hash of the position), so that swaps do not cancel."""
    mixed = index * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 32)) | 1


def free_bytes(device: torch.device) -> int:
    """Memory that a new tensor could take on a CUDA device, cached blocks included; no limit elsewhere (2⁶³)."""
    import torch

    if device.type != "cuda":
        return 1 << 63
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


@contextmanager
def peak_above(device: torch.device) -> Iterator[list[int]]:
    """Appends to the yielded list how many bytes of CUDA memory the block took at most, above what was taken before."""
    import torch

    found: list[int] = []
    if device.type != "cuda":
        yield found
        found.append(0)
        return
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    yield found
    torch.cuda.synchronize(device)
    found.append(torch.cuda.max_memory_allocated(device) - before)
