# reference: softmax
# expect: rejected static.copy_kernel
# twin: softmax_in_place
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(y_ptr + at, y * scale + 0.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=-1)
        finish_kernel[(triton.cdiv(y.numel(), 128),)](y, y.numel(), 1.0, BLOCK=128)
        return y
