# reference: attention
# expect: verified
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    length,
    scale,
    stride_b,
    stride_t,
    WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Scores of one block of queries against all keys, with a running maximum and sum."""
    start, batch = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    base = batch * stride_b
    rows, d = start + tl.arange(0, BLOCK_M), tl.arange(0, WIDTH)
    q = tl.load(q_ptr + base + rows[:, None] * stride_t + d[None, :], mask=rows[:, None] < length, other=0.0)
    highest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        cols = first + tl.arange(0, BLOCK_N)
        inside = cols < length
        k = tl.load(k_ptr + base + cols[None, :] * stride_t + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp(scores - new[:, None])
        shrink = tl.exp(highest - new)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + base + cols[:, None] * stride_t + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v, input_precision="ieee")
        highest = new
    tl.store(out_ptr + base + rows[:, None] * stride_t + d[None, :], acc / total[:, None], mask=rows[:, None] < length)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        batch, length, width = q.shape
        assert width in {16, 32, 64, 128}
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        grid = (triton.cdiv(length, 16), batch)
        attention_kernel[grid](
            q, k, v, out, length, width**-0.5, q.stride(0), q.stride(1), WIDTH=width, BLOCK_M=16, BLOCK_N=16
        )
        return out
