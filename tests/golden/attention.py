"""attention: Triton kernels for the model below. Needs torch and triton only."""


import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


import torch.nn as nn


A = 3
C = 5
D = 4
M = 33


class Case0(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, m):
        q, k, v = (t.view(A, M, C, D).transpose(1, 2) for t in x.split(C * D, 2))
        a = (q @ k.transpose(-2, -1) * D ** -0.5).masked_fill(m, float('-inf')).softmax(-1)
        return (a @ v).transpose(1, 2).reshape(A, M, C * D)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.case0 = Case0()
    def forward(self, x0, m0):
        y0 = self.case0(x0, m0)
        return [y0]


@triton.jit
def attention_kernel(
    transpose_ptr, transpose_1_ptr, transpose_2_ptr, attention_mask_ptr, out_ptr, scale, heads, M, N, D, E,
    transpose_stride_b, transpose_stride_h, transpose_stride_m, transpose_stride_d, transpose_1_stride_b, transpose_1_stride_h, transpose_1_stride_n, transpose_1_stride_d, transpose_2_stride_b, transpose_2_stride_h, transpose_2_stride_n, transpose_2_stride_d,
    attention_mask_stride_b, attention_mask_stride_h, attention_mask_stride_m, attention_mask_stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK_M
    batch = tl.program_id(1).to(tl.int64)
    b = batch // heads
    h = batch % heads
    m = (first + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    d = tl.arange(0, BLOCK_D).to(tl.int64)
    col = tl.arange(0, BLOCK_E)[None, :].to(tl.int64)
    transpose = tl.load(transpose_ptr + b * transpose_stride_b + h * transpose_stride_h + m * transpose_stride_m + d[None, :] * transpose_stride_d, mask=(m < M) & (d[None, :] < D), other=0.0)
    peak = tl.full((BLOCK_M, 1), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M, 1), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    for start in range(0, N, BLOCK_N):
        n = (start + tl.arange(0, BLOCK_N)).to(tl.int64)
        transpose_1 = tl.load(transpose_1_ptr + (b * transpose_1_stride_b + h * transpose_1_stride_h) + n[None, :] * transpose_1_stride_n + d[:, None] * transpose_1_stride_d, mask=(n[None, :] < N) & (d[:, None] < D), other=0.0)
        transpose_2 = tl.load(transpose_2_ptr + (b * transpose_2_stride_b + h * transpose_2_stride_h) + n[:, None] * transpose_2_stride_n + col * transpose_2_stride_d, mask=(n[:, None] < N) & (col < E), other=0.0)
        mask = (m < M) & (n[None, :] < N)
        attention_mask = tl.load(attention_mask_ptr + b * attention_mask_stride_b + h * attention_mask_stride_h + m * attention_mask_stride_m + n[None, :] * attention_mask_stride_n, mask=mask)
        score = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        score = tl.dot(transpose, transpose_1, score, input_precision="ieee")
        score = tl.where(n[None, :] < N, tl.where(attention_mask, float('-inf'), score * scale), float("-inf"))
        top = tl.maximum(peak, tl.max(score, axis=1, keep_dims=True))
        shift = tl.where(top == float("-inf"), 0.0, top)
        fade = tl.exp(peak - shift)
        part = tl.exp(score - shift)
        norm = norm * fade + tl.sum(part, axis=1, keep_dims=True)
        part = part.to(transpose.dtype)
        acc = acc * fade
        acc = tl.fma(tl.dot(part, transpose_2, input_precision="ieee"), 1.0, acc)
        peak = top
    attention = acc / norm
    row = (b * M + m) * heads + h
    index = row * E + col
    mask = (m < M) & (col < E)
    tl.store(out_ptr + index, attention, mask=mask)


def launch_attention(transpose, transpose_1, transpose_2, attention_mask):
    heads, M, D = transpose.shape[1:]
    N, E = transpose_2.shape[2:]
    out = torch.empty((transpose.shape[0], M, heads, E), dtype=transpose.dtype, device=transpose.device)
    attention_mask_stride_b = attention_mask.stride(0)
    attention_mask_stride_h = attention_mask.stride(1)
    attention_mask_stride_m = attention_mask.stride(2)
    attention_mask_stride_n = attention_mask.stride(3)
    scale = D ** -0.5
    BLOCK_M, BLOCK_N = 32, 32
    BLOCK_D, BLOCK_E = max(16, triton.next_power_of_2(D)), max(16, triton.next_power_of_2(E))
    grid = (triton.cdiv(M, BLOCK_M), transpose.shape[0] * heads)
    attention_kernel[grid](transpose, transpose_1, transpose_2, attention_mask, out, scale, heads, M, N, D, E, *transpose.stride(), *transpose_1.stride(), *transpose_2.stride(), attention_mask_stride_b, attention_mask_stride_h, attention_mask_stride_m, attention_mask_stride_n, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E, num_warps=4, num_stages=1)
    return out


# Sizes that no kernel can read from a tensor.
SIZES = {}


# Plain attributes of the reference's modules that are written into the kernels as numbers.
CONFIG = {
    'training': True,
    'case0.training': True,
    'dtypes': (),
    'shapes': (),
    'strides': (),
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
    if not model.unchanged or len(inputs) != 2:
        return False
    x0_, m0, = inputs
    if not (isinstance(x0_, torch.Tensor) and x0_.dtype == torch.float32 and x0_.shape == (3, 33, 60) and x0_.is_contiguous()
        and isinstance(m0, torch.Tensor) and m0.dtype == torch.bool and m0.shape == (33, 33) and m0.is_contiguous()):
        return False
    tensors = (x0_, m0, *model.parameters(), *model.buffers())
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

    def kernels(self, x0_, m0):
        """The fast path: one call a statement, no checks."""
        split_0 = x0_.split(20, 2)[0]
        split_1 = x0_.split(20, 2)[1]
        split_2 = x0_.split(20, 2)[2]
        view = split_0.reshape((3, 33, 5, 4))
        transpose = view.transpose(1, 2)
        view_1 = split_1.reshape((3, 33, 5, 4))
        transpose_1 = view_1.transpose(1, 2)
        view_2 = split_2.reshape((3, 33, 5, 4))
        transpose_2 = view_2.transpose(1, 2)
        attention_mask = m0.expand(*transpose.shape[:3], transpose_1.shape[2])
        attention = launch_attention(transpose, transpose_1, transpose_2, attention_mask)
        _unsafe_view = attention.reshape((3, 33, 20))
        return [_unsafe_view]
