# reference: gate
# expect: verified
# twin: kernel_after_the_sum
"""The kernel computes the tanh, the sum is PyTorch's."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < numel)
    tl.store(
        out_ptr + at,
        tl.where(y < 0, tl.exp(2.0 * y) - 1.0, 1.0 - tl.exp(-2.0 * y)) / (1.0 + tl.exp(-2.0 * tl.abs(y))),
        mask=at < numel,
    )


def finish(y):
    out = torch.empty_like(y)
    finish_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        return finish(x * self.weight) + x.sum(-1, keepdim=True)
