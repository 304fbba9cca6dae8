"""The gate: what counts, where an edit may be, and what it may not bring in, however it is dressed up."""

from __future__ import annotations

import re

import pytest
from actions_cases import action_of, lowered

from mtmc.action import Action, Edit
from mtmc.actions.library_functions import library
from mtmc.edit import LIMIT, code_lines, gate
from mtmc.errors import Illegal
from mtmc.program import Program

UNIT = action_of("warps(mul, value=4)")
MODEL = Action("rewrite", "reorder", "model", (), "")
LAUNCH = "    numel = out.numel()\n"


@pytest.fixture(scope="module")
def program() -> Program:
    return lowered("chain").program


def changed(program: Program, region: str, old: str, new: str) -> Program:
    text = program.text(region)
    assert old in text
    return program.replace(region, text.replace(old, new, 1))


def with_line(program: Program, line: str) -> Program:
    """A line more in the launcher of `mul`."""
    return changed(program, "launch_mul", LAUNCH, f"{LAUNCH}    {line}\n")


def through(program: Program, after: Program, action: Action = UNIT) -> Edit:
    return gate(program, after, action)


# -- what counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "new",
    [
        f"    # how many elements there are\n{LAUNCH}",
        f"\n\n{LAUNCH}",
        "    numel  =  out.numel( )  # spaced out\n",
        "    numel = out.numel(\n    )\n",
    ],
    ids=["comment", "blank lines", "spaces", "line break"],
)
def test_layout_does_not_count(program, new):
    edit = through(program, changed(program, "launch_mul", LAUNCH, new))
    assert edit.changed_lines == 0


def test_indentation_does_not_count():
    assert code_lines("if a:\n    b = 1\n    c = 2\n") == code_lines("if a:\n        b = 1\n        c = 2\n")


def test_a_changed_line_counts_on_both_sides(program):
    edit = through(program, changed(program, "launch_mul", "BLOCK = 512", "BLOCK = 1024"))
    assert (edit.added, edit.removed) == (1, 1)
    edit = through(program, with_line(program, "assert numel > 0"))
    assert (edit.added, edit.removed) == (1, 0)
    assert edit.assertions == ("assert numel > 0",)


def test_calls_of_one_unit_that_change_alike_count_once():
    twice = lowered("twice").program
    old = re.findall(r"launch_sum_1\((\w+)\)", twice.text("ModelNew"))
    assert len(old) == 2
    text = twice.text("ModelNew")
    for name in old:
        text = text.replace(f"launch_sum_1({name})", f"launch_sum_1({name}, {name})")
    edit = gate(twice, twice.replace("ModelNew", text), action_of("warps(sum_1, value=4)"))
    assert (edit.added, edit.removed) == (1, 1)


def test_statements_on_one_line_count_one_by_one(program):
    edit = through(program, with_line(program, "a = 1; b = 2; c = 3"))
    assert edit.added == 3


def test_an_import_counts(program):
    after = Program(program.source.replace("import torch\n", "import torch\nimport math\n", 1))
    assert through(program, after).added == 1


def test_more_than_the_limit_is_refused(program):
    lines = [f"a{i} = {i}" for i in range(LIMIT + 1)]
    assert through(program, with_line(program, "\n    ".join(lines[:-1]))).added == LIMIT
    with pytest.raises(Illegal, match=f"changes {LIMIT + 1} lines; {LIMIT} are allowed"):
        through(program, with_line(program, "\n    ".join(lines)))


def test_library_functions_come_in_whole_and_free(program):
    whole = program.insert_before("mul_kernel", library()["op_grouped"])
    edit = through(program, whole)
    assert edit.changed_lines == 0 and edit.library == ("op_grouped",)
    other = library()["op_grouped"].replace("tl.minimum", "tl.maximum")
    with pytest.raises(Illegal, match="touches op_grouped, outside its region mul"):
        through(program, program.insert_before("mul_kernel", other))


def test_a_dead_kernel_goes_free_and_a_used_one_stays(program):
    unused = changed(program, "ModelNew", "launch_gelu(add)", "add")
    after = unused.replace("launch_gelu", "").replace("gelu_kernel", "")
    edit = through(program, after, Action("drop", "fusion", "gelu", (), ""))
    assert (edit.added, edit.removed) == (1, 1)
    with pytest.raises(Illegal, match="removes gelu_kernel, which is still needed"):
        through(program, program.replace("gelu_kernel", ""))


# -- where an edit may be ------------------------------------------------------------------------------------------------

