"""A product whose result has 2^31 + 2^15 elements (8.6 GB), float32."""

import torch
import torch.nn as nn

M, N, K = 65537, 32768, 64


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
