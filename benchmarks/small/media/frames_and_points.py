"""Points, voxels, splats, layouts of pictures and videos, and losses over pictures."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, f16, i64, infer, train, u8

b8 = torch.bool
v = lambda name, f, *x, **o: infer("frame/" + name, f, *x, **o)  # noqa: E731

v("farthest-points", lambda p: _farthest(p), T(4, 256, 3))


def _farthest(p):
    d = torch.full((4, 256), 1e9)
    i = torch.zeros(4, dtype=i64)
    out = []
    for _ in range(12):
        c = p[torch.arange(4), i]
        d = torch.minimum(d, (p - c[:, None]).square().sum(-1))
        i = d.argmax(1)
        out.append(i)
    return torch.stack(out, 1)


v(
    "ball-query",
    lambda p, c: torch.where(torch.cdist(c, p) < 0.8, torch.arange(256), 256).sort(-1).values[..., :16],
    T(2, 256, 3),
    T(2, 32, 3),
)
v(
    "three-interpolate",
    lambda p, c, f: (
        lambda d, i: (
            ((1 / (d + 1e-8)) / (1 / (d + 1e-8)).sum(-1, keepdim=True))[..., None]
            .mul(f[torch.arange(2)[:, None, None], i])
            .sum(2)
        )
    )(*torch.cdist(p, c).topk(3, largest=False)),
    T(2, 256, 3),
    T(2, 64, 3),
    T(2, 64, 32),
)
v("voxel-ids", lambda p: ((p - p.amin(0)) / 0.2).floor().long() @ torch.tensor([1, 64, 4096]), T(4000, 3))
v(
    "voxel-mean",
    lambda p, i: torch.zeros(500, 3).scatter_reduce(0, i[:, None].expand(-1, 3), p, "mean", include_self=False),
    T(4000, 3),
    T(4000, dtype=i64, low=0, high=499),
)
v(
    "spherical-image",
    lambda p: torch.full((32 * 180,), 99.0).scatter_reduce(
        0,
        (
            ((p[:, 2] / p.norm(dim=1) + 1) * 15.9).long() * 180
            + ((torch.atan2(p[:, 1], p[:, 0]) / math.pi + 1) * 89.9).long()
        ),
        p.norm(dim=1),
        "amin",
    ),
    T(4000, 3),
)
v("pillar-scatter", lambda f, i: torch.zeros(32, 1024).index_copy(1, i, f.T), T(200, 32), torch.arange(0, 1000, 5))
v(
    "icp-step",
    lambda p, q: (lambda n: (p - p.mean(0)).T @ (q[n] - q[n].mean(0)))(torch.cdist(p, q).argmin(1)),
    T(300, 3),
    T(300, 3),
)
v(
    "chamfer-hausdorff",
    lambda a, b: (
        lambda d: (d.amin(1).mean(1) + d.amin(2).mean(1), torch.maximum(d.amin(1).amax(1), d.amin(2).amax(1)))
    )(torch.cdist(a, b)),
    T(2, 300, 3),
    T(2, 300, 3),
)
v(
    "point-triangle",
    lambda p, a, u, w: (
        lambda d: (
            ((d * u).sum(-1).clamp(0, 1)[..., None] * u + (d * w).sum(-1).clamp(0, 1)[..., None] * w - d)
            .norm(dim=-1)
            .amin(1)
        )
    )(p[:, None] - a),
    T(200, 3),
    T(60, 3),
    T(60, 3),
    T(60, 3),
)
v(
    "rasterize",
    lambda t: (lambda e: (e >= 0).all(0).any(0))(
        torch.stack(
            [
                (torch.arange(48.0) - t[:, k, 0, None, None]) * (t[:, (k + 1) % 3, 1] - t[:, k, 1])[:, None, None]
                - (torch.arange(48.0)[:, None] - t[:, k, 1, None, None])
                * (t[:, (k + 1) % 3, 0] - t[:, k, 0])[:, None, None]
                for k in range(3)
            ]
        )
    ),
    T(20, 3, 2, low=0.0, high=48.0),
)
v(
    "splat",
    lambda m, s, c: (
        torch.exp(
            -((torch.arange(32) - m[:, 0, None, None]) ** 2 + (torch.arange(32)[:, None] - m[:, 1, None, None]) ** 2)
            / s[:, None, None]
        )[:, None]
        * c[:, :, None, None]
    ).sum(0),
    T(100, 2, low=0.0, high=32.0),
    T(100, low=1.0, high=9.0),
    T(100, 3),
)
v(
    "alpha-composite",
    lambda a, c: (a * torch.cumprod(F.pad(1 - a, (0, 0, 1, 0), value=1.0)[:-1], 0))[..., None].mul(c).sum(0),
    T(64, 500, low=0.0, high=0.2),
    T(64, 500, 3),
)
v(
    "triplane",
    lambda f, p: sum(
        F.grid_sample(f[k : k + 1], p[None, None, :, d], align_corners=True)[0, :, 0]
        for k, d in enumerate(((0, 1), (0, 2), (1, 2)))
    ),
    T(3, 16, 32, 32),
    T(500, 3, low=-1.0, high=1.0),
)
v(
    "sh-colors",
    lambda d, k: torch.sigmoid(
        (
            torch.stack(
                (
                    torch.full_like(d[:, 0], 0.2821),
                    -0.4886 * d[:, 1],
                    0.4886 * d[:, 2],
                    -0.4886 * d[:, 0],
                    1.0925 * d[:, 0] * d[:, 1],
                    -1.0925 * d[:, 1] * d[:, 2],
                    0.3154 * (3 * d[:, 2] ** 2 - 1),
                    -1.0925 * d[:, 0] * d[:, 2],
                    0.5463 * (d[:, 0] ** 2 - d[:, 1] ** 2),
                ),
                1,
            )[:, None]
            * k
        ).sum(-1)
    ),
    T(2000, 3),
    T(2000, 3, 9),
)
v(
    "tonemap-aces",
    lambda x: (
        ((x * (2.51 * x + 0.03)) / (x * (2.43 * x + 0.59) + 0.14)).clamp(0, 1).pow(1 / 2.2).mul(255).round().to(u8)
    ),
    T(3, 128, 128, low=0.0, high=4.0),
)
v("dark-channel", lambda x: -F.max_pool2d(-x.amin(1, keepdim=True), 15, 1, 7), T(1, 3, 96, 96, low=0.0, high=1.0))
v(
    "retinex",
    lambda x, k: (
        torch.log(x + 1)
        - torch.log(
            F.conv2d(
                F.conv2d(x, k[None, None, None].expand(3, 1, 1, 15), padding=(0, 7), groups=3),
                k[None, None, :, None].expand(3, 1, 15, 1),
                padding=(7, 0),
                groups=3,
            ).abs()
            + 1
        )
    ),
    T(1, 3, 96, 96, low=0.0, high=1.0),
    T(15, low=0.0, high=0.1),
)
v(
    "cl-normalize-3d",
    lambda x, m, s: (x - m[:, None, None, None]) / s[:, None, None, None],
    torch.randn(2, 16, 8, 24, 24).to(memory_format=torch.channels_last_3d),
    T(16),
    T(16, low=0.5, high=1.0),
)
v(
    "cl-3d-norm-relu",
    lambda x, w, b: F.relu(F.group_norm(x, 4, w, b)),
    torch.randn(1, 16, 8, 16, 16).to(memory_format=torch.channels_last_3d),
    T(16),
    T(16),
)
v(
    "cl-se-gate",
    lambda x, a, b: x * torch.sigmoid(F.relu(x.mean((2, 3)) @ a) @ b)[:, :, None, None],
    T(4, 32, 28, 28, layout="channels_last"),
    T(32, 8),
    T(8, 32),
)
v(
    "cl-concat-upsample",
    lambda a, b: torch.cat((F.interpolate(a, scale_factor=2.0), b), 1),
    T(2, 16, 16, 16, layout="channels_last"),
    T(2, 16, 32, 32, layout="channels_last"),
)
v("video-diff", lambda x: (x[:, 1:].float() - x[:, :-1].float()).abs().mean((2, 3, 4)), T(2, 8, 3, 48, 48, dtype=u8))
v(
    "tsm-shift",
    lambda x: torch.cat(
        (F.pad(x[:, 1:, :4], (0, 0, 0, 0, 0, 0, 0, 1)), F.pad(x[:, :-1, 4:8], (0, 0, 0, 0, 0, 0, 1, 0)), x[:, :, 8:]), 2
    ),
    T(2, 8, 32, 14, 14),
)
v(
    "tubelets",
    lambda x: x.unfold(2, 2, 2).unfold(3, 8, 8).unfold(4, 8, 8).permute(0, 2, 3, 4, 1, 5, 6, 7).reshape(1, 4 * 36, -1),
    T(1, 3, 8, 48, 48),
)
v(
    "half-sobel",
    lambda x: (
        (F.pad(x, (1, 1))[..., 2:] - F.pad(x, (1, 1))[..., :-2]).square()
        + (F.pad(x, (0, 0, 1, 1))[..., 2:, :] - F.pad(x, (0, 0, 1, 1))[..., :-2, :]).square()
    ),
    T(2, 3, 96, 96, dtype=f16),
)

g = lambda name, f, *x, **o: train("frame/" + name, f, *x, **o)  # noqa: E731
g(
    "silog",
    lambda p, t: (lambda d: (d.square().mean() - 0.85 * d.mean().square()).sqrt())(
        p.abs().add(1e-3).log() - t.abs().add(1e-3).log()
    ),
    T(2, 1, 48, 64),
    T(2, 1, 48, 64),
)
g(
    "ciou",
    lambda p, q: (
        lambda a, b: (
            lambda i, c: (
                1
                - i
                + ((a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]) ** 2).sum(1) / 4 / c
                + (4 / math.pi**2)
                * (
                    torch.atan((a[:, 2] - a[:, 0]) / (a[:, 3] - a[:, 1]))
                    - torch.atan((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1]))
                )
                ** 2
            ).mean()
        )(
            (lambda n: n / ((a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - n))(
                (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
            ),
            (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).square().sum(1),
        )
    )(torch.cat((p[:, :2], p[:, :2] + p[:, 2:]), 1), torch.cat((q[:, :2], q[:, :2] + q[:, 2:]), 1)),
    T(500, 4, low=0.2, high=1.0),
    T(500, 4, low=0.2, high=1.0),
)
g(
    "photometric",
    lambda a, b, f: (
        lambda w: (
            0.85
            * (
                1
                - (2 * F.avg_pool2d(a, 3, 1) * F.avg_pool2d(w, 3, 1) + 1e-4)
                / (F.avg_pool2d(a, 3, 1) ** 2 + F.avg_pool2d(w, 3, 1) ** 2 + 1e-4)
            )
            .clamp(0, 1)
            .mean()
            + 0.15 * (a - w).abs().mean()
        )
    )(F.grid_sample(b, f.tanh(), padding_mode="border", align_corners=True)),
    T(1, 3, 32, 32),
    T(1, 3, 32, 32),
    T(1, 32, 32, 2),
)
g(
    "edge-smooth-disp",
    lambda d, x: (
        ((d[..., 1:] - d[..., :-1]).abs() * torch.exp(-(x[..., 1:] - x[..., :-1]).abs().mean(1, keepdim=True))).mean()
        + (
            (d[..., 1:, :] - d[..., :-1, :]).abs()
            * torch.exp(-(x[..., 1:, :] - x[..., :-1, :]).abs().mean(1, keepdim=True))
        ).mean()
    ),
    T(2, 1, 48, 64),
    T(2, 3, 48, 64),
)
g(
    "tversky",
    lambda logits, t: (
        lambda p: (
            1
            - (
                (p * t).sum((0, 2, 3))
                / ((p * t).sum((0, 2, 3)) + 0.3 * (p * (1 - t)).sum((0, 2, 3)) + 0.7 * ((1 - p) * t).sum((0, 2, 3)) + 1)
            ).mean()
        )
    )(logits.softmax(1)),
    T(2, 5, 48, 48),
    T(2, 5, 48, 48, low=0.0, high=1.0),
)
g(
    "heatmap-focal",
    lambda p, t: (
        lambda q: -(torch.where(t > 0.9, (1 - q) ** 2 * q.log(), (1 - t) ** 4 * q**2 * (1 - q).log())).sum() / 100
    )(p.sigmoid().clamp(1e-4, 1 - 1e-4)),
    T(2, 10, 32, 32),
    T(2, 10, 32, 32, low=0.0, high=1.0),
)
g(
    "splat-training",
    lambda m, s, c: (
        (
            torch.exp(
                -(
                    (torch.arange(24) - m[:, 0, None, None]) ** 2
                    + (torch.arange(24)[:, None] - m[:, 1, None, None]) ** 2
                )
                / s[:, None, None]
            )[:, None]
            * c[:, :, None, None]
        )
        .sum(0)
        .square()
        .mean()
    ),
    T(60, 2, low=0.0, high=24.0),
    T(60, low=1.0, high=9.0),
    T(60, 3),
)
g(
    "alpha-training",
    lambda a, c: (
        (a.sigmoid() * torch.cumprod(F.pad(1 - a.sigmoid(), (0, 0, 1, 0), value=1.0)[:-1], 0))[..., None]
        .mul(c)
        .sum(0)
        .square()
        .mean()
    ),
    T(32, 200),
    T(32, 200, 3),
)
g(
    "perceptual-gram",
    lambda a, b: ((torch.einsum("bchw,bdhw->bcd", a, a) - torch.einsum("bchw,bdhw->bcd", b, b)) / 4096).square().mean(),
    T(2, 32, 24, 24),
    T(2, 32, 24, 24),
)
g(
    "spatial-argmax",
    lambda h: ((h.flatten(2).softmax(2).view_as(h).sum(2) * torch.linspace(-1, 1, 32)).sum(2) - 0.3).square().mean(),
    T(8, 17, 32, 32),
)
