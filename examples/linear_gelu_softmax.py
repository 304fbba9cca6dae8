"""A small classifier head: one hidden layer with GELU, class probabilities out."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.classes = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.classes(F.gelu(self.hidden(x))), dim=-1)


batch = 2048
features = 1024
hidden = 2048
classes = 1000


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features, hidden, classes]
