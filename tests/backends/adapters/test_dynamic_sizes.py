"""Graphs with symbolic sizes, and arithmetic on them, in each backend: one graph for all sizes, all of it compiled."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import torchmux

FUNCTIONS = {
    "scaled": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "resized": lambda x: F.interpolate(x, size=(x.shape[-2] * 2, x.shape[-1] // 2)),
    "rounded": lambda x: x.new_ones(round(x.shape[-1] / 4) + 1) * x.sum(),
    "a share": lambda x: x[..., : int(x.shape[-1] * 0.7)],
    "padded": lambda x: F.pad(x, (0, (x.shape[-1] + 7) // 8 * 8 - x.shape[-1])),
    "rounded up": lambda x: x[..., : math.ceil(x.shape[-1] / 2)].contiguous().view(-1) * math.sqrt(x.shape[-1]),
    "greatest": lambda x: x.new_ones(max(x.shape[-1], 6)) + x.mean(),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "mean": lambda x: x.mean((0, 2)) / x.shape[-1] + x.numel(),
    "positions": lambda x: torch.arange(x.shape[-1]) * 2.0 + x[0, 0, 0],
    "heads": lambda x: x.view(x.shape[0], 1, -1, x.shape[-1]).transpose(1, 2).reshape(-1, x.shape[-1]).softmax(-1),
}


@pytest.fixture(autouse=True)
def fresh():
    torchmux.reset()


@pytest.mark.parametrize(
    "backend", ["aot_eager", "onnxrt", "openvino", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_size_is_one_graph(name, backend):
    function = FUNCTIONS[name]
    try:
        compiled = torchmux.compile(function, backend=backend, dynamic=True, fullgraph=True)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))
    for size in (4, 5, 8, 11):
        x = torch.linspace(-1, 1, 2 * size * (size + 1)).view(1, 2, size, size + 1)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
    report = torchmux.report(compiled)
    assert report.graph_count == 1, report.recompiles
    assert not report.fallbacks


@pytest.mark.parametrize("backend", ["aot_eager", "onnxrt", "openvino"])
def test_sizes_that_depend_on_data(backend):
    def function(x):
        n = (x > 0).sum().item()
        kept = x[x > 0]
        return torch.zeros(n) + kept * n, kept.shape[0]

    try:
        compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))
    for seed in range(3):
        x = torch.randn(8, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(x), function(x))
    assert torchmux.report(compiled).graph_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "onnxrt"])
def test_what_was_said_of_data_is_checked_when_the_graph_runs(backend):
    def function(x):
        n = x.sum().long().item()
        torch._check(n < 10)
        torch._check(n >= 2)
        return torch.ones(n) * 2

    try:
        compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))
    for n in (3, 9, 2):
        torch.testing.assert_close(compiled(torch.full((1,), float(n))), function(torch.full((1,), float(n))))
    for n in (10, 1):
        with pytest.raises(RuntimeError):
            compiled(torch.full((1,), float(n)))
    assert torchmux.report(compiled).graph_count == 1
