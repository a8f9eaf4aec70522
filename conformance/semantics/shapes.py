"""Sizes that change between calls."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/shapes")


@case("dynamic_shapes")
def up_and_down(trial: Trial) -> Any:
    """A batch that grows and shrinks, including sizes one and zero."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))).eval()
    compiled = trial.compile(net, dynamic=True)
    with torch.no_grad():
        return [compiled(trial.tensor(rows, 6)) for rows in (4, 7, 2, 64, 1, 0, 5)]


@case("dynamic_shapes")
def two_sizes_at_once(trial: Trial) -> Any:
    """Two dimensions that change independently, used in arithmetic."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, columns = x.shape
        return x.reshape(-1), x.sum(0) / rows, x.t() * columns, x.new_ones(rows + columns), x[: rows // 2]

    compiled = trial.compile(f, dynamic=True)
    return [compiled(trial.tensor(*shape)) for shape in ((4, 6), (6, 4), (9, 3), (2, 2))]


@case("dynamic_shapes")
def length_of_a_sequence(trial: Trial) -> Any:
    """Attention with a causal mask over sequences of changing length."""
    torch.manual_seed(0)
    weights = trial.module(torch.nn.Linear(8, 24))

    def f(x: torch.Tensor) -> torch.Tensor:
        q, k, v = weights(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).flatten(2)

    compiled = trial.compile(f, dynamic=True)
    with torch.no_grad():
        return [compiled(trial.tensor(2, length, 8)) for length in (5, 9, 3)]


@case("dynamic_shapes", "training")
def gradients_of_changing_sizes(trial: Trial) -> Any:
    """Training with a changing batch size."""
    torch.manual_seed(0)
    layer = trial.module(torch.nn.Linear(6, 3))
    compiled = trial.compile(lambda x: layer(x).tanh().mean(), dynamic=True)
    for rows in (4, 7, 2):
        compiled(trial.tensor(rows, 6)).backward()
    return layer.weight.grad, layer.bias.grad


@case()
def static_then_another_shape(trial: Trial) -> Any:
    """Code compiled for one shape is not used for another."""
    compiled = trial.compile(lambda x: (x - x.mean(0)) / x.shape[0], dynamic=False)
    return [compiled(trial.tensor(*shape)) for shape in ((4, 3), (5, 3), (4, 3), (4, 7))]


@case()
def more_dimensions(trial: Trial) -> Any:
    """The number of dimensions may change from call to call."""
    compiled = trial.compile(lambda x: x.softmax(-1).sum(0))
    return [compiled(trial.tensor(*shape)) for shape in ((4,), (4, 3), (2, 3, 4))]
