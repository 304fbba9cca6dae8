"""Row-wise maps that need statistics of their own row: softmax, log-softmax and normalisation (x - mean) / sqrt(var + eps).

`finish()` stands for the last formula. Plain form: one pass per statistic, one to write. `nll` is the negative
log-likelihood of one class a row.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def finish(operand, top, norm):
    return tl.exp(operand - top) / norm


@triton.jit
def softmax_row_kernel(operand_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    peak = tl.full((BLOCK,), float("-inf"), ACC)
    total = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        peak = tl.maximum(peak, tl.where(mask, operand, float("-inf")))
    top = tl.max(peak, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        total, lost = op_add(total, lost, tl.where(mask, tl.exp(operand - top), 0.0))
    norm = tl.sum(total, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        value = finish(operand, top, norm)
        tl.store(out_ptr + index, value, mask=mask)


def launch_softmax_row(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    cols = COLS
    BLOCK = 256
    grid = (out.numel() // cols,)
    softmax_row_kernel[grid](operand, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def softmax_mid_kernel(operand_ptr, out_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    peak = tl.full((RED, BLOCK), float("-inf"), ACC)
    total = tl.zeros((RED, BLOCK), ACC)
    lost = tl.zeros((RED, BLOCK), ACC)
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        peak = tl.maximum(peak, tl.where(mask, operand, float("-inf")))
    top = tl.max(peak, axis=0)[None, :]
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        total, lost = op_add(total, lost, tl.where(mask, tl.exp(operand - top), 0.0))
    norm = tl.sum(total, axis=0)[None, :]
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        value = finish(operand, top, norm)
        tl.store(out_ptr + index, value, mask=mask)


def launch_softmax_mid(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    reds = REDS
    cols = COLS
    RED, BLOCK = 8, 64
    grid = (out.numel() // (reds * cols) * triton.cdiv(cols, BLOCK),)
    softmax_mid_kernel[grid](operand, out, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def nll_row_kernel(operand_ptr, target_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    out_index = row
    target = tl.load(target_ptr + out_index)
    tl.device_assert(target < cols, "a class outside")
    peak = tl.full((BLOCK,), float("-inf"), ACC)
    total = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    chosen = tl.zeros((BLOCK,), ACC)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        chosen = tl.where(col == target, operand, chosen)
        peak = tl.maximum(peak, tl.where(mask, operand, float("-inf")))
    top = tl.max(peak, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        total, lost = op_add(total, lost, tl.where(mask, tl.exp(operand - top), 0.0))
    norm = tl.sum(total, axis=0)
    value = tl.log(norm) - (tl.sum(chosen, axis=0) - top)
    tl.store(out_ptr + out_index, value)


def launch_nll_row(operand, target):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    cols = COLS
    BLOCK = 256
    grid = (out.numel(),)
    nll_row_kernel[grid](operand, target, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def normalize_row_kernel(operand_ptr, out_ptr, cols, EPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), ACC)
    lost = tl.zeros((BLOCK,), ACC)
    squares = tl.zeros((BLOCK,), ACC)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        total, lost = op_add(total, lost, tl.where(mask, operand, 0.0))
    mean = tl.sum(total, axis=0) / cols
    lost = tl.zeros((BLOCK,), ACC)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        squares, lost = op_add(squares, lost, tl.where(mask, (operand - mean) * (operand - mean), 0.0))
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / cols + EPS)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        operand = tl.load(operand_ptr + index, mask=mask)
        value = (operand - mean) * rstd
        tl.store(out_ptr + index, value, mask=mask)


def launch_normalize_row(operand):
    out = torch.empty(SHAPE, dtype=DTYPE, device=DEVICE)
    cols = COLS
    BLOCK = 256
    grid = (out.numel() // cols,)
    normalize_row_kernel[grid](operand, out, cols, EPS=EPSILON, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out
