# reference: batch_norm
# expect: wrong values
# twin: averages_kept
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, bias_ptr, mean_ptr, variance_ptr, out_ptr, rows, columns, eps, momentum, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    mask = row < rows
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, 0) / rows
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / rows
    weight = tl.load(weight_ptr + column)
    bias = tl.load(bias_ptr + column)
    out = centred / tl.sqrt(variance + eps) * weight + bias
    tl.store(out_ptr + row * columns + column, out, mask=mask)
    old_mean = tl.load(mean_ptr + column)
    old_variance = tl.load(variance_ptr + column)
    unbiased = variance * rows / (rows - 1)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.BatchNorm1d(columns)

    def forward(self, x):
        norm = self.norm
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(rows)
        state = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        kernel[(columns,)](x, *state, out, rows, columns, norm.eps, norm.momentum, BLOCK=block)
        norm.num_batches_tracked.add_(1)
        return out
