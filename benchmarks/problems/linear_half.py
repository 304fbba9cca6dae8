"""A linear layer in half precision."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, WIDE, NARROW = 1024, 4096, 2048


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDE, NARROW).half()

    def forward(self, x):
        return F.silu(self.fc(x))


def get_inputs():
    return [torch.randn(ROWS, WIDE).half()]


def get_init_inputs():
    return []
