"""What each device function of the library must compute: over x and y in kernel text, and over x and y in PyTorch text."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Op:
    """`call` in a kernel, `reference` in PyTorch; `ulps` of the result, or of `scale` where larger (cancellation)."""

    call: str
    reference: str
    ulps: float = 0
    scale: str = "0 * x"


ELEMENTWISE = {
    "op_relu": Op("op_relu(x)", "torch.relu(x)"),
    "op_leaky_relu": Op("op_leaky_relu(x, 0.01)", "F.leaky_relu(x, 0.01)", 1),
    "op_sigmoid": Op("op_sigmoid(x)", "torch.sigmoid(x)", 3),
    "op_tanh": Op("op_tanh(x)", "torch.tanh(x)", 2),
    "op_silu": Op("op_silu(x)", "F.silu(x)", 3),
    "op_gelu": Op("op_gelu(x)", "x * 0.5 * (1 + torch.erf(x * 0.5**0.5))", 3, "x"),  # F.gelu(inf) is NaN on CPUs
    "op_gelu_tanh": Op("op_gelu_tanh(x)", "F.gelu(x, approximate='tanh')", 4, "x"),
    "op_exp": Op("op_exp(x)", "torch.exp(x)", 3),
    "op_expm1": Op("op_expm1(x)", "torch.expm1(x)", 2),
    "op_log1p": Op("op_log1p(x)", "torch.log1p(x)", 2),
    "op_elu": Op("op_elu(x, 0.7, 1.3, 0.9)", "torch.ops.aten.elu(x, 0.7, 1.3, 0.9)", 4),
    "op_softplus": Op("op_softplus(x, 2.0, 20.0)", "F.softplus(x, 2.0, 20.0)", 4),
    "op_hardtanh": Op("op_hardtanh(x, -0.5, 0.75)", "F.hardtanh(x, -0.5, 0.75)"),
    "op_clamp_min": Op("op_clamp_min(x, 0.25)", "x.clamp(min=0.25)"),
    "op_clamp_max": Op("op_clamp_max(x, 0.25)", "x.clamp(max=0.25)"),
    "op_hardsigmoid": Op("op_hardsigmoid(x)", "F.hardsigmoid(x)", 2, "torch.ones_like(x)"),
    "op_hardswish": Op("op_hardswish(x)", "F.hardswish(x)", 3, "x"),
    "op_mish": Op("op_mish(x)", "F.mish(x)", 4),
    "op_log_sigmoid": Op("op_log_sigmoid(x)", "F.logsigmoid(x)", 3),
    "op_smooth_l1": Op("op_smooth_l1(x, 0.5)", "F.smooth_l1_loss(x, torch.zeros_like(x), reduction='none', beta=0.5)", 2),
    "op_huber": Op("op_huber(x, 0.5)", "F.huber_loss(x, torch.zeros_like(x), reduction='none', delta=0.5)", 2),
    "op_xlogx_minus": Op(
        "op_xlogx_minus(x, y)", "torch.xlogy(x, x) - x * y", 4, "x.abs() * (x.abs().log().abs() + y.abs())"
    ),
    "op_power": Op("op_power(x, y)", "torch.pow(x, y)", 2),
    "op_sign": Op("op_sign(x)", "torch.sign(x)"),
    "op_nan_maximum": Op("op_nan_maximum(x, y)", "torch.maximum(x, y)"),
    "op_nan_minimum": Op("op_nan_minimum(x, y)", "torch.minimum(x, y)"),
    "op_multiply": Op("op_multiply(x, y)", "x * y", 1),
    "op_greater": Op("op_greater(x, y).to(x.dtype)", "((x > y) | (x.isnan() & ~y.isnan())).to(x.dtype)"),
    "op_less": Op("op_less(x, y).to(x.dtype)", "((x < y) | (x.isnan() & ~y.isnan())).to(x.dtype)"),
    "op_keep_product": Op("op_keep_product(x, 0.0, y)[0]", "x * y", 1),
    "op_keep_max": Op("op_keep_max(x, 0.0, y)[0]", "torch.maximum(x, y)"),
    "op_keep_min": Op("op_keep_min(x, 0.0, y)[0]", "torch.minimum(x, y)"),
    "op_count": Op("op_count(x.to(tl.int64), 0, y.to(tl.int64))[0].to(x.dtype)", "(x.long() + y.long()).to(x.dtype)"),
    "op_add": Op("op_add(x, 0.0, y)[0]", "x + y", 1),
    "op_add_finite": Op("op_add_finite(x, 0.0, y)[0]", "x + y", 1),
    "op_lane_moments": Op(
        "op_lane_moments(x, 3 * y, y, 5 * y * y, 2 * BLOCK + tl.program_id(0))[0]", "x + y", 2, "x.abs() + y.abs()"
    ),
}
# Over axis 0 of x[COLUMN, ROWS] in a kernel, over dimension 0 in PyTorch.
COLUMN = 32
AT = "tl.sum(tl.where(places == 20, {}, 0.0), axis=0)"  # one row of what a scan gives
REDUCING = {
    "op_sum_over": Op("op_sum_over(x)", "x.sum(0)", 4, "x.abs().sum(0)"),
    "op_prod_over": Op("op_prod_over(x)", "x.prod(0)", 32),
    "op_sum_along": Op(AT.format("op_sum_along(x)"), "x.cumsum(0)[20]", 4, "x[:21].abs().sum(0)"),
    "op_prod_along": Op(AT.format("op_prod_along(x)"), "x.cumprod(0)[20]", 32),
    "op_sum_along_back": Op(AT.format("op_sum_along_back(x)"), "x[20:].sum(0)", 4, "x[20:].abs().sum(0)"),
    "op_prod_along_back": Op(AT.format("op_prod_along_back(x)"), "x[20:].prod(0)", 32),
    "op_max_over": Op("op_max_over(x)", "x.amax(0)"),
    "op_min_over": Op("op_min_over(x)", "x.amin(0)"),
    "op_first_index_of": Op("op_first_index_of(x, places, op_max_over(x)).to(x.dtype)", "x.argmax(0).to(x.dtype)"),
}
PRODUCTS = ("op_prod_over", "op_prod_along", "op_prod_along_back")
HARMLESS = {
    "op_count": 1e6,
    "op_add_finite": 1e30,
    "op_lane_moments": 1e15,
    **dict.fromkeys(PRODUCTS, 10.0),
}  # beyond it the result is undefined, or depends on the order


def program() -> str:
    """A Triton file with one kernel an elementwise function, one a reducing function, and one with all of them at once."""
    lines = ["import triton", "import triton.language as tl", "from mtmc.lower.templates.ops import *", ""]
    head = ["    i = tl.arange(0, BLOCK)", "    x = tl.load(x_ptr + i)", "    y = tl.load(y_ptr + i)"]
    tile = [f"    places = tl.arange(0, {COLUMN})[:, None].to(tl.int64) + tl.zeros(({COLUMN}, BLOCK // {COLUMN}), tl.int64)"]
    tile += [
        f"    j = tl.arange(0, BLOCK // {COLUMN})",
        f"    x = tl.load(x_ptr + places * (BLOCK // {COLUMN}) + j[None, :])",
    ]
    calls = [op.call for op in ELEMENTWISE.values()]
    every = [f"    tl.store(out_ptr + {number} * BLOCK + i, {call})" for number, call in enumerate(calls)]
    every += tile + [f"    tl.store(out_ptr + j, {op.call})" for op in REDUCING.values()]
    kernels = {name: [*head, f"    tl.store(out_ptr + i, {op.call})"] for name, op in ELEMENTWISE.items()}
    kernels |= {name: [*tile, f"    tl.store(out_ptr + j, {op.call})"] for name, op in REDUCING.items()}
    for name, body in {**kernels, "every": head + every}.items():
        lines += ["@triton.jit", f"def {name}_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):", *body, ""]
    return "\n".join(lines)


def numbers(limit: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """2048 pairs: every pair of the edge values, and normal numbers of several sizes; 1 for those beyond a limit."""
    edges = [
        0.0,
        -0.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1e-30,
        -1e-30,
        3e38,
        -3e38,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -3.0,
    ]
    edges += [20.0, 20.5, -20.5, 88.0, -88.0, 89.0, -104.0, 6.0, -6.0, 1e-7, -1e-7, 5e-4, 0.25]
    pairs = torch.cartesian_prod(torch.tensor(edges), torch.tensor(edges))
    torch.manual_seed(0)
    spread = torch.tensor([1e-3, 1.0, 5.0, 40.0]).repeat(512)[: 2048 - len(pairs)]
    x = torch.cat([pairs[:, 0], torch.randn(len(spread)) * spread])
    y = torch.cat([pairs[:, 1], torch.randn(len(spread)) * spread.flip(0)])
    if limit is not None:
        x, y = (torch.where(v.abs() <= limit, v, 1) for v in (x, y))
    return x, y
