"""From more fields: signals, finance, curves, rays, tables, packing, tagging, bits."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, train, u8

f64 = torch.float64
BITS = torch.bool


def draws(*shape: int) -> T:
    return T(*shape, low=0, high=1)


def ids(*shape: int, most: int, dtype: torch.dtype = i64) -> T:
    return T(*shape, dtype=dtype, low=0, high=most)


# Signals


def autocorrelated(x: Any) -> Any:
    return torch.stack([(x[..., lag:] * x[..., : x.shape[-1] - lag]).mean(-1) for lag in range(1, 9)], -1)


def window_sinc(x: Any, taps: Any) -> Any:
    n = torch.arange(-16, 17, device=x.device, dtype=x.dtype)
    kernel = torch.sinc(n * taps) * torch.hann_window(33, periodic=False, device=x.device)
    return F.conv1d(x[:, None], (kernel / kernel.sum())[None, None], padding=16)[:, 0]


def overlap_add(frames: Any) -> Any:
    n = torch.arange(256, device=frames.device)
    windowed = frames * (0.5 - 0.5 * torch.cos(n * (2 * torch.pi / 256)))
    return F.fold(windowed.transpose(1, 2), (1, 128 * 33), (1, 256), stride=(1, 128))


def centroid(power: Any) -> Any:
    bins = torch.arange(power.shape[-1], device=power.device, dtype=power.dtype)
    total = power.sum(-1, keepdim=True).clamp_min(1e-8)
    center = (power * bins).sum(-1, keepdim=True) / total
    return center, ((bins - center).square() * power).sum(-1, keepdim=True).div(total).sqrt()


infer("signal/lags", autocorrelated, T(16, 1024))
infer("signal/window-sinc", window_sinc, T(8, 2048), torch.tensor(0.25))
infer("signal/overlap-add", overlap_add, T(4, 32, 256))
infer("signal/centroid", centroid, draws(64, 257))
infer("signal/median-of-5", lambda x: F.pad(x, (2, 2)).unfold(-1, 5, 1).median(-1)[0], T(8, 1024))
infer(
    "signal/phase-difference", lambda p: torch.remainder(p.diff(dim=-1) + torch.pi, 2 * torch.pi) - torch.pi, T(32, 513)
)
infer("signal/rfft-filter", lambda x, h: torch.fft.irfft(torch.fft.rfft(x) * h, n=1024), T(16, 1024), T(513))
infer("signal/channels-mean-f16", lambda x: (x - x.mean(-1, keepdim=True)) * 0.5, T(16, 8, 512, dtype=f16))
infer(
    "signal/analytic",
    lambda r, i: torch.view_as_real(torch.complex(r, i) * torch.complex(i, r).conj()).square().sum(-1).sqrt(),
    T(64, 512),
    T(64, 512),
)
infer("signal/polar-to-complex", lambda m, p: torch.view_as_real(torch.polar(m, p)), draws(64, 257), T(64, 257))

# Finance


def black_scholes(s: Any, k: Any, t: Any, v: Any) -> Any:
    root = v * t.sqrt()
    d1 = (torch.log(s / k) + (0.03 + v * v / 2) * t) / root
    normal = lambda d: 0.5 * (1 + torch.erf(d * 0.7071067811865476))  # noqa: E731
    return s * normal(d1) - k * torch.exp(-0.03 * t) * normal(d1 - root)


def strength(prices: Any) -> Any:
    moves = prices.diff(dim=-1)
    up, down = moves.clamp_min(0).unfold(-1, 14, 1).mean(-1), (-moves).clamp_min(0).unfold(-1, 14, 1).mean(-1)
    return 100 - 100 / (1 + up / (down + 1e-8))


infer("finance/black-scholes", black_scholes, *[T(20000, low=0.5, high=1.5)] * 4)
train("finance/black-scholes-training", black_scholes, *[T(4096, low=0.5, high=1.5)] * 4)
infer("finance/black-scholes-f64", black_scholes, *[T(4096, dtype=f64, low=0.5, high=1.5)] * 4)
infer("finance/strength", strength, T(32, 256, low=1, high=2))
infer("finance/drawdown", lambda p: (1 - p / p.cummax(-1)[0]).amax(-1), T(64, 512, low=1, high=2))
infer(
    "finance/paths",
    lambda z: 100 * torch.exp(torch.cumsum(z * 0.01 + 0.0001, 1)).sub(1.0).clamp_min(0)[:, -1].mean(),
    T(2048, 64),
)
infer("finance/log-returns", lambda p: p.log().diff(dim=0).std(0) * 252**0.5, T(252, 128, low=1, high=2))

# Curves, geometry and rays


def catmull_rom(points: Any, t: Any) -> Any:
    i = t.floor().long().clamp(0, points.shape[0] - 4)
    u = (t - i)[:, None]
    a, b, c, d = points[i], points[i + 1], points[i + 2], points[i + 3]
    return 0.5 * (2 * b + (c - a) * u + (2 * a - 5 * b + 4 * c - d) * u**2 + (3 * b - a - 3 * c + d) * u**3)


def trilinear(grid: Any, p: Any) -> Any:
    low = p.floor().long().clamp(0, grid.shape[0] - 2)
    f = p - low
    out = torch.zeros_like(p[:, 0])
    for dx in (0, 1):
        for dy in (0, 1):
            for dz in (0, 1):
                w = (f[:, 0] if dx else 1 - f[:, 0]) * (f[:, 1] if dy else 1 - f[:, 1])
                w = w * (f[:, 2] if dz else 1 - f[:, 2])
                out = out + w * grid[low[:, 0] + dx, low[:, 1] + dy, low[:, 2] + dz]
    return out


def slab(origin: Any, direction: Any, low: Any, high: Any) -> Any:
    a, b = (low - origin[:, None]) / direction[:, None], (high - origin[:, None]) / direction[:, None]
    near, far = torch.minimum(a, b).amax(-1), torch.maximum(a, b).amin(-1)
    return torch.where((near <= far) & (far > 0), near, torch.inf).amin(-1)


def harmonics(d: Any) -> Any:
    x, y, z = d.unbind(-1)
    parts = [x * 0 + 0.2821, 0.4886 * y, 0.4886 * z, 0.4886 * x, 1.0925 * x * y, 1.0925 * y * z]
    return torch.stack([*parts, 0.3154 * (3 * z * z - 1), 1.0925 * x * z, 0.5463 * (x * x - y * y)], -1)


def rodrigues(r: Any) -> Any:
    angle = r.norm(dim=-1, keepdim=True)
    x, y, z = (r / (angle + 1e-8)).unbind(-1)
    o = torch.zeros_like(x)
    k = torch.stack((o, -z, y, z, o, -x, -y, x, o), -1).view(-1, 3, 3)
    s, c = angle[..., None].sin(), angle[..., None].cos()
    return torch.eye(3) + s * k + (1 - c) * (k @ k)


def morton(p: Any) -> Any:
    code = torch.zeros_like(p[:, 0])
    for bit in range(10):
        for axis in range(3):
            code |= ((p[:, axis] >> bit) & 1) << (3 * bit + axis)
    return code


infer("curve/catmull-rom", catmull_rom, T(64, 3), T(2048, low=0, high=60))
infer("curve/trilinear", trilinear, T(32, 32, 32), T(4096, 3, low=0, high=31))
infer(
    "curve/bezier",
    lambda p, t: torch.einsum(
        "tk,bkd->btd", torch.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], -1), p
    ),
    T(64, 4, 2),
    draws(100),
)
infer("ray/slab", slab, T(1024, 3), T(1024, 3), T(32, 3, low=-2, high=-1), T(32, 3, low=1, high=2))
infer("ray/harmonics", harmonics, F.normalize(torch.randn(4096, 3), dim=-1))
infer("ray/rodrigues", rodrigues, T(2048, 3))
infer(
    "ray/tone-map",
    lambda x: (x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14)).clamp(0, 1).pow(1 / 2.2).mul(255).round().to(u8),
    draws(128, 128, 3),
)
infer(
    "ray/normals",
    lambda d: F.normalize(torch.stack((-d.diff(dim=1)[:-1], -d.diff(dim=0)[:, :-1], torch.ones(127, 127)), -1), dim=-1),
    T(128, 128),
)
infer(
    "ray/alpha-over",
    lambda a, b: torch.cat(
        (
            (a[..., :3] * a[..., 3:] + b[..., :3] * b[..., 3:] * (1 - a[..., 3:])),
            a[..., 3:] + b[..., 3:] * (1 - a[..., 3:]),
        ),
        -1,
    ),
    draws(128, 128, 4),
    draws(128, 128, 4),
)
infer(
    "ray/faces",
    lambda v, f: torch.linalg.cross(v[f[:, 1]] - v[f[:, 0]], v[f[:, 2]] - v[f[:, 0]]).norm(dim=-1) * 0.5,
    T(1024, 3),
    ids(2048, 3, most=1023),
)
infer("bits/morton", morton, ids(4096, 3, most=1023))

# Tables


def target_mean(c: Any, y: Any) -> Any:
    total = torch.zeros(64).index_add(0, c, y)
    count = torch.zeros(64).index_add(0, c, torch.ones_like(y))
    return ((total + 10 * y.mean()) / (count + 10))[c]


infer("table/target-mean", target_mean, ids(4096, most=63), T(4096))
infer(
    "table/buckets-embedded",
    lambda x, e, w: w[torch.bucketize(x, e)].sum(1),
    T(512, 16),
    torch.linspace(-2, 2, 31),
    T(32, 16),
)
infer("table/missing", lambda x: torch.cat((torch.where(x < -1, x.new_zeros(()), x), (x < -1).float()), 1), T(1024, 32))
infer(
    "table/hashed-crosses",
    lambda a, b: ((a * 2654435761) ^ (b * 40503)) % 10007,
    ids(4096, most=9999),
    ids(4096, most=9999),
)
infer(
    "table/factorization-machine",
    lambda i, w, v: w[i].sum(1) + 0.5 * (v[i].sum(1).square() - v[i].square().sum(1)).sum(-1),
    ids(512, 12, most=999),
    T(1000),
    T(1000, 16),
)
infer(
    "table/cyclic",
    lambda h: torch.stack((torch.sin(h * 0.2618), torch.cos(h * 0.2618)), -1),
    ids(8192, most=23, dtype=i32),
)
infer(
    "table/quantile-transform",
    lambda x, q: torch.searchsorted(q, x.t().contiguous()).float() / 32 - 0.5,
    T(512, 8),
    torch.randn(8, 32).sort(-1)[0],
)
infer(
    "table/periodic",
    lambda x, c: torch.cat(((v := 2 * torch.pi * c * x[..., None]).cos(), v.sin()), -1),
    T(256, 16),
    T(16, 24),
)

# Packing, tagging, edits


def crf(emissions: Any, transitions: Any, mask: Any) -> Any:
    alpha = emissions[:, 0]
    for t in range(1, 12):
        new = torch.logsumexp(alpha[:, :, None] + transitions + emissions[:, t, None, :], 1)
        alpha = torch.where(mask[:, t, None], new, alpha)
    return torch.logsumexp(alpha, 1)


def edit(a: Any, b: Any) -> Any:
    row = torch.arange(9, device=a.device).expand(a.shape[0], 9)
    for i in range(8):
        cells = [row[:, 0] + 1]
        for j in range(8):
            cost = (a[:, i] != b[:, j]).long()
            cells.append(torch.minimum(torch.minimum(cells[-1], row[:, j + 1]) + 1, row[:, j] + cost))
        row = torch.stack(cells, 1)
    return row[:, -1]


def warped(cost: Any) -> Any:
    rows = [cost[:, 0].cumsum(-1)]
    for i in range(1, 6):
        cells = [rows[-1][:, 0] + cost[:, i, 0]]
        for j in range(1, 6):
            least = torch.minimum(torch.minimum(rows[-1][:, j], rows[-1][:, j - 1]), cells[-1])
            cells.append(cost[:, i, j] + least)
        rows.append(torch.stack(cells, -1))
    return rows[-1][:, -1]


def packed(lengths: Any) -> Any:
    ends = lengths.cumsum(0)
    at = torch.arange(1024, device=lengths.device)
    segment = torch.searchsorted(ends, at, right=True).clamp_max(lengths.shape[0] - 1)
    return segment, at - (ends - lengths)[segment], segment[:, None] == segment[None]


infer("tag/crf", crf, T(32, 12, 16), T(16, 16), T(32, 12, dtype=BITS))
train("tag/crf-training", lambda e, t: crf(e, t, e[..., 0] > -1), T(32, 12, 16), T(16, 16))
infer("tag/edit", edit, ids(256, 8, most=3), ids(256, 8, most=3))
infer("tag/warped", warped, draws(256, 6, 6))
infer("pack/sequences", packed, ids(32, most=60))
infer("pack/unpad", lambda x, i: torch.zeros(512, 64).index_copy(0, i, x), T(256, 64), torch.randperm(512)[:256])
infer("pack/last-positions", lambda m: torch.where(m, torch.arange(256), -1).amax(1), T(64, 256, dtype=BITS))
infer(
    "pack/blocks",
    lambda s: (s[:, None] == s[None]) & (torch.arange(256)[:, None] >= torch.arange(256)),
    ids(256, most=7),
)
infer("pack/bio", lambda t: (t % 2 == 1) & (F.pad(t, (1, 0), value=0)[:, :-1] != t), ids(64, 128, most=8))
infer(
    "beam/step",
    lambda lp, s: (s[..., None] + lp).view(8, -1).topk(4),
    F.log_softmax(torch.randn(8, 4, 1000), -1),
    T(8, 4),
)
infer(
    "beam/blocked",
    lambda lp, seen: lp.masked_fill(F.one_hot(seen, 1000).amax(1).bool(), -torch.inf),
    T(32, 1000),
    ids(32, 16, most=999),
)
infer(
    "beam/rerank", lambda lp, n: (lp.sum(-1) / ((5 + n) / 6) ** 0.6).argmax(1), T(32, 8, 20), T(32, 8, low=1, high=20)
)

# Returns of agents


def traced(reward: Any, done: Any, value: Any, rho: Any) -> Any:
    acc, out = torch.zeros_like(value[0]), []
    for t in range(15, -1, -1):
        c = rho[t].clamp_max(1.0)
        delta = c * (reward[t] + 0.99 * value[t + 1] * ~done[t] - value[t])
        acc = delta + 0.99 * ~done[t] * c * acc
        out.append(acc + value[t])
    return torch.stack(out[::-1])


infer("agent/v-trace", traced, T(16, 64), T(16, 64, dtype=BITS), T(17, 64), draws(16, 64))
infer(
    "agent/double-q",
    lambda q, n, t, a, r: F.smooth_l1_loss(
        q.gather(1, a[:, None])[:, 0], r + 0.99 * t.gather(1, n.argmax(1, keepdim=True))[:, 0]
    ),
    T(256, 18),
    T(256, 18),
    T(256, 18),
    ids(256, most=17),
    T(256),
)
train(
    "agent/squashed-gaussian",
    lambda m, s, e: (
        (a := m + s.exp() * e).tanh(),
        (-0.5 * e.square() - s - 0.919 - 2 * (0.693 - a - F.softplus(-2 * a))).sum(-1),
    ),
    T(256, 8),
    T(256, 8),
    T(256, 8),
)
infer(
    "agent/categorical-projection",
    lambda p, r, z: (
        (1 - ((r[:, None] + 0.99 * z).clamp(-10, 10)[:, None, :] - z[None, :, None]).abs() / 0.4).clamp(0, 1)
        * p[:, None, :]
    ).sum(-1),
    F.softmax(torch.randn(32, 51), -1),
    T(32),
    torch.linspace(-10, 10, 51),
)

# Quantized inference


def int8_product(x: Any, w: Any, s: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = (x / scale).round().clamp(-128, 127).to(i8)
    return torch._int_mm(q, w) * scale * s


infer("quantized/activations-int8", int8_product, T(32, 256), T(256, 128, dtype=i8), T(128, low=0, high=0.1))
infer(
    "quantized/add-requantize",
    lambda a, b: ((a.float() - 3) * 0.1 + (b.float() + 5) * 0.2).div(0.15).round().add(2).clamp(-128, 127).to(i8),
    T(64, 32, 16, 16, dtype=i8),
    T(64, 32, 16, 16, dtype=i8),
)
infer("quantized/codebook", lambda c, i: c[i.long()].flatten(1), T(16, 4), T(256, 64, dtype=u8, low=0, high=15))
infer(
    "quantized/nf4",
    lambda w, t, s: (torch.stack((t[(w >> 4).long()], t[(w & 15).long()]), -1).view(128, -1) * s).view(128, 128),
    T(128, 64, dtype=u8),
    T(16),
    T(128, 1),
)
infer(
    "quantized/pack-int4",
    lambda x: (
        (q := (x * 4).round().clamp(-8, 7).to(i32) + 8)[:, ::2].bitwise_left_shift(4).bitwise_or(q[:, 1::2]).to(u8)
    ),
    T(256, 256),
)
infer("quantized/avg-u8", lambda x: F.avg_pool2d(x.float(), 2).round().to(u8), T(4, 8, 64, 64, dtype=u8))
infer(
    "quantized/channels-last-bf16",
    lambda x, s: (x * s[:, None, None]).relu().to(bf16),
    T(4, 32, 28, 28, layout="channels_last"),
    T(32),
)

# Samplers of diffusion, dithering, masks


def multistep(x: Any, e: Any, prev: Any, sigma: Any) -> Any:
    h = -sigma[1].log() + sigma[0].log()
    d = (1 + 0.5 / h) * (x - sigma[0] * e) - 0.5 / h * prev
    return sigma[1] / sigma[0] * x - torch.expm1(-h) * d


infer("sampler/multistep", multistep, T(2, 4, 64, 64), T(2, 4, 64, 64), T(2, 4, 64, 64), torch.tensor([0.9, 0.7]))
infer(
    "sampler/dynamic-threshold",
    lambda x: x.clamp(-(s := x.abs().flatten(1).amax(1).clamp_min(1)[:, None, None, None]), s) / s,
    T(4, 3, 64, 64, dtype=bf16),
)
infer(
    "sampler/guided-rescaled",
    lambda c, u: (
        (g := u + 7.5 * (c - u)) * (0.7 * c.std((1, 2, 3), keepdim=True) / g.std((1, 2, 3), keepdim=True) + 0.3)
    ),
    T(2, 4, 64, 64),
    T(2, 4, 64, 64),
)
infer(
    "picture-of/dither",
    lambda x: (x + torch.tensor([[0.0, 0.5], [0.75, 0.25]]).repeat(64, 64) > 0.9).to(u8) * 255,
    draws(128, 128),
)
infer(
    "picture-of/rgb-to-lab",
    lambda x: torch.where(
        (
            y := torch.where(x > 0.04045, ((x + 0.055) / 1.055) ** 2.4, x / 12.92)
            @ torch.tensor([[0.41, 0.21, 0.02], [0.36, 0.72, 0.12], [0.18, 0.07, 0.95]])
        )
        > 0.008856,
        y ** (1 / 3),
        7.787 * y + 0.1379,
    ),
    draws(128, 128, 3),
)
infer("picture-of/dilate-u8", lambda x: F.max_pool2d(x.float(), 3, 1, 1).to(u8), T(2, 1, 128, 128, dtype=u8))
infer("picture-of/integral", lambda x: x.cumsum(0).cumsum(1), draws(128, 128))
infer(
    "picture-of/crop-flip-normalize",
    lambda x: (x[:, 16:-16, 16:-16].flip(2).permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.225,
    T(4, 128, 128, 3, dtype=u8),
)
infer(
    "picture-of/bilateral",
    lambda x: (
        (
            (
                w := torch.exp(
                    -((n := F.pad(x, (2, 2, 2, 2)).unfold(0, 5, 1).unfold(1, 5, 1)) - x[:, :, None, None]).square() * 8
                )
            )
            * n
        ).sum((-1, -2))
        / w.sum((-1, -2))
    ),
    draws(96, 96),
)

# Statistics and strings as numbers


def kolmogorov(x: Any, y: Any) -> Any:
    every = torch.cat((x, y), -1).sort(-1)[0]
    below = lambda z: torch.searchsorted(z.sort(-1)[0], every, right=True) / z.shape[-1]  # noqa: E731
    return (below(x) - below(y)).abs().amax(-1)


def fnv(bytes_: Any) -> Any:
    h = torch.full_like(bytes_[:, 0], 2166136261, dtype=i64)
    for k in range(8):
        h = ((h ^ bytes_[:, k].long()) * 16777619) & 0xFFFFFFFF
    return h


infer("statistic/kolmogorov", kolmogorov, T(16, 128), T(16, 128))
infer(
    "statistic/weighted-median-free",
    lambda x, w: (x * w).sum(-1) / w.sum(-1),
    T(256, 128, dtype=bf16),
    T(256, 128, dtype=bf16, low=0, high=1),
)
infer("statistic/bootstrap", lambda x, i: x[i].mean(1).std(), T(512), ids(200, 512, most=511))
infer(
    "statistic/mahalanobis",
    lambda x, m, p: ((d := x - m) @ p * d).sum(-1).clamp_min(0).sqrt(),
    T(1024, 16),
    T(16),
    T(16, 16),
)
infer(
    "statistic/gaussian-kde", lambda x, g: torch.exp(-0.5 * ((g[:, None] - x) / 0.3).square()).mean(1), T(512), T(128)
)
infer("statistic/transposed-zscore", lambda x: (x - x.mean(0)) / x.std(0), T(128, 512, layout="transposed"))
infer("statistic/mad", lambda x: (x - x.median(-1, keepdim=True)[0]).abs().median(-1)[0], T(64, 129))
infer(
    "statistic/ranks-correlation",
    lambda x, y: ((x.argsort(-1).argsort(-1) - y.argsort(-1).argsort(-1)).float() ** 2).mean(-1),
    T(32, 64),
    T(32, 64),
)
infer("text/fnv", fnv, T(1024, 8, dtype=u8))
infer("text/lower-bytes", lambda b: torch.where((b >= 65) & (b <= 90), b + 32, b), T(64, 512, dtype=u8))
infer(
    "text/words", lambda b: ((b == 32) & (F.pad(b, (1, 0))[:, :-1] != 32)).sum(1), T(64, 512, dtype=u8, low=30, high=40)
)
infer(
    "text/parse-digits",
    lambda b: ((b.long() - 48) * (10 ** torch.arange(7, -1, -1))).sum(1),
    T(512, 8, dtype=u8, low=48, high=57),
)
infer(
    "text/minhash",
    lambda t, a, b: ((t[:, None, :] * a[:, None] + b[:, None]) % 2147483647).amin(-1),
    ids(64, 32, most=9999),
    ids(16, most=9999),
    ids(16, most=9999),
)
infer(
    "bits/bloom",
    lambda x, t: t[(x[:, None] * torch.tensor([31, 37, 41])) % 4096].all(1),
    ids(2048, most=99999),
    T(4096, dtype=BITS),
)
infer("bits/gray", lambda x: (x ^ (x >> 1)).bitwise_and(0xFF).to(u8), ids(256, 256, most=9999, dtype=i32))
infer(
    "bits/reverse-u8",
    lambda x: (
        x := ((x & 0x55) << 1) | ((x >> 1) & 0x55),
        x := ((x & 0x33) << 2) | ((x >> 2) & 0x33),
        (x << 4) | (x >> 4),
    )[2],
    T(256, 256, dtype=u8),
)
infer(
    "bits/unpack-rows",
    lambda x: ((x[..., None] >> torch.arange(8, dtype=u8)) & 1).bool().flatten(1),
    T(64, 64, dtype=u8),
)
infer("bits/f32-exponent", lambda x: ((x.view(i32) >> 23) & 255) - 127, T(256, 256))
