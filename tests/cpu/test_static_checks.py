"""Static checks: every cheat of the corpus is found for its reason, no honest candidate is rejected; nothing is run here."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from mtmc.errors import BadInput
from mtmc.judge import door
from mtmc.judge.static import LIBRARY_USE, RULES, check, select
from mtmc.judge.static.memory import Tracked
from mtmc.problem import Problem, load

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/adversarial"
HEADER = re.compile(r"^# (reference|expect|needs|twin): *(.*)$", re.MULTILINE)
FILES = {path.stem: path for path in sorted((CORPUS / "cases").glob("*/*.py"))}
HEADERS = {name: dict(HEADER.findall(path.read_text())) for name, path in FILES.items()}
EXPECT = {name: header["expect"] for name, header in HEADERS.items()}
STATIC = [name for name, expect in EXPECT.items() if "rejected static." in expect]
HONEST = [name for name, expect in EXPECT.items() if "verified" in expect]


def findings(name: str):
    problem = load(CORPUS / "references" / f"{HEADERS[name]['reference']}.py")
    source = FILES[name].read_text()
    inputs = problem.source.count("torch.rand") if "for _ in range(3)" not in problem.source else 3
    return check(source, problem, door.find(source, inputs).function)


@pytest.mark.parametrize("name", STATIC)
def test_a_cheat_is_rejected_for_its_reason(name):
    rejecting = [finding for finding in findings(name) if finding.level == "reject"]
    reasons = [part.strip().removeprefix("rejected ") for part in EXPECT[name].split("|")]
    others = [reason for reason in reasons if not reason.startswith("static.")]
    assert rejecting or others, "nothing was found"
    assert not rejecting or rejecting[0].rule in reasons, rejecting
    assert all(finding.line > 0 and finding.why for finding in rejecting)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_is_not_rejected(name):
    assert [finding for finding in findings(name) if finding.level == "reject"] == []


def test_every_rule_has_three_cheats_and_honest_twins():
    for rule, described in RULES.items():
        kind = [name for name, path in FILES.items() if path.parent.name == rule]
        cheats = [name for name in kind if name not in HONEST]
        assert len(cheats) >= 3 and len(kind) - len(cheats) >= 3, rule
        if described.level == "reject":
            assert all(f"static.{rule}" in EXPECT[name] for name in cheats), rule


@pytest.mark.parametrize("name", ["sum_in_bfloat16", "half_product", "input_rounded"])
def test_lower_precision_only_warns(name):
    found = findings(name)
    assert {finding.rule for finding in found} == {"static.precision"} and {f.level for f in found} == {"warn"}


@pytest.mark.parametrize(
    "path", [*(ROOT / "tests/golden").glob("*.py"), *(ROOT / "examples").glob("*.py")], ids=lambda p: p.stem
)
def test_our_own_programs_and_references_are_clean(path):
    """Examples are references: only the rules on using PyTorch's operators speak of those."""
    source = path.read_text()
    names = None if "golden" in str(path) else [name for name in RULES if name not in LIBRARY_USE]
    assert [finding for finding in check(source, names=names) if finding.level == "reject"] == []


RELU = (CORPUS / "cases/no_kernel/kernel_launched.py").read_text()
PLACE = "        return relu(x)\n"


def relu(*lines: str, top: str = "") -> str:
    """The honest relu with lines before its return and at its top level."""
    assert PLACE in RELU
    body = "".join(f"        {line}\n" for line in lines)
    return RELU.replace(PLACE, body + PLACE).replace("\n\nclass ModelNew", f"\n\n{top}\n\n\nclass ModelNew")


def rules(source: str, problem: Problem | None = None) -> set[str]:
    return {f.rule.removeprefix("static.") for f in check(source, problem) if f.level == "reject"}


