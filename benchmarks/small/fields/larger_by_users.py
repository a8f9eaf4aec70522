"""What people run on more than a handful of numbers: each takes eager between a tenth of a millisecond and a few."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, case, f16, i8, i64, infer, module, train, u8  # noqa: F401

# Language models


class Attention(nn.Module):
    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool), 1), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


module("big/attention", Attention, T(2, 128, 256))
module("big/attention-bf16", Attention, T(2, 128, 256, dtype=bf16), dtype=bf16)
module("big/attention-train", Attention, T(2, 64, 256), training=True)
module(
    "big/mlp-autocast",
    lambda: nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)),
    T(8, 512),
    autocast=bf16,
)
module(
    "big/mlp-f16",
    lambda: nn.Sequential(nn.Linear(512, 1024), nn.SiLU(), nn.Linear(1024, 512)),
    T(4, 512, dtype=f16),
    dtype=f16,
)


def norm_residual(x: Any, r: Any, w: Any) -> Any:
    x = x + r
    y = x.float()
    return x, (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


infer("big/norm-residual", norm_residual, *[T(256, 2048, dtype=bf16)] * 2, T(2048, dtype=bf16))
infer(
    "big/layer-norm-f16",
    lambda x, w, b: F.layer_norm(x, (1024,), w, b),
    T(512, 1024, dtype=f16),
    *[T(1024, dtype=f16)] * 2,
)
train("big/layer-norm-train", lambda x, w, b: F.layer_norm(x, (768,), w, b), T(256, 768), T(768), T(768))


def rope(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x[..., :32], x[..., 32:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


infer("big/rope-bf16", rope, T(1, 16, 256, 64, dtype=bf16), T(256, 32, dtype=bf16), T(256, 32, dtype=bf16))
infer("big/rope-bnhd", lambda x, c, s: rope(x.transpose(1, 2), c, s), T(2, 256, 8, 64), T(256, 32), T(256, 32))
infer("big/swiglu", lambda x, w, v: F.silu(x @ w.t()) * (x @ v.t()), T(8, 512), T(1536, 512), T(1536, 512))
train("big/cross-entropy", lambda x, y: F.cross_entropy(x, y), T(64, 8000), T(64, dtype=i64, low=0, high=7999))
train(
    "big/cross-entropy-bf16",
    lambda x, y: F.cross_entropy(x.float(), y),
    T(64, 4000, dtype=bf16),
    T(64, dtype=i64, low=0, high=3999),
)
infer(
    "big/perplexity",
    lambda x, y: -x.log_softmax(-1).gather(1, y[:, None]).mean(),
    T(128, 8000),
    T(128, dtype=i64, low=0, high=7999),
)
infer("big/top-p", lambda x: (x.sort(-1, descending=True)[0].softmax(-1).cumsum(-1) < 0.9).sum(-1), T(4, 16000))
infer("big/top-k", lambda x: x.where(x >= x.topk(50, -1)[0][:, -1:], -torch.inf).softmax(-1), T(4, 32000))
infer(
    "big/repetition",
    lambda x, i: x.scatter(1, i, x.gather(1, i) * 0.8),
    T(4, 32000),
    T(4, 256, dtype=i64, low=0, high=31999),
)
infer(
    "big/embed",
    lambda w, p, i: F.layer_norm(w[i] + p, (512,)),
    T(8000, 512),
    T(128, 512),
    T(4, 128, dtype=i64, low=0, high=7999),
)


def write_cache(cache: Any, k: Any, q: Any) -> Any:
    cache[:, :, 100:101] = k
    return (q @ cache[:, :, :101].mT * 0.125).softmax(-1)


infer("big/write-cache", write_cache, T(4, 8, 512, 64), T(4, 8, 1, 64), T(4, 8, 1, 64))
infer(
    "big/int8-decode", lambda x, w, s: (x @ w.to(torch.float32).t()) * s, T(1, 1024), T(2048, 1024, dtype=i8), T(2048)
)
infer(
    "big/int8-decode-bf16",
    lambda x, w, s: F.linear(x, w.to(bf16)) * s,
    T(1, 1024, dtype=bf16),
    T(2048, 1024, dtype=i8),
    T(2048, dtype=bf16),
)


def nibbles(x: Any, packed: Any, scale: Any) -> Any:
    w = torch.stack((packed & 15, packed >> 4), -1).flatten(1).to(torch.float32) - 8
    return x @ (w.view(w.shape[0], -1, 64) * scale[..., None]).flatten(1).t()


infer("big/int4-decode", nibbles, T(1, 1024), T(1024, 512, dtype=u8), T(1024, 16))


def switch(x: Any, gate: Any) -> Any:
    p = (x @ gate).softmax(-1)
    most, at = p.max(-1)
    hot = F.one_hot(at, 16)
    place = (hot.cumsum(0) * hot).sum(-1)
    return most * (place <= 80), at, place


infer("big/switch", switch, T(1024, 128), T(128, 16))
infer("big/gelu-bf16", lambda x: F.gelu(x * 0.5 + 1) * x, T(512, 1024, dtype=bf16))
infer("big/bias-silu-f16", lambda x, b: F.silu(x + b), T(512, 1024, dtype=f16), T(1024, dtype=f16))

# Pictures

infer("vision/u8-normalize", lambda x: (x.float() / 255 - 0.45) / 0.22, T(8, 3, 128, 128, dtype=u8))
infer("vision/hwc-to-chw", lambda x: (x.permute(0, 3, 1, 2) / 255.0).contiguous(), T(8, 128, 128, 3, dtype=u8))
infer("vision/to-channels-last", lambda x: x.contiguous(memory_format=torch.channels_last), T(8, 32, 56, 56))
infer("vision/rgb-to-yuv", lambda x, m: torch.einsum("ij,bjhw->bihw", m, x), T(4, 3, 128, 128), T(3, 3))
infer("vision/max-pool", lambda x: F.max_pool2d(F.relu(x), 3, 2, 1), T(2, 64, 56, 56))
infer("vision/max-pool-cl", lambda x: F.max_pool2d(F.relu(x), 2), T(2, 64, 56, 56, layout="channels_last"))
infer("vision/avg-pool-3", lambda x: F.avg_pool2d(x, 3, 1, 1) - x, T(2, 64, 28, 28))
infer("vision/adaptive", lambda x: F.adaptive_avg_pool2d(x, 7), T(4, 64, 28, 28))
infer("vision/reflect", lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect") * 2, T(4, 8, 64, 64))
infer("vision/unfold", lambda x: F.unfold(x, 3, padding=1).square().sum(1), T(2, 16, 48, 48))
infer("vision/bilinear-up", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") + 1, T(2, 16, 32, 32))
infer(
    "vision/bilinear-size",
    lambda x: F.interpolate(x, size=(96, 96), mode="bilinear", align_corners=True),
    T(2, 3, 128, 128),
)
infer("vision/nearest-up", lambda x, y: F.interpolate(x, scale_factor=2) + y, T(2, 32, 32, 32), T(2, 32, 64, 64))
infer(
    "vision/grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 3, 96, 96),
    T(2, 96, 96, 2, low=-1, high=1),
)
infer("vision/blur", lambda x: F.conv2d(x, torch.full((3, 1, 5, 5), 0.04), padding=2, groups=3), T(2, 3, 128, 128))
infer("vision/group-norm-silu", lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)), T(2, 64, 32, 32), T(64), T(64))
infer(
    "vision/jitter",
    lambda x, a, b: ((x * a - (x * a).mean((1, 2, 3), True)) * b + 0.5).clamp(0, 1),
    T(8, 3, 96, 96),
    T(8, 1, 1, 1),
    T(8, 1, 1, 1),
)
infer("vision/dct", lambda x, d: d @ x.unfold(1, 8, 8).unfold(2, 8, 8) @ d.t(), T(3, 128, 128), T(8, 8))
infer(
    "vision/soft-argmax",
    lambda x: (x.flatten(2).softmax(-1).view_as(x) * torch.arange(48.0)).sum((2, 3)),
    T(4, 17, 48, 48),
)
infer(
    "vision/nms-matrix",
    lambda b: (torch.min(b[:, None, 2:], b[:, 2:]) - torch.max(b[:, None, :2], b[:, :2])).clamp(min=0).prod(-1),
    T(400, 4),
)
module(
    "vision/conv-bn-train",
    lambda: nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
    T(4, 16, 28, 28),
    training=True,
)
module(
    "vision/bn-cl-train",
    lambda: nn.Sequential(nn.BatchNorm2d(32), nn.ReLU()),
    T(4, 32, 28, 28, layout="channels_last"),
    training=True,
)
infer(
    "vision/life",
    lambda x: sum(torch.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j) == 3,
    T(256, 256, dtype=i64, low=0, high=1),
)
infer(
    "vision/laplace",
    lambda u: u[1:-1, 1:-1] + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]),
    T(514, 514),
)
infer("vision/rot90", lambda x: torch.rot90(x, 1, (2, 3)) + x, T(4, 3, 128, 128))
infer("vision/pixel-unshuffle", lambda x: F.pixel_unshuffle(x, 2), T(4, 16, 64, 64))

# Numbers

infer("mass/a-plus-bt", lambda a, b: a + b.t(), T(768, 768), T(768, 768))
infer("mass/transpose-sum", lambda a: (a.mT * 2).sum(-1), T(8, 256, 256))
infer("mass/cumsum", lambda x: x.cumsum(-1), T(64, 4096))
infer("mass/cumsum-0", lambda x: x.cumsum(0) / 10, T(2048, 64))
infer("mass/softmax-0", lambda x: x.softmax(0), T(1024, 256))
infer("mass/log-softmax-1", lambda x: x.log_softmax(1), T(8, 21, 64, 64))
infer("mass/var-mean", lambda x: torch.var_mean(x, -1), T(512, 1000))
infer("mass/argmax-f16", lambda x: x.argmax(-1), T(256, 2048, dtype=f16))
infer("mass/sum-u8", lambda x: x.sum(), T(1024, 1024, dtype=u8))
infer("mass/any-rows", lambda x: (x > 3).any(-1), T(1024, 512))
infer("mass/clamp-i64", lambda x: x.clamp(-5, 5) * 3 // 2, T(256, 1024, dtype=i64))
infer("mass/gather-rows", lambda x, i: x[i].sum(1), T(5000, 64), T(1000, 16, dtype=i64, low=0, high=4999))
infer(
    "mass/scatter-add",
    lambda x, i: torch.zeros(1000, 32).index_add_(0, i, x),
    T(20000, 32),
    T(20000, dtype=i64, low=0, high=999),
)
infer(
    "mass/segment-max",
    lambda x, i: torch.full((1000,), -1e9).scatter_reduce(0, i, x, "amax"),
    T(50000),
    T(50000, dtype=i64, low=0, high=999),
)
infer("mass/searchsorted", lambda e, x: torch.searchsorted(e, x), torch.linspace(-3, 3, 257), T(65536))
infer("mass/distances", lambda x, c: ((x[:, None] - c).square().sum(-1)).argmin(1), T(2000, 8), T(32, 8))
infer("mass/gaussian-kernel", lambda x: torch.exp(-0.5 * (x[:, None] - x).square().sum(-1)), T(300, 6))
infer("mass/power", lambda x: torch.fft.rfft(x).abs().square().log1p(), T(64, 1024))
infer(
    "mass/mandelbrot",
    lambda c: (lambda z: sum((z := z * z + c).abs() < 2 for _ in range(8)))(torch.zeros_like(c)),
    T(128, 128, dtype=torch.complex64),
)
infer("mass/every-other", lambda x: x[:, ::2] * 2 + x[:, 1::2], T(512, 2048))
infer("mass/outer", lambda a, b: (a[:, None] - b).abs().mean(0), T(1000), T(1000))
infer("mass/where-chain", lambda x: torch.where(x > 1, x.log1p(), torch.where(x < -1, -(-x).log1p(), x)), T(512, 512))
infer("mass/trig", lambda x: torch.cat((x.sin(), x.cos()), -1), T(2048, 128))
infer("mass/bf16-to-f32", lambda x: x.float() * 2, T(1024, 1024, dtype=bf16))
infer("mass/f32-to-f16", lambda x: x.half(), T(1024, 1024))


def bodies(x: Any, m: Any) -> Any:
    d = x[None] - x[:, None]
    r = (d.square().sum(-1) + 0.01) ** -1.5
    return (d * (r * m)[..., None]).sum(1)


infer("mass/bodies", bodies, T(256, 3), T(256))


def adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    p.mul_(0.9999)
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().div_(0.9).add_(1e-8), value=-1e-3)


infer("mass/adamw", adamw, *[T(512, 512)] * 3, T(512, 512, low=0, high=1))
infer(
    "mass/sgd-foreach",
    lambda p, g, m: (
        torch._foreach_mul_([m], 0.9),
        torch._foreach_add_([m], [g]),
        torch._foreach_add_([p], [m], alpha=-0.1),
    )[:0],
    *[T(512, 512)] * 3,
)


def quantized_state(g: Any, q: Any, s: Any) -> Any:
    m = (q.float() * s[:, None]).lerp(g, 0.1)
    scale = m.abs().amax(1).clamp(min=1e-8) / 127
    return (m / scale[:, None]).round().to(i8), scale


infer("mass/quantized-state", quantized_state, T(1024, 256), T(1024, 256, dtype=i8), T(1024))
module("mass/lstm-cell", lambda: nn.LSTMCell(128, 256), T(32, 128), (T(32, 256).make(), T(32, 256).make()))
train(
    "mass/embedding",
    lambda w, i: F.embedding(i, w).square().mean(),
    T(2000, 64),
    T(16, 64, dtype=i64, low=0, high=1999),
)
train(
    "mass/contrast",
    lambda x, y: F.cross_entropy(F.normalize(x) @ F.normalize(y).t() * 10, torch.arange(256)),
    T(256, 128),
    T(256, 128),
)
train("mass/group-norm", lambda x, w, b: F.group_norm(x, 8, w, b), T(4, 32, 24, 24), T(32), T(32))


def scan(x: Any, a: Any) -> Any:
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = a * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1)


infer("mass/scan", scan, T(8, 32, 256), T(256, low=0, high=1))
train("mass/scan-train", scan, T(8, 12, 128), T(128, low=0, high=1))
