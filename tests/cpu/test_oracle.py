"""The fp64 oracle: copies that lead nowhere else, what it says where it cannot run, and how far its results move."""

import functools

import pytest
import torch
import torch.nn as nn

from mtmc.judge import conditioning, oracle
from mtmc.judge.copies import duplicate
from mtmc.judge.oracle import NoOracle, Oracle, Piece


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


def test_nudged_inputs_are_off_by_a_rounding() -> None:
    x = torch.rand(7, 5).t() + 1
    ids, half, exact = torch.arange(3), torch.ones(100, dtype=torch.bfloat16), torch.ones(100, dtype=torch.float64)
    y, (same, narrow, wide) = oracle.nudged((x, [ids, half, exact]), 3)
    assert same is ids and y.dtype == narrow.dtype == torch.float64 and y.stride() == x.stride()
    signs = (y / x.double() - 1) / 2**-23
    assert torch.allclose(signs.abs(), torch.ones(()).double(), rtol=1e-6) and 0 < (signs > 0).sum() < 35
    assert set(((narrow - 1) / 2**-23).tolist()) == {1.0, -1.0} == set(((wide - 1) / 2**-52).tolist())
    assert torch.equal(y, oracle.nudged((x,), 3)[0]) and not torch.equal(y, oracle.nudged((x,), 4)[0])


@pytest.mark.parametrize("pieces", [(Piece(),), (Piece(frozenset([0]), 0, 3), Piece(frozenset([0]), 3, 10))])
def test_what_a_rounding_of_the_inputs_changes_is_measured(pieces: tuple[Piece, ...]) -> None:
    class Exponential(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(x)

    found = conditioning.allowances(Oracle(Exponential(), (torch.full((10, 100), 20.0),), 0, pieces))["output"]
    wanted = conditioning.ROUNDINGS * 20 * 2**-23  # x·(1 ± u) changes exp(x) by x·u
    assert found.norm == pytest.approx(wanted, rel=1e-4) and found.element == pytest.approx(wanted, rel=1e-4)


def test_a_threshold_is_no_conditioning() -> None:
    class Threshold(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.where(x > 0.5, x, 0), x * 3

    jump, slope = conditioning.allowances(Oracle(Threshold(), (torch.full((100,), 0.5),), 0)).values()
    assert (jump.norm, jump.element) == (0, 0) and slope.norm > 0
