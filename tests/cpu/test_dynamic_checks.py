"""Each dynamic check on a cheat and on an honest candidate that differs from it by little; without a GPU."""

import ast
import time
from textwrap import dedent, indent

import pytest
import torch

from mtmc.errors import BadInput
from mtmc.judge import dynamic
from mtmc.judge.door import Door
from mtmc.judge.dynamic import integrity, memory, sanitizer
from mtmc.judge.dynamic.subject import Source, mismatch, opened
from mtmc.problem import Problem
from mtmc.verdict import Finding

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(10) + 0.5)

    def forward(self, x):
        return torch.tanh(x * self.w) + x.sum(-1, keepdim=True)


def get_inputs():
    return [torch.rand(6, 10)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import threading
import time

import torch
import torch.nn as nn

KEPT = {{}}
{top}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(10) + 0.5)
        self.calls = 0
        self.kept = {{}}
        {init}

    def answer(self, x):
        return torch.tanh(x * self.w) + x.sum(-1, keepdim=True)

    def forward(self, x):
{forward}
"""
ONLY = Problem("sample", REFERENCE, "sample.py")


def source(forward: str, top: str = "", init: str = "pass") -> str:
    return CANDIDATE.format(forward=indent(dedent(forward).strip(), " " * 8), top=dedent(top), init=init)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def found(text: str, *names: str, problem: Problem = ONLY) -> list[str]:
    """Rules of what the checks (all of them without names) and the watch around them find."""
    with integrity.watched() as around:
        with opened(Source(problem, text, "cpu", door=Door("class"))) as subject:
            inside = dynamic.run(subject, names or None)
    return [finding.rule.removeprefix("dynamic.") for finding in (*around, *inside)]


BY_ADDRESS = "return self.kept.setdefault({key}, self.answer(x))"
CHEATS = {
    "same address": (source(BY_ADDRESS.format(key="x.data_ptr()")), "same_pointer"),
    "same object": (source(BY_ADDRESS.format(key="id(x)")), "same_pointer"),
    "one for all": (source(BY_ADDRESS.format(key="0")), "same_pointer"),
    "same shape, in the module": (source("return KEPT.setdefault(x.shape, self.answer(x))"), "same_pointer"),
    "same version": (source(BY_ADDRESS.format(key="(x.data_ptr(), x._version)")), "version_counter"),
    "same corners": (source(BY_ADDRESS.format(key="(x.data_ptr(), x[0, 0].item(), x[-1, -1].item())")), "version_counter"),
    "same sum": (source(BY_ADDRESS.format(key="(x.data_ptr(), round(x.sum().item(), 2))")), "version_counter"),
    "the first place": (source("x = self.kept.setdefault(0, x)\nreturn self.answer(x)"), "shifted_pointers"),
    "a view of the first place": (
        source("y = self.kept.setdefault(0, x.view(-1))\nreturn self.answer(y.view(6, 10))"),
        "shifted_pointers",
    ),
    "weights packed": (
        source("return torch.tanh(x * self.kept.setdefault(0, self.w.clone())) + x.sum(-1, True)"),
        "weights",
    ),
    "weights as numbers": (
        source("w = self.kept.setdefault(0, self.w.tolist())\nreturn torch.tanh(x * torch.tensor(w)) + x.sum(-1, True)"),
        "weights",
    ),
    "later calls": (
        source("self.calls += 1\nreturn self.answer(x) if self.calls < 12 else self.answer(x) * 0"),
        "call_count",
    ),
    "a view past the end": (
        source("y = x.as_strided((6, 11), (10, 1))\nreturn torch.tanh(x * self.w) + y.nan_to_num(7).sum(-1, True)"),
        "canaries",
    ),
    "writes past the end": (source("x.as_strided((61,), (1,))[60] = 1.0\nreturn self.answer(x)"), "canaries"),
    "writes before the start": (
        source(
            "y = self.answer(x)\nout = torch.empty_like(y)\nout.copy_(y)\n"
            "out.as_strided((1,), (1,), out.storage_offset() - 1).fill_(3.0)\nreturn out"
        ),
        "canaries",
    ),
    "a subclass": (
        source("return self.answer(x).as_subclass(Lazy)", "class Lazy(torch.Tensor):\n    pass\n"),
        "output_type",
    ),
    "a parameter": (source("return nn.Parameter(self.answer(x), requires_grad=False)"), "output_type"),
    "a buffer class": (
        source("return nn.Buffer(self.answer(x)).as_subclass(Late)", "class Late(nn.Buffer):\n    pass\n"),
        "output_type",
    ),
    "no memory": (source("y = self.answer(x)\ny.untyped_storage().resize_(0)\nreturn y"), "output_type"),
}
HONEST = {
    "plain": source("return self.answer(x)"),
    "a workspace kept by shape": source(
        "out = self.kept.setdefault(x.shape, torch.empty_like(x))\nout.copy_(self.answer(x))\nreturn out"
    ),
    "a choice kept by address": source("self.kept.setdefault(x.data_ptr(), 'fast')\nreturn self.answer(x)"),
    "inputs copied to a place of its own": source(
        "y = self.kept.setdefault(0, torch.empty_like(x))\ny.copy_(x)\nreturn self.answer(y)"
    ),
    "weights packed at every call": source("w = self.w.clone()\nreturn torch.tanh(x * w) + x.sum(-1, True)"),
    "calls counted": source("self.calls += 1\nreturn self.answer(x)"),
    "a view up to the end": source("y = x.as_strided((6, 10), (10, 1))\nreturn torch.tanh(y * self.w) + y.sum(-1, True)"),
    "a subclass inside": source(
        "return self.answer(x.as_subclass(Tagged)).as_subclass(torch.Tensor)", "class Tagged(torch.Tensor):\n    pass\n"
    ),
    "a thread that ends": source(
        "done = threading.Thread(target=lambda: None)\ndone.start()\ndone.join()\nreturn self.answer(x)"
    ),
    "a flag put back": source("with torch.backends.cudnn.flags(benchmark=True):\n    return self.answer(x)"),
    "names of its own": source("return relu(self.answer(x)) + 0", "def relu(x):\n    return x\n"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found_by_the_check_meant_for_it(name: str) -> None:
    text, check = CHEATS[name]
    assert check in found(text, check)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_passes_every_check(name: str) -> None:
    assert found(HONEST[name]) == []


LEFT = {
    "import time\ntime.perf_counter = lambda: 0.0": "patched",
    "torch.relu = lambda x: x": "patched",
    "torch.nn.functional.softmax = lambda x, dim: x": "patched",
    "torch.Tensor.allclose = lambda *a: True": "patched",
    "torch.nn.Module.eval = lambda self: self": "patched",
    "torch.cuda.Event.elapsed_time = lambda *a: 1e-3": "patched",
    "torch.cuda.current_stream = lambda *a: None": "patched",
    "import mtmc.judge.dynamic.subject as s\ns.mismatch = lambda y, r: 0.0": "patched",
    "import mtmc.judge.dynamic.subject as s\ns.Subject.off = lambda *a: False": "patched",
    "import mtmc.judge.dynamic.subject as s\ns.mismatch.__code__ = (lambda y, r: 0.0).__code__": "patched",
    "import sys, types\nsys.modules['random'] = types.ModuleType('random')": "patched",
    "import builtins\nbuiltins.abs = lambda x: 0": "patched",
    "torch.backends.cudnn.benchmark = True": "flags",
    "torch.backends.cuda.matmul.allow_tf32 = True": "flags",
    "torch.set_float32_matmul_precision('medium')": "flags",
    "torch.set_default_dtype(torch.float64)": "flags",
    "torch.backends.cudnn.deterministic = True": "flags",
    "from torch.utils.flop_counter import FlopCounterMode\nFlopCounterMode(display=False).__enter__()": "hooks",
    "nn.modules.module.register_module_forward_hook(lambda *a: None)": "hooks",
    "import gc\ngc.callbacks.append(lambda *a: None)": "hooks",
    # counted only once it runs, for which busy cores need a moment
    "import _thread\n_thread.start_new_thread(time.sleep, (5,))\ntime.sleep(0.2)": "threads",
    "threading.Thread(target=time.sleep, args=(5,), daemon=True).start()": "threads",
    "threading.Timer(5, print).start()": "threads",
}


@pytest.mark.parametrize("statement", LEFT)
def test_what_is_left_behind_is_found_and_put_back(statement: str) -> None:
    before = integrity._Spaces()
    flags = {name: integrity._read(get) for name, (get, _) in integrity._flags().items()}
    try:
        rules = found(source("return self.answer(x)", statement), "output_type")
    finally:
        while torch._C._len_torch_dispatch_stack():
            torch._C._pop_torch_dispatch_stack(None)
        torch.nn.modules.module._global_forward_hooks.clear()
        import gc

        gc.callbacks[:] = [callback for callback in gc.callbacks if "candidate_" not in str(callback.__module__)]
    assert LEFT[statement] in rules
    assert not list(before.changes())
    assert flags == {name: integrity._read(get) for name, (get, _) in integrity._flags().items()}
    if LEFT[statement] == "threads":
        time.sleep(1.6)


def test_inputs_that_a_reference_writes_do_not_confuse_the_checks() -> None:
    problem = Problem(
        "inplace", REFERENCE.replace("return torch.tanh", "x.mul_(2)\n        return torch.tanh"), "inplace.py"
    )
    assert found(source("x.mul_(2)\nreturn self.answer(x)"), problem=problem) == []
    assert found(source(BY_ADDRESS.format(key="x.data_ptr()").replace("x))", "x.mul_(2)))")), problem=problem) != []


def test_a_reference_that_never_changes_is_noted() -> None:
    problem = Problem(
        "constant", REFERENCE.replace("return torch.tanh(x * self.w) + x.sum(-1, keepdim=True)", "return x * 0"), "c.py"
    )
    with opened(Source(problem, source("return x * 0"), "cpu", door=Door("class"))) as subject:
        assert dynamic.run(subject) == ()
        assert any("same_pointer" in note for note in subject.notes) and any("weights" in note for note in subject.notes)


def test_guards_keep_shape_strides_and_alignment_and_show_a_write() -> None:
    for x in (
        torch.rand(3, 4).t(),
        torch.arange(7),
        torch.rand(2, 3, dtype=torch.complex64),
        torch.ones(5, dtype=torch.bool),
    ):
        block = memory.place("x", x, float("nan"))
        assert block.tensor.stride() == x.stride() and torch.equal(block.tensor, x) and block.damage() == ""
        assert block.tensor.data_ptr() % 64 == block.whole.data_ptr() % 64
        block.whole[block.guard - 1] = 1
        assert "before x" in block.damage()


REPORT = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at relu_kernel+0x1d0 in sample.py:24
=========     by thread (3,0,0) in block (0,0,0)
========= ERROR SUMMARY: 61 errors
"""


