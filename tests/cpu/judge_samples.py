"""Hand-written problems and candidates for the judge's tests. Candidates follow the conventions of docs/architecture.md."""

from mtmc.problem import Problem

REFERENCE = """
import torch
import torch.nn as nn

N, M = 37, 70


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), float(scale)))

    def forward(self, x):
        return torch.relu(x * self.scale)


def get_inputs():
    return [torch.rand(N, M) - 0.5]


def get_init_inputs():
    return [3.0]
"""

CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), float(scale)))

    def forward(self, x):
        return torch.relu(x * self.scale)


@triton.jit
def relu_kernel(x_ptr, p_scale_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    x = tl.load(x_ptr + index, mask=mask)
    scale = tl.load(p_scale_ptr)
    out = tl.maximum(x * scale, 0.0)
    tl.store(out_ptr + index, out, mask=mask)


def launch_relu(x, p_scale):
    out = torch.empty_like(x)
    numel = x.numel()
    BLOCK = 256
    relu_kernel[(triton.cdiv(numel, BLOCK),)](x, p_scale, out, numel, BLOCK=BLOCK, num_warps=4, num_stages=1)
    return out


SIZES = {}


class ModelNew(Model):
    def kernels(self, x):
        p_scale = self.scale
        relu = launch_relu(x, p_scale)
        return relu
"""


def changed(*pairs: tuple[str, str]) -> str:
    """The good candidate with pieces of its text replaced; each must be there."""
    text = CANDIDATE
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def problem(source: str = REFERENCE, **overrides: object) -> Problem:
    return Problem("sample", source, "sample.py", overrides=tuple(overrides.items()))


WRONG = changed(("x * scale", "x * scale * 1.001"))
SYNTAX = changed(("def launch_relu(x, p_scale):", "def launch_relu(x, p_scale:"))
NO_COMPILE = changed(("tl.maximum(x * scale, 0.0)", "tl.no_such_function(x)"))
OUT_OF_BOUNDS = changed(("x = tl.load(x_ptr + index, mask=mask)", "x = tl.load(x_ptr + index)"))
MASKED_STORE_TOO_FAR = changed(("mask = index < numel", "mask = index < numel + 1"))
FOR_EVER = changed(
    (
        "    tl.store(",
        "    again = 1\n    while again > 0:\n        again = (tl.load(x_ptr, volatile=True) < float('inf')).to(tl.int32)\n"
        "    tl.store(",
    )
)
HOST_FOR_EVER = changed(("    numel = x.numel()", "    numel = x.numel()\n    while True:\n        pass"))
EXITS = changed(("    numel = x.numel()", "    import os\n    numel = x.numel()\n    os._exit(3)"))
SYSTEM_EXIT = changed(("    numel = x.numel()", "    numel = x.numel()\n    raise SystemExit(0)"))
CRASHES = changed(("    numel = x.numel()", "    import ctypes\n    numel = x.numel()\n    ctypes.string_at(0)"))
RAISES = changed(("    numel = x.numel()", "    numel = x.numel()\n    raise ValueError('not mine')"))
GREEDY = changed(("    numel = x.numel()", "    numel = x.numel()\n    keep = [bytearray(1 << 26) for _ in range(64)]"))
PRINTS = changed(("    numel = x.numel()", "    print('x' * 100000)\n    numel = x.numel()"))
TOO_MUCH_SHARED = changed(
    (
        "    out = tl.maximum(x * scale, 0.0)\n",
        "    tile = tl.load(x_ptr + tl.arange(0, 64)[:, None] * 1024 + tl.arange(0, 1024)[None, :])\n"
        "    product = tl.dot(tile, tl.trans(tile), input_precision='tf32')\n"
        "    out = tl.maximum(x * scale, 0.0) + tl.sum(tl.sum(product, 1), 0)\n",
    ),
)
WRITES_INPUT = changed(
    (
        "    tl.store(out_ptr + index, out, mask=mask)",
        "    tl.store(out_ptr + index, out, mask=mask)\n    tl.store(x_ptr + index, out, mask=mask)",
    )
)
UNWRITTEN = changed(("tl.store(out_ptr + index, out, mask=mask)", "tl.store(out_ptr + index, out, mask=mask & (index > 0))"))
