"""Pictures, sound, points and graphs, as people prepare them and compute on them; and what tables and numbers need."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i64, infer, module, train, u8

# Pictures

infer(
    "photo/prepare",
    lambda x, m, s: (x.permute(2, 0, 1).float().div(255) - m[:, None, None]) / s[:, None, None],
    T(96, 96, 3, dtype=u8),
    T(3),
    T(3, low=0.2, high=1),
)
infer("photo/gray", lambda x: (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(-3), T(4, 3, 64, 64))
infer(
    "photo/gray-u8", lambda x: (x.float() @ torch.tensor([0.299, 0.587, 0.114])).round().to(u8), T(96, 96, 3, dtype=u8)
)


def to_hsv(x: Any) -> Any:
    high, low = x.max(1).values, x.min(1).values
    span = (high - low).clamp(min=1e-8)
    r, g, b = x.unbind(1)
    h = torch.where(high == r, (g - b) / span % 6, torch.where(high == g, (b - r) / span + 2, (r - g) / span + 4))
    return torch.stack((h / 6, (high - low) / high.clamp(min=1e-8), high), 1)


infer("photo/hsv", to_hsv, T(2, 3, 64, 64, low=0, high=1))


def brightness_contrast(x: Any) -> Any:
    x = (x * 1.2).clamp(0, 1)
    mean = (0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]).mean((1, 2), keepdim=True)[:, None]
    return (0.8 * x + 0.2 * mean).clamp(0, 1)


infer("photo/contrast", brightness_contrast, T(2, 3, 64, 64, low=0, high=1))


def sobel(x: Any) -> Any:
    kx = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    k = torch.stack((kx, kx.t()))[:, None]
    g = F.conv2d(x, k, padding=1)
    return g.square().sum(1).sqrt()


infer("photo/sobel", sobel, T(2, 1, 64, 64))


def ssim(a: Any, b: Any) -> Any:
    ma, mb = F.avg_pool2d(a, 7, 1), F.avg_pool2d(b, 7, 1)
    va = F.avg_pool2d(a * a, 7, 1) - ma * ma
    vb = F.avg_pool2d(b * b, 7, 1) - mb * mb
    vab = F.avg_pool2d(a * b, 7, 1) - ma * mb
    return ((2 * ma * mb + 1e-4) * (2 * vab + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4))).mean()


infer("photo/ssim", ssim, *[T(1, 3, 48, 48, low=0, high=1)] * 2)
infer("photo/flip-pad", lambda x: F.pad(x.flip(-1), (4, 4, 4, 4))[..., 2:-6, 3:-5], T(8, 3, 32, 32))
infer(
    "photo/patches", lambda x: x.view(2, 3, 8, 8, 8, 8).permute(0, 2, 4, 3, 5, 1).reshape(2, 64, 192), T(2, 3, 64, 64)
)
infer("photo/pixel-shuffle", lambda x: F.pixel_shuffle(x, 2).clamp(0, 1), T(2, 12, 32, 32))
infer(
    "photo/mixup",
    lambda x, w: x * w[:, None, None, None] + x.flip(0) * (1 - w[:, None, None, None]),
    T(16, 3, 32, 32),
    T(16, low=0, high=1),
)
infer("photo/mean-pool-cl", lambda x: x.mean((2, 3)), T(4, 64, 14, 14, layout="channels_last"))
infer(
    "photo/se-gate",
    lambda x, w: x * (x.mean((2, 3)) @ w).sigmoid()[:, :, None, None],
    T(4, 32, 14, 14, layout="channels_last"),
    T(32, 32),
)
infer("photo/u8-blend", lambda a, b: ((a.to(torch.int16) + b) // 2).to(u8), *[T(96, 96, 3, dtype=u8)] * 2)
infer("photo/histogram", lambda x: torch.histc(x, 32, 0, 1), T(64, 64, low=0, high=1), fullgraph=False)
infer("photo/threshold", lambda x: (x > x.float().mean().to(u8)).to(u8) * 255, T(128, 128, dtype=u8))
infer("photo/total-variation", lambda x: x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean(), T(2, 3, 64, 64))
infer("photo/resize", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=False), T(2, 3, 64, 64))
infer(
    "photo/depth-norm",
    lambda x: (x - x.amin((1, 2), True)) / (x.amax((1, 2), True) - x.amin((1, 2), True)),
    T(4, 64, 64),
)
infer("photo/seg-argmax", lambda x: x.argmax(1).to(u8), T(2, 8, 48, 48))
infer("photo/seg-argmax-cl", lambda x: x.argmax(1), T(2, 8, 48, 48, layout="channels_last"))
module(
    "photo/conv-bn-cl",
    lambda: nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()).eval(),
    T(2, 16, 28, 28),
    channels_last=True,
)
module(
    "photo/depthwise-train",
    lambda: nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.GroupNorm(4, 16), nn.ReLU6()),
    T(2, 16, 20, 20),
    training=True,
)


def box_iou(a: Any, b: Any) -> Any:
    low, high = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inner = (high - low).clamp(min=0).prod(2)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
    return inner / (area_a[:, None] + area_b - inner)


infer("photo/box-iou", box_iou, T(100, 4), T(50, 4))
infer("photo/cxcywh", lambda b: torch.cat((b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2), -1), T(4, 300, 4))


def yolo(x: Any, grid: Any, anchors: Any) -> Any:
    y = x.sigmoid()
    xy = (y[..., :2] * 2 - 0.5 + grid) * 8
    wh = (y[..., 2:4] * 2) ** 2 * anchors
    return torch.cat((xy, wh, y[..., 4:]), -1)


infer("photo/yolo", yolo, T(1, 3, 400, 25), T(400, 2), T(3, 1, 2))

# Sound


def mel(x: Any, bank: Any) -> Any:
    return (bank @ x.square()).clamp(min=1e-10).log10()


infer("hear/mel", mel, T(2, 129, 50), T(40, 129))
infer("hear/pre-emphasis", lambda x: torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1), T(4, 16000))
infer("hear/frames", lambda x, w: x.unfold(-1, 400, 160) * w, T(2, 8000), T(400))
infer(
    "hear/mu-law",
    lambda x: ((x.sign() * torch.log1p(255 * x.abs()) / math.log(256) + 1) / 2 * 255 + 0.5).long(),
    T(4, 8000, low=-1, high=1),
)
infer(
    "hear/rms-db", lambda x: 20 * x.unfold(-1, 512, 256).square().mean(-1).sqrt().clamp(min=1e-5).log10(), T(2, 16000)
)
infer("hear/int16", lambda x: (x * 32767).clamp(-32768, 32767).to(torch.int16), T(4, 16000, low=-1, high=1))
infer("hear/from-int16", lambda x: x.float() / 32768, T(4, 16000, dtype=torch.int16))
infer("hear/power", lambda x: torch.fft.rfft(x, dim=-1).abs().square(), T(16, 256))
infer(
    "hear/mix",
    lambda a, b: a + b * (a.norm(dim=-1, keepdim=True) / b.norm(dim=-1, keepdim=True) * 0.1),
    *[T(4, 16000)] * 2,
)
infer(
    "hear/spec-augment",
    lambda x, at: x.masked_fill((torch.arange(80) >= at[:, None]) & (torch.arange(80) < at[:, None] + 10), 0.0),
    T(80, 80),
    T(80, dtype=i64, low=0, high=70),
)
infer("hear/int16-to-bytes", lambda x: x.view(u8).view(-1, 2).flip(-1), T(16000, dtype=torch.int16))
infer("hear/zero-crossings", lambda x: (x[:, 1:].sign() != x[:, :-1].sign()).float().mean(-1), T(8, 4000))

# Points, turns, graphs

infer("space/distance", lambda a, b: torch.cdist(a, b).min(1).values, T(128, 3), T(128, 3))
infer(
    "space/chamfer",
    lambda a, b: (d := (a[:, None] - b[None]).square().sum(-1)).amin(1).mean() + d.amin(0).mean(),
    T(128, 3),
    T(128, 3),
)


def quaternion_product(a: Any, b: Any) -> Any:
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        (
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ),
        -1,
    )


infer("space/quaternions", quaternion_product, T(1000, 4), T(1000, 4))
infer(
    "space/turn-points",
    lambda r, p, t: torch.einsum("bij,bnj->bni", r, p) + t[:, None],
    T(8, 3, 3),
    T(8, 200, 3),
    T(8, 3),
)


def six_d(x: Any) -> Any:
    a = F.normalize(x[..., :3], dim=-1)
    b = F.normalize(x[..., 3:] - (a * x[..., 3:]).sum(-1, keepdim=True) * a, dim=-1)
    return torch.stack((a, b, torch.linalg.cross(a, b)), -1)


infer("space/six-d", six_d, T(500, 6))
infer("space/project", lambda p: p[..., :2] / p[..., 2:].clamp(min=0.1) * 500 + 128, T(2000, 3))
infer("space/bounds", lambda p: (p.amin(0), p.amax(0), p.mean(0)), T(2000, 3))
infer(
    "space/to-sphere",
    lambda p: torch.stack(
        (p.norm(dim=-1), torch.acos((p[:, 2] / p.norm(dim=-1)).clamp(-1, 1)), torch.atan2(p[:, 1], p[:, 0])), -1
    ),
    T(1000, 3),
)
infer("space/homogeneous", lambda p, m: (F.pad(p, (0, 1), value=1.0) @ m.t())[..., :3], T(1000, 3), T(4, 4))


def gcn(x: Any, edges: Any, w: Any) -> Any:
    n = x.shape[0]
    degree = torch.zeros(n).scatter_add_(0, edges[1], torch.ones(edges.shape[1])).clamp(min=1).rsqrt()
    weight = degree[edges[0]] * degree[edges[1]]
    out = torch.zeros(n, w.shape[1]).index_add_(0, edges[1], (x @ w)[edges[0]] * weight[:, None])
    return out.relu()


infer("net/gcn", gcn, T(200, 32), T(2, 1000, dtype=i64, low=0, high=199), T(32, 32))


def gat(h: Any, edges: Any, a: Any) -> Any:
    e = F.leaky_relu((torch.cat((h[edges[0]], h[edges[1]]), -1) * a).sum(-1), 0.2)
    most = torch.full((h.shape[0],), float("-inf")).scatter_reduce_(0, edges[1], e, "amax")
    e = (e - most[edges[1]]).exp()
    total = torch.zeros(h.shape[0]).scatter_add_(0, edges[1], e)
    return torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]] * (e / total[edges[1]])[:, None])


infer("net/gat", gat, T(200, 16), T(2, 1000, dtype=i64, low=0, high=199), T(32))
train(
    "net/mean-pool",
    lambda x, batch: (
        torch.zeros(16, 32).index_add_(0, batch, x) / torch.bincount(batch, minlength=16).clamp(min=1)[:, None]
    ),
    T(300, 32),
    T(300, dtype=i64, low=0, high=15),
    fullgraph=False,
)
infer(
    "net/adjacency",
    lambda a: (d := (a + torch.eye(64)).sum(1).rsqrt())[:, None] * (a + torch.eye(64)) * d,
    T(64, 64, low=0, high=1),
)
infer(
    "net/max-pool",
    lambda x, i: torch.zeros(50, 16).scatter_reduce(0, i[:, None].expand(-1, 16), x, "amax", include_self=False),
    T(500, 16),
    T(500, dtype=i64, low=0, high=49),
)

# Tables and numbers

infer("sheet/standardize", lambda x: (x - x.mean(0)) / (x.std(0) + 1e-6), T(512, 20))
infer("sheet/standardize-t", lambda x: (x - x.mean(0)) / (x.std(0) + 1e-6), T(512, 20, layout="transposed"))
infer("sheet/fill-nan", lambda x: torch.where(x.isnan(), x.nanmean(0), x), T(512, 20))
infer("sheet/one-hot", lambda i: F.one_hot(i, 12).float(), T(512, dtype=i64, low=0, high=11))
infer("sheet/rolling-mean", lambda x: x.unfold(0, 7, 1).mean(-1), T(1000, 4))
infer("sheet/bucketize", lambda x, b: torch.bucketize(x, b), T(2048), torch.linspace(-2, 2, 17))
infer("sheet/quantile-clip", lambda x: x.clamp(x.quantile(0.05), x.quantile(0.95)), T(1000), fullgraph=False)
infer("sheet/softmax-temperature", lambda x: (x.half() / 0.7).softmax(-1).float(), T(256, 5), tolerance=1e-3)
infer("sheet/polynomial", lambda x: torch.stack([x**k for k in range(6)], -1), T(500))
infer("sheet/row-norms-f16", lambda x: x.norm(dim=-1), T(512, 8, dtype=f16))
infer("sheet/argmin-centers", lambda x, c: (x[:, None] - c).square().sum(-1).argmin(-1), T(512, 4), T(8, 4))
infer("sheet/prefix-max", lambda x: x.cummax(-1).values, T(32, 200))
infer("sheet/decay-sum", lambda x: (x * 0.9 ** torch.arange(x.shape[-1] - 1, -1, -1)).sum(-1), T(64, 50))
infer("sheet/mean-of-three-bf16", lambda x: x.mean(-1), T(4096, 3, dtype=bf16))
infer("sheet/softmax-3", lambda x: x.softmax(-1), T(4096, 3))
infer("sheet/log-softmax-2", lambda x: x.log_softmax(-1), T(4096, 2))
infer("sheet/argmax-5", lambda x: x.argmax(-1), T(4096, 5))
infer("sheet/normalize-3", lambda x: F.normalize(x, dim=-1), T(4096, 3))
infer("sheet/layer-norm-4", lambda x: F.layer_norm(x, (4,)), T(4096, 4))
infer("sheet/dot-8", lambda a, b: (a * b).sum(-1), T(4096, 8), T(4096, 8))
infer("sheet/product-6", lambda x: x.prod(-1), T(4096, 6))
infer("sheet/any-3", lambda x: (x > 1).any(-1), T(4096, 3))
infer("sheet/std-4", lambda x: x.std(-1), T(4096, 4))
infer("sheet/cross", lambda a, b: torch.linalg.cross(a, b), T(2000, 3), T(2000, 3))
infer("sheet/where-int", lambda x: torch.where(x % 2 == 0, x // 2, 3 * x + 1), T(4096, dtype=i64, low=0, high=9999))
train("sheet/softmax-3-train", lambda x, y: (x.softmax(-1) * y).sum(), T(2048, 3), T(2048, 3))
train("sheet/normalize-3-train", lambda x: F.normalize(x, dim=-1), T(2048, 3))
