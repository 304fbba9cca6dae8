# reference: relu_rows
# expect: rejected static.outside | runtime_fault died
# twin: no_reply
import os
import pickle
import struct

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
    from mtmc.verdict import Accuracy

    reply = pickle.dumps(Accuracy(0.0, 0.0, ("all",)))
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack(">Q", len(reply)) + reply)
        except OSError:
            continue
    os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x):
        x = ready(x)
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
