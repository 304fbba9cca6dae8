# reference: gate
# expect: verified
# twin: kernel_clamps_what_is_small
"""PyTorch computes two parts; the kernel joins them."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(y_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row * cols + at, mask=at < cols)
    tl.store(out_ptr + row * cols + at, y + tl.load(sum_ptr + row), mask=at < cols)


def add(y, sums):
    out = torch.empty_like(y)
    add_kernel[(y.shape[0],)](y, sums, out, y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1]))
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        return add(torch.tanh(x * self.weight), x.sum(-1))