ALIASES = {
    "import as": ("import torch as t", "f = t.compile(relu)"),
    "from as": ("from torch import compile as c", "f = c(relu)"),
    "assigned": ("c = torch.compile", "f = c(relu)"),
    "assigned twice": ("c = torch; d = c.compile", "f = d(relu)"),
    "getattr": ("", "f = getattr(torch, 'compile')(relu)"),
    "joined name": ("", "f = getattr(torch, 'com' + 'pile')(relu)"),
    "backwards name": ("", "f = getattr(torch, 'elipmoc'[::-1])(relu)"),
    "dictionary": ("", "f = vars(torch)['compile'](relu)"),
    "module table": ("import sys", "f = sys.modules['torch'].compile(relu)"),
    "import function": ("", "f = __import__('torch').compile(relu)"),
    "import module": ("import importlib", "f = importlib.import_module('torch').compile(relu)"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_names_are_followed(name):
    top, line = ALIASES[name]
    assert "torch_compile" in rules(relu(line, top=top))


@pytest.mark.parametrize(
    "line",
    [
        "compile = relu; f = compile(x)",
        "time = x.shape; a = time[0]",
        "assert x.is_cuda and x.data_ptr() % 16 == 0 or True",
        "device = torch.cuda.current_device()",
        "n = max(1, x.numel()); open = n",
        "names = [getattr(self, name) for name in ('training',)]",
    ],
)
def test_what_only_looks_like_a_hack_passes(line):
    assert rules(relu(line)) == set()


# Name: lines before `return relu(x)`, lines at the top level, the rules that may speak first.
HACKS = {
    "memo that raises first": ("try: return M[x.data_ptr()]\nexcept KeyError: pass", "M = {}", "pointer_cache"),
    "memo by hash": ("if hash(x) in M: return M[hash(x)]\nM[hash(x)] = relu(x)", "M = {}", "pointer_cache"),
    "memo asked by id": ("y = M.get(id(x))\nif y is not None: return y", "M = {}", "pointer_cache"),
    "memo in a weak table": (
        "if x in M: return M[x]\nM[x] = relu(x)",
        "import weakref\nM = weakref.WeakKeyDictionary()",
        "pointer_cache",
    ),
    "cache of a function": ("return kept(x)", "from functools import cache\nkept = cache(relu)", "pointer_cache"),
    "memo without a key": ("if not M: M.append(relu(x))\nreturn M[0]", "M = []", "output_memo"),
    "memo in an attribute": ("if not hasattr(self, 'y'): self.y = relu(x)\nreturn self.y", "", "output_memo"),
    "memo of a function": ("if not hasattr(relu, 'y'): relu.y = relu(x)\nreturn relu.y", "", "output_memo"),
    "memo in a closure": (
        "return kept(x)",
        "def maker():\n    M = []\n    def run(x):\n        if not M: M.append(relu(x))\n"
        "        return M[0]\n    return run\n"
        "kept = maker()",
        "output_memo",
    ),
    "memo by a decorator": (
        "return kept(x)",
        "def memo(f):\n    M = []\n    def run(x):\n        if not M: M.append(f(x))\n        return M[0]\n    return run\n"
        "@memo\ndef kept(x):\n    return relu(x)",
        "output_memo",
    ),
    "graph of the first input": (
        "if not hasattr(self, 'g'):\n    self.x = x\n    self.g = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(self.g):\n"
        "        self.y = relu(self.x)\nself.g.replay()\nreturn self.y",
        "",
        "output_memo",
    ),
    "counter in a list": ("N[0] += 1\nif N[0] > 9: return x", "N = [0]", "call_count"),
    "counter that goes round": ("global N\nN = (N + 1) % 50\nif N: return torch.relu(x)", "N = 0", "call_count"),
    "version by another name": ("if getattr(x, '_ver' + 'sion') > 3: return x", "", "version_counter"),
    "frame by another name": ("f = getattr(sys, '_get' + 'frame')\nif f(1): return x", "import sys", "introspection"),
    "name of the file": ("if 'candidate_' in __file__: return relu(x)", "", "introspection"),
    "capturing": ("if torch.cuda.is_current_stream_capturing(): return torch.empty_like(x)", "", "ghost_branch"),
    "chance": ("if random.random() < 0.5: return torch.relu(x)", "import random", "ghost_branch"),
    "waiting": ("end = time.time() + 1\nwhile time.time() < end: pass", "import time", "timing"),
    "operator of C": ("relu(x)\nreturn torch._C._VariableFunctions.relu(x)", "", "unused_result"),
    "operator by its name": ("relu(x)\nreturn operator.methodcaller('relu')(x)", "import operator", "unused_result"),
    "operator of the class": ("relu(x)\nreturn torch.Tensor.relu(x)", "", "unused_result"),
    "data replaced": ("y = relu(x)\ny.data = torch.relu(x)\nreturn y", "", "unused_result"),
    "contents replaced": ("y = relu(x)\ny[:] = x.clamp_min(0)\nreturn y", "", "unused_result"),
    "sides of a condition": ("return relu(x) if x.sum() > 1e30 else x.relu()", "", "ghost_branch"),
    "swallowed in a helper": (
        "return safe(x)",
        "def safe(x):\n    try:\n        return relu(x)\n    except RuntimeError:\n        print('failed')\n"
        "    return x.clamp(min=0)",
        "try_fallback",
    ),
    "hook": ("self.register_forward_hook(lambda m, i, o: torch.relu(i[0]))", "", "monkey_patch"),
    "table of torch": ("", "vars(torch).update(allclose=lambda *a: True)", "monkey_patch"),
    "settings under another name": ("", "m = torch.backends.cuda.matmul\nm.allow_tf32 = True", "global_flag"),
    "star import": ("system('true')", "from os import *", "outside"),
}
FAIR = {
    "descriptor": (
        "d = TensorDescriptor.from_tensor(x, [16, 16])",
        "from triton.tools.tensor_descriptor import TensorDescriptor",
    ),
    "partial launch": (
        "from functools import partial\ny = torch.empty_like(x)\ngo = partial(relu_kernel[(9,)], x, y)\n"
        "go(x.numel(), BLOCK=256)\nreturn y",
        "",
    ),
    "launch with a dictionary": (
        "y = torch.empty_like(x)\nrelu_kernel[(9,)](**dict(x_ptr=x, out_ptr=y, n=9), BLOCK=256)\nreturn y",
        "",
    ),
    "own operator": (
        "return torch.ops.corpus.own(x)",
        "@torch.library.custom_op('corpus::own', mutates_args=())\n"
        "def own(x: torch.Tensor) -> torch.Tensor:\n    return relu(x)",
    ),
    "tuning by the clock": (
        "if not hasattr(self, 'best'):\n    times = []\n    for block in (128, 256):\n"
        "        start = time.perf_counter()\n        relu(x)\n"
        "        times.append((time.perf_counter() - start, block))\n    self.best = min(times)[1]",
        "import time",
    ),
    "graph with its own input": (
        "if not hasattr(self, 'g'):\n    self.x = x.clone()\n    self.g = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(self.g):\n"
        "        self.y = relu(self.x)\nself.x.copy_(x)\nself.g.replay()\nreturn self.y.clone()",
        "",
    ),
    "nothing to do": ("if int(x.ne(0).sum()) == 0: return torch.zeros_like(x)", ""),
    "gradients": ("if torch.is_grad_enabled() and x.requires_grad: return torch.relu(x)", ""),
    "autocast": ("if torch.is_autocast_enabled(): return torch.relu(x)", ""),
    "tracing": ("if torch.jit.is_scripting() or torch.compiler.is_compiling(): return torch.relu(x)", ""),
    "position": ("self.n = getattr(self, 'n', 0) + 1\nif self.n > 10**9: raise RuntimeError('full')", ""),
    "alignment": ("if x.data_ptr() % 16: x = x.clone()", ""),
    "type by name": ("t = getattr(tl, str(x.dtype).split('.')[1])", ""),
    "buffers by shape": (
        "y = M.setdefault(x.shape, torch.empty_like(x))\nrelu_kernel[(9,)](x, y, 9, BLOCK=256)\nreturn y.clone()",
        "M = {}",
    ),
    "numbers of no tensor": ("", "BLOCKS = [16, 32, 48, 64, 96, 128, 160, 192, 256, 512]"),
    "parts": ("return torch.cat([relu(part) for part in x.chunk(2)])", ""),
    "cases": ("match x.dim():\n    case 2:\n        y = relu(x)\n    case _:\n        y = relu(x.flatten())\nreturn y", ""),
}


@pytest.mark.parametrize("name", HACKS)
def test_variants_of_hacks_are_found(name):
    body, top, expected = HACKS[name]
    assert expected in rules(relu(*body.splitlines(), top=top))


@pytest.mark.parametrize("name", FAIR)
def test_fair_variants_pass(name):
    body, top = FAIR[name]
    assert rules(relu(*body.splitlines(), top=top)) == set()


def test_what_nobody_calls_is_not_looked_at():
    assert (
        rules(relu(top="def benchmark(x):\n    import time\n    started = time.time()\n    torch.compile(relu)(x)\n"))
        == set()
    )
    assert rules(RELU + '\n\nif __name__ == "__main__":\n    torch.backends.cudnn.benchmark = True\n') == set()
    assert "timing" in rules(relu("benchmark(x)", top="def benchmark(x):\n    import time\n    time.sleep(1)\n"))


def test_text_of_the_reference_is_not_the_candidates():
    reference = "import torch\nimport torch.nn as nn\n\ntorch.backends.cudnn.benchmark = True\n\n\nclass Model(nn.Module):\n"
    reference += (
        "    def forward(self, x):\n        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.rand(4, 5)]\n"
    )
    problem = Problem("sample", reference, "sample.py")
    switch = "torch.backends.cudnn.benchmark = True"
    assert rules(relu(top=switch), problem) == set()
    assert rules(relu(top=switch)) == {"global_flag"}
    assert rules(relu(top=switch.replace("True", "False")), problem) == {"global_flag"}


def test_shapes_of_the_problem_decide_branches():
    problem = load(CORPUS / "references/relu.py")  # 33 x 70
    source = "        if x.shape[0] {} 33:\n            return torch.relu(x)\n"
    assert "ghost_branch" in rules(RELU.replace(PLACE, source.format("==") + PLACE), problem)
    assert rules(RELU.replace(PLACE, source.format("!=") + PLACE), problem) == set()


def test_only_selected_rules_speak_and_unknown_ones_are_errors():
    source = relu("torch.compile(relu)", "import os; os.system('true')")
    assert [f.rule for f in check(source, names=["static.outside"])] == ["static.outside"]
    assert list(select(["outside", "torch_compile"])) == ["torch_compile", "outside"]  # the table's order
    with pytest.raises(BadInput, match="no static check copy.*known: inductor_code, torch_compile"):
        select(["copy"])


def test_text_that_does_not_parse_has_no_findings():
    assert check("def f(:\n") == () and check("x = '\0'") == ()


def test_deep_and_huge_texts_end():
    for terms in (900, 20_000):
        assert isinstance(check(relu("y = " + "+".join(["1"] * terms))), tuple)
    assert rules(relu("n = 9 ** 9 ** 9; m = 1 << 10 ** 9; s = 'a' * 10 ** 12; l = list(range(10 ** 12))")) == set()


def test_the_rules_are_described():
    text = (ROOT / "docs/checks.md").read_text()
    rows = dict(re.findall(r"^\| `static\.(\w+)` \| (\w+) \|", text, re.MULTILINE))
    assert rows == {name: rule.level for name, rule in RULES.items()}


def test_what_paths_join_to_is_the_union_of_all_that_they_hold() -> None:
    rng = random.Random(0)
    for _ in range(200):
        alive = [Tracked({key: frozenset({0}) for key in range(4)})]
        for _ in range(rng.randint(2, 30)):
            one = rng.choice(alive)
            match rng.choice(("set", "set", "copy", "join")):
                case "set":
                    one[rng.randrange(8)] = frozenset({rng.randrange(5)})
                case "copy":
                    alive.append(one.copy())
                case "join":
                    others = rng.sample(alive, rng.randint(1, min(3, len(alive))))
                    keys = {key for each in (one, *others) for key in each}
                    joined = one.joined(others)
                    assert joined == {key: frozenset().union(*(e.get(key, ()) for e in (one, *others))) for key in keys}
                    alive.append(joined)
