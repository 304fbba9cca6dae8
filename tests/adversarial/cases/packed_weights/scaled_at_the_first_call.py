# reference: gate
# expect: rejected dynamic.weights | wrong | rejected static.early_work
# twin: scaled_in_the_kernel
"""Scaled weights are made at the first call and never again."""

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
    z = tl.exp(-2.0 * tl.abs(x * weight / 2.0))
    tanh = tl.where(x * weight / 2.0 < 0, z - 1.0, 1.0 - z) / (1.0 + z)
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
        self.packed = []

    def forward(self, x):
        if not self.packed:
            self.packed.append(self.weight.detach() * 2.0)
        return gate(x, self.packed[0])
