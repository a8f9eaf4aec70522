"""Single layers and decompositions of matrices in training, most of which a library computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, module, train


def _alone(name, function, *inputs, **options):
    train(f"asked/{name}/train", function, *inputs, **options)


for _layout in ("contiguous", "channels_last"):
    _last = _layout == "channels_last"
    _end = "-cl/train" if _last else "/train"
    for _name, _make in {
        "conv-3": lambda: nn.Conv2d(16, 16, 3, padding=1),
        "conv-strided": lambda: nn.Conv2d(16, 16, 3, 2, 1),
        "conv-grouped": lambda: nn.Conv2d(16, 16, 3, padding=1, groups=4),
        "conv-relu": lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()),
        "conv-up": lambda: nn.ConvTranspose2d(16, 8, 2, 2),
        "conv-pointwise": lambda: nn.Conv2d(16, 32, 1),
    }.items():
        module(f"asked/{_name}{_end}", _make, T(4, 16, 28, 28, layout=_layout), training=True, channels_last=_last)

_positive = torch.eye(24) + 0.5 / 24
_alone("conv-1d", F.conv1d, T(4, 16, 200), T(16, 16, 5))
_alone("solve", torch.linalg.solve, _positive, T(24, 3))
_alone("inverse", torch.linalg.inv, _positive)
_alone("cholesky", torch.linalg.cholesky, _positive)
_alone("log-determinant", lambda x: torch.linalg.slogdet(x)[1], _positive)
_alone("singular-values", torch.linalg.svdvals, T(24, 24))
_alone("triangular", lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), _positive, T(24, 3))
