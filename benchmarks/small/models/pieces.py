"""Pieces of models: products, convolutions, attention, decoding, small models."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from small.case import T, bf16, f16, f32, i8, i64, infer, module, train, u8

# Products, and what surrounds them

for rows in (1, 8, 128):
    for dtype, name in ((f32, "f32"), (bf16, "bf16")):
        size = 512 if rows == 128 else 1024
        infer(
            f"product/linear-gelu-{rows}/{name}",
            lambda x, w, b: F.gelu(F.linear(x, w, b)),
            T(rows, size, dtype=dtype),
            T(size, size, dtype=dtype),
            T(size, dtype=dtype),
        )
module("product/linear-autocast-8", lambda: nn.Linear(1024, 4096), T(8, 1024), autocast=bf16, tolerance=0.03)
module("product/mlp-autocast-128", lambda: mlp(256), T(128, 256), autocast=bf16, tolerance=0.03)
module("product/mlp-autocast-training", lambda: mlp(256), T(64, 256), autocast=bf16, training=True, tolerance=0.03)
module("product/mlp-training", lambda: mlp(256), T(64, 256), training=True)
module("product/mlp-f16", lambda: mlp(256), T(16, 256, dtype=f16), dtype=f16)
infer("product/scaled-weight", lambda x, w: x @ (w * 2).t(), T(8, 1024), T(2048, 1024))
infer("product/int8-weight", lambda x, w, s: x @ w.to(f32).t() * s, T(8, 1024), T(2048, 1024, dtype=i8), T(2048))
infer(
    "product/int8-weight-bf16",
    lambda x, w, s: F.linear(x, w.to(bf16)) * s,
    T(4, 1024, dtype=bf16),
    T(2048, 1024, dtype=i8),
    T(2048, dtype=bf16),
)
infer(
    "product/int4-groups",
    lambda x, q, s: (
        x @ ((torch.stack((q & 15, q >> 4), -1).flatten(1).to(f32) - 8).view(1024, 8, 128) * s).flatten(1).t()
    ),
    T(4, 1024),
    T(1024, 512, dtype=u8),
    T(1024, 8, 1),
)
infer("product/transposed", lambda a, b: a.t() @ b, T(256, 256), T(256, 512))
infer("product/batched", lambda a, b: torch.bmm(a, b), T(32, 64, 64), T(32, 64, 64))
infer("product/batched-bias-relu", lambda a, b, c: (a @ b + c).relu(), T(8, 128, 64), T(8, 64, 128), T(128))
infer("product/small-batched", lambda a, b: a @ b, T(4096, 4, 4), T(4096, 4, 4))
infer("product/matrix-vector", lambda a, v: a @ v, T(1024, 1024), T(1024))
infer("product/outer", lambda a, b: torch.outer(a, b).relu(), T(1024), T(1024))
infer("product/einsum-heads", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), *[T(2, 128, 8, 64)] * 2)
infer("product/bilinear", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), T(64, 32), T(16, 32, 32), T(64, 32))
infer(
    "product/quantized-dequantized",
    lambda x, w: torch.clamp(torch.round(x * 20), -128, 127) / 20 @ w,
    T(64, 512),
    T(512, 512),
)
infer("product/lora", lambda x, w, a, b: x @ w + (x @ a) @ b * 0.5, T(32, 512), T(512, 512), T(512, 8), T(8, 512))
train("product/linear-relu-training", lambda x, w, b: F.linear(x, w, b).relu(), T(128, 256), T(512, 256), T(512))
train(
    "product/swiglu-training",
    lambda x, g, u, d: (F.silu(x @ g) * (x @ u)) @ d,
    T(64, 256),
    T(256, 512),
    T(256, 512),
    T(512, 256),
)


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width))


# Convolutions


def conv_block(channels: int, kernel: int = 3, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    )


module("convolution/block", lambda: conv_block(64), T(1, 64, 28, 28))
module(
    "convolution/block-channels-last",
    lambda: conv_block(64),
    T(1, 64, 28, 28, layout="channels_last"),
    channels_last=True,
)
module("convolution/depthwise", lambda: conv_block(64, 3, 64), T(1, 64, 56, 56))
module("convolution/pointwise", lambda: conv_block(128, 1), T(1, 128, 28, 28))
module("convolution/block-training", lambda: conv_block(32), T(2, 32, 28, 28), training=True)
module(
    "convolution/stem-pool",
    lambda: nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    T(1, 3, 112, 112),
)
module("convolution/one-dimension", lambda: nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.GELU()), T(4, 64, 256))
module("convolution/transposed", lambda: nn.Sequential(nn.ConvTranspose2d(32, 16, 2, 2), nn.ReLU()), T(1, 32, 28, 28))
module("convolution/autocast", lambda: conv_block(32), T(1, 32, 28, 28), autocast=bf16, tolerance=0.03)

# Attention


def written_out(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = q @ k.transpose(-1, -2) / 8
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ v


HEADS = [T(1, 8, 128, 64)] * 3
infer("attention/written-out", written_out, *HEADS)
infer("attention/written-out-mask", written_out, *HEADS, T(128, 128))
infer("attention/written-out-bf16", written_out, *[T(1, 8, 128, 64, dtype=bf16)] * 3)
infer("attention/written-out-long", written_out, *[T(1, 2, 512, 64)] * 3)
infer("attention/fused", F.scaled_dot_product_attention, *HEADS)
infer("attention/fused-causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *HEADS)
infer(
    "attention/fused-bf16",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v) * 2,
    *[T(1, 8, 128, 64, dtype=bf16)] * 3,
)
infer(
    "attention/relative-bias",
    lambda q, k, v, b: torch.softmax(q @ k.mT * 0.125 + b, -1) @ v,
    *[T(16, 4, 49, 32)] * 3,
    T(4, 49, 49),
)
infer("attention/linear", lambda q, k, v: (F.elu(q) + 1) @ ((F.elu(k) + 1).mT @ v), *HEADS)
infer(
    "attention/alibi",
    lambda q, k, v, s: (
        torch.softmax(q @ k.mT / 8 - s[:, None, None] * (torch.arange(128)[:, None] - torch.arange(128)).abs(), -1) @ v
    ),
    *HEADS,
    T(8),
)
train("attention/training", written_out, *HEADS)
train("attention/fused-training", F.scaled_dot_product_attention, *HEADS)
module(
    "attention/encoder-layer",
    lambda: nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0),
    T(2, 64, 128),
)
module(
    "attention/encoder-layer-training",
    lambda: nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0),
    T(2, 64, 128),
    training=True,
)
module(
    "attention/encoder-layer-autocast",
    lambda: nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0),
    T(2, 64, 128),
    training=True,
    autocast=bf16,
    tolerance=0.3,  # eager's own gradients are 25% off: which side of relu's kink a number is on
)
infer(
    "attention/rotary",
    lambda q, c, s: q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s,
    T(1, 16, 128, 64),
    T(128, 64),
    T(128, 64),
)
infer(
    "attention/rotary-bf16",
    lambda q, c, s: q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s,
    *[T(1, 16, 128, 64, dtype=bf16), T(128, 64, dtype=bf16), T(128, 64, dtype=bf16)],
)
infer(
    "attention/rotary-interleaved",
    lambda q, c, s: torch.stack((q[..., ::2] * c - q[..., 1::2] * s, q[..., ::2] * s + q[..., 1::2] * c), -1).flatten(
        -2
    ),
    T(1, 16, 128, 64),
    T(128, 32),
    T(128, 32),
)

# Decoding with a cache of keys and values


def copied(cache_k: Any, cache_v: Any, k: Any, v: Any, at: Any) -> Any:
    cache_k.index_copy_(2, at, k)
    cache_v.index_copy_(2, at, v)
    return cache_k[:, :, 0, 0] + cache_v[:, :, 0, 0]


def assigned(cache: Any, k: Any) -> Any:
    cache[:, :, 100:101] = k
    return cache[:, 0, 100] * 2


def put(cache: Any, k: Any, at: Any) -> Any:
    cache[:, :, at] = k
    return k + 1


def decoded(cache_k: Any, cache_v: Any, q: Any, k: Any, v: Any, at: Any) -> Any:
    cache_k.index_copy_(2, at, k)
    cache_v.index_copy_(2, at, v)
    mask = torch.arange(512) <= at
    scores = (q @ cache_k.transpose(-1, -2) / 8).masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1) @ cache_v


CACHE, TOKEN = T(1, 8, 512, 64), T(1, 8, 1, 64)
AT = torch.tensor([100])
infer("decode/index-copy", copied, CACHE, CACHE, TOKEN, TOKEN, AT)
infer("decode/index-copy-bf16", copied, *[T(1, 8, 512, 64, dtype=bf16)] * 2, *[T(1, 8, 1, 64, dtype=bf16)] * 2, AT)
infer("decode/slice-assign", assigned, CACHE, TOKEN)
infer("decode/index-put", put, CACHE, TOKEN, AT)
infer("decode/attention", decoded, CACHE, CACHE, TOKEN, TOKEN, TOKEN, AT)
infer(
    "decode/cat-cache",
    lambda c, k, q: torch.softmax(q @ torch.cat((c, k), 2).mT / 8, -1),
    T(1, 8, 255, 64),
    TOKEN,
    TOKEN,
)
infer(
    "decode/grouped-queries",
    lambda q, k, v: torch.softmax(q @ k.repeat_interleave(4, 1).mT / 8, -1) @ v.repeat_interleave(4, 1),
    T(1, 32, 1, 64),
    *[T(1, 8, 256, 64)] * 2,
)
infer("decode/fused", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), TOKEN, CACHE, CACHE)
infer(
    "decode/rms-projection",
    lambda x, g, w: (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * g) @ w.t(),
    T(1, 1024),
    T(1024),
    T(2048, 1024),
)
infer(
    "decode/swiglu-bf16",
    lambda x, g, u, d: (F.silu(x @ g.t()) * (x @ u.t())) @ d.t(),
    T(1, 512, dtype=bf16),
    T(1408, 512, dtype=bf16),
    T(1408, 512, dtype=bf16),
    T(512, 1408, dtype=bf16),
)


class Step(nn.Module):
    """One token through a layer, with its cache in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.out = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)
        self.register_buffer("keys", torch.zeros(1, 4, 256, 64))
        self.register_buffer("values", torch.zeros(1, 4, 256, 64))

    def forward(self, x: Any, at: Any) -> Any:
        q, k, v = (t.view(1, 1, 4, 64).transpose(1, 2) for t in self.inner(self.norm(x)).chunk(3, -1))
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        mask = (torch.arange(256) <= at)[None]
        out = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return x + self.out(out.transpose(1, 2).reshape(1, 1, 256))


