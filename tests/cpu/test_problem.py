import ast
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from mtmc.embed import RESERVED, extra_imports, reference_source
from mtmc.errors import BadInput
from mtmc.graph import Graph
from mtmc.lower.emit import Reference, program_text
from mtmc.lower.normalize import Normalized
from mtmc.overrides import constants, override
from mtmc.problem import InputSpec, Problem, instantiate, load, load_namespace, parse_init, parse_input_spec

EXAMPLES = Path(__file__).parents[2] / "examples"

BLOCK = """
    '''A file in KernelBench's form.'''
    import torch
    import torch.nn as nn

    batch, width = 8, 4 * 4
    scale: float = 0.5  # used by the class

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(width, 3)

        def forward(self, x, index):
            return self.fc(x)[index] * scale

    def get_inputs():
        return [torch.rand(batch, width), torch.randint(0, 8, (20,))]

    def get_init_inputs():
        return [width]

    if __name__ == "__main__":
        raise SystemExit("must not run")
"""


def write(folder, text, name="model.py"):
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return file


def refusal(call) -> str:
    with pytest.raises(BadInput) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Loading ----------------------------------------------------------------------------------------------------------------


def test_load_runs_nothing(tmp_path):
    problem = load(write(tmp_path, BLOCK + "\n    raise RuntimeError('executed')\n"))
    assert (problem.name, problem.entry, problem.inputs) == ("model", "Model", ())
    assert "executed" in refusal(lambda: load_namespace(problem))


def test_entry_and_specs_from_the_command_line(tmp_path):
    file = EXAMPLES / "my_layers.py"
    problem = load("ignored.py", f"{file}:FeedForward", ["x=float32[6,16]"], "16, hidden=32")
    built = instantiate(problem, "cpu")
    assert built.inputs[0].shape == (6, 16) and built.model.up.out_features == 32
    assert built.model(*built.inputs).shape == (6, 16)


def test_importable_module():
    problem = load("", "torch.nn.modules.activation:GELU", ["input=bf16[3]"])
    assert problem.package == "torch.nn.modules"
    built = instantiate(problem, "cpu")
    assert built.model(*built.inputs).dtype is torch.bfloat16


