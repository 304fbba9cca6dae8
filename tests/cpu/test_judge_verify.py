"""Verification on the CPU with candidates written in PyTorch: what is watched, the oracle, the draws."""

from contextlib import nullcontext

import pytest
import torch

from mtmc.judge import conditioning, draws, oracle, verify
from mtmc.judge.accuracy import RULES
from mtmc.judge.device import fingerprint
from mtmc.judge.verify import Verifier
from mtmc.problem import Problem
from mtmc.verdict import Accuracy, Wrong

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]
"""
CANDIDATE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def kernels(self, x):
        {kernels}
"""


def problem(forward: str, init: str = "pass", inputs: str = "torch.rand(6, 10)") -> Problem:
    return Problem("sample", FILE.format(forward=forward, init=init, inputs=inputs), "sample.py")


def verified(case: Problem, kernels: str, names: tuple[str, ...] = ("own",)) -> Accuracy | Wrong:
    return Verifier(case, "cpu", RULES["strict"]).verify(CANDIDATE.format(kernels=kernels), None, names)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def passes(found: Accuracy | Wrong) -> bool:
    assert isinstance(found, (Accuracy, Wrong))
    return isinstance(found, Accuracy)


def check_of(found: Accuracy | Wrong) -> str:
    assert isinstance(found, Wrong), found
    return found.check


def test_every_draw_is_checked_and_named() -> None:
    case = problem("return torch.softmax(x, -1)")
    names = draws.usable(case)
    assert names == ("own", "own again", "normal", "shifted", "large", "low", "tiny", "structured", "with NaN")
    found = verified(case, "e = torch.exp(x - x.amax(-1, True)); return e / e.sum(-1, keepdim=True)", names)
    assert isinstance(found, Accuracy)
    assert found.checked == tuple(f"{name} 6x10" for name in names)
    assert 0 < found.candidate_error < 1e-6


def test_large_inputs_catch_a_softmax_without_a_maximum() -> None:
    case = problem("return torch.softmax(x, -1)")
    kernels = "e = torch.exp(x); return e / e.sum(-1, keepdim=True)"
    assert passes(verified(case, kernels, ("own", "normal")))
    assert check_of(verified(case, kernels, ("own", "large"))) == "nan"


def test_shifted_inputs_catch_a_normalisation_that_does_nothing() -> None:
    case = problem("return x - x.mean(-1, keepdim=True)", inputs="torch.randn(6, 10) * 0")
    assert passes(verified(case, "return x.clone()"))
    assert check_of(verified(case, "return x.clone()", ("own", "shifted"))) == "values"


def test_draws_that_the_reference_cannot_take_are_left_out() -> None:
    assert draws.usable(problem("return torch.log(x)")) == ("own", "own again", "shifted", "with NaN")
    assert draws.usable(problem("return F.binary_cross_entropy(x, x)")) == ("own", "own again")
    weighted = problem("return torch.sqrt(x * x) * self.w", "self.w = nn.Parameter(torch.ones(10))")
    assert set(draws.usable(weighted)) == {"own", "own again", *draws.DRAWS}


def test_low_inputs_catch_a_maximum_that_begins_at_zero() -> None:
    case = problem("return torch.softmax(x, -1)")
    kernels = "e = torch.exp(x - x.amax(-1, True).clamp(min=0)); return e / e.sum(-1, keepdim=True)"
    assert passes(verified(case, kernels, ("own", "large")))
    assert check_of(verified(case, kernels, ("own", "low"))) == "nan"


def test_tiny_inputs_catch_another_epsilon() -> None:
    case = problem("return F.layer_norm(x, (10,))")
    kernels = "return F.layer_norm(x, (10,), eps={})"
    assert passes(verified(case, kernels.format(1e-5), draws.usable(case)))
    assert check_of(verified(case, kernels.format(2e-5), ("tiny",))) == "values"


def test_nan_that_gets_lost_is_told() -> None:
    case, names = problem("return torch.relu(x)"), ("own", "with NaN")
    kept = verified(case, "return x.clamp(min=0)", names)
    lost = verified(case, "return torch.fmax(x, torch.zeros_like(x))", names)
    assert isinstance(kept, Accuracy) and kept.checked[1:] == ("with NaN 6x10",) and not kept.skipped
    assert isinstance(lost, Accuracy) and len(lost.checked) == 1 and "NaN in the inputs" in lost.skipped[0]


