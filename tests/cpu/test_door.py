"""What a candidate file is taken for, and how foreign code is built and called."""

from __future__ import annotations

from pathlib import Path

import judge_samples as samples
import pytest
import torch

from mtmc.errors import BadInput
from mtmc.judge import candidate, door
from mtmc.judge.accuracy import RULES
from mtmc.judge.door import Door
from mtmc.judge.pretence import pretended
from mtmc.judge.verify import Verifier
from mtmc.lower.emit import MODEL_NEW
from mtmc.problem import Problem, instantiate
from mtmc.verdict import Accuracy, Wrong

LINEAR = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return self.fc(x)


def get_inputs():
    return [torch.rand(4, 5)]


def get_init_inputs():
    return [5]
"""
FOREIGN = LINEAR.replace("class Model(", "class ModelNew(")
FUNCTION = """
def linear(x, weight, fc_bias, calls):
    calls.add_(1)
    return x @ weight.t() + fc_bias
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judged(text: str, where: Door, names: tuple[str, ...] = ("own", "other weights")) -> Accuracy | Wrong:
    return Verifier(Problem("linear", LINEAR, "linear.py"), "cpu", RULES["strict"], 3, where).verify(text, None, names)


def test_our_programs_are_told_from_foreign_ones() -> None:
    frame = MODEL_NEW.format(entry="Model").partition("\n")[2]
    ours = samples.CANDIDATE.replace("    def kernels(", frame + "\n    def kernels(")
    assert door.find(ours, 1) == Door("program")
    assert door.find(samples.CANDIDATE, 1) == Door("class")  # its forward is the reference's
    assert door.find(ours.replace("return self.kernels(*inputs)", "return super().forward(*inputs)"), 1) == Door("class")
    assert door.find(ours.replace("SIZES = {}", ""), 1) == Door("class")
    assert door.find(FOREIGN, 1) == Door("class")
    assert door.find("ModelNew = make()", 1) == Door("class")
    assert door.find("from other import X as ModelNew", 1) == Door("class")
    assert door.find("def f(:", 1) == Door("class")


def test_the_function_that_takes_the_inputs_is_the_entry() -> None:
    text = "import triton\n@triton.jit\ndef k(a, b): ...\ndef _help(a, b): ...\ndef one(a): ...\ndef two(a, b, c=1): ...\n"
    assert door.find(text, 2) == Door("function", "two")
    assert door.find(text, 1) == Door("function", "one")
    assert door.find(text, 2, "_help") == Door("function", "_help")
    with pytest.raises(BadInput, match="no function f"):
        door.find(text, 2, "f")
    with pytest.raises(BadInput, match="several functions .*one, other"):
        door.find(text + "def other(a): ...\n", 1)
    with pytest.raises(BadInput, match="--function"):
        door.find(text, 7)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("from torch.utils.cpp_extension import load_inline", True),
        ("import torch\nm = torch.utils.cpp_extension.load(name='x')", True),
        ("import torch\ng = torch.cuda.CUDAGraph()", True),
        ("import triton", False),
        ("not python (", False),
    ],
)
def test_what_no_interpreter_can_run(text: str, needs: bool) -> None:
    assert bool(door.needs_gpu(text)) == needs


def test_a_foreign_class_gets_the_state_by_name() -> None:
    found = judged(FOREIGN, Door("class"))
    assert isinstance(found, Accuracy) and found.checked == ("own 4x5", "other weights 4x5") and not found.skipped
    wrong = judged(FOREIGN.replace("self.fc(x)", "self.fc(x) * 1.001"), Door("class"))
    assert isinstance(wrong, Wrong) and wrong.check == "values"


def test_state_of_another_name_is_made_from_the_same_seed_and_told() -> None:
    renamed = FOREIGN.replace("self.fc", "self.layer")
    found = judged(renamed, Door("class"))
    assert isinstance(found, Accuracy), found
    assert "fc.weight, fc.bias" in found.skipped[0] and "other weights" in found.skipped[1]
    assert found.checked == ("own 4x5",)
    late = renamed.replace("        self.layer = nn", "        torch.rand(1)\n        self.layer = nn")
    wrong = judged(late, Door("class"))
    assert isinstance(wrong, Wrong) and "state not copied" in wrong.message


def test_a_buffer_that_the_reference_updates_must_be_there() -> None:
    without = FOREIGN.replace('        self.register_buffer("calls", torch.zeros(1))\n', "").replace(
        "        self.calls.add_(1)\n", ""
    )
    found = judged(without, Door("class"))
    assert isinstance(found, Wrong) and found.check == "buffers" and "calls" in found.message


def test_a_function_gets_the_state_that_it_names() -> None:
    found = judged(FUNCTION, Door("function", "linear"))
    assert isinstance(found, Accuracy) and len(found.checked) == 2
    with pytest.raises(TypeError, match="nobody"):
        judged(FUNCTION.replace("calls", "nobody"), Door("function", "linear"))


def test_a_method_kernels_does_not_stand_for_a_foreign_forward() -> None:
    text = (
        FOREIGN.replace("return self.fc(x)", "return self.fc(x) * 2")
        + "\n    def kernels(self, x):\n        return self.fc(x)\n"
    )
    assert isinstance(judged(text, door.find(text, 1)), Wrong)


def test_cpu_tensors_pass_for_cuda_ones_inside_the_block_only() -> None:
    x = torch.rand(3)
    with pretended():
        assert x.is_cuda and x.device == torch.device("cuda", 0) and x.get_device() == 0
        made = torch.empty(3, device=x.device), x.cuda(), x.to("cuda"), torch.zeros(2, device="cuda:0")
        assert all(y.is_cuda for y in made) and torch.cuda.is_available()
        assert torch.nn.Linear(3, 2).cuda()(x).shape == (2,)
        assert x.to("cuda", torch.float16).dtype == torch.float16
    assert all(y.device.type == "cpu" for y in (x, *made)) and not x.is_cuda


def test_a_candidate_that_insists_on_cuda_is_still_interpreted() -> None:
    insists = FOREIGN.replace(
        "        return self.fc(x)",
        "        assert x.is_cuda and x.device.type == 'cuda'\n        return self.fc(x) + torch.zeros(3, device='cuda')",
    )
    assert isinstance(judged(insists, Door("class")), Accuracy)


def test_the_constructor_sees_the_reference_seed() -> None:
    problem = Problem("linear", LINEAR, "linear.py")
    with candidate.imported(FOREIGN) as module:
        reference = instantiate(problem, "cpu", 5).model
        built = candidate.prepare(module, Door("class"), problem, reference, torch.device("cpu"), 5)
    assert torch.equal(built.model.fc.weight, reference.fc.weight) and built.notes == ()
