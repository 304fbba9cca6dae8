"""fp32 products on 16-bit matrix units, and the order in which programs walk a product.

x = hi + lo with both fp16 carries 22 bits of a mantissa. Rows are scaled by a power of two to a maximum near 2^15, so that `lo` stays
above the subnormals for elements within 2^18 of the row's largest. The products lo*hi, hi*lo, hi*hi of one k-tile go into a fresh
accumulator, added outside the matrix unit, which truncates when it adds (Ootomo & Yokota 2022).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def op_dot_fp16x3(a_hi, a_lo, b_hi, b_lo, acc):
    """acc + (a_hi + a_lo) @ (b_hi + b_lo), the product of the two low parts left out."""
    part = tl.dot(a_lo, b_hi)
    part = tl.dot(a_hi, b_lo, part)
    part = tl.dot(a_hi, b_hi, part)
    return acc + part


@triton.jit
def split_fp16_kernel(x_ptr, hi_ptr, lo_ptr, scale_ptr, R, K, stride_r, stride_k, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    top = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = (start + tl.arange(0, BLOCK))[None, :].to(tl.int64)
        x = tl.load(x_ptr + row * stride_r + k * stride_k, mask=(row < R) & (k < K), other=0.0)
        top = tl.maximum(top, tl.abs(x))
    largest = tl.max(top, axis=1)[:, None]
    exponent = tl.where((largest > 0) & (largest < float("inf")), tl.floor(tl.log2(largest)), 0.0)
    exponent = tl.minimum(tl.maximum(exponent, -100.0), 127.0)
    scale = tl.exp2(14.0 - exponent)
    for start in range(0, K, BLOCK):
        k = (start + tl.arange(0, BLOCK))[None, :].to(tl.int64)
        mask = (row < R) & (k < K)
        x = tl.load(x_ptr + row * stride_r + k * stride_k, mask=mask, other=0.0) * scale
        hi = x.to(tl.float16)
        tl.store(hi_ptr + row * K + k, hi, mask=mask)
        rest = tl.where(tl.abs(hi) == float("inf"), 0.0, x - hi.to(tl.float32))
        tl.store(lo_ptr + row * K + k, rest.to(tl.float16), mask=mask)
    tl.store(scale_ptr + row, 1.0 / scale, mask=row < R)


def split_fp16(x):
    """x [R, K] float32, any strides -> hi, lo [R, K] float16 row-major and scale [R]: x = (hi + lo) * scale[:, None]."""
    R, K = x.shape
    hi = torch.empty((R, K), dtype=torch.float16, device=x.device)
    lo = torch.empty_like(hi)
    scale = torch.empty(R, dtype=torch.float32, device=x.device)
    BLOCK = min(4096, max(32, triton.next_power_of_2(K))) if x.stride(1) == 1 else 256
    ROWS = 4096 // BLOCK
    split_fp16_kernel[(triton.cdiv(R, ROWS),)](x, hi, lo, scale, R, K, x.stride(0), x.stride(1), ROWS=ROWS, BLOCK=BLOCK, num_warps=8)
    return hi, lo, scale


@triton.jit
def op_grouped(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Tile of a program when GROUP rows of tiles are walked column by column, so that they share operands in the L2."""
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    first = pid // (GROUP * blocks_n) * GROUP
    size = tl.minimum(blocks_m - first, GROUP)
    return first + pid % (GROUP * blocks_n) % size, pid % (GROUP * blocks_n) // size
