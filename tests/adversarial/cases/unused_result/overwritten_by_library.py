# reference: softmax
# expect: rejected static.unused_result
# twin: filled_before
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + at, e / tl.sum(e, axis=0), mask=at < cols)


def softmax(x):
    rows, cols = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    torch.softmax(x, dim=-1, out=out)
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
