"""Index of the first largest (smallest) element of x seen as [rows, red, cols]; `better()` is > or <, a NaN is better than any number."""

import torch
import triton
import triton.language as tl

identity = float("-inf")


@triton.jit
def better(x, best):
    return x > best


@triton.jit
def finish(acc):
    return tl.max(acc, axis=0)


@triton.jit
def row_kernel(operand_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), identity, ACC)
    where = tl.zeros((BLOCK,), tl.int64)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        replace = mask & better(operand, best)
        best = tl.where(replace, operand, best)
        where = tl.where(replace, col, where)
    value = op_first_index_of(best, where, finish(best))
    out_index = row
    tl.store(out_ptr + out_index, value)


def launch_row(operand):
    cols = COLS
    out = torch.empty(SHAPE, dtype=torch.int64, device=DEVICE)
    BLOCK = 256
    grid = (out.numel(),)
    row_kernel[grid](operand, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def mid_kernel(operand_ptr, out_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    best = tl.full((RED, BLOCK), identity, ACC)
    where = tl.zeros((RED, BLOCK), tl.int64)
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        replace = mask & better(operand, best)
        best = tl.where(replace, operand, best)
        where = tl.where(replace, red, where)
    value = op_first_index_of(best, where, finish(best))[None, :]
    out_index = row * cols + col
    tl.store(out_ptr + out_index, value, mask=col < cols)


def launch_mid(operand):
    reds, cols = REDS, COLS
    out = torch.empty(SHAPE, dtype=torch.int64, device=DEVICE)
    RED, BLOCK = 8, 64
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    mid_kernel[grid](operand, out, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out