def test_what_the_sanitizer_says_is_read() -> None:
    (finding,), notes = sanitizer.read(REPORT)
    assert finding.rule == "dynamic.sanitizer" and not notes
    assert "Invalid __global__ read of size 4 bytes in relu_kernel (61 reports)" in finding.why
    assert sanitizer.read("========= ERROR SUMMARY: 0 errors\n") == ((), ())
    assert "Device not supported" in sanitizer.read("========= Device not supported\n")[1][0]


def test_without_the_sanitizer_it_says_so(monkeypatch) -> None:
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    assert sanitizer.sanitize(Source(ONLY, "", "cuda"), 0, 1.0) == ((), ("compute-sanitizer: not installed here",))


def test_a_candidate_that_is_wrong_from_the_start_is_left_to_the_accuracy_rule() -> None:
    with opened(Source(ONLY, source("return self.answer(x) * 2"), "cpu", door=Door("class"))) as subject:
        assert dynamic.run(subject) == ()
        assert subject.notes == ["dynamic checks: the first call is wrong already"]


def test_a_file_that_runs_only_once_in_a_process_is_judged_all_the_same() -> None:
    once = "if hasattr(torch, 'only_once'):\n    raise RuntimeError('operator registered twice')\ntorch.only_once = None"
    try:
        with opened(Source(ONLY, source("return self.answer(x)", once), "cpu", door=Door("class"))) as subject:
            assert dynamic.run(subject) == ()
        assert "imported once only: operator registered twice" in subject.notes
        writes = source("x.as_strided((61,), (1,))[60] = 1.0\nreturn self.answer(x)", once)
        del torch.only_once
        assert found(writes, "canaries") == ["canaries"]
    finally:
        del torch.only_once


