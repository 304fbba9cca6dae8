"""Program: identity, regions, and edits of whole regions."""

from __future__ import annotations

import pytest

from mtmc.program import Program, Region, canonical_key

SOURCE = '''"""Header."""

import torch
import triton


@triton.jit
def op_twice(x):
    return x * 2


@triton.jit
def twice_kernel(x_ptr, out_ptr):
    pass


def launch_twice(x):
    return x


class ModelNew(torch.nn.Module):
    def kernels(self, x):
        y = torch.ops.aten.cumsum.default(x, 1)
        z = torch.ops.aten.cumsum.default(y, 1)
        return launch_twice(z.view(2, 3))


def supports(model, x):
    return True
'''


def test_regions_by_kind_and_line():
    regions = Program(SOURCE).regions
    assert {name: region.kind for name, region in regions.items()} == {
        "op_twice": "device",
        "twice_kernel": "kernel",
        "launch_twice": "launcher",
        "ModelNew": "forward",
        "supports": "other",
    }
    assert regions["op_twice"] == Region("op_twice", "device", 7, 9)
    assert Program(SOURCE).text("op_twice").splitlines() == ["@triton.jit", "def op_twice(x):", "    return x * 2"]


def test_units_and_fallback_calls():
    program = Program(SOURCE)
    assert program.units == ("twice",)
    assert program.fallback_calls == ("aten.cumsum.default", "aten.cumsum.default")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("    return x * 2\n", "    # doubled\n    return (x * 2)\n", True),
        ('"""Header."""', '"""Another."""', True),
        ("def op_twice(x):\n", 'def op_twice(x):\n    """Doc."""\n', True),
        ("x * 2", "x * 3", False),
        ("op_twice", "op_double", False),
    ],
)
def test_identity_is_the_meaning_not_the_layout(before, after, same):
    assert (Program(SOURCE.replace(before, after)).key == Program(SOURCE).key) is same


def test_a_docstring_alone_equals_an_empty_body():
    assert canonical_key('def f():\n    """Doc."""\n') == canonical_key("def f():\n    pass\n")


def test_text_that_does_not_parse_has_a_key_of_its_own():
    broken = Program("def (")
    assert broken.key.startswith("x")
    assert broken.key != Program("def )").key
    with pytest.raises(SyntaxError):
        _ = broken.regions


def test_replace_changes_one_region_only():
    changed = Program(SOURCE).replace("launch_twice", "def launch_twice(x):\n    return x + x")
    assert changed.text("launch_twice") == "def launch_twice(x):\n    return x + x\n"
    assert changed.replace("launch_twice", Program(SOURCE).text("launch_twice")) == Program(SOURCE)


def test_an_empty_text_removes_a_region_with_the_blank_lines_after_it():
    rest = Program(SOURCE).replace("twice_kernel", "")
    assert "twice_kernel" not in rest.regions
    assert rest.source.count("\n\n\n\n") == 0
    assert rest.insert_before("launch_twice", Program(SOURCE).text("twice_kernel")) == Program(SOURCE)


def test_an_unknown_region_is_a_key_error():
    with pytest.raises(KeyError):
        Program(SOURCE).text("missing")
