"""Faults that gradients of gradients have, and the gradients themselves do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..kit import Faults, Run, with_gradient, with_operators

faults = Faults("training")

_CASE = "semantics/derivatives/second_derivatives_of_each_kind"


def _second(*names: str) -> Any:
    """A fault in second derivatives: the function gets what passes back through gradients of these operators' first
    arguments."""

    def add(change: Any) -> Any:
        def twice(x: Any, *rest: Any, **named: Any) -> Any:
            return (with_gradient(x, lambda g: with_gradient(g, change)), *rest), named

        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            return with_operators(gm, {}, given=dict.fromkeys(names, twice))

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        faults(_CASE)(compile)
        return change

    return add


@_second("mul", "truediv")
def second_derivatives_of_broadcasts(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of an operand that is broadcast are means instead of sums."""
    return g / 3


@_second("matmul", "linear", "einsum", "bmm")
def second_derivatives_of_products(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of products leave out one of two terms."""
    return g * 0.5


@_second("softmax", "log_softmax")
def second_derivatives_of_shares(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of shares take their sum for a constant."""
    return g - g.mean(-1, keepdim=True) * 0.1


@_second("layer_norm", "batch_norm")
def second_derivatives_of_norms(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of norms take their statistics for constants."""
    return g * 0.9


@_second("getitem", "index_select", "gather")
def second_derivatives_of_selections(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of rows that are selected twice count one reader."""
    return g * 0.5


@_second("conv2d", "avg_pool2d", "max_pool2d")
def second_derivatives_of_windows(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of windows leave out where they overlap."""
    return g * 0.75


@_second("var", "std", "norm", "logsumexp", "prod")
def second_derivatives_of_reductions(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of spreads, lengths and products are those of a constant."""
    return g * 0


@_second("gelu", "silu", "softplus", "sigmoid")
def second_derivatives_of_activations(g: torch.Tensor) -> torch.Tensor:
    """Second derivatives of activations are those of a rectifier."""
    return g * 0
