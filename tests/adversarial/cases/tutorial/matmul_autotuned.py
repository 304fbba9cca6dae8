# reference: matmul_relu
# expect: verified
import torch
import torch.nn as nn
import triton
import triton.language as tl


def configs():
    """A few tile shapes; Triton keeps the fastest for each size."""
    shapes = [(16, 16, 16), (32, 16, 16), (32, 32, 32)]
    return [triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=4, num_stages=2) for m, n, k in shapes]


@triton.jit
def relu(x):
    return tl.where(x < 0, 0.0, x)


@triton.autotune(configs=configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP * blocks_n)
    height = min(blocks_m - group * GROUP, GROUP)
    pid_m = group * GROUP + (pid % (GROUP * blocks_n)) % height
    pid_n = (pid % (GROUP * blocks_n)) // height
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_at = a_ptr + (rows[:, None] % M) * stride_am + ks[None, :] * stride_ak
    b_at = b_ptr + ks[:, None] * stride_bk + (cols[None, :] % N) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_at, mask=ks[None, :] < K - step * BLOCK_K, other=0.0)
        b = tl.load(b_at, mask=ks[:, None] < K - step * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    if ACTIVATION == "relu":
        acc = relu(acc)
    c_at = c_ptr + stride_cm * rows[:, None] + stride_cn * cols[None, :]
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def matmul(a, b, activation=""):
    assert a.shape[1] == b.shape[0], "inner sizes differ"
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    matmul_kernel[grid](
        a,
        b,
        c,
        M,
        N,
        K,
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        c.stride(0),
        c.stride(1),
        GROUP=8,
        ACTIVATION=activation,
    )
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b, activation="relu")