BAD_FILES = {
    "missing file": (None, {}, "no file"),
    "syntax": ("import torch\ndef f(:\n    pass\n", {}, "line 2"),
    "missing class": ("class Other: pass\ndef get_inputs(): return []", {}, "Model (classes there: Other)"),
    "no inputs": ("class Model: pass", {}, "get_inputs"),
    "bad spec": ("class Model: pass", {"inputs": ["x=float32(3)"]}, "input spec"),
    "bad init": ("class Model: pass", {"inputs": ["x=float32[3]"], "init": "f(x)"}, "constructor"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file_gets_one_sentence(tmp_path, case):
    text, options, words = BAD_FILES[case]
    file = write(tmp_path, text) if text else tmp_path / "absent.py"
    assert words in refusal(lambda: load(file, **options))


def test_missing_module_and_binary_file(tmp_path):
    assert "no_such_module" in refusal(lambda: load("", "no_such_module:Model", ["x=float32[1]"]))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refusal(lambda: load(tmp_path / "binary.py"))


RAISING = {
    "import error": ("import no_such_library", "", "ModuleNotFoundError"),
    "constructor": ("", "def get_init_inputs(): return [1, 2]", "TypeError"),
    "inputs raise": ("", "def get_inputs(): return [torch.rand(-1)]", "get_inputs() raised RuntimeError"),
    "inputs a tensor": ("", "def get_inputs(): return torch.rand(3)", "must return a list or a tuple, not Tensor"),
    "init not a list": ("", "def get_init_inputs(): return 16", "must return a list or a tuple, not int"),
    "exit": ("import sys; sys.exit(3)", "", "SystemExit: 3"),
    "not a module": ("", "class Model:\n    def __init__(self, width): pass", "not a torch.nn.Module"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", RAISING)
def test_what_the_file_raises_gets_one_sentence(tmp_path, case, device):
    head, tail, words = RAISING[case]
    problem = load(write(tmp_path, "\n".join([head, textwrap.dedent(BLOCK), tail])))
    assert words in refusal(lambda: instantiate(problem, device))


# Specs ------------------------------------------------------------------------------------------------------------------


def test_input_specs():
    assert parse_input_spec("x=float32[16, 1024]") == InputSpec("x", "float32", (16, 1024))
    assert parse_input_spec("ids=long[8]<500") == InputSpec("ids", "int64", (8,), 500)
    assert parse_input_spec(" flag = bool [] ") == InputSpec("flag", "bool", ())
    for bad in ("x", "x=float32", "x=float99[3]", "x=float32[0]", "x=float32[-1]", "x=int64[3]<0", "x=float32[3]]"):
        refusal(lambda bad=bad: parse_input_spec(bad))


def test_init_arguments():
    assert parse_init("") == ((), {})
    assert parse_init("64, bias=False") == ((64,), {"bias": False})
    assert parse_init("(64, [1, 2])") == ((64, [1, 2]), {})


def test_specs_bind_by_name_and_keep_integers(tmp_path):
    file = write(
        tmp_path,
        """
        import torch.nn as nn
        class Model(nn.Module):
            def forward(self, x, factor=2, ids=None, rest=None):
                return x[ids] * factor
        """,
    )
    inputs = instantiate(load(file, inputs=["ids=int32[50]<7", "x=float16[7,3]"]), "cpu").inputs
    assert inputs[1] == 2 and len(inputs) == 3
    assert inputs[2].dtype is torch.int32 and set(inputs[2].tolist()) <= set(range(7)) and inputs[2].max() > 1
    assert "nope" in refusal(lambda: instantiate(load(file, inputs=["nope=float32[1]"]), "cpu"))


# Building ---------------------------------------------------------------------------------------------------------------


def test_same_seed_same_values(tmp_path):
    problem = load(write(tmp_path, BLOCK))
    one, two, other = instantiate(problem, "cpu"), instantiate(problem, "cpu"), instantiate(problem, "cpu", seed=1)
    assert torch.equal(one.model.fc.weight, two.model.fc.weight) and torch.equal(one.inputs[0], two.inputs[0])
    assert not torch.equal(one.inputs[0], other.inputs[0])
    assert one.inputs[1].dtype is torch.int64


def test_everything_lands_on_the_device(tmp_path):
    file = write(
        tmp_path,
        """
        import torch
        import torch.nn as nn
        table = torch.ones(3)
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.direct = nn.Linear(3, 3)
                self.kept = torch.ones(3, device="cpu")
                self.many = [torch.ones(3, device="cpu")]
                self.rate = torch.linspace(0, 1, 3)[1].item()
            def forward(self, x, n, flag):
                return self.direct(x) * self.kept * table
        def get_inputs():
            return [torch.ones(2, 3, device="cpu"), 3, None]
        """,
    )
    built = instantiate(load(file), "meta")
    tensors = [built.inputs[0], built.model.kept, built.model.many[0], built.model.direct.weight]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert built.inputs[1:] == (3, None) and built.model.rate == 0.5
    assert built.model.training


def test_huge_problem_on_meta(tmp_path):
    problem = load(write(tmp_path, BLOCK.replace("batch, width = 8, 4 * 4", "batch, width = 2**20, 2**20")))
    assert instantiate(problem, "meta").inputs[0].numel() == 2**40


def test_local_import_and_no_trace(tmp_path):
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, f"VALUE = {value}", "helper_of_test.py")
        file = write(tmp_path / folder, "from helper_of_test import VALUE\n" + textwrap.dedent(BLOCK))
        before = list(sys.path)
        assert load_namespace(load(file)).VALUE == value
        assert sys.path == before and "helper_of_test" not in sys.modules


# Overrides --------------------------------------------------------------------------------------------------------------


def test_constants_and_override(tmp_path):
    problem = load(write(tmp_path, BLOCK))
    literals = {"get_inputs[0]": 0, "get_inputs[1]": 8, "get_inputs[2]": 20}
    assert constants(problem.source) == {"batch": 8, "width": 16, "scale": 0.5, **literals}
    small = Problem(problem.name, problem.source, problem.path, overrides=(("width", 5), ("get_inputs[2]", 3), ("none", 1)))
    built = instantiate(small, "cpu")
    assert built.inputs[0].shape == (8, 5) and built.inputs[1].shape == (3,) and built.model.fc.in_features == 5
    assert small.hash != problem.hash


def test_override_keeps_the_rest_of_the_text():
    text = "A = (1,\n     2)  # é\nB = [A, 7]\n\ndef get_inputs():\n    return f(3, 4)\n"
    changed = override(text, [("A", (8, 9)), ("get_inputs[1]", 40)])
    assert changed == "A = (8, 9)  # é\n\nB = [A, 7]\n\ndef get_inputs():\n    return f(3, 40)\n"
    assert list(constants(text)) == ["A", "A[0]", "A[1]", "B[0]", "get_inputs[0]", "get_inputs[1]"]
    assert "B = [A, 5]" in override(text, [("B[0]", 5)])


# Embedding --------------------------------------------------------------------------------------------------------------


def test_reference_source_keeps_what_the_class_needs(tmp_path):
    text = reference_source(load(write(tmp_path, BLOCK)))
    names = [ast.unparse(node).split("\n")[0] for node in ast.parse(text).body]
    assert names == ["import torch.nn as nn", "scale: float = 0.5", "class Model(nn.Module):"]
    assert "# used by the class" in text
    exec(compile(text, "reference", "exec"), {})


def test_reference_source_of_helpers_effects_and_test_code(tmp_path):
    file = write(
        tmp_path,
        '''
        """Docstring."""
        from __future__ import annotations
        import os, math
        import torch
        import torch.nn as nn
        import einops

        TABLE = {}
        TABLE["k"] = 2.0
        unused = torch.rand(3)
        # how strong
        strength = 3
        if math.pi > 3:
            import functools

        def helper(x, unused=1):
            return x * strength * TABLE["k"]

        class Net(nn.Module):
            @staticmethod
            def twice(x): return functools.partial(helper)(x)
            def forward(self, x): return einops.rearrange(self.twice(x), "a b -> b a")

        def make(): return [torch.rand(2, strength)]
        def get_inputs(): return make()
        data = get_inputs()
        print(Net()(*data))
        ''',
    )
    problem = load(file, "Net")
    text = reference_source(problem)
    assert extra_imports(problem) == ("einops",)
    assert text.startswith("from __future__ import annotations\n\nimport os")
    assert "# how strong\nstrength = 3" in text and 'TABLE["k"] = 2.0' in text
    for gone in ("unused = torch", "make", "get_inputs", "print", "Docstring", "import torch\n"):
        assert gone not in text


def test_local_files_are_inlined(tmp_path):
    write(
        tmp_path, "import math\nfrom base_of_test import ROOT\ndef scale(x): return x * math.sqrt(ROOT)\n", "mid_of_test.py"
    )
    write(tmp_path, "ROOT = 4\nOTHER = 5\n", "base_of_test.py")
    head = "from mid_of_test import scale as grow\n"
    file = write(tmp_path, head + textwrap.dedent(BLOCK).replace("* scale", "* grow(1)"))
    text = reference_source(load(file))
    assert "OTHER" not in text and "_of_test" not in text
    space = {}
    exec(compile(text, "reference", "exec"), space)
    assert space["grow"](3) == 6.0 and "Model" in space


def test_what_cannot_be_embedded(tmp_path):
    (tmp_path / "pkg_of_test").mkdir()
    write(tmp_path / "pkg_of_test", "X = 1", "__init__.py")
    write(tmp_path, "scale = 3\ndef helper(): pass\n", "layers_of_test.py")
    for line, words in {
        "from pkg_of_test import X as scale": "package",
        "import layers_of_test as scale": "from layers_of_test import NAME",
        "from layers_of_test import *": "from layers_of_test import NAME",
        "from layers_of_test import scale": "two meanings",
        "from layers_of_test import absent as scale": "absent",
        "from . import scale": "package",
    }.items():
        file = write(tmp_path, line + "\n" + textwrap.dedent(BLOCK))
        assert words in refusal(lambda file=file: reference_source(load(file)))
    for name in ("SIZES", "config"):
        file = write(tmp_path, textwrap.dedent(BLOCK).replace("scale", name))
        assert name in refusal(lambda file=file: reference_source(load(file)))


def test_every_name_of_the_output_file_is_reserved():
    """What stands around the kernels, whose names come from the graph; `torch` is the same thing in both."""
    tree = ast.parse(program_text("m", Normalized(Graph((), None), {}, {}, {}), Reference("", "Model", {})))
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {node.targets[0].id for node in tree.body if isinstance(node, ast.Assign)}
    names |= {a.asname or a.name for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    assert names - {"torch"} == RESERVED


@pytest.mark.parametrize("name", ["linear_gelu_softmax", "rms_norm_block"])
def test_examples_load_and_embed(name):
    problem = load(EXAMPLES / f"{name}.py")
    assert instantiate(problem, "meta").inputs
    assert "class Model" in reference_source(problem)
