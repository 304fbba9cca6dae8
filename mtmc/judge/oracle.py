"""The fp64 oracle: the reference's own computation in double precision, whole or by slices of the batch.

Random operations (dropout) draw in the reference's dtype from the same seed and are cast afterwards, so that oracle,
reference and candidate share every mask. Default dtype is fp64 during the call, for constants that the module makes on the
way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.judge import forms
from mtmc.judge.accuracy import NO_FIT
from mtmc.judge.copies import Memo, duplicate
from mtmc.judge.device import free_bytes, tensors

if TYPE_CHECKING:
    import torch

RANDOM = ("native_dropout", "bernoulli", "bernoulli_", "rand_like", "randn_like", "uniform_", "normal_", "rand", "randn")
SMALL = 1 << 30  # bytes of fp64 work that never matter
ENDS = 64  # parts of the batch of which the first and the last show whether it is separable
STEP = 2.0**-23  # by which inputs are nudged: eps of fp32, in which kernels compute on narrower inputs too
NEED = 4  # bytes of fp64 work per byte the reference allocates: twice the width, and as much again for temporaries


class NoOracle(Exception):
    """The reference cannot run in fp64, or there is no room for it; the message is the report's note on that."""


class DrawsAs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random operators on fp64 tensors draw numbers of another dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch
        from torch.utils._pytree import tree_map

        kwargs, name = kwargs or {}, func._schema.name.removeprefix("aten::")
        if name not in RANDOM:
            return func(*args, **kwargs)
        made = name in ("rand", "randn") and kwargs.get("dtype") is None  # in the default dtype, which is fp64 here
        narrow = {**kwargs, "dtype": self.dtype} if made or kwargs.get("dtype") == torch.float64 else kwargs
        drawn = func(*tree_map(lambda x: _cast(x, torch.float64, self.dtype), args), **narrow)
        if name.endswith("_"):
            return args[0].copy_(drawn)
        if name == "native_dropout":  # the product itself in fp64, from the shared mask
            (x, p, training), mask = args, drawn[1]
            return (x if training is False else x * mask / (1 - p) if p < 1 else x * 0, mask)
        return tree_map(lambda x: _cast(x, self.dtype, torch.float64), drawn)


