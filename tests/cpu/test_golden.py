"""First programs as whole files, so that a change of the lowering is seen in review.

MTMC_GOLDEN=write pytest tests/cpu/test_golden.py      rewrites them: read the diff
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lowering_cases import Case, randn, source

from mtmc.capture import capture
from mtmc.lower import lower
from mtmc.problem import Problem

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = {
    "head": Case(
        "F.softmax(F.gelu(self.fc(x)), dim=-1)", {"x": randn("A", "K")}, "self.fc = nn.Linear(K, N)"
    ),
    "batch_norm": Case("F.relu(self.norm(x))", {"x": randn("A", "C", "D")}, "self.norm = nn.BatchNorm1d(C)"),
    "attention": Case(
        "q, k, v = (t.view(A, M, C, D).transpose(1, 2) for t in x.split(C * D, 2))\n"
        "a = (q @ k.transpose(-2, -1) * D ** -0.5).masked_fill(m, float('-inf')).softmax(-1)\n"
        "return (a @ v).transpose(1, 2).reshape(A, M, C * D)",
        {"x": randn("A", "M", "3 * C * D"), "m": "torch.ones(M, M).triu(1).bool()"},
    ),
    "mixed": Case("x.cumsum(1).permute(1, 0) * y, x.amax(0)", {"x": randn("A", "B"), "y": randn("B", "1")}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_program(name, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(source([CASES[name]]))
    problem = Problem(name, path.read_text(), str(path))
    text = lower(problem, capture(problem)).program.source
    golden = GOLDEN / f"{name}.py"
    if os.environ.get("MTMC_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
