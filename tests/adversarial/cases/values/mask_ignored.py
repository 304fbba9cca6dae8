# reference: dropout
# expect: wrong values
# twin: mask_shared
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, kept_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    x = tl.load(x_ptr + index, mask=mask)
    kept = tl.load(kept_ptr + index, mask=mask)
    tl.store(out_ptr + index, x * 2.0 + 0.0 * kept, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kept = nn.functional.dropout(torch.ones_like(x), 0.3, True)
        kernel[(triton.cdiv(x.numel(), 256),)](x, kept, out, x.numel(), BLOCK=256)
        return out
