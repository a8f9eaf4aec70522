"""Arguments that ``torch.compile`` has as well: names, limits, isolation and the sizes of the arguments."""

import inspect
import typing

import pytest
import torch

import torchmux


def doubled(x):
    return x * 2


def calls(compiled, *sizes):
    for size in sizes:
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
    return torchmux.report(compiled)


def test_a_name_stands_in_the_report():
    report = calls(torchmux.compile(doubled, backend="eager", name="the name"), 2)
    assert report.name == "the name"
    assert str(report).startswith("the name: 1 call:")
    module = torchmux.compile(torch.nn.ReLU(), backend="eager", name="module")
    assert torchmux.report(module).name == "module"


def test_a_limit_of_its_own(caplog):
    def function(x):
        return x * 2

    report = calls(torchmux.compile(function, backend="eager", dynamic=False, recompile_limit=2), 2, 3, 4, 5)
    assert report.graph_count == 2
    assert report.calls[0].eager == {"recompile_limit reached": 2}
    assert "was compiled 2 times, which reaches the recompile_limit of compile()" in caplog.text
    strict = torchmux.compile(doubled, backend="eager", dynamic=False, recompile_limit=1, fullgraph=True)
    calls(strict, 2)
    with pytest.raises(torchmux.Unsupported, match="the recompile_limit of compile"):
        strict(torch.ones(3))
    with pytest.raises(ValueError, match="at least 1, not 0"):
        torchmux.compile(doubled, recompile_limit=0)


def test_isolated_calls_share_no_code():
    def function(x):
        return x * 2

    shared = [torchmux.compile(function, backend="eager", dynamic=False) for _ in range(2)]
    alone = [torchmux.compile(function, backend="eager", dynamic=False, isolate_recompiles=True) for _ in range(2)]
    calls(shared[0], *range(2, 10))
    assert calls(shared[1], 20).calls[0].eager == {"recompile_limit reached": 1}
    for compiled in alone:
        assert calls(compiled, 20).graph_count == 1


def test_no_other_dynamic():
    with pytest.raises(TypeError, match="dynamic must be bool or None, not 'yes'"):
        torchmux.compile(doubled, dynamic="yes")


def test_overloads_have_the_arguments_of_the_function():
    function = inspect.getattr_static(torchmux.frontend.api, "compile")
    wanted = [p for p in inspect.signature(function).parameters if p != "others"]
    overloads = typing.get_overloads(function)
    assert len(overloads) == 2
    for overload in overloads:
        assert list(inspect.signature(overload).parameters) == wanted
