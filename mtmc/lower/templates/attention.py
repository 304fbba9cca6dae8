"""Attention: out[b, h, m, :] = sum over n of softmax_n(scale * q[b, h, m, :] . k[b, h, n, :]) v[b, h, n, :], any strides.

One pass over the keys, scores stay in registers: a row's maximum and sum are brought up to date block by block, and what has
been accumulated is scaled along (Milakov & Gimelshein 2018; Dao et al. 2022). `body()` stands for the scaled and masked
score, LAST for the end of the keys that a block of rows sees. A row that sees no key gives zeros in PyTorch's own attention
and NaN where softmax is written out: the norm is divided by as TOTAL. Why `fma`: see contraction.py. `weighted` does without
the softmax: `body()` is what weighs the values.

ROW counts the rows of `out`: [b, h, m] or, where heads and rows are to be swapped, [b, m, h].
"""

import torch
import triton
import triton.language as tl


@triton.jit
def body():
    return 0.0


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, operand_ptr, out_ptr, scale, heads, M, N, D, E,
    q_stride_b, q_stride_h, q_stride_m, q_stride_d, k_stride_b, k_stride_h, k_stride_n, k_stride_d, v_stride_b, v_stride_h, v_stride_n, v_stride_d,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK_M
    batch = tl.program_id(1).to(tl.int64)
    b = batch // heads
    h = batch % heads
    m = (first + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    d = tl.arange(0, BLOCK_D).to(tl.int64)
    col = tl.arange(0, BLOCK_E)[None, :].to(tl.int64)
    q = tl.load(q_ptr + b * q_stride_b + h * q_stride_h + m * q_stride_m + d[None, :] * q_stride_d, mask=(m < M) & (d[None, :] < D), other=0.0)
    peak = tl.full((BLOCK_M, 1), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M, 1), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    for start in range(0, LAST, BLOCK_N):
        n = (start + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = tl.load(k_ptr + (b * k_stride_b + h * k_stride_h) + n[None, :] * k_stride_n + d[:, None] * k_stride_d, mask=(n[None, :] < N) & (d[:, None] < D), other=0.0)
        v = tl.load(v_ptr + (b * v_stride_b + h * v_stride_h) + n[:, None] * v_stride_n + col * v_stride_d, mask=(n[:, None] < N) & (col < E), other=0.0)
        mask = (m < M) & (n[None, :] < N)
        operand = tl.load(operand_ptr)
        score = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        score = tl.dot(q, k, score, input_precision="ieee")
        score = tl.where(n[None, :] < N, body(), float("-inf"))
        top = tl.maximum(peak, tl.max(score, axis=1, keep_dims=True))
        shift = tl.where(top == float("-inf"), 0.0, top)
        fade = tl.exp(peak - shift)
        part = tl.exp(score - shift)
        norm = norm * fade + tl.sum(part, axis=1, keep_dims=True)
        part = part.to(q.dtype)
        acc = acc * fade
        acc = tl.fma(tl.dot(part, v, input_precision="ieee"), 1.0, acc)
        peak = top
    value = acc / TOTAL
    row = ROW
    index = row * E + col
    mask = (m < M) & (col < E)
    tl.store(out_ptr + index, value, mask=mask)


def launch_attention(q, k, v, operand):
    heads, M, D = q.shape[1:]
    N, E = v.shape[2:]
    out = torch.empty(SHAPE, dtype=q.dtype, device=q.device)
    scale = SCALE
    BLOCK_M, BLOCK_N = 32, 32
    BLOCK_D, BLOCK_E = max(16, triton.next_power_of_2(D)), max(16, triton.next_power_of_2(E))
    grid = (triton.cdiv(M, BLOCK_M), q.shape[0] * heads)
    attention_kernel[grid](q, k, v, operand, out, scale, heads, M, N, D, E, *q.stride(), *k.stride(), *v.stride(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E, num_warps=4, num_stages=1)
    return out


@triton.jit
def weighted_kernel(
    q_ptr, k_ptr, v_ptr, operand_ptr, out_ptr, scale, heads, M, N, D, E,
    q_stride_b, q_stride_h, q_stride_m, q_stride_d, k_stride_b, k_stride_h, k_stride_n, k_stride_d, v_stride_b, v_stride_h, v_stride_n, v_stride_d,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK_M
    batch = tl.program_id(1).to(tl.int64)
    b = batch // heads
    h = batch % heads
    m = (first + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    d = tl.arange(0, BLOCK_D).to(tl.int64)
    col = tl.arange(0, BLOCK_E)[None, :].to(tl.int64)
    q = tl.load(q_ptr + b * q_stride_b + h * q_stride_h + m * q_stride_m + d[None, :] * q_stride_d, mask=(m < M) & (d[None, :] < D), other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    for start in range(0, N, BLOCK_N):
        n = (start + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = tl.load(k_ptr + (b * k_stride_b + h * k_stride_h) + n[None, :] * k_stride_n + d[:, None] * k_stride_d, mask=(n[None, :] < N) & (d[:, None] < D), other=0.0)
        v = tl.load(v_ptr + (b * v_stride_b + h * v_stride_h) + n[:, None] * v_stride_n + col * v_stride_d, mask=(n[:, None] < N) & (col < E), other=0.0)
        mask = (m < M) & (n[None, :] < N)
        operand = tl.load(operand_ptr)
        score = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        score = tl.dot(q, k, score, input_precision="ieee")
        part = tl.where(n[None, :] < N, body(), 0.0)
        part = part.to(q.dtype)
        acc = tl.fma(tl.dot(part, v, input_precision="ieee"), 1.0, acc)
    value = acc
    row = ROW
    index = row * E + col
    mask = (m < M) & (col < E)
    tl.store(out_ptr + index, value, mask=mask)


def launch_weighted(q, k, v, operand):
    heads, M, D = q.shape[1:]
    N, E = v.shape[2:]
    out = torch.empty(SHAPE, dtype=q.dtype, device=q.device)
    scale = SCALE
    BLOCK_M, BLOCK_N = 32, 32
    BLOCK_D, BLOCK_E = max(16, triton.next_power_of_2(D)), max(16, triton.next_power_of_2(E))
    grid = (triton.cdiv(M, BLOCK_M), q.shape[0] * heads)
    weighted_kernel[grid](q, k, v, operand, out, scale, heads, M, N, D, E, *q.stride(), *k.stride(), *v.stride(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E, num_warps=4, num_stages=1)
    return out
