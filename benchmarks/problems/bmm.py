"""A batched product, scaled."""

import torch
import torch.nn as nn

BATCH, M, N, K = 64, 512, 256, 384


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return torch.bmm(x, y) / 8.0


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