def test_no_check_begins_after_the_deadline() -> None:
    with opened(Source(ONLY, source("return self.answer(x)"), "cpu", door=Door("class"))) as subject:
        assert dynamic.run(subject, ("weights", "canaries"), seconds=-1.0) == ()
        assert subject.notes == ["dynamic checks: no time for canaries, weights"]


def test_mismatch_counts_what_matters() -> None:
    y = torch.tensor([1.0, 2.0])
    assert mismatch(y, y) == 0 and mismatch(y * 2, y) == 1 and mismatch(y[:1], y) == float("inf")
    assert mismatch(torch.tensor([1.0, float("nan")]), y) == float("inf") == mismatch((y,), y)
    assert mismatch(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])) == 0.25
    assert mismatch(torch.ones(2), torch.zeros(2)) > 1e20


def test_an_unknown_check_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="unknown dynamic check 'canary'; known: output_type, canaries"):
        dynamic.select(["canary"])
    assert list(dynamic.select(["weights", "canaries"])) == ["canaries", "weights"]


def test_every_finding_is_listed() -> None:
    """The rule ids that the modules use are the names in the tables."""
    used = set()
    for path in (memory.__file__, integrity.__file__):
        folder = path.rpartition("/")[0]
        for name in ("memory", "integrity", "contents", "launches", "streams", "output", "sanitizer"):
            for node in ast.walk(ast.parse(open(f"{folder}/{name}.py").read())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("dynamic."):
                    used.add(node.value.removeprefix("dynamic."))
    used |= {"same_pointer", "version_counter"}  # named by their functions
    assert used - {""} == set(dynamic.CHECKS) | set(dynamic.AROUND) | set(dynamic.ON_DEMAND)
    assert isinstance(Finding("dynamic.canaries", 0, "x"), Finding)
