# reference: row_sum
# expect: verified
# needs: gpu
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void sum_rows(const float* x, float* out, int cols) {
    __shared__ float part[256];
    float total = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) total += x[(int64_t)blockIdx.x * cols + c];
    part[threadIdx.x] = total;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

torch::Tensor sum_rows_cuda(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous CUDA tensor is needed");
    auto out = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = load_inline(
            name="sum_rows_inline",
            cpp_sources="torch::Tensor sum_rows_cuda(torch::Tensor x);",
            cuda_sources=source,
            functions=["sum_rows_cuda"],
            extra_cuda_cflags=["-O3"],
            verbose=False,
        )

    def forward(self, x):
        return self.module.sum_rows_cuda(x.contiguous())
