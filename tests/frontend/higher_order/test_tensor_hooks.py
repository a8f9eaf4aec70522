"""``Tensor.register_hook`` on what the graph computes."""

from __future__ import annotations

import pytest
import torch

import torchmux


def two_hooks(x, w):
    y = x * w
    y.register_hook(lambda grad: grad * 2)
    z = y.sin()
    z.register_hook(lambda grad: None)
    return (y + z).sum()


def clipped(x, w):
    scale = w.sum()
    y = (x @ w.view(-1, 1)).relu()
    y.register_hook(lambda grad: torch.clamp(grad * scale.detach(), -0.05, 0.05))
    return y.mean() * scale


def changed_afterwards(x, w):
    y = x * w
    y.register_hook(lambda grad: grad * 5)
    y += 1
    y.mul_(w)
    return y.sum()


def used_before(x, w):
    y = x * w
    z = y.cos()
    y.register_hook(lambda grad: grad * 2)
    return (y + z).sum()


def of_a_view(x, w):
    y = x * w
    part = y[0]
    part.register_hook(lambda grad: grad * 2)
    part += 1
    return (y.sum() + part).sum()


def notes(x, w):
    seen = []
    y = x * w
    y.register_hook(seen.append)
    y.sum().backward(retain_graph=True)
    return y.sum() + seen[0].sum()


def removed(x, w):
    y = x * w
    y.register_hook(lambda grad: grad * 5).remove()
    return y.sum()


def of_an_argument(x, w):
    x.register_hook(lambda grad: grad * 3)
    return (x * w).sum()


def outlives(x, w):
    y = x * w
    y.register_hook(lambda grad: grad * 10)
    y.retain_grad()
    z = (y * y).sum()
    z.backward(retain_graph=True)
    return z, y.grad, torch.autograd.grad(z, y, retain_graph=True)[0]


def is_returned(x, w):
    y = x * w
    y.register_hook(lambda grad: grad * 10)
    return (y * y).sum(), y


def by_what_was_used(x, w):
    """An ``autograd`` that sees a graph as one step would find no gradient."""
    y = x * w
    z = (y**3).sum()
    return z, torch.autograd.grad(z, y, retain_graph=True, allow_unused=True)[0]


def retained_after_use(x, w):
    y = x * w
    z = (y**3).sum()
    y.retain_grad()
    z.backward(retain_graph=True)
    return z, y.grad


ONE_GRAPH = [two_hooks, clipped, changed_afterwards]


@pytest.mark.parametrize(
    "function",
    [
        *ONE_GRAPH,
        outlives,
        is_returned,
        used_before,
        of_a_view,
        notes,
        removed,
        of_an_argument,
        by_what_was_used,
        retained_after_use,
    ],
)
def test_hooks_are_as_in_eager(function):
    compiled = torchmux.compile(function, backend="aot_eager", fullgraph=function in ONE_GRAPH)
    outcomes = []
    for each in (function, compiled, compiled):
        torch.manual_seed(0)
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        results = each(x, w)
        results = results if isinstance(results, tuple) else (results,)
        if function is is_returned:
            results = (*results, *torch.autograd.grad(results[0], results[1], retain_graph=True))
        sum(result.sum() for result in results if result.requires_grad).backward()
        outcomes.append([*results, x.grad, w.grad])
    for found in outcomes[1:]:
        for a, b in zip(outcomes[0], found, strict=True):
            torch.testing.assert_close(b, a)
