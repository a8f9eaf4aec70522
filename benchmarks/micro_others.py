"""The programs of ``micro.py`` as other people write them: scenes, motion, prices, sound, graphs, decoding, updates."""

from __future__ import annotations

import math
from typing import Any

import torch
from micro_case import T, bf16, boxes, f32, i8, i32, i64, infer, train, u8
from torch.nn import functional as F

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

# Graphs, texts, decoding


def page_rank(rank: Any, s: Any, d: Any, degree: Any) -> Any:
    for _ in range(3):
        flow = rank[s] / degree[s]
        rank = 0.15 / 1024 + 0.85 * torch.zeros_like(rank).scatter_add(0, d, flow)
    return rank


def propagated(label: Any, s: Any, d: Any) -> Any:
    for _ in range(3):
        label = label.scatter_reduce(0, d, label[s], "amin")
    return label


def edit_row(previous: Any, match: Any) -> Any:
    cost = torch.minimum(previous[:, 1:] + 1, previous[:, :-1] + (~match).float())
    at = torch.arange(1, cost.shape[1] + 1, dtype=f32)
    return torch.cummin(torch.minimum(cost, previous[:, :1] + 1 + at) - at, 1).values + at


def ctc_row(alpha: Any, probability: Any, skip: Any) -> Any:
    one = F.pad(alpha, (1, -1), value=-1e30)
    two = torch.where(skip, F.pad(alpha, (2, -2), value=-1e30), -1e30)
    return torch.logsumexp(torch.stack((alpha, one, two)), 0) + probability


def beams(score: Any, logits: Any, history: Any) -> Any:
    total = score[..., None] + F.log_softmax(logits, -1)
    best, at = total.flatten(1).topk(4, -1)
    beam, token = at // logits.shape[-1], at % logits.shape[-1]
    return best, torch.cat((history.gather(1, beam[..., None].expand(-1, -1, history.shape[-1])), token[..., None]), -1)


def iou(a: Any, b: Any) -> Any:
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = ((z[:, 2:] - z[:, :2]).prod(-1) for z in (a, b))
    return inner / (area_a[:, None] + area_b - inner)


def soft_nms(b: Any, score: Any) -> Any:
    order = score.argsort(descending=True)
    overlap = torch.triu(iou(b[order], b[order]), 1)
    return score[order] * torch.exp(-(overlap.amax(0) ** 2) / 0.5)


def penalized(logits: Any, tokens: Any) -> Any:
    seen = torch.gather(logits, 1, tokens)
    logits = logits.scatter(1, tokens, torch.where(seen < 0, seen * 1.2, seen / 1.2)) / 0.8
    probability = torch.softmax(logits, -1)
    return torch.where(probability < 0.05 * probability.amax(-1, keepdim=True), -math.inf, logits)


