# reference: layernorm
# expect: verified
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["cols"])})
@triton.jit
def layernorm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / cols
    x = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(x * x, axis=0) / cols + eps)
    w = tl.load(w_ptr + col, mask=mask)
    b = tl.load(b_ptr + col, mask=mask)
    tl.store(y_ptr + col, x * rstd * w + b, mask=mask)


class LayerNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shape, weight, bias, eps):
        y = torch.empty_like(x)
        flat = x.reshape(-1, x.shape[-1])
        rows, cols = flat.shape
        layernorm_kernel[(rows,)](flat, y, weight, bias, flat.stride(0), cols, eps)
        return y


layer_norm = LayerNormFunction.apply


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return layer_norm(x, self.norm.normalized_shape, self.norm.weight, self.norm.bias, self.norm.eps)
