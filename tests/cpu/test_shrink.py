import textwrap

import pytest

from mtmc.capture import capture
from mtmc.graph import Node
from mtmc.problem import instantiate, load
from mtmc.shrink import Slot, compatible, find, resized, shrink, slots, trace

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def write(tmp_path, body):
    file = tmp_path / "model.py"
    file.write_text(HEAD + textwrap.dedent(body))
    return load(file)


LINEAR = """
    class Model(nn.Module):
        def __init__(self, k, n):
            super().__init__()
            self.fc = nn.Linear(k, n)
        def forward(self, x):
            return torch.softmax(self.fc(x), -1)
    batch_size, k = 4096, 1024 * 8
    n = 8192
    def get_inputs(): return [torch.rand(batch_size, k)]
    def get_init_inputs(): return [k, n]
"""

HEADS = """
    class Model(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            assert width % heads == 0
            self.heads = heads
            self.qkv = nn.Linear(width, 3 * width)
        def forward(self, x):
            b, t, w = x.shape
            q, k, v = (p.view(b, t, self.heads, w // self.heads).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
            return torch.softmax(q @ k.transpose(-1, -2), -1) @ v
    batch_size = 64
    seq = 1024
    width = 768
    heads = 12
    def get_inputs(): return [torch.rand(batch_size, seq, width)]
    def get_init_inputs(): return [width, heads]
"""

TIED = """
    class Model(nn.Module):
        def forward(self, x, target):
            return torch.clamp(1 - x * target, min=0).mean()
    batch_size = 32768
    shape = (32768,)
    def get_inputs(): return [torch.rand(batch_size, *shape), torch.randint(0, 2, (batch_size,)).float() * 2 - 1]
    def get_init_inputs(): return []
"""

CONV = """
    class Model(nn.Module):
        def __init__(self, cin, cout, kernel):
            super().__init__()
            self.conv = nn.Conv2d(cin, cout, kernel, groups=4)
            self.norm = nn.GroupNorm(8, cout)
        def forward(self, x):
            return F.relu(self.norm(self.conv(x)))
    batch_size = 128
    cin = 64
    cout = 256
    def get_inputs(): return [torch.rand(batch_size, cin, 224, 224)]
    def get_init_inputs(): return [cin, cout, 3]
"""


def shapes(problem):
    return [tuple(x.shape) for x in instantiate(problem, "meta").inputs]


def test_two_sizes_odd_distinct_below_and_above_a_block(tmp_path):
    small, large, *_ = find(write(tmp_path, LINEAR)).variants
    sizes = [dict(variant.overrides) for variant in (small, large)]
    assert all(len(set(s.values())) == 3 and all(value % 2 for value in s.values()) for s in sizes)
    assert max(sizes[0].values()) < 64 < min(sizes[1].values())
    assert sizes[1]["batch_size"] < sizes[1]["k"]  # the order of the sizes stays


@pytest.mark.slow
def test_each_large_size_is_long_once_and_the_others_tiny(tmp_path):
    _, _, *variants = find(write(tmp_path, LINEAR)).variants
    sizes = [dict(variant.overrides) for variant in variants]
    assert all(sorted(s.values())[-1] > 1024 and sorted(s.values())[-2] < 17 for s in sizes)
    longest = [max(s, key=lambda name, s=s: s[name]) for s in sizes]
    assert len(set(longest)) == len(longest) > 0 and "batch_size" not in longest


def test_variants_are_within_the_limits(tmp_path):
    for variant in find(write(tmp_path, CONV), limit_flops=1e7, limit_elements=1e5).variants:
        made = trace(variant)
        assert made.flops <= 1e7 and made.elements <= 1e5
        assert shapes(variant)[0][0] >= 2


def test_the_same_operations_at_every_size(tmp_path):
    problem = write(tmp_path, CONV)
    result = find(problem)
    full = capture(problem).graph
    assert len(result.graphs) == len(result.variants) == 2
    assert all(compatible(full, graph) for graph in result.graphs)
    assert all(capture(variant).graph == graph for variant, graph in zip(result.variants, result.graphs, strict=True))


