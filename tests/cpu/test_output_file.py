"""The file handed back: self-contained, and eager's own computation wherever its kernels do not hold."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtmc.capture import capture
from mtmc.lower import lower
from mtmc.problem import load

CHECK = """
import importlib.util, json, sys, torch
sys.modules["mtmc"] = None  # as if it were not installed: any import of it fails
spec = importlib.util.spec_from_file_location("optimized", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.manual_seed(0)
eager = module.Model(12, 20, 5)
ours = module.ModelNew(12, 20, 5)
ours.load_state_dict(eager.state_dict())
x = torch.randn(7, 12, requires_grad=True)
grads = []
for model in (eager, ours):
    x.grad = None
    model.zero_grad()
    model(x).square().sum().backward()
    grads.append([x.grad.clone(), *(p.grad.clone() for p in model.parameters())])
same = all(torch.equal(a, b) for a, b in zip(*grads))
other = module.ModelNew(12, 20, 6)
print(json.dumps({
    "gradients": same,
    "unchanged": ours.unchanged,
    "other sizes": other.unchanged,
    "eval": ours.eval().unchanged,
    "train again": ours.train().unchanged,
    "half": ours.half().unchanged,
}))
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first program of the example, with small sizes."""
    folder = tmp_path_factory.mktemp("output")
    source = Path("examples/linear_gelu_softmax.py").read_text()
    for name, size in {"batch": 7, "features": 12, "hidden": 20, "classes": 5}.items():
        source = "\n".join(f"{name} = {size}" if line.startswith(f"{name} = ") else line for line in source.splitlines())
    (folder / "model.py").write_text(source + "\n")
    problem = load(folder / "model.py")
    file = folder / "optimized.py"
    file.write_text(lower(problem, capture(problem)).program.source)
    return file


def test_it_imports_torch_and_triton_only(output: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(output.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= {"torch", "triton", "__future__"}


def test_without_mtmc_it_gives_eager_gradients_and_knows_when_it_was_changed(output: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CHECK, str(output)], capture_output=True, text=True, cwd=output.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "gradients": True,
        "unchanged": True,
        "other sizes": False,
        "eval": False,
        "train again": True,
        "half": False,
    }
