"""A chain of elementwise operations with a parameter broadcast over rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLS = 4096, 8192


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(COLS))

    def forward(self, x, y):
        return F.gelu(x * y + self.shift) * 0.5


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
