"""Positions in sorted sequences and bags of rows: as eager, without its kernels."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import torchmux


def held(fn, *args):
    compiled = torchmux.compile(fn, backend="native", strict="own")
    got, expected = compiled(*args), fn(*args)
    torch.testing.assert_close(got, expected, equal_nan=True)
    assert got.stride() == expected.stride()


@pytest.mark.parametrize("right", [False, True])
def test_positions(right):
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 9.0])
    edges, few = torch.linspace(-2, 2, 37), torch.tensor([1, 4, 4, 4, 9])
    x, rows = torch.cat((torch.randn(50), edges[::5], special)), torch.randn(3, 11).sort(-1).values

    def search(x, edges, few, rows, numbers, mixed):
        return (
            torch.searchsorted(edges, x, right=right)
            + torch.bucketize(x, edges, out_int32=True, right=right)
            + torch.bucketize(numbers, few, right=right)
            + torch.searchsorted(rows, x.expand(3, -1), side="right" if right else "left").sum(0)
            + torch.searchsorted(mixed, x, right=right)  # not sorted: the same steps lead to the same place
        )

    held(search, x, edges, few, rows, torch.arange(len(x)) % 12 - 1, torch.randn(20))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size(mode):
    at, weight = torch.randint(0, 50, (7, 5)), torch.randn(50, 19)
    if mode == "max":  # a nan is the maximum only of a bag that it is the first of
        at[0], at[1] = torch.tensor([3, 4, 5, 6, 7]), torch.tensor([4, 3, 5, 6, 7])
        weight[3, ::2] = math.nan
    with torch.no_grad():
        held(lambda at, weight: F.embedding_bag(at, weight, mode=mode), at, weight)
        compiled = torchmux.compile(lambda at, weight: F.embedding_bag(at, weight), backend="native")
        with pytest.raises(RuntimeError, match="not in the valid range"):
            compiled(at + 50, weight)


@pytest.mark.parametrize("bags", [torch.tensor([0, 2]), torch.tensor([0, 3]), None], ids=["two", "equal", "rows"])
def test_gradients_of_bags_whose_weights_are_a_column(bags):
    """torch's kernel asks which bag an element is in if the weights are not in a row."""
    words = torch.tensor([0, 2, 1, 2, 0, 1])
    words = words.view(2, 3) if bags is None else words

    def gradients(function):
        torch.manual_seed(0)
        rows, weights = torch.randn(3, 4, requires_grad=True), torch.randn(6, 3, requires_grad=True)
        result = function(rows, weights)
        return result, *torch.autograd.grad(result, [rows, weights], torch.linspace(1, 2, 8).view(2, 4))

    def f(rows, weights):
        return F.embedding_bag(words, rows, bags, mode="sum", per_sample_weights=weights[:, 1].view(words.shape))

    torch.testing.assert_close(gradients(torchmux.compile(f, backend="native")), gradients(f))
