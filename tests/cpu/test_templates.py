"""The library of device functions: what they compute (in the interpreter, see ops_checks.py), and that they compile."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from ops_cases import ELEMENTWISE, REDUCING, program
from processes import PATIENCE, environment

from mtmc.hardware_profiles import load
from mtmc.judge.standin import stand_in
from mtmc.lower.splice import library

SCRIPT = Path(__file__).with_name("ops_checks.py")
CASES = {**ELEMENTWISE, **REDUCING}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("ops")
    (path / "library_kernels.py").write_text(program())
    return path


@pytest.fixture(scope="module")
def results(folder) -> dict[str, str | None]:
    ran = subprocess.run(
        [sys.executable, SCRIPT, folder],
        env=environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_function_has_a_case():
    assert sorted(library()) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name, results):
    assert results[name] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gpu", ["h100", "mi300x"])
def test_all_compile(folder, gpu, dtype):
    module = imported(folder / "library_kernels.py")
    with stand_in(load(gpu)) as recorder, torch.device("meta"):
        x, y, out = (torch.empty(n * 256, dtype=dtype) for n in (1, 1, len(ELEMENTWISE)))
        module.every_kernel[(1,)](x, y, out, BLOCK=256)
    assert [launch.kernel for launch in recorder.launches] == ["every_kernel"]


def test_docstrings_name_no_device_function():
    """What a program's text mentions is brought into it: a name in a docstring would bring in what nothing calls."""
    for name, text in library().items():
        docstring = ast.get_docstring(ast.parse(text).body[0]) or ""
        assert set(re.findall(r"\bop_\w+", docstring)) <= {name}
