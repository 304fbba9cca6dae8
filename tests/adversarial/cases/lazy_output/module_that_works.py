# reference: relu
# expect: verified
# twin: tensor_that_waits
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.where(x < 0, 0.0, x), mask=at < n)


def relu(x):
    out = torch.empty_like(x)
    n = x.numel()
    relu_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


class Now(nn.Module):
    def forward(self, x):
        return relu(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return Now()(x)
