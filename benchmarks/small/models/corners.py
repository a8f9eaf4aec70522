"""Pieces of models in the dtypes, layouts and sizes in which strangers have them, forward and in training."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i64, infer, module, train, under_autocast


def _both(name, function, *inputs, **options):
    infer(f"corner/{name}", function, *inputs, **options)
    train(f"corner/{name}/train", function, *inputs, **options)


# Blocks


class _Excite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Linear(channels, channels // 4), nn.Linear(channels // 4, channels)

    def forward(self, x):
        return x * self.up(F.silu(self.down(x.mean((2, 3))))).sigmoid()[:, :, None, None]


class _ResponseNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.randn(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        n = x.norm(dim=(1, 2), keepdim=True)
        return x + self.g * (x * n / (n.mean(-1, keepdim=True) + 1e-6)) + self.b


class _Attention(nn.Module):
    """Block attention of a convolutional network: by channels, then by places."""

    def __init__(self, channels):
        super().__init__()
        self.one, self.two = nn.Linear(channels, 8), nn.Linear(8, channels)
        self.place = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x):
        a = self.two(self.one(x.mean((2, 3))).relu()) + self.two(self.one(x.amax((2, 3))).relu())
        x = x * a.sigmoid()[..., None, None]
        return x * self.place(torch.cat((x.mean(1, True), x.amax(1, True)), 1)).sigmoid()


class _Highway(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.way = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        t = self.gate(x).sigmoid()
        return t * self.way(x).relu() + (1 - t) * x


class _Standardized(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, padding=1)


class _Blur(nn.Module):
    def forward(self, x):
        k = torch.tensor([1.0, 2.0, 1.0])
        k = (k[:, None] * k / 16).expand(x.shape[1], 1, 3, 3)
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), k, stride=2, groups=x.shape[1])


def _gated(x, w, v):
    return F.glu(F.conv1d(F.pad(x, (6, 0)), w, dilation=3) + v[None, :, None], 1)


def _involution(x, k):
    b, c, h, w = x.shape
    return (F.unfold(x, 3, padding=1).view(b, c, 9, h, w) * k[:, None]).sum(2)


def _splines(x, c):
    grid = torch.linspace(-2, 2, 8)
    return torch.einsum("bif,oif->bo", (-(((x[..., None] - grid) / 0.5) ** 2)).exp(), c)


def _film(x, g, b):
    return F.instance_norm(x) * (1 + g)[..., None, None] + b[..., None, None]


def _squash(x):
    n = (x * x).sum(-1, keepdim=True)
    return n / (1 + n) * x / (n + 1e-8).sqrt()


for _name, _make, _input in (
    ("excite", lambda: _Excite(32), (4, 32, 24, 24)),
    ("response-norm", lambda: _ResponseNorm(48), (2, 14, 14, 48)),
    ("block-attention", lambda: _Attention(32), (2, 32, 20, 20)),
    ("highway", lambda: _Highway(128), (64, 128)),
    ("standardized-conv", lambda: _Standardized(16, 16, 3), (2, 16, 28, 28)),
    ("blur-pool", _Blur, (2, 24, 40, 40)),
):
    for _training in (False, True):
        module(f"corner/{_name}" + "/train" * _training, _make, T(*_input), training=_training)

module("corner/excite/cl", lambda: _Excite(32), T(4, 32, 24, 24, layout="channels_last"))
module("corner/excite/bf16", lambda: _Excite(32), T(4, 32, 24, 24, dtype=bf16), dtype=bf16)
module("corner/highway/autocast", lambda: _Highway(128), T(64, 128), autocast=bf16, tolerance=0.05)
module("corner/highway/dynamic", lambda: _Highway(128), T(64, 128), dynamic=True)
module("corner/response-norm/f16", lambda: _ResponseNorm(48), T(2, 14, 14, 48, dtype=f16), dtype=f16)
module(
    "corner/group-norm-silu-cl",
    lambda: nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU()),
    T(2, 64, 16, 16, layout="channels_last"),
)
module(
    "corner/group-norm-silu-cl-bf16",
    lambda: nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU()),
    T(2, 64, 16, 16, dtype=bf16, layout="channels_last"),
    dtype=bf16,
)
module(
    "corner/batch-norm-swish/train",
    lambda: nn.Sequential(nn.BatchNorm2d(24), nn.Hardswish()),
    T(8, 24, 14, 14),
    training=True,
)
module(
    "corner/pixel-shuffle", lambda: nn.Sequential(nn.Conv2d(16, 48, 3, padding=1), nn.PixelShuffle(4)), T(1, 16, 24, 24)
)
module(
    "corner/projector/train",
    lambda: nn.Sequential(nn.Linear(64, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32)),
    T(96, 64),
    training=True,
)
module("corner/mixer-tokens", lambda: nn.Sequential(nn.Linear(49, 96), nn.GELU(), nn.Linear(96, 49)), T(4, 128, 49))
module(
    "corner/mixer-tokens/transposed",
    lambda: nn.Sequential(nn.Linear(49, 96), nn.GELU(), nn.Linear(96, 49)),
    T(4, 128, 49, layout="transposed"),
)
module(
    "corner/depthwise-point/cl",
    lambda: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.ReLU6(), nn.Conv2d(32, 16, 1)),
    T(2, 32, 28, 28, layout="channels_last"),
)
module(
    "corner/conv1d-ln",
    lambda: nn.Sequential(nn.Conv1d(40, 64, 3, padding=1), nn.GELU(), nn.LayerNorm(100)),
    T(4, 40, 100),
)
_both("gated-conv", _gated, T(4, 32, 100), T(64, 32, 3), T(64))
_both("involution", _involution, T(2, 16, 20, 20), T(2, 9, 20, 20))
_both("splines", _splines, T(64, 16), T(24, 16, 8))
_both("film", _film, T(4, 16, 20, 20), T(4, 16), T(4, 16))
_both("squash", _squash, T(32, 100, 16))
_both("squash-sliced", _squash, T(32, 100, 16, layout="sliced"))
_both(
    "rms-residual-bf16",
    lambda x, r, w: F.rms_norm(x + r, (256,), w),
    T(32, 256, dtype=bf16),
    T(32, 256, dtype=bf16),
    T(256, dtype=bf16),
)
_both("geglu-f16", lambda x: x.chunk(2, -1)[0] * F.gelu(x.chunk(2, -1)[1], approximate="tanh"), T(32, 512, dtype=f16))
_both("swiglu-sliced", lambda x, y: F.silu(x) * y, T(32, 256, layout="sliced"), T(32, 256, layout="sliced"))
_both("star-relu", lambda x, s, b: s * x.relu() ** 2 + b, T(16, 1000), T(1), T(1))
_both("maxout", lambda x: x.unflatten(-1, (64, 4)).amax(-1), T(64, 256))
_both(
    "layer-norm-2d",
    lambda x, w: F.layer_norm(x.permute(0, 2, 3, 1), (24,), w).permute(0, 3, 1, 2),
    T(2, 24, 20, 20),
    T(24),
)

# Attention and positions


def _alibi(q, k, v):
    n = q.shape[-2]
    bias = -(torch.arange(n)[:, None] - torch.arange(n)).abs() * 2.0 ** -torch.arange(1, 5)[:, None, None]
    return ((q @ k.transpose(-1, -2)) / 4 + bias).softmax(-1) @ v


def _talking(q, k, v, a, b):
    s = torch.einsum("bhij,hg->bgij", q @ k.transpose(-1, -2) / 4, a).softmax(-1)
    return torch.einsum("bhij,hg->bgij", s, b) @ v


def _relative(q, k, v, table):
    n = q.shape[-2]
    at = (torch.arange(n)[:, None] - torch.arange(n)).clamp(-7, 7) + 7
    return (q @ k.transpose(-1, -2) + table[at].permute(2, 0, 1)).softmax(-1) @ v


def _cosine(q, k, v, t):
    return ((F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2)) * t.exp().clamp_max(100)).softmax(
        -1
    ) @ v


def _linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2, keepdim=True).transpose(-1, -2) + 1e-6)


def _rotary(x, c, s):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def _pooled(x, q):
    return torch.einsum("bn,bnd->bd", (x @ q / math.sqrt(x.shape[-1])).softmax(-1), x)


_head = T(2, 4, 48, 16)
_both("alibi", _alibi, _head, _head, _head)
_both("talking-heads", _talking, _head, _head, _head, T(4, 4), T(4, 4))
_both("relative", _relative, _head, _head, _head, T(15, 4))
_both("cosine-attention", _cosine, _head, _head, _head, T(4, 1, 1))
_both("linear-attention", _linear, _head, _head, _head)
_both("rotary-pairs", _rotary, T(2, 4, 48, 32), T(48, 16), T(48, 16))
_both("rotary-pairs-bf16", _rotary, T(2, 4, 48, 32, dtype=bf16), T(48, 16, dtype=bf16), T(48, 16, dtype=bf16))
_both("attention-pool", _pooled, T(8, 50, 64), T(64))
_both(
    "sigmoid-attention", lambda q, k, v: (q @ k.transpose(-1, -2) / 4 - math.log(48)).sigmoid() @ v, _head, _head, _head
)
infer(
    "corner/local-mask",
    lambda s: s.masked_fill(
        (torch.arange(s.shape[-1])[:, None] - torch.arange(s.shape[-1])).abs() > 8, -torch.inf
    ).softmax(-1),
    T(4, 64, 64),
)
infer(
    "corner/key-padding",
    lambda s, n: s.masked_fill(torch.arange(s.shape[-1]) >= n[:, None, None], -1e9).softmax(-1),
    T(8, 32, 64),
    T(8, dtype=i64, low=1, high=64),
)

# Recurrences


def _minimal(x, h, w, v):
    for t in range(6):
        z = (x[:, t] @ w).sigmoid()
        h = (1 - z) * h + z * (x[:, t] @ v)
    return h


def _forgetting(f, z):
    h, all_ = torch.zeros_like(f[:, 0]), []
    for t in range(10):
        h = f[:, t].sigmoid() * h + (1 - f[:, t].sigmoid()) * z[:, t].tanh()
        all_.append(h)
    return torch.stack(all_, 1)


def _leaky(x):
    v, out = torch.zeros_like(x[:, 0]), []
    for t in range(8):
        v = 0.9 * v + x[:, t]
        s = (v - 1).mul(4).sigmoid()
        v = v - s
        out.append(s)
    return torch.stack(out, 1)


_both("minimal-gru", _minimal, T(16, 6, 32), T(16, 64), T(32, 64), T(32, 64))
_both("forget-pool", _forgetting, T(16, 10, 64), T(16, 10, 64))
_both("leaky-neurons", _leaky, T(32, 8, 128))

# Losses


def _contrast(a, b):
    z = F.normalize(torch.cat((a, b)), dim=-1)
    s = (z @ z.t()) / 0.2
    s = s.masked_fill(torch.eye(s.shape[0], dtype=torch.bool), -1e9)
    return F.cross_entropy(s, torch.arange(s.shape[0]).roll(a.shape[0]))


def _twins(a, b):
    a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
    c = a.t() @ b / a.shape[0]
    return (c.diagonal() - 1).pow(2).sum() + 0.005 * (c - c.diagonal().diag()).pow(2).sum()


def _spread(a, b):
    x = a - a.mean(0)
    cov = x.t() @ x / (x.shape[0] - 1)
    return (
        F.mse_loss(a, b)
        + F.relu(1 - (x.var(0) + 1e-4).sqrt()).mean()
        + (cov - cov.diag().diag()).pow(2).sum() / x.shape[1]
    )


def _angular(x, w, y):
    c = (F.normalize(x) @ F.normalize(w).t()).clamp(-0.999, 0.999)
    m = F.one_hot(y, w.shape[0]).bool()
    return F.cross_entropy(torch.where(m, (c.acos() + 0.3).cos(), c) * 16, y)


def _hardest(x, y):
    d = torch.cdist(x, x)
    same = y[:, None] == y
    return F.relu((d * same).amax(1) - (d + 1e3 * same).amin(1) + 0.3).mean()


def _focal(x, y):
    p = x.sigmoid()
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    return (ce * (1 - (p * y + (1 - p) * (1 - y))) ** 2 * (0.25 * y + 0.75 * (1 - y))).mean()


def _dice(x, y):
    p = x.softmax(1)
    return 1 - ((2 * (p * y).sum((2, 3)) + 1) / ((p + y).sum((2, 3)) + 1)).mean()


def _overlap(a, b):
    least, most = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inner = (most - least).clamp_min(0).prod(-1)
    outer = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - inner
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1)
    return 1 - inner / (outer + 1e-6) + (hull - outer) / (hull + 1e-6)


def _wing(x, y):
    d = (x - y).abs()
    return torch.where(d < 10, 10 * (1 + d / 2).log(), d - 10 + 10 * (1 - math.log(6.0))).mean()


def _clipped(new, old, a):
    r = (new - old).exp()
    return -torch.minimum(r * a, r.clamp(0.8, 1.2) * a).mean()


def _quantiles(p, t):
    d = t[:, None] - p[..., None]
    tau = (torch.arange(p.shape[1]) + 0.5) / p.shape[1]
    return (
        (tau[None, :, None] - (d < 0).float()).abs()
        * F.huber_loss(p[..., None].expand_as(d), t[:, None].expand_as(d), reduction="none")
    ).mean()


def _squashed(m, s, e):
    x = m + s.clamp(-5, 2).exp() * e
    return (-0.5 * e * e - s.clamp(-5, 2) - 2 * (math.log(2) - x - F.softplus(-2 * x))).sum(-1), x.tanh()


def _projected(p, r):
    z = torch.linspace(-5, 5, 21)
    b = ((r[:, None] + 0.9 * z).clamp(-5, 5) + 5) / 0.5
    low = b.floor().clamp(0, 20)
    out = torch.zeros_like(p)
    return out.scatter_add(1, low.long(), p * (low + 1 - b)).scatter_add(
        1, (low + 1).clamp_max(20).long(), p * (b - low)
    )


_both("contrast", _contrast, T(32, 48), T(32, 48))
_both("twins", _twins, T(64, 32), T(64, 32))
_both("spread", _spread, T(64, 32), T(64, 32))
_both("angular", _angular, T(48, 32), T(20, 32), T(48, dtype=i64, low=0, high=19))
_both("hardest-triplet", _hardest, T(48, 32), T(48, dtype=i64, low=0, high=7))
_both("focal", _focal, T(64, 40), T(64, 40, low=0.0, high=1.0))
_both("dice", _dice, T(2, 5, 32, 32), T(2, 5, 32, 32, low=0.0, high=1.0))
_both("overlap", _overlap, T(500, 4), T(500, 4))
_both("wing", _wing, T(64, 68, 2), T(64, 68, 2))
_both("clipped-surrogate", _clipped, T(2048), T(2048), T(2048))
_both("quantile-huber", _quantiles, T(32, 25), T(32, 25))
_both("squashed-gaussian", _squashed, T(256, 6), T(256, 6), T(256, 6))
_both("projected", _projected, T(64, 21, low=0.0, high=0.1), T(64))
_both(
    "distillation",
    lambda s, t: F.kl_div((s / 3).log_softmax(-1), (t / 3).softmax(-1), reduction="batchmean") * 9,
    T(64, 100),
    T(64, 100),
)
_both("pairwise-ranking", lambda p, n: -F.logsigmoid(p - n).mean(), T(1000), T(1000))
_both("factorization", lambda x, v: 0.5 * ((x @ v) ** 2 - (x * x) @ (v * v)).sum(-1), T(256, 40), T(40, 8))
_both("cross-layer", lambda x, y, w, b: x * (y @ w + b) + y, T(128, 48), T(128, 48), T(48, 48), T(48))
_both("in-batch-softmax", lambda u, i: F.cross_entropy(u @ i.t() / 0.1, torch.arange(u.shape[0])), T(64, 32), T(64, 32))
_both("evidence", lambda x: x.logsumexp(-1) - x.mean(-1), T(200, 50))
_both(
    "generalized-cross-entropy",
    lambda x, y: ((1 - x.softmax(-1).gather(1, y[:, None]) ** 0.7) / 0.7).mean(),
    T(64, 20),
    T(64, dtype=i64, low=0, high=19),
)
_both("hinge-critic", lambda a, b: F.relu(1 - a).mean() + F.relu(1 + b).mean(), T(512), T(512))
_both(
    "focal-autocast",
    under_autocast(lambda x, w, y: _focal(x @ w, y), bf16),
    T(64, 32),
    T(32, 40),
    T(64, 40, low=0.0, high=1.0),
    tolerance=0.1,
)
_both(
    "contrast-bf16",
    lambda a, b: ((F.normalize(a) @ F.normalize(b).t()) * 5).log_softmax(-1).diagonal().mean(),
    T(32, 48, dtype=bf16),
    T(32, 48, dtype=bf16),
    tolerance=0.1,
)
_both("dice-dynamic", _dice, T(2, 5, 32, 32), T(2, 5, 32, 32, low=0.0, high=1.0), dynamic=True)

# Texts, shops, genes

infer(
    "corner/hashed-ngrams",
    lambda x: (x[:, 2:] * 31 * 31 + x[:, 1:-1] * 31 + x[:, :-2]) % 1009,
    T(32, 128, dtype=i64, low=0, high=255),
)
infer(
    "corner/tf-idf",
    lambda c: F.normalize(torch.log1p(c.float()) * (c.shape[0] / ((c > 0).sum(0) + 1.0)).log(), dim=-1),
    T(100, 300, dtype=i64, low=0, high=3),
)
infer(
    "corner/bm25",
    lambda c, n: (c * 2.2 / (c + 1.2 * (0.25 + 0.75 * n[:, None] / n.mean()))).sum(-1),
    T(200, 12, low=0.0, high=5.0),
    T(200, low=10.0, high=99.0),
)
infer("corner/retrieval", lambda q, d: (F.normalize(q) @ F.normalize(d).t()).topk(5).indices, T(16, 64), T(500, 64))
infer(
    "corner/recall",
    lambda s, y: (s.topk(10).indices == y[:, None]).any(-1).float().mean(),
    T(64, 200),
    T(64, dtype=i64, low=0, high=199),
)
infer(
    "corner/ndcg",
    lambda s, g: (g.gather(1, s.argsort(-1, descending=True)) / torch.log2(torch.arange(2, 42))).sum(-1),
    T(64, 40),
    T(64, 40, low=0.0, high=3.0),
)
infer("corner/one-hot-genes", lambda x: F.one_hot(x, 4).transpose(1, 2).float(), T(16, 500, dtype=i64, low=0, high=3))
infer("corner/reverse-complement", lambda x: (3 - x).flip(-1), T(64, 500, dtype=i64, low=0, high=3))
infer(
    "corner/gc-content",
    lambda x: ((x == 1) | (x == 2)).float().unfold(-1, 50, 10).mean(-1),
    T(16, 500, dtype=i64, low=0, high=3),
)
infer(
    "corner/substitution-scores",
    lambda m, a, b: m[a[:, None], b],
    T(24, 24),
    T(200, dtype=i64, low=0, high=23),
    T(180, dtype=i64, low=0, high=23),
)
infer("corner/contacts", lambda p: (torch.cdist(p, p) < 0.8).sum(-1), T(150, 3))
infer("corner/beam-step", lambda s, x: (s[..., None] + x.log_softmax(-1)).flatten(1).topk(4), T(8, 4), T(8, 4, 500))
infer(
    "corner/repetition-penalty",
    lambda x, t: x.scatter(1, t, torch.where(x.gather(1, t) > 0, x.gather(1, t) / 1.2, x.gather(1, t) * 1.2)),
    T(4, 2000),
    T(4, 60, dtype=i64, low=0, high=1999),
)
infer(
    "corner/min-p",
    lambda x: x.masked_fill(x.softmax(-1) < 0.05 * x.softmax(-1).amax(-1, keepdim=True), -torch.inf),
    T(4, 2000),
)
_both(
    "masked-mean",
    lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True),
    T(16, 40, 64),
    T(16, 40, low=0.1, high=1.0),
)
_both(
    "dihedral",
    lambda p: torch.atan2((torch.linalg.cross(p[:, 0], p[:, 1]) * p[:, 2]).sum(-1), (p[:, 0] * p[:, 2]).sum(-1)),
    T(500, 3, 3),
)
