"""Group normalisation and SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, LENGTH = 64, 96, 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(6, CHANNELS)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return []
