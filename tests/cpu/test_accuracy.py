"""The accuracy rule, on tensors whose errors are known."""

import pytest
import torch

from mtmc.errors import BadInput
from mtmc.judge import accuracy
from mtmc.judge.accuracy import RULES, Errors, dtype_name, exact, form, rule
from mtmc.verdict import Wrong


def judged(y: torch.Tensor, r: torch.Tensor, o: torch.Tensor, name: str = "strict") -> Wrong | None:
    errors = Errors("output", dtype_name(y))
    errors.add(y, r, o)
    return errors.failure(RULES[name])


@pytest.fixture
def exact_values() -> torch.Tensor:
    return torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def off_by(o: torch.Tensor, relative: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`o` with every element off by the relative amount, signs alternating."""
    signs = 1 - 2 * (torch.arange(o.numel()) % 2)
    return (o * (1 + relative * signs)).to(dtype)


def test_as_good_as_eager_passes_and_three_times_worse_fails(exact_values: torch.Tensor) -> None:
    r = off_by(exact_values, 1e-5)
    assert judged(off_by(exact_values, 1.9e-5), r, exact_values) is None
    wrong = judged(off_by(exact_values, 3e-5), r, exact_values)
    assert wrong is not None and wrong.check == "values"
    assert wrong.candidate_error == pytest.approx(3e-5, rel=0.05)
    assert wrong.reference_error == pytest.approx(1e-5, rel=0.05)


def test_rounding_of_the_dtype_is_allowed_where_eager_is_exact() -> None:
    o = torch.arange(1.0, 1001.0, dtype=torch.float64)
    assert judged(off_by(o, 3e-7), o.float(), o) is None
    assert judged(off_by(o, 2e-6), o.float(), o) is not None
    half = o.half()
    assert judged(off_by(o, 2e-3, torch.float16), half, o) is None
    assert judged(off_by(o, 2e-2, torch.float16), half, o) is not None


def test_one_bad_element_among_many_is_found_by_the_elementwise_rule() -> None:
    o = torch.full((1 << 16,), 1e3, dtype=torch.float64)
    r = off_by(o, 2e-6)  # the norm alone would let one element be off by 2e-6 · 1e3 · sqrt(65536)
    y = r.clone()
    y[777] += 0.9
    wrong = judged(y, r, o)
    assert wrong is not None and "element 777" in wrong.message and "scaled" in wrong.message


@pytest.mark.parametrize(("precision", "error"), [("tf32", 8e-4), ("bf16", 6e-3)])
def test_looser_precisions(exact_values: torch.Tensor, precision: str, error: float) -> None:
    r = off_by(exact_values, 1e-7)
    y = off_by(exact_values, error)
    assert judged(y, r, exact_values, precision) is None
    assert judged(y, r, exact_values) is not None
    assert judged(off_by(exact_values, 3 * error), r, exact_values, precision) is not None


def test_nan_and_infinity_must_sit_where_the_reference_has_them() -> None:
    o = torch.ones(8, dtype=torch.float64)
    o[1] = torch.inf
    r = o.float()
    r[2], r[3], r[4] = torch.nan, torch.inf, -torch.inf
    assert judged(r.clone(), r, o) is None
    for position, value in ((0, torch.nan), (0, torch.inf), (2, 1.0), (3, -torch.inf), (4, torch.nan)):
        y = r.clone()
        y[position] = value
        wrong = judged(y, r, o)
        assert wrong is not None and wrong.check == "nan" and f"element {position}" in wrong.message


def test_an_oracle_of_zeros_leaves_the_elementwise_rule() -> None:
    o = torch.zeros(10, dtype=torch.float64)
    assert judged(torch.full((10,), 1e-6), o.float(), o) is None
    assert judged(torch.full((10,), 1e-3), o.float(), o) is not None


def test_chunks_add_up(exact_values: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    y, r = off_by(exact_values, 2e-5), off_by(exact_values, 1e-5)
    whole = Errors("output", "float32")
    whole.add(y, r, exact_values)
    monkeypatch.setattr(accuracy, "CHUNK", 64)
    pieces = Errors("output", "float32")
    for start in range(0, 1000, 300):
        pieces.add(y[start : start + 300], r[start : start + 300], exact_values[start : start + 300])
    assert pieces.count == whole.count == 1000
    assert pieces.candidate_error == pytest.approx(whole.candidate_error)
    assert pieces.reference_scaled == whole.reference_scaled
    assert pieces.worst == whole.worst


def test_complex_outputs_count_by_their_parts() -> None:
    o = torch.randn(100, dtype=torch.complex128)
    r = o.to(torch.complex64)
    assert judged(r.clone(), r, o) is None
    assert judged(r * 1.001, r, o) is not None


def test_integers_are_compared_exactly() -> None:
    r = torch.arange(10)
    assert exact("output", r.clone(), r) is None
    y = r.clone()
    y[7] = 0
    wrong = exact("output", y, r)
    assert wrong is not None and "element 7 is 0, not 7" in wrong.message


@pytest.mark.parametrize(
    ("y", "check"),
    [
        (torch.zeros(2, 4), "shape"),
        (torch.zeros(4, 3, dtype=torch.float64), "dtype"),
        (torch.zeros(4, 3, device="meta"), "device"),
        (torch.zeros(3, 4).t(), "strides"),
        (torch.nn.Parameter(torch.zeros(4, 3)), "type"),
        ([0.0], "type"),
    ],
)
def test_form(y: object, check: str) -> None:
    wrong = form("output", y, torch.zeros(4, 3))
    assert wrong is not None and wrong.check == check


def test_strides_of_single_element_dimensions_do_not_matter() -> None:
    assert form("output", torch.zeros(4, 1).as_strided((4, 1), (1, 7)), torch.zeros(4, 1)) is None
    assert form("output", 3, 3) is None
    assert form("output", 3, 4) is not None


def test_an_unknown_precision_lists_the_known() -> None:
    with pytest.raises(BadInput, match="strict, tf32, bf16"):
        rule("fp8")


def test_where_the_reference_has_no_digit_right_only_elements_count() -> None:
    exact, reference = torch.full((8,), 1e-18, dtype=torch.float64), torch.full((8,), 1e-9)
    noise, wrong = Errors("output", "float32"), Errors("output", "float32")
    noise.add(3 * reference, reference, exact)
    wrong.add(reference + 1e-3, reference, exact)
    assert noise.failure(rule("strict")) is None
    assert wrong.failure(rule("strict")) is not None
