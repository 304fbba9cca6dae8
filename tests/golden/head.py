"""head: Triton kernels for the model below. Needs torch and triton only."""


import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


import torch.nn as nn
import torch.nn.functional as F


N = 11
K = 70


class Case0(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(K, N)
    def forward(self, x):
        return F.softmax(F.gelu(self.fc(x)), dim=-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.case0 = Case0()
    def forward(self, x0):
        y0 = self.case0(x0)
        return [y0]


@triton.jit
def op_gelu(x):
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def op_add(acc, lost, x):
    """acc + x and the rounding error that the next step gives back (Kahan 1965); an infinite sum loses nothing."""
    y = x - lost
    total = acc + y
    rest = (total - acc) - y
    return total, tl.where(rest == rest, rest, 0.0)


@triton.jit
def linear_product_kernel(x0__ptr, linear_weight_ptr, out_ptr, M, N, K, x0__stride_m, x0__stride_k, linear_weight_stride_k, linear_weight_stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m = tl.program_id(0) // tl.cdiv(N, BLOCK_N)
    pid_n = tl.program_id(0) % tl.cdiv(N, BLOCK_N)
    row = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    col = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        x0_ = tl.load(x0__ptr + row * x0__stride_m + k[None, :] * x0__stride_k, mask=(row < M) & (k[None, :] < K), other=0.0)
        linear_weight = tl.load(linear_weight_ptr + k[:, None] * linear_weight_stride_k + col * linear_weight_stride_n, mask=(k[:, None] < K) & (col < N), other=0.0)
        acc = tl.fma(tl.dot(x0_, linear_weight, input_precision="ieee"), 1.0, acc)
    linear_product = acc
    index = row * N + col
    mask = (row < M) & (col < N)
    tl.store(out_ptr + index, linear_product, mask=mask)


def launch_linear_product(x0_, linear_weight):
    M, N, K = x0_.numel() // x0_.shape[-1], linear_weight.shape[1], x0_.shape[-1]
    out = torch.empty((*x0_.shape[:-1], N), dtype=x0_.dtype, device=x0_.device)
    BLOCK_M, BLOCK_N, BLOCK_K = 16, 32, 32
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    linear_product_kernel[grid](x0_, linear_weight, out, M, N, K, x0_.stride(-2), x0_.stride(-1), linear_weight.stride(0), linear_weight.stride(1), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=1)
    return out


@triton.jit
def linear_kernel(linear_product_ptr, p_case0_fc_bias_ptr, out_ptr, cols, size_1, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    index = row * cols + col
    linear_product = tl.load(linear_product_ptr + index, mask=mask)
    p_case0_fc_bias = tl.load(p_case0_fc_bias_ptr + col % size_1, mask=mask)
    linear = linear_product + p_case0_fc_bias
    tl.store(out_ptr + index, linear, mask=mask)


def launch_linear(linear_product, p_case0_fc_bias):
    out = torch.empty(linear_product.shape, dtype=linear_product.dtype, device=linear_product.device)
    size_1 = out.shape[1]
    cols = out.shape[0] * out.shape[1]
    BLOCK = 512
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    linear_kernel[grid](linear_product, p_case0_fc_bias, out, cols, size_1, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def gelu_kernel(linear_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    linear = tl.load(linear_ptr + index, mask=mask)
    gelu = op_gelu(linear)
    tl.store(out_ptr + index, gelu, mask=mask)


def launch_gelu(linear):
    out = torch.empty(linear.shape, dtype=linear.dtype, device=linear.device)
    numel = out.numel()
    BLOCK = 512
    grid = (triton.cdiv(numel, BLOCK),)
    gelu_kernel[grid](linear, out, numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def softmax_kernel(gelu_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        gelu = tl.load(gelu_ptr + index, mask=mask)
        peak = tl.maximum(peak, tl.where(mask, gelu, float("-inf")))
    top = tl.max(peak, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        gelu = tl.load(gelu_ptr + index, mask=mask)
        total, lost = op_add(total, lost, tl.where(mask, tl.exp(gelu - top), 0.0))
    norm = tl.sum(total, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        gelu = tl.load(gelu_ptr + index, mask=mask)
        softmax = tl.exp(gelu - top) / norm
        tl.store(out_ptr + index, softmax, mask=mask)


def launch_softmax(gelu):
    out = torch.empty(gelu.shape, dtype=gelu.dtype, device=gelu.device)
    cols = gelu.shape[1]
    BLOCK = 256
    grid = (out.numel() // cols,)
    softmax_kernel[grid](gelu, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


# Sizes that no kernel can read from a tensor.
SIZES = {}


# Plain attributes of the reference's modules that are written into the kernels as numbers.
CONFIG = {
    'training': True,
    'case0.training': True,
    'case0.fc.training': True,
    'case0.fc.in_features': 70,
    'case0.fc.out_features': 11,
    'dtypes': ('torch.float32', 'torch.float32'),
    'shapes': ((11, 70), (11,)),
    'strides': ((70, 1), (1,)),
}


def config(model):
    """The same attributes of a live model."""
    found = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if not name.startswith('_') and isinstance(value, (bool, int, float, str, tuple, type(None))):
                found[f'{path}.{name}'.lstrip('.')] = value
    found.pop('unchanged', None)
    found['dtypes'] = tuple(str(t.dtype) for t in (*model.parameters(), *model.buffers()))
    found['shapes'] = tuple(tuple(t.shape) for t in (*model.parameters(), *model.buffers()))
    found['strides'] = tuple(t.stride() for t in (*model.parameters(), *model.buffers()))
    return found


def supports(model, *inputs):
    """Where the kernels hold. Elsewhere, and for gradients or autocast, the reference computation runs."""
    if not model.unchanged or len(inputs) != 1:
        return False
    x0_, = inputs
    if not (isinstance(x0_, torch.Tensor) and x0_.dtype == torch.float32 and x0_.shape == (3, 70) and x0_.is_contiguous()):
        return False
    tensors = (x0_, *model.parameters(), *model.buffers())
    if torch.is_autocast_enabled('cuda') or torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    device = tensors[0].device
    return device.type == 'cuda' and all(t.device == device for t in tensors)


class ModelNew(Model):
    """The reference with its forward computed by the kernels above, where they hold."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.unchanged = config(self) == CONFIG

    def train(self, mode=True):
        super().train(mode)
        self.unchanged = config(self) == CONFIG
        return self

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.unchanged = config(self) == CONFIG
        return self

    def forward(self, *inputs, **named):
        if named or not supports(self, *inputs):
            return super().forward(*inputs, **named)
        return self.kernels(*inputs)

    def kernels(self, x0_):
        """The fast path: one call a statement, no checks."""
        p_case0_fc_weight = self.case0.fc.weight
        p_case0_fc_bias = self.case0.fc.bias
        linear_weight = p_case0_fc_weight.t()
        linear_product = launch_linear_product(x0_, linear_weight)
        linear = launch_linear(linear_product, p_case0_fc_bias)
        gelu = launch_gelu(linear)
        softmax = launch_softmax(gelu)
        return [softmax]
