"""Layer norm with weights that start as ones and zeros."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 40, 96


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
