"""What forward saves for backward is freed after its last use there, and not at the end of the pass."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native.schedule import memory

SHAPE = (5, 77)
_alive: list[int] = []


@torch.library.custom_op("torchmux_test::look_back", mutates_args=())
def look_back(x: torch.Tensor) -> torch.Tensor:
    """Notes how many tensors of :data:`SHAPE` there are."""
    _alive.append(sum(type(v) is torch.Tensor and v.shape == SHAPE for v in gc.get_objects()))
    return x * 1


@torch.library.custom_op("torchmux_test::looked_at", mutates_args=())
def looked_at(x: torch.Tensor) -> torch.Tensor:
    return x * 1


look_back.register_fake(torch.empty_like)
looked_at.register_fake(torch.empty_like)
looked_at.register_autograd(lambda ctx, gradient: look_back(gradient))


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("learns", [True, False])
def test_what_is_saved_is_freed_after_its_last_use(learns: bool, turned: bool) -> None:
    """A part that is all of the graph, one that computes only some of its results, and one with views behind it."""
    second = torch.randn(77, 3, requires_grad=learns)
    weight = torch.randn((77, 8) if turned else (8, 77), requires_grad=True)

    def f(x):
        return (looked_at(x @ (weight.t() if turned else weight)).exp() @ second).sum()

    x = torch.randn(5, 8, requires_grad=learns)
    f(x).backward()
    wanted = weight.grad
    compiled = torchmux.compile(f, backend="native")
    for _ in range(3):
        _alive.clear()
        weight.grad = None
        compiled(x).backward()
        torch.testing.assert_close(weight.grad, wanted)
        assert _alive == [1], "the exponentials are still there beside their gradient"


def test_large_buffers_are_there_while_they_are_used(monkeypatch: pytest.MonkeyPatch, capture) -> None:
    """As on a GPU, where the arena would last for all of the call."""

    def f(x):
        kept = x.softmax(1).softmax(0).softmax(1)  # is read before the call and after it
        largest = kept.sum(0).sort().values
        return (kept * largest).softmax(0).softmax(1).softmax(0)

    def bytes_of_the_arena(limits: dict[str, int]) -> int:
        monkeypatch.setattr(memory, "LARGE", limits)
        compiled = captured.compile("native", options={"keep_scratch": bool(limits)})
        torch.testing.assert_close(captured.run(compiled, x), f(x))
        return sizes[-1]

    sizes: list[int] = []
    plan = memory.plan

    def noted(*given):
        arena = plan(*given)
        sizes.append(arena.size)
        return arena

    monkeypatch.setattr(memory, "plan", noted)
    x = torch.randn(40, 40)
    captured = capture(f, x)
    assert bytes_of_the_arena({"cpu": 0}) < bytes_of_the_arena({})


def test_a_graph_that_is_kept_keeps_what_is_saved() -> None:
    def f(x):
        return (looked_at(x @ x.t()).exp() @ x).sum()

    x = torch.randn(6, 6, requires_grad=True)
    result = torchmux.compile(f, backend="native")(x)
    (first,) = torch.autograd.grad(result, x, retain_graph=True)
    (second,) = torch.autograd.grad(result, x)
    assert torch.equal(first, second)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last, "turned"], ids=str)
def test_results_of_batch_norms_are_not_saved(layout: Any) -> None:
    """What SiLU needs in backward follows from what the norm needs."""

    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.silu(F.batch_norm(x, mean, variance, weight, bias, training=True))

    mean, variance = torch.zeros(6), torch.ones(6)
    images = torch.randn(4, 6, 5, 7)
    images = images.transpose(2, 3) if layout == "turned" else images.contiguous(memory_format=layout)
    leaves = [images.requires_grad_(), torch.rand(6, requires_grad=True), torch.randn(6, requires_grad=True)]
    eager = f(*leaves)
    gradients = torch.autograd.grad(eager.square().sum(), leaves)
    moved = mean.clone(), variance.clone()
    mean.zero_(), variance.fill_(1)
    result = torchmux.compile(f, backend="native", strict=True)(*leaves)
    saved = [t for t in result.grad_fn.saved_tensors if t.numel() == images.numel()]
    assert len(saved) == (2 if layout == "turned" else 1)
    assert result.stride() == eager.stride()
    torch.testing.assert_close(result, eager)
    torch.testing.assert_close((mean, variance), moved)
    torch.testing.assert_close(torch.autograd.grad(result.square().sum(), leaves), gradients)
