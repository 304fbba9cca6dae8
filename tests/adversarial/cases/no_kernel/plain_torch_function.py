# reference: linear
# expect: rejected static.no_kernel
# twin: linear_function
import torch


def forward(x, weight=None, bias=None):
    return torch.addmm(bias, x, weight.t())