module("decode/layer", Step, T(1, 1, 256), AT)
module("decode/layer-bf16", Step, T(1, 1, 256, dtype=bf16), AT, dtype=bf16)

# Whole small models


class Block(nn.Module):
    """A residual block of a small convolutional network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = conv_block(channels), conv_block(channels)

    def forward(self, x: Any) -> Any:
        return x + self.two(self.one(x))


class Tabular(nn.Module):
    """Embeddings of categories beside numbers, and a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, 16) for _ in range(8))
        self.rest = nn.Sequential(nn.Linear(8 * 16 + 13, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, categories: Any, numbers: Any) -> Any:
        parts = [table(categories[:, n]) for n, table in enumerate(self.tables)]
        return torch.sigmoid(self.rest(torch.cat((*parts, numbers), -1)))


module("model/residual-block-training", lambda: Block(16), T(2, 16, 28, 28), training=True)
module("model/tabular", Tabular, T(256, 8, dtype=i64, low=0, high=99), T(256, 13))
module("model/tabular-training", Tabular, T(256, 8, dtype=i64, low=0, high=99), T(256, 13), training=True)
module("model/tiny-mlp", lambda: nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)), T(8, 16))
module(
    "model/tiny-mlp-training",
    lambda: nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)),
    T(8, 16),
    training=True,
)
