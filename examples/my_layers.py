"""Plain modules, used as `--entry examples/my_layers.py:FeedForward --inputs "x=float32[4096,512]" --init "512, 2048"`."""

import torch
import torch.nn as nn


class SquaredReLU(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).square()


class FeedForward(nn.Module):
    """Layer norm, then two linear layers with a squared ReLU between them, added to the input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.act = SquaredReLU()
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))
