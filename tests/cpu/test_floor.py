"""The floors are lower bounds: what may be skipped is not counted."""

from __future__ import annotations

import pytest

from mtmc import hardware_profiles
from mtmc.capture import capture
from mtmc.floor import floor
from mtmc.problem import load

H200 = hardware_profiles.load("h200")
MIB = 2**20


def floors(tmp_path, forward, inputs, body="pass", precision="strict"):
    (tmp_path / "m.py").write_text(f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {body}

    def forward(self, x):
        return {forward}

def get_inputs():
    return [{inputs}]
""")
    problem = load(tmp_path / "m.py")
    graph = capture(problem).graph
    assert graph
    return floor(problem, graph, H200, precision)


def test_an_elementwise_model_moves_its_bytes(tmp_path):
    found = floors(tmp_path, "x.relu()", "torch.rand(1024, 1024 * 1024)")
    moved = 4096 * MIB + 4096 * MIB - H200.last_level_cache_bytes
    assert found.hard_ms == pytest.approx(1e3 * moved / (H200.memory_bandwidth_gb_s * 1e9))
    assert found.attainable_ms == pytest.approx(found.hard_ms / H200.efficiency.dram_fraction)
    assert found.passes_gb == pytest.approx(moved / 1e9)


def test_fp32_products_count_as_three_half_products_and_less_where_the_rule_allows(tmp_path):
    half = 2 * 8192**3 / (H200.fp16_tensor_dense_tflops * 1e12) * 1e3
    inputs, body = "torch.rand(8192, 8192)", "self.fc = nn.Linear(8192, 8192, bias=False)"
    assert floors(tmp_path, "self.fc(x)", inputs, body).hard_ms == pytest.approx(3 * half)
    assert floors(tmp_path, "self.fc(x)", inputs, body).passes_gb == 0, "not the bytes decide"
    assert floors(tmp_path, "self.fc(x)", inputs, body, "tf32").hard_ms == pytest.approx(half)


def test_only_the_rows_that_are_read_count(tmp_path):
    body = "self.table = nn.Embedding(1000000, 256)"
    found = floors(tmp_path, "self.table(x)", "torch.zeros(64, dtype=torch.int64)", body)
    assert found.hard_ms < 1e-3


def test_products_that_may_be_skipped_are_not_counted(tmp_path):
    inputs, body = "torch.rand(8192, 8192)", "self.fc = nn.Linear(8192, 8192, bias=False)"
    full = floors(tmp_path, "self.fc(x)", inputs, body).hard_ms
    assert floors(tmp_path, "self.fc(x).triu()", inputs, body).hard_ms < full / 5


def test_attention_counts_unless_scores_may_be_left_out(tmp_path):
    products = 2 * 2 * 64 * 4096 * 4096 * 128  # query by key, share by value, over 64 heads
    inputs, call = "torch.rand(64, 4096, 128)", "nn.functional.scaled_dot_product_attention(x, x, x{})"
    found = floors(tmp_path, call.format(""), inputs)
    assert found.hard_ms == pytest.approx(3 * products / (H200.fp16_tensor_dense_tflops * 1e12) * 1e3)
    assert floors(tmp_path, call.format(", is_causal=True"), inputs).hard_ms < found.hard_ms / 5
