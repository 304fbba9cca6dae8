"""The plain values: graphs, actions, verdicts, steps and rewards."""

from __future__ import annotations

import json
from math import log

import pytest

from mtmc.action import Action, Edit
from mtmc.errors import Illegal, check
from mtmc.graph import Graph, Node, Ref, TensorType, walk
from mtmc.program import Program
from mtmc.reward import graded, sigmoid
from mtmc.step import SCHEMA_VERSION, Step
from mtmc.verdict import (
    VARIANTS,
    Accuracy,
    CompileError,
    Finding,
    Infra,
    Launch,
    Rejected,
    RuntimeFault,
    Timeout,
    Timing,
    Verdict,
    Verified,
    Wrong,
    from_json,
    rejection,
)

LAUNCH = Launch("k", (4, 1, 1), 4, 2, 32, 0, 1024, {"x": ("tensor", "float32", (4,), (1,))}, {"BLOCK": 64}, "module {}")
ACTION = Action("tile", "tiling", "linear", (("BLOCK_M", 64), ("how", "wide")), "Use tiles of 64 rows.")


def verified(speedup: float, floor_ms: float = 0.0) -> Verified:
    timing = Timing("predicted", speedup, 1.0, speedup, speedup, speedup, floor_ms)
    return Verified(timing, Accuracy(1e-7, 2e-7, ("odd sizes",)), (LAUNCH,))


EACH: list[Verdict] = [
    CompileError("no", "syntax"),
    RuntimeFault("no", "race"),
    Wrong("off", "values", 0.5, 0.1),
    Timeout("verify", 3.0),
    Rejected("copy", "returns its input"),
    Infra("no memory"),
    verified(2.0),
]


def test_every_variant_is_tried_here():
    assert {type(verdict) for verdict in EACH} == set(VARIANTS.values())


@pytest.mark.parametrize("verdict", EACH, ids=lambda v: v.status)
def test_a_verdict_survives_json_but_for_bulky_text(verdict):
    back = from_json(json.loads(json.dumps(verdict.to_json())))
    if isinstance(verdict, Verified):
        assert isinstance(back, Verified)
        assert (back.timing, back.accuracy) == (verdict.timing, verdict.accuracy)
        assert (back.launches[0].grid, back.launches[0].ttir, back.launches[0].arguments) == ((4, 1, 1), "", {})
    else:
        assert back == verdict


def test_an_unknown_status_is_a_key_error():
    with pytest.raises(KeyError):
        from_json({"status": "fine"})


def test_what_compiled_and_what_is_correct():
    assert [verdict.compiled for verdict in EACH] == [False, True, True, True, True, False, True]
    assert [verdict.correct for verdict in EACH] == [False] * 6 + [True]


@pytest.mark.parametrize("verdict", EACH, ids=lambda v: v.status)
def test_a_step_survives_json(verdict):
    step = Step(
        3, "a", "b", ACTION, verdict, 0.4, "greedy", "-x\n+y", 2, ("op_relu",), ("x > 0",), 1.5, 0.2, True, {"a": 0.5}
    )
    back = Step.from_json(json.loads(json.dumps(step.to_json())))
    assert back.action == ACTION
    assert back.to_json() == step.to_json()


def test_the_first_step_has_no_action():
    step = Step(0, "", "root", None, Infra("no"), None, "")
    assert Step.from_json(step.to_json()) == step


def test_steps_of_another_schema_are_refused():
    data = Step(0, "", "root", None, Infra("no"), None, "").to_json()
    with pytest.raises(ValueError, match=f"schema {SCHEMA_VERSION + 1}"):
        Step.from_json({**data, "schema": SCHEMA_VERSION + 1})


@pytest.mark.parametrize(
    ("verdict", "value"),
    [
        (Infra("no"), None),
        (CompileError("no"), 0.0),
        (Wrong("off"), 0.1),
        (verified(1.0), 0.4),
        (verified(2.0), 0.4 + log(2)),
        (verified(0.1), 0.15),
        (verified(4.0, floor_ms=2.0), 0.4 + log(2)),
        (verified(4.0, floor_ms=8.0), 0.4),
    ],
)
def test_graded_reward(verdict, value):
    assert graded(verdict) == (None if value is None else pytest.approx(value))


def test_a_correct_slow_program_beats_a_wrong_one():
    slow, wrong = graded(verified(0.01)), graded(Wrong("off"))
    assert slow is not None and wrong is not None and slow > wrong


def test_sigmoid_reward():
    assert sigmoid(Infra("no")) is None
    assert sigmoid(Wrong("off")) == 0.0
    assert sigmoid(verified(0.8)) == pytest.approx(0.5)


def test_an_action_is_known_by_rule_region_and_parameters():
    assert ACTION.id == "tile(linear, BLOCK_M=64, how=wide)"
    assert ACTION["BLOCK_M"] == 64
    with pytest.raises(KeyError):
        ACTION["BLOCK_N"]


def test_an_edit_counts_both_sides():
    assert Edit(Program("a"), Program("b"), added=3, removed=2).changed_lines == 5


def test_check_raises_illegal():
    check(True, "fine")
    with pytest.raises(Illegal, match="not fine"):
        check(False, "not fine")


@pytest.mark.parametrize(
    ("shape", "strides", "answer"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((2, 1, 3), (3, 99, 1), True),
        ((1, 1), (7, 7), True),
        ((2, 3), (), True),
        ((2, 3), (0, 1), False),
        ((), (), True),
    ],
)
def test_contiguous(shape, strides, answer):
    assert TensorType(shape, "float32", strides).contiguous is answer


def test_a_graph_knows_its_edges():
    a = Node("a", "input", target="x")
    b = Node("b", "aten.add.Tensor", (Ref("a"), (1, Ref("a"))), {"other": [Ref("c")]})
    graph = Graph((a, b), {"y": (Ref("b"), None)}, {"n.mean": "a"})
    assert b.inputs == ("a", "c")
    assert [ref.name for ref in walk(graph.output)] == ["b"]
    assert graph.users("a") == (b,)
    assert graph.results == {"a", "b"}
    assert graph["b"] is b
    with pytest.raises(KeyError):
        graph["c"]


def test_the_first_finding_that_rejects_is_the_verdict():
    warning = Finding("static.precision", 3, "a cast to half", "possible", "warn")
    first, second = Finding("static.copy", 7, "the kernel copies"), Finding("dynamic.stream", 0, "work on another stream")
    assert rejection([warning]) is None
    assert rejection([warning, first, second]) == Rejected("static.copy", "line 7: the kernel copies")
    assert rejection([second, first]) == Rejected("dynamic.stream", "work on another stream")
