"""relu(a @ b)."""

import torch
import torch.nn as nn

m, k, n = 19, 40, 22


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [torch.randn(m, k), torch.randn(k, n)]


def get_init_inputs():
    return []
