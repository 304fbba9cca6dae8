"""`mtmc verify` on a real GPU: foreign candidates at full size, the time and the memory it takes. Run with `-m gpu`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from mtmc.judge.accuracy import RULES
from mtmc.judge.door import Door
from mtmc.judge.verify import Verifier
from mtmc.problem import Problem
from mtmc.verdict import Accuracy, Verified, Wrong
from mtmc.verification import Options, verify

pytestmark = pytest.mark.gpu

REFERENCE = """
import torch
import torch.nn as nn

ROWS, COLUMNS = {rows}, {columns}


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=float("-inf"))
    power = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + column, power / tl.sum(power, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
"""
GIB = 1 << 30


def problem(rows: int, columns: int) -> Problem:
    return Problem("softmax", REFERENCE.format(rows=rows, columns=columns), "softmax.py")


def test_a_foreign_candidate_is_verified_and_timed() -> None:
    found = verify(problem(8192, 4096), CANDIDATE, Options(baselines=()))
    assert isinstance(found.verdict, Verified), found
    assert found.measured and found.kind == "class" and found.verdict.timing.kind == "measured"
    assert any(text.startswith("own 8192x4096") for text in found.verdict.accuracy.checked)
    assert found.verdict.accuracy.candidate_ulp is not None


def test_a_wrong_one_is_not() -> None:
    found = verify(problem(8192, 4096), CANDIDATE.replace("(rows,)", "(rows - 1,)"), Options(baselines=()))
    assert isinstance(found.verdict, Wrong), found


def test_four_gib_of_input_take_less_than_a_minute() -> None:
    began = time.monotonic()
    found = verify(problem(1 << 18, 1 << 12), CANDIDATE)
    assert isinstance(found.verdict, Verified), found
    assert time.monotonic() - began < 60, found.seconds


def test_memory_beyond_inputs_and_outputs_is_at_most_as_much_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    verifier = Verifier(problem(1 << 17, 1 << 13), "cuda", RULES["strict"], 0, Door("class"))  # 4 GiB in, 4 GiB out
    found = verifier.verify(CANDIDATE, None, ("own", "normal"))
    assert isinstance(found, Accuracy) and not found.skipped, found
    assert torch.cuda.max_memory_allocated() - before <= 2 * (4 + 4) * GIB
