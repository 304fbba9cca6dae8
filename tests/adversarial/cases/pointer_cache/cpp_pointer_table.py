# reference: relu
# expect: rejected static.pointer_cache
# needs: gpu
# twin: cpp_device_table
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <unordered_map>

static std::unordered_map<void*, torch::Tensor> table;

__global__ void relu_kernel(const float* x, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0.0f ? 0.0f : x[i];
}

torch::Tensor relu(torch::Tensor x) {
    auto found = table.find(x.data_ptr());
    if (found != table.end()) return found->second;
    auto out = torch::empty_like(x);
    table[x.data_ptr()] = out;
    int64_t n = x.numel();
    relu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
CPP = "torch::Tensor relu(torch::Tensor x);"
extension = load_inline(name="relu_inline", cpp_sources=CPP, cuda_sources=CUDA, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
