"""Matrix products: out[b, m, n] = sum_k a[b, m, k] * b[b, k, n], any strides, fp32 accumulation; and the case n = 1.
`heads` has two dimensions for b, which strides cannot always join to one.

The plain form multiplies in full precision (`ieee`) with small tiles (TILE_M, TILE_N, TILE_K), each summed by itself: one chain
over all of K would lose digits. The compiler turns a sum of a product and `acc` into such a chain, hence the `fma`. Layout names as in BLAS: a is M x K, b is K x N.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, M, N, K, a_stride_m, a_stride_k, b_stride_k, b_stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m = tl.program_id(0) // tl.cdiv(N, BLOCK_N)
    pid_n = tl.program_id(0) % tl.cdiv(N, BLOCK_N)
    row = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    col = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_ptr + row * a_stride_m + k[None, :] * a_stride_k, mask=(row < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * b_stride_k + col * b_stride_n, mask=(k[:, None] < K) & (col < N), other=0.0)
        acc = tl.fma(tl.dot(a, b, input_precision="ieee"), 1.0, acc)
    value = acc
    index = row * N + col
    mask = (row < M) & (col < N)
    tl.store(out_ptr + index, value, mask=mask)


def launch_matmul(a, b):
    M, N, K = a.numel() // a.shape[-1], b.shape[1], a.shape[-1]
    out = torch.empty((*a.shape[:-1], N), dtype=a.dtype, device=a.device)
    BLOCK_M, BLOCK_N, BLOCK_K = TILE_M, TILE_N, TILE_K
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    matmul_kernel[grid](a, b, out, M, N, K, a.stride(-2), a.stride(-1), b.stride(0), b.stride(1), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=1)
    return out


@triton.jit
def bmm_kernel(a_ptr, b_ptr, out_ptr, M, N, K, a_stride_b, a_stride_m, a_stride_k, b_stride_b, b_stride_k, b_stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    pid_m = tl.program_id(0) // tl.cdiv(N, BLOCK_N)
    pid_n = tl.program_id(0) % tl.cdiv(N, BLOCK_N)
    m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    col = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    a_ptr += batch * a_stride_b
    b_ptr += batch * b_stride_b
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_ptr + m * a_stride_m + k[None, :] * a_stride_k, mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * b_stride_k + col * b_stride_n, mask=(k[:, None] < K) & (col < N), other=0.0)
        acc = tl.fma(tl.dot(a, b, input_precision="ieee"), 1.0, acc)
    value = acc
    row = batch * M + m
    index = row * N + col
    mask = (m < M) & (col < N)
    tl.store(out_ptr + index, value, mask=mask)


def launch_bmm(a, b):
    M, N, K = a.shape[1], b.shape[2], a.shape[2]
    out = torch.empty((a.shape[0], M, N), dtype=a.dtype, device=a.device)
    BLOCK_M, BLOCK_N, BLOCK_K = TILE_M, TILE_N, TILE_K
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N), a.shape[0])
    bmm_kernel[grid](a, b, out, M, N, K, a.stride(0), a.stride(1), a.stride(2), b.stride(0), b.stride(1), b.stride(2), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=1)
    return out


@triton.jit
def heads_kernel(a_ptr, b_ptr, out_ptr, heads, M, N, K, a_stride_b, a_stride_h, a_stride_m, a_stride_k, b_stride_b, b_stride_h, b_stride_k, b_stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    pid_m = tl.program_id(0) // tl.cdiv(N, BLOCK_N)
    pid_n = tl.program_id(0) % tl.cdiv(N, BLOCK_N)
    m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    col = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    a_ptr += batch // heads * a_stride_b + batch % heads * a_stride_h
    b_ptr += batch // heads * b_stride_b + batch % heads * b_stride_h
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_ptr + m * a_stride_m + k[None, :] * a_stride_k, mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * b_stride_k + col * b_stride_n, mask=(k[:, None] < K) & (col < N), other=0.0)
        acc = tl.fma(tl.dot(a, b, input_precision="ieee"), 1.0, acc)
    value = acc
    row = batch * M + m
    index = row * N + col
    mask = (m < M) & (col < N)
    tl.store(out_ptr + index, value, mask=mask)


def launch_heads(a, b):
    heads, M, K, N = *a.shape[1:], b.shape[3]
    out = torch.empty((*a.shape[:3], N), dtype=a.dtype, device=a.device)
    BLOCK_M, BLOCK_N, BLOCK_K = TILE_M, TILE_N, TILE_K
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N), a.shape[0] * heads)
    heads_kernel[grid](a, b, out, heads, M, N, K, a.stride(0), a.stride(1), a.stride(2), a.stride(3), b.stride(0), b.stride(1), b.stride(2), b.stride(3), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=1)
    return out


@triton.jit
def matvec_kernel(a_ptr, b_ptr, out_ptr, K, a_stride_m, a_stride_k, b_stride_k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, K, BLOCK):
        k = (start + tl.arange(0, BLOCK)).to(tl.int64)
        a = tl.load(a_ptr + row * a_stride_m + k * a_stride_k, mask=k < K, other=0.0)
        b = tl.load(b_ptr + k * b_stride_k, mask=k < K, other=0.0)
        acc, lost = op_add(acc, lost, a.to(tl.float32) * b.to(tl.float32))
    value = tl.sum(acc, axis=0)
    out_index = row
    tl.store(out_ptr + out_index, value)


def launch_matvec(a, b):
    M, K = a.numel() // a.shape[-1], a.shape[-1]
    out = torch.empty((*a.shape[:-1], 1), dtype=a.dtype, device=a.device)
    BLOCK = 256
    grid = (M,)
    matvec_kernel[grid](a, b, out, K, a.stride(-2), a.stride(-1), b.stride(0), BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out
