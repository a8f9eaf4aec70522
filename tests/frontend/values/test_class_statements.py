"""Class statements in traced functions: put off where nobody uses the class, run where somebody does."""

from __future__ import annotations

import pytest
import torch

import torchmux

X = torch.linspace(-2, 2, 6)
LOG = []


class Registering:
    def __init_subclass__(cls):
        LOG.append(cls.__name__)


def unused(x):
    def helper(y):
        return y * 2

    class Double(torch.autograd.Function):
        """Not taken for tensors of this kind."""

        factor = 2

        @staticmethod
        def forward(ctx, y):
            return helper(y)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Double.apply(x) if x.dtype is torch.int64 else helper(x)


def made_and_returned(x):
    class Plain:
        def __init__(self, value):
            self.value = value

        def __repr__(self):
            return super().__repr__() + str(self.value)

    return x + 1, Plain.__name__, Plain(3).value


def returned(x):
    class Plain:
        size = 3

    return x + 1, {"class": Plain}


def in_a_closure(x):
    class Plain:
        size = 3

    def later():
        return Plain.size

    return x * 2, later


def breaks_elsewhere(x):
    class Unused:
        pass

    x = x + 1
    torchmux.graph_break()
    return x * 2


def body_with_effects(x):
    class Loud:
        LOG.append("body")

    return x + 1


def base_with_effects(x):
    class Derived(Registering):
        pass

    return x + 1


def masked(x):
    return torch.masked.sum(x, dim=0, mask=x > 0)


def plain(result):
    """What can be compared of a result: classes are new ones with each call."""
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if isinstance(result, type):
        return result.__qualname__, result.size
    return result() if callable(result) and not isinstance(result, torch.Tensor) else result


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return all(map(same, a, b)) if isinstance(a, tuple) else a == b


@pytest.mark.parametrize("fn", [unused, masked])
def test_a_class_that_nobody_uses_breaks_nothing(fn):
    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    x = X.clone().requires_grad_()
    assert torch.equal(compiled(x), fn(x))
    assert torch.equal(*(torch.autograd.grad(each(x).sum(), x)[0] for each in (compiled, fn)))
    assert torchmux.report(compiled).graph_count == 1


@pytest.mark.parametrize(
    "fn", [made_and_returned, returned, in_a_closure, breaks_elsewhere, body_with_effects, base_with_effects]
)
def test_a_class_that_is_needed_is_made(fn):
    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        LOG.clear()
        expected, log = plain(fn(X)), list(LOG)
        LOG.clear()
        assert same(plain(compiled(X)), expected)
        assert log == LOG
    assert torchmux.report(compiled).graph_count >= 1


def test_the_other_way_through_uses_it():
    compiled = torchmux.compile(unused, backend="eager")
    for x in (X, torch.arange(3), X, torch.arange(4)):
        assert torch.equal(compiled(x), unused(x))


def test_fullgraph_says_what_breaks():
    with pytest.raises(torchmux.Unsupported, match="explicit graph break"):
        torchmux.compile(breaks_elsewhere, backend="eager", fullgraph=True)(X)
