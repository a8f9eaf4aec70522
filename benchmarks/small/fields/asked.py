"""What engineers ask of a compiler first: layers, decoding, graphs, images, losses, updates, in usual sizes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, i8, i64, infer, module, train, u8


def _ask(name, function, *inputs, **options):
    infer(f"asked/{name}", function, *inputs, **options)


def _step(name, function, *inputs, **options):
    train(f"asked/{name}/train", function, *inputs, **options)


def _both(name, function, *inputs, **options):
    _ask(name, function, *inputs, **options)
    _step(name, function, *inputs, **options)


# Layers


class _ConvNext(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class _Inverted(nn.Module):
    def __init__(self, width):
        super().__init__()
        hidden = width * 4
        self.body = nn.Sequential(
            nn.Conv2d(width, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, width, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return x + self.body(x)


class _Mixer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.one(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.two(x))


class _Block(nn.Module):
    def __init__(self, width, heads, kv):
        super().__init__()
        self.heads, self.kv = heads, kv
        size = width // heads
        self.q, self.k, self.v = (nn.Linear(width, n * size, bias=False) for n in (heads, kv, kv))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.one, self.two = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x):
        b, n, w = x.shape
        y = self.one(x)
        q = self.q(y).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = (f(y).view(b, n, self.kv, -1).transpose(1, 2) for f in (self.k, self.v))
        at = torch.arange(n)
        angle = at[:, None] * 10000 ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)

        def turn(z):
            one, two = z.chunk(2, -1)
            return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)

        q, k = turn(q), turn(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, w))
        y = self.two(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


for _training in (False, True):
    _end = "/train" if _training else ""
    module(f"asked/convnext{_end}", lambda: _ConvNext(64), T(2, 64, 28, 28), training=_training)
    module(f"asked/inverted{_end}", lambda: _Inverted(24), T(4, 24, 28, 28), training=_training, tolerance=1e-3)
    module(f"asked/inverted-cl{_end}", lambda: _Inverted(32), T(4, 32, 28, 28, layout="channels_last"),
           training=_training, channels_last=True, tolerance=1e-3)  # fmt: skip
    module(f"asked/mixer{_end}", lambda: _Mixer(49, 128), T(4, 49, 128), training=_training)
    module(f"asked/llama{_end}", lambda: _Block(256, 8, 2), T(2, 64, 256), training=_training)
    module(f"asked/llama-bf16{_end}", lambda: _Block(256, 8, 2), T(2, 64, 256, dtype=bf16), training=_training,
           dtype=bf16, tolerance=6e-2)  # fmt: skip
    module(f"asked/encoder-autocast{_end}", lambda: nn.TransformerEncoderLayer(192, 6, 384, 0.0, "gelu",
           batch_first=True, norm_first=True), T(2, 50, 192), training=_training, autocast=bf16,
           tolerance=6e-2)  # fmt: skip
    module(f"asked/lstm-2-layers{_end}", lambda: nn.LSTM(48, 64, 2, batch_first=True), T(8, 24, 48), training=_training)
    module(f"asked/gru-cell{_end}", lambda: nn.GRUCell(96, 128), T(16, 96), T(16, 128), training=_training)
    module(f"asked/batch-norm-1d{_end}", lambda: nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(),
           nn.Linear(128, 10)), T(128, 64), training=_training, tolerance=1e-3)  # fmt: skip
    module(f"asked/embedding-mean{_end}", lambda: nn.Sequential(nn.EmbeddingBag(5000, 64), nn.Linear(64, 4)),
           T(64, 20, dtype=i64, low=0, high=4999), training=_training)  # fmt: skip
    module(f"asked/stem{_end}", lambda: nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(),
           nn.MaxPool2d(3, 2, 1)), T(2, 3, 96, 96), training=_training, tolerance=1e-3)  # fmt: skip
    module(f"asked/upsampling{_end}", lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"),
           nn.Conv2d(32, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU()), T(2, 32, 24, 24),
           training=_training)  # fmt: skip
    module(f"asked/tcn{_end}", lambda: nn.Sequential(nn.Conv1d(32, 64, 3, dilation=4, padding=4), nn.LeakyReLU(0.1),
           nn.Conv1d(64, 32, 1)), T(8, 32, 200), training=_training)  # fmt: skip


# Language: masks, caches, sampling


def _windowed(q, k, v):
    n = q.shape[-2]
    far = (torch.arange(n)[:, None] - torch.arange(n)).abs() > 16
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(far, -math.inf)
    return scores.softmax(-1) @ v


def _alibi(q, k, v, slopes):
    n = q.shape[-2]
    distance = torch.arange(n) - torch.arange(n)[:, None]
    bias = slopes[:, None, None] * distance.clamp(max=0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(distance > 0, -math.inf))


_both("windowed-attention", _windowed, T(2, 4, 96, 32), T(2, 4, 96, 32), T(2, 4, 96, 32))
_both("alibi", _alibi, T(2, 8, 64, 32), T(2, 8, 64, 32), T(2, 8, 64, 32), T(8, low=0.0, high=1.0))
_both("linear-attention", lambda q, k, v: (F.elu(q) + 1) @ ((F.elu(k) + 1).transpose(-1, -2) @ v),
      T(2, 4, 128, 32), T(2, 4, 128, 32), T(2, 4, 128, 32))  # fmt: skip
_both("qk-norm", lambda q, k, g: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * g.exp(), T(2, 4, 96, 32),
      T(2, 4, 96, 32), T(4, 1, 1))  # fmt: skip


def _nucleus(logits):
    p, at = logits.softmax(-1).sort(-1, descending=True)
    keep = p.cumsum(-1) - p < 0.9
    p = p * keep
    return torch.zeros_like(logits).scatter(-1, at, p / p.sum(-1, True))


def _min_p(logits):
    p = (logits / 0.8).softmax(-1)
    return torch.where(p < 0.05 * p.amax(-1, True), -math.inf, logits).log_softmax(-1)


def _penalized(logits, seen):
    score = logits.gather(-1, seen)
    return logits.scatter(-1, seen, torch.where(score < 0, score * 1.2, score / 1.2))


def _beam(scores, logits):
    total = scores[:, None] + logits.log_softmax(-1)
    best, at = total.flatten().topk(8)
    return best, at // logits.shape[-1], at % logits.shape[-1]


def _speculative(p, q, draft):
    ratio = p.gather(-1, draft[:, None])[:, 0] / q.gather(-1, draft[:, None])[:, 0]
    accepted = (ratio >= 0.5).cumprod(0).sum()
    rest = (p - q).clamp(min=0)
    return accepted, rest / rest.sum(-1, True).clamp(min=1e-9)


_ask("nucleus", _nucleus, T(4, 8000))
_ask("min-p", _min_p, T(8, 32000))
_ask("penalized", _penalized, T(4, 32000), torch.arange(400).view(4, 100) * 7)
_ask("beam-8", _beam, T(8), T(8, 4000))
_ask("speculative", _speculative, T(5, 4000, low=0.0, high=1.0), T(5, 4000, low=0.01, high=1.0),
     T(5, dtype=i64, low=0, high=3999))  # fmt: skip
_ask("greedy-bf16", lambda x: x.float().argmax(-1), T(16, 32000, dtype=bf16))
_ask("top-k-mask", lambda x: x.masked_fill(x < x.topk(40, -1)[0][:, -1:], -math.inf).softmax(-1), T(4, 8000))
_ask("typical", lambda x: (x.log_softmax(-1) + -(x.softmax(-1) * x.log_softmax(-1)).sum(-1, True)).abs(), T(4, 8000))


def _cached(cache, at, new, q):
    cache = cache.index_copy(2, at, new)
    return F.scaled_dot_product_attention(q, cache, cache)


_ask("cached", _cached, T(2, 8, 128, 32), T(1, dtype=i64, low=7, high=7), T(2, 8, 1, 32), T(2, 8, 1, 32))


def _rolling_cache(cache, new):
    cache.copy_(torch.cat((cache[:, 1:], new), 1))
    return cache.mean(1)


_ask("rolling-cache", _rolling_cache, T(4, 64, 256), T(4, 1, 256))


# Experts and graphs


def _top_2(x, router, up, down):
    p = (x @ router).softmax(-1)
    w, at = p.topk(2, -1)
    w = w / w.sum(-1, True)
    h = torch.einsum("nd,edh->neh", x, up).relu()
    y = torch.einsum("neh,ehd->ned", h, down)
    return (y.gather(1, at[..., None].expand(-1, -1, x.shape[1])) * w[..., None]).sum(1)


def _balance(logits):
    p = logits.softmax(-1)
    chosen = F.one_hot(p.argmax(-1), logits.shape[-1]).float()
    return logits.shape[-1] * (p.mean(0) * chosen.mean(0)).sum() + 1e-3 * logits.logsumexp(-1).square().mean()


def _choose_tokens(x, router):
    p = (x @ router).softmax(-1)
    w, at = p.t().topk(32, -1)
    return x[at] * w[..., None]


def _gcn(x, w, source, target):
    degree = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
    scale = (degree[source] * degree[target]).rsqrt()
    return torch.zeros(x.shape[0], w.shape[1]).index_add(0, target, (x @ w)[source] * scale[:, None]).relu()


def _gat(x, a, b, source, target):
    n = x.shape[0]
    e = F.leaky_relu((x @ a)[source] + (x @ b)[target], 0.2)
    top = torch.full((n,), -math.inf).scatter_reduce(0, target, e, "amax")
    e = (e - top[target]).exp()
    e = e / torch.zeros(n).index_add(0, target, e)[target]
    return torch.zeros_like(x).index_add(0, target, e[:, None] * x[source])


def _edge(x, w, neighbors):
    near = x[neighbors]
    both = torch.cat((x[:, None].expand_as(near), near - x[:, None]), -1)
    return (both @ w).relu().amax(1)


_edges = tuple(T(3000, dtype=i64, low=0, high=499) for _ in range(2))
_both("top-2", _top_2, T(128, 64), T(64, 8), T(8, 64, 128), T(8, 128, 64))
_both("balance", _balance, T(1024, 16))
_both("choose-tokens", _choose_tokens, T(256, 64), T(64, 8))
_both("gcn", _gcn, T(500, 32), T(32, 32), *_edges)
_both("gat", _gat, T(500, 32), T(32), T(32), *_edges)
_both("edge-conv", _edge, T(300, 16), T(32, 32), T(300, 8, dtype=i64, low=0, high=299))
_both("sage-mean", lambda x, w, v, near: F.normalize(x @ w + x[near].mean(1) @ v, dim=-1), T(400, 32), T(32, 48),
      T(32, 48), T(400, 10, dtype=i64, low=0, high=399))  # fmt: skip
_both("segment-mean", lambda x, at: torch.zeros(64, 32).index_add(0, at, x) /
      torch.bincount(at, minlength=64).clamp(min=1)[:, None], T(2000, 32),
      T(2000, dtype=i64, low=0, high=63))  # fmt: skip


# Images and sound, before and after


def _augment(x, mean, std):
    x = x.permute(0, 3, 1, 2).float() / 255
    x = F.interpolate(x.flip(-1), size=(112, 112), mode="bilinear", antialias=False)
    return (x - mean[:, None, None]) / std[:, None, None]


def _jitter(x):
    gray = (0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2])[:, None]
    x = (0.7 * x + 0.3 * gray).clamp(0, 1)
    m = x.mean((1, 2, 3), keepdim=True)
    return ((x - m) * 1.2 + m).clamp(0, 1)


def _sobel(x):
    k = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    k = torch.stack((k, k.t()))[:, None]
    g = F.conv2d(x, k, padding=1)
    return (g[:, 0].square() + g[:, 1].square() + 1e-6).sqrt()


def _masks_to_boxes(m):
    rows, columns = m.any(2), m.any(1)
    n = torch.arange(m.shape[1])
    top = torch.where(rows, n, 10000).amin(1), torch.where(columns, n, 10000).amin(1)
    low = torch.where(rows, n, -1).amax(1), torch.where(columns, n, -1).amax(1)
    return torch.stack((top[1], top[0], low[1], low[0]), 1)


def _iou(a, b):
    top, low = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    inner = (low - top).clamp(min=0).prod(-1)
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])  # noqa: E731
    return inner / (area(a)[:, None] + area(b) - inner)


def _confusion(logits, target):
    guess = logits.argmax(1)
    return torch.bincount((target * logits.shape[1] + guess).flatten(), minlength=logits.shape[1] ** 2)


def _mel(x, window, bank):
    s = torch.stft(x, 256, 128, window=window, return_complex=True).abs().square()
    return (bank @ s).clamp(min=1e-10).log10()


def _biquad(x):
    y = [x[:, 0], x[:, 1]]
    for t in range(2, 32):
        y.append(0.3 * x[:, t] + 1.2 * y[-1] - 0.5 * y[-2])
    return torch.stack(y, 1)


_picture = T(4, 128, 128, 3, dtype=u8)
_ask("augment", _augment, _picture, T(3), T(3, low=0.2, high=0.3))
_ask("jitter", _jitter, T(4, 3, 96, 96, low=0.0, high=1.0))
_ask("sobel", _sobel, T(2, 1, 128, 128))
_ask("to-bytes", lambda x: (x.clamp(0, 1) * 255 + 0.5).to(torch.uint8).permute(0, 2, 3, 1).contiguous(),
     T(2, 3, 160, 160, low=-0.2, high=1.2))  # fmt: skip
_ask("segment", lambda x: F.interpolate(x, size=(128, 128), mode="bilinear", align_corners=False).argmax(1),
     T(2, 21, 32, 32))  # fmt: skip
_ask("masks-to-boxes", _masks_to_boxes, T(20, 96, 96, dtype=torch.bool))
_ask("iou", _iou, T(200, 4), T(150, 4))
_ask("confusion", _confusion, T(2, 19, 64, 64), T(2, 64, 64, dtype=i64, low=0, high=18))
_ask("mel", _mel, T(2, 8000), torch.hann_window(256), T(40, 129, low=0.0, high=1.0))
_ask("biquad", _biquad, T(64, 32))
_ask("patches", lambda x: x.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2),
     T(2, 3, 112, 112))  # fmt: skip
_ask("yuv", lambda x: torch.einsum("ij,bjhw->bihw", torch.tensor(
     [[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.1]]), x), T(2, 3, 128, 128))  # fmt: skip
_ask("crops", lambda x: torch.stack([x[..., :56, :56], x[..., :56, -56:], x[..., -56:, :56], x[..., -56:, -56:],
     x[..., 4:60, 4:60]]), T(2, 3, 64, 64))  # fmt: skip
_ask("erase", lambda x, m: torch.where(m[:, None], x.mean((2, 3), keepdim=True), x), T(4, 3, 64, 64),
     T(4, 64, 64, dtype=torch.bool))  # fmt: skip


# Losses


def _focal(x, y):
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    return ((1 - (-ce).exp()) ** 2 * ce).mean()


def _dice(x, y):
    p = x.sigmoid()
    return 1 - (2 * (p * y).sum((1, 2)) + 1) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)


def _ssim(x, y):
    mean = lambda z: F.avg_pool2d(z, 7, 1)  # noqa: E731
    a, b = mean(x), mean(y)
    va, vb, vab = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
    return (1 - ((2 * a * b + 1e-4) * (2 * vab + 9e-4)) / ((a * a + b * b + 1e-4) * (va + vb + 9e-4))).mean()


def _nce(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = a @ b.t() / 0.07
    at = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, at) + F.cross_entropy(logits.t(), at)) / 2


def _supcon(z, y):
    z = F.normalize(z, dim=-1)
    s = (z @ z.t() / 0.1).masked_fill(torch.eye(z.shape[0], dtype=torch.bool), -1e9)
    same = (y[:, None] == y).float().fill_diagonal_(0)
    return -((same * s.log_softmax(-1)).sum(-1) / same.sum(-1).clamp(min=1)).mean()


def _barlow(a, b):
    a, b = ((z - z.mean(0)) / (z.std(0) + 1e-5) for z in (a, b))
    c = a.t() @ b / a.shape[0]
    on = (c.diagonal() - 1).square().sum()
    return on + 5e-3 * (c.square().sum() - c.diagonal().square().sum())


def _vae(x, mean, logvar, y):
    return F.mse_loss(x, y, reduction="sum") - 0.5 * (1 + logvar - mean.square() - logvar.exp()).sum()


def _ppo(logits, value, action, old, advantage, target):
    logp = logits.log_softmax(-1)
    ratio = (logp.gather(-1, action[:, None])[:, 0] - old).exp()
    policy = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    entropy = -(logp.exp() * logp).sum(-1).mean()
    return policy + 0.5 * F.mse_loss(value, target) - 0.01 * entropy


def _dpo(a, b, c, d):
    return -F.logsigmoid(0.1 * ((a - c) - (b - d))).mean()


def _mdn(mix, mean, scale, y):
    logp = -0.5 * ((y[:, None] - mean) / scale.exp()).square() - scale
    return -(mix.log_softmax(-1) + logp).logsumexp(-1).mean()


def _giou(a, b):
    a, b = torch.cat((a[:, :2], a[:, :2] + a[:, 2:].exp()), 1), torch.cat((b[:, :2], b[:, :2] + b[:, 2:].exp()), 1)
    inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    outer = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    return (1 - inner / union + (outer - union) / outer).mean()


_step("focal", _focal, T(4096, 8), torch.rand(4096, 8).round())
_step("dice", _dice, T(8, 64, 64), torch.rand(8, 64, 64).round())
_step("ssim", _ssim, T(2, 3, 48, 48, low=0.0, high=1.0), T(2, 3, 48, 48, low=0.0, high=1.0))
_step("nce", _nce, T(128, 64), T(128, 64))
_step("supcon", _supcon, T(128, 64), T(128, dtype=i64, low=0, high=9))
_step("barlow", _barlow, T(128, 96), T(128, 96))
_step("vae", _vae, T(64, 784), T(64, 20), T(64, 20), T(64, 784))
_step("ppo", _ppo, T(256, 6), T(256), T(256, dtype=i64, low=0, high=5), T(256), T(256), T(256))
_step("dpo", _dpo, T(64), T(64), T(64), T(64))
_step("mdn", _mdn, T(256, 5), T(256, 5), T(256, 5), T(256))
_step("giou", _giou, T(512, 4), T(512, 4))
_step("smoothed-ce", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), T(128, 1000),
      T(128, dtype=i64, low=0, high=999))  # fmt: skip
_step("pixel-ce", lambda x, y: F.cross_entropy(x, y, ignore_index=0), T(2, 21, 48, 48),
      T(2, 48, 48, dtype=i64, low=0, high=20))  # fmt: skip
_step("ce-bf16", lambda x, y: F.cross_entropy(x.float(), y), T(128, 2000, dtype=bf16),
      T(128, dtype=i64, low=0, high=1999))  # fmt: skip
_step("distill", lambda s, t: F.kl_div((s / 2).log_softmax(-1), (t / 2).softmax(-1), reduction="batchmean") * 4,
      T(128, 100), T(128, 100))  # fmt: skip
_step("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), T(128, 64), T(128, 64), T(128, 64))
_step("tv", lambda x: (x[..., 1:] - x[..., :-1]).abs().mean() + (x[..., 1:, :] - x[..., :-1, :]).abs().mean(),
      T(2, 3, 64, 64))  # fmt: skip
_step("quantile", lambda x, y: torch.stack([torch.maximum(q * (y - x[:, i]), (q - 1) * (y - x[:, i])).mean()
      for i, q in enumerate((0.1, 0.5, 0.9))]).sum(), T(512, 3), T(512))  # fmt: skip
_step(
    "weighted-mse",
    lambda x, y, w: (w * (x - y).square()).sum() / w.sum(),
    T(64, 50),
    T(64, 50),
    T(64, 50, low=0.0, high=1.0),
)
_step(
    "spectral-loss",
    lambda x, y: (torch.fft.rfft(x).abs() - torch.fft.rfft(y).abs()).square().mean(),
    T(16, 512),
    T(16, 512),
)


# Updates


def _updating(name, update, count=4, size=(128, 128)):
    def build():
        values, gradients, one, two = ([torch.randn(size) * 0.1 for _ in range(count)] for _ in range(4))
        two = [x.abs() + 0.1 for x in two]

        def run():
            for p, g, m, v in zip(values, gradients, one, two, strict=True):
                update(p, g, m, v)

        return Case(run, (), state=lambda: values + one + two)

    case(f"asked/update/{name}", build)


def _adamw(p, g, m, v):
    p.mul_(1 - 1e-4)
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=1e-3)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def _lion(p, g, m, v):
    p.sub_(1e-4 * (0.9 * m + 0.1 * g).sign())
    m.lerp_(g, 0.01)


def _adafactor(p, g, m, v):
    square = g.square() + 1e-30
    rows, columns = square.mean(-1), square.mean(-2)
    p.sub_(1e-3 * g * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt())


def _muon(p, g, m, v):
    m.mul_(0.95).add_(g)
    x = m / (m.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.t()
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    p.sub_(0.02 * x)


def _lamb(p, g, m, v):
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    u = m / (v.sqrt() + 1e-6) + 0.01 * p
    p.sub_(1e-3 * p.norm() / u.norm().clamp(min=1e-6) * u)


for _name, _update in {"adamw": _adamw, "lion": _lion, "adafactor": _adafactor, "muon": _muon, "lamb": _lamb}.items():
    _updating(_name, _update)


def _clip(gradients):
    total = torch.stack([g.norm() for g in gradients]).norm()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    return [g * scale for g in gradients]


infer("asked/clip", lambda *g: _clip(g), *[T(96, 96) for _ in range(8)])
infer(
    "asked/average",
    lambda *w: [a.lerp(b, 0.01) for a, b in zip(w[::2], w[1::2], strict=True)],
    *[T(64, 64) for _ in range(12)],
)


# Numbers in few bits, and integers


def _by_rows(x, w, scale):
    s = x.abs().amax(-1, True) / 127
    q = (x / s).round().clamp(-128, 127).to(torch.int8)
    return (q.float() @ w.float().t()) * s * scale


def _nibbles(w, scale, x):
    low, high = (w & 15).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    full = torch.stack((low, high), -1).flatten(1).to(x.dtype)
    full = (full.view(w.shape[0], -1, 32) * scale[..., None]).flatten(1)
    return x @ full.t()


def _fake(x, s):
    q = (x / s).round().clamp(-128, 127) * s
    return x + (q - x).detach()


_ask("int8-rows", _by_rows, T(16, 256), T(512, 256, dtype=i8), T(512, low=0.0, high=0.1), tolerance=2e-3)
_ask("int4-groups", _nibbles, T(256, 128, dtype=u8), T(256, 8, low=0.0, high=0.1), T(4, 256))
_both("fake-quantized", _fake, T(256, 256), T(256, 1, low=0.01, high=0.1))
_ask("popcount", lambda x: sum((x >> i) & 1 for i in range(8)), T(20000, dtype=u8))
_ask("hash", lambda x: ((x ^ (x >> 16)) * 73244475 ^ (x >> 13)) & 1023, T(20000, dtype=i64, low=0, high=10**6))
_ask("prefix-i64", lambda x: x.cumsum(-1) - x, T(64, 512, dtype=i64))
_ask(
    "bucket-embedding", lambda x, edges, w: w[torch.bucketize(x, edges)], T(4000), torch.linspace(-2, 2, 31), T(32, 16)
)
_ask("hours", lambda t: torch.stack((t // 3600, t // 60 % 60, t % 60), -1), T(10000, dtype=i64, low=0, high=86399))
_ask("modes", lambda x: F.one_hot(x, 12).sum(1).argmax(-1), T(500, 24, dtype=i64, low=0, high=11))


# Layouts and small arithmetic


_ask("add-transposed", lambda a, b: a + 2 * b.t(), T(400, 300), T(300, 400))
_ask("softmax-columns", lambda x: x.softmax(0), T(500, 200))
_ask("gelu-bf16", lambda x, b: F.gelu(x + b) * x, T(128, 1024, dtype=bf16), T(1024, dtype=bf16))
_ask("norm-f16", lambda x, w: F.rms_norm(x, (512,), w) + x, T(128, 512, dtype=f16), T(512, dtype=f16))
_ask("shuffled", lambda x: F.pixel_shuffle(F.channel_shuffle(x, 4), 2), T(2, 32, 32, 32))
_ask(
    "window-roll",
    lambda x: x.roll((-3, -3), (1, 2)).view(2, 8, 7, 8, 7, 48).transpose(2, 3).flatten(0, 2).flatten(1, 2).contiguous(),
    T(2, 56, 56, 48),
)
_ask("pairwise", lambda x: (x[:, None] - x).square().sum(-1).sqrt(), T(200, 16))
_ask(
    "top-5-accuracy",
    lambda x, y: (x.topk(5, -1)[1] == y[:, None]).any(-1).float().mean(),
    T(256, 1000),
    T(256, dtype=i64, low=0, high=999),
)
_ask("running-max", lambda x: (x.cummax(-1)[0] - x).amax(-1), T(100, 400))
_ask("polynomial", lambda x: ((((0.1 * x + 0.2) * x - 0.3) * x + 0.4) * x).tanh(), T(100000))
_ask("standardized", lambda x: (x - x.mean(0)) / x.std(0).clamp(min=1e-6), T(2000, 24))
_ask("correlation", lambda x: torch.corrcoef(x.t()), T(1000, 32))
_ask(
    "ema",
    lambda x: torch.stack([x[:, : i + 1].mul(0.9 ** torch.arange(i, -1, -1)).sum(1) for i in range(16)], 1),
    T(128, 16),
)