@pytest.mark.slow
def test_divided_sizes_fall_back_to_multiples(tmp_path):
    small, large = find(write(tmp_path, HEADS)).variants
    for variant in (small, large):
        sizes = dict(variant.overrides)
        assert sizes["width"] % 12 == 0 and sizes["width"] < 768 and sizes["seq"] % 2 == 1
        assert "heads" not in sizes
    groups, kernel = 8, 3
    for variant in find(write(tmp_path, CONV)).variants:
        sizes = dict(variant.overrides)
        assert sizes.get("cout", 256) % groups == 0 and sizes.get("cin", 64) % 4 == 0
        assert "get_init_inputs[0]" not in sizes, f"the kernel of {kernel} stays"


@pytest.mark.slow
def test_equal_sizes_stay_equal_where_they_must(tmp_path):
    for variant in find(write(tmp_path, TIED)).variants:
        sizes = dict(variant.overrides)
        assert sizes["batch_size"] == sizes["shape[0]"] < 128


@pytest.mark.slow
def test_literals_in_get_inputs_are_sizes(tmp_path):
    _, large = find(write(tmp_path, CONV)).variants
    assert all(size < 224 for size in shapes(large)[0][2:])


def test_input_specs_and_init_shrink(tmp_path):
    file = tmp_path / "layers.py"
    file.write_text(HEAD + textwrap.dedent(LINEAR).split("batch_size")[0])
    problem = load(file, inputs=["x=float32[4096,8192]"], init="8192, n=1024")
    small, large, *_ = find(problem).variants
    rows, features = large.inputs[0].shape
    model = instantiate(large, "meta").model
    assert large.init == f"{features}, n={model.fc.out_features}"
    assert len({rows, features, model.fc.out_features}) == 3 and 64 < max(rows, features) < 128
    assert instantiate(small, "cpu").model(*instantiate(small, "cpu").inputs).shape[0] < 64


def test_nothing_to_shrink_has_a_reason(tmp_path):
    fixed = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2**13, 2**13)
            def forward(self, x): return self.fc(x)
        def get_inputs(): return [torch.rand(8192, 2**13)[:, :8192].expand(8192, -1)]
    """
    result = find(write(tmp_path, fixed))
    assert result.variants == () and "no size" in result.reason
    assert shrink(write(tmp_path, fixed)) == ()


@pytest.mark.slow
def test_loops_over_a_size_keep_it(tmp_path):
    looped = """
        class Model(nn.Module):
            def forward(self, x):
                h = torch.zeros_like(x[:, 0])
                for t in range(x.shape[1]):
                    h = torch.tanh(h + x[:, t])
                return h
        batch_size, steps, width = 512, 40, 512
        def get_inputs(): return [torch.rand(batch_size, steps, width)]
    """
    variants = find(write(tmp_path, looped)).variants
    assert variants and all(shapes(variant)[0][1] == 40 for variant in variants)


def test_slots_and_resized(tmp_path):
    problem = write(tmp_path, CONV)
    assert {slot.name: slot.value for slot in slots(problem)} == {
        "batch_size": 128,
        "cin": 64,
        "cout": 256,
        "get_inputs[0]": 224,
        "get_inputs[1]": 224,
        "get_init_inputs[0]": 3,
    }
    assert shapes(resized(problem, {Slot("get_inputs[1]", 224): 50, Slot("batch_size", 128): 2})) == [(2, 64, 224, 50)]


@pytest.mark.parametrize(
    "other",
    [
        "return torch.sigmoid(self.fc(x))",
        "return torch.softmax(self.fc(x).double(), -1)",
        "return torch.softmax(self.fc(x), -1), x",
        "return torch.softmax(self.fc(x.t().contiguous().t()), -1)",
    ],
)
def test_incompatible_graphs(tmp_path, other):
    small = write(tmp_path, LINEAR.replace("4096", "65"))
    full = capture(write(tmp_path, LINEAR)).graph
    assert compatible(full, capture(small).graph)
    changed = write(tmp_path, LINEAR.replace("return torch.softmax(self.fc(x), -1)", other))
    assert not compatible(full, capture(changed).graph)


def test_a_size_of_one_is_another_program(tmp_path):
    full = capture(write(tmp_path, LINEAR)).graph
    assert not compatible(full, capture(write(tmp_path, LINEAR.replace("n = 8192", "n = 1"))).graph)
    assert all(isinstance(node, Node) for node in full.nodes)
