"""Softmax of rows over 2^31 + 2^16 elements (4.3 GB), bfloat16."""

import torch
import torch.nn as nn

ROWS, COLS = 32769, 65536


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLS).bfloat16()]


def get_init_inputs():
    return []
