"""Guards around memory, and poison in it.

Reads past the end of a tensor never fault inside an allocation on a GPU. So inputs are placed inside larger allocations,
with guards before and after them, and the memory that PyTorch hands out meanwhile too: what a write leaves in a guard shows
there, and what a read takes from one shows when the guards hold other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.judge import candidate
from mtmc.judge.device import free_bytes, tensors
from mtmc.judge.dynamic.subject import Subject, cloned, mismatch
from mtmc.verdict import Finding

if TYPE_CHECKING:
    import torch

GUARD = 1 << 16  # bytes on each side; a multiple of every alignment that kernels are specialised for
FILLS = (float("nan"), 3e4, -3e4)  # sums take NaN over; a maximum or minimum may drop it, but not both others
CONTAMINATED = 1e-2  # relative norm error between two fillings, far above what unordered sums differ by
MAKERS = ("empty", "zeros", "ones", "full", "new_", "rand")  # operators, by prefix, whose result is memory of their own
HELD = 4 << 30  # bytes of guarded memory kept alive at most, so that its guards can be looked at afterwards


@dataclass(frozen=True)
class Block:
    """A tensor of `tensor`'s shape and strides in the middle of `whole`, with `guard` elements on each side."""

    name: str
    tensor: torch.Tensor
    whole: torch.Tensor
    guard: int
    fill: float

    def damage(self) -> str:
        """Where a guard has been written, empty when both are as they were."""
        guards = {"before": self.whole[: self.guard].flip(0), "after": self.whole[-self.guard :]}
        for side, guard in guards.items():
            wrong = ~_like(guard, self.fill)
            if bool(wrong.any()):
                return (
                    f"{int(wrong.sum())} elements {side} {self.name} were written, {int(wrong.int().argmax()) + 1} from it"
                )
        return ""


def _like(x: torch.Tensor, fill: float) -> torch.Tensor:
    value = _filling(x.dtype, fill)
    return x.isnan() if value != value else x == value


def _filling(dtype: torch.dtype, fill: float) -> float:
    """Integers may be indices: 0, or 1 for a negative fill."""
    return fill if dtype.is_floating_point or dtype.is_complex else float(fill < 0)


def place(name: str, x: torch.Tensor, fill: float, *, copy: bool = True) -> Block:
    """A tensor like `x` between guards; without `copy` it holds the fill as well."""
    import torch

    guard = GUARD // x.element_size()
    span = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    whole = torch.empty(span + 2 * guard, dtype=x.dtype, device=x.device).fill_(_filling(x.dtype, fill))
    inner = torch.empty(0, dtype=x.dtype, device=x.device)
    inner.set_(whole.untyped_storage(), guard, x.shape, x.stride())
    if copy:
        inner.copy_(x)
    return Block(name, inner, whole, guard, fill)


def guardable(x: Any) -> bool:
    """Plain dense memory with elements of its own."""
    import torch

    dense = isinstance(x, torch.Tensor) and x.layout == torch.strided and x.numel() > 0
    narrow = dense and x.is_floating_point() and x.element_size() < 2  # PyTorch cannot compare float8
    return dense and 0 not in x.stride() and not x.is_quantized and not narrow and x.device.type in ("cpu", "cuda")


def placed(inputs: tuple[Any, ...], fill: float) -> tuple[tuple[Any, ...], list[Block]]:
    """The inputs with every dense tensor copied to a place between guards."""
    import torch
    from torch.utils._pytree import tree_map_only

    blocks: list[Block] = []

    def move(x: torch.Tensor) -> torch.Tensor:
        if not guardable(x):
            return x
        blocks.append(place(f"input {len(blocks)}", x.detach(), fill))
        return blocks[-1].tensor.requires_grad_(x.requires_grad)

    with torch.no_grad():
        return tree_map_only(torch.Tensor, move, inputs), blocks


def footprint(inputs: tuple[Any, ...]) -> int:
    """Bytes that `placed` takes."""
    return sum(x.numel() * x.element_size() + 2 * GUARD for x in tensors(inputs))


class Guarded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Memory that PyTorch hands out lies between guards, and is filled like them where it is handed out unwritten."""

    def __init__(self, fill: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fill, self.blocks, self.held = fill, list[Block](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # where a candidate believes in a GPU, tensors say that they are on one
            return self._guarded(func, result, kwargs)

    def _guarded(self, func: Any, result: Any, kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if not name.startswith(MAKERS) or "out" in kwargs or kwargs.get("pin_memory") or not guardable(result):
            return result
        size = result.numel() * result.element_size()
        if self.held + size > min(HELD, free_bytes(result.device) // 2):
            return result.fill_(_filling(result.dtype, self.fill)) if "empty" in name else result
        self.held += size
        self.blocks.append(place(f"a tensor from torch.{name}", result, self.fill, copy="empty" not in name))
        return self.blocks[-1].tensor


def canaries(subject: Subject) -> Iterator[Finding]:
    """Nothing is written into the guards, and the result does not depend on what they hold."""
    if footprint(subject.inputs) > free_bytes(subject.device) // 4:
        subject.notes.append("canaries: no memory for a guarded copy of the inputs")
        return
    with subject.anew() as built:  # so that memory which it takes at its first call, and keeps, is guarded too
        yield from _guarded_calls(subject, built)


def _guarded_calls(subject: Subject, built: candidate.Built | None) -> Iterator[Finding]:
    first = None
    for fill in FILLS:
        moved, blocks = placed(subject.inputs, fill)
        with Guarded(fill) as mode:
            result = subject.run(moved, built)
        if written := next(filter(None, (block.damage() for block in [*blocks, *mode.blocks])), ""):
            yield Finding("dynamic.canaries", 0, f"writes outside its tensors: {written}")
            return
        if first is None:
            first = cloned(result)  # the candidate may write the next result to the same place
        elif mismatch(result, first) > CONTAMINATED:
            why = f"the result changes with memory outside the tensors (or never written), filled with {fill:g}"
            yield Finding("dynamic.canaries", 0, why)
            return


@dataclass(frozen=True)
class _Raw:
    """Bytes of device memory, for `torch.as_tensor`."""

    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}


def poison_freed() -> int:
    """Fill what PyTorch's allocator holds free on the GPU with NaN (all bits set), however it got there; bytes filled."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    device = torch.device("cuda", torch.cuda.current_device())
    torch.cuda.synchronize(device)
    total = 0
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        if segment["device"] != device.index or segment.get("is_expandable"):
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                torch.as_tensor(_Raw(address, block["size"]), device=device).fill_(255)
                total += block["size"]
            address += block["size"]
    torch.cuda.synchronize(device)
    return total
