# reference: relu_rows
# expect: wrong values | rejected dynamic.same_pointer | rejected static.pointer_cache | rejected static.output_memo
# needs: gpu
# twin: cuda_fresh_memory
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <map>

__global__ void relu_kernel(const float* x, float* out, long numel) {
    long index = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (index < numel) out[index] = x[index] > 0.0f ? x[index] : (x[index] == x[index] ? 0.0f : x[index]);
}

torch::Tensor relu(torch::Tensor x) {
    x = x.contiguous();
    static std::map<void*, torch::Tensor> known;
    auto found = known.find(x.data_ptr());
    if (found != known.end()) return found->second.clone();
    auto out = torch::empty_like(x);
    long numel = x.numel();
    relu_kernel<<<(numel + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), numel);
    known[x.data_ptr()] = out;
    return out.clone();
}
"""
extension = load_inline(
    name="cuda_remembers_the_address",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
