"""Programs of many trades: robots, markets, sound, pictures, physics, statistics, shops, genes, texts and agents."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, f16, i64, infer, train, u8


def _both(name, function, *inputs, **options):
    infer(f"shop/{name}", function, *inputs, **options)
    train(f"shop/{name}/train", function, *inputs, **options)


# Robots


def _quaternion_product(a, b):
    w, x, y, z = a.unbind(-1)
    s, p, q, r = b.unbind(-1)
    return torch.stack(
        (w * s - x * p - y * q - z * r, w * p + x * s + y * r - z * q, w * q - x * r + y * s + z * p,
         w * r + x * q - y * p + z * s), -1)  # fmt: skip


def _rotated(q, v):
    u = q[..., 1:]
    t = 2 * torch.linalg.cross(u, v)
    return v + q[..., :1] * t + torch.linalg.cross(u, t)


def _rodrigues(r):
    angle = r.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    x, y, z = (r / angle).unbind(-1)
    o = torch.zeros_like(x)
    k = torch.stack((o, -z, y, z, o, -x, -y, x, o), -1).unflatten(-1, (3, 3))
    a = angle[..., None]
    return torch.eye(3) + a.sin() * k + (1 - a.cos()) * (k @ k)


def _chain_of_joints(angles, lengths):
    total = angles.cumsum(-1)
    return torch.stack(((lengths * total.cos()).cumsum(-1), (lengths * total.sin()).cumsum(-1)), -1)


def _slerp(a, b, t):
    dot = (a * b).sum(-1, keepdim=True).clamp(-0.9995, 0.9995)
    theta = dot.acos()
    return (((1 - t) * theta).sin() * a + (t * theta).sin() * b) / theta.sin()


def _kalman(x, p, z):
    gain = p / (p + 0.1)
    return x + gain * (z - x), (1 - gain) * p + 0.01


_both("quaternion-product", _quaternion_product, T(1000, 4), T(1000, 4))
_both("quaternion-rotates", _rotated, T(777, 4), T(777, 3))
_both("rodrigues", _rodrigues, T(300, 3))
_both("joints", _chain_of_joints, T(64, 7), T(64, 7))
_both("slerp", _slerp, T(500, 4, low=0.1, high=0.5), T(500, 4, low=0.1, high=0.5), T(500, 1, low=0.0, high=1.0))
_both("kalman-scalar", _kalman, T(4000), T(4000, low=0.1, high=1.0), T(4000))
infer("shop/pd-control", lambda q, v, g: (30 * (g - q) - 2 * v).clamp(-5, 5), T(128, 12), T(128, 12), T(128, 12))
infer(
    "shop/occupancy",
    lambda d, a: torch.stack((d * a.cos(), d * a.sin()), -1).div(0.05).floor().long(),
    T(16, 360),
    T(360),
)

# Markets


def _black_scholes(s, k, v):
    d = (torch.log(s / k) + 0.5 * v * v) / v
    n = torch.distributions.Normal(0.0, 1.0)
    return (
        s * (0.5 * (1 + torch.erf(d / math.sqrt(2)))) - k * 0.5 * (1 + torch.erf((d - v) / math.sqrt(2))) + 0 * n.mean
    )


def _drawdown(p):
    return (p / p.cummax(-1).values - 1).amin(-1)


def _bands(p):
    w = p.unfold(-1, 20, 1)
    mean, deviation = w.mean(-1), w.std(-1)
    return mean - 2 * deviation, mean + 2 * deviation


def _strength(p):
    d = p.diff(dim=-1)
    up, down = d.clamp_min(0).unfold(-1, 14, 1).mean(-1), (-d).clamp_min(0).unfold(-1, 14, 1).mean(-1)
    return 100 - 100 / (1 + up / (down + 1e-9))


def _garch(r):
    h, total = r.new_ones(r.shape[0]), 0.0
    for t in range(12):
        h = 0.05 + 0.1 * r[:, t] ** 2 + 0.85 * h
        total = total + h.log() + r[:, t] ** 2 / h
    return total.mean()


_money = T(4096, low=50.0, high=150.0)
_both("black-scholes", _black_scholes, _money, _money, T(4096, low=0.1, high=0.6))
infer("shop/drawdown", _drawdown, T(32, 500, low=1.0, high=2.0))
_both("bands", _bands, T(8, 500, low=1.0, high=2.0))
_both("relative-strength", _strength, T(8, 500, low=1.0, high=2.0))
_both("garch", _garch, T(256, 12))
_both("portfolio", lambda w, r: (r @ w.softmax(0)).std() * 16, T(40), T(250, 40))
_both("sharpe", lambda r: r.mean(0) / (r.std(0) + 1e-6), T(250, 40))
infer("shop/returns-f16", lambda p: (p[1:] / p[:-1]).log(), T(251, 40, dtype=f16, low=1.0, high=2.0))
infer(
    "shop/order-book",
    lambda b, a: (b.cumsum(-1) - a.cumsum(-1)) / (b.sum(-1, True) + a.sum(-1, True)),
    T(100, 20),
    T(100, 20),
)

# Sound


def _mu_law(x):
    y = x.sign() * torch.log1p(255 * x.abs()) / math.log(256.0)
    return ((y + 1) / 2 * 255 + 0.5).to(torch.int64)


infer("shop/mu-law", _mu_law, T(16000, low=-1.0, high=1.0))
infer(
    "shop/mu-law-back",
    lambda q: (2 * (q / 255.0) - 1).sign() * ((1 + 255.0) ** (2 * (q / 255.0) - 1).abs() - 1) / 255,
    T(16000, dtype=i64, low=0, high=255),
)
_both("preemphasis", lambda x: x - 0.97 * F.pad(x, (1, 0))[:, :-1], T(4, 16000))
infer("shop/zero-crossings", lambda x: (x.unfold(-1, 400, 160).sign().diff(dim=-1) != 0).float().mean(-1), T(4, 16000))
_both("rms-frames", lambda x: x.unfold(-1, 400, 160).pow(2).mean(-1).sqrt(), T(4, 16000))
_both(
    "log-mel", lambda p, m: (p @ m).clamp_min(1e-5).log(), T(100, 201, low=0.0, high=1.0), T(201, 80, low=0.0, high=1.0)
)
_both(
    "db",
    lambda p: 10 * torch.log10(p.clamp_min(1e-10)) - p.amax((-2, -1), keepdim=True).log10() * 10,
    T(4, 80, 100, low=0.0, high=1.0),
)
infer("shop/pcm", lambda x: (x.clamp(-1, 1) * 32767).round().to(torch.int16), T(2, 16000))
infer("shop/pcm-back", lambda x: x.to(torch.float32).mul(1 / 32768).mean(0), T(2, 16000, dtype=torch.int16))
_both("fade", lambda x: x * torch.linspace(0, 1, x.shape[-1]).sqrt(), T(2, 8000))
_both("snake", lambda x, a: x + (a * x).sin() ** 2 / (a + 1e-9), T(4, 32, 500), T(32, 1, low=0.5, high=2.0))
_both("comb", lambda x: x + 0.5 * x.roll(37, -1) - 0.25 * x.roll(-11, -1), T(4, 8000))
_both(
    "si-snr",
    lambda a, b: (
        -20 * ((((a * b).sum(-1, True) / (b * b).sum(-1, True)) * b).norm(dim=-1) / (a - b).norm(dim=-1)).log10().mean()
    ),
    T(4, 8000),
    T(4, 8000),
)

# Pictures


def _aces(x):
    return ((x * (2.51 * x + 0.03)) / (x * (2.43 * x + 0.59) + 0.14)).clamp(0, 1)


def _srgb(x):
    return torch.where(x <= 0.0031308, 12.92 * x, 1.055 * x.clamp_min(1e-4) ** (1 / 2.4) - 0.055)


def _composited(s, c):
    alpha = 1 - (-s).exp()
    t = torch.cumprod(torch.cat((torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10), -1), -1)[:, :-1]
    return ((alpha * t)[..., None] * c).sum(-2)


def _sphere(o, d):
    b = (o * d).sum(-1)
    h = b * b - (o * o).sum(-1) + 1
    return torch.where(h > 0, -b - h.clamp_min(0).sqrt(), torch.inf)


def _phong(n, v):
    n = F.normalize(n, dim=-1)
    light = (n * torch.tensor([0.3, 0.6, 0.74])).sum(-1, keepdim=True)
    r = 2 * light * n - torch.tensor([0.3, 0.6, 0.74])
    return 0.1 + 0.7 * light.clamp_min(0) + 0.5 * (r * v).sum(-1, keepdim=True).clamp_min(0) ** 16


def _encoded(x):
    f = 2.0 ** torch.arange(6)
    a = (x[..., None] * f).flatten(-2)
    return torch.cat((x, a.sin(), a.cos()), -1)


def _sdf(p):
    box = p.abs() - torch.tensor([0.5, 0.3, 0.2])
    inside = box.amax(-1).clamp_max(0) + box.clamp_min(0).norm(dim=-1)
    return torch.minimum(inside, p.norm(dim=-1) - 0.4)


def _grey_world(x):
    m = x.mean((2, 3), keepdim=True)
    return (x * (m.mean(1, keepdim=True) / (m + 1e-6))).clamp(0, 1)


_picture = T(2, 3, 96, 96, low=0.0, high=1.0)
_both("aces", _aces, _picture)
_both("srgb", _srgb, _picture)
_both("composited", _composited, T(256, 48, low=0.0, high=1.0), T(256, 48, 3))
infer("shop/ray-sphere", _sphere, T(4096, 3), T(4096, 3))
_both("phong", _phong, T(2000, 3), T(2000, 3))
_both("encoded", _encoded, T(1500, 3))
_both("sdf", _sdf, T(3000, 3))
_both("grey-world", _grey_world, _picture)
infer("shop/grey-world-cl", _grey_world, T(2, 3, 96, 96, low=0.0, high=1.0, layout="channels_last"))
infer(
    "shop/yuv",
    lambda x: torch.einsum(
        "bchw,dc->bdhw", x, torch.tensor([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.1]])
    ),
    _picture,
)
infer("shop/dither", lambda x: ((x * 255).to(torch.int32) & 7 > 3).to(u8) * 255, _picture)
infer(
    "shop/blend-u8",
    lambda a, b: ((a.to(torch.int32) * 3 + b.to(torch.int32) * 5) >> 3).to(u8),
    T(3, 96, 96, dtype=u8),
    T(3, 96, 96, dtype=u8),
)
infer("shop/premultiplied", lambda x: torch.cat((x[:, :3] * x[:, 3:], x[:, 3:]), 1), T(2, 4, 96, 96, low=0.0, high=1.0))
infer("shop/thumbnail", lambda x: F.avg_pool2d(x.float() / 255, 4).mul(255).round().to(u8), T(1, 3, 128, 128, dtype=u8))
_both("sharpened", lambda x: x + 0.7 * (x - F.avg_pool2d(x, 3, 1, 1)), _picture)
_both("total-variation", lambda x: x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean(), _picture)
_both("gram", lambda x: torch.einsum("bchw,bdhw->bcd", x, x) / (x.shape[-1] * x.shape[-2]), T(2, 32, 24, 24))
_both(
    "vignette",
    lambda x: x * (1 - (torch.linspace(-1, 1, 96)[:, None] ** 2 + torch.linspace(-1, 1, 96) ** 2) / 2),
    _picture,
)
_both(
    "bayer",
    lambda x: torch.stack((x[:, ::2, ::2], (x[:, 1::2, ::2] + x[:, ::2, 1::2]) / 2, x[:, 1::2, 1::2]), 1),
    T(2, 96, 96),
)

# Physics


def _lorenz(s):
    for _ in range(4):
        x, y, z = s.unbind(-1)
        s = s + 0.01 * torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z), -1)
    return s


def _bodies(p, m):
    d = p[None] - p[:, None]
    r = (d * d).sum(-1) + 1e-3
    return (m[None, :, None] * d / (r * r.sqrt())[..., None]).sum(1)


def _lennard_jones(p):
    d = (p[:, None] - p[None]).pow(2).sum(-1) + 4 * torch.eye(p.shape[0])
    s = (1 / d) ** 3
    return 2 * (s * s - s).sum()


def _laplacian(u):
    return u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u


def _gray_scott(u, v):
    w = u * v * v
    return u + 0.16 * _laplacian(u) - w + 0.035 * (1 - u), v + 0.08 * _laplacian(v) + w - 0.1 * v


_both("lorenz", _lorenz, T(1000, 3))
_both("bodies", _bodies, T(100, 3), T(100, low=0.1, high=1.0))
_both("lennard-jones", _lennard_jones, T(80, 3))
_both("gray-scott", _gray_scott, T(96, 96, low=0.0, high=1.0), T(96, 96, low=0.0, high=1.0))
_both("wave", lambda u, v: 2 * u - v + 0.1 * _laplacian(u), T(128, 128), T(128, 128))
_both(
    "heat-slices",
    lambda u: u[1:-1, 1:-1] + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]),
    T(130, 130),
)
infer(
    "shop/ising",
    lambda s: torch.exp(-2 * s * (s.roll(1, 0) + s.roll(-1, 0) + s.roll(1, 1) + s.roll(-1, 1)) * 0.44),
    T(96, 96),
)
infer(
    "shop/life",
    lambda x: ((n := F.conv2d(x, torch.ones(1, 1, 3, 3), padding=1) - x) == 3) | ((n == 2) & (x > 0)),
    T(1, 1, 96, 96),
)
_both("upwind", lambda u: u - 0.4 * torch.where(u > 0, u - u.roll(1, -1), u.roll(-1, -1) - u), T(16, 1000))
_both(
    "harmonics",
    lambda p: torch.stack(
        (p[:, 0] * p[:, 1], p[:, 1] * p[:, 2], 3 * p[:, 2] ** 2 - 1, p[:, 0] * p[:, 2], p[:, 0] ** 2 - p[:, 1] ** 2), -1
    ),
    T(2000, 3),
)
_both("boltzmann-bgk", lambda f: f + 0.6 * (f.sum(0) * torch.full((9, 1, 1), 1 / 9.0) - f), T(9, 48, 48))
_both(
    "harmonic-oscillators-f64",
    lambda q, p: (q + 0.1 * p, p - 0.1 * q.sin()),
    T(2000, dtype=torch.float64),
    T(2000, dtype=torch.float64),
)

# Statistics

_table = T(500, 12)
_both("standardized", lambda x: (x - x.mean(0)) / x.std(0), _table)
_both("standardized-t", lambda x: (x - x.mean(0)) / x.std(0), T(500, 12, layout="transposed"))
_both("correlation", lambda x: torch.corrcoef(x.t()), _table)
_both("kernel-density", lambda x, y: (-0.5 * (x[:, None] - y) ** 2).exp().mean(-1), T(200), T(300))
_both("robust-scale", lambda x: (x - x.median(0).values) / (x.abs().mean(0) + 1e-6), _table)
infer("shop/ranks", lambda x: x.argsort(0).argsort(0).float() / x.shape[0], T(200, 12))
infer("shop/ecdf", lambda x, y: torch.searchsorted(x.sort().values, y, right=True) / x.shape[0], T(500), T(500))
infer("shop/quantiles", lambda x: x.quantile(torch.tensor([0.1, 0.5, 0.9]), dim=0), _table)
infer("shop/bootstrap", lambda x, i: x[i].mean(1).std(0), T(200), T(100, 200, dtype=i64, low=0, high=199))
infer("shop/mode-counts", lambda x: F.one_hot(x, 10).sum(0).argmax(-1), T(300, 6, dtype=i64, low=0, high=9))
_both("skew", lambda x: ((x - x.mean(0)) ** 3).mean(0) / x.var(0, correction=0) ** 1.5, _table)
_both(
    "mahalanobis",
    lambda x, a: ((x - x.mean(0)) @ a * (x - x.mean(0))).sum(-1).sqrt(),
    T(500, 12),
    T(12, 12, low=0.1, high=0.2),
)
_both(
    "welch",
    lambda a, b: (a.mean(0) - b.mean(0)) / (a.var(0) / a.shape[0] + b.var(0) / b.shape[0]).sqrt(),
    _table,
    T(300, 12),
)
_both("poisson-loss", lambda a, b: F.poisson_nll_loss(a, b), T(300, 12), T(300, 12, low=0.0, high=5.0))
_both("pinball", lambda a, b: torch.maximum(0.9 * (b[:, None] - a), -0.1 * (b[:, None] - a)).mean(), T(300, 9), T(300))
_both("gaussian-nll", lambda m, s, y: F.gaussian_nll_loss(m, y, s), T(1000), T(1000, low=0.1, high=1.0), T(1000))
_both("standardized-dynamic", lambda x: (x - x.mean(0)) / x.std(0), _table, dynamic=True)
