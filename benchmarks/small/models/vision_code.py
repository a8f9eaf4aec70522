"""Pieces of vision models' code, as their authors write them: windows, heads, blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, i64, infer, module, train

# Windows of images, and heads


def maxvit_grid(x):
    b, h, w, c = x.shape
    g = 7
    x = x.view(b, g, h // g, g, w // g, c)
    return x.permute(0, 2, 4, 1, 3, 5).contiguous().view(-1, g * g, c)


def shifted_mask(h: int, w: int, window: int, shift: int):
    image = torch.zeros(1, h, w, 1)
    count = 0
    for rows in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
        for columns in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
            image[:, rows, columns, :] = count
            count += 1
    image = image.view(1, h // window, window, w // window, window, 1).permute(0, 1, 3, 2, 4, 5)
    flat = image.reshape(-1, window * window)
    apart = flat[:, None] - flat[:, :, None]
    return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


def patch_merging(x, norm, weight):
    b, _h, _w, c = x.shape
    x = torch.cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1).view(b, -1, 4 * c)
    return F.linear(F.layer_norm(x, (4 * c,), norm), weight)


def swin_attention(x, qkv, table, index):
    n, length, c = x.shape
    q, k, v = F.linear(x, qkv).reshape(n, length, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    bias = table[index.view(-1)].view(length, length, -1).permute(2, 0, 1)
    return ((q @ k.transpose(-2, -1)) * 10 + 16 * torch.sigmoid(bias)[None]).softmax(-1) @ v


def segformer_reduce(x, weight, norm):
    b, _n, c = x.shape
    x = x.permute(0, 2, 1).reshape(b, c, 16, 16)
    x = F.conv2d(x, weight, stride=4)
    return F.layer_norm(x.reshape(b, c, -1).permute(0, 2, 1), (c,), norm)


def mix_ffn(x, up, conv, down):
    b, _n, _ = x.shape
    x = F.linear(x, up)
    c = x.shape[-1]
    x = F.conv2d(x.transpose(1, 2).view(b, c, 16, 16), conv, padding=1, groups=c).flatten(2).transpose(1, 2)
    return F.linear(F.gelu(x), down)


def segformer_head(a, b, c, weights):
    parts = [
        F.linear(x.flatten(2).transpose(1, 2), w).transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:])
        for x, w in zip((a, b, c), weights, strict=True)
    ]
    size = a.shape[2:]
    return torch.cat([F.interpolate(p, size=size, mode="bilinear", align_corners=False) for p in parts], 1)


def deformable(value, locations, weights):
    b, _, heads, dim = value.shape
    queries, points = locations.shape[1], locations.shape[4]
    sizes = ((16, 16), (8, 8))
    grids = 2 * locations - 1
    sampled = []
    for level, part in enumerate(value.split([h * w for h, w in sizes], 1)):
        h, w = sizes[level]
        part = part.flatten(2).transpose(1, 2).reshape(b * heads, dim, h, w)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        sampled.append(F.grid_sample(part, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
    weights = weights.transpose(1, 2).reshape(b * heads, 1, queries, 2 * points)
    out = (torch.stack(sampled, -2).flatten(-2) * weights).sum(-1).view(b, heads * dim, queries)
    return out.transpose(1, 2).contiguous()


def point_sample(x, points):
    return F.grid_sample(x, 2.0 * points[:, :, None] - 1.0, align_corners=False).squeeze(3)


def mask_attention(masks, size: int):
    masks = F.interpolate(masks, size=(size, size), mode="bilinear", align_corners=False)
    masks = (masks.sigmoid().flatten(2)[:, None].repeat(1, 4, 1, 1).flatten(0, 1) < 0.5).bool()
    return masks & (masks.sum(-1, keepdim=True) != masks.shape[-1])


def panoptic(classes, masks):
    scores, labels = classes.softmax(-1)[..., :-1].max(-1)
    weighted = scores[..., None, None] * masks.sigmoid()
    return weighted.argmax(1), labels


def maskformer_semantic(classes, masks):
    return torch.einsum("bqc,bqhw->bchw", classes.softmax(-1)[..., :-1], masks.sigmoid())


infer("extract/maxvit-grid", maxvit_grid, T(2, 28, 28, 64))
infer("extract/maxvit-grid-bf16", maxvit_grid, T(2, 28, 28, 64, dtype=bf16))
infer("extract/swin-shifted-mask", lambda x: x + shifted_mask(28, 28, 7, 3), T(16, 49, 49))
infer("extract/swin-patch-merging", patch_merging, T(2, 16, 16, 64), T(256), T(128, 256))
train("extract/swin-patch-merging-training", patch_merging, T(2, 16, 16, 64), T(256), T(128, 256))
infer(
    "extract/swinv2-attention",
    swin_attention,
    T(16, 49, 64),
    T(192, 64),
    T(169, 4),
    T(49, 49, dtype=i64, low=0, high=168),
)
train(
    "extract/swinv2-attention-training",
    swin_attention,
    T(8, 49, 64),
    T(192, 64),
    T(169, 4),
    T(49, 49, dtype=i64, low=0, high=168),
)
infer("extract/segformer-reduce", segformer_reduce, T(2, 256, 64), T(64, 64, 4, 4), T(64))
infer("extract/segformer-mix-ffn", mix_ffn, T(2, 256, 32), T(128, 32), T(128, 1, 3, 3), T(32, 128))
train("extract/segformer-mix-ffn-training", mix_ffn, T(2, 256, 32), T(128, 32), T(128, 1, 3, 3), T(32, 128))
case(
    "extract/segformer-head",
    lambda: Case(
        segformer_head,
        (
            torch.randn(1, 32, 32, 32),
            torch.randn(1, 64, 16, 16),
            torch.randn(1, 128, 8, 8),
            [torch.randn(64, n) for n in (32, 64, 128)],
        ),
    ),
)
infer(
    "extract/deformable-attention", deformable, T(2, 320, 4, 16), T(2, 50, 4, 2, 4, 2, low=0, high=1), T(2, 50, 4, 2, 4)
)
train(
    "extract/deformable-attention-training",
    deformable,
    T(1, 320, 4, 16),
    T(1, 50, 4, 2, 4, 2, low=0.0, high=1.0),
    T(1, 50, 4, 2, 4),
)
infer("extract/mask2former-points", point_sample, T(4, 8, 32, 32), T(4, 256, 2, low=0, high=1))
train("extract/mask2former-points-training", point_sample, T(4, 8, 32, 32), T(4, 256, 2, low=0.0, high=1.0))
infer("extract/mask2former-attention-mask", lambda m: mask_attention(m, 8), T(2, 20, 32, 32))
infer("extract/panoptic", panoptic, T(2, 20, 12), T(2, 20, 32, 32))
infer("extract/semantic-masks", maskformer_semantic, T(2, 20, 12), T(2, 20, 32, 32))


class ConvNextV2(nn.Module):
    def __init__(self, dim: int = 48) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, 1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma, self.beta = nn.Parameter(torch.randn(4 * dim)), nn.Parameter(torch.randn(4 * dim))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = F.gelu(self.up(y))
        strength = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
        y = self.gamma * (y * strength / (strength.mean(-1, keepdim=True) + 1e-6)) + self.beta + y
        return x + self.down(y).permute(0, 3, 1, 2)


class SpatialGate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(64), nn.Conv1d(64, 64, 1)

    def forward(self, x):
        u, v = x.chunk(2, -1)
        return u * self.mix(self.norm(v))


class EfficientFormerPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.scale = nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Parameter(torch.ones(48) * 1e-2)

    def forward(self, x):
        return x + self.scale[:, None, None] * (self.pool(x) - x)


class MobileInverted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(16, 64, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.Hardswish(),
            nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False),
            nn.BatchNorm2d(64),
            nn.Hardswish(),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 16, 1), nn.ReLU(), nn.Conv2d(16, 64, 1), nn.Hardsigmoid()
        )
        self.out = nn.Sequential(nn.Conv2d(64, 16, 1, bias=False), nn.BatchNorm2d(16))

    def forward(self, x):
        y = self.body(x)
        return x + self.out(y * self.squeeze(y))


class Focal(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.f = nn.Linear(dim, 2 * dim + 3)
        self.layers = nn.ModuleList(nn.Conv2d(dim, dim, k, padding=k // 2, groups=dim, bias=False) for k in (3, 5))
        self.h = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        q, ctx, gates = torch.split(self.f(x).permute(0, 3, 1, 2), (32, 32, 3), 1)
        total = 0
        for i, layer in enumerate(self.layers):
            ctx = F.gelu(layer(ctx))
            total = total + ctx * gates[:, i : i + 1]
        total = total + F.gelu(ctx.mean((2, 3), keepdim=True)) * gates[:, 2:]
        return (q * self.h(total)).permute(0, 2, 3, 1)


for name, make, shape in (
    ("convnextv2", ConvNextV2, (2, 48, 16, 16)),
    ("spatial-gate", SpatialGate, (2, 64, 128)),
    ("pool-mixer", EfficientFormerPool, (2, 48, 16, 16)),
    ("mobilenetv3", MobileInverted, (2, 16, 16, 16)),
    ("focal-modulation", Focal, (2, 16, 16, 32)),
):
    module(f"extract/{name}", make, T(*shape))
    module(f"extract/{name}-training", make, T(*shape), training=True)
    if len(shape) == 4 and name != "focal-modulation":
        module(f"extract/{name}-cl", make, T(*shape, layout="channels_last"), channels_last=True)

# Windows that do not overlap, and small ones


def embedded(channels, width, size, **options):
    return lambda: nn.Sequential(nn.Conv2d(channels, width, size, size, **options), nn.Flatten(2))


PATCHES = {
    "vit": (embedded(3, 192, 16), (1, 3, 224, 224)),
    "clip": (embedded(3, 256, 14, bias=False), (1, 3, 112, 112)),
    "swin": (embedded(3, 48, 4), (1, 3, 112, 112)),
    "digits": (embedded(1, 64, 4), (8, 1, 28, 28)),
    "downsampling": (lambda: nn.Conv2d(48, 96, 2, 2), (1, 48, 28, 28)),
    "upsampling": (lambda: nn.ConvTranspose2d(32, 16, 2, 2), (1, 32, 28, 28)),
    "points": (lambda: nn.Conv1d(64, 128, 1), (2, 64, 500)),
    "tubes": (lambda: nn.Conv3d(3, 96, (2, 8, 8), (2, 8, 8)), (1, 3, 8, 48, 48)),
}
for name, (make, sizes) in PATCHES.items():
    module(f"patches/{name}", make, T(*sizes))
    module(f"patches/{name}-training", make, T(*sizes), training=True)
    module(f"patches/{name}-bf16", make, T(*sizes, dtype=bf16), dtype=bf16)

module("edges/sobel", lambda: nn.Conv2d(1, 2, 3, padding=1), T(1, 1, 128, 128))
module("edges/rgb-32", lambda: nn.Conv2d(3, 16, 3, padding=1), T(1, 3, 32, 32))
module("edges/digits", lambda: nn.Conv2d(1, 32, 3), T(8, 1, 28, 28))
