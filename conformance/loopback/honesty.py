"""What is said of a backend is not so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch.fx import GraphModule

from torchmux.registry.options import FreeOptions

from .kit import Faults, Run, with_operators

faults = Faults("honesty")


@faults("semantics/use/runs_what_it_says")
def silent_fallback(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims to compute by itself, but lets torch run the graph."""
    return gm.forward


@faults("semantics/training/convolutions")
def silent_fallback_in_training(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims to compute training by itself, but lets torch run it."""
    return gm.forward


@faults("semantics/layers/pooling")
def silent_fallback_of_layers(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims layers that no probe of a few operators asks for, but lets torch run them."""
    return gm.forward


@faults("semantics/use/unknown_option", options=FreeOptions)
def ignored_option(gm: GraphModule, inputs: Sequence[Any], **options: Any) -> Run:
    """The backend accepts every option and ignores it."""
    return gm.forward


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.from_numpy(numpy.tanh(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return torch.from_numpy(x.detach().numpy() * y.detach().numpy())

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), (g * x).sum_to_size(y.shape)


@faults("semantics/use/trains_what_it_says")
def silent_fallback_in_backward(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend computes results by itself, but lets torch run the gradients of parameters."""
    return with_operators(gm, {}, {"tanh": _Tanh.apply, "mul": _Product.apply})
