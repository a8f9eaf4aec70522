"""Functions behind ``functools.lru_cache`` that run for the first time while something else has been changed."""

import functools

import pytest
import torch

import torchmux

STATE = {"scale": 1}


@pytest.fixture
def cached():
    STATE["scale"] = 1

    @functools.lru_cache
    def scale(name):
        return STATE["scale"]

    return scale


def test_the_first_call_runs_in_eager_and_the_next_is_captured(cached):
    def fn(x):
        STATE["scale"] = STATE["scale"] + 1
        return x * cached("a")

    compiled = torchmux.compile(fn, backend="eager")
    x = torch.ones(3)
    assert torch.equal(compiled(x), x * 2)
    report = torchmux.report(compiled)
    assert report.graph_count == 0
    assert "this call runs in eager" in report.breaks[0].message()
    assert torch.equal(compiled(x), x * 2)
    assert torchmux.report(compiled).graph_count == 1
    assert STATE["scale"] == 3
    assert cached.cache_info().misses == 1


def test_a_cache_that_is_emptied_each_time_breaks_the_graph(cached):
    def fn(x):
        STATE["scale"] = STATE["scale"] + 1
        cached.cache_clear()
        return x * cached("a")

    compiled = torchmux.compile(fn, backend="eager")
    x = torch.ones(3)
    for scale in (2, 3, 4):
        assert torch.equal(compiled(x), x * scale)


def test_a_result_that_the_cache_has_forgotten_is_computed_anew(cached):
    def fn(x):
        STATE["seen"] = True
        return x * cached("a")

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), x)
    assert torch.equal(compiled(x), x)
    assert torchmux.report(compiled).graph_count == 1
    cached.cache_clear()
    STATE["scale"] = 5
    assert torch.equal(compiled(x), x * 5)


class Keyed:
    def __init__(self, scale):
        self.scale = scale

    @functools.cache  # noqa: B019 - this is what programs do
    def times(self, n, sizes=()):
        return self.scale * n * len(sizes)


def test_an_object_is_a_key_by_its_identity():
    held = Keyed(2)
    compiled = torchmux.compile(lambda x, held: x * held.times(3, (x.shape[0], held)), backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3), held), torch.full((3,), 12.0))
    assert torchmux.report(compiled).graph_count == 1
    other = Keyed(5)
    assert torch.equal(compiled(torch.ones(3), other), torch.full((3,), 30.0))
    assert torch.equal(compiled(torch.ones(3), held), torch.full((3,), 12.0))


class Equal(Keyed):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def test_an_object_that_may_equal_another_breaks_the_graph():
    compiled = torchmux.compile(lambda x, held: x * held.times(3, (1,)), backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(torch.ones(3), Equal(2)), torch.full((3,), 6.0))
    assert "of mutable objects" in torchmux.report(compiled).breaks[0].message()


def test_what_equals_as_a_number_is_another_argument():
    @functools.lru_cache(typed=True)
    def kind_of(n):
        return 2 if type(n) is int else 3

    compiled = torchmux.compile(lambda x: (x * kind_of(1), x * kind_of(1.0), x * kind_of((True,)[0])), backend="eager")
    assert [y.item() for y in compiled(torch.ones(()))] == [2, 3, 3]
