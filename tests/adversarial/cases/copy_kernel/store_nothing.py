# reference: linear
# expect: rejected static.copy_kernel | rejected static.unused_result
# twin: bias_kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def touch_kernel(y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.maximum(y, float("-inf")), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.fc = nn.Linear(features, classes)

    def forward(self, x):
        y = self.fc(x)
        touch_kernel[(triton.cdiv(y.numel(), 128),)](y, y.numel(), BLOCK=128)
        return y
