"""x @ weight.T + bias."""

import torch
import torch.nn as nn

batch, features, classes = 20, 48, 24


class Model(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.fc = nn.Linear(features, classes)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features, classes]