def test_draws_that_leave_the_reference_no_digits_are_left_out() -> None:
    assert "large" not in draws.usable(problem("return torch.sin(x * 1e4)"))
    assert "low" in draws.usable(problem("return x.softmax(-1).mean(-1) - 0.1"))  # 0 but for rounding at every draw


def test_a_draw_where_the_reference_is_noise_is_told() -> None:
    text = "return x.softmax(-1).mean(-1) - 0.1"
    found = verified(problem(text), text)
    assert isinstance(found, Accuracy) and "no digit right" in found.skipped[0]


def test_integer_inputs_stay_as_the_file_draws_them() -> None:
    ids = torch.tensor([3, 1, 2])
    x = torch.rand(16, 4).t()
    draws.redraw((x, [ids]), "structured", 0)
    assert ids.tolist() == [3, 1, 2]
    assert x.stride() == (1, 4)
    assert x[0].count_nonzero() == 0 and x[1].count_nonzero() == 1 and x[2, 0] == -1 and (x[3] == 0.5).all()


@pytest.mark.parametrize(
    ("kernels", "check"),
    [
        ("return (x * 2,)", "type"),
        ("return x.double() * 2", "dtype"),
        ("return (x * 2)[:5]", "shape"),
        ("return (x * 2).t().contiguous().t()", "strides"),
        ("return nn.Parameter(x * 2)", "type"),
        ("return x.mul_(2)", "mutation"),
        ("y = x * 2; x.add_(1); return y", "mutation"),
        ("return x * 2.001", "values"),
        ("y = torch.empty(6, 10); y[1:] = x[1:] * 2; return y", "nan"),
        ("y = torch.empty_like(x); y[:, :9] = x[:, :9] * 2; return y", "nan"),
    ],
)
def test_wrong_in_many_ways(kernels: str, check: str) -> None:
    assert check_of(verified(problem("return x * 2"), kernels)) == check


def test_aliasing_only_counts_one_way() -> None:
    assert check_of(verified(problem("return x.clone()"), "return x.view(6, 10)")) == "aliasing"
    assert passes(verified(problem("return x.view(6, 10)"), "return x.clone()"))


def test_a_reference_that_writes_to_its_input_wants_the_same_of_the_candidate() -> None:
    case = problem("return x.mul_(2)")
    assert passes(verified(case, "return x.mul_(2)", ("own", "normal")))
    assert check_of(verified(case, "return x * 2")) == "mutation"


def test_parameters_must_stay() -> None:
    case = problem("return x * self.w", "self.w = nn.Parameter(torch.ones(10))")
    assert passes(verified(case, "return x * self.w"))
    assert check_of(verified(case, "y = x * self.w; self.w.add_(1); return y")) == "mutation"


def test_buffers_are_compared_and_restored() -> None:
    case = problem("return self.bn(x)", "self.bn = nn.BatchNorm1d(10)")
    good = "return F.batch_norm(x, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias, True)"
    counted = "self.bn.num_batches_tracked.add_(1); " + good
    assert passes(verified(case, counted, ("own", "normal", "shifted")))
    forgotten = verified(case, good)
    assert check_of(forgotten) == "values" and "num_batches_tracked" in forgotten.message
    frozen = counted.replace("self.bn.running_mean", "self.bn.running_mean.clone()")
    assert "running_mean" in getattr(verified(case, frozen), "message", "")


def test_dropout_has_one_mask_for_candidate_reference_and_oracle() -> None:
    case = problem("return F.dropout(x * 3, 0.3, True)", inputs="torch.rand(50, 70)")
    found = verified(case, "return F.dropout(x * 3, 0.3, True)")
    assert isinstance(found, Accuracy)
    assert found.reference_error < 1e-6 and not found.skipped
    assert check_of(verified(case, "return x * 3")) == "values"
    assert check_of(verified(case, "torch.rand(1); return F.dropout(x * 3, 0.3, True)")) == "values"


