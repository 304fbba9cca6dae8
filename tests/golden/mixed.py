"""mixed: Triton kernels for the model below. Needs torch and triton only."""


import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


import torch.nn as nn


class Case0(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, y):
        return x.cumsum(1).permute(1, 0) * y, x.amax(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.case0 = Case0()
    def forward(self, x0, y0):
        y0 = self.case0(x0, y0)
        return [y0]


@triton.jit
def op_add(acc, lost, x):
    """acc + x and the rounding error that the next step gives back (Kahan 1965); an infinite sum loses nothing."""
    y = x - lost
    total = acc + y
    rest = (total - acc) - y
    return total, tl.where(rest == rest, rest, 0.0)


@triton.jit
def op_sum_along(x):
    """Running sums along axis 0."""
    return tl.cumsum(x, axis=0)


@triton.jit
def op_sum_over(acc):
    """Sum over axis 0."""
    return tl.sum(acc, axis=0)


@triton.jit
def op_nan_maximum(a, b):
    """max(a, b), NaN where either is NaN."""
    return tl.where((a != a) | (a > b), a, b)


@triton.jit
def op_keep_max(acc, lost, x):
    """max(acc, x), NaN where either is NaN."""
    return op_nan_maximum(acc, x), lost


@triton.jit
def op_max_over(acc):
    """Maximum over axis 0, NaN when one is there."""
    nans = tl.sum((acc != acc).to(tl.int32), axis=0)
    return tl.where(nans > 0, float("nan"), tl.max(acc, axis=0))


@triton.jit
def cumsum_kernel(x0__ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = tl.full((1,), 0.0, tl.float32)
    lost = tl.full((1,), 0, tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        index = row * cols + col
        x0_ = tl.load(x0__ptr + index, mask=mask)
        term = tl.where(mask, x0_, 0.0)
        cumsum, rest = op_add(carry, lost, op_sum_along(term))
        tl.store(out_ptr + index, cumsum, mask=mask)
        carry, lost = op_add(carry, lost, op_sum_over(term))


def launch_cumsum(x0_):
    out = torch.empty(x0_.shape, dtype=x0_.dtype, device=x0_.device)
    cols = x0_.shape[1]
    BLOCK = 256
    grid = (out.numel() // cols,)
    cumsum_kernel[grid](x0_, out, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def mul_kernel(cumsum_ptr, y0_turned_ptr, out_ptr, cols, size_1, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    index = row * cols + col
    cumsum = tl.load(cumsum_ptr + index, mask=mask)
    y0_turned = tl.load(y0_turned_ptr + col % size_1, mask=mask)
    mul = cumsum * y0_turned
    tl.store(out_ptr + index, mul, mask=mask)


def launch_mul(cumsum, y0_turned):
    out = torch.empty(cumsum.shape, dtype=cumsum.dtype, device=cumsum.device)
    size_1 = out.shape[1]
    cols = out.shape[0] * out.shape[1]
    BLOCK = 512
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    mul_kernel[grid](cumsum, y0_turned, out, cols, size_1, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def amax_kernel(x0__ptr, out_ptr, reds, cols, RED: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = ((tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    acc = tl.full((RED, BLOCK), float("-inf"), tl.float32)
    lost = tl.full((RED, BLOCK), 0, tl.float32)
    for start in range(0, reds, RED):
        red = (start + tl.arange(0, RED))[:, None].to(tl.int64)
        mask = (red < reds) & (col < cols)
        index = (row * reds + red) * cols + col
        x0_ = tl.load(x0__ptr + index, mask=mask)
        acc, lost = op_keep_max(acc, lost, tl.where(mask, x0_, float("-inf")))
    amax = op_max_over(acc)[None, :]
    out_index = row * cols + col
    tl.store(out_ptr + out_index, amax, mask=col < cols)


def launch_amax(x0_):
    reds, cols = x0_.shape[0], x0_.shape[1]
    out = torch.empty((x0_.shape[1],), dtype=x0_.dtype, device=x0_.device)
    RED, BLOCK = 8, 128
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    amax_kernel[grid](x0_, out, reds, cols, RED=RED, BLOCK=BLOCK, num_warps=1, num_stages=1)
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
    x0_, y0, = inputs
    if not (isinstance(x0_, torch.Tensor) and x0_.dtype == torch.float32 and x0_.shape == (3, 37) and x0_.is_contiguous()
        and isinstance(y0, torch.Tensor) and y0.dtype == torch.float32 and y0.shape == (37, 1) and y0.is_contiguous()):
        return False
    tensors = (x0_, y0, *model.parameters(), *model.buffers())
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

    def kernels(self, x0_, y0):
        """The fast path: one call a statement, no checks."""
        cumsum = launch_cumsum(x0_)
        y0_turned = y0.permute((1, 0))
        mul = launch_mul(cumsum, y0_turned)
        mul_turned = mul.permute((1, 0))
        amax = launch_amax(x0_)
        return [(mul_turned, amax,)]
