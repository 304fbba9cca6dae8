# reference: add
# expect: verified
# twin: generated_renamed_function
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_add(x_ptr, y_ptr, out_ptr, numel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < numel
    x = tl.load(x_ptr + xindex, xmask)
    y = tl.load(y_ptr + xindex, xmask)
    total = x + y
    tl.store(out_ptr + xindex, total, xmask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        fused_add[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), XBLOCK=512)
        return out
