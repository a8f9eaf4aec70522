"""Where torch's formulas are not what eager computes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torchmux

BACKENDS = ("aot_eager", "native", "onnxrt", "openvino", "tvm")


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "symbolic sizes"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_images_that_stay_or_double(backend, dynamic, trains):
    """2.18 of 5 pixels are 10, which eager takes twice each, and 1.1 of 5 are 5."""

    def resized(x):
        nearest = F.interpolate(x, scale_factor=(2.18, 1.1)), F.interpolate(x, scale_factor=(2.18, 1.7))
        return *nearest, F.interpolate(x, scale_factor=(1.7, 1.1), mode="bilinear")

    if backend not in torchmux.list_backends():
        pytest.skip(f"{backend} is not installed")
    compiled = torchmux.compile(resized, backend=backend, dynamic=dynamic)
    gradients = []
    for function in (compiled, resized):
        x = torch.arange(150.0).view(2, 3, 5, 5).requires_grad_(trains)
        results = function(x)
        if trains:
            sum((r * torch.arange(r.numel()).view(r.shape)).sum() for r in results).backward()
        gradients.append((*results, x.grad))
    for got, expected in zip(*gradients, strict=True):
        assert got is expected is None or torch.allclose(got, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_whole_factors_of_symbolic_sizes(mode, trains):
    """They are what the sizes say: nothing is asked about these, and native computes all of it for all of them."""
    compiled = torchmux.compile(lambda x: F.interpolate(x, scale_factor=2.0, mode=mode), backend="native", dynamic=True)
    for size in (5, 6, 9):
        compiled(torch.randn(2, 3, size, size + 1, requires_grad=trains))
    report = torchmux.report(compiled)
    assert report.graph_count == 1 and not report.fallbacks
