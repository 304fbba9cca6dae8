# reference: add
# expect: verified
# twin: wrapper_subclass
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + y, mask=at < n)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512)
    return out


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return add(x, y)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return Add.apply(x, y)
