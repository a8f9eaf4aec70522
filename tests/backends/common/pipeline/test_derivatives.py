"""Derivatives beyond the first: second ones, batched ones and forward mode of compiled graphs are eager's, or an error.

Programs are combinations of an operator and a way to differentiate it.
"""

from __future__ import annotations

import functools

import pytest
import torch
from tiers import slow_but
from torch.autograd import forward_ad, functional
from torch.nn import functional as F

import torchmux


def without_gradients(x):
    with torch.no_grad():
        return x.exp()


OPERATORS = {
    "pow": lambda x, w: (x @ w).pow(3),
    "softmax": lambda x, w: (x @ w).softmax(-1) ** 2,
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (4,)).tanh(),
    "where": lambda x, w: torch.where(x > 0, x * x, x**3) @ w,
    "sigmoid": lambda x, w: torch.sigmoid(x @ w) * x,
    "conv": lambda x, w: F.conv1d(x.t()[None], w[:, :, None]).exp(),
    "detached": lambda x, w: x**3 * (x * w).detach(),
    "no_grad": lambda x, w: x**2 * without_gradients(x) + w,
    "dropout": lambda x, w: F.dropout((x @ w).exp(), 0.5),
    "views": lambda x, w: (x**2).t()[1:].reshape(-1)[2:].outer(w[0] ** 2),
    "batch_norm": lambda x, w: F.batch_norm(x @ w, None, None, training=True) ** 3,
}
BACKENDS = ("eager", "aot_eager", "native")


def inputs():
    torch.manual_seed(3)
    return [torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]


def penalty(f):
    """A gradient penalty, as in WGAN-GP."""
    x, w = inputs()
    torch.manual_seed(5)
    (gradient,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
    return torch.autograd.grad((gradient.pow(2).sum() - 1) ** 2, [x, w], allow_unused=True)


def third(f):
    x, w = inputs()
    torch.manual_seed(5)
    value = f(x, w).sum()
    for _ in range(2):
        value = torch.autograd.grad(value, x, create_graph=True)[0].square().sum()
    return torch.autograd.grad(value, x)


def tangent(f):
    x, w = inputs()
    torch.manual_seed(5)
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x.detach(), w.detach()), w.detach())).tangent


def forward_over_reverse(f):
    x, w = inputs()
    torch.manual_seed(5)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), w.detach()).requires_grad_()
        (gradient,) = torch.autograd.grad(f(dual, w).sum(), dual)
        return forward_ad.unpack_dual(gradient).tangent


def of_x(f):
    x, w = (v.detach() for v in inputs())

    def g(x):
        torch.manual_seed(5)
        return f(x, w)

    return x, g


def _functional(transform, **options):
    def way(f):
        x, g = of_x(f)
        return transform(lambda x: g(x).sum() if transform is not functional.jacobian else g(x), x, **options)

    return way


def _func(transform):
    def way(f):
        x, g = of_x(f)
        return transform(lambda x: g(x).sum())(x)

    return way


WAYS = {
    "penalty": penalty,
    "third": third,
    "tangent": tangent,
    "forward_over_reverse": forward_over_reverse,
    "hessian": _functional(functional.hessian),
    "hessian_vectorized": _functional(functional.hessian, vectorize=True),
    "jacobian": _functional(functional.jacobian),
    "jacobian_vectorized": _functional(functional.jacobian, vectorize=True),
    "jacobian_forward": _functional(functional.jacobian, vectorize=True, strategy="forward-mode"),
    "func_grad": _func(torch.func.grad),
    "func_hessian": _func(torch.func.hessian),
    "func_jacrev": _func(torch.func.jacrev),
    "func_jacfwd": _func(torch.func.jacfwd),
}


def outcome(way, f):
    try:
        return way(f)
    except (RuntimeError, NotImplementedError) as error:
        return type(error)


