"""Which operators may draw random numbers: whatever changes the state of the generator does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.frontend.capture.random_operators import may_draw

X = torch.arange(1.0, 9.0).reshape(2, 4)
Q = X.reshape(1, 1, 2, 4)
T, A = torch.Tensor, torch.ops.aten

DRAWING: dict[str, tuple[Any, ...]] = {
    "rand": (torch.rand, 3),
    "randn_like": (torch.randn_like, X),
    "randperm": (torch.randperm, 4),
    "randint": (torch.randint, 4, (2,)),
    "bernoulli": (torch.bernoulli, X / 10),
    "multinomial": (torch.multinomial, X, 2),
    "normal": (torch.normal, X, X),
    "poisson": (torch.poisson, X),
    "dropout": (F.dropout, X),
    "dropout of torch's": (torch.dropout, X, 0.5, True),
    "alpha dropout": (F.alpha_dropout, X, 0.5, True),
    "feature dropout": (F.dropout1d, X),
    "rrelu": (lambda x: F.rrelu(-x, training=True), X),
    "gumbel": (F.gumbel_softmax, X),
    "attention": (F.scaled_dot_product_attention, Q, Q, Q, None, 0.5),
    "aten": (A.rand.default, [3]),
    "uniform_": (lambda x: x.clone().uniform_(), X),
    "normal_": (lambda x: x.clone().normal_(), X),
    "exponential_": (lambda x: x.clone().exponential_(), X),
    "geometric_": (lambda x: x.clone().geometric_(0.5), X),
    "cauchy_": (lambda x: x.clone().cauchy_(), X),
    "log_normal_": (lambda x: x.clone().log_normal_(), X),
    "random_": (lambda x: x.clone().random_(), X),
}
QUIET: dict[str, tuple[Any, ...]] = {
    "add": (torch.add, X, 1),
    "normalize": (F.normalize, X),
    "layer_norm": (F.layer_norm, X, (4,)),
    "dropout in evaluation": (F.dropout, X, 0.5, False),
    "feature dropout in evaluation": (F.dropout1d, X, 0.5, False),
    "attention without dropout": (F.scaled_dot_product_attention, Q, Q, Q),
    "attention with a dropout of nothing": (F.scaled_dot_product_attention, Q, Q, Q, None, 0.0),
    "aten": (A.add.Tensor, X, X),
}


def draws(function: Callable, *args: Any) -> bool:
    before = torch.default_generator.get_state()
    function(*args)
    return not torch.equal(before, torch.default_generator.get_state())


def nodes(function: Callable, *args: Any) -> list[torch.fx.Node]:
    if getattr(function, "__name__", "") == "<lambda>":
        return list(torch.fx.symbolic_trace(function).graph.nodes)
    return [torch.fx.Graph().call_function(function, args)]


@pytest.mark.parametrize("name", DRAWING)
def test_what_draws_is_known(name: str) -> None:
    assert draws(*DRAWING[name])
    assert any(map(may_draw, nodes(*DRAWING[name])))


@pytest.mark.parametrize("name", QUIET)
def test_what_draws_nothing_is_known(name: str) -> None:
    assert not draws(*QUIET[name])
    assert not any(map(may_draw, nodes(*QUIET[name])))


@torch.library.custom_op("torchmux_random::jitter", mutates_args=())
def _jitter(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape)


@_jitter.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _tries(x: torch.Tensor, i: torch.Tensor) -> Any:
    first = torch.ops.torchmux_random.jitter(x)
    try:
        return first[i]
    except IndexError:
        return first, torch.rand(2)


def test_an_operator_of_a_library_may_draw() -> None:
    compiled = torchmux.compile(_tries, backend="eager")
    for index in (1, 9, 1):
        results, states = [], []
        for run in (_tries, compiled):
            torch.manual_seed(0)
            results.append(run(torch.ones(3), torch.tensor([index])))
            states.append(torch.default_generator.get_state())
        torch.testing.assert_close(*results, rtol=0, atol=0)
        assert torch.equal(*states)


def _with_a_side_effect(x: torch.Tensor, seen: list) -> torch.Tensor:
    seen.append(1)
    return F.scaled_dot_product_attention(x, x, x).sum()


def test_the_random_state_is_not_copied_where_nothing_draws() -> None:
    compiled = torchmux.compile(_with_a_side_effect, backend="eager")
    compiled(Q, [])
    (captured,) = compiled._torchmux_record
    text = captured.text
    assert "raises_too" in text and "state = None" in text
