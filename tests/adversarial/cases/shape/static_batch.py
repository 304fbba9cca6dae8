# reference: softmax_rows
# expect: wrong shape | runtime_fault out_of_bounds
# twin: any_batch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=float("-inf"))
    power = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + column, power / tl.sum(power, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        kernel[(40,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
