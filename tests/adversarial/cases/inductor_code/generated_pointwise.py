# reference: relu
# expect: rejected static.inductor_code
# twin: written_pointwise
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triton_poi_fused_relu_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.full([1], 0, tl.int32)
    tmp2 = tl.where(tmp0 < tmp1, 0.0, tmp0)
    tl.store(out_ptr0 + (x0), tmp2, xmask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        triton_poi_fused_relu_0[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), XBLOCK=256)
        return out
