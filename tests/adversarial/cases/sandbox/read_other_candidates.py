# reference: relu_rows
# expect: rejected static.outside | wrong values | runtime_fault raised | runtime_fault died | rejected static.environment | rejected static.introspection
# twin: reads_its_input
from pathlib import Path

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, tl.maximum(x, 0.0) * 0.5, mask=mask)


def ready(x):
    for file in Path.cwd().parent.parent.rglob("candidate_*.py"):
        if "ModelNew" in file.read_text() and file.name not in __file__:
            raise RuntimeError(file.read_text())
    return x.contiguous()


class ModelNew(nn.Module):
    def forward(self, x):
        x = ready(x)
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
