# reference: relu_rows
# expect: verified
# needs: gpu
# twin: cuda_tail_left_out
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
    x = x.contiguous();
    auto out = torch::empty_like(x);
    long numel = x.numel();
    relu_kernel<<<(numel + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), numel);
    return out;
}
"""
extension = load_inline(
    name="cuda_relu",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
