# reference: relu_rows
# expect: rejected static.no_kernel | rejected static.reference_call | rejected dynamic.fig_leaf | rejected dynamic.launches | rejected dynamic.share
# needs: gpu
# twin: cuda_relu_on_the_stream
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

__global__ void relu_kernel(const float* x, float* out, long numel) {
    long index = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (index < numel) out[index] = x[index] > 0.0f ? x[index] : (x[index] == x[index] ? 0.0f : x[index]);
}

torch::Tensor relu(torch::Tensor x) {
    return at::relu(x);
}
"""
extension = load_inline(
    name="cuda_relu_of_aten",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
