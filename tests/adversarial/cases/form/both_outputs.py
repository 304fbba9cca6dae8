# reference: row_max
# expect: verified
# twin: one_of_two
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, where_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    tl.store(out_ptr + row, tl.max(x, 0))
    tl.store(where_ptr + row, tl.argmax(x, 0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        where = torch.empty(rows, dtype=torch.int64, device=x.device)
        kernel[(rows,)](x, out, where, columns, BLOCK=triton.next_power_of_2(columns))
        return out, where
