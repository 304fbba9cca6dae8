# reference: softmax
# expect: rejected static.reference_call | rejected static.no_kernel
# twin: inherits_and_overrides
import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


class ModelNew(Model):
    pass
