"""Reductions of x seen as [rows, red, cols]: over the last extent (`row`), over the middle one (`mid`), over the outer two (`chan`).

`identity`, `combine()` and `finish()` stand for the kind: 0, op_add, op_sum_over for a sum, whose lanes carry what rounding lost. A masked lane takes the identity *after* any fused
formula, so a formula may map 0 to anything.
"""

import torch
import triton
import triton.language as tl

identity = 0.0


@triton.jit
def combine(acc, lost, x):
    return acc + x, lost


@triton.jit
def finish(acc):
    return tl.sum(acc, axis=0)


@triton.jit
def row_kernel(operand_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.full((BLOCK,), identity, ACC)
    lost = tl.full((BLOCK,), 0, ACC)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        acc, lost = combine(acc, lost, tl.where(mask, operand, identity))
    value = finish(acc)
    out_index = row
    tl.store(out_ptr + out_index, value)


def launch_row(operand):
    cols = COLS
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    BLOCK = LANES
    grid = (out.numel(),)
    row_kernel[grid](operand, out, cols, BLOCK=BLOCK, num_warps=WARPS, num_stages=1)
    return out


@triton.jit
def mid_kernel(operand_ptr, out_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    acc = tl.full((RED, BLOCK), identity, ACC)
    lost = tl.full((RED, BLOCK), 0, ACC)
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        acc, lost = combine(acc, lost, tl.where(mask, operand, identity))
    value = finish(acc)[None, :]
    out_index = row * cols + col
    tl.store(out_ptr + out_index, value, mask=col < cols)


def launch_mid(operand):
    reds, cols = REDS, COLS
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    RED, BLOCK = 8, 128
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    mid_kernel[grid](operand, out, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def chan_kernel(operand_ptr, out_ptr, rows, reds, cols, BLOCK: tl.constexpr):
    red = tl.program_id(0).to(tl.int64)
    acc = tl.full((BLOCK,), identity, ACC)
    lost = tl.full((BLOCK,), 0, ACC)
    for start in range(0, rows * cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = (at // cols).to(tl.int64)
        col = at % cols
        mask = at < rows * cols
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        acc, lost = combine(acc, lost, tl.where(mask, operand, identity))
    value = finish(acc)
    out_index = red
    tl.store(out_ptr + out_index, value)


def launch_chan(operand):
    reds, cols = REDS, COLS
    rows = operand.numel() // (reds * cols)
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    BLOCK = 256
    grid = (reds,)
    chan_kernel[grid](operand, out, rows, reds, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out
