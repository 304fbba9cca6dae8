"""What is lowered as one attention, and what looks like it and is not. Values: test_normalize.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from lowering_cases import QKV, SCORES, SEPARATE, SIZES, WRITTEN_OUT, Case, source

from mtmc.capture import capture
from mtmc.graph import Graph
from mtmc.lower import lower
from mtmc.problem import Problem

ACTIVE = {
    "dropout of the shares": Case(f"F.dropout(({SCORES}).softmax(-1), 0.5, True) @ v", QKV),
    "dropout of the scores": Case(f"F.dropout({SCORES}, 0.5, True).softmax(-1) @ v", QKV),
}
CASES = {**WRITTEN_OUT, **SEPARATE, **ACTIVE}


def lowered(cases: Sequence[Case]) -> Graph:
    """The primitive graph of the cases as one model, made for two sizes."""
    problem = Problem("cases", source(cases), "model.py")
    variant = capture(replace(problem, overrides=tuple(SIZES[1].items()))).graph
    assert variant is not None
    graph = lower(problem, capture(problem), [variant]).graph
    assert graph is not None
    return graph


@pytest.fixture(scope="module")
def templates() -> dict[str, list[str]]:
    """Templates of the units that each case is made of."""
    graph = lowered(list(CASES.values()))
    found = {}
    for name, result in zip(CASES, graph.output, strict=True):
        seen: list[str] = []
        for value in [r.name for r in result] if isinstance(result, (tuple, list)) else [result.name]:
            seen += [value] * (value not in seen)
        for value in seen:
            seen += [before for before in graph[value].inputs if before not in seen]
        found[name] = [graph[value].kwargs["template"] for value in seen if graph[value].op == "unit"]
    return found


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_one_kernel_computes_scores_shares_and_sum(name, templates):
    (kernel,) = [t for t in templates[name] if t.startswith("attention.")]
    assert kernel == ("attention.attention" if name.startswith("by hand") else "attention.weighted")
    assert not [t for t in templates[name] if "softmax" in t or "bmm" in t]


@pytest.mark.parametrize("name", [*SEPARATE, *ACTIVE])
def test_near_misses_stay_as_they_are_written(name, templates):
    assert not [t for t in templates[name] if t.startswith("attention.")]


@pytest.mark.parametrize("name", ["by hand, like GPT", "by hand, permuted", "relu for softmax"])
def test_heads_are_read_and_written_where_they_are(name, templates):
    """No copy but that of the slice of the mask."""
    assert templates[name].count("movement.copy") == ("permuted" not in name)
