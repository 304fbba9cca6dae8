# reference: softmax
# expect: verified
import torch
import torch.nn as nn
import triton
import triton.language as tl

from triton.runtime import driver


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, rows, cols, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    first, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=num_stages):
        at = tl.arange(0, BLOCK)
        mask = at < cols
        x = tl.load(in_ptr + row * in_stride + at, mask=mask, other=-float("inf"))
        top = x - tl.max(x, axis=0)
        numerator = tl.exp(top)
        tl.store(out_ptr + row * out_stride + at, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(x):
    rows, cols = x.shape
    BLOCK = triton.next_power_of_2(cols)
    warps = 8 if BLOCK > 2048 else 4
    programs = min(torch.cuda.get_device_properties(x.device).multi_processor_count, rows)
    y = torch.empty_like(x)
    softmax_kernel[(programs, 1, 1)](y, x, x.stride(0), y.stride(0), rows, cols, BLOCK=BLOCK, num_stages=2, num_warps=warps)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
