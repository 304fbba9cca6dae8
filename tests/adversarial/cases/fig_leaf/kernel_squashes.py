# reference: gate
# expect: verified
# twin: kernel_divides_and_multiplies
"""The kernel computes the tanh between PyTorch's operators."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < numel)
    tl.store(out_ptr + at, (1.0 - tl.exp(-2.0 * y)) / (1.0 + tl.exp(-2.0 * y)), mask=at < numel)


def finish(y):
    out = torch.empty_like(y)
    finish_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        y = finish(torch.mul(x, self.weight).clamp(-20, 20))
        return torch.add(y, torch.sum(x, -1, keepdim=True))
