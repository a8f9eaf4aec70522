"""``ctx.mark_dirty``: an ``autograd.Function`` whose forward changes its arguments and returns them."""

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


class Triples(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5  # no gradient that autograd would find


class Multiplies(Function):
    @staticmethod
    def forward(x, y):
        x.mul_(y)
        return y * 2, x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output[1], inputs[1])

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        return second * y, first * x


def of_itself(x):
    y = x * WEIGHT
    z = Triples.apply(y)
    return y + z if z is y else y


def of_a_view(x):
    y = x * WEIGHT
    Triples.apply(y[:2])
    return y * 2


def with_a_view(x):
    y = x * WEIGHT
    part = y[:2]
    Triples.apply(y)
    return part.sum() + y


def saved(x):
    y = x * WEIGHT
    first, second = Multiplies.apply(y, WEIGHT)
    return first * second if second is y else y


def without_gradients(x):
    y = x.detach() * 2
    part = y[1:]
    with torch.no_grad():
        Triples.apply(y)
    return part * WEIGHT[1:], y


def several_times(x):
    y = x * WEIGHT
    for _ in range(3):
        Triples.apply(y)
    return y.exp()


@pytest.mark.parametrize("function", [of_itself, of_a_view, with_a_view, saved, without_gradients, several_times])
def test_what_is_computed_in_the_graph_may_be_changed(backend, function):
    agree(function, vector().detach() * 0.1, backend=backend, parameters=(WEIGHT,))


class Forgets(Triples):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 3


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: Triples.apply(x), "changes an input"),
        (lambda x: Triples.apply(x[1:]), "changes an input"),
    ],
)
def test_an_input_is_changed_in_eager(backend, function, words):
    compiled = torchmux.compile(function, backend=backend)
    given, expected = vector(grad=False), vector(grad=False)
    assert torch.equal(compiled(given), function(expected))
    assert torch.equal(given, expected)
    assert words in broke(compiled)


def test_a_gradient_of_a_changed_argument(backend):
    """It is that of the changed argument, which a graph that copies the new values into it would not have."""
    x = WEIGHT * 2
    torchmux.compile(lambda x: Triples.apply(x) * 2, backend=backend)(x)
    (gradient,) = torch.autograd.grad(x.sum(), WEIGHT)
    assert gradient.tolist() == [10.0] * 4


def test_what_is_not_returned_is_refused_as_in_eager(backend):
    outcomes = []
    for run in (function := lambda x: Forgets.apply(x * WEIGHT), torchmux.compile(function, backend=backend)):
        try:
            outcomes.append(run(vector()).tolist())
        except RuntimeError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_a_leaf_is_refused_as_in_eager(backend):
    with pytest.raises(RuntimeError, match="leaf"):
        torchmux.compile(lambda: Triples.apply(WEIGHT), backend=backend)()