OUTSIDE = {
    "another kernel": ("gelu_kernel", "mask=mask", "mask=None", "touches gelu_kernel"),
    "another launcher": ("launch_gelu", "BLOCK = 512", "BLOCK = 1024", "touches launch_gelu"),
    "a library function": ("op_gelu", "0.5 *", "0.25 *", "touches op_gelu"),
    "the reference": ("Model", "* 0.5", "* 0.25", "touches Model"),
    "supports": ("supports", "return False", "return True", "touches supports"),
    "config": ("config", "found = {}", "found = CONFIG", "touches config"),
    "forward": ("ModelNew", "not supports(self, *inputs)", "False", "touches ModelNew outside kernels"),
    "the constructor": ("ModelNew", "config(self) == CONFIG", "True", "touches ModelNew outside kernels"),
    "a method more": ("ModelNew", "    def kernels", "    def extra(self): pass\n\n    def kernels", "outside kernels"),
    "the parameters": ("ModelNew", "def kernels(self, x, y)", "def kernels(self, x, y, z=1)", "outside kernels"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_edit_outside_its_region_is_refused(program, name):
    region, old, new, reason = OUTSIDE[name]
    with pytest.raises(Illegal, match=reason):
        through(program, changed(program, region, old, new))


def test_the_fast_path_may_change(program):
    edit = through(program, changed(program, "ModelNew", "gelu = launch_gelu(add)", "gelu = add"))
    assert edit.changed_lines == 2


def test_an_action_on_the_model_may_change_units_but_not_the_reference(program):
    for region, old, new in (("gelu_kernel", "mask=mask", "mask=None"), ("launch_gelu", "BLOCK = 512", "BLOCK = 1024")):
        assert through(program, changed(program, region, old, new), MODEL).changed_lines
    for region in ("Model", "supports", "config"):
        name = next(n for n, case in OUTSIDE.items() if case[0] == region)
        with pytest.raises(Illegal, match=f"touches {region}, outside its region model"):
            through(program, changed(program, *OUTSIDE[name][:3]), MODEL)


@pytest.mark.parametrize("region", ["Model", "supports", "config", "ModelNew"])
def test_what_is_no_kernel_never_goes(program, region):
    with pytest.raises(Illegal, match="still needed|no class ModelNew|outside"):
        through(program, program.replace(region, ""), MODEL)


@pytest.mark.parametrize(
    "source",
    [
        lambda text: text.replace("SIZES = {}", "SIZES = {'n': 1}"),
        lambda text: re.sub(r"CONFIG = \{.*?\n\}", "CONFIG = {}", text, flags=re.DOTALL),
        lambda text: f"{text}\n\ntorch.empty = torch.zeros\n",
        lambda text: f"{text}\n\nsupports = lambda *inputs: True\n",
        lambda text: f"{text}\n\nif True:\n    def supports(*inputs):\n        return True\n",
    ],
    ids=["SIZES", "CONFIG", "monkey patch", "rebinding", "hidden definition"],
)
def test_statements_outside_functions_stay(program, source):
    after = Program(source(program.source))
    assert after.key != program.key
    for action in (UNIT, MODEL):
        with pytest.raises(Illegal, match="statements outside functions"):
            through(program, after, action)


def test_imports_stay(program):
    with pytest.raises(Illegal, match="removes an import"):
        through(program, Program(program.source.replace("import triton\n", "", 1)))


def test_nothing_is_defined_twice(program):
    with pytest.raises(Illegal, match="launch_mul is defined twice"):
        through(program, Program(program.source + "\n\ndef launch_mul(x, y):\n    return x * y\n"))


# -- what an edit may not bring in ---------------------------------------------------------------------------------------

BANNED = {
    "plain": "launch = torch.compile(lambda v: v)",
    "alias": "import torch as t; y = t.compile(y)",
    "from": "from torch import compile as c",
    "dotted import": "import torch._inductor.config as config",
    "star": "from torch.utils import *",
    "handed on": "a, b = torch, 1; c = a; y = c.compile(y)",
    "walrus": "y = (t := torch).compile(y)",
    "a method": "out.module.compile()",
    "without a name": "(lambda: torch)().compile(y)",
    "private": "torch._C._set_cublas_allow_tf32(True)",
    "getattr": "y = getattr(torch, 'com' + 'pile')(y)",
    "namespace": "y = vars(torch)['compile'](y)",
    "dictionary": "y = torch.__dict__['compile'](y)",
    "dunder": "y = ().__class__.__base__.__subclasses__()",
    "jit": "y = torch.jit.trace(y, y)",
    "jit by alias": "from torch import jit",
    "switch": "torch.backends.cuda.matmul.allow_tf32 = True",
    "loader": "from torch.utils import cpp_extension",
    "dynamo": "import torch._dynamo",
    "another door": "torch.os.system('true')",
    "exec": "exec('y = 1')",
    "eval": "BLOCK = eval('256')",
    "eval handed on": "run = eval; BLOCK = run('256')",
    "import function": "__import__('os')",
    "file": "open('log', 'w')",
    "globals": "globals()['SIZES'] = {}",
    "runtime": "triton.runtime.driver.active.utils",
    "kernel compiler": "from triton.compiler import compile as build",
}


@pytest.mark.parametrize("name", BANNED)
def test_banned_calls_are_refused_under_every_name(program, name):
    with pytest.raises(Illegal, match="is not allowed"):
        through(program, with_line(program, BANNED[name]))


@pytest.mark.parametrize(
    "line",
    ["import os", "import subprocess as s", "from ctypes import CDLL", "import numpy", "from . import x", "import torchx"],
)
def test_other_imports_are_refused(program, line):
    for after in (with_line(program, line), Program(program.source.replace("import torch\n", f"import torch\n{line}\n", 1))):
        with pytest.raises(Illegal, match="is not allowed"):
            through(program, after)


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.empty_like(out)",
        "assert x.dtype == torch.float32, 'compile this for float32 only'",
        "step = math.ceil(numel / 256)",
        "from triton.tools.tensor_descriptor import TensorDescriptor",
        "precompiled = evaluated = numel",
        "y = torch.ops.aten.mm.default(x, y)",
    ],
)
def test_what_only_looks_banned_is_allowed(program, line):
    assert through(program, with_line(program, line)).added == 1


def test_what_the_reference_uses_already_may_stay(program):
    before = changed(
        program, "Model", "super().__init__()", "super().__init__()\n        torch.backends.cudnn.benchmark = True"
    )
    assert through(before, with_line(before, "a = 1")).added == 1
    with pytest.raises(Illegal, match="torch.backends"):
        through(before, with_line(before, "torch.backends.cudnn.benchmark = True"))


def test_text_that_does_not_parse_is_refused(program):
    for line in ("BLOCK = = 1", "x = 'open", "\0"):
        with pytest.raises(Illegal, match="does not parse"):
            through(program, with_line(program, line))
