"""The repaired interpreter, in a process of its own (see interpreter_checks.py)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE, environment

from mtmc.errors import InfraError
from mtmc.judge.interpreter import install

SCRIPT = Path(__file__).with_name("interpreter_checks.py")
CHECKS = [
    node.name
    for node in ast.parse(SCRIPT.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    ran = subprocess.run(
        [sys.executable, SCRIPT], env=environment(TRITON_INTERPRET="1"), capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_interpreter(name, results):
    assert results[name] is None


def test_install_refuses_a_process_that_compiles(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(InfraError, match="TRITON_INTERPRET=1"):
        install()
