"""Mean and biased variance of x seen as [rows, red, cols], in one pass.

A lane (of a tile each element is one) sums what its elements differ by from its own first one, and the squares of that:
shifted so, sum and squares cancel no more than numbers of the data's own spread do (Chan, Golub, LeVeque 1983, section 3).
Lanes with counts n_i, means m_i and squared deviations s_i give m = sum(n_i m_i) / n and s = sum(s_i + n_i (m_i - m)^2), the
same authors' merge; so do parts and sets.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(operand_ptr, mean_ptr, var_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = 0
    last = cols
    total = tl.zeros((BLOCK,), ACC)
    squares = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    rest = tl.zeros((BLOCK,), ACC)
    pivot = tl.zeros((BLOCK,), ACC)
    for start in range(first, last, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        pivot = tl.where(start == first, operand, pivot)
        delta = tl.where(mask, operand - pivot, 0.0)
        total, lost = op_add_finite(total, lost, delta)
        squares, rest = op_add_finite(squares, rest, delta * delta)
    n = last - first
    mean, count, squares = op_lane_moments(pivot, total, lost, squares - rest, n)
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
    red = tl.program_id(0).to(tl.int64)
    first = 0
    last = rows * cols
    total = tl.zeros((BLOCK,), ACC)
    squares = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    rest = tl.zeros((BLOCK,), ACC)
    pivot = tl.zeros((BLOCK,), ACC)
    for start in range(first, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = (at // cols).to(tl.int64)
        col = at % cols
        mask = at < rows * cols
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        pivot = tl.where(start == first, operand, pivot)
        delta = tl.where(mask, operand - pivot, 0.0)
        total, lost = op_add_finite(total, lost, delta)
        squares, rest = op_add_finite(squares, rest, delta * delta)
    n = last - first
    mean, count, squares = op_lane_moments(pivot, total, lost, squares - rest, n)
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


@triton.jit
def mid_kernel(operand_ptr, mean_ptr, var_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    first = 0
    last = reds
    total = tl.zeros((RED, BLOCK), ACC)
    squares = tl.zeros((RED, BLOCK), ACC)
    lost = tl.zeros((RED, BLOCK), ACC)
    rest = tl.zeros((RED, BLOCK), ACC)
    pivot = tl.zeros((RED, BLOCK), ACC)
    for start in range(first, last, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        pivot = tl.where(start == first, operand, pivot)
        delta = tl.where(mask, operand - pivot, 0.0)
        total, lost = op_add_finite(total, lost, delta)
        squares, rest = op_add_finite(squares, rest, delta * delta)
    n = last - first
    mean, count, squares = op_lane_moments(pivot, total, lost, squares - rest, n)
    total_mean = tl.sum(count * mean, axis=0)[None, :] / n
    total_squares = tl.sum(squares + count * (mean - total_mean) * (mean - total_mean), axis=0)[None, :]
    out_index = row * cols + col
    tl.store(mean_ptr + out_index, total_mean, mask=col < cols)
    tl.store(var_ptr + out_index, total_squares / n, mask=col < cols)


def launch_mid(operand):
    reds, cols = REDS, COLS
    mean = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    var = torch.empty_like(mean)
    RED, BLOCK = 32, 32
    grid = (mean.numel() // cols * triton.cdiv(cols, BLOCK),)
    mid_kernel[grid](operand, mean, var, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=4, num_stages=1)
    return mean, var


@triton.jit
def join_kernel(means_ptr, variances_ptr, mean_ptr, var_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    total = tl.zeros((RED, BLOCK), ACC)
    lost = tl.zeros((RED, BLOCK), ACC)
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        total, lost = op_add(total, lost, tl.load(means_ptr + index, mask=mask, other=0.0))
    total_mean = tl.sum(total, axis=0)[None, :] / reds
    squares = tl.zeros((RED, BLOCK), ACC)
    rest = tl.zeros((RED, BLOCK), ACC)
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        delta = tl.load(means_ptr + index, mask=mask, other=0.0) - total_mean
        squares, rest = op_add(squares, rest, tl.where(mask, delta * delta + tl.load(variances_ptr + index, mask=mask), 0.0))
    total_squares = tl.sum(squares, axis=0)[None, :]
    out_index = row * cols + col
    tl.store(mean_ptr + out_index, total_mean, mask=col < cols)
    tl.store(var_ptr + out_index, total_squares / reds, mask=col < cols)


def launch_join(means, variances):
    """Mean and variance of sets of equal size from those of each."""
    reds, cols = REDS, COLS
    mean = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    var = torch.empty_like(mean)
    RED, BLOCK = 64, 16
    grid = (mean.numel() // cols * triton.cdiv(cols, BLOCK),)
    join_kernel[grid](means, variances, mean, var, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=4, num_stages=1)
    return mean, var
