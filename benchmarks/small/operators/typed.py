"""Symbolic sizes, types, and operators that torch's library computes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, bf16, i8, i32, i64, infer, train, u8

# Sizes that are symbols


def windows_of(x):
    b, h, w, c = x.shape
    return x.view(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)


for name, function, *inputs in (
    ("window-partition", windows_of, T(2, 32, 32, 32)),
    (
        "window-attention",
        lambda x: (lambda w: (w @ w.transpose(1, 2)).softmax(-1) @ w)(windows_of(x)),
        T(2, 32, 32, 16),
    ),
    ("adaptive-pool-7", lambda x: F.adaptive_avg_pool2d(x, 7), T(2, 16, 32, 32)),
    ("adaptive-max", lambda x: F.adaptive_max_pool2d(x, (4, 4)), T(2, 16, 32, 32)),
    ("bicubic", lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), T(1, 8, 24, 24)),
    (
        "rope",
        lambda x: (lambda a: torch.cat((x * a.cos(), rotate(x) * a.sin()), -1))(
            torch.arange(x.shape[-2])[:, None] * torch.ones(x.shape[-1])
        ),
        T(2, 4, 40, 32),
    ),
    (
        "causal-softmax",
        lambda s: s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -torch.inf).softmax(-1),
        T(2, 4, 48, 48),
    ),
    ("layer-norm-gelu", lambda x, g, b: F.gelu(F.layer_norm(x, (64,), g, b)), T(3, 40, 64), T(64), T(64)),
    (
        "masked-mean",
        lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True),
        T(4, 50, 64),
        T(4, 50, low=0, high=1),
    ),
    ("cat-pad", lambda a, b: F.pad(torch.cat((a, b), 1), (0, 0, 1, 2)), T(2, 20, 64), T(2, 30, 64)),
    (
        "embedding-positions",
        lambda i, w, p: F.embedding(i, w) + p[: i.shape[1]],
        T(2, 40, dtype=i64, low=0, high=99),
        T(100, 64),
        T(64, 64),
    ),
    ("unfold-frames", lambda x: x.unfold(-1, 64, 16) * torch.hann_window(64), T(2, 1600)),
    ("top-k", lambda x: x.topk(5, -1), T(8, 300)),
    (
        "log-softmax-gather",
        lambda x, i: x.log_softmax(-1).gather(-1, i[..., None])[..., 0],
        T(4, 20, 100),
        T(4, 20, dtype=i64, low=0, high=99),
    ),
    (
        "qkv-split",
        lambda x, w: F.linear(x, w).view(x.shape[0], x.shape[1], 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0),
        T(2, 40, 64),
        T(192, 64),
    ),
    ("group-norm-silu", lambda x: F.silu(F.group_norm(x, 8)), T(2, 32, 16, 16)),
    ("flip-cumsum", lambda x: x.flip(1).cumsum(1).flip(1), T(8, 128)),
    ("roll-windows", lambda x: windows_of(torch.roll(x, (-4, -4), (1, 2))), T(2, 32, 32, 16)),
):
    infer(f"extract/symbolic/{name}", function, *inputs, dynamic=True)


def rotate(x: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


for name, function, *inputs in (
    ("windows", lambda x: windows_of(x).square().mean(), T(2, 32, 32, 16)),
    ("cross-entropy", lambda x, y: F.cross_entropy(x, y), T(40, 100), T(40, dtype=i64, low=0, high=99)),
    ("gelu-linear", lambda x, w: F.gelu(F.linear(x, w)), T(40, 64), T(128, 64)),
    ("group-norm", lambda x: F.group_norm(x, 8), T(2, 32, 16, 16)),
):
    train(f"extract/symbolic/training/{name}", function, *inputs, dynamic=True)

# Types, and operators that torch's library computes

infer("extract/typed/argmax-i64", lambda x: x.argmax(-1), T(64, 512, dtype=i64))
infer("extract/typed/argmin-i32", lambda x: x.argmin(0), T(128, 256, dtype=i32))
infer("extract/typed/argmax-u8", lambda x: x.argmax(1), T(2, 8, 32, 32, dtype=u8))
infer("extract/typed/roll-i8", lambda x: x.roll(3, -1), T(128, 256, dtype=i8))
infer("extract/typed/roll-bf16", lambda x: x.roll((2, 5), (1, 2)), T(8, 32, 64, dtype=bf16))
infer("extract/typed/roll-u8-rows", lambda x: x.roll(1, 0), T(64, 257, dtype=u8))
infer("extract/typed/erfc", lambda x: torch.erfc(x), T(64, 256))
infer("extract/typed/erfc-f64", lambda x: 0.5 * torch.erfc(-x / math.sqrt(2.0)), T(64, 256, dtype=torch.float64))
infer(
    "extract/typed/masked-scatter",
    lambda x, m, s: x.masked_scatter(m, s),
    T(64, 64),
    T(64, 64, dtype=torch.bool),
    T(64, 64),
)
infer(
    "extract/typed/image-tokens",
    lambda x, m, s: x.masked_scatter(m[..., None].expand_as(x), s),
    T(2, 64, 64),
    T(2, 64, dtype=torch.bool),
    T(128, 64),
)
infer("extract/typed/bincount", lambda x: torch.bincount(x, minlength=64), T(4096, dtype=i64, low=0, high=63))
infer("extract/typed/histc", lambda x: torch.histc(x, 32, 0, 1), T(4096, low=0, high=1))
infer("extract/typed/logcumsumexp", lambda x: x.logcumsumexp(-1), T(64, 128))
infer("extract/typed/logcumsumexp-columns", lambda x: x.logcumsumexp(0), T(64, 128))
infer(
    "extract/typed/grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 16, 24, 24),
    T(2, 24, 24, 2, low=-1, high=1),
)
infer(
    "extract/typed/grid-sample-border",
    lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
    T(2, 3, 32, 32),
    T(2, 32, 32, 2, low=-1, high=1),
)
infer(
    "extract/typed/grid-sample-nearest",
    lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False),
    T(2, 3, 32, 32),
    T(2, 32, 32, 2, low=-1, high=1),
)
infer(
    "extract/typed/grid-sample-3d",
    lambda x, g: F.grid_sample(x, g, align_corners=True),
    T(1, 4, 12, 12, 12),
    T(1, 8, 8, 8, 3, low=-1, high=1),
)
infer(
    "extract/typed/complex-conv",
    lambda a, b: (a * b.conj()).sum(-1),
    T(64, 128, dtype=torch.complex64),
    T(64, 128, dtype=torch.complex64),
)
infer("extract/typed/complex-magnitude-phase", lambda x: (x.abs(), x.angle()), T(64, 128, dtype=torch.complex64))
infer(
    "extract/typed/unique-free-counts",
    lambda x: (x[:, None] == torch.arange(16)).sum(0),
    T(1000, dtype=i64, low=0, high=15),
)
infer(
    "extract/typed/i64-compare-sum",
    lambda a, b: (a == b).float().mean(),
    T(64, 128, dtype=i64, low=0, high=3),
    T(64, 128, dtype=i64, low=0, high=3),
)
infer("extract/typed/f64-matmul-norm", lambda a: torch.linalg.norm(a @ a.t()), T(48, 48, dtype=torch.float64))
infer(
    "extract/typed/i16-audio-mix",
    lambda a, b: ((a.to(i32) + b.to(i32)) // 2).clamp(-32768, 32767).to(torch.int16),
    T(2, 4000, dtype=torch.int16),
    T(2, 4000, dtype=torch.int16),
)
