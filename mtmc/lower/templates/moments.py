"""Mean and biased variance of x seen as [rows, red, cols], in one pass: per-lane Welford updates, merged at the end.

Merge of lanes with counts n_i, means m_i and squared deviations s_i: m = sum(n_i m_i) / n, s = sum(s_i + n_i (m_i - m)^2)
(Chan, Golub, LeVeque 1983). All lanes that are not masked have taken in as many elements, one an iteration: masks end a loop.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(operand_ptr, mean_ptr, var_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = 0
    last = cols
    count = tl.zeros((BLOCK,), ACC)
    mean = tl.zeros((BLOCK,), ACC)
    squares = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    rest = tl.zeros((BLOCK,), ACC)
    for start in range(first, last, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        count += mask.to(ACC)
        delta = tl.where(mask, operand - mean, 0.0)
        mean, lost = op_add(mean, lost, delta * (1.0 / ((start - first) // BLOCK + 1)))
        squares, rest = op_add(squares, rest, delta * tl.where(mask, operand - mean, 0.0))
    n = last - first
    total_mean = tl.sum(count * mean, axis=0) / n
    total_squares = tl.sum(squares + count * (mean - total_mean) * (mean - total_mean), axis=0)
    out_index = row
    tl.store(mean_ptr + out_index, total_mean)
    tl.store(var_ptr + out_index, total_squares / n)


def launch_row(operand):
    cols = COLS
    mean = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    var = torch.empty_like(mean)
    BLOCK = 256
    grid = (mean.numel(),)
    row_kernel[grid](operand, mean, var, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return mean, var


@triton.jit
def chan_kernel(operand_ptr, mean_ptr, var_ptr, rows, reds, cols, BLOCK: tl.constexpr):
    red = tl.program_id(0)
    first = 0
    last = rows * cols
    count = tl.zeros((BLOCK,), ACC)
    mean = tl.zeros((BLOCK,), ACC)
    squares = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    rest = tl.zeros((BLOCK,), ACC)
    for start in range(first, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = (at // cols).to(tl.int64)
        col = at % cols
        mask = at < rows * cols
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        count += mask.to(ACC)
        delta = tl.where(mask, operand - mean, 0.0)
        mean, lost = op_add(mean, lost, delta * (1.0 / ((start - first) // BLOCK + 1)))
        squares, rest = op_add(squares, rest, delta * tl.where(mask, operand - mean, 0.0))
    n = last - first
    total_mean = tl.sum(count * mean, axis=0) / n
    total_squares = tl.sum(squares + count * (mean - total_mean) * (mean - total_mean), axis=0)
    out_index = red
    tl.store(mean_ptr + out_index, total_mean)
    tl.store(var_ptr + out_index, total_squares / n)


def launch_chan(operand):
    reds = REDS
    cols = COLS
    rows = operand.numel() // (reds * cols)
    mean = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    var = torch.empty_like(mean)
    BLOCK = 256
    grid = (reds,)
    chan_kernel[grid](operand, mean, var, rows, reds, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return mean, var
