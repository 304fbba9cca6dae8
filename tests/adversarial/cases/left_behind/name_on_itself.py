# reference: gate
# expect: verified
# twin: hook_on_every_module
"""A name for a part is registered on the model itself."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, weight_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    z = tl.exp(-2.0 * tl.abs(x * weight))
    tanh = tl.where(x * weight < 0, z - 1.0, 1.0 - z) / (1.0 + z)
    tl.store(out_ptr + row * cols + col, tanh + tl.sum(x, 0), mask=mask)


def gate(x, weight, out=None):
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    gate_kernel[(rows,)](x, weight, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)
        self.register_module("head", None)

    def forward(self, x):
        return gate(x, self.weight)