def test_numbers_drawn_in_the_default_dtype_are_the_same_for_the_oracle() -> None:
    case = problem("return x + torch.rand(10)")
    found = verified(case, "return x + torch.rand(10)")
    assert isinstance(found, Accuracy) and found.reference_error < 1e-6
    assert check_of(verified(case, "return x + torch.rand(10) * 1.001")) == "values"


def test_constants_made_on_the_way_are_fp64_in_the_oracle() -> None:
    case = problem("return (x.unsqueeze(1) @ (torch.eye(10) / 3)).squeeze(1)")
    found = verified(case, "return x / 3")
    assert isinstance(found, Accuracy) and not found.skipped


def test_without_an_oracle_the_reference_itself_is_compared_with() -> None:
    case = problem("return x @ self.w", "self.w = torch.eye(10); self.w = (self.w,)[0]", "torch.rand(6, 10)")
    assert passes(verified(case, "return x @ self.w"))
    fixed = problem("return x @ torch.eye(10, dtype=torch.float32)")
    found = verified(fixed, "return x @ torch.eye(10)")
    assert isinstance(found, Accuracy) and "no fp64 oracle" in found.skipped[0]
    assert check_of(verified(fixed, "return x * 1.0001")) == "values"


def test_tuples_dicts_and_integer_outputs() -> None:
    case = problem("return {'top': x.topk(3), 'n': 4, 'arg': x.argmax(-1)}")
    assert passes(verified(case, "return {'top': x.topk(3), 'n': 4, 'arg': x.argmax(-1)}"))
    assert check_of(verified(case, "return {'top': x.topk(3), 'n': 5, 'arg': x.argmax(-1)}")) == "type"
    assert check_of(verified(case, "return {'top': x.topk(3), 'n': 4, 'arg': x.argmin(-1)}")) == "values"


def test_a_result_that_varies_is_told_and_both_results_judged() -> None:
    case = problem("return x * 2")
    kernels = "self.n = getattr(self, 'n', 0) + 1; return x * 2 * (1 + {} * (self.n - 1))"
    found = verified(case, kernels.format("2e-7"))
    assert isinstance(found, Accuracy) and "varies between runs" in found.checked[0]
    assert check_of(verified(case, kernels.format("1e-3"))) == "values"


