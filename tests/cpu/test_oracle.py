"""The fp64 oracle: copies that lead nowhere else, and what it says where it cannot run."""

import functools

import pytest
import torch
import torch.nn as nn

from mtmc.judge import oracle
from mtmc.judge.copies import duplicate
from mtmc.judge.oracle import NoOracle


class Closed(nn.Module):
    """A model most of whose work is done by functions that it keeps as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"first": nn.Linear(4, 8), "norm": nn.BatchNorm1d(8), "last": nn.Linear(8, 4)})
        self.register_buffer("shift", torch.ones(4))
        parts, shift, loose = self.parts, self.shift, torch.full((4,), 0.1)
        self.body = lambda x: parts.last(parts["norm"](parts.first(x)))
        self.listed = [lambda x: self.body(x) + shift, lambda x, by=loose: x * by]
        self._bound = self.parts.last.forward
        self.partial = functools.partial(torch.mul, torch.full((4,), 0.3))

        def halved(x: torch.Tensor, times: int) -> torch.Tensor:
            return halved(x / 2, times - 1) if times else x

        self.halved = halved

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.listed:
            x = step(x)
        return self._bound(self.halved(self.partial(torch.cat((x, x), -1)[:, :4]), 2).repeat(1, 2))


def test_functions_among_the_attributes_call_the_copy() -> None:
    torch.manual_seed(0)
    model, x = Closed(), torch.rand(5, 4)
    double = oracle.widened_model(model)
    exact = double(x.double())
    assert exact.dtype == torch.float64
    assert model.parts["norm"].num_batches_tracked == 0 and double.parts["norm"].num_batches_tracked == 1
    assert torch.allclose(exact.float(), model(x), rtol=1e-5)
    assert double.parts["norm"].running_mean.dtype == torch.float64
    twin = duplicate(model)
    with torch.no_grad():
        twin.parts["last"].weight.zero_()
        twin.parts["last"].bias.zero_()
        twin.shift.zero_()
    assert not twin(x).any() and model(x).all()


def test_what_holds_nothing_of_the_model_is_not_copied() -> None:
    model = nn.Module()
    model.activation, model.shared = torch.nn.functional.softsign, [1, 2]
    model.inner = nn.Module()
    model.inner.shared = model.shared
    twin = duplicate(model)
    assert twin.activation is model.activation and twin.shared is twin.inner.shared is not model.shared


def test_parameters_that_are_to_be_shared_stay_shared() -> None:
    model = Closed()
    twin = duplicate(model, {id(p): p for p in model.parameters()})
    assert all(a is b for a, b in zip(twin.parameters(), model.parameters(), strict=True))
    twin(torch.rand(5, 4))
    assert model.parts["norm"].num_batches_tracked == 0


class Picky(nn.Module):
    """Raises an error of a kind for everything but fp32."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise self.error
        return x * 2


@pytest.mark.parametrize(
    "error", [RuntimeError("no kernel\nsecond line"), AssertionError(), ValueError("half"), KeyError(1)]
)
def test_a_reference_that_cannot_run_in_fp64_says_so_by_whatever_it_raises(error: Exception) -> None:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    with pytest.raises(NoOracle) as raised:
        oracle.whole(Picky(error), (torch.rand(3),), 0)
    assert str(raised.value) == f"no fp64 oracle ({why}); compared with the reference itself"
    assert torch.get_default_dtype() == torch.float32
    with pytest.raises(NoOracle, match="no room"):
        oracle.whole(Picky(torch.OutOfMemoryError("CUDA out of memory")), (torch.rand(3),), 0)
