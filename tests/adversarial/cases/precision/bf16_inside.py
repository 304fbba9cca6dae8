# reference: product
# expect: wrong values
# twin: fp32_inside
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + col[None, :], mask=(k[:, None] < K) & (col[None, :] < N), other=0.0)
        total += tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    tl.store(out_ptr + row[:, None] * N + col[None, :], total, mask=(row[:, None] < M) & (col[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, dtype=a.dtype, device=a.device)
        kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, BLOCK=32)
        return out
