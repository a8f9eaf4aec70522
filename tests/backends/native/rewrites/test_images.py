"""Training in channels last: what a program sees of its images stays as it was."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux
from torchmux.backends.native import compiler
from torchmux.backends.native.rewrites import images


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.convolution(x)) + x, inplace=True)


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.convolution(x).view(x.shape[0], -1))


class Strided(Viewed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x)
        return y.as_strided((4,), (1,)) * 2


PROGRAMS = [
    (nn.Sequential(nn.Conv2d(3, 8, 3), Block(), nn.MaxPool2d(2), Block(), nn.Flatten(), nn.Linear(72, 4)), True),
    (nn.Sequential(nn.Conv2d(3, 8, 3), Block(), nn.Conv2d(8, 3, 1)), True),
    (nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 3, 1)), True),
    (nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(8, 3, 1)), False),
    (Viewed(), True),
    (Strided(), False),
    (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Flatten()), False),
]


@pytest.mark.parametrize(
    ("model", "changes"), PROGRAMS, ids=["flat", "image", "depthwise", "groups", "viewed", "strided", "drawing"]
)
def test_as_eager(model: nn.Module, changes: bool, monkeypatch) -> None:
    seen = []
    original = images.in_channels_last

    def spy(gm, wanted):
        made = original(gm, wanted)
        seen.append(made is not gm)
        return made

    monkeypatch.setattr(compiler, "_trains_in_channels_last", lambda image: True)
    monkeypatch.setattr(images, "in_channels_last", spy)
    other, x = copy.deepcopy(model), torch.randn(2, 3, 8, 8, requires_grad=True)
    compiled = torchmux.compile(other, backend="native")
    torch.manual_seed(0)
    expected = model(x)
    torch.manual_seed(0)
    got = compiled(x)
    torch.testing.assert_close(got, expected)
    assert got.stride() == expected.stride()
    gradients = [
        torch.autograd.grad(result.square().sum(), [x, *each.parameters()], allow_unused=True)
        for result, each in ((expected, model), (got, other))
    ]
    for b, a in zip(*gradients, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
            assert a.stride() == b.stride()
    for a, b in zip(other.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert seen == [changes]
