# reference: scaled
# expect: wrong mutation | rejected dynamic.call_count | rejected dynamic.same_pointer | rejected dynamic.version_counter
# twin: weight_kept
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask)
    weight = tl.load(weight_ptr + column, mask=mask)
    tl.store(out_ptr + row * columns + column, x * weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        kernel[(rows,)](x, self.weight, out, columns, BLOCK=triton.next_power_of_2(columns))
        self.weight.mul_(1.0001)
        return out
