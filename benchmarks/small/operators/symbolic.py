"""Programs with symbolic sizes that are divided, scaled, joined or counted, as people write them for any resolution and
length; every one is compiled with ``dynamic=True``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, boxes, i64, infer, module


def symbolic(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    infer(f"any-size/{name}", function, *inputs, dynamic=True, **options)


# Parts of images and of rows


def windows(x: Any) -> Any:
    b, h, w, c = x.shape
    return x.view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)


def windows_back(x: Any, like: Any) -> Any:
    b, h, w, c = like.shape
    return x.view(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h, w, c) + like


symbolic("pixel-unshuffle", lambda x: F.pixel_unshuffle(x, 2) * 2, T(2, 8, 24, 24))
symbolic("pixel-shuffle-gelu", lambda x: F.gelu(F.pixel_shuffle(x, 2)), T(2, 16, 20, 24))
symbolic("patches", lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3), T(2, 3, 32, 32))
symbolic("windows", windows, T(2, 16, 16, 24))
symbolic("windows-back", windows_back, T(32, 16, 24), T(2, 16, 16, 24))
symbolic("unfold", lambda x: F.unfold(x, 3, padding=1), T(2, 4, 20, 20))
symbolic("heads", lambda x: x.view(x.shape[0], x.shape[1], 4, -1).transpose(1, 2).contiguous(), T(2, 40, 64))
symbolic("channel-shuffle", lambda x: x.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2) * 2, T(2, 32, 14, 14))
symbolic("interleave", lambda x, y: torch.stack((x, y), -1).flatten(-2), *[T(30, 50)] * 2)
symbolic("rotate-halves", lambda x: torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1), T(40, 64))
symbolic("glu", lambda x: F.glu(x, -1), T(40, 128))
symbolic("repeat", lambda x: x.repeat(2, 3) * 2, T(30, 50))
symbolic("repeat-interleave", lambda x: x.repeat_interleave(3, 0) + 1, T(30, 50))

# Scaled images, and norms of groups

symbolic("bilinear-1.5", lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), T(2, 8, 30, 30))
symbolic("nearest-half", lambda x: F.interpolate(x, scale_factor=0.5, mode="nearest"), T(2, 8, 30, 30))
symbolic("area", lambda x: F.interpolate(x, size=(7, 7), mode="area"), T(2, 8, 30, 30))
symbolic("bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), T(1, 3, 20, 20))
symbolic("group-norm-bf16", lambda x, w: F.group_norm(x, 4, w), T(2, 32, 12, 12, dtype=bf16), T(32, dtype=bf16))
symbolic("group-norm-silu", lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)), T(2, 32, 24, 24), *[T(32)] * 2)
symbolic("instance-norm", lambda x: F.instance_norm(x), T(2, 16, 24, 24))
symbolic("variance-of-images", lambda x: x.var((2, 3), unbiased=False), T(2, 32, 20, 20))
symbolic("spatial-softmax", lambda x: x.flatten(2).softmax(-1).view_as(x), T(2, 8, 20, 20))

# Rows of any length


def sliding(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT / 8
    at = torch.arange(scores.shape[-1])
    keep = (at <= at[:, None]) & (at > at[:, None] - 16)
    return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v


def longest(x: Any, lengths: Any) -> Any:
    beyond = torch.arange(x.shape[1]) >= lengths[:, None]
    return x.masked_fill(beyond[..., None], float("-inf")).amax(1)


def suppressed(found: Any, scores: Any) -> Any:
    order = scores.argsort(descending=True)
    found = found[order]
    area = (found[:, 2:] - found[:, :2]).prod(1)
    low, high = torch.maximum(found[:, None, :2], found[:, :2]), torch.minimum(found[:, None, 2:], found[:, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    overlap = shared / (area[:, None] + area - shared)
    keep = torch.ones(len(found), dtype=torch.bool)
    for i in range(8):
        keep = keep & ~((overlap[i] > 0.5) & (torch.arange(len(found)) > i) & keep[i])
    return keep, order


symbolic("sliding-window", sliding, *[T(2, 4, 96, 64)] * 3)
symbolic("longest", longest, T(16, 77, 96), T(16, dtype=i64, low=1, high=77))
symbolic("suppressed", suppressed, boxes(64), T(64))
symbolic("distances", torch.cdist, T(50, 16), T(60, 16))
symbolic("triangles", lambda x: x.tril() + x.triu(1).mT, T(60, 60))
symbolic("top-4", lambda x: x.topk(4).values.sum(-1), T(50, 60))
symbolic(
    "scatter-rows",
    lambda x, i: torch.zeros_like(x).scatter_add(0, i[:, None].expand_as(x), x),
    T(100, 32),
    T(100, dtype=i64, low=0, high=99),
)

# Networks


def network(name: str, make: Any, *inputs: Any) -> None:
    module(f"any-size/{name}", make, *inputs, dynamic=True)


network(
    "convnext",
    lambda: nn.Sequential(
        nn.Conv2d(16, 16, 7, padding=3, groups=16), nn.GroupNorm(4, 16), nn.Conv2d(16, 64, 1), nn.GELU()
    ),
    T(2, 16, 24, 24),
)
network(
    "upsample-conv",
    lambda: nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=2)),
    T(2, 8, 16, 16),
)
network(
    "conv-pixel-shuffle",
    lambda: nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()),
    T(2, 8, 16, 16),
)