def _cast(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
    import torch

    return value.to(target) if isinstance(value, torch.Tensor) and value.dtype == source else value


def widened(tree: Any) -> Any:
    """The same tree with floating tensors in fp64 and complex ones in complex128."""
    import torch
    from torch.utils._pytree import tree_map_only

    def wide(x: torch.Tensor) -> torch.Tensor:
        return x.double() if x.is_floating_point() else x.to(torch.complex128) if x.is_complex() else x

    return tree_map_only(torch.Tensor, wide, tree)


def nudged(tree: Any, seed: int) -> Any:
    """`widened`, with every floating and complex element multiplied by 1 + STEP or 1 - STEP, drawn from the seed."""
    import torch
    from torch.utils._pytree import tree_map_only

    generators: dict[torch.device, torch.Generator] = {}

    def moved(x: torch.Tensor) -> torch.Tensor:
        if not (x.is_floating_point() or x.is_complex()):
            return x
        step = min(STEP, torch.finfo(x.dtype).eps)
        generator = generators.setdefault(x.device, torch.Generator(x.device).manual_seed(seed))
        factors = torch.empty_like(x, dtype=torch.float64, requires_grad=False).bernoulli_(0.5, generator=generator)
        factors.mul_(2 * step).add_(1 - step)
        return factors * x if x.is_complex() else factors.mul_(x.detach())

    return tree_map_only(torch.Tensor, moved, tree)


def widened_model(model: torch.nn.Module) -> torch.nn.Module:
    """A copy with every tensor that it holds in fp64: parameters, buffers, other attributes, functions among these."""
    import torch

    memo: Memo = {}
    double = duplicate(model, memo)
    for held in list(memo.values()):
        if isinstance(held, torch.Tensor):
            held.data = widened(held.data)  # in place: whoever holds it sees it
    return double.double()


def working_dtype(model: torch.nn.Module, inputs: tuple[Any, ...]) -> torch.dtype:
    """The dtype that the reference computes in: its first floating input's or parameter's, else the default."""
    import torch

    for x in [*tensors(inputs), *model.parameters()]:
        if x.is_floating_point():
            return x.dtype
    return torch.get_default_dtype()


@dataclass(frozen=True)
class Part:
    """Oracle outputs for rows `start:stop` of dimension 0 of every output; `stop` is None for everything."""

    result: Any
    buffers: dict[str, torch.Tensor]
    start: int = 0
    stop: int | None = None

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """What is compared by value, by name."""
        return forms.named(self.result, self.buffers)


@dataclass(frozen=True)
class Piece:
    """Rows `start:stop` of the inputs that carry the batch, by position; of none of them, and no rows: everything."""

    carriers: frozenset[int] = frozenset()
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Oracle:
    """The reference in fp64 on one set of inputs, under one seed, in pieces that fit."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    seed: int
    pieces: tuple[Piece, ...] = (Piece(),)

    def parts(self) -> Iterator[Part]:
        """The results of every piece. Raises NoOracle at any of them."""
        return map(self.part, self.pieces)

    def part(self, piece: Piece, nudge: int | None = None) -> Part:
        """The results of a piece, or those for inputs `nudged` with the seed `nudge`. Raises NoOracle."""
        found = whole(self.model, _slice(self.inputs, piece), self.seed, nudge)
        return found if piece.stop is None else Part(found.result, {}, piece.start, piece.stop)


def planned(model: torch.nn.Module, inputs: tuple[Any, ...], result: Any, reference_bytes: int, seed: int) -> Oracle:
    """The oracle whole where that is modest; else by slices; else whole where it fits. Raises NoOracle without room.

    `result` is what the reference gave for the inputs, `reference_bytes` what it took above them.
    """
    import torch

    device = next((x.device for x in tensors((inputs, result))), torch.device("cpu"))
    all_at_once = fits(inputs, reference_bytes, device)
    if all_at_once and modest(inputs, result, reference_bytes):
        return Oracle(model, inputs, seed)
    pieces = _pieces(model, inputs, result, reference_bytes)
    if not pieces and not all_at_once:
        raise NoOracle(NO_FIT)
    return Oracle(model, inputs, seed, pieces or (Piece(),))


def whole(model: torch.nn.Module, inputs: tuple[Any, ...], seed: int, nudge: int | None = None) -> Part:
    """One fp64 call, on inputs `nudged` with the seed `nudge` if there is one. Raises NoOracle."""
    import torch

    before = torch.get_default_dtype()
    try:
        double = widened_model(model)
        given = widened(inputs) if nudge is None else nudged(inputs, nudge)
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float64)
        with torch.no_grad(), DrawsAs(working_dtype(model, inputs)):
            result = double(*given)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise NoOracle(NO_FIT) from error
    except Exception as error:  # an operation without fp64, a dtype fixed or asserted in the user's code
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NoOracle(f"no fp64 oracle ({why}); compared with the reference itself") from error
    finally:
        torch.set_default_dtype(before)
    return Part(result, dict(double.named_buffers()))


def fits(inputs: tuple[Any, ...], reference_bytes: int, device: torch.device) -> bool:
    """Whether a whole fp64 call fits beside what is there, by what the reference needed (bytes above its inputs)."""
    return need(inputs, reference_bytes) < free_bytes(device)


def need(inputs: tuple[Any, ...], reference_bytes: int) -> int:
    """Bytes that a whole fp64 call takes, by what the reference allocated."""
    return NEED * (size(inputs) // 2 + reference_bytes)


def size(tree: Any) -> int:
    """Bytes of the tensors in a tree."""
    return sum(x.numel() * x.element_size() for x in tensors(tree))


def modest(inputs: tuple[Any, ...], result: Any, reference_bytes: int) -> bool:
    """Whether a whole fp64 call takes no more memory than inputs and outputs do, or little."""
    return need(inputs, reference_bytes) <= max(SMALL, size(inputs) + size(result))


def _pieces(model: torch.nn.Module, inputs: tuple[Any, ...], result: Any, reference_bytes: int) -> tuple[Piece, ...]:
    """Slices of the batch, each no larger than the inputs are and than what is free; none where it is not separable.

    With the reference's own result, verification so takes the inputs and outputs once more at most.
    """
    outputs = tensors(result)
    batch = outputs[0].shape[0] if outputs and outputs[0].ndim else 0
    if batch < 2 or any(o.ndim == 0 or o.shape[0] != batch for o in outputs):
        return ()
    carriers = next((c for c in _batched(inputs, batch) if _separable(model, inputs, result, c)), None)
    if carriers is None:
        return ()
    room = min(free_bytes(outputs[0].device), max(SMALL, size(inputs)))
    count = ceil(NEED * max(reference_bytes, size(inputs) // 2, 1) / max(room // 2, 1)) + 1
    rows = max(1, batch // count)
    return tuple(Piece(carriers, start, min(start + rows, batch)) for start in range(0, batch, rows))


def _batched(inputs: tuple[Any, ...], batch: int) -> list[frozenset[int]]:
    """Guesses which inputs carry the batch in dimension 0: all with that length, else each alone."""
    long = [i for i, x in enumerate(inputs) if hasattr(x, "shape") and len(x.shape) and x.shape[0] == batch]
    return [frozenset(long), *(frozenset([i]) for i in long)] if long else []


def _slice(inputs: tuple[Any, ...], piece: Piece) -> tuple[Any, ...]:
    return tuple(x[piece.start : piece.stop] if i in piece.carriers else x for i, x in enumerate(inputs))


def _separable(model: torch.nn.Module, inputs: tuple[Any, ...], result: Any, carriers: frozenset[int]) -> bool:
    """Whether the reference on a slice equals the slice of the reference's result, at both ends of the batch.

    A reference that draws random numbers draws others for a slice.
    """
    import torch

    outputs = tensors(result)
    batch = outputs[0].shape[0]
    rows = max(1, batch // ENDS)
    generator = _generator(outputs[0].device)
    for start in (0, batch - rows):
        state = generator.get_state()
        try:
            with torch.no_grad():
                parts = tensors(duplicate(model)(*_slice(inputs, Piece(carriers, start, start + rows))))
        except Exception:  # noqa: BLE001  the shapes do not go together, by whatever the user's file raises
            return False
        if not torch.equal(state, generator.get_state()):
            return False
        for part, full in zip(parts, outputs, strict=True):
            expected = full[start : start + rows]
            if part.shape != expected.shape or not _close(part, expected):
                return False
    return True


def _generator(device: torch.device) -> torch.Generator:
    """The one that random operators on a device use."""
    import torch

    return torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal within 1 %, small values within 0.1 % of the typical one."""
    import torch

    typical = float(torch.nan_to_num(b.double(), 0, 0, 0).square().mean().sqrt()) if b.numel() else 0.0
    return torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-3 * typical, equal_nan=True)
