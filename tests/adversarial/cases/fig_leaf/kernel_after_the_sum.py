# reference: gate
# expect: rejected dynamic.fig_leaf | rejected static.copy_kernel | rejected static.reference_call
# twin: kernel_before_the_sum
"""A choice between two equal values hides that the kernel copies."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < numel)
    tl.store(out_ptr + at, tl.where(y == y, y, y), mask=at < numel)


def finish(y):
    out = torch.empty_like(y)
    finish_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        parts = [torch.tanh(part * self.weight) + part.sum(-1, keepdim=True) for part in [x]]
        return finish(torch.cat(parts))
