"""Generated problems: the same from the same seed, of every grade, usable, and none of them one of KernelBench's."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from mtmc import collecting, fingerprint
from mtmc.assembly import Options
from mtmc.capture import capture
from mtmc.errors import BadInput
from mtmc.evaluation.settings import Side
from mtmc.generator import problems
from mtmc.generator.recipes import RECIPES, TABLES
from mtmc.problem import Problem

FORM = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        return {used}

def get_inputs():
    return [torch.randn({shape}, dtype=torch.{dtype})]
"""


def graph_of(used: str, made: str = "pass", shape: str = "6, 10", dtype: str = "float32"):
    text = FORM.format(used=used, made=made, shape=shape, dtype=dtype)
    found = capture(Problem("own", text, "own.py"))
    assert found.graph, found.reason
    return found.graph


def test_a_seed_gives_the_same_problems_of_every_grade_in_turn() -> None:
    first, again = (list(islice(problems.stream(3), 50)) for _ in range(2))
    assert first == again != list(islice(problems.stream(4), 50))
    assert [made.grade for made in first[:10]] == [1, 2, 3, 4, 5] * 2
    assert len({made.source for made in first}) == len({made.name for made in first}) == 50
    assert {made.grade for made in islice(problems.stream(0, (2, 4)), 6)} == {2, 4}


def test_shapes_dtypes_and_structures_vary() -> None:
    made = list(islice(problems.stream(0), 300))
    assert {line for m in made for line in m.source.splitlines() if line.startswith("DTYPE")} == {
        f"DTYPE = torch.{name}" for name in ("float32", "float16", "bfloat16")
    }
    assert len({m.words for m in made}) > 200
    assert max(len(m.words) for m in made) >= 8


def test_every_letter_of_a_recipe_has_layers() -> None:
    for flow, grades in RECIPES.items():
        assert set(grades) == set(problems.GRADES)
        for recipe in (r for recipes in grades.values() for r in recipes):
            assert set(recipe) - {"["} <= set(TABLES[flow])
            assert recipe.count("[") == recipe.count("S")


def test_tensors_are_small_and_problems_can_be_captured() -> None:
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "int64": 8}
    for made in islice(problems.stream(1), 15):
        found = capture(made.problem)
        assert found.graph, f"{made.name}: {found.reason}"
        largest = max(n.type.numel * sizes[n.type.dtype] for n in found.graph.nodes if n.type)
        assert largest <= problems.LARGEST, made.name


@pytest.mark.parametrize(
    ("used", "twin"),
    [
        ("torch.relu(x)", "1/19"),
        ("F.relu(x)", "1/19"),
        ("torch.softmax(x, dim=0)", "1/23"),
        ("torch.log_softmax(x, -1)", "1/24"),
        ("x * torch.sigmoid(x)", "1/25"),
        ("F.gelu(x)", "1/26"),
    ],
)
@pytest.mark.parametrize(("shape", "dtype"), [("6, 10", "float32"), ("3, 5, 7", "float16")])
def test_a_kernelbench_problem_is_known_at_any_size_and_dtype(used: str, twin: str, shape: str, dtype: str) -> None:
    assert problems.twin(fingerprint.structure(graph_of(used, shape=shape, dtype=dtype))) == twin


def test_more_than_one_operator_of_kernelbench_is_known_too() -> None:
    made = "self.a = nn.Linear(10, 6)"
    assert problems.twin(fingerprint.structure(graph_of("F.mish(F.mish(self.a(x)))", made))) == "2/29"
    assert problems.twin(fingerprint.structure(graph_of("F.mish(F.silu(self.a(x)))", made))) == ""


def test_what_equals_a_kernelbench_problem_gets_no_tree(tmp_path: Path) -> None:
    text = FORM.format(used="torch.relu(x)", made="pass", shape="64, 64", dtype="float32")
    order = collecting.Order(Problem("own", text, "own.py"), 1, generated=True)
    outcome = collecting.collect(order, collecting.Plan(tmp_path, Options()), None, lambda _: None)
    assert outcome.kind == "excluded" and "1/19" in outcome.note
    assert not list(tmp_path.iterdir())


def test_only_problems_of_the_side_that_is_asked_for_get_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def assemble(problem: Problem, *_: object) -> None:
        raise BadInput("it would be grown")

    monkeypatch.setattr(collecting, "assemble", assemble)
    order, notes = next(collecting.generated(0, (1,))), {}
    for side in Side:
        plan = collecting.Plan(tmp_path, Options(), side=side)
        notes[side] = collecting.collect(order, plan, SimpleNamespace(spent={}), lambda _: None).note
    assert sorted(notes.values()) in (
        ["it is not held-out", "it would be grown", "it would be grown"],
        ["it is not training", "it would be grown", "it would be grown"],
    )
    assert notes[Side.all] == "it would be grown"


def test_the_exclusion_is_needed_and_leaves_enough() -> None:
    made = list(islice(problems.stream(0), 60))
    ones = [m for m in made if m.grade == 1]
    twins = [m.name for m in ones if problems.twin(fingerprint.structure(capture(m.problem).graph))]
    assert 0 < len(twins) < len(ones)


def test_the_list_of_kernelbench_holds_hashes_and_numbers_only() -> None:
    lines = Path(problems.__file__).with_name("kernelbench.txt").read_text().splitlines()
    assert len(lines) == 250
    for line in lines:
        operators, whole, name = line.split()
        assert all(len(h) == 16 and int(h, 16) >= 0 for h in (operators, whole) if h != "-")
        level, number = name.split("/")
        assert level in "123" and 1 <= int(number) <= 100


def test_fingerprints_see_what_they_should() -> None:
    same = graph_of("torch.relu(x).reshape(-1) * 2.0")
    assert fingerprint.structure(same) == fingerprint.structure(graph_of("torch.relu(x) * 3.0", shape="4, 4"))
    assert fingerprint.exact(same) != fingerprint.exact(graph_of("torch.relu(x).reshape(-1) * 3.0"))
    assert fingerprint.exact(same) == fingerprint.exact(graph_of("(x.relu().reshape(-1) * 2.0)"))
    assert fingerprint.structure(graph_of("x + torch.relu(x)")) != fingerprint.structure(
        graph_of("torch.relu(x) + torch.relu(x)")
    )
    assert fingerprint.structure(graph_of("x.exp() - x")) != fingerprint.structure(graph_of("x - x.exp()"))
