"""Convolutions of float16 where the processor cannot compute in float16: in float32, rounded once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torchmux
from torchmux.backends.native.targets.cpu import computed


@pytest.fixture(autouse=True)
def without_units(monkeypatch) -> None:
    monkeypatch.setattr(computed, "convolves_float16", lambda: False)


MODELS = {
    "images": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 8, 3, groups=2, bias=False)),
        (2, 3, 14, 14),
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2), nn.Conv2d(6, 6, 3, groups=6)), (1, 4, 6, 6)),
    "rows": (lambda: nn.Sequential(nn.Conv1d(12, 8, 3, padding=1), nn.GELU()), (2, 12, 33)),
    "volumes": (lambda: nn.Conv3d(4, 4, 2), (1, 4, 4, 5, 5)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["inference", "freeze", "symbolic", "training"])
@pytest.mark.parametrize("name", MODELS)
def test_float16(name: str, way: str) -> None:
    make, sizes = MODELS[name]
    torch.manual_seed(0)
    model = make().half().train(way == "training")
    twin = copy.deepcopy(model)
    exact = copy.deepcopy(model).double()
    x = torch.randn(sizes).half().requires_grad_(way == "training")
    options = {"options": {"freeze": True}} if way == "freeze" else {"dynamic": way == "symbolic"}
    compiled = torchmux.compile(twin, backend="native", **options)
    with torch.set_grad_enabled(way == "training"):
        found, wanted, close = compiled(x), model(x), exact(x.double())
    assert found.dtype is torch.float16 and found.stride() == wanted.stride()
    torch.testing.assert_close(found.double(), close, rtol=4e-3, atol=2e-3)
    graphs = torchmux.report(compiled).graphs
    assert not [g for g in graphs if g.report.fallbacks]
    code = "".join(g.report.output_code[0] + g.report.output_code[1] for g in graphs)
    assert "torch.float32" in code
    if way != "training":
        return
    grad = torch.randn_like(found)
    gradients = [
        torch.autograd.grad(y, [x, *m.parameters()], grad.to(y.dtype)) for m, y in ((twin, found), (model, wanted))
    ]
    for mine, theirs in zip(*gradients, strict=True):
        assert mine.dtype is torch.float16 and mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)
