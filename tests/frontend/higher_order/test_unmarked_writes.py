"""Functions of autograd whose forward changes tensors in place, and does not say so."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

import torchmux

from ..training import BACKENDS, agree, broke, vector

WEIGHT = torch.linspace(0.5, 2.0, 4).requires_grad_()


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Centered(Function):
    """As sparsemax has it."""

    @staticmethod
    def forward(ctx, x, scratch=None):
        x -= x.max()
        if scratch is not None:
            scratch.add_(x.sum())
        out = x.clamp(min=-1.0)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, out = ctx.saved_tensors
        return grad * (x * 3 + out), None


class Itself(Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


def of_a_result(x):
    return Centered.apply(x * WEIGHT) * 2


def read_again(x):
    y = x * WEIGHT
    return Centered.apply(y) + y, y * 2


def of_a_view(x):
    y = x * WEIGHT
    part = y[1:]
    return Centered.apply(part), part + 1, y


def only_for_the_write(x):
    y = x * WEIGHT
    Centered.apply(y)
    return y


def of_another(x):
    scratch = torch.zeros(4)
    return Centered.apply(x * WEIGHT, scratch) + scratch, scratch[0]


def returned(x):
    y = x * WEIGHT
    z = Itself.apply(y)
    return z + y, z is y


def without_gradients(x):
    y = x.detach() + 1
    return Centered.apply(y) * WEIGHT, y


def behind_a_write(x):
    y = (x * WEIGHT).exp()
    y.mul_(2)
    z = Centered.apply(y)
    y.add_(1)
    return z * y.detach()


PROGRAMS = [
    of_a_result, read_again, of_a_view, only_for_the_write, of_another, returned, without_gradients,
]  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS)
def test_what_is_computed_in_the_graph_may_be_changed(backend, function):
    agree(function, vector().detach() * 0.1, backend=backend, parameters=(WEIGHT,))


def test_what_backward_needs_is_refused_as_in_eager(backend):
    """Of a tensor whose own backward pass needs what was changed, autograd knows by the count of the writes."""
    outcomes = []
    for run in (behind_a_write, torchmux.compile(behind_a_write, backend=backend)):
        try:
            run(vector()).sum().backward()
            outcomes.append(None)
        except RuntimeError as error:
            outcomes.append("modified by an inplace operation" in str(error))
    assert outcomes == [True, True]


def test_an_input_is_changed_in_eager(backend):
    compiled = torchmux.compile(lambda x: Centered.apply(x), backend=backend)
    given, expected = vector(grad=False), vector(grad=False)
    assert torch.equal(compiled(given), Centered.apply(expected))
    assert torch.equal(given, expected)
    assert "in place" in broke(compiled)