EDGES = T(4096, dtype=i64, low=0, high=1023)
infer("network/page-rank", page_rank, T(1024, low=0, high=1), EDGES, EDGES, T(1024, low=1, high=9))
infer("network/labels", propagated, T(1024, dtype=i64, low=0, high=1023), EDGES, EDGES)
infer(
    "network/clustering",
    lambda a: (lambda m: torch.diagonal(m @ m @ m) / (m.sum(-1) * (m.sum(-1) - 1)).clamp(min=1))((a > 0.8).float()),
    T(128, 128, low=0, high=1),
)
infer(
    "network/max-pool",
    lambda x, b: torch.full((32, 64), -math.inf).scatter_reduce(0, b[:, None].expand(-1, 64), x, "amax"),
    T(1024, 64),
    T(1024, dtype=i64, low=0, high=31),
)
train(
    "network/mean-training",
    lambda x, b: torch.zeros(32, 64).scatter_reduce(0, b[:, None].expand(-1, 64), x, "mean", include_self=False).sin(),
    T(1024, 64),
    T(1024, dtype=i64, low=0, high=31),
)
infer("network/laplacian", lambda a: torch.diag_embed(a.sum(-1)) - a, T(4, 96, 96))
infer("string/edit-row", edit_row, T(64, 129, low=0, high=50), T(64, 128, dtype=torch.bool))
infer("string/ctc-row", ctc_row, T(32, 128), T(32, 128), T(32, 128, dtype=torch.bool))
infer(
    "string/bigrams",
    lambda t: torch.zeros(4096).index_add_(0, (t[:, :-1] * 64 + t[:, 1:]).flatten(), torch.ones(32 * 127)),
    T(32, 128, dtype=i64, low=0, high=63),
)
infer("string/vowels", lambda b, table: table[b.long()].sum(-1), T(64, 512, dtype=u8), T(256, dtype=i64, low=0, high=1))
infer(
    "string/word-starts",
    lambda b: ((b[:, 1:] != 32) & (b[:, :-1] == 32)).cumsum(-1),
    T(64, 512, dtype=u8, low=30, high=40),
)
infer(
    "string/popcount",
    lambda x: (lambda v: (v + (v >> 4) & 0x0F0F0F0F) * 0x01010101 >> 24)(
        (lambda v: (v & 0x33333333) + (v >> 2 & 0x33333333))(x - (x >> 1 & 0x55555555))
    ),
    T(16384, dtype=i32, low=0, high=2**31 - 1),
)
infer(
    "string/morton",
    lambda x, y: (lambda s: s(x) | s(y) << 1)(
        lambda v: (lambda v: (v | v << 2) & 0x33333333)((v | v << 4) & 0x0F0F0F0F)
    ),
    T(8192, dtype=i64, low=0, high=255),
    T(8192, dtype=i64, low=0, high=255),
)
infer(
    "string/bag-of-words",
    lambda t, w: F.embedding_bag(t, w, mode="mean"),
    T(256, 32, dtype=i64, low=0, high=4095),
    T(4096, 64),
)
infer(
    "string/bag-padding",
    lambda t, w: F.embedding_bag(t, w, mode="sum", padding_idx=0),
    T(256, 32, dtype=i64, low=0, high=9),
    T(4096, 64),
)
train(
    "string/bag-training",
    lambda t, w: F.embedding_bag(t, w, mode="mean").tanh(),
    T(256, 16, dtype=i64, low=0, high=1023),
    T(1024, 64),
)
infer("search/beams", beams, T(8, 4), T(8, 4, 1000), T(8, 4, 12, dtype=i64, low=0, high=999))
infer("search/penalties", penalized, T(8, 4096), T(8, 32, dtype=i64, low=0, high=4095))
infer("search/iou", iou, boxes(256), boxes(256))
infer("search/soft-nms", soft_nms, boxes(256), T(256, low=0, high=1))
infer(
    "search/decode-boxes",
    lambda d, b: torch.cat(
        (b[:, :2] + d[:, :2] * (b[:, 2:] - b[:, :2]), (b[:, 2:] - b[:, :2]) * d[:, 2:].clamp(max=4).exp()), -1
    ),
    T(4096, 4),
    boxes(4096),
)
infer(
    "search/heatmap-peaks",
    lambda x: torch.where(F.max_pool2d(x, 3, 1, 1) == x, x, 0).flatten(1).topk(50).values,
    T(4, 2, 64, 64),
)

# Sequence models


def gqa(q: Any, k: Any, v: Any) -> Any:
    k, v = (z.repeat_interleave(4, 1) for z in (k, v))
    s = q @ k.transpose(-1, -2) / 8
    return s.softmax(-1) @ v


def windowed(q: Any, k: Any, v: Any) -> Any:
    n = q.shape[-2]
    i = torch.arange(n)
    mask = (i[:, None] >= i) & (i[:, None] - i < 32)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2, keepdim=True).transpose(-1, -2))


