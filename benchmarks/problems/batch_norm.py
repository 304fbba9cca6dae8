"""Batch normalisation with batch statistics, as a model in training does it."""

import torch
import torch.nn as nn

BATCH, CHANNELS, HEIGHT, WIDTH = 64, 128, 64, 48


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
