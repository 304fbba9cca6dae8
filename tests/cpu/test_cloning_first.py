"""`benchmarks/cloning_first.py`: where a run of reinforcement reaches another's plateau."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from mtmc.errors import BadInput


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks/cloning_first.py"
    spec = importlib.util.spec_from_file_location("cloning_first", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, returns: list[float]) -> Path:
    folder.mkdir()
    rows = ({"step": at, "share of the expert": value} for at, value in enumerate(returns, 1))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_each_run_is_asked_when_it_reaches_the_plateau_of_the_base(script: ModuleType, tmp_path: Path) -> None:
    base = run(tmp_path / "base", [0.5] * 10 + [1.0] * 30)
    cloned = run(tmp_path / "cloned", [0.6] * 4 + [1.0] * 36)
    row = list(script.lines([(base, cloned)], 0.9))[-1]
    assert row == "| base, cloned | 1.000 | 0.500 | 0.680 | 14 of 40 | 8 of 40 |"
    never = run(tmp_path / "never", [0.1] * 40)
    assert list(script.lines([(base, never)], 0.9))[-1].endswith("| 14 of 40 | not in 40 |")


def test_a_short_run_has_no_plateau(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has 19 iterations"):
        script.returns(run(tmp_path / "short", [1.0] * 19), 20)
