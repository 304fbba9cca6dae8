"""Candidates that do no work: which problems accept them, and what the user is told."""

from collections.abc import Iterator

import pytest
import torch

from mtmc.assembly import Options, assemble
from mtmc.hardware_profiles import load
from mtmc.judge.accuracy import RULES
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.judge import Judge
from mtmc.judge.trivial import Trivial, TrivialJob, merged, trials, trivial
from mtmc.problem import Problem
from mtmc.verdict import RuntimeFault

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

A, B = 6, 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]
"""


def problem(forward: str, inputs: str = "torch.rand(A, B)", init: str = "pass", names: str = "x") -> Problem:
    return Problem("sample", FILE.format(forward=forward, inputs=inputs, init=init, names=names), "sample.py")


BY_ALGEBRA = ("zeros", "constant", "replay")


@pytest.mark.parametrize(
    ("forward", "accepted"),
    [
        ("torch.softmax(x, -1)", ()),
        ("x.sum(-1)", ()),
        ("x * 1.001", ()),
        ("(x > 0.5).float()", ()),
        ("x.argmax(-1)", ()),
        ("torch.relu(x)", ("identity of input 0",)),  # of numbers that are not negative
        ("x[:, :1].clamp(min=0).expand(A, B).clone()", ()),
        ("x.reshape(A * 5, 8)", ("identity of input 0",)),
        ("x.softmax(-1).mean(-1)", ("constant", "replay")),
        ("x.mean(-1, keepdim=True) - x.mean(-1, keepdim=True).mean(-1, keepdim=True)", BY_ALGEBRA),
        ("(x - x.mean(-1, keepdim=True)).mean()", BY_ALGEBRA),
        ("torch.relu(x).clamp(max=0.0)", BY_ALGEBRA),
        ("(x > 2).sum(-1)", BY_ALGEBRA),
        ("torch.arange(A)", ("replay",)),
        ("(x * 2, torch.ones_like(x))", ()),  # one output that asks for work is enough
        ("(x.sum() * 0, {'b': x.isnan()})", BY_ALGEBRA),
    ],
)
def test_what_problems_accept(forward: str, accepted: tuple[str, ...]) -> None:
    assert trivial(problem(forward)).accepted == accepted


def test_other_inputs_can_tell_what_the_own_ones_cannot() -> None:
    relu = trivial(problem("torch.relu(x)"), names=("own", "normal", "shifted"))
    assert (relu.accepted, relu.everywhere) == (("identity of input 0",), ())
    assert "other inputs (normal, shifted) tell it apart" in relu.sentence
    mean = trivial(problem("x.softmax(-1).mean(-1)"), names=("own", "normal", "shifted"))
    assert mean.everywhere == mean.accepted == ("constant", "replay")
    assert "proves little" in mean.sentence
    assert trivial(problem("x.sum(-1)"), names=("own", "normal")).sentence == ""


def test_every_input_is_tried_also_a_broadcast_one() -> None:
    inputs, names = "torch.rand(A, B), torch.rand(B)", "x, y"
    assert trivial(problem("x * 0 + y", inputs, names=names)).accepted == ("identity of input 1",)
    assert trivial(problem("torch.maximum(x, y - 2)", inputs, names=names)).accepted == ("identity of input 0",)


def test_weights_stay_when_inputs_change() -> None:
    case = problem("(self.w * 1.0).clone()", init="self.w = nn.Parameter(torch.randn(B))")
    assert trivial(case).accepted == ("replay",)
    assert trivial(problem("x * self.w", init="self.w = nn.Parameter(torch.randn(B))")).accepted == ()


def test_inputs_that_the_reference_overwrites_do_not_pass_as_its_result() -> None:
    assert trivial(problem("x.mul_(2)")).accepted == ()


def test_random_numbers_are_the_same_for_both_calls() -> None:
    assert trivial(problem("F.dropout(x, 0.5)")).accepted == ()
    assert trivial(problem("torch.rand(A)")).accepted == ("replay",)


def test_without_an_oracle_the_reference_is_the_measure() -> None:
    found = trivial(problem("(x @ torch.ones(B, B, dtype=torch.float32)) * 0 + x"))  # no fp64 product of mixed types
    assert (found.note, found.accepted) == ("without an fp64 oracle", ("identity of input 0",))
    made = trials(problem("x.softmax(-1).mean(-1)"), with_oracle=False)
    assert made is not None and made.exacts is None and made.accepted(RULES["strict"]) == ("constant", "replay")


def test_nothing_comes_out() -> None:
    assert trivial(problem("x[:0]")) == Trivial(note="the reference returns no tensor")


def test_candidates_are_views() -> None:
    made = trials(problem("x.softmax(-1)"))
    assert made is not None
    found = dict(made.candidates())
    assert list(found) == ["zeros", "constant", "replay", "identity of input 0"]
    assert found["zeros"][0].stride() == (0, 0) and torch.equal(found["constant"][0], made.before[0].mean().expand(6, 40))
    assert found["identity of input 0"][0].data_ptr() == made.inputs[0].data_ptr()


def test_findings_of_several_sizes_are_one() -> None:
    found = merged([Trivial(("replay",), ("replay",), ("normal",)), Trivial(("zeros", "replay")), RuntimeFault("no memory")])
    assert found == Trivial(("replay", "zeros"), ("replay",), ("normal",), "trivial candidates: no memory")
    assert merged([]).note == "no size at which trivial candidates could be tried"


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    with LocalProcesses(tmp_path_factory.mktemp("cache"), Limits(workers={"compile": 1, "interpret": 1})) as running:
        yield running


def test_the_judge_tries_them_in_a_worker(executor: LocalProcesses) -> None:
    small = problem("x.softmax(-1).mean(-1)")
    judge = Judge(executor, small, load("h100"), ((small, None),))
    assert judge.trivial.everywhere == ("constant", "replay") and "structured" in judge.trivial.draws
    assert executor.submit(TrivialJob(problem=problem("x * 2"))).result() == Trivial()


@pytest.mark.slow
def test_optimize_warns_of_a_degenerate_problem(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    setup = assemble(problem("torch.relu(x)"), Options(measure=False), lambda _: None)
    setup.judge.close()
    assert setup.notes[0].startswith("Degenerate problem: on its own inputs")
