"""Gradients of likelihoods: those of the classes of the samples, and zeros without a sign beside them."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import torchmux

SHAPES = ((3,), (4, 3), (2, 3, 2, 5), (0, 3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_a_likelihood(shape: tuple[int, ...], reduction: str) -> None:
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = torch.arange(math.prod(shape) // classes).view(shape[:1] + shape[2:] if len(shape) > 1 else ()) % classes
    for weight in (None, torch.tensor([0.5, 0.0, 2.0])):

        def loss(x: torch.Tensor, weight: torch.Tensor | None = weight) -> torch.Tensor:
            return F.nll_loss(x, target, weight=weight, ignore_index=1, reduction=reduction)

        torchmux.reset()
        compiled = torchmux.compile(loss, backend="native")
        x = torch.randn(shape, requires_grad=True)
        for factor in (1.0, -1.0, -math.inf):
            eager, found = (
                torch.autograd.grad(result, x, torch.full_like(result, factor))[0] for result in (loss(x), compiled(x))
            )
            torch.testing.assert_close(found, eager, equal_nan=True)
            assert torch.equal(found.signbit(), eager.signbit())
