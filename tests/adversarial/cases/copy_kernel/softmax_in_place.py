# reference: softmax
# expect: verified
# twin: plus_zero_in_place
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish_kernel(y_ptr, cols, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * cols + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < cols
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    tl.store(y_ptr + at, y * scale / tl.sum(y, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.exp(x - x.amax(dim=-1, keepdim=True))
        finish_kernel[(y.shape[0],)](y, y.shape[1], 1.0, BLOCK=triton.next_power_of_2(y.shape[1]))
        return y
