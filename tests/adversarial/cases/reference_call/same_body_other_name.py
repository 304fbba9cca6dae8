# reference: row_sum
# expect: rejected static.reference_call | rejected static.no_kernel | rejected static.unused_result
# twin: other_body_same_shape
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(acc, axis=0))


def row_sum(x):
    rows, cols = x.shape
    out = torch.empty((rows,), device=x.device, dtype=x.dtype)
    row_sum_kernel[(rows,)](x, out, cols, BLOCK=64)
    return out


class Tail(nn.Module):
    def forward(self, x):
        return x.sum(-1)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.tail = Tail()

    def forward(self, x):
        row_sum(x)
        return self.tail(x)
