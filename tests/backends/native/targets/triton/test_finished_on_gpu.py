"""Products that our kernels finish, run by ``pytest -m gpu`` where there is a GPU: at sizes where they are worth it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux
from torchmux.backends.native.targets.triton.tiled import measuring
from torchmux.config import config
from torchmux.demo.trial import error_against

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, inner, 1, bias=False)
        self.second = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.third = nn.Conv2d(inner, channels, 1, bias=False)
        self.beside = nn.Conv2d(channels, channels, 1, stride, bias=False)
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, (inner, inner, channels, channels)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        y = F.relu(self.norms[1](self.second(y)))
        return F.relu(self.norms[2](self.third(y)) + self.norms[3](self.beside(x)))


class Gated(nn.Module):
    def __init__(self, features: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(features, inner),
            nn.Linear(features, inner),
            nn.Linear(inner, features),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.gate(x)) * F.gelu(self.up(x)))


def images(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes).to(memory_format=torch.channels_last)


CASES: dict[str, tuple[Any, Any]] = {
    "bottleneck": (lambda: Bottleneck(256, 64, 1), lambda: images(16, 256, 56, 56)),
    "bottleneck, odd sizes": (lambda: Bottleneck(256, 128, 2), lambda: images(16, 256, 55, 57)),
    "stem": (lambda: nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.ReLU()), lambda: images(16, 3, 224, 224)),
    "gated": (lambda: Gated(512, 2000), lambda: torch.randn(8, 300, 512)),
    "logits": (lambda: nn.Sequential(nn.Linear(512, 5001, bias=False)), lambda: torch.randn(2000, 512)),
}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_as_exact_as_eager(name, dtype, mode, tmp_path) -> None:
    torch.manual_seed(0)
    make, example = CASES[name]
    model, x = make().eval().to("cuda", dtype), example().to("cuda", dtype)
    if x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
    with config.patch(cache_dir=tmp_path), torch.no_grad():
        call = torchmux.compile(model, backend="native", mode=mode)
        found = [call(x).clone() for _ in range(3)]
        eager, exact = model(x), copy.deepcopy(model).double()(x.double())
    for each in found:
        assert each.stride() == eager.stride()
        assert error_against([exact], [each]) <= 2 * error_against([exact], [eager]) + 1e-6
    (graph,) = torchmux.report(call).graphs
    if mode != "max-autotune":
        assert "fn.add_product(" in "".join(map(str, graph.report.output_code))


def test_both_ways_are_timed(tmp_path, monkeypatch) -> None:
    """Each product once, whatever other ways to compile the graph are tried."""
    asked = []
    best = measuring._Sides.best
    monkeypatch.setattr(measuring._Sides, "best", lambda *args: asked.append(best(*args)) or asked[-1])
    monkeypatch.setattr(measuring, "_known", {})
    model, x = Gated(512, 2000).to("cuda", torch.bfloat16), torch.randn(2048, 512, device="cuda").bfloat16()
    with config.patch(cache_dir=tmp_path), torch.no_grad():
        torchmux.compile(model, backend="native", mode="max-autotune")(x)
    assert len(asked) == len(measuring._known) and all(len(shapes) <= 1 for shapes in asked)
    assert asked
