# reference: softmax
# expect: rejected static.torch_compile
# twin: kernel_by_decorator
import torch
import torch.nn as nn
import triton
import triton.language as tl

from torch import compile as build


@build(dynamic=False)
def softmax(x):
    return torch.softmax(x, dim=-1)


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
