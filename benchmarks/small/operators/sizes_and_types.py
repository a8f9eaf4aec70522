"""Sizes, types and layouts that small programs meet: symbolic sizes, dimensions of one element or none, numbers of
eight bits and of sixty-four, calls that are shorter than a microsecond."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i32, i64, infer, module, train, u8

f64, boolean = torch.float64, torch.bool


# Symbolic sizes: every program of this part is compiled with dynamic=True


def symbolic(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    infer(f"symbolic/{name}", function, *inputs, dynamic=True, **options)


symbolic("max-pool", lambda x: F.max_pool2d(x, 2), T(2, 16, 48, 48))
symbolic("max-pool-3", lambda x: F.relu(F.max_pool2d(x, 3, 2, 1)), T(2, 16, 48, 48))
symbolic("average-pool", lambda x: F.avg_pool2d(x, 2), T(2, 16, 48, 48))
symbolic("average-pool-3", lambda x: F.avg_pool2d(x, 3, 1, 1), T(2, 16, 48, 48))
symbolic("global-pool", lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), T(2, 64, 14, 14))
symbolic("adaptive-pool", lambda x: F.adaptive_avg_pool2d(x, (7, 7)), T(2, 16, 28, 28))
symbolic(
    "bilinear-x2",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    T(1, 16, 24, 24),
)
symbolic(
    "bilinear-to",
    lambda x, y: y + F.interpolate(x, size=y.shape[-2:], mode="bilinear", align_corners=False),
    T(1, 16, 24, 24),
    T(1, 16, 40, 40),
)
symbolic(
    "bilinear-corners",
    lambda x: F.interpolate(x, size=(48, 48), mode="bilinear", align_corners=True),
    T(1, 16, 24, 24),
)
symbolic("nearest-x2", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), T(1, 16, 24, 24))
symbolic("nearest-to", lambda x, y: y + F.interpolate(x, size=y.shape[-2:]), T(1, 16, 24, 24), T(1, 16, 40, 40))
symbolic("reflect-pad", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), T(1, 16, 48, 48))
symbolic("replicate-pad", lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), T(1, 16, 48, 48))
symbolic("softmax", lambda x: (x * 0.125).softmax(-1), T(8, 64, 100))
symbolic("softmax-bf16", lambda x: (x * 0.125).softmax(-1), T(8, 64, 100, dtype=bf16))
symbolic("layer-norm", lambda x, w, b: F.layer_norm(x, (256,), w, b), T(4, 50, 256), *[T(256)] * 2)
symbolic("rms-norm-bf16", lambda x, w: F.rms_norm(x, (256,), w), T(4, 50, 256, dtype=bf16), T(256, dtype=bf16))
symbolic("gelu-linear", lambda x, w, b: F.gelu(F.linear(x, w, b)), T(50, 128), T(256, 128), T(256))
symbolic("normalize-u8", lambda x: (x.permute(2, 0, 1).float() / 255 - 0.5) / 0.25, T(60, 80, 3, dtype=u8))
symbolic("transposed-add", lambda a, b: a + b.transpose(-1, -2), *[T(4, 90, 90)] * 2)
symbolic("cat-heads", lambda a, b: torch.cat((a, b), 1).transpose(1, 2).contiguous(), *[T(2, 30, 4, 16)] * 2)
symbolic(
    "causal", lambda s: s.masked_fill(torch.ones_like(s[0], dtype=boolean).triu(1), -1e9).softmax(-1), T(4, 60, 60)
)
symbolic("cumsum", lambda x: x.cumsum(-1), T(20, 300))
symbolic("argmax", lambda x: x.argmax(-1), T(20, 300))
symbolic("embedding", lambda w, i: F.embedding(i, w) * 8, T(500, 64), T(4, 30, dtype=i64, low=0, high=499))
symbolic("group-norm", lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)), T(2, 32, 20, 20), *[T(32)] * 2)
symbolic("patches", lambda x: x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3), T(1, 3, 64, 64))
symbolic("pixel-shuffle", lambda x: F.pixel_shuffle(x, 2), T(1, 16, 24, 24))
symbolic("mean-columns", lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5), T(200, 40))
symbolic("roll", lambda x: torch.roll(x, 1, -1) - x, T(50, 300))
symbolic("flip", lambda x: x.flip(-1), T(3, 48, 48))
symbolic("center-crop", lambda x: x[..., 4:-4, 4:-4] * 2, T(3, 48, 48))
symbolic(
    "masked-mean",
    lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True),
    T(4, 50, 64),
    T(4, 50, low=0, high=1),
)
symbolic(
    "conv-relu-pool", lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2), T(1, 3, 48, 48), T(8, 3, 3, 3)
)
symbolic("depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=16), T(1, 16, 48, 48), T(16, 1, 3, 3))
for word, function, shapes in (
    ("max-pool", lambda x: F.max_pool2d(x, 2), (T(2, 8, 32, 32),)),
    ("bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (T(1, 8, 20, 20),)),
    ("layer-norm", lambda x, w, b: F.layer_norm(x, (64,), w, b), (T(4, 50, 64), T(64), T(64))),
    ("softmax", lambda x: x.softmax(-1), (T(8, 40, 100),)),
    ("mlp", lambda x, w, v: F.relu(x @ w) @ v, (T(30, 32), T(32, 64), T(64, 8))),
):
    train(f"symbolic/training/{word}", function, *shapes, dynamic=True)


# Types


infer("typed/i64-mod-hash", lambda x: (x * 2654435761 % 2**32) % 1024, T(4096, dtype=i64, low=0, high=100000))
infer("typed/i8-average", lambda a, b: ((a.to(torch.int16) + b.to(torch.int16)) >> 1).to(i8), *[T(8192, dtype=i8)] * 2)
infer("typed/u8-threshold", lambda x: (x > 127).to(u8) * 255, T(128, 128, dtype=u8))
infer("typed/bool-any-rows", lambda x, y: (x & ~y).any(-1), *[T(256, 64, dtype=boolean)] * 2)
infer("typed/bool-count", lambda x: x.sum(-1), T(256, 200, dtype=boolean))
infer("typed/f64-standardize", lambda x: (x - x.mean(0)) / x.std(0), T(500, 20, dtype=f64))
infer("typed/f64-mix", lambda a, b: a * b + b.double().sum(), T(64, 64), T(64, 64, dtype=f64))
infer("typed/f16-logsumexp", lambda x: x.logsumexp(-1), T(64, 500, dtype=f16))
infer("typed/bf16-var", lambda x: x.var(-1), T(64, 500, dtype=bf16))
infer("typed/bf16-int-index", lambda x, i: x[i].float(), T(500, 64, dtype=bf16), T(300, dtype=i64, low=0, high=499))
infer("typed/f16-cumsum-short", lambda x: x.cumsum(-1), T(2048, 8, dtype=f16))
infer("typed/bf16-cumsum-short", lambda x: x.cumsum(-1), T(2048, 8, dtype=bf16))
infer("typed/i64-argmax", lambda x: x.argmax(-1), T(100, 200, dtype=i64))
infer("typed/i32-cumsum", lambda x: x.cumsum(0), T(512, 16, dtype=i32))
infer("typed/i64-sum-where", lambda x: torch.where(x > 0, x, 0).sum(-1), T(200, 100, dtype=i64))
infer("typed/erfc", lambda x: 0.5 * torch.erfc(-x * 0.7071067811865476), T(20000))
infer("typed/i8-roll", lambda x: x.roll(3, -1), T(64, 300, dtype=i8))
infer("typed/bf16-roll", lambda x: x.roll((2, 3), (0, 1)), T(64, 300, dtype=bf16))
infer("typed/u8-take", lambda t, x: t[x.long()], T(256, low=0, high=1), T(96, 96, dtype=u8))
infer("typed/f16-clip-round", lambda x: (x / 0.05).round().clamp(-128, 127) * 0.05, T(128, 200, dtype=f16))
infer("typed/bf16-min-max", lambda x: torch.aminmax(x, dim=-1), T(100, 200, dtype=bf16))
infer("typed/i32-pack-bits", lambda x: (x.long() << torch.arange(32)).sum(-1), T(500, 32, dtype=boolean))
infer("typed/f32-to-f64-sum", lambda x: x.double().sum(), T(20000))
infer("typed/i64-floor-divide", lambda x: (x // 7, x % 7), T(5000, dtype=i64))
infer("typed/complex-abs2", lambda x: x.real.square() + x.imag.square(), T(5000, dtype=torch.complex64))
infer("typed/u8-histogram", lambda x: torch.bincount(x.flatten().long(), minlength=256), T(64, 64, dtype=u8))
infer("typed/histc", lambda x: torch.histc(x, 50, -3, 3), T(10000))
infer("typed/masked-scatter", lambda x, m, s: x.masked_scatter(m, s), T(100, 64), T(100, 64, dtype=boolean), T(6400))
infer("typed/logcumsumexp", lambda x: x.logcumsumexp(-1), T(32, 300))
infer("typed/one-row-tril", lambda x: x.tril(), T(1, 4000))
infer("typed/isin", lambda x, y: torch.isin(x, y), T(2000, dtype=i64, low=0, high=50), torch.tensor([3, 7, 11]))
infer(
    "typed/unique-mask",
    lambda x: F.pad(x[1:] != x[:-1], (1, 0), value=True).cumsum(0) - 1,
    T(3000, dtype=i64, low=0, high=3),
)


# Layouts


infer("laid/column-write", lambda x, c: x.index_fill(1, torch.tensor([2]), 1.0) + c[:, None], T(500, 40), T(500))


def write_column(x: Any, c: Any) -> Any:
    x[:, 3] = c
    return x.sum(0)


infer("laid/column-assign", write_column, T(500, 40), T(500))
infer("laid/expanded-mul", lambda x, w: x.expand(16, -1, -1) * w, T(1, 40, 50), T(16, 1, 50))
infer("laid/strided-rows", lambda x: x[::2].relu() + x[1::2], T(200, 300))
infer("laid/size-one-middle", lambda x, y: (x + y).squeeze(1).softmax(-1), T(64, 1, 100), T(1, 1, 100))
infer("laid/cl-to-contiguous", lambda x: x.contiguous() * 2, T(2, 32, 24, 24, layout="channels_last"))
infer("laid/cl-add-contiguous", lambda x, y: x + y, T(2, 32, 24, 24, layout="channels_last"), T(2, 32, 24, 24))
infer(
    "laid/cl-batch-norm",
    lambda x, m, v: F.relu(F.batch_norm(x, m, v)),
    T(2, 32, 24, 24, layout="channels_last"),
    T(32),
    T(32, low=0.5, high=1),
)
infer("laid/cl-softmax", lambda x: x.softmax(1), T(2, 21, 32, 32, layout="channels_last"))
infer("laid/zero-rows", lambda x: (x.softmax(-1) * 2).sum(0), T(0, 16))
infer("laid/empty-cat", lambda a, b: torch.cat((a, b)) + 1, T(0, 16), T(30, 16))
infer("laid/transposed-softmax", lambda x: x.softmax(-1), T(8, 64, 100, layout="transposed"))
infer("laid/transposed-sum", lambda x: x.square().sum(-1), T(200, 300, layout="transposed"))
infer("laid/permuted-3d", lambda x: (x.permute(2, 0, 1) * 0.5).contiguous(), T(20, 30, 40))
infer("laid/diagonal-add", lambda x: x + torch.diag_embed(x.diagonal() * 0.1), T(64, 64))
infer("laid/kron", lambda a, b: torch.kron(a, b), T(8, 8), T(16, 16))
infer("laid/window-view", lambda x: x.as_strided((100, 16), (8, 1)).mean(-1), T(1000))
infer("laid/block-diagonal", lambda a, b: torch.block_diag(a, b), T(20, 30), T(30, 20))
infer("laid/flip-cumsum", lambda x: x.flip(-1).cumsum(-1).flip(-1), T(50, 200))
infer("laid/movedim-norm", lambda x: F.normalize(x.movedim(1, -1), dim=-1), T(4, 32, 100))
infer("laid/tile", lambda x: x.tile(4, 3) + 1, T(20, 30))
infer("laid/outer-max", lambda a, b: torch.maximum(a[:, None], b[None]), T(200), T(200))
infer("laid/scalar-tensor", lambda x, s: x * s + s, T(50, 50), T())
infer("laid/unbind-stack", lambda x: torch.stack(x.unbind(1)[::-1], 1), T(100, 4, 8))
infer("laid/swap-halves-u8", lambda x: torch.cat((x[:, 32:], x[:, :32]), 1), T(64, 64, dtype=u8))


# Very small


infer("mini/add", lambda a, b: a + b, T(4), T(4))
infer("mini/normalize", lambda x: x / x.norm(), T(3))
infer("mini/sigmoid-threshold", lambda x: (x.sigmoid() > 0.5).float(), T(16))
infer("mini/softmax-sample", lambda x, u: (x.softmax(-1).cumsum(-1) < u).sum(-1), T(10), T(1, low=0, high=1))
infer("mini/q-target", lambda r, d, q: r + 0.99 * (1 - d) * q.max(-1).values, T(32), T(32, low=0, high=1), T(32, 4))
infer("mini/linear-tanh", lambda x, w, b: torch.tanh(F.linear(x, w, b)), T(1, 4), T(16, 4), T(16))
infer("mini/euler", lambda x, v, a: (x + v * 0.01 + a * 5e-5, v + a * 0.01), *[T(3)] * 3)
infer(
    "mini/rotation-6d",
    lambda x: torch.stack((F.normalize(x[:, :3], dim=-1), F.normalize(x[:, 3:], dim=-1)), 1),
    T(4, 6),
)
infer("mini/mean-std", lambda x: (x.mean(), x.std()), T(20))
infer("mini/dot", lambda a, b: a @ b, T(8), T(8))
infer("mini/cosine-schedule", lambda t: (1 + torch.cos(t * 3.14159 / 100)) / 2, T(low=0, high=100))
infer("mini/polyak", lambda a, b: torch.lerp(a, b, 0.005), T(8, 8), T(8, 8))
infer("mini/eye-add", lambda x: x + 0.1 * torch.eye(3), T(3, 3))
infer("mini/cross", lambda a, b: torch.linalg.cross(a, b), T(4, 3), T(4, 3))
infer("mini/int-counter", lambda x: x + 1, T(1, dtype=i64))
infer("mini/masked-argmax", lambda q, m: q.masked_fill(~m, -1e9).argmax(-1), T(6), T(6, dtype=boolean))
train("mini/square-training", lambda x: (x * x).sum(), T(4))
train(
    "mini/logistic-training",
    lambda x, w, b, y: F.binary_cross_entropy_with_logits(x @ w + b, y),
    T(16, 4),
    T(4),
    T(1),
    T(16, low=0, high=1),
)
train(
    "mini/gaussian-policy-training",
    lambda m, s, a: (-((a - m) / s.exp()).square() / 2 - s).sum(-1).mean(),
    T(8, 2),
    T(2),
    T(8, 2),
)
module("mini/layer-norm-training", lambda: nn.LayerNorm(16), T(4, 16), training=True)
module("mini/embedding-training", lambda: nn.Embedding(20, 8), T(4, dtype=i64, low=0, high=19), training=True)
module(
    "mini/sequential-training",
    lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)),
    T(8, 4),
    training=True,
)
