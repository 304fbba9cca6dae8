"""batch_norm: Triton kernels for the model below. Needs torch and triton only."""


import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


import torch.nn as nn
import torch.nn.functional as F


C = 5


class Case0(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(C)
    def forward(self, x):
        return F.relu(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.case0 = Case0()
    def forward(self, x0):
        y0 = self.case0(x0)
        return [y0]


@triton.jit
def op_add_finite(acc, lost, x):
    """acc + x with what rounding lost, for what is finite; an infinite sum becomes NaN, as the variance of such data is."""
    y = x - lost
    total = acc + y
    return total, (total - acc) - y


@triton.jit
def op_lane_moments(pivot, total, lost, squares, n):
    """Mean, count and squared deviations of each lane over its part of n elements: `total`, less `lost`, sums x - pivot, `squares` its squares."""
    lanes: tl.constexpr = total.shape[0]
    lane = tl.arange(0, lanes)
    if len(total.shape) == 2:
        lane = lane[:, None]
    count = ((n + lanes - 1 - lane) // lanes).to(total.dtype)
    mean = (tl.fma(pivot, count, total) - lost) / count  # rounded once, also where the pivot is far larger than the mean
    total -= lost
    rest = squares - total * (total / count)
    return tl.where(count > 0, mean, 0.0), count, tl.where((count > 0) & (rest > 0), rest, 0.0)


@triton.jit
def op_relu(x):
    """max(x, 0), NaN kept."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def batch_norm_moments_kernel(x0__ptr, mean_ptr, var_ptr, rows, reds, cols, BLOCK: tl.constexpr):
    red = tl.program_id(0).to(tl.int64)
    first = 0
    last = rows * cols
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    rest = tl.zeros((BLOCK,), tl.float32)
    pivot = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = (at // cols).to(tl.int64)
        col = at % cols
        mask = at < rows * cols
        index = (row * reds + red) * cols + col
        x0_ = tl.load(x0__ptr + index, mask=mask)
        pivot = tl.where(start == first, x0_, pivot)
        delta = tl.where(mask, x0_ - pivot, 0.0)
        total, lost = op_add_finite(total, lost, delta)
        squares, rest = op_add_finite(squares, rest, delta * delta)
    n = last - first
    mean, count, squares = op_lane_moments(pivot, total, lost, squares - rest, n)
    total_mean = tl.sum(count * mean, axis=0) / n
    total_squares = tl.sum(squares + count * (mean - total_mean) * (mean - total_mean), axis=0)
    out_index = red
    tl.store(mean_ptr + out_index, total_mean)
    tl.store(var_ptr + out_index, total_squares / n)


def launch_batch_norm_moments(x0_):
    reds = x0_.shape[1]
    cols = x0_.shape[2]
    rows = x0_.numel() // (reds * cols)
    mean = torch.empty((x0_.shape[1],), dtype=x0_.dtype, device=x0_.device)
    var = torch.empty_like(mean)
    BLOCK = 256
    grid = (reds,)
    batch_norm_moments_kernel[grid](x0_, mean, var, rows, reds, cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return mean, var


@triton.jit
def batch_norm_rstd_kernel(batch_norm_var_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    batch_norm_var = tl.load(batch_norm_var_ptr + index, mask=mask)
    batch_norm_rstd = 1.0 / tl.sqrt_rn(batch_norm_var + 1e-05)
    tl.store(out_ptr + index, batch_norm_rstd, mask=mask)


def launch_batch_norm_rstd(batch_norm_var):
    out = torch.empty(batch_norm_var.shape, dtype=batch_norm_var.dtype, device=batch_norm_var.device)
    numel = out.numel()
    BLOCK = 512
    grid = (triton.cdiv(numel, BLOCK),)
    batch_norm_rstd_kernel[grid](batch_norm_var, out, numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def batch_norm_normal_kernel(x0__ptr, batch_norm_mean_view_ptr, batch_norm_rstd_view_ptr, out_ptr, cols, size_2, size_1, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    index = row * cols + col
    x0_ = tl.load(x0__ptr + index, mask=mask)
    batch_norm_mean_view = tl.load(batch_norm_mean_view_ptr + col // size_2 % size_1, mask=mask)
    batch_norm_rstd_view = tl.load(batch_norm_rstd_view_ptr + col // size_2 % size_1, mask=mask)
    batch_norm_normal = (x0_ - batch_norm_mean_view) * batch_norm_rstd_view
    tl.store(out_ptr + index, batch_norm_normal, mask=mask)


def launch_batch_norm_normal(x0_, batch_norm_mean_view, batch_norm_rstd_view):
    out = torch.empty(x0_.shape, dtype=x0_.dtype, device=x0_.device)
    size_2 = out.shape[2]
    size_1 = out.shape[1]
    cols = out.shape[0] * out.shape[1] * out.shape[2]
    BLOCK = 512
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    batch_norm_normal_kernel[grid](x0_, batch_norm_mean_view, batch_norm_rstd_view, out, cols, size_2, size_1, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def batch_norm_scaled_kernel(batch_norm_normal_ptr, p_case0_norm_weight_view_ptr, out_ptr, cols, size_2, size_1, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    index = row * cols + col
    batch_norm_normal = tl.load(batch_norm_normal_ptr + index, mask=mask)
    p_case0_norm_weight_view = tl.load(p_case0_norm_weight_view_ptr + col // size_2 % size_1, mask=mask)
    batch_norm_scaled = batch_norm_normal * p_case0_norm_weight_view
    tl.store(out_ptr + index, batch_norm_scaled, mask=mask)


def launch_batch_norm_scaled(batch_norm_normal, p_case0_norm_weight_view):
    out = torch.empty(batch_norm_normal.shape, dtype=batch_norm_normal.dtype, device=batch_norm_normal.device)
    size_2 = out.shape[2]
    size_1 = out.shape[1]
    cols = out.shape[0] * out.shape[1] * out.shape[2]
    BLOCK = 512
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    batch_norm_scaled_kernel[grid](batch_norm_normal, p_case0_norm_weight_view, out, cols, size_2, size_1, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def batch_norm_kernel(batch_norm_scaled_ptr, p_case0_norm_bias_view_ptr, out_ptr, cols, size_2, size_1, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    index = row * cols + col
    batch_norm_scaled = tl.load(batch_norm_scaled_ptr + index, mask=mask)
    p_case0_norm_bias_view = tl.load(p_case0_norm_bias_view_ptr + col // size_2 % size_1, mask=mask)
    batch_norm = batch_norm_scaled + p_case0_norm_bias_view
    tl.store(out_ptr + index, batch_norm, mask=mask)


def launch_batch_norm(batch_norm_scaled, p_case0_norm_bias_view):
    out = torch.empty(batch_norm_scaled.shape, dtype=batch_norm_scaled.dtype, device=batch_norm_scaled.device)
    size_2 = out.shape[2]
    size_1 = out.shape[1]
    cols = out.shape[0] * out.shape[1] * out.shape[2]
    BLOCK = 512
    grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)
    batch_norm_kernel[grid](batch_norm_scaled, p_case0_norm_bias_view, out, cols, size_2, size_1, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def batch_norm_running_mean_kernel(b_case0_norm_running_mean_ptr, batch_norm_mean_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    b_case0_norm_running_mean = tl.load(b_case0_norm_running_mean_ptr + index, mask=mask)
    batch_norm_mean = tl.load(batch_norm_mean_ptr + index, mask=mask)
    batch_norm_running_mean = b_case0_norm_running_mean * 0.9 + batch_norm_mean * 0.1
    tl.store(out_ptr + index, batch_norm_running_mean, mask=mask)


def launch_batch_norm_running_mean(b_case0_norm_running_mean, batch_norm_mean):
    out = torch.empty(b_case0_norm_running_mean.shape, dtype=b_case0_norm_running_mean.dtype, device=b_case0_norm_running_mean.device)
    numel = out.numel()
    BLOCK = 512
    grid = (triton.cdiv(numel, BLOCK),)
    batch_norm_running_mean_kernel[grid](b_case0_norm_running_mean, batch_norm_mean, out, numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def batch_norm_running_var_kernel(b_case0_norm_running_var_ptr, batch_norm_var_ptr, batch_norm_count, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    b_case0_norm_running_var = tl.load(b_case0_norm_running_var_ptr + index, mask=mask)
    batch_norm_var = tl.load(batch_norm_var_ptr + index, mask=mask)
    batch_norm_running_var = b_case0_norm_running_var * 0.9 + batch_norm_var * batch_norm_count * 0.1
    tl.store(out_ptr + index, batch_norm_running_var, mask=mask)


def launch_batch_norm_running_var(b_case0_norm_running_var, batch_norm_var, batch_norm_count):
    out = torch.empty(b_case0_norm_running_var.shape, dtype=b_case0_norm_running_var.dtype, device=b_case0_norm_running_var.device)
    numel = out.numel()
    BLOCK = 512
    grid = (triton.cdiv(numel, BLOCK),)
    batch_norm_running_var_kernel[grid](b_case0_norm_running_var, batch_norm_var, batch_norm_count, out, numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def relu_kernel(batch_norm_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    batch_norm = tl.load(batch_norm_ptr + index, mask=mask)
    relu = op_relu(batch_norm)
    tl.store(out_ptr + index, relu, mask=mask)


def launch_relu(batch_norm):
    out = torch.empty(batch_norm.shape, dtype=batch_norm.dtype, device=batch_norm.device)
    numel = out.numel()
    BLOCK = 512
    grid = (triton.cdiv(numel, BLOCK),)
    relu_kernel[grid](batch_norm, out, numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


# Sizes that no kernel can read from a tensor.
SIZES = {
    'batch_norm_count': 1.0909090909090908,
}


# Plain attributes of the reference's modules that are written into the kernels as numbers.
CONFIG = {
    'training': True,
    'case0.training': True,
    'case0.norm.training': True,
    'case0.norm.num_features': 5,
    'case0.norm.eps': 1e-05,
    'case0.norm.momentum': 0.1,
    'case0.norm.affine': True,
    'case0.norm.track_running_stats': True,
    'dtypes': ('torch.float32', 'torch.float32', 'torch.float32', 'torch.float32', 'torch.int64'),
    'shapes': ((5,), (5,), (5,), (5,), ()),
    'strides': ((1,), (1,), (1,), (1,), ()),
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
    if not (isinstance(x0_, torch.Tensor) and x0_.dtype == torch.float32 and x0_.shape == (3, 5, 4) and x0_.is_contiguous()):
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
        p_case0_norm_weight = self.case0.norm.weight
        p_case0_norm_bias = self.case0.norm.bias
        b_case0_norm_running_mean = self.case0.norm.running_mean
        b_case0_norm_running_var = self.case0.norm.running_var
        b_case0_norm_num_batches_tracked = self.case0.norm.num_batches_tracked
        add = torch.ops.aten.add.Tensor(b_case0_norm_num_batches_tracked, 1)
        batch_norm_mean, batch_norm_var = launch_batch_norm_moments(x0_)
        batch_norm_rstd = launch_batch_norm_rstd(batch_norm_var)
        batch_norm_mean_view = batch_norm_mean.view((-1, 1,))
        batch_norm_rstd_view = batch_norm_rstd.view((-1, 1,))
        batch_norm_normal = launch_batch_norm_normal(x0_, batch_norm_mean_view, batch_norm_rstd_view)
        p_case0_norm_weight_view = p_case0_norm_weight.view((-1, 1,))
        batch_norm_scaled = launch_batch_norm_scaled(batch_norm_normal, p_case0_norm_weight_view)
        p_case0_norm_bias_view = p_case0_norm_bias.view((-1, 1,))
        batch_norm = launch_batch_norm(batch_norm_scaled, p_case0_norm_bias_view)
        batch_norm_running_mean = launch_batch_norm_running_mean(b_case0_norm_running_mean, batch_norm_mean)
        batch_norm_running_var = launch_batch_norm_running_var(b_case0_norm_running_var, batch_norm_var, SIZES["batch_norm_count"])
        relu = launch_relu(batch_norm)
        self.case0.norm.running_mean.copy_(batch_norm_running_mean)
        self.case0.norm.running_var.copy_(batch_norm_running_var)
        self.case0.norm.num_batches_tracked.copy_(add)
        return [relu]
