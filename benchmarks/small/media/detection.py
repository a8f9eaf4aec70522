"""From detection, segmentation and generation of images."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from small.case import T, bf16, boxes, f16, f32, i64, infer, module, train, u8

# Detection


def decode_boxes(logits: Any, anchors: Any) -> Any:
    x, y, w, h, objectness, classes = logits.split((1, 1, 1, 1, 1, 20), -1)
    center = torch.cat((x.sigmoid() * 2 - 0.5, y.sigmoid() * 2 - 0.5), -1) * 8 + anchors[..., :2]
    extent = (torch.cat((w, h), -1).sigmoid() * 2) ** 2 * anchors[..., 2:]
    best, label = (objectness.sigmoid() * classes.sigmoid()).max(-1)
    return torch.cat((center - extent / 2, center + extent / 2), -1), best, label


def distribution_boxes(x: Any) -> Any:
    b, _, n = x.shape
    return (x.view(b, 4, 16, n).softmax(2) * torch.arange(16.0, device=x.device)[None, None, :, None]).sum(2)


def paired_iou(a: Any, b: Any) -> Any:
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    overlap = (high - low).clamp(min=0).prod(1)
    return overlap / ((a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - overlap + 1e-7)


def distance_iou_loss(a: Any, b: Any) -> Any:
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    overlap = (high - low).clamp(0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - overlap
    around = torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])
    apart = ((a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]) / 2).square().sum(1)
    return (1 - overlap / (union + 1e-7) + apart / (around.square().sum(1) + 1e-7)).mean()


def anchors_of_grid(x: Any) -> Any:
    h, w = x.shape[-2:]
    y, x = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
    return (torch.stack((x, y), -1).reshape(-1, 2) + 0.5) * 8


def heatmap_peaks(x: Any) -> Any:
    kept = x * (F.max_pool2d(x, 3, 1, 1) == x)
    score, at = kept.flatten(1).topk(20)
    return score, at // (x.shape[-1] * x.shape[-2]), at % x.shape[-1]


def soft_argmax(x: Any) -> Any:
    p = x.flatten(2).softmax(-1).view(x.shape)
    steps = torch.linspace(-1, 1, x.shape[-1], device=x.device)
    return torch.stack(((p.sum(2) * steps).sum(-1), (p.sum(3) * steps).sum(-1)), -1)


def clip_boxes(b: Any) -> Any:
    b = b.clone()
    b[:, [0, 2]] = b[:, [0, 2]].clamp(0, 0.9)
    b[:, [1, 3]] = b[:, [1, 3]].clamp(0, 0.8)
    return b


infer("detection/decode", decode_boxes, T(2, 1200, 25), T(1200, 4, low=0, high=64))
infer("detection/distribution", distribution_boxes, T(2, 64, 1024))
infer("detection/paired-iou", paired_iou, boxes(4096), boxes(4096))
train("detection/distance-iou-training", distance_iou_loss, boxes(1024), boxes(1024))
infer("detection/anchors", anchors_of_grid, T(1, 3, 64, 64))
infer("detection/heatmap-peaks", heatmap_peaks, T(2, 8, 64, 64))
infer("detection/soft-argmax", soft_argmax, T(4, 17, 48, 48))
infer("detection/clip-boxes", clip_boxes, boxes(2048))
infer(
    "detection/corners-to-center",
    lambda b: torch.stack(((b[:, 0] + b[:, 2]) / 2, (b[:, 1] + b[:, 3]) / 2, b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]), 1),
    boxes(4096),
)
infer(
    "detection/matched-cost",
    lambda p, y, a, b: -p.softmax(-1)[:, y] + 5 * torch.cdist(a, b, p=1),
    T(100, 81),
    T(40, dtype=i64, low=0, high=80),
    boxes(100),
    boxes(40),
)

# Segmentation and depth


def boundary(mask: Any) -> Any:
    m = mask.float()[:, None]
    return (F.max_pool2d(m, 3, 1, 1) - (1 - F.max_pool2d(1 - m, 3, 1, 1)))[:, 0]


def tversky(logits: Any, y: Any) -> Any:
    p = logits.softmax(1)
    t = F.one_hot(y, p.shape[1]).movedim(-1, 1).to(p.dtype)
    hit, wrong, missed = (p * t).sum((0, 2, 3)), (p * (1 - t)).sum((0, 2, 3)), ((1 - p) * t).sum((0, 2, 3))
    return 1 - ((hit + 1) / (hit + 0.3 * wrong + 0.7 * missed + 1)).mean()


def scale_invariant(p: Any, y: Any, mask: Any) -> Any:
    d = torch.where(mask, p.clamp_min(1e-3).log() - y.clamp_min(1e-3).log(), 0.0)
    n = mask.sum((1, 2))
    return ((d.square().sum((1, 2)) / n) - 0.85 * (d.sum((1, 2)) / n) ** 2).clamp_min(0).sqrt().mean()


def back_project(depth: Any, inverse: Any) -> Any:
    h, w = depth.shape[-2:]
    y, x = torch.meshgrid(torch.arange(h, dtype=f32), torch.arange(w, dtype=f32), indexing="ij")
    rays = inverse @ torch.stack((x, y, torch.ones_like(x))).flatten(1)
    return rays * depth.flatten(1)[:, None]


def edge_aware(disparity: Any, image: Any) -> Any:
    dx, dy = (disparity[..., :-1] - disparity[..., 1:]).abs(), (disparity[..., :-1, :] - disparity[..., 1:, :]).abs()
    ix = (image[..., :-1] - image[..., 1:]).abs().mean(1, keepdim=True)
    iy = (image[..., :-1, :] - image[..., 1:, :]).abs().mean(1, keepdim=True)
    return (dx * torch.exp(-ix)).mean() + (dy * torch.exp(-iy)).mean()


infer("segment/boundary", boundary, T(2, 96, 96, dtype=torch.bool))
train("segment/tversky-training", tversky, T(2, 6, 48, 48), T(2, 48, 48, dtype=i64, low=0, high=5))
infer(
    "segment/scale-invariant",
    scale_invariant,
    T(4, 64, 96, low=0.1, high=10),
    T(4, 64, 96, low=0.1, high=10),
    T(4, 64, 96, dtype=torch.bool),
)
infer("segment/back-project", back_project, T(2, 1, 64, 96, low=1, high=5), T(2, 3, 3))
train("segment/edge-aware-training", edge_aware, T(2, 1, 64, 64), T(2, 3, 64, 64))
infer(
    "segment/intersection",
    lambda p, y: torch.stack([((p == k) & (y == k)).sum() / ((p == k) | (y == k)).sum() for k in range(6)]),
    T(2, 96, 96, dtype=i64, low=0, high=5),
    T(2, 96, 96, dtype=i64, low=0, high=5),
)
infer("segment/palette", lambda y, p: p[y].permute(0, 3, 1, 2), T(2, 96, 96, dtype=i64, low=0, high=20), T(21, 3))
infer("segment/palette-u8", lambda y, p: p[y], T(2, 128, 128, dtype=i64, low=0, high=20), T(21, 3, dtype=u8))

# Images


def warp(x: Any, flow: Any) -> Any:
    h, w = x.shape[-2:]
    y, z = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    return F.grid_sample(x, torch.stack((z, y), -1) + flow.movedim(1, -1), align_corners=True)


def ssim(x: Any, y: Any) -> Any:
    mx, my = F.avg_pool2d(x, 3, 1), F.avg_pool2d(y, 3, 1)
    vx, vy = F.avg_pool2d(x * x, 3, 1) - mx**2, F.avg_pool2d(y * y, 3, 1) - my**2
    both = F.avg_pool2d(x * y, 3, 1) - mx * my
    return ((2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))).mean()


def bayer(x: Any) -> Any:
    return torch.stack((x[:, ::2, ::2], (x[:, ::2, 1::2] + x[:, 1::2, ::2]) / 2, x[:, 1::2, 1::2]), 1)


def diffusion_step(x: Any, noise: Any, alpha: Any, t: Any) -> Any:
    a = alpha[t][:, None, None, None]
    start = ((x - (1 - a).sqrt() * noise) / a.sqrt()).clamp(-1, 1)
    return start * 0.9 + noise * 0.1


def guided(x: Any, scale: float = 7.5) -> Any:
    without, given = x.chunk(2)
    return without + scale * (given - without)


def gram(x: Any) -> Any:
    f = x.flatten(2)
    return f @ f.mT / f.shape[-1]


infer("picture/warp", warp, T(2, 3, 64, 64), T(2, 2, 64, 64, low=-0.1, high=0.1))
train("picture/ssim-training", ssim, T(2, 3, 64, 64, low=0, high=1), T(2, 3, 64, 64, low=0, high=1))
infer("picture/ssim", ssim, T(2, 3, 64, 64, low=0, high=1), T(2, 3, 64, 64, low=0, high=1))
infer("picture/bayer", bayer, T(2, 128, 128))
infer(
    "picture/affine",
    lambda x, m: F.grid_sample(x, F.affine_grid(m, [2, 3, 64, 64], align_corners=False), align_corners=False),
    T(2, 3, 64, 64),
    T(2, 2, 3),
)
infer(
    "picture/diffusion-step",
    diffusion_step,
    T(4, 4, 32, 32),
    T(4, 4, 32, 32),
    T(1000, low=0.1, high=0.9),
    T(4, dtype=i64, low=0, high=999),
)
infer("picture/guided-f16", guided, T(8, 4, 32, 32, dtype=f16))
infer("picture/gram", gram, T(2, 64, 32, 32))
infer("picture/solarize-u8", lambda x: torch.where(x >= 128, 255 - x, x), T(3, 256, 256, dtype=u8))
infer("picture/flip-u8", lambda x: x.flip(-1), T(4, 3, 96, 96, dtype=u8))
infer("picture/contrast-u8", lambda x: ((x.float() - 128) * 1.3 + 128).clamp(0, 255).to(u8), T(3, 256, 256, dtype=u8))
infer(
    "picture/bgr-to-gray-u8",
    lambda x: (x[..., 0] * 0.114 + x[..., 1] * 0.587 + x[..., 2] * 0.299).to(u8),
    T(256, 256, 3, dtype=u8),
)
infer("picture/channels-reversed", lambda x: x[:, [2, 1, 0]].float().div(255).sub(0.5), T(4, 3, 96, 96, dtype=u8))
infer(
    "picture/mosaic",
    lambda a: torch.cat((torch.cat((a[0], a[1]), -1), torch.cat((a[2], a[3]), -1)), -2),
    T(4, 3, 64, 64),
)
infer("picture/psnr", lambda x, y: -10 * (x - y).square().mean((1, 2, 3)).log10(), T(4, 3, 64, 64), T(4, 3, 64, 64))
infer("picture/pixel-shuffle", lambda x: F.pixel_shuffle(x, 2).clamp(0, 1), T(2, 64, 32, 32))
infer(
    "picture/histogram", lambda x: torch.stack([(x == k).sum() for k in range(8)]), T(64, 64, dtype=u8, low=0, high=7)
)


# Blocks


class InvertedResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(
            *(nn.Conv2d(24, 96, 1, bias=False), nn.BatchNorm2d(96), nn.ReLU6()),
            *(nn.Conv2d(96, 96, 3, padding=1, groups=96, bias=False), nn.BatchNorm2d(96), nn.ReLU6()),
            *(nn.Conv2d(96, 24, 1, bias=False), nn.BatchNorm2d(24)),
        )

    def forward(self, x: Any) -> Any:
        return x + self.block(x)


class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(48, 48, 7, padding=3, groups=48), nn.LayerNorm(48)
        self.up, self.down, self.scale = nn.Linear(48, 192), nn.Linear(192, 48), nn.Parameter(torch.full((48,), 1e-2))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class TimeBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, 32), nn.GroupNorm(8, 32)
        self.conv, self.again, self.time = nn.Conv2d(32, 32, 3, 1, 1), nn.Conv2d(32, 32, 3, 1, 1), nn.Linear(64, 64)

    def forward(self, x: Any, t: Any) -> Any:
        shift, scale = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        y = self.second(self.conv(F.silu(self.first(x)))) * (1 + scale) + shift
        return x + self.again(F.silu(y))


class Window(nn.Module):
    def forward(self, x: Any) -> Any:
        b, h, w, c = x.shape
        x = torch.roll(x, (-4, -4), (1, 2)).view(b, h // 8, 8, w // 8, 8, c)
        return F.layer_norm(x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c), (c,))


def spatial_gate(x: Any, k: Any) -> Any:
    pooled = torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)
    return x * torch.sigmoid(F.conv2d(pooled, k, padding=3))


def drop_path(x: Any, keep: Any) -> Any:
    return x * keep.view(-1, 1, 1, 1) / 0.9


module("block/inverted-residual", InvertedResidual, T(1, 24, 28, 28))
module("block/inverted-residual-training", InvertedResidual, T(4, 24, 14, 14), training=True, tolerance=2e-3)
module("block/convnext", ConvNext, T(1, 48, 28, 28))
module("block/convnext-training", ConvNext, T(2, 48, 14, 14), training=True, tolerance=2e-3)
module("block/time", TimeBlock, T(2, 32, 16, 16), T(2, 64))
module("block/time-training", TimeBlock, T(2, 32, 16, 16), T(2, 64), training=True, tolerance=2e-3)
module("block/shifted-windows", Window, T(2, 32, 32, 48))
infer("block/spatial-gate", spatial_gate, T(2, 64, 28, 28), T(1, 2, 7, 7))
infer("block/drop-path", drop_path, T(8, 16, 28, 28), T(8, low=0, high=1))
infer(
    "block/channel-shuffle", lambda x: F.relu(x.view(2, 4, 16, 28, 28).transpose(1, 2).flatten(1, 2)), T(2, 64, 28, 28)
)
infer(
    "block/patch-embed-bf16",
    lambda x, w: F.conv2d(x, w, stride=8).flatten(2).mT,
    T(1, 3, 64, 64, dtype=bf16),
    T(96, 3, 8, 8, dtype=bf16),
)
train(
    "block/global-response",
    lambda x: x * (g := x.norm(dim=(1, 2), keepdim=True)) / (g.mean(-1, keepdim=True) + 1e-6),
    T(2, 14, 14, 96),
)
