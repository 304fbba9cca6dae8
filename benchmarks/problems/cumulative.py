"""Running sums along rows."""

import torch
import torch.nn as nn

ROWS, COLS = 4096, 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.cumsum(x, 1) * 0.5


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
