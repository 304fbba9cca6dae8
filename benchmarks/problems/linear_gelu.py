"""A linear layer with an epilogue."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, WIDE, NARROW = 1024, 8192, 2048


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDE, NARROW)

    def forward(self, x):
        return F.gelu(self.fc(x)) * 0.5


def get_inputs():
    return [torch.randn(ROWS, WIDE)]


def get_init_inputs():
    return []
