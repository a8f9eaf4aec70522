"""``torch.autograd.forward_ad`` in compiled functions: a level that begins and ends in one graph."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

import torchmux

from ..training import agree, broke, vector

WEIGHT = torch.linspace(0.5, 2.0, 4).requires_grad_()
LEVEL = dual_level()


@pytest.fixture(params=["eager", "aot_eager", "native"])
def backend(request):
    return request.param


def tangent(x):
    with dual_level():
        return unpack_dual(make_dual(x, torch.ones_like(x)).sin()).tangent


def primal_and_tangent(x):
    with dual_level() as level:
        y = (make_dual(x, x.detach() * 2, level=level) * WEIGHT) ** 3
        primal, moved = unpack_dual(y, level=level)
        return primal * 2, moved, unpack_dual(y).primal


def what_leaves_the_level(x):
    with dual_level():
        y = make_dual(x, torch.ones_like(x)) * 3
    return y * 2


def no_tangent(x):
    with dual_level():
        return x * 2 if unpack_dual(x).tangent is None else x


def in_place(x):
    with dual_level():
        y = make_dual(x.detach().clone(), torch.ones_like(x))
        y.mul_(3)
        y[0] = 5.0
        z = torch.zeros(4)
        z.copy_(y)
        return tuple(unpack_dual(y)), tuple(unpack_dual(z)), WEIGHT * 2


def without_gradients(x):
    with dual_level(), torch.no_grad():
        return tuple(unpack_dual(torch.softmax(make_dual(x, x * 2), 0)))


@LEVEL
def decorated(x):
    return unpack_dual(make_dual(x, x.detach()) * WEIGHT).tangent


def of_a_level_from_outside(x):
    with LEVEL:
        return unpack_dual(make_dual(x, x.detach()) * WEIGHT).tangent


@pytest.mark.parametrize(
    "function",
    [
        tangent,
        primal_and_tangent,
        what_leaves_the_level,
        no_tangent,
        in_place,
        without_gradients,
        decorated,
        of_a_level_from_outside,
    ],
)
def test_a_level_in_one_graph(backend, function):
    agree(function, vector(), backend=backend, parameters=(WEIGHT,))


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_inference(backend):
    compiled = torchmux.compile(tangent, backend=backend, fullgraph=True)
    for size in (3, 4, 5):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), x.cos())


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def jvp(ctx, moved):
        return moved * 7


def breaks_in_the_level(x):
    with dual_level():
        y = make_dual(x, torch.ones_like(x)) * 3
        torchmux.graph_break()
        return unpack_dual(y).tangent


def own_derivative(x):
    with dual_level():
        return unpack_dual(Doubles.apply(make_dual(x, torch.ones_like(x)))).tangent


def by_hand(x):
    forward_ad.enter_dual_level()
    y = unpack_dual(make_dual(x, torch.ones_like(x)) * 3).tangent
    forward_ad.exit_dual_level()
    return y


@pytest.mark.parametrize(
    ("function", "words"),
    [(breaks_in_the_level, "tangents"), (own_derivative, "level"), (by_hand, "runs autograd")],
)
def test_what_runs_in_eager(backend, function, words):
    compiled = torchmux.compile(function, backend=backend)
    x = vector(grad=False)
    assert torch.equal(compiled(x), function(x))
    assert words in broke(compiled)


def test_a_level_around_the_call_is_refused_as_in_eager(backend):
    compiled = torchmux.compile(tangent, backend=backend)
    compiled(vector())
    with dual_level(), pytest.raises(RuntimeError, match="Nested forward mode AD"):
        compiled(vector())


def test_an_error_leaves_the_level(backend):
    def function(x, index):
        with dual_level():
            return unpack_dual(make_dual(x, x)[index]).tangent

    compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    assert compiled(torch.ones(3), torch.tensor([0])).tolist() == [1.0]
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.ones(3), torch.tensor([7]))
    assert compiled(torch.ones(3), torch.tensor([0])).tolist() == [1.0]


def test_errors_of_the_program():
    def function(x, y):
        with dual_level():
            try:
                return make_dual(x, y)
            except ValueError as error:
                return str(error)

    compiled = torchmux.compile(function, backend="eager", fullgraph=True)
    whole = torch.ones(3, dtype=torch.int64)
    assert compiled(whole, vector(3)) == function(whole, vector(3))
    assert compiled(vector(3), whole) == function(vector(3), whole)
