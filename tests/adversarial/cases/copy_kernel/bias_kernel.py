# reference: linear
# expect: verified
# twin: store_nothing
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_kernel(y_ptr, b_ptr, n, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(y_ptr + at, y + tl.load(b_ptr + at % cols), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.fc = nn.Linear(features, classes)

    def forward(self, x):
        y = x @ self.fc.weight.t()
        bias_kernel[(triton.cdiv(y.numel(), 128),)](y, self.fc.bias, y.numel(), y.shape[1], BLOCK=128)
        return y
