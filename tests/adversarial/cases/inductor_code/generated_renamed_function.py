# reference: add
# expect: rejected static.inductor_code
# twin: blocks_named_alike
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_add(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tmp1 = tl.load(in_ptr1 + xindex, xmask)
    tmp2 = tmp0 + tmp1
    tl.store(out_ptr0 + xindex, tmp2, xmask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        fused_add[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), XBLOCK=512)
        return out
