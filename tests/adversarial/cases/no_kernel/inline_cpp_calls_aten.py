# reference: relu
# expect: rejected static.no_kernel
# needs: gpu
# twin: inline_cuda_relu
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
// relu_kernel<<<blocks, threads>>>(x, out) is what a kernel would look like
torch::Tensor relu(torch::Tensor x) {
    return at::relu(x);
}
"""
extension = load_inline(name="relu_inline", cpp_sources=CPP, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
