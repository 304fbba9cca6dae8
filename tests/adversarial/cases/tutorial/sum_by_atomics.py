# reference: row_sum
# expect: verified
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sum_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(out_ptr + row * tl.num_programs(1) + tl.program_id(1), tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        blocks = triton.cdiv(cols, 64)
        parts = torch.empty((rows, blocks), device=x.device, dtype=x.dtype)
        partial_sum_kernel[(rows, blocks)](x, parts, cols, BLOCK=64)
        return parts.sum(dim=1)
