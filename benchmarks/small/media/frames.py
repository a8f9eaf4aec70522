"""Augmentations, boxes, masks, flow and depth: what people write around networks of pictures."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, bf16, i64, infer, u8

b8 = torch.bool
v = lambda name, f, *x, **o: infer("frame/" + name, f, *x, **o)  # noqa: E731

v(
    "perspective",
    lambda x, h: F.grid_sample(
        x,
        (lambda g: g[..., :2] / g[..., 2:])(
            torch.stack(
                (
                    *torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 64), indexing="ij")[::-1],
                    torch.ones(48, 64),
                ),
                -1,
            )
            @ h.T
        )[None].expand(2, -1, -1, -1),
        align_corners=False,
    ),
    T(2, 3, 48, 64),
    T(3, 3),
)
v(
    "shear",
    lambda x, a: F.grid_sample(
        x,
        F.affine_grid(
            torch.stack(
                (
                    torch.ones_like(a),
                    a,
                    torch.zeros_like(a),
                    torch.zeros_like(a),
                    torch.ones_like(a),
                    torch.zeros_like(a),
                ),
                1,
            ).view(-1, 2, 3),
            x.shape,
            align_corners=False,
        ),
        mode="nearest",
        align_corners=False,
    ),
    T(4, 3, 48, 48),
    T(4),
)
v(
    "elastic",
    lambda x, d, k: F.grid_sample(
        x,
        F.affine_grid(torch.eye(2, 3)[None].expand(2, -1, -1), x.shape, align_corners=True)
        + F.conv2d(
            F.conv2d(d.flatten(0, 1)[:, None], k[None, None, None], padding=(0, 4)),
            k[None, None, :, None],
            padding=(4, 0),
        )
        .view(2, 2, 48, 48)
        .permute(0, 2, 3, 1)
        * 0.01,
        align_corners=True,
    ),
    T(2, 3, 48, 48),
    T(2, 2, 48, 48),
    T(9),
)
v(
    "unsharp",
    lambda x, k: (
        x + 1.5 * (x - F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), k.expand(3, 1, 5, 5), groups=3))
    ).clamp(0, 1),
    T(2, 3, 96, 96, low=0.0, high=1.0),
    T(1, 1, 5, 5),
)
v("motion-blur", lambda x: F.conv2d(x, torch.eye(7).div(7).expand(3, 1, 7, 7), padding=3, groups=3), T(2, 3, 96, 96))
v(
    "vignette",
    lambda x: x * torch.exp(-(torch.linspace(-1, 1, 96)[:, None] ** 2 + torch.linspace(-1, 1, 128) ** 2)),
    T(2, 3, 96, 128),
)
v(
    "gamma-contrast-u8",
    lambda x: ((x.float() / 255).pow(1.4) * 255 * 1.2 - 20).clamp(0, 255).to(u8),
    T(3, 128, 128, dtype=u8),
)
v(
    "sepia",
    lambda x: (
        (
            torch.tensordot(
                torch.tensor([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]]),
                x.float(),
                dims=([1], [0]),
            )
        )
        .clamp(0, 255)
        .to(u8)
    ),
    T(3, 128, 128, dtype=u8),
)
v(
    "hue-matrix",
    lambda x, t: torch.einsum(
        "oc,bchw->bohw",
        torch.stack(
            (
                torch.cos(t),
                -torch.sin(t),
                torch.zeros(()),
                torch.sin(t),
                torch.cos(t),
                torch.zeros(()),
                torch.zeros(()),
                torch.zeros(()),
                torch.ones(()),
            )
        ).view(3, 3),
        x,
    ),
    T(2, 3, 96, 96),
    T(),
)
v(
    "auto-level",
    lambda x: (lambda lo, hi: (x - lo) / (hi - lo + 1e-6))(x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)),
    T(4, 3, 96, 96),
)
v(
    "clahe-map",
    lambda x, h: (h.cumsum(-1) / h.sum(-1, keepdim=True)).flatten(0, 1)[
        (torch.arange(64)[:, None] // 8 * 8 + torch.arange(64) // 8), (x * 255).long()
    ],
    T(64, 64, low=0.0, high=0.999),
    T(8, 8, 256, low=0.0, high=1.0),
)
v(
    "equalize-lut",
    lambda x: (lambda h: (lambda c: (c * 255 // c[-1].clamp(min=1)).to(u8)[x.long()])(h.cumsum(0)))(
        torch.bincount(x.flatten(), minlength=256)
    ),
    T(96, 96, dtype=u8),
)
v(
    "salt-pepper",
    lambda x, r: torch.where(r < 0.02, 0.0, torch.where(r > 0.98, 1.0, x)),
    T(2, 3, 96, 96),
    T(2, 1, 96, 96, low=0.0, high=1.0),
)
v(
    "coarse-dropout",
    lambda x, m: x * F.interpolate(m, scale_factor=12, mode="nearest"),
    T(4, 3, 96, 96),
    T(4, 1, 8, 8, low=0.0, high=1.0),
)
v(
    "mosaic-u8",
    lambda a, b, c, d: torch.cat((torch.cat((a, b), 2), torch.cat((c, d), 2)), 1)[:, 20:120, 30:130],
    T(3, 80, 80, dtype=u8),
    T(3, 80, 80, dtype=u8),
    T(3, 80, 80, dtype=u8),
    T(3, 80, 80, dtype=u8),
)
v(
    "ten-crop",
    lambda x: torch.stack(
        [
            c
            for y in (x, x.flip(-1))
            for c in (y[..., :80, :80], y[..., :80, -80:], y[..., -80:, :80], y[..., -80:, -80:], y[..., 8:88, 8:88])
        ],
        1,
    ),
    T(2, 3, 96, 96),
)
v(
    "letterbox-u8",
    lambda x: F.pad(F.interpolate(x[None].float(), (72, 96), mode="bilinear"), (0, 0, 12, 12), value=114.0).div(255),
    T(3, 120, 160, dtype=u8),
)
v(
    "imagenet-hwc",
    lambda x: (
        (x.permute(2, 0, 1).float() / 255 - torch.tensor([0.485, 0.456, 0.406])[:, None, None])
        / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    )[None],
    T(160, 160, 3, dtype=u8),
)
v(
    "center-crop-resize-half",
    lambda x: F.interpolate(x[:, :, 16:112, 16:112], 64, mode="area"),
    T(2, 3, 128, 128, dtype=bf16),
)
v(
    "random-flip-batch",
    lambda x, f: torch.where(f[:, None, None, None], x.flip(-1), x),
    T(16, 3, 48, 48),
    T(16, dtype=b8),
)
v(
    "random-crop-batch",
    lambda x, i, j: x[
        torch.arange(16)[:, None, None],
        :,
        i[:, None, None] + torch.arange(32)[:, None],
        j[:, None, None] + torch.arange(32),
    ],
    T(16, 3, 40, 40),
    T(16, dtype=i64, low=0, high=8),
    T(16, dtype=i64, low=0, high=8),
)
v(
    "hog",
    lambda x: (
        lambda gx, gy: (
            torch.zeros(1, 9, 4096)
            .scatter_add(
                1,
                ((torch.atan2(gy, gx) + math.pi) * (4.5 / math.pi)).long().clamp(0, 8).view(1, 1, -1),
                (gx * gx + gy * gy).sqrt().view(1, 1, -1),
            )
            .view(1, 9, 64, 64)
        )
    )(F.pad(x[1:-1, 2:] - x[1:-1, :-2], (1, 1, 1, 1)), F.pad(x[2:, 1:-1] - x[:-2, 1:-1], (1, 1, 1, 1))),
    T(64, 64),
)
v(
    "lbp",
    lambda x: sum(
        (x[1 + dy : 95 + dy, 1 + dx : 95 + dx] >= x[1:95, 1:95]).int() << n
        for n, (dy, dx) in enumerate(((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)))
    ),
    T(96, 96),
)
v("census", lambda x: (F.unfold(x[None, None], 5, padding=2) < x.flatten()).float(), T(48, 64))
v(
    "guided-filter",
    lambda p, i: (
        lambda box: (
            lambda mi, mp: (lambda a: box(a) * i + box(mp - a * mi))(
                (box(i * p) - mi * mp) / (box(i * i) - mi * mi + 0.01)
            )
        )(box(i), box(p))
    )(lambda y: F.avg_pool2d(y, 9, 1, 4, count_include_pad=False)),
    T(1, 1, 96, 96),
    T(1, 1, 96, 96),
)
v(
    "box-integral",
    lambda x: (lambda s: s[8:, 8:] - s[:-8, 8:] - s[8:, :-8] + s[:-8, :-8])(F.pad(x.cumsum(0).cumsum(1), (1, 0, 1, 0))),
    T(128, 128),
)
v("distance-transform", lambda m: _distance(m), T(48, 48, dtype=b8))


def _distance(m):
    d = torch.where(m, 0.0, 1e3)
    for _ in range(6):
        p = F.pad(d[None, None], (1, 1, 1, 1), value=1e3)[0, 0]
        d = torch.minimum(
            d, torch.minimum(torch.minimum(p[2:, 1:-1], p[:-2, 1:-1]), torch.minimum(p[1:-1, 2:], p[1:-1, :-2])) + 1
        )
    return d


v("components", lambda m: _components(m), T(2, 1, 48, 48, dtype=b8))


def _components(m):
    labels = torch.arange(1.0, 2305).view(1, 1, 48, 48) * m
    for _ in range(8):
        labels = F.max_pool2d(labels, 3, 1, 1) * m
    return labels


v("morph-gradient", lambda x: F.max_pool2d(x, 5, 1, 2) + F.max_pool2d(-x, 5, 1, 2), T(2, 1, 128, 128))
v(
    "skeleton-step",
    lambda x: (lambda e: F.relu(x - F.max_pool2d(e, 3, 1, 1)))(-F.max_pool2d(-x, 3, 1, 1)),
    T(2, 1, 96, 96, low=0.0, high=1.0),
)
v(
    "hough-lines",
    lambda p, t: torch.zeros(60 * 200).index_add(
        0,
        ((p @ torch.stack((t.cos(), t.sin()))) * 0.5 + 100).long().clamp(0, 199).add(torch.arange(60) * 200).flatten(),
        torch.ones(500 * 60),
    ),
    T(500, 2, low=-90.0, high=90.0),
    T(60),
)
v(
    "slic-assign",
    lambda x, c: (x[:, None] - c).square().mul(torch.tensor([1.0, 1, 1, 0.1, 0.1])).sum(-1).argmin(1),
    T(2304, 5),
    T(36, 5),
)
v(
    "sift-orientation",
    lambda gx, gy: (torch.atan2(gy, gx) * (18 / math.pi)).round().remainder(36).long(),
    T(96, 96),
    T(96, 96),
)
v(
    "cost-volume",
    lambda a, b: torch.stack([F.pad((a[..., k:] * b[..., : 64 - k]).mean(1), (k, 0)) for k in range(12)], 1),
    T(1, 16, 32, 64),
    T(1, 16, 32, 64),
)
v("disparity", lambda c: (c.softmax(1) * torch.arange(24.0)[:, None, None]).sum(1), T(2, 24, 48, 64))
v(
    "correlation-81",
    lambda a, b: torch.stack(
        [
            (a * F.pad(b, (4, 4, 4, 4))[:, :, y : y + 24, x : x + 32]).mean(1)
            for y in range(0, 9, 2)
            for x in range(0, 9, 2)
        ],
        1,
    ),
    T(1, 16, 24, 32),
    T(1, 16, 24, 32),
)
v(
    "raft-lookup",
    lambda c, xy: F.grid_sample(c, torch.stack((xy[..., 0] / 15.5 - 1, xy[..., 1] / 11.5 - 1), -1), align_corners=True),
    T(192, 1, 24, 32),
    T(192, 9, 9, 2, low=0.0, high=20.0),
)
v(
    "convex-upsample",
    lambda f, m: (
        (m.view(1, 1, 9, 4, 4, 24, 32).softmax(2) * F.unfold(4 * f, 3, padding=1).view(1, 2, 9, 1, 1, 24, 32))
        .sum(2)
        .permute(0, 1, 4, 2, 5, 3)
        .reshape(1, 2, 96, 128)
    ),
    T(1, 2, 24, 32),
    T(1, 144, 24, 32),
)
v(
    "depth-to-points",
    lambda d, k: torch.stack(
        ((torch.arange(64.0) - k[0]) * d / k[2], (torch.arange(48.0)[:, None] - k[1]) * d / k[3], d), -1
    ),
    T(2, 48, 64, low=1.0, high=5.0),
    T(4, low=20.0, high=40.0),
)
v(
    "normals-from-depth",
    lambda d: F.normalize(
        torch.stack(
            (
                -d[:, 1:-1, 2:] + d[:, 1:-1, :-2],
                -d[:, 2:, 1:-1] + d[:, :-2, 1:-1],
                torch.full_like(d[:, 1:-1, 1:-1], 2.0),
            ),
            1,
        ),
        dim=1,
    ),
    T(2, 96, 96),
)
v(
    "roi-align",
    lambda x, b: F.grid_sample(
        x.expand(32, -1, -1, -1),
        torch.stack(
            (
                b[:, None, None, 0]
                + (b[:, 2] - b[:, 0])[:, None, None] * ((torch.arange(7) + 0.5) / 7).expand(32, 7, 7),
                b[:, None, None, 1]
                + (b[:, 3] - b[:, 1])[:, None, None] * ((torch.arange(7) + 0.5) / 7)[:, None].expand(32, 7, 7),
            ),
            -1,
        )
        * 2
        - 1,
        align_corners=False,
    ),
    T(1, 16, 32, 32),
    T(32, 4, low=0.0, high=1.0),
)
v(
    "anchors-grid",
    lambda w: (
        torch.stack((*torch.meshgrid(torch.arange(24) * 8.0, torch.arange(32) * 8.0, indexing="ij")[::-1],) * 2, -1)[
            :, :, None
        ]
        + torch.cat((-w / 2, w / 2), 1)
    ).view(-1, 4),
    T(9, 2, low=8.0, high=64.0),
)
v(
    "fcos-targets",
    lambda p, b: (
        lambda logits: torch.where((logits.amin(-1) > 0), (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]), 1e8).min(1)
    )(
        torch.stack(
            (p[:, None, 0] - b[:, 0], p[:, None, 1] - b[:, 1], b[:, 2] - p[:, None, 0], b[:, 3] - p[:, None, 1]), -1
        )
    ),
    T(1000, 2, low=0.0, high=100.0),
    T(20, 4, low=0.0, high=100.0),
)
v(
    "centerness",
    lambda logits: (
        (logits[:, [0, 2]].amin(1) / logits[:, [0, 2]].amax(1))
        * (logits[:, [1, 3]].amin(1) / logits[:, [1, 3]].amax(1))
    ).sqrt(),
    T(5000, 4, low=0.1, high=9.0),
)
v(
    "rotated-corners",
    lambda b: (
        lambda c, s: (
            b[:, None, :2]
            + torch.stack(
                (
                    torch.tensor([-0.5, 0.5, 0.5, -0.5]) * b[:, 2:3] * c
                    - torch.tensor([-0.5, -0.5, 0.5, 0.5]) * b[:, 3:4] * s,
                    torch.tensor([-0.5, 0.5, 0.5, -0.5]) * b[:, 2:3] * s
                    + torch.tensor([-0.5, -0.5, 0.5, 0.5]) * b[:, 3:4] * c,
                ),
                -1,
            )
        )
    )(b[:, 4:].cos(), b[:, 4:].sin()),
    T(2000, 5),
)
v("greedy-nms", lambda b, s: _nms(b, s), T(60, 2, low=0.0, high=50.0), T(60, low=0.0, high=1.0))


def _nms(c, s):
    b = torch.cat((c, c + 8), 1)[s.argsort(descending=True)]
    inter = (torch.minimum(b[:, None, 2:], b[:, 2:]) - torch.maximum(b[:, None, :2], b[:, :2])).clamp(min=0).prod(-1)
    over = (inter / (128 - inter) > 0.3).triu(1)
    keep = torch.ones(60, dtype=b8)
    for _ in range(6):
        keep = ~(over & keep[:, None]).any(0)
    return keep


v(
    "wbf",
    lambda b, s, g: (
        torch.zeros(20, 4).index_add(0, g, b * s[:, None])
        / torch.zeros(20, 1).index_add(0, g, s[:, None]).clamp(min=1e-6)
    ),
    T(200, 4),
    T(200, low=0.0, high=1.0),
    T(200, dtype=i64, low=0, high=19),
)
v(
    "keypoint-maps",
    lambda k: torch.exp(
        -((torch.arange(64) - k[..., 0, None, None]) ** 2 + (torch.arange(48)[:, None] - k[..., 1, None, None]) ** 2)
        / 8
    ),
    T(4, 17, 2, low=0.0, high=48.0),
)
v(
    "keypoint-subpixel",
    lambda h: (
        lambda i: torch.stack(
            (
                i % 48
                + 0.25
                * (
                    h.flatten(2).gather(2, (i + 1).clamp(max=3071)[..., None])[..., 0]
                    - h.flatten(2).gather(2, (i - 1).clamp(min=0)[..., None])[..., 0]
                ).sign(),
                (i // 48).float(),
            ),
            -1,
        )
    )(h.flatten(2).argmax(2)),
    T(4, 17, 64, 48),
)
v(
    "paf-score",
    lambda p, a, b: (
        lambda d: (
            (
                p[
                    :,
                    (a[:, 1:] + d[:, 1:] * torch.linspace(0, 1, 10)).long(),
                    (a[:, :1] + d[:, :1] * torch.linspace(0, 1, 10)).long(),
                ]
                * F.normalize(d, dim=1).T[:, :, None]
            )
            .sum(0)
            .mean(1)
        )
    )(b - a),
    T(2, 48, 48),
    T(100, 2, low=0.0, high=47.0),
    T(100, 2, low=0.0, high=47.0),
)
v(
    "panoptic-ids",
    lambda s, c, o: (lambda g: torch.where(s.argmax(0) > 4, g + 1, 0))(
        (
            (torch.stack(torch.meshgrid(torch.arange(48.0), torch.arange(64.0), indexing="ij")) + o)
            .flatten(1)
            .T[:, None]
            - c
        )
        .square()
        .sum(-1)
        .argmin(1)
        .view(48, 64)
    ),
    T(11, 48, 64),
    T(12, 2, low=0.0, high=48.0),
    T(2, 48, 64),
)
v("db-binarize", lambda p, t: torch.reciprocal(1 + torch.exp(-50 * (p - t))), T(2, 1, 96, 96), T(2, 1, 96, 96))
v(
    "mask-to-box",
    lambda m: (
        lambda r, c: torch.stack(
            (c.int().argmax(1), r.int().argmax(1), 63 - c.flip(1).int().argmax(1), 47 - r.flip(1).int().argmax(1)), 1
        )
    )(m.any(2), m.any(1)),
    T(20, 48, 64, dtype=b8),
)
v("rle-lengths", lambda m: F.pad(m.flatten(1).int(), (1, 1)).diff(dim=1).abs().cumsum(1), T(8, 48, 48, dtype=b8))
v(
    "boundary-iou",
    lambda a, b: (lambda x, y: (x & y).sum((1, 2)) / (x | y).sum((1, 2)).clamp(min=1))(
        a & ~(-F.max_pool2d(-a[:, None].float(), 3, 1, 1)).bool()[:, 0],
        b & ~(-F.max_pool2d(-b[:, None].float(), 3, 1, 1)).bool()[:, 0],
    ),
    T(8, 64, 64, dtype=b8),
    T(8, 64, 64, dtype=b8),
)
v("crf-mean-field", lambda u, k: _field(u, k), T(1, 8, 32, 32), T(8, 1, 5, 5, low=0.0, high=0.1))


def _field(u, k):
    q = u.softmax(1)
    for _ in range(3):
        q = (u - F.conv2d(q, k, padding=2, groups=8).sum(1, keepdim=True) + q).softmax(1)
    return q
