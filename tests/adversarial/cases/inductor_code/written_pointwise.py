# reference: relu
# expect: verified
# twin: generated_pointwise
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_rows(x_ptr, y_ptr, numel, XBLOCK: tl.constexpr):
    first = tl.program_id(0) * XBLOCK
    index = first + tl.arange(0, XBLOCK)[:]
    mask = index < numel
    x = tl.load(x_ptr + index, mask)
    zero = tl.full([1], 0, tl.int32)
    y = tl.where(x < zero, 0.0, x)
    tl.store(y_ptr + index, y, mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_rows[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), XBLOCK=256)
        return out
