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
