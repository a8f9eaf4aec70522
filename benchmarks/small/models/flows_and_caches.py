"""Normalizing flows; caches of keys and values, positions and masks in forms that decoders give them; one row at a
time."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, i32, i64, infer, module, train

# Flows


class Coupling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 33), nn.ReLU(), nn.Linear(33, 12))

    def forward(self, x: Any) -> Any:
        a, b = x[:, :5], x[:, 5:]
        shift, scale = self.net(a).chunk(2, -1)
        scale = scale.tanh()
        return torch.cat((a, b * scale.exp() + shift), 1).flip(1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Coupling() for _ in range(4))

    def forward(self, x: Any) -> Any:
        total = torch.zeros(x.shape[0])
        for part in self.parts:
            x, found = part(x)
            total = total + found
        return (-0.5 * x.square().sum(1) - 5.5 * math.log(2 * math.pi) + total).mean()


module("flow/coupling", Flow, T(37, 11))
module("flow/coupling-train", Flow, T(37, 11), training=True)


def planar(z: Any, u: Any, w: Any, b: Any) -> Any:
    total = torch.zeros(z.shape[0])
    for k in range(6):
        inside = (z @ w[k] + b[k]).tanh()
        total = total + (1 + (1 - inside**2) * (w[k] @ u[k])).abs().add(1e-4).log()
        z = z + u[k] * inside[:, None]
    return z, total


infer("flow/planar", planar, T(101, 7), T(6, 7), T(6, 7), T(6))
train("flow/planar-train", lambda *x: planar(*x)[1].mean(), T(101, 7), T(6, 7), T(6, 7), T(6))


def spline(x: Any, widths: Any, heights: Any, slopes: Any) -> Any:
    w, h = widths.softmax(-1), heights.softmax(-1)
    cw, ch = F.pad(w.cumsum(-1), (1, 0)), F.pad(h.cumsum(-1), (1, 0))
    d = F.softplus(slopes) + 1e-3
    at = torch.searchsorted(cw[..., 1:-1].contiguous(), x[..., None])
    w0, h0, x0, y0 = (v.gather(-1, at)[..., 0] for v in (w, h, cw, ch))
    d0, d1 = d.gather(-1, at)[..., 0], d.gather(-1, at + 1)[..., 0]
    t, s = (x - x0) / w0, h0 / w0
    below = s + (d1 + d0 - 2 * s) * t * (1 - t)
    return y0 + h0 * (s * t * t + d0 * t * (1 - t)) / below


infer("flow/spline", spline, T(61, 5, low=0.01, high=0.99), T(61, 5, 8), T(61, 5, 8), T(61, 5, 9))
infer(
    "flow/act-norm-cl",
    lambda x, s, b: ((x + b[:, None, None]) * s.exp()[:, None, None], s.sum() * 17 * 19),
    T(2, 12, 17, 19, layout="channels_last"),
    T(12),
    T(12),
)
train(
    "flow/squeeze-1x1",
    lambda x, w: F.conv2d(F.pixel_unshuffle(x, 2), w[:, :, None, None]).square().mean() - w.det().abs().log(),
    T(2, 3, 18, 22),
    T(12, 12),
)


def autoregressive(x: Any, w: Any, v: Any) -> Any:
    mask = torch.ones(9, 9).tril(-1)
    h = (x @ (w * mask).t()).tanh()
    m, s = h @ (v[0] * mask).t(), h @ (v[1] * mask).t()
    return (x - m) * (-s).exp(), -s.sum(1)


infer("flow/autoregressive", autoregressive, T(67, 9), T(9, 9), T(2, 9, 9))
train("flow/dequantize-train", lambda x: F.softplus(x).add(F.softplus(-x)).mean() + x.sigmoid().logit().mean(),
      T(3, 3, 17, 17))  # fmt: skip

# Caches, positions, masks; batch 1


def ring_cache(keys: Any, k: Any, q: Any, at: Any) -> Any:
    keys[:, :, at % 128] = k
    ages = (at - torch.arange(128)) % 128
    scores = (q @ keys.transpose(-1, -2)) / 8 - ages * 0.05
    return scores.masked_fill(ages > at, -1e9).softmax(-1) @ keys


case(
    "kv/ring",
    lambda: Case(ring_cache, (torch.zeros(1, 3, 128, 64), torch.randn(1, 3, 1, 64), torch.randn(1, 3, 1, 64),
                              torch.tensor([200]))),
)  # fmt: skip
infer("kv/sink-window-mask", lambda n: _sink(torch.arange(300) + n), T(1, dtype=i64, low=0, high=50))


def _sink(at: Any) -> Any:
    q, k = at[:, None], at[None]
    return torch.where((k <= q) & ((q - k < 64) | (k < 4)), 0.0, float("-inf"))


infer("kv/alibi-scores", lambda q, k: _alibi(q, k), T(1, 6, 1, 48), T(1, 6, 333, 48))


def _alibi(q: Any, k: Any) -> Any:
    slopes = 2.0 ** (-8 / 6 * torch.arange(1, 7))
    return (q @ k.transpose(-1, -2) / 48**0.5 + slopes[:, None, None] * torch.arange(-332, 1)).softmax(-1)


infer("kv/rotary-partial", lambda x, c, s: _partial(x, c, s), T(1, 1, 10, 80), T(1, 1, 1, 10), T(1, 1, 1, 10))


def _partial(x: Any, c: Any, s: Any) -> Any:
    a, b, rest = x[..., :10], x[..., 10:20], x[..., 20:]
    return torch.cat((a * c - b * s, b * c + a * s, rest), -1)


infer(
    "kv/rotary-interleaved-bf16",
    lambda x, f: (
        torch.view_as_real(torch.view_as_complex(x.float().view(1, 37, 8, 32, 2)) * f[:, None]).flatten(3).to(x)
    ),
    T(1, 37, 8, 64, dtype=bf16),
    T(37, 32, dtype=torch.complex64),
)
infer("kv/rotary-ntk", lambda p: _ntk(p), T(1, 97, dtype=i64, low=0, high=4000))


def _ntk(p: Any) -> Any:
    inv = 1.0 / (10000 * 4 ** (64 / 62)) ** (torch.arange(0, 64, 2) / 64)
    a = p[..., None] * inv
    return torch.cat((a, a), -1).cos().to(bf16), torch.cat((a, a), -1).sin().to(bf16)


infer(
    "kv/latent",
    lambda q, c, w: torch.einsum("bhr,btr->bht", torch.einsum("bhd,hrd->bhr", q, w), c).softmax(-1) @ c,
    T(1, 6, 32),
    T(1, 151, 64),
    T(6, 64, 32),
)
infer("kv/paged-f16", lambda k, t, q: _paged(k, t, q), T(40, 16, 4, 32, dtype=f16), T(11, dtype=i32, low=0, high=39),
      T(4, 32, dtype=f16))  # fmt: skip


def _paged(k: Any, t: Any, q: Any) -> Any:
    keys = k[t.long()].flatten(0, 1)
    return torch.einsum("thd,hd->ht", keys, q).float().softmax(-1)


infer("kv/int8-append", lambda k: _int8_rows(k), T(1, 8, 1, 64))


def _int8_rows(k: Any) -> Any:
    scale = k.abs().amax(-1, keepdim=True) / 127
    return (k / scale).round().to(torch.int8), scale.to(f16)


infer(
    "kv/int8-scores",
    lambda q, k, s: (q @ (k.to(bf16) * s).transpose(-1, -2)).float().softmax(-1).to(bf16),
    T(1, 8, 1, 64, dtype=bf16),
    T(1, 8, 211, 64, dtype=torch.int8),
    T(1, 8, 211, 1, dtype=bf16),
)
infer("kv/tree-mask", lambda p: _tree(p), T(23, dtype=i64, low=0, high=0))


def _tree(p: Any) -> Any:
    parents = (torch.arange(23) - 1).clamp(min=0) // 2 + p
    seen = torch.eye(23, dtype=torch.bool)
    for _ in range(5):
        seen = seen | seen[parents]
    return seen


infer("kv/rms-row", lambda x, r, w: _rms(x + r, w), T(1, 1, 577), T(1, 1, 577), T(577))


def _rms(h: Any, w: Any) -> Any:
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * w, h


infer("kv/swiglu-row", lambda x, g, u, d: (F.silu(x @ g) * (x @ u)) @ d, T(1, 96), T(96, 257), T(96, 257), T(257, 96))
infer("kv/logit-chain", lambda x: ((30 * (x / 30).tanh()).masked_fill(x < -2, float("-inf")) / 0.7).log_softmax(-1),
      T(1, 5003, dtype=bf16))  # fmt: skip
infer("kv/conv-state", lambda s, x, w: ((n := torch.cat((s[..., 1:], x[..., None]), -1)), F.silu((n * w).sum(-1))),
      T(1, 96, 4), T(1, 96), T(96, 4))  # fmt: skip
infer("kv/ssd-step", lambda h, x, b, c, a: ((n := h * a.exp()[:, :, None, None] + x[..., None] * b[:, None, None]),
      (n * c[:, None, None]).sum(-1)), T(1, 6, 16, 24), T(1, 6, 16), T(1, 24), T(1, 24), T(1, 6))  # fmt: skip
infer("kv/delta-rule", lambda s, k, v, b: s + b[..., None, None] * (v - (s @ k[..., None])[..., 0])[..., None] * k[
      ..., None, :], T(1, 4, 32, 32), T(1, 4, 32), T(1, 4, 32), T(1, 4))  # fmt: skip
infer("kv/local-blocks", lambda q, k, v: _blocks(q, k, v), *[T(2, 3, 96, 17)] * 3)


def _blocks(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.reshape(2, 3, 6, 16, 17) for x in (q, k, v))
    near = [torch.cat((F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x), 3) for x in (k, v)]
    return ((q @ near[0].transpose(-1, -2)) / 17**0.5).softmax(-1) @ near[1]


train("kv/local-blocks-train", lambda *x: _blocks(*x).square().sum(), *[T(2, 3, 96, 17)] * 3)
