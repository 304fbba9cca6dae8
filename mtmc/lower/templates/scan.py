"""Scans along one extent of x seen as [rows, red, cols]: along the last one (`row`) or the middle one (`mid`), tile after tile.

`along()` scans a tile, `combine()` joins it to what was carried so far and `finish()` is a tile's total, as for reductions; what
rounding lost is carried as well, so the error does not grow with the number of tiles. WALK runs over the tiles, from the last one
down where the scan runs from the end. The exclusive kernels leave each element itself out: they give what lies before it.
"""

import torch
import triton
import triton.language as tl

identity = 0.0


@triton.jit
def along(x):
    return tl.cumsum(x, axis=0)


@triton.jit
def combine(acc, lost, x):
    return acc + x, lost


@triton.jit
def finish(acc):
    return tl.sum(acc, axis=0)


@triton.jit
def row_kernel(operand_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = tl.full((1,), identity, ACC)
    lost = tl.full((1,), 0, ACC)
    for start in WALK:
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        term = tl.where(mask, operand, identity)
        value, rest = combine(carry, lost, along(term))
        tl.store(out_ptr + index, value, mask=mask)
        carry, lost = combine(carry, lost, finish(term))


def launch_row(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    cols = COLS
    BLOCK = 256
    grid = (out.numel() // cols,)
    row_kernel[grid](operand, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def mid_kernel(operand_ptr, out_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    carry = tl.full((1, BLOCK), identity, ACC)
    lost = tl.full((1, BLOCK), 0, ACC)
    for start in WALK:
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        term = tl.where(mask, operand, identity)
        value, rest = combine(carry, lost, along(term))
        tl.store(out_ptr + index, value, mask=mask)
        carry, lost = combine(carry, lost, finish(term)[None, :])


def launch_mid(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    reds = REDS
    cols = COLS
    RED, BLOCK = 8, 64
    grid = (out.numel() // (reds * cols) * triton.cdiv(cols, BLOCK),)
    mid_kernel[grid](operand, out, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def exclusive_row_kernel(operand_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = tl.full((1,), identity, ACC)
    lost = tl.full((1,), 0, ACC)
    for start in WALK:
        col = start + tl.arange(0, BLOCK) - 1
        mask = (col >= 0) & (col < cols - 1)
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        term = tl.where(mask, operand, identity)
        value, rest = combine(carry, lost, along(term))
        place = col + 1
        tl.store(out_ptr + row * cols + place, value, mask=place < cols)
        carry, lost = combine(carry, lost, finish(term))


def launch_exclusive_row(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    cols = COLS
    BLOCK = 256
    grid = (out.numel() // cols,)
    exclusive_row_kernel[grid](operand, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def exclusive_mid_kernel(operand_ptr, out_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    carry = tl.full((1, BLOCK), identity, ACC)
    lost = tl.full((1, BLOCK), 0, ACC)
    for start in WALK:
        red = (start + tl.arange(0, RED) - 1)[:, None]
        mask = (red >= 0) & (red < reds - 1) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        term = tl.where(mask, operand, identity)
        value, rest = combine(carry, lost, along(term))
        place = red + 1
        tl.store(out_ptr + (row * reds + place) * cols + col, value, mask=(place < reds) & (col < cols))
        carry, lost = combine(carry, lost, finish(term)[None, :])


def launch_exclusive_mid(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    reds = REDS
    cols = COLS
    RED, BLOCK = 8, 64
    grid = (out.numel() // (reds * cols) * triton.cdiv(cols, BLOCK),)
    exclusive_mid_kernel[grid](operand, out, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out
