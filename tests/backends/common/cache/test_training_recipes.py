"""Graphs that record gradients, whose two passes are put together again without tracing."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import nn

import torchmux
from torchmux.backends.common.cache import training
from torchmux.backends.common.cache.cache import ArtifactCache
from torchmux.backends.common.pipeline import aot


@pytest.fixture
def traced(monkeypatch) -> list[int]:
    """Grows with every graph that is traced."""
    seen: list[int] = []
    original = aot.through_autograd

    def spy(*args, **kwargs):
        seen.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(aot, "through_autograd", spy)
    return seen


class Net(nn.Module):
    """Statistics that are written to, random numbers, a result of integers, and two that have gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.unused = nn.Parameter(torch.ones(2))
        self.scale = random.random()  # no graph of another run

    def forward(self, x):
        hidden = nn.functional.dropout(self.norm(self.first(x)).relu(), 0.3)
        return self.last(hidden) * self.scale, hidden.tanh(), hidden.argmax(-1)


# No number of it is the mean of its column: behind the normalization, that would be 0 up to rounding.
X = torch.linspace(-1, 1, 30).reshape(5, 6).exp()
BOTH, FIRST = (lambda a, b: a.square().sum() + b.sum()), (lambda a, b: a.square().sum())


def steps(net, losses):
    """All that a program can see of some steps of training."""
    compiled = torchmux.compile(net, backend="native")
    seen = []
    for number, loss in enumerate(losses):
        torch.manual_seed(number)
        net.zero_grad(set_to_none=True)
        a, b, index = compiled(X)
        loss(a, b).backward()
        seen += [a.detach(), b.detach(), index, *(p.grad for p in net.parameters()), *map(torch.clone, net.buffers())]
        seen.append(torch.get_rng_state())
    return seen, torchmux.report(compiled)


def assert_same(got, expected, **tolerances) -> None:
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerances)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture(scope="module")
def filed(net):
    """What a first process has seen and filed."""
    found = steps(copy.deepcopy(net), [FIRST, FIRST])
    torchmux.reset()
    return found


def test_the_second_time_is_the_same_without_tracing(net, filed, traced) -> None:
    seen, told = filed
    again, retold = steps(copy.deepcopy(net), [FIRST, FIRST])
    assert not traced
    assert_same(again, seen, rtol=0, atol=0)
    (one,), (two,) = ([entry.report for entry in report.graphs] for report in (told, retold))
    assert two.placements == one.placements and two.partitions == one.partitions == two.cache_hits
    assert not any(calls.count for calls in two.calls_in_torch)


def test_results_without_a_gradient_that_no_process_met(net, filed, traced) -> None:
    """The gradients of one call come from torch, and then the graph is traced; what it makes is filed as well."""
    losses = [BOTH, BOTH, FIRST]
    torchmux.reset()
    got, report = steps(copy.deepcopy(net), losses)
    assert len(traced) == 1
    assert [calls.count for calls in report.graphs[0].report.calls_in_torch if "no code" in calls.why] == [1]
    torchmux.reset()
    again, _ = steps(copy.deepcopy(net), losses)
    assert len(traced) == 1
    count = len(got) // 3
    assert_same(again[count:], got[count:], rtol=0, atol=0)
    assert_same(again[:count], got[:count], rtol=1e-4, atol=1e-5)


def test_what_the_short_passes_do_not_take(net, filed, traced) -> None:
    """A graph that is kept for a second backward pass, gradients that are differentiated, calls without gradients."""
    torchmux.reset()
    own, other = copy.deepcopy(net), copy.deepcopy(net)
    found = []
    for model, call in ((own, torchmux.compile(own, backend="native")), (other, other)):
        torch.manual_seed(0)
        a, _, _ = call(X)
        weights = [model.first.weight, model.last.weight]
        first = torch.autograd.grad(a.square().sum(), weights, retain_graph=True)
        repeated = torch.autograd.grad(a.square().sum(), weights, retain_graph=True)
        assert_same(repeated, first, rtol=0, atol=0)
        (slope,) = torch.autograd.grad(a.square().sum(), weights[:1], create_graph=True)
        found.append([*first, slope, *torch.autograd.grad(slope.square().sum(), weights)])
    assert not traced
    assert_same(*found, rtol=1e-3, atol=1e-4)


def test_code_that_is_gone(net, filed, traced, monkeypatch) -> None:
    """Without the code of the backward pass, torch computes gradients until the graph is traced."""
    torchmux.reset()
    own = copy.deepcopy(net)
    compiled = torchmux.compile(own, backend="native")
    torch.manual_seed(0)
    results = compiled(X)
    monkeypatch.setattr(ArtifactCache, "load", lambda *_: None)
    FIRST(*results[:2]).backward()
    assert_same([p.grad for p in own.parameters()], filed[0][3:10], rtol=1e-4, atol=1e-5)
    assert not traced
    again, _ = steps(copy.deepcopy(net), [FIRST, FIRST])
    assert len(traced) == 1
    assert_same(again, filed[0], rtol=0, atol=0)


def test_a_backward_pass_belongs_to_its_forward_pass() -> None:
    """Another trace may save other values."""
    forward = {"steps": [["one", [0], 2]]}
    names = {training.backward_key("key", content, ()) for content in (forward, {"steps": [["two", [0], 2]]})}
    assert len(names) == 2 and training.backward_key("key", dict(forward), ()) in names
