"""Programs that the tests measure."""

from __future__ import annotations

import torch


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def small():
    return Small(), torch.randn(4, 8)


def several():
    model = Small()
    return {"four": (model, torch.randn(4, 8)), "nine": (model, torch.randn(9, 8))}


def noisy():
    def function(x):
        return x + torch.randn(8)

    return function, torch.ones(8)
