"""fp32 products on 16-bit matrix units, and the order in which programs walk a product.

x = hi + lo with both fp16 carries 22 bits of a mantissa. Rows are scaled by a power of two to a maximum near 2^15, so that `lo` stays
above the subnormals for elements within 2^18 of the row's largest. The products lo*hi, hi*lo, hi*hi of one k-tile go into a fresh
accumulator, added outside the matrix unit, which truncates when it adds (Ootomo & Yokota 2022).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def op_fp16x3(a_hi, a_lo, b_hi, b_lo):
    """(a_hi + a_lo) @ (b_hi + b_lo), the product of the two low parts left out."""
    part = tl.dot(a_lo, b_hi)
    part = tl.dot(a_hi, b_lo, part)
    return tl.dot(a_hi, b_hi, part)


@triton.jit
def op_dot_fp16x3(a_hi, a_lo, b_hi, b_lo, acc):
    """acc + a @ b for pairs that were split before."""
    return acc + op_fp16x3(a_hi, a_lo, b_hi, b_lo)


@triton.jit
def op_fp16_scale(largest):
    """Power of two that brings a row's largest magnitude to 2^14..2^15; 2^14 for rows of zeros or with an infinity."""
    exponent = tl.where((largest > 0) & (largest < float("inf")), tl.floor(tl.log2(largest)), 0.0)
    return tl.exp2(14.0 - tl.minimum(tl.maximum(exponent, -100.0), 127.0))


@triton.jit
def op_fp16_rest(x, hi):
    """x - hi in fp16, nothing where hi is infinite already."""
    return tl.where(tl.abs(hi) == float("inf"), 0.0, x - hi.to(tl.float32)).to(tl.float16)


@triton.jit
def op_fp16_pair(x, AXIS: tl.constexpr):
    """hi, lo, scale with x = (hi + lo) * scale for an fp32 tile that is summed along AXIS; one scale for each sum."""
    scale = op_fp16_scale(tl.expand_dims(tl.max(tl.abs(x), axis=AXIS), AXIS))
    x = x * scale
    hi = x.to(tl.float16)
    return hi, op_fp16_rest(x, hi), 1.0 / scale


@triton.jit
def op_dot_split_fp16x3(a, b, acc):
    """acc + a @ b for fp32 tiles, split into fp16 pairs here; every row of `a` and column of `b` is scaled tile by tile."""
    a_hi, a_lo, a_scale = op_fp16_pair(a, 1)
    b_hi, b_lo, b_scale = op_fp16_pair(b, 0)
    return acc + op_fp16x3(a_hi, a_lo, b_hi, b_lo) * a_scale * b_scale


@triton.jit
def op_dot_left_fp16x3(a_hi, a_lo, b, acc):
    """acc + a @ b where `a` was split before and the fp32 tile `b` is split here."""
    b_hi, b_lo, b_scale = op_fp16_pair(b, 0)
    return acc + op_fp16x3(a_hi, a_lo, b_hi, b_lo) * b_scale


@triton.jit
def op_dot_right_fp16x3(a, b_hi, b_lo, acc):
    """acc + a @ b where `b` was split before and the fp32 tile `a` is split here."""
    a_hi, a_lo, a_scale = op_fp16_pair(a, 1)
    return acc + op_fp16x3(a_hi, a_lo, b_hi, b_lo) * a_scale


@triton.jit
def op_dot_share_fp16x3(a, b_hi, b_lo, acc):
    """acc + a @ b where `b` was split before and the fp32 tile `a` lies between 0 and 1; what is lost of it is below 2^-38."""
    a = a * 16384.0
    a_hi = a.to(tl.float16)
    a_lo = (a - a_hi.to(tl.float32)).to(tl.float16)
    return acc + op_fp16x3(a_hi, a_lo, b_hi, b_lo) * (1.0 / 16384.0)


@triton.jit
def op_load_pair(hi_ptr, lo_ptr, offset, mask):
    """Both parts of a tile that was split before, zeros where the mask is off."""
    return tl.load(hi_ptr + offset, mask=mask, other=0.0), tl.load(lo_ptr + offset, mask=mask, other=0.0)


@triton.jit
def split_fp16_kernel(
    x_ptr, hi_ptr, lo_ptr, scale_ptr, rows, R, K, width, parts, heads, stride_b, stride_h, stride_r, stride_k, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    part, batch = row // R % parts, row // R // parts
    x_ptr += batch // heads * stride_b + batch % heads * stride_h + row % R * stride_r + part * width * stride_k
    left = tl.where(row < rows, K - part * width, 0)
    top = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, width, BLOCK):
        k = (start + tl.arange(0, BLOCK))[None, :].to(tl.int64)
        x = tl.load(x_ptr + k * stride_k, mask=(k < width) & (k < left), other=0.0)
        top = tl.maximum(top, tl.abs(x))
    scale = op_fp16_scale(tl.max(top, axis=1)[:, None])
    out = (batch * R + row % R) * parts + part
    for start in range(0, width, BLOCK):
        k = (start + tl.arange(0, BLOCK))[None, :].to(tl.int64)
        mask = (row < rows) & (k < width)
        x = tl.load(x_ptr + k * stride_k, mask=(k < width) & (k < left), other=0.0) * scale
        hi = x.to(tl.float16)
        tl.store(hi_ptr + out * width + k, hi, mask=mask)
        tl.store(lo_ptr + out * width + k, op_fp16_rest(x, hi), mask=mask)
    tl.store(scale_ptr + out, 1.0 / scale, mask=row < rows)


def split_fp16(x, parts=1):
    """x [R, K], [B, R, K] or [B, H, R, K] float32, any strides -> hi, lo [rows, parts * width] float16 and scale [rows, parts].

    The rows are those of x, row-major. Part p of a row, of `width` elements, is (hi + lo) * scale[p]. Beyond K there are zeros: rows stay aligned to 16 bytes,
    and parts to every tile of a product.
    """
    R, K = x.shape[-2:]
    rows = x.numel() // K * parts
    width = triton.cdiv(K, 16) * 16 if parts == 1 else triton.cdiv(K, parts * 128) * 128
    hi = torch.empty((rows // parts, parts * width), dtype=torch.float16, device=x.device)
    lo = torch.empty_like(hi)
    scale = torch.empty((rows // parts, parts), dtype=torch.float32, device=x.device)
    heads, stride_h = (x.shape[1], x.stride(1)) if x.ndim == 4 else (1, 0)
    stride_b = x.stride(0) if x.ndim > 2 else 0
    BLOCK = min(4096, max(32, triton.next_power_of_2(width))) if x.stride(-1) == 1 else 256 if parts == 1 else 128
    ROWS = 4096 // BLOCK
    grid = (triton.cdiv(rows, ROWS),)
    split_fp16_kernel[grid](x, hi, lo, scale, rows, R, K, width, parts, heads, stride_b, stride_h, x.stride(-2), x.stride(-1), ROWS=ROWS, BLOCK=BLOCK, num_warps=8)
    return hi, lo, scale


@triton.jit
def op_grouped(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Tile of a program when GROUP rows of tiles are walked column by column, so that they share operands in the L2."""
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    first = pid // (GROUP * blocks_n) * GROUP
    size = tl.minimum(blocks_m - first, GROUP)
    return first + pid % (GROUP * blocks_n) % size, pid % (GROUP * blocks_n) // size
