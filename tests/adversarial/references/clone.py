"""A copy in memory of its own."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 40, 96


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.clone()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
