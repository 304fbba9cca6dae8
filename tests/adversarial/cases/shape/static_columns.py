# reference: row_sum
# expect: wrong shape | runtime_fault out_of_bounds
# twin: any_columns
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        kernel[(rows,)](x, out, 96, BLOCK=triton.next_power_of_2(columns))
        return out
