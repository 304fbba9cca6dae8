# reference: relu
# expect: verified
# needs: gpu
# twin: cpp_pointer_table
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <unordered_map>

static std::unordered_map<int64_t, int> threads_of;

__global__ void relu_kernel(const float* x, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0.0f ? 0.0f : x[i];
}

torch::Tensor relu(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int64_t n = x.numel();
    threads_of[x.get_device()] = 256;
    relu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
CPP = "torch::Tensor relu(torch::Tensor x);"
extension = load_inline(name="relu_inline", cpp_sources=CPP, cuda_sources=CUDA, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
