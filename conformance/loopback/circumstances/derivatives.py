"""Faults that only gradients of gradients have, or gradients of operands that are seldom given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


_APART = "semantics/seldom/gradients_of_layers_apart"


def _learns_more(name: str, text: str, at: int, when: Callable[..., Any], *names: str) -> None:
    """A fault: the gradient of the argument at this place is a twentieth too large if the arguments are such."""

    def more(*args: Any, **named: Any) -> Any:
        if len(args) <= at or not when(*args):
            return args, named
        return (*args[:at], with_gradient(args[at], lambda g: g * 1.05), *args[at + 1 :]), named

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return with_operators(gm, {}, given=dict.fromkeys(names, more))

    compile.__name__, compile.__doc__ = name, text
    faults(_APART)(compile)


def _is(dtype: torch.dtype) -> Callable[..., bool]:
    return lambda x, *rest: isinstance(x, torch.Tensor) and x.dtype is dtype


def _times_integers(x: Any, y: Any) -> bool:
    return isinstance(y, torch.Tensor) and not y.is_floating_point()


for _told in (
    ("times_integers_learns_more", "Factors of integers count twice where they begin.", 0, _times_integers, "mul"),
    ("taken_from_a_number_learns_more", "What is taken from a number learns more.", 1,
     lambda x, *rest: isinstance(x, (int, float)), "sub", "rsub"),
    ("often_taken_learns_more", "Elements that are taken more often than there are any learn more.", 0,
     lambda x, dim, index: index.numel() > x.numel(), "gather"),
    ("matrices_before_batches_learn_more", "A matrix before a batch of matrices learns more.", 0,
     lambda x, y: x.dim() == 2 and y.dim() > 2, "matmul"),
    ("doubles_in_products_learn_more", "Factors in double precision learn more.", 1, _is(torch.float64), "matmul"),
    ("halves_in_products_learn_more", "Factors in half precision learn more.", 0, _is(torch.float16), "matmul"),
    ("halves_in_windows_learn_more", "Pixels of half precision in windows learn more.", 0, _is(torch.float16),
     "max_pool2d"),
    ("halves_in_norms_learn_more", "Images of half precision that are normalized learn more.", 0, _is(torch.float16),
     "batch_norm"),
    ("places_beyond_borders_learn_more", "Places beyond the borders of an image learn more.", 1,
     lambda *args: True, "grid_sample"),
    ("lengths_that_stay_learn_more", "Lengths along a dimension that stays learn more.", 0,
     lambda *args: True, "norm"),
):  # fmt: skip
    _learns_more(*_told)