def test_memory_that_is_never_written_is_caught_even_where_nan_is_swallowed() -> None:
    case = problem("return torch.relu(x)")
    kernels = "y = torch.empty_like(x); return torch.relu(x) + torch.nan_to_num(y).clamp(max=0)"
    assert check_of(verified(case, kernels)) == "values"


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No oracle fits but by slices."""
    monkeypatch.setattr(oracle, "fits", lambda *_: False)
    monkeypatch.setattr(oracle, "free_bytes", lambda _: 200)
    monkeypatch.setattr(verify, "peak_above", lambda _: nullcontext([1000]))


@pytest.mark.parametrize(
    "text", ["return torch.tril(x) * 1e-9", "return torch.softmax(F.dropout(x * 1e-3, 0.5), -1) * 1e-9"]
)
@pytest.mark.usefixtures("little_room")
def test_small_values_do_not_make_a_reference_separable(text: str) -> None:
    found = verified(problem(text, inputs="torch.rand(33, 10)"), text)
    assert isinstance(found, Accuracy) and found.reference_error < 1e-6 and "no room" in found.skipped[0]


def test_the_oracle_by_slices_equals_the_whole(request: pytest.FixtureRequest) -> None:
    case = problem("return torch.softmax(x @ self.w, -1)", "self.w = nn.Parameter(torch.rand(10, 10))", "torch.rand(33, 10)")
    whole = verified(case, "return torch.softmax(x @ self.w, -1)")
    request.getfixturevalue("little_room")
    sliced = verified(case, "return torch.softmax(x @ self.w, -1)")
    assert isinstance(whole, Accuracy) and isinstance(sliced, Accuracy) and not sliced.skipped
    assert sliced.candidate_error == pytest.approx(whole.candidate_error, rel=1e-3)
    mixing = problem("return torch.softmax(x, 0)", inputs="torch.rand(33, 10)")
    found = verified(mixing, "return torch.softmax(x, 0)")
    assert isinstance(found, Accuracy) and "no room" in found.skipped[0]


CLOSED = """m = self.m = nn.Linear(10, 10)
        self.f = lambda x: m(x)"""


def test_functions_that_a_model_keeps_run_in_the_oracle_whole_and_by_slices(request: pytest.FixtureRequest) -> None:
    case = problem("return self.f(x)", CLOSED, "torch.rand(33, 10)")
    whole = verified(case, "return self.f(x)")
    request.getfixturevalue("little_room")
    sliced = verified(case, "return self.f(x)")
    for found in (whole, sliced):
        assert isinstance(found, Accuracy) and not found.skipped and 0 < found.reference_error < 1e-6


@pytest.mark.usefixtures("little_room")
def test_without_an_oracle_of_slices_the_reference_itself_is_compared_with() -> None:
    assertion = "assert x.dtype == torch.float32, 'fp32 only'; "
    case = problem(assertion + "return x * 3", inputs="torch.rand(33, 10)")
    found = verified(case, "return x * 3")
    assert isinstance(found, Accuracy)
    assert found.skipped == ("no fp64 oracle (fp32 only); compared with the reference itself",)
    assert check_of(verified(case, "return x * 3.001")) == "values"
    late = problem(
        "assert x.dtype == torch.float32 or x[0, 0] < 0.5; return x * 3", inputs="torch.arange(330.).view(33, 10)"
    )
    assert check_of(verified(late, "y = x * 3; y[-1] += 1; return y")) == "values", "rows past the failure are compared too"


ATTENTION = "c = x - x.mean(-1, keepdim=True); s = c @ c.roll(1, 0).t() / 64; "  # scores of ±1e4 on `low`: some nearly tie
WEIGHTED = "return torch.softmax(s, -1) @ F.layer_norm(x, (16,))"
ROUNDED = "m, e = torch.frexp(x); x = torch.ldexp((m * 2**{bits}).round() / 2**{bits}, e); "


def test_ill_conditioned_probes_allow_what_a_rounding_of_the_inputs_changes() -> None:
    case = problem(ATTENTION + WEIGHTED, inputs="torch.rand(600, 16)")
    good = verified(case, ROUNDED.format(bits=20) + ATTENTION + WEIGHTED, ("low",))
    assert isinstance(good, Accuracy)
    assert good.skipped == (f"low inputs: {conditioning.NOTE}",)
    assert not getattr(verified(case, ATTENTION + WEIGHTED, ("low",)), "skipped", "it failed")


@pytest.mark.parametrize(
    ("kernels", "check"),
    [
        (ROUNDED.format(bits=16) + ATTENTION + WEIGHTED, "values"),  # as pairs of bfloat16
        (ROUNDED.format(bits=11) + ATTENTION + WEIGHTED, "values"),  # as tf32
        (ATTENTION.replace("64", "32") + WEIGHTED, "values"),
        (ATTENTION + "s[:, -1] = -torch.inf; " + WEIGHTED, "values"),
        (ATTENTION + "s = s.half().float(); " + WEIGHTED, "values"),
        (ATTENTION + "e = torch.exp(s); return e / e.sum(-1, keepdim=True) @ F.layer_norm(x, (16,))", "nan"),
        (
            ATTENTION
            + "s = s - 2e5; e = torch.exp(s - s.amax(-1, True).clamp(min=0)); return e / e.sum(-1, keepdim=True) @ x",
            "nan",
        ),
    ],
)
def test_wrong_kernels_stay_wrong_where_the_reference_is_ill_conditioned(kernels: str, check: str) -> None:
    case = problem(ATTENTION + WEIGHTED, inputs="torch.rand(600, 16)")
    assert check_of(verified(case, kernels, ("low",))) == check


def test_a_threshold_that_a_rounding_crosses_allows_nothing() -> None:
    case = problem("return torch.where(x > 0.5, x, 0)", inputs="torch.rand(64, 10)")
    assert check_of(verified(case, "return torch.where(x >= 0.5, x, 0)", ("own", "structured"))) == "values"


@pytest.mark.parametrize(("bits", "fails"), [(20, False), (16, True), (11, True)])
def test_sums_that_cancel_on_shifted_inputs_allow_the_bits_of_a_split_product(bits: int, fails: bool) -> None:
    weights = "w = torch.randn(16, 600); self.w = nn.Parameter(1e3 * (w - w.mean(0)))"
    case = problem("return x @ self.w", weights, inputs="torch.rand(600, 16)")
    found = verified(case, ROUNDED.format(bits=bits) + "return x @ self.w", ("shifted",))
    assert isinstance(found, Wrong) == fails, found


def test_conditioning_counts_far_from_the_own_inputs_alone_and_only_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(conditioning, "allowances", lambda exact: asked.append(exact) or {})
    case = problem("return torch.exp(x)")
    for name in ("own", "own again", "normal"):
        assert check_of(verified(case, "return torch.exp(x) * 1.001", (name,))) == "values"
    assert passes(verified(case, "return torch.exp(x)", ("own", "shifted", "tiny", "structured"))) and not asked
    for name in ("shifted", "tiny"):
        assert check_of(verified(case, "return torch.exp(x) * 1.001", (name,))) == "values"
    assert len(asked) == 2


def test_other_weights_catch_an_affine_step_that_is_left_out() -> None:
    case = problem("return F.layer_norm(x, (10,), self.w)", "self.w = nn.Parameter(torch.ones(10))")
    assert passes(verified(case, "return F.layer_norm(x, (10,), self.w)", ("own", draws.WEIGHTS)))
    assert passes(verified(case, "return F.layer_norm(x, (10,))", ("own", "normal")))
    assert check_of(verified(case, "return F.layer_norm(x, (10,))", ("own", draws.WEIGHTS))) == "values"


def test_an_answer_for_one_seed_only_is_caught() -> None:
    case = problem("return x * 2")
    kernels = "self.y = getattr(self, 'y', x * 2); return self.y.clone()"
    assert passes(verified(case, kernels))
    assert check_of(verified(case, kernels, ("own", draws.AGAIN))) == "values"


DATACLASS = "import dataclasses; P = dataclasses.make_dataclass('{name}', ['a', 'b']); "


def test_dataclass_and_named_outputs() -> None:
    case = problem(DATACLASS.format(name="Pair") + "return P(x * 2, [x.argmax(-1)])")
    good = DATACLASS.format(name="Pair") + "return P(x * 2, [x.argmax(-1)])"
    assert passes(verified(case, good))
    assert check_of(verified(case, good.replace("x * 2", "x * 2.01"))) == "values"
    assert check_of(verified(case, good.replace("[x.argmax(-1)]", "(x.argmax(-1),)"))) == "type"
    assert check_of(verified(case, good.replace("Pair", "Other"))) == "type"
    named = problem("return torch.max(x, -1)")
    assert passes(verified(named, "return tuple(torch.max(x, -1))"))
    assert check_of(verified(named, "return list(torch.max(x, -1))")) == "type"


def test_errors_are_told_in_ulp_for_both_sides() -> None:
    case = problem("return x * 3", inputs="torch.rand(50, 70) + 1")
    found = verified(case, "return x * 3 * (1 + 2 ** -21)")
    assert isinstance(found, Accuracy) and found.candidate_ulp and found.reference_ulp
    assert 0 < found.reference_ulp[1] <= found.reference_ulp[0] <= 0.5
    assert 3 < found.candidate_ulp[1] <= found.candidate_ulp[0] < 9  # 2⁻²¹ is four eps
    exact = verified(problem("return x.bfloat16()"), "return x.bfloat16()")
    assert isinstance(exact, Accuracy) and exact.candidate_ulp == exact.reference_ulp and exact.candidate_ulp[0] <= 0.5


def test_two_outputs_on_one_memory() -> None:
    case = problem("return x * 2, x * 2")
    assert check_of(verified(case, "y = x * 2; return y, y")) == "aliasing"


def test_an_output_that_is_a_weight() -> None:
    case = problem("return self.w * 1", "self.w = nn.Parameter(torch.ones(10))")
    assert check_of(verified(case, "return self.w.data")) == "aliasing"


def test_fingerprints_see_single_bits_and_order() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        x = (torch.rand(3, 5) > 0.5).to(dtype)
        assert fingerprint(x) == fingerprint(x.clone())
        assert fingerprint(x.flip(0).flip(1)) != fingerprint(x)
    zero = torch.zeros(4)
    assert fingerprint(zero) != fingerprint(-zero)