def same(found, expected):
    if isinstance(expected, (tuple, list)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if not isinstance(expected, torch.Tensor):
        return found == expected
    return isinstance(found, torch.Tensor) and torch.allclose(found, expected, equal_nan=True)


@pytest.mark.parametrize("backend", slow_but(BACKENDS, "eager", "native"))
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.sampled(2)
def test_every_way_gives_what_eager_gives(operator, backend):
    torchmux.reset()
    f = OPERATORS[operator]
    for name, way in WAYS.items():
        compiled = torchmux.compile(f, backend=backend)
        if name != "penalty":
            compiled(*inputs())  # code that was compiled for a plain call
            compiled(*(v.detach() for v in inputs()))
        if operator == "dropout" and "vectorized" in name:
            continue  # refused, see below
        found, expected = outcome(way, compiled), outcome(way, f)
        assert same(found, expected), (name, found, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_a_module(backend):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 1)]
    module = torch.nn.Sequential(*layers).double()
    found = []
    for f in (module, torchmux.compile(module, backend=backend)):
        module[1].reset_running_stats()
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3).requires_grad_()
        (gradient,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        found.append([x.grad, *(p.grad.clone() for p in module.parameters() if p.grad is not None)])
        found[-1].append(module[1].running_mean.clone())  # was updated once
        module.zero_grad()
    assert same(*found), found


def test_autocast_is_what_it_was():
    def f(x, w):
        return (x @ w).float().pow(2)

    found = []
    for g in (f, torchmux.compile(f, backend="aot_eager")):
        x = torch.arange(4.0).view(2, 2).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = g(x, x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.sum(), x))
    assert same(*found), found


def gradient_twice(f, x, between):
    h = x * 1
    y = f(h).sum()
    between(h)
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(gradient.sum(), x)


def test_inputs_that_were_changed_are_an_error():
    compiled = torchmux.compile(lambda x: x.pow(3), backend="aot_eager")

    def change(h):
        with torch.no_grad():
            h.mul_(2)

    with pytest.raises(torchmux.DerivativeUnavailable, match="has changed an input of it in place") as caught:
        gradient_twice(compiled, torch.ones(2, requires_grad=True), change)
    assert "\n" not in str(caught.value)


def test_a_change_that_is_differentiated_is_an_error():
    compiled = torchmux.compile(lambda x: x.sigmoid_(), backend="aot_eager")
    with pytest.raises((torchmux.DerivativeUnavailable, RuntimeError), match="in place"):
        gradient_twice(compiled, torch.ones(2, requires_grad=True), lambda h: None)


def test_inputs_are_forgotten_after_the_last_backward_pass():
    compiled = torchmux.compile(lambda x: x.exp() * 2, backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    y = compiled(x)
    y.sum().backward(retain_graph=True)
    node = y.grad_fn
    assert node.kept is not None
    y.sum().backward()
    assert node.kept is None


def test_random_numbers_are_not_repeated_for_a_batch():
    compiled = torchmux.compile(lambda x: F.dropout(x.exp(), 0.5), backend="aot_eager")
    with pytest.raises(torchmux.DerivativeUnavailable, match="random numbers"):
        functional.jacobian(compiled, torch.ones(2), vectorize=True)


def test_a_backend_without_them_refuses():
    compiled = torchmux.compile(lambda x: x.pow(3).sum(), backend="inductor")
    with pytest.raises(torchmux.DerivativeUnavailable, match="inductor computes gradients, and no other"):
        functional.hessian(compiled, torch.ones(2))
    compiled(torch.ones(2))
    with forward_ad.dual_level(), pytest.raises(torchmux.DerivativeUnavailable, match="tangent"):
        compiled(forward_ad.make_dual(torch.ones(2), torch.ones(2)))


def test_strict_refuses():
    compiled = torchmux.compile(lambda x: x.pow(3), backend="aot_eager", strict=True)
    with pytest.raises(torchmux.FallbackRefused, match="differentiated again"):
        gradient_twice(compiled, torch.ones(2, requires_grad=True), lambda h: None)
    with forward_ad.dual_level(), pytest.raises(torchmux.FallbackRefused, match="forward-mode"):
        compiled(forward_ad.make_dual(torch.ones(2), torch.ones(2)))


def test_both_say_so_in_the_log(caplog):
    compiled = torchmux.compile(lambda x: x.pow(3), backend="native")
    with caplog.at_level("WARNING", "torchmux.fallback"):
        functional.hessian(functools.partial(lambda f, x: f(x).sum(), compiled), torch.ones(2))
    assert any("differentiated again" in message for message in caplog.messages)
