"""Bytes once for every pass that an algorithm needs."""

from __future__ import annotations

import pytest

from mtmc.capture import capture
from mtmc.passes import extra_bytes, heavy
from mtmc.problem import load

CACHE = 1000  # bytes
ROWS, COLUMNS = 8, 512  # a row is 2048 bytes
BYTES = 4 * ROWS * COLUMNS


def captured(tmp_path, forward, body="pass", shape=(ROWS, COLUMNS)):
    text = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nclass Model(nn.Module):\n"
    text += f"    def __init__(self):\n        super().__init__()\n        {body}\n"
    text += f"    def forward(self, x):\n        {forward}\n"
    (tmp_path / "m.py").write_text(text + f"def get_inputs():\n    return [torch.rand{shape}]\n")
    graph = capture(load(tmp_path / "m.py")).graph
    assert graph
    return graph


@pytest.mark.parametrize(
    ("forward", "times"),
    [
        ("return x.relu() + 1", 0),
        ("return x.sum(1)", 0),
        ("return torch.softmax(x, 1)", 1),
        ("return torch.softmax(x, 0)", 0),  # a column is 32 bytes
        ("return x / x.norm()", 1),
        ("m = x.amax(1, keepdim=True); e = (x - m).exp(); return e / e.sum(1, keepdim=True)", 1),
        ("return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt()", 1),
        ("return torch.softmax(torch.softmax(x, 1).relu(), 1)", 2),
        ("return F.layer_norm(x, (512,))", 1),
        ("return ((x - x.mean()) ** 2).mean()", 1),
    ],
)
def test_an_input_is_read_again_where_a_slice_does_not_fit(tmp_path, forward, times):
    graph = captured(tmp_path, forward)
    assert extra_bytes(graph, CACHE) == (times * BYTES, 0)
    assert extra_bytes(graph, BYTES) == (0, 0)


def test_what_a_product_gives_is_written_and_read_back(tmp_path):
    graph = captured(tmp_path, "return torch.softmax(self.fc(x), 1)", "self.fc = nn.Linear(512, 1024)")
    assert extra_bytes(graph, CACHE) == (2 * BYTES, 2 * BYTES)


def test_norms_have_slices_of_their_own(tmp_path):
    shape = (4, 16, 16, 16)  # a channel of one image is 1 KiB
    whole = 4 * 4 * 16**3
    for body, slice_bytes in (
        ("self.n = nn.BatchNorm2d(16)", 4096),
        ("self.n = nn.GroupNorm(2, 16)", 8192),
        ("self.n = nn.InstanceNorm2d(16)", 1024),
        ("self.n = nn.LayerNorm((16, 16, 16))", 16384),
    ):
        graph = captured(tmp_path, "return self.n(x)", body, shape)
        assert extra_bytes(graph, slice_bytes) == (0, 0)
        assert extra_bytes(graph, slice_bytes - 1) == (whole, 0)
    graph = captured(tmp_path, "return self.n(x)", "self.n = nn.BatchNorm2d(16).eval()", shape)
    assert extra_bytes(graph, 1) == (0, 0)


def test_heavy_names():
    names = (
        "conv2d.default addmm.default max_pool2d.default cumsum.default _softmax.default sum.dim_IntList mse_loss.default"
    )
    assert all(heavy(f"aten.{name}") for name in names.split())
    light = "add.Tensor maximum.default reshape.default zeros_like.default mul.Tensor meshgrid.default roll.default"
    assert not [name for name in light.split() if heavy(f"aten.{name}")]
