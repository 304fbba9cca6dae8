# reference: gate
# expect: rejected dynamic.shifted_pointers | rejected dynamic.canaries | rejected dynamic.same_pointer | rejected dynamic.launches | wrong | rejected static.output_memo
# needs: gpu
# twin: replayed_at_every_call
"""The graph is replayed once, and its result given for ever."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, weight_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    z = tl.exp(-2.0 * tl.abs(x * weight))
    tanh = tl.where(x * weight < 0, z - 1.0, 1.0 - z) / (1.0 + z)
    tl.store(out_ptr + row * cols + col, tanh + tl.sum(x, 0), mask=mask)


def gate(x, weight, out=None):
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    gate_kernel[(rows,)](x, weight, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


class Graph:
    """A call captured after a warm-up."""

    def __init__(self, call):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = call()

    def __call__(self):
        self.graph.replay()
        return self.out.clone()


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)
        self.graph = None

    def forward(self, x):
        if self.graph is None or self.place.shape != x.shape:
            self.place = x.clone()
            self.graph = Graph(lambda: gate(self.place, self.weight))
            self.result = self.graph()
        self.place.copy_(x)
        return self.result
