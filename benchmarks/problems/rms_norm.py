"""Root-mean-square normalisation with a gain."""

import torch
import torch.nn as nn

ROWS, COLS, EPS = 8192, 4096, 1e-5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(COLS) + 0.5)

    def forward(self, x):
        return x / (x * x).mean(-1, keepdim=True).add(EPS).sqrt() * self.gain


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
