"""The vocabulary: one row a layer. `{x}` is the value at hand, `{n}` a number that no other layer has.

A layer is what it adds to `__init__` and the expression in `forward`; `{f}` names the size of the last dimension (of the
channels in an image), an argument of the constructor, `{g}` the size that it becomes, `{s}` the value that a block began
with. `y` is the second input.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """`made` is a statement of `__init__` (empty: none), `used` an expression of `forward`.

    `shape` says what happens to the last dimension: `same`, `new` (it becomes `{g}`), `half`, or `gone`. `doc` is the word
    for it in the problem's name and description.
    """

    doc: str
    used: str
    made: str = ""
    shape: str = "same"


POINTWISE: tuple[Layer, ...] = (
    Layer("relu", "torch.relu({x})"),
    Layer("gelu", "F.gelu({x})"),
    Layer("tanh_gelu", 'F.gelu({x}, approximate="tanh")'),
    Layer("silu", "F.silu({x})"),
    Layer("mish", "F.mish({x})"),
    Layer("sigmoid", "torch.sigmoid({x})"),
    Layer("tanh", "torch.tanh({x})"),
    Layer("hardswish", "F.hardswish({x})"),
    Layer("relu6", "F.relu6({x})"),
    Layer("elu", "F.elu({x}, alpha=0.7)"),
    Layer("celu", "F.celu({x}, alpha=1.3)"),
    Layer("softplus", "F.softplus({x})"),
    Layer("logsigmoid", "F.logsigmoid({x})"),
    Layer("leaky", "F.leaky_relu({x}, 0.1)"),
    Layer("square", "torch.square({x})"),
    Layer("squared_relu", "torch.square(torch.relu({x}))"),
    Layer("softsign_root", "{x} * torch.rsqrt(1.0 + {x} * {x})"),
    Layer("log1p_abs", "torch.log1p(torch.abs({x}))"),
    Layer("clip", "torch.clamp({x}, -1.5, 2.5)"),
    Layer("affine", "{x} * 0.75 + 0.25"),
    Layer("sine", "{x} + torch.sin({x})"),
    Layer("exp_decay", "torch.exp(-torch.abs({x}))"),
    Layer("quick_gelu", "{x} * torch.sigmoid(1.702 * {x})"),
    Layer("cube_gate", "{x} * {x} * {x} - 0.5 * {x}"),
)

VECTORS: tuple[Layer, ...] = (
    Layer("scale", "{x} * self.scale{n}", "self.scale{n} = nn.Parameter(torch.rand({f}, dtype=DTYPE) + 0.5)"),
    Layer("shift", "{x} + self.shift{n}", "self.shift{n} = nn.Parameter(torch.randn({f}, dtype=DTYPE))"),
    Layer(
        "gain_bias",
        "{x} * self.gain{n} + self.bias{n}",
        "self.gain{n} = nn.Parameter(torch.rand({f}, dtype=DTYPE))\n"
        "self.bias{n} = nn.Parameter(torch.randn({f}, dtype=DTYPE))",
    ),
    Layer(
        "channel_gate",
        "{x} * torch.sigmoid(self.gate{n})",
        "self.gate{n} = nn.Parameter(torch.randn({f}, dtype=DTYPE))",
    ),
    Layer(
        "prelu_vector",
        "torch.where({x} > 0, {x}, {x} * self.slope{n})",
        "self.slope{n} = nn.Parameter(torch.rand({f}, dtype=DTYPE))",
    ),
)

NORMS: tuple[Layer, ...] = (
    Layer("layer_norm", "self.norm{n}({x})", "self.norm{n} = nn.LayerNorm({f}, dtype=DTYPE)"),
    Layer(
        "rms_norm",
        "{x} * torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * self.gain{n}",
        "self.gain{n} = nn.Parameter(torch.ones({f}, dtype=DTYPE))",
    ),
    Layer("softmax", "torch.softmax({x}, dim=-1)"),
    Layer("log_softmax", "torch.log_softmax({x}, dim=-1)"),
    Layer("softmin", "torch.softmax(-{x}, dim=-1)"),
    Layer("center", "{x} - {x}.mean(dim=-1, keepdim=True)"),
    Layer("standardise", "({x} - {x}.mean(dim=-1, keepdim=True)) / ({x}.std(dim=-1, keepdim=True) + 1e-3)"),
    Layer("max_scale", "{x} / ({x}.abs().amax(dim=-1, keepdim=True) + 1e-3)"),
    Layer("mean_gate", "{x} * torch.sigmoid({x}.mean(dim=-1, keepdim=True))"),
    Layer("unit_rows", "{x} / torch.sqrt(torch.sum({x} * {x}, dim=-1, keepdim=True) + 1e-6)"),
)

REDUCTIONS: tuple[Layer, ...] = (
    Layer("row_logsumexp", "torch.logsumexp({x}, dim=-1)", shape="gone"),
    Layer("row_sum_squares", "torch.sum({x} * {x}, dim=-1)", shape="gone"),
    Layer("row_variance", "torch.var({x}, dim=-1)", shape="gone"),
    Layer("row_peak", "torch.amax(torch.abs({x}), dim=-1)", shape="gone"),
    Layer("row_range", "torch.amax({x}, dim=-1) - torch.amin({x}, dim=-1)", shape="gone"),
    Layer("row_mean_exp", "torch.mean(torch.exp(-torch.abs({x})), dim=-1)", shape="gone"),
    Layer("row_energy", "torch.sqrt(torch.sum(torch.square({x}), dim=-1) + 1e-6)", shape="gone"),
)

PRODUCTS: tuple[Layer, ...] = (
    Layer("linear", "self.linear{n}({x})", "self.linear{n} = nn.Linear({f}, {g}, dtype=DTYPE)", "new"),
    Layer("projection", "self.linear{n}({x})", "self.linear{n} = nn.Linear({f}, {g}, bias=False, dtype=DTYPE)", "new"),
    Layer(
        "weight",
        "{x} @ self.weight{n}",
        "self.weight{n} = nn.Parameter(torch.randn({f}, {g}, dtype=DTYPE) / {f} ** 0.5)",
        "new",
    ),
)

GLU: tuple[Layer, ...] = (
    Layer("glu", "F.glu({x}, dim=-1)", shape="half"),
    Layer("geglu", "F.gelu({x}.chunk(2, dim=-1)[0]) * {x}.chunk(2, dim=-1)[1]", shape="half"),
    Layer("swiglu", "F.silu({x}.chunk(2, dim=-1)[0]) * {x}.chunk(2, dim=-1)[1]", shape="half"),
)

RESIDUALS: tuple[Layer, ...] = (
    Layer("residual", "{x} + {s}"),
    Layer("gated_by_input", "{x} * {s}"),
    Layer("half_residual", "0.5 * ({x} + {s})"),
)

IMAGE_NORMS: tuple[Layer, ...] = (
    Layer("group_norm", "self.norm{n}({x})", "self.norm{n} = nn.GroupNorm(8, {f}, dtype=DTYPE)"),
    Layer("batch_norm", "self.norm{n}({x})", "self.norm{n} = nn.BatchNorm2d({f}, dtype=DTYPE)"),
    Layer("instance_norm", "self.norm{n}({x})", "self.norm{n} = nn.InstanceNorm2d({f}, affine=True, dtype=DTYPE)"),
    Layer("channel_softmax", "torch.softmax({x}, dim=1)"),
)

IMAGE_VECTORS: tuple[Layer, ...] = (
    Layer(
        "channel_scale",
        "{x} * self.scale{n}",
        "self.scale{n} = nn.Parameter(torch.rand({f}, 1, 1, dtype=DTYPE) + 0.5)",
    ),
    Layer("channel_shift", "{x} + self.shift{n}", "self.shift{n} = nn.Parameter(torch.randn({f}, 1, 1, dtype=DTYPE))"),
)

CONVOLUTIONS: tuple[Layer, ...] = (
    Layer(
        "conv1x1",
        "self.conv{n}({x})",
        "self.conv{n} = nn.Conv2d({f}, {g}, kernel_size=1, dtype=DTYPE)",
        "new",
    ),
    Layer(
        "conv3x3",
        "self.conv{n}({x})",
        "self.conv{n} = nn.Conv2d({f}, {g}, kernel_size=3, padding=1, dtype=DTYPE)",
        "new",
    ),
)

IMAGE_REDUCTIONS: tuple[Layer, ...] = (
    Layer("channel_logsumexp", "torch.logsumexp({x}, dim=1)", shape="gone"),
    Layer("pixel_mean_square", "torch.mean({x} * {x}, dim=(2, 3))", shape="gone"),
    Layer("channel_range", "torch.amax({x}, dim=1) - torch.amin({x}, dim=1)", shape="gone"),
)

ATTENTIONS: tuple[Layer, ...] = (
    Layer(
        "attention",
        "F.scaled_dot_product_attention(self.query{n}({x}), self.key{n}({x}), self.value{n}({x}))",
        "self.query{n} = nn.Linear({f}, {f}, dtype=DTYPE)\n"
        "self.key{n} = nn.Linear({f}, {f}, dtype=DTYPE)\n"
        "self.value{n} = nn.Linear({f}, {f}, dtype=DTYPE)",
    ),
    Layer(
        "softmax_attention",
        "torch.softmax(self.query{n}({x}) @ self.key{n}({x}).transpose(-1, -2) * {x}.shape[-1] ** -0.5, dim=-1)"
        " @ self.value{n}({x})",
        "self.query{n} = nn.Linear({f}, {f}, bias=False, dtype=DTYPE)\n"
        "self.key{n} = nn.Linear({f}, {f}, bias=False, dtype=DTYPE)\n"
        "self.value{n} = nn.Linear({f}, {f}, bias=False, dtype=DTYPE)",
    ),
    Layer(
        "relu_attention",
        "(torch.relu(self.query{n}({x}) @ {x}.transpose(-1, -2)) / {x}.shape[1]) @ self.value{n}({x})",
        "self.query{n} = nn.Linear({f}, {f}, bias=False, dtype=DTYPE)\n"
        "self.value{n} = nn.Linear({f}, {f}, bias=False, dtype=DTYPE)",
    ),
)

GATED: tuple[Layer, ...] = (
    Layer(
        "swiglu_pair",
        "F.silu(self.gate{n}({x})) * self.up{n}({x})",
        "self.gate{n} = nn.Linear({f}, {g}, bias=False, dtype=DTYPE)\n"
        "self.up{n} = nn.Linear({f}, {g}, bias=False, dtype=DTYPE)",
        "new",
    ),
    Layer(
        "sigmoid_pair",
        "torch.sigmoid(self.gate{n}({x})) * self.up{n}({x})",
        "self.gate{n} = nn.Linear({f}, {g}, dtype=DTYPE)\nself.up{n} = nn.Linear({f}, {g}, dtype=DTYPE)",
        "new",
    ),
)

PAIRS: tuple[Layer, ...] = (
    Layer("add_inputs", "{x} + y"),
    Layer("gate_inputs", "{x} * torch.sigmoid(y)"),
    Layer("larger_input", "torch.maximum({x}, y)"),
    Layer("blend_inputs", "torch.lerp({x}, y, 0.3)"),
    Layer("scaled_difference", "({x} - y) * 0.5"),
)