def mamba_step(state: Any, x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    dt = F.softplus(dt)
    state = state * torch.exp(dt[..., None] * -torch.exp(a)) + (dt * x)[..., None] * b[:, None]
    return (state * c[:, None]).sum(-1) + d * x, state


def selective_scan(x: Any, dt: Any, a: Any, b: Any) -> Any:
    h = torch.zeros(x.shape[0], x.shape[2], a.shape[1])
    out = []
    for t in range(8):
        h = torch.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        out.append(h.sum(-1))
    return torch.stack(out, 1)


def rwkv(k: Any, v: Any, r: Any, aa: Any, bb: Any, pp: Any, w: Any, u: Any) -> Any:
    q = torch.maximum(pp, u + k)
    e1, e2 = torch.exp(pp - q), torch.exp(u + k - q)
    y = torch.sigmoid(r) * (e1 * aa + e2 * v) / (e1 * bb + e2)
    q = torch.maximum(pp + w, k)
    e1, e2 = torch.exp(pp + w - q), torch.exp(k - q)
    return y, e1 * aa + e2 * v, e1 * bb + e2, q


def token_shift(x: Any, mu: Any, w: Any) -> Any:
    past = F.pad(x, (0, 0, 1, -1))
    return torch.relu((x * mu + past * (1 - mu)) @ w) ** 2


def retention(q: Any, k: Any, v: Any) -> Any:
    i = torch.arange(q.shape[-2])
    decay = torch.where(i[:, None] >= i, 0.97 ** (i[:, None] - i).float(), 0.0)
    return (q @ k.transpose(-1, -2) * decay) @ v


HEADS = T(2, 8, 64, 64)
infer("sequence/gqa", gqa, HEADS, T(2, 2, 64, 64), T(2, 2, 64, 64))
infer("sequence/window", windowed, HEADS, HEADS, HEADS)
infer("sequence/linear-attention", linear_attention, HEADS, HEADS, HEADS)
train(
    "sequence/linear-attention-training",
    linear_attention,
    T(2, 4, 64, 32),
    T(2, 4, 64, 32),
    T(2, 4, 64, 32),
    tolerance=1e-3,
)
infer("sequence/mamba-step", mamba_step, T(4, 256, 16), T(4, 256), T(4, 256), T(256, 16), T(4, 16), T(4, 16), T(256))
infer(
    "sequence/mamba-step-bf16",
    mamba_step,
    *(T(*s, dtype=bf16) for s in ((4, 256, 16), (4, 256), (4, 256), (256, 16), (4, 16), (4, 16), (256,))),
)
train(
    "sequence/scan-training",
    selective_scan,
    T(2, 8, 64),
    T(2, 8, 64, low=0, high=0.1),
    T(64, 8, low=-1, high=0),
    T(2, 8, 8),
)
infer("sequence/rwkv", rwkv, *(T(8, 512),) * 6, T(512, low=-1, high=0), T(512))
infer("sequence/token-shift", token_shift, T(4, 64, 128), T(128), T(128, 128))
infer("sequence/retention", retention, HEADS, HEADS, HEADS)
infer(
    "sequence/causal-conv",
    lambda x, w, b: F.silu(F.conv1d(F.pad(x, (3, 0)), w, b, groups=64)),
    T(4, 64, 128),
    T(64, 1, 4),
    T(64),
)
infer(
    "sequence/weight-norm",
    lambda x, v, g: F.linear(x, v * (g / v.norm(dim=1, keepdim=True))),
    T(32, 256),
    T(128, 256),
    T(128, 1),
)
train(
    "sequence/qk-norm-training",
    lambda q, k, g: (F.rms_norm(q, (32,), g) @ F.rms_norm(k, (32,), g).transpose(-1, -2)).softmax(-1),
    T(2, 4, 48, 32),
    T(2, 4, 48, 32),
    T(32),
)
infer(
    "sequence/deep-norm",
    lambda x, y, w, b: F.layer_norm(x * 1.8 + y, (256,), w, b),
    T(128, 256, dtype=bf16),
    T(128, 256, dtype=bf16),
    T(256, dtype=bf16),
    T(256, dtype=bf16),
)
infer("sequence/softcap", lambda q, k: (torch.tanh(q @ k.transpose(-1, -2) / 50) * 50).softmax(-1), HEADS, HEADS)

# Numbers in few bits

infer(
    "bits-of/int4-rows",
    lambda p, s: (torch.stack((p & 15, p >> 4), -1).flatten(1).to(i8) - 8) * s,
    T(256, 128, dtype=u8),
    T(256, 1),
)
infer(
    "bits-of/fp8",
    lambda x: (x / (x.abs().amax() / 448)).clamp(-448, 448).to(torch.float8_e4m3fn).to(f32),
    T(256, 256),
    tolerance=0.05,
)
infer("bits-of/fp4", lambda x, t: t[(x[..., None] - t).abs().argmin(-1)], T(64, 128), T(16))
infer(
    "bits-of/binary-pack",
    lambda x: ((x > 0).view(-1, 8).to(u8) * torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=u8)).sum(-1).to(u8),
    T(128, 256),
)
infer(
    "bits-of/binary-unpack",
    lambda b: ((b[..., None] >> torch.arange(8, dtype=u8)) & 1).flatten(-2).to(f32) * 2 - 1,
    T(128, 64, dtype=u8),
)
infer(
    "bits-of/per-channel",
    lambda x: (lambda s: ((x / s).round().clamp(-127, 127).to(i8), s))(x.abs().amax(1, keepdim=True) / 127),
    T(256, 512),
)
infer(
    "bits-of/asymmetric",
    lambda x: (lambda lo, hi: ((x - lo) / (hi - lo) * 255).round().to(u8))(
        x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    ),
    T(256, 512),
)
train(
    "bits-of/straight-through",
    lambda x, s: x + ((x / s).round().clamp(-8, 7) * s - x).detach(),
    T(256, 256),
    T(1, 256, low=0.1, high=1),
)
infer(
    "bits-of/mx-scales",
    lambda x: (lambda b: (lambda e: (b * torch.exp2(-e)).flatten(1))(b.abs().amax(-1, keepdim=True).log2().floor()))(
        x.view(64, 16, 32)
    ),
    T(64, 512),
)

# Objectives and updates


def dice(x: Any, t: Any) -> Any:
    p = x.softmax(1)
    t = F.one_hot(t, 4).permute(0, 3, 1, 2).float()
    inner, total = (p * t).sum((0, 2, 3)), (p + t).sum((0, 2, 3))
    return 1 - ((2 * inner + 1) / (total + 1)).mean()


