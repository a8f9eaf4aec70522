"""The cast of a weight that was made outside of a graph, as the graph differentiates it."""

from __future__ import annotations

from typing import Any

import torch


class _Cast(torch.autograd.Function):
    """A tensor in place of what another would be cast to; derivatives are those of the conversion."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: torch.Tensor, cast: torch.Tensor) -> torch.Tensor:
        return cast.view_as(cast)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
        weight, cast = inputs
        ctx.dtypes = weight.dtype, cast.dtype

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient.to(ctx.dtypes[0]), None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _: Any) -> torch.Tensor:
        return tangent.to(ctx.dtypes[1])


def cast_of(weight: torch.Tensor, cast: torch.Tensor) -> torch.Tensor:
    """``cast``, which autocast has made of ``weight``: what depends on it has a gradient with respect to ``weight``."""
    found: torch.Tensor = _Cast.apply(weight, cast)
    return found
