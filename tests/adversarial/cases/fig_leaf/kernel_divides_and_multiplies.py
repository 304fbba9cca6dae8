# reference: gate
# expect: rejected dynamic.fig_leaf | rejected static.copy_kernel | rejected static.reference_call
# twin: kernel_squashes
"""PyTorch computes everything; a kernel doubles and halves."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < numel)
    tl.store(out_ptr + at, y * 2.0 / 2.0, mask=at < numel)


def finish(y):
    out = torch.empty_like(y)
    finish_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK=256)
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        y = torch.tanh(torch.mul(x, self.weight))
        return finish(torch.add(y, torch.sum(x, -1, keepdim=True)))
