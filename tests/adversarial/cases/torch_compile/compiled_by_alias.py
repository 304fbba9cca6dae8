# reference: relu
# expect: rejected static.torch_compile
# twin: compiled_pattern
import torch
import torch.nn as nn
import triton
import triton.language as tl

c = torch.compile


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = c(torch.relu)

    def forward(self, x):
        return self.fast(x)
