"""Batch normalisation over 2^31 + 2^26 elements (8.9 GB), float32."""

import torch
import torch.nn as nn

BATCH, CHANNELS, HEIGHT, WIDTH = 33, 4, 4096, 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
