"""Functions of reference implementations, of shapes that no vector divides, in half precision and of odd layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i64, infer, module, train, u8


def _both(name, function, *inputs, **options):
    infer(f"prime/{name}", function, *inputs, **options)
    train(f"prime/{name}/train", function, *inputs, **options)


# Products and what follows them


_both(
    "linear-swish-scale-bf16",
    lambda x, w, b: F.silu(F.linear(x, w, b)) * 0.7,
    T(67, 193, dtype=bf16),
    T(257, 193, dtype=bf16),
    T(257, dtype=bf16),
)
_both("linear-group-norm-hardtanh", lambda x, w: F.hardtanh(F.group_norm(F.linear(x, w), 8)), T(61, 127), T(264, 127))
_both(
    "bmm-norm-residual",
    lambda x, y, r: (F.instance_norm((x @ y)[None])[0] + r) * r,
    T(7, 31, 53),
    T(7, 53, 47),
    T(7, 31, 47),
)
_both(
    "linear-max-sum-scale", lambda x, w: F.max_pool1d(F.linear(x, w)[:, None], 3).sum(-1) * 0.5, T(37, 251), T(509, 251)
)
_both("gemm-logsumexp-gelu", lambda x, w: F.gelu(torch.logsumexp(x @ w, 1, keepdim=True)), T(113, 211), T(211, 307))
_both("triangular-product", lambda x, y: torch.tril(torch.tril(x) @ torch.tril(y)), T(149, 149), T(149, 149))
_both("diagonal-product", lambda d, x: torch.diag(d) @ x, T(211), T(211, 313))
_both("tall-and-thin-bf16", lambda x, w: torch.tanh(x @ w), T(4099, 17, dtype=bf16), T(17, 5, dtype=bf16))
_both(
    "low-rank-adapter-bf16",
    lambda x, w, a, b: F.linear(x, w) + 2 * F.linear(F.linear(x, a), b),
    T(53, 320, dtype=bf16),
    T(320, 320, dtype=bf16),
    T(5, 320, dtype=bf16),
    T(320, 5, dtype=bf16),
)
_both("einsum-bilinear", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), T(23, 19), T(13, 19, 29), T(23, 29))

# Normalization and activations of the kernels of Liger, xformers and others


def _rms(x, w, eps=1e-6):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


def _geglu(x):
    gate, up = x.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def _rope(x, cos, sin):
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


_both("rms-norm-bf16", _rms, T(5, 71, 1023, dtype=bf16), T(1023, dtype=bf16))
_both("rms-norm-f16", _rms, T(331, 97, dtype=f16), T(97, dtype=f16))
_both("geglu-bf16", _geglu, T(3, 67, 2 * 683, dtype=bf16))
_both("rope-bf16", _rope, T(2, 7, 59, 66, dtype=bf16), T(59, 66, dtype=bf16), T(59, 66, dtype=bf16))
_both("layer-norm-no-bias-bf16", lambda x, w: F.layer_norm(x, (383,), w), T(211, 383, dtype=bf16), T(383, dtype=bf16))
_both(
    "softcapped-attention-scores", lambda q, k: (30 * torch.tanh(q @ k.mT / 30)).softmax(-1), T(3, 41, 37), T(3, 43, 37)
)
_both(
    "jsd-loss",
    lambda p, q: F.kl_div(
        torch.logaddexp(p.log_softmax(-1), q.log_softmax(-1)) - 0.693147,
        p.log_softmax(-1),
        log_target=True,
        reduction="batchmean",
    ),
    T(67, 509),
    T(67, 509),
)
_both("relu-squared-bf16", lambda x: F.relu(x).square(), T(37, 1733, dtype=bf16))
_both(
    "cosine-attention",
    lambda q, k, v: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 9).softmax(-1) @ v,
    T(2, 5, 47, 23),
    T(2, 5, 51, 23),
    T(2, 5, 51, 23),
)


# Linear attention and state spaces


def _retention(q, k, v):
    n = q.shape[-2]
    at = torch.arange(n)
    decay = torch.where(at[:, None] >= at, 0.97 ** (at[:, None] - at).clamp_min(0), 0.0)
    return (q @ k.mT * decay) @ v


def _delta_rule(q, k, v):
    state = q.new_zeros(q.shape[0], k.shape[-1], v.shape[-1])
    found = []
    for t in range(q.shape[1]):
        state = state + k[:, t, :, None] * (v[:, t] - (k[:, t, None] @ state)[:, 0])[:, None] * 0.1
        found.append((q[:, t, None] @ state)[:, 0])
    return torch.stack(found, 1)


def _selective_scan(x, a, b, c):
    h = x.new_zeros(x.shape[0], x.shape[2], b.shape[-1])
    found = []
    for t in range(x.shape[1]):
        h = h * a[:, t, :, None].sigmoid() + x[:, t, :, None] * b[:, t, None]
        found.append((h * c[:, t, None]).sum(-1))
    return torch.stack(found, 1)


_both("retention", _retention, T(3, 53, 19), T(3, 53, 19), T(3, 53, 23))
_both("delta-rule", _delta_rule, T(3, 11, 19), T(3, 11, 19), T(3, 11, 23))
_both("selective-scan", _selective_scan, T(2, 13, 37), T(2, 13, 37), T(2, 13, 7), T(2, 13, 7))
_both(
    "cumulative-linear-attention",
    lambda q, k, v: torch.einsum("bld,bldm->blm", q.exp(), (k.exp()[..., None] * v[:, :, None]).cumsum(1)),
    T(2, 37, 11),
    T(2, 37, 11),
    T(2, 37, 13),
)

# Pictures and sound


def _sobel(x):
    k = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    w = torch.stack((k, k.t()))[:, None]
    c = x.shape[1]
    g = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate").flatten(0, 1)[:, None], w).unflatten(0, (-1, c))
    return (g.square().sum(2) + 1e-6).sqrt()


def _ssim(x, y):
    mx, my = F.avg_pool2d(x, 5, 1), F.avg_pool2d(y, 5, 1)
    sx, sy = F.avg_pool2d(x * x, 5, 1) - mx * mx, F.avg_pool2d(y * y, 5, 1) - my * my
    s = F.avg_pool2d(x * y, 5, 1) - mx * my
    return ((2 * mx * my + 1e-4) * (2 * s + 9e-4) / ((mx * mx + my * my + 1e-4) * (sx + sy + 9e-4))).mean()


def _mel(x, window, bank):
    spectrum = torch.stft(x, 126, 31, window=window, return_complex=True).abs().square()
    return (bank @ spectrum).clamp_min(1e-8).log10()


_both("sobel", _sobel, T(2, 3, 61, 67))
_both("ssim", _ssim, T(2, 3, 53, 59, low=0, high=1), T(2, 3, 53, 59, low=0, high=1))
infer("prime/mel", _mel, T(2, 3001), T(126, low=0, high=1), T(23, 64, low=0, high=1))
infer(
    "prime/bytes-to-normal-bf16",
    lambda x, m, s: ((x.permute(0, 3, 1, 2).float() / 255 - m) / s).bfloat16(),
    T(3, 71, 73, 3, dtype=u8),
    T(3, 1, 1, low=0, high=1),
    T(3, 1, 1, low=0.1, high=1),
)
_both(
    "gaussian-blur-bf16",
    lambda x, w: F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), w, groups=5),
    T(2, 5, 61, 43, dtype=bf16),
    T(5, 1, 5, 5, dtype=bf16),
)
_both(
    "adaptive-pools-bf16",
    lambda x: F.adaptive_avg_pool2d(x, 5) + F.adaptive_max_pool2d(x, 5),
    T(3, 17, 31, 37, dtype=bf16),
)
_both("pixel-shuffle-prelu", lambda x, w: F.prelu(F.pixel_shuffle(x, 3), w), T(2, 45, 23, 19), T(5))

# Graphs, rewards, recommendations


def _gat(x, a, b, source, target):
    n = x.shape[0]
    score = F.leaky_relu(a[source] + b[target], 0.2).exp()
    total = torch.zeros(n).index_add(0, target, score)
    return torch.zeros_like(x).index_add(0, target, x[source] * (score / (total[target] + 1e-9))[:, None])


def _gae(rewards, values):
    found, last = [], torch.zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + 0.99 * values[:, t + 1] - values[:, t]
        last = delta + 0.95 * 0.99 * last
        found.append(last)
    return torch.stack(found[::-1], 1)


def _dlrm(x, e):
    z = torch.cat((x[:, None], e), 1)
    r, c = torch.tril_indices(z.shape[1], z.shape[1], -1)
    return torch.cat((x, (z @ z.mT)[:, r, c]), 1)


_both("gat", _gat, T(101, 29), T(101), T(101), T(907, dtype=i64, low=0, high=100), T(907, dtype=i64, low=0, high=100))
_both("gae", _gae, T(31, 17), T(31, 18))
_both("dlrm-interaction", _dlrm, T(61, 17), T(61, 11, 17))
_both("bpr-loss", lambda u, i, j: -F.logsigmoid((u * i).sum(-1) - (u * j).sum(-1)).mean(), *[T(1009, 33)] * 3)
_both(
    "ppo-bf16",
    lambda a, b, adv: -torch.min((a - b).exp() * adv, (a - b).exp().clamp(0.8, 1.2) * adv).mean(),
    *[T(4099, dtype=bf16, low=-1, high=1)] * 3,
)
_both(
    "focal-loss-f16",
    lambda x, y: (
        (1 - torch.exp(-F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none"))) ** 2 * F.softplus(x)
    ).mean(),
    T(67, 83, dtype=f16),
    T(67, 83, dtype=f16),
)

# Quantization, sampling, odd layouts


def _per_group(x):
    g = x.unflatten(-1, (-1, 29))
    scale = g.abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127
    q = (g / scale).round().clamp(-128, 127).to(torch.int8)
    return q.flatten(-2), scale.squeeze(-1)


def _min_p(x):
    p = x.softmax(-1)
    return torch.where(p < 0.1 * p.amax(-1, keepdim=True), 0.0, p).cumsum(-1)


infer("prime/quantize-groups-bf16", _per_group, T(37, 29 * 11, dtype=bf16))
infer("prime/dequantize-transposed", lambda q, s: (q.t().float() * s).t(), T(211, 307, dtype=i8), T(211, low=0, high=1))
infer("prime/min-p", _min_p, T(3, 5003))
infer(
    "prime/repetition-penalty",
    lambda x, at: x.scatter(1, at, torch.where(x.gather(1, at) < 0, x.gather(1, at) * 1.3, x.gather(1, at) / 1.3)),
    T(3, 5003),
    T(3, 59, dtype=i64, low=0, high=5002),
)
_both("expanded-and-strided", lambda x, y: (x[:, None].expand(-1, 31, -1) * y[::2].mT).sum(0), T(13, 41), T(26, 41, 31))
_both("transposed-softmax-bf16", lambda x: x.softmax(0), T(127, 131, dtype=bf16, layout="transposed"))
_both("strided-cumulative-max", lambda x: torch.cummax(x[:, ::3], 1).values, T(61, 331))
infer(
    "prime/histogram-of-bytes",
    lambda x: torch.zeros(256, dtype=i64).index_add(0, x.flatten().long(), torch.ones(x.numel(), dtype=i64)),
    T(61, 67, dtype=u8),
)
module(
    "prime/mlp-mixer-bf16",
    lambda: nn.Sequential(nn.LayerNorm(197), nn.Linear(197, 391), nn.GELU(), nn.Linear(391, 197)),
    T(4, 49, 197, dtype=bf16),
    training=True,
    dtype=bf16,
)
module(
    "prime/depthwise-separable-bf16",
    lambda: nn.Sequential(
        nn.Conv2d(17, 17, 3, padding=1, groups=17, bias=False), nn.BatchNorm2d(17), nn.ReLU6(), nn.Conv2d(17, 31, 1)
    ),
    T(2, 17, 29, 31, dtype=bf16),
    training=True,
    dtype=bf16,
    tolerance=0.1,  # on which side of a kink of ReLU6 a number is
)
module(
    "prime/conv3d-norm-min",
    lambda: nn.Sequential(nn.Conv3d(3, 11, 3, bias=False), nn.InstanceNorm3d(11), nn.Softmax(1)),
    T(2, 3, 11, 13, 17),
    training=True,
)
module(
    "prime/conv-transpose-autocast",
    lambda: nn.Sequential(nn.ConvTranspose2d(13, 7, 4, 2, 1), nn.Hardswish()),
    T(2, 13, 17, 19),
    training=True,
    autocast=bf16,
)


# A function of each row's result


def _minkowski(a, b):
    return (a[:, None, :] - b[None, :, :]).abs().pow(3).sum(-1).pow(1 / 3)


def _poincare(u, v):
    away = (u - v).square().sum(-1)
    return torch.acosh(1 + 2 * away / ((1 - u.square().sum(-1)) * (1 - v.square().sum(-1))))


infer("prime/minkowski", _minkowski, T(131, 37), T(67, 37))
infer("prime/logsumexp-37", lambda x: x.logsumexp(-1), T(8009, 37))
_both("cross-entropy-37", F.cross_entropy, T(4001, 37), T(4001, dtype=i64, low=0, high=36))
_both("poincare", _poincare, T(3001, 41, low=-0.1, high=0.1), T(3001, 41, low=-0.1, high=0.1))
