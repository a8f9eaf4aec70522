"""Training in half precision is as exact as eager's, also where gradients nearly cancel."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchmux


class Head(torch.nn.Module):
    """What ends a language model: the gradient that reaches the normalization points along what it normalizes."""

    def __init__(self, norm: Callable[[], torch.nn.Module]) -> None:
        super().__init__()
        self.dense, self.norm, self.out = torch.nn.Linear(64, 64), norm(), torch.nn.Linear(64, 1000)
        torch.nn.init.normal_(self.dense.weight, std=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(F.gelu(self.dense(x))))


NORMS = {
    "layer": lambda: torch.nn.LayerNorm(64),
    "group": lambda: torch.nn.GroupNorm(2, 64),
    "batch": lambda: torch.nn.BatchNorm1d(64),
}


def gradients(module: torch.nn.Module, function: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    module.zero_grad()
    function(x).double().square().mean().backward()
    return {name: parameter.grad.double() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("name", NORMS)
def test_gradients_behind_a_normalization(name: str) -> None:
    module = Head(NORMS[name])
    exact_module = copy.deepcopy(module.bfloat16()).double()
    x = torch.randn(512, 64).bfloat16()
    exact = gradients(exact_module, exact_module, x.double())
    eager = gradients(module, module, x)
    native = gradients(module, torchmux.compile(module, backend="native", fullgraph=True), x)
    for parameter, right in exact.items():
        ours, theirs = ((found[parameter] - right).square().mean().sqrt() for found in (native, eager))
        assert ours <= 1.3 * theirs, (parameter, float(ours / theirs))
