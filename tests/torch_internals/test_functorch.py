"""Transforms of functions."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks

ADD = torch.ops.aten.add.Tensor


@checks("is_functorch_active", "are_transforms_active")
def test_functorch() -> None:
    for ask in (ti.is_functorch_active, ti.are_transforms_active):
        seen = []
        torch.func.vmap(lambda x, ask=ask, seen=seen: seen.append(ask()) or x)(torch.ones(2))
        assert seen == [True]
        assert not ask()


@checks("is_batched")
def test_batched_gradients() -> None:
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: seen.append(ti.is_batched(gradient)))
    torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True, retain_graph=True)
    torch.autograd.grad(y, x, torch.ones(2))
    assert seen == [True, False]


@checks("beneath_functionalization")
def test_functionalization() -> None:
    def changes_and_adds(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y = ti.beneath_functionalization(ADD, (x.t(), 1), {})
        return y.add_(1)

    x = torch.arange(6.0).reshape(2, 3)
    wanted = (x * 2).t() + 2
    assert torch.equal(torch.func.functionalize(changes_and_adds)(x), wanted)
    assert torch.equal(x, wanted.t() - 2)
