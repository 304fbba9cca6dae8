"""Log-softmax over channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, COLS = 128, 1000, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.log_softmax(x, 1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, COLS)]


def get_init_inputs():
    return []
