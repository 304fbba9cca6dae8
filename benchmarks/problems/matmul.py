"""A product with a broadcast addend and ReLU."""

import torch
import torch.nn as nn

M, N, K = 2048, 1024, 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(N))

    def forward(self, x, y):
        return torch.relu(x @ y + self.shift)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
