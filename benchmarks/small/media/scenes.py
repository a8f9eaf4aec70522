"""As other people write them: scenes, motion, prices, pictures, sound."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from small.case import T, f32, i64, infer, train, u8

# Rendering and geometry


def encoded(x: Any) -> Any:
    bands = 2.0 ** torch.arange(6, device=x.device)
    angles = (x[..., None, :] * bands[:, None] * math.pi).flatten(-2)
    return torch.cat((x, angles.sin(), angles.cos()), -1)


def marched(density: Any, color: Any, depth: Any) -> Any:
    step = torch.cat((depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1e3)), -1)
    alpha = 1 - torch.exp(-F.relu(density) * step)
    past = torch.cumprod(torch.cat((torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10), -1), -1)[:, :-1]
    weights = alpha * past
    return (weights[..., None] * torch.sigmoid(color)).sum(1), (weights * depth).sum(-1), weights.sum(-1)


def inverse_sampled(weights: Any, u: Any) -> Any:
    cdf = torch.cumsum((weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True), -1)
    at = torch.searchsorted(cdf, u, right=True).clamp(max=weights.shape[-1] - 1)
    below = (at - 1).clamp(min=0)
    low, high = torch.gather(cdf, 1, below), torch.gather(cdf, 1, at)
    wide = torch.where(high - low < 1e-5, 1.0, high - low)
    return below + (u - low) / wide


def spheres(p: Any, c: Any, r: Any) -> Any:
    d = (p[:, None] - c).norm(dim=-1) - r
    k = 0.3
    return -k * torch.logsumexp(-d / k, -1)


def box_distance(p: Any, half: Any) -> Any:
    q = p.abs() - half
    return q.clamp(min=0).norm(dim=-1) + q.amax(-1).clamp(max=0)


def torus(p: Any) -> Any:
    q = torch.stack((torch.linalg.norm(p[:, :2], dim=-1) - 1.0, p[:, 2]), -1)
    return torch.linalg.norm(q, dim=-1) - 0.25


def look_at(eye: Any, target: Any) -> Any:
    z = F.normalize(eye - target, dim=-1)
    x = F.normalize(torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]).expand_as(z), z), dim=-1)
    return torch.stack((x, torch.linalg.cross(z, x), z), -1)


def trilinear(grid: Any, p: Any) -> Any:
    low = p.floor().long().clamp(0, 30)
    f = p - low
    out = 0
    for corner in range(8):
        o = torch.tensor([corner & 1, corner >> 1 & 1, corner >> 2], device=p.device)
        at = low + o
        w = torch.where(o.bool(), f, 1 - f).prod(-1, keepdim=True)
        out = out + w * grid[at[:, 0], at[:, 1], at[:, 2]]
    return out


def hashed(p: Any) -> Any:
    low = p.floor().long()
    return ((low[:, 0] * 1) ^ (low[:, 1] * 2654435761) ^ (low[:, 2] * 805459861)) % 16384


infer("nerf/encoding", encoded, T(2048, 3))
infer("nerf/march", marched, T(512, 64), T(512, 64, 3), T(512, 64, low=2, high=6))
train("nerf/march-training", marched, T(256, 64), T(256, 64, 3), T(256, 64, low=2, high=6))
infer("nerf/inverse-sampling", inverse_sampled, T(256, 64, low=0, high=1), T(256, 64, low=0, high=1))
infer("nerf/trilinear", trilinear, T(32, 32, 32, 4), T(2048, 3, low=0, high=30))
infer("nerf/hash-grid", hashed, T(8192, 3, low=0, high=100))
infer("sdf/spheres", spheres, T(2048, 3), T(16, 3), T(16, low=0.1, high=1))
infer("sdf/box", box_distance, T(8192, 3), T(3, low=0.1, high=1))
infer("sdf/torus", torus, T(8192, 3))
train("sdf/eikonal", lambda g: ((g.norm(dim=-1) - 1) ** 2).mean(), T(4096, 3))
infer("sdf/look-at", look_at, T(1024, 3), T(1024, 3))

# Dynamics


def springs(x: Any, v: Any, i: Any, j: Any, rest: Any) -> Any:
    d = x[j] - x[i]
    length = d.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    force = 50 * (length - rest[:, None]) * d / length
    total = torch.zeros_like(x).index_add_(0, i, force).index_add_(0, j, -force)
    v = (v + 0.01 * (total + torch.tensor([0.0, -9.8, 0.0]))) * 0.99
    return x + 0.01 * v, v


def advected(field: Any, u: Any, v: Any) -> Any:
    n = field.shape[-1]
    y, x = torch.meshgrid(torch.arange(n, dtype=f32), torch.arange(n, dtype=f32), indexing="ij")
    x, y = (x - u).clamp(0, n - 1.001), (y - v).clamp(0, n - 1.001)
    x0, y0 = x.long(), y.long()
    fx, fy = x - x0, y - y0
    a, b = field[y0, x0], field[y0, x0 + 1]
    c, d = field[y0 + 1, x0], field[y0 + 1, x0 + 1]
    return (1 - fy) * ((1 - fx) * a + fx * b) + fy * ((1 - fx) * c + fx * d)


def gray_scott(u: Any, v: Any) -> Any:
    def laplacian(z: Any) -> Any:
        return z.roll(1, 0) + z.roll(-1, 0) + z.roll(1, 1) + z.roll(-1, 1) - 4 * z

    uvv = u * v * v
    return u + 0.16 * laplacian(u) - uvv + 0.06 * (1 - u), v + 0.08 * laplacian(v) + uvv - 0.122 * v


def jacobi(p: Any, b: Any) -> Any:
    for _ in range(4):
        q = F.pad(p, (1, 1, 1, 1))
        p = (q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] - b) * 0.25
    return p


def boids(x: Any, v: Any) -> Any:
    d = x[None] - x[:, None]
    near = (d.square().sum(-1) < 0.5).float()
    count = near.sum(-1, keepdim=True)
    toward = (near[..., None] * d).sum(1) / count
    along = near @ v / count
    v = v + 0.1 * toward + 0.2 * (along - v)
    speed = v.norm(dim=-1, keepdim=True)
    return x + v * speed.clamp(0.1, 1.0) / speed.clamp(min=1e-6), v


def cart_pole(s: Any, a: Any) -> Any:
    x, dx, angle, turn = s.unbind(-1)
    force = torch.where(a == 1, 10.0, -10.0)
    sin, cos = angle.sin(), angle.cos()
    t = (force + 0.05 * turn**2 * sin) / 1.1
    alpha = (9.8 * sin - cos * t) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    ax = t - 0.05 * alpha * cos / 1.1
    new = torch.stack((x + 0.02 * dx, dx + 0.02 * ax, angle + 0.02 * turn, turn + 0.02 * alpha), -1)
    return new, (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > 0.2)


infer(
    "dynamics/springs",
    springs,
    T(1024, 3),
    T(1024, 3),
    T(4096, dtype=i64, low=0, high=1023),
    T(4096, dtype=i64, low=0, high=1023),
    T(4096, low=0.5, high=1),
    tolerance=1e-3,
)
infer("dynamics/advection", advected, T(128, 128), T(128, 128), T(128, 128))
infer("dynamics/gray-scott", gray_scott, T(128, 128, low=0, high=1), T(128, 128, low=0, high=1))
infer("dynamics/jacobi", jacobi, T(128, 128), T(128, 128))
infer("dynamics/boids", boids, T(256, 2), T(256, 2), tolerance=1e-3)
infer("dynamics/cart-pole", cart_pole, T(1024, 4), T(1024, dtype=i64, low=0, high=1))

# Prices


def black_scholes(s: Any, k: Any, t: Any, vol: Any) -> Any:
    root = vol * t.sqrt()
    d1 = ((s / k).log() + (0.02 + vol * vol / 2) * t) / root
    normal = torch.distributions.Normal(0.0, 1.0)
    discount = k * torch.exp(-0.02 * t)
    return s * normal.cdf(d1) - discount * normal.cdf(d1 - root), torch.exp(-d1 * d1 / 2) / (s * root * 2.5066)


def asian(z: Any) -> Any:
    path = 100 * torch.exp(torch.cumsum(0.0002 + 0.02 * z, 1))
    return torch.exp(torch.tensor(-0.02)) * F.relu(path.mean(1) - 100).mean()


def heston(z: Any, w: Any) -> Any:
    s, v = torch.zeros_like(z[:, 0]), torch.full_like(z[:, 0], 0.04)
    for i in range(8):
        v = v.clamp(min=0)
        root = (v * 0.01).sqrt()
        s = s + (0.02 - v / 2) * 0.01 + root * z[:, i]
        v = v + 1.5 * (0.04 - v) * 0.01 + 0.3 * root * (-0.7 * z[:, i] + 0.714 * w[:, i])
    return F.relu(torch.exp(s) - 1).mean()


def drawdown(r: Any) -> Any:
    value = torch.cumprod(1 + r * 0.01, 0)
    return (1 - value / torch.cummax(value, 0).values).amax(0), r.mean(0) / r.std(0) * math.sqrt(252)


infer(
    "price/black-scholes",
    black_scholes,
    T(8192, low=80, high=120),
    T(8192, low=80, high=120),
    T(8192, low=0.1, high=2),
    T(8192, low=0.1, high=0.5),
)
train(
    "price/greeks",
    lambda s, k, t, v: black_scholes(s, k, t, v)[0].sum(),
    T(4096, low=80, high=120),
    T(4096, low=80, high=120),
    T(4096, low=0.1, high=2),
    T(4096, low=0.1, high=0.5),
)
infer("price/asian", asian, T(1024, 64))
infer("price/heston", heston, T(2048, 8), T(2048, 8))
infer("price/drawdown", drawdown, T(252, 64))
infer(
    "price/bollinger",
    lambda p: (lambda w: torch.stack((w.mean(-1), w.mean(-1) + 2 * w.std(-1), w.mean(-1) - 2 * w.std(-1))))(
        p.unfold(-1, 20, 1)
    ),
    T(16, 512),
)

# Pictures and sound


def canny(x: Any) -> Any:
    k = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])[None, None]
    gx, gy = F.conv2d(x, k, padding=1), F.conv2d(x, k.transpose(2, 3), padding=1)
    size = torch.hypot(gx, gy)
    angle = (torch.atan2(gy, gx) * 4 / math.pi).round().long() % 4
    return torch.where(size > 1.0, angle + 1, 0)


def bilateral(x: Any) -> Any:
    patches = F.unfold(F.pad(x, (2, 2, 2, 2), mode="reflect"), 5).view(x.shape[0], 25, *x.shape[2:])
    grid = torch.arange(-2, 3, dtype=f32)
    near = torch.exp(-(grid[:, None] ** 2 + grid**2) / 8).reshape(1, 25, 1, 1)
    w = near * torch.exp(-((patches - x) ** 2) / 0.02)
    return (w * patches).sum(1) / w.sum(1)


def opened(x: Any) -> Any:
    eroded = -F.max_pool2d(-x, 3, 1, 1)
    return F.max_pool2d(eroded, 3, 1, 1)


def median3(x: Any) -> Any:
    return F.unfold(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3).median(1).values


def equalized(x: Any) -> Any:
    counts = torch.zeros(256).index_add_(0, x.flatten().long(), torch.ones(x.numel()))
    cdf = counts.cumsum(0)
    table = ((cdf - cdf[0]) / (cdf[-1] - cdf[0]) * 255).clamp(0, 255).to(u8)
    return table[x.long()]


def ssim(a: Any, b: Any) -> Any:
    def mean(z: Any) -> Any:
        return F.avg_pool2d(z, 7, 1)

    ma, mb = mean(a), mean(b)
    va, vb, c = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    return ((2 * ma * mb + 1e-4) * (2 * c + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4))).mean()


def log_mel(x: Any, window: Any, bank: Any) -> Any:
    power = torch.stft(x, 256, 128, window=window, return_complex=True).abs() ** 2
    mel = torch.log10((bank @ power).clamp(min=1e-10))
    return torch.maximum(mel, mel.amax() - 8.0) / 4 + 1


def biquad(x: Any) -> Any:
    y1 = y2 = torch.zeros_like(x[:, 0])
    out = []
    for i in range(2, 18):
        y = 0.2 * x[:, i] + 0.4 * x[:, i - 1] + 0.2 * x[:, i - 2] + 0.5 * y1 - 0.3 * y2
        y2, y1 = y1, y
        out.append(y)
    return torch.stack(out, 1)


def yin(x: Any) -> Any:
    frames = x.unfold(-1, 256, 128)
    d = torch.stack([(frames[..., :128] - frames[..., t : t + 128]).square().sum(-1) for t in range(1, 17)], -1)
    return d / (d.cumsum(-1) / torch.arange(1, 17)).clamp(min=1e-8)


infer("filter/canny", canny, T(2, 1, 96, 96))
infer("filter/bilateral", bilateral, T(1, 1, 96, 96, low=0, high=1))
infer("filter/opening", opened, T(4, 3, 64, 64))
infer("filter/median", median3, T(1, 1, 64, 64))
infer("filter/equalize", equalized, T(128, 128, dtype=u8))
train("filter/ssim-training", ssim, T(2, 3, 64, 64, low=0, high=1), T(2, 3, 64, 64, low=0, high=1))
infer(
    "filter/unsharp", lambda x: (x + 1.5 * (x - F.avg_pool2d(x, 5, 1, 2))).clamp(0, 1), T(2, 3, 96, 96, low=0, high=1)
)
infer(
    "filter/yuv",
    lambda x: (
        torch.stack(
            (0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2], 0.5 * (x[:, 2] - x[:, 0]), x[:, 0] - x[:, 1]), 1
        )
        .mul(255)
        .round()
        .to(u8)
    ),
    T(2, 3, 128, 128, low=0, high=1),
)
infer("hearing/log-mel", log_mel, T(2, 4096), T(256, low=0, high=1), T(40, 129, low=0, high=1), tolerance=1e-3)
infer("hearing/biquad", biquad, T(256, 18))
infer("hearing/yin", yin, T(4, 4096))
infer("hearing/resampled", lambda x, k: F.conv1d(x, k, stride=3).transpose(1, 2).flatten(1), T(2, 1, 3000), T(2, 1, 31))
infer(
    "hearing/overlap-add",
    lambda f, w: F.fold((f * w).transpose(1, 2), (1, 2176), (1, 256), stride=(1, 128))[:, 0, 0],
    T(2, 16, 256),
    T(256),
)
infer("hearing/cepstrum", lambda x: torch.fft.irfft(torch.fft.rfft(x).abs().clamp(min=1e-6).log()), T(16, 512))
