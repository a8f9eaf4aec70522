"""What a third party tests of its own backend: correct results, and a report of every fallback."""

import pytest
import torch

import torchmux
from torchmux.registry import Backend, resolve


class Small(torch.nn.Module):
    def forward(self, x, weight, bias):
        return (torch.ops.aten.relu.default(torch.ops.aten.addmm.default(bias, x, weight)),)


def compiled(**keywords):
    inputs = [torch.randn(4, 8), torch.randn(8, 3), torch.randn(3)]
    graph = torch.fx.symbolic_trace(Small())
    return resolve("numpy", **keywords).compile(graph, inputs, training=False), inputs


@pytest.mark.parametrize("keywords", [{}, {"mode": "precise"}, {"options": {"matmul_precision": "float64"}}])
def test_result_is_that_of_eager(keywords):
    function, inputs = compiled(**keywords)
    torch.testing.assert_close(function(*inputs)[0], Small()(*inputs)[0])


def test_numpy_ran_all_of_it():
    function, _ = compiled(strict=True)
    assert function.report.share == 1.0 and len(function.report.placements) == 2


def test_what_numpy_lacks_is_named():
    class Sine(torch.nn.Module):
        def forward(self, x):
            return (torch.ops.aten.sin.default(x),)

    function = resolve("numpy").compile(torch.fx.symbolic_trace(Sine()), [torch.randn(3)], training=False)
    assert [p.placed_on for p in function.report.placements] == ["eager"]
    assert "aten.sin.default is not among" in function.report.placements[0].reason


def test_it_follows_the_contract():
    from torchmux_numpy.backend import NumpyBackend

    assert isinstance(NumpyBackend(), Backend)


def test_misspelt_option():
    with pytest.raises(torchmux.InvalidOption, match="Did you mean 'matmul_precision'"):
        compiled(options={"matmul_precison": "float64"})
