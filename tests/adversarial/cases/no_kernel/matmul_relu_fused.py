# reference: matmul_relu
# expect: verified
# twin: operators_renamed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_relu_kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + col[None, :], mask=(k[:, None] < K) & (col[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out = tl.where(acc < 0, 0.0, acc)
    tl.store(out_ptr + row[:, None] * N + col[None, :], out, mask=(row[:, None] < M) & (col[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        matmul_relu_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, out, M, N, K, BLOCK=16)
        return out
