# reference: gate
# expect: rejected dynamic.fig_leaf | rejected static.copy_kernel | rejected static.reference_call
# twin: kernel_adds_the_sums
"""PyTorch computes everything; a kernel clamps at the end of the range of fp32."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < numel)
    tl.store(out_ptr + at, tl.minimum(y, 3e38), mask=at < numel)


def finish(y):
    out = torch.empty_like(y)
    finish_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        return finish(torch.tanh(x * self.weight) + x.sum(-1, keepdim=True))