def barlow(a: Any, b: Any) -> Any:
    a, b = ((z - z.mean(0)) / (z.std(0) + 1e-5) for z in (a, b))
    c = a.t() @ b / a.shape[0]
    return (c.diagonal() - 1).square().sum() + 0.005 * (c - torch.diag_embed(c.diagonal())).square().sum()


def clip(a: Any, b: Any, t: Any) -> Any:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() * t.exp()
    labels = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def lion(p: Any, g: Any, m: Any) -> None:
    p.mul_(1 - 1e-4).add_(torch.sign(m * 0.9 + g * 0.1), alpha=-1e-4)
    m.mul_(0.99).add_(g, alpha=0.01)


def adafactor(p: Any, g: Any, row: Any, col: Any) -> None:
    square = g * g + 1e-30
    row.lerp_(square.mean(-1), 0.01)
    col.lerp_(square.mean(-2), 0.01)
    update = g * (row / row.mean()).rsqrt()[:, None] * col.rsqrt()
    p.add_(update / (update.square().mean().sqrt() / 1.0).clamp(min=1.0), alpha=-1e-3)


def newton_schulz(g: Any) -> Any:
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.t()
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def sophia(p: Any, m: Any, h: Any, g: Any) -> None:
    m.lerp_(g, 0.04)
    p.addcmul_(m.sign(), (m.abs() / (0.04 * h + 1e-12)).clamp(max=1), value=-1e-3)


infer("rule/lion", lion, T(512, 256), T(512, 256), T(512, 256))
infer("rule/adafactor", adafactor, T(256, 256), T(256, 256), T(256, low=0, high=1), T(256, low=0, high=1))
infer("rule/muon", newton_schulz, T(64, 128), tolerance=1e-3)
infer("rule/muon-bf16", newton_schulz, T(64, 128, dtype=bf16), tolerance=0.1)
infer("rule/sophia", sophia, T(256, 256), T(256, 256), T(256, 256, low=0, high=1), T(256, 256))
infer(
    "rule/shampoo",
    lambda left, right, g: (left.mul_(0.9).addmm_(g, g.t(), alpha=0.1), right.mul_(0.9).addmm_(g.t(), g, alpha=0.1)),
    T(64, 64),
    T(96, 96),
    T(64, 96),
)
train("goal/dice-map", dice, T(2, 4, 48, 48), T(2, 48, 48, dtype=i64, low=0, high=3))
train("goal/barlow", barlow, T(64, 96), T(64, 96))
train("goal/clip", clip, T(48, 64), T(48, 64), T(1, low=0, high=2))
train(
    "goal/huber-td",
    lambda q, a, t: F.smooth_l1_loss(q.gather(1, a).squeeze(1), t),
    T(256, 6),
    T(256, 1, dtype=i64, low=0, high=5),
    T(256),
)
train(
    "goal/arcface",
    lambda x, w, t: F.cross_entropy(
        30
        * (lambda c: torch.where(F.one_hot(t, 32).bool(), torch.cos(torch.acos(c.clamp(-0.99, 0.99)) + 0.5), c))(
            F.normalize(x) @ F.normalize(w).t()
        ),
        t,
    ),
    T(64, 64),
    T(32, 64),
    T(64, dtype=i64, low=0, high=31),
)
train("goal/wasserstein", lambda a, b: (a.sort(-1).values - b.sort(-1).values).abs().mean(), T(64, 128), T(64, 128))
train("goal/charbonnier", lambda a, b: ((a - b) ** 2 + 1e-6).sqrt().mean(), T(4, 3, 32, 32), T(4, 3, 32, 32))
train(
    "goal/mmd",
    lambda a, b: (lambda k: k(a, a).mean() + k(b, b).mean() - 2 * k(a, b).mean())(
        lambda x, y: torch.exp(-(torch.cdist(x, y) ** 2) / 8)
    ),
    T(64, 16),
    T(64, 16),
    tolerance=1e-3,
)
train(
    "goal/masked-lm",
    lambda x, t: F.cross_entropy(x.flatten(0, 1), torch.where(t % 7 == 0, t, -100).flatten()),
    T(4, 32, 200),
    T(4, 32, dtype=i64, low=0, high=199),
)
infer(
    "choice/masked-scatter",
    lambda x, m, s: x.masked_scatter(m[:, None].expand_as(x), s),
    T(256, 64),
    T(256, dtype=torch.bool),
    T(256, 64),
)
infer(
    "choice/image-tokens",
    lambda x, t, s: torch.where((t == 3)[..., None], 0.0, x).masked_scatter((t == 3)[..., None], s),
    T(4, 64, 64),
    T(4, 64, dtype=i64, low=0, high=4),
    T(256, 64),
)
