"""Captured, lowered and run in the interpreter: every operator family against eager PyTorch (see lowering_checks.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from lowering_cases import CASES, Case, source
from processes import PATIENCE, environment

from mtmc.capture import capture
from mtmc.judge import candidate
from mtmc.lower import Lowering, lower
from mtmc.problem import Problem

SCRIPT = Path(__file__).with_name("lowering_checks.py")

SHIFTED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("now", torch.zeros(8))
        self.register_buffer("last", torch.zeros(8))

    def forward(self, x):
        self.last.copy_(self.now)
        self.now.copy_(x.sum(0))
        return x + self.last

def get_inputs():
    return [torch.rand(4, 8)]
"""


def _param(number: int, name: str) -> object:
    """One case in six is fast enough for every day."""
    return pytest.param(name, marks=[pytest.mark.slow] * (number % 6 > 0))


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, str | None]:
    test = test_the_lowered_program_computes_what_eager_does
    chosen = [item.callspec.params["name"] for item in request.session.items if getattr(item, "function", None) is test]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *chosen],
        env=environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", [_param(number, name) for number, name in enumerate(CASES)])
def test_the_lowered_program_computes_what_eager_does(name, results):
    assert results[name] is None


def lowered(tmp_path: Path, *cases: Case) -> Lowering:
    path = tmp_path / "model.py"
    path.write_text(source(cases))
    problem = Problem("cases", path.read_text(), str(path))
    return lower(problem, capture(problem))


def test_buffers_that_take_over_from_one_another_do_so_in_time(tmp_path):
    """`self.last.copy_(self.now); self.now.copy_(…)`: the writes stand at the end, in the order of the buffers."""
    path = tmp_path / "model.py"
    path.write_text(SHIFTED)
    problem = Problem("shifted", path.read_text(), str(path))
    body = lower(problem, capture(problem)).program.text("ModelNew")
    kept = body.index("b_now_kept = launch_copy(b_now)")
    assert kept < body.index("self.now.copy_(") and "self.last.copy_(b_now_kept)" in body


def test_equal_kernels_are_defined_once(tmp_path):
    program = lowered(tmp_path, Case("F.relu(F.relu(x) + y)", {"x": "torch.randn(A, B)", "y": "torch.randn(A, B)"})).program
    assert program.units == ("relu", "add")
    assert program.text("ModelNew").count("launch_relu(") == 2


def test_kernels_on_other_shapes_are_not_shared(tmp_path):
    program = lowered(tmp_path, Case("F.relu(x), F.relu(y)", {"x": "torch.randn(A, B)", "y": "torch.randn(B, A)"})).program
    assert program.units == ("relu", "relu_1")


def test_what_stays_with_pytorch_is_named_with_the_reason(tmp_path):
    found = lowered(tmp_path, Case("F.relu(x.logcumsumexp(1))", {"x": "torch.randn(A, B)"}))
    assert found.program.fallback_calls == ("aten.logcumsumexp.default",)
    assert found.reasons == {"logcumsumexp": "no template for aten.logcumsumexp.default"}


def test_index_maps_of_a_scan_move_no_data(tmp_path):
    back = lowered(tmp_path, Case("x.flip(1).cumsum(1).flip(1)", {"x": "torch.randn(A, B)"}))
    shifted = Case("torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)", {"x": "torch.randn(A, B)"})
    exclusive = lowered(tmp_path, shifted)
    assert (back.program.units, exclusive.program.units) == (("cumsum_back",), ("cumsum_exclusive",))
    assert back.program.fallback_calls == exclusive.program.fallback_calls == ()
    assert exclusive.reasons == {}


def test_sizes_that_do_not_fit_the_text_are_told(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(source([Case("x + y", {"x": "torch.randn(A, B)", "y": "torch.randn(A, M - 32)"})]))
    problem = Problem("cases", path.read_text(), str(path))
    broadcast, whole = (Problem(**{**vars(problem), "overrides": (("M", 32 + n),)}) for n in (1, 37))
    found = lower(broadcast, capture(broadcast), [capture(whole).graph, capture(broadcast).graph])
    assert found.sizes == (None, {})


def test_a_model_that_cannot_be_captured_becomes_the_reference(tmp_path):
    found = lowered(tmp_path, Case("if x.sum() > 0:\n    return x\nreturn -x", {"x": "torch.randn(A, B)"}))
    assert found.graph is None
    assert "model" in found.reasons
    assert "super().forward(*inputs)" in found.program.text("ModelNew")


@pytest.fixture
def guarded(tmp_path, monkeypatch) -> Iterator[ModuleType]:
    """A program whose guard takes the CPU for a GPU, and whose kernels only say that they ran."""
    case = Case(
        "self.f(x) * s + y", {"x": "torch.randn(A, B)", "s": "2.5", "y": "torch.randn(N, A).t()"}, "self.f = nn.Linear(B, N)"
    )
    text = lowered(tmp_path, case).program.source.replace("device.type == 'cuda'", "device.type == 'cpu'")
    monkeypatch.chdir(tmp_path)
    with candidate.imported(text) as module:
        module.ModelNew.kernels = lambda self, *inputs: "kernels"  # type: ignore[attr-defined]
        yield module


def inputs(rows: int = 3) -> tuple[torch.Tensor, float, torch.Tensor]:
    return torch.randn(rows, 37), 2.5, torch.randn(11, rows).t()


@torch.no_grad()
def test_the_kernels_run_where_they_hold(guarded):
    assert guarded.ModelNew()(*inputs()) == "kernels"


def refused() -> dict[str, tuple[Any, ...]]:
    x, s, y = inputs()
    return {
        "another batch": inputs(4),
        "a shape that broadcasts otherwise": (x, s, y[:1]),
        "another layout": (x, s, y.contiguous()),
        "a turned input": (x.t().contiguous().t(), s, y),
        "another number": (x, 2.0, y),
        "another dtype of one": (x, s, y.double()),
    }


@torch.no_grad()
@pytest.mark.parametrize("which", refused())
def test_the_reference_runs_on(which, guarded):
    given = refused()[which]
    model = guarded.ModelNew()
    assert torch.equal(model(*given)[0], guarded.Model.forward(model, *given)[0])


@torch.no_grad()
@pytest.mark.parametrize(
    "change", ["model.eval()", "model.double()", "model.case0.f.weight.data = model.case0.f.weight.t(); model.train()"]
)
def test_a_changed_model_is_the_reference(change, guarded):
    model = guarded.ModelNew()
    exec(change)
    assert not guarded.supports(model, *inputs())


@torch.no_grad()
def test_inputs_by_name_and_wrong_calls_are_the_references(guarded):
    x, s, y = inputs()
    model = guarded.ModelNew()
    assert torch.is_tensor(model(x, s, y0=y)[0])
    with pytest.raises(TypeError):
        model(x)


def test_gradients_come_from_the_reference(guarded):
    x, s, y = inputs()
    model = guarded.ModelNew()
    model(x.requires_grad_(), s, y)[0].sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        assert model(x, s, y) == "kernels"
