# reference: linear
# expect: verified
# twin: weight_scaled_once
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + col[None, :] * K + k[:, None], mask=(col[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + col, mask=col < N, other=0.0)[None, :]
    tl.store(out_ptr + row[:, None] * N + col[None, :], acc, mask=(row[:, None] < M) & (col[None, :] < N))


def linear(x, w, b):
    M, K = x.shape
    N = w.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    linear_kernel[grid](x, w, b, out, M, N, K, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32)
    return out


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.fc = nn.Linear(features, classes)

    def forward(self, x):
        half = self.fc.weight * 1.0
        return linear(x, half, self.fc.bias)
