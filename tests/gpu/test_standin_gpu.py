"""The stand-in driver's figures against the real driver's, and that it leaves the real driver as it was."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.gpu


@triton.jit
def rows_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * columns
    x = tl.load(x_ptr + start + col, mask=col < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + start + col, e / tl.sum(e, axis=0), mask=col < columns)


def softmax(x: torch.Tensor, block: int, warps: int) -> tuple[torch.Tensor, object]:
    out = torch.empty_like(x)
    return out, rows_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block, num_warps=warps)


@pytest.mark.parametrize(("columns", "warps"), [(1000, 1), (1000, 4), (16000, 4), (16384, 8)])
def test_registers_stack_and_shared_memory_agree(columns, warps):
    from mtmc.hardware_profiles import detect
    from mtmc.judge.standin import stand_in

    profile, block = detect(), triton.next_power_of_2(columns)
    x = torch.randn(64, columns, device="cuda")
    out, real = softmax(x, block, warps)
    with stand_in(profile) as recorder:
        softmax(torch.empty(64, columns, device="meta"), block, warps)
    again, _ = softmax(x, block, warps)
    (launch,) = recorder.launches
    assert (launch.registers, launch.shared_bytes) == (real.n_regs, real.metadata.shared)
    assert (launch.stack_bytes > 0) == (real.n_spills > 0)
    torch.testing.assert_close(out, x.softmax(1))
    assert torch.equal(out, again)
