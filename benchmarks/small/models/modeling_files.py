"""Snippets as the modeling files of today's models have them: attention variants, scans, blocks and routers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i64, infer, module, train


def _run(name, function, *inputs, **options):
    infer(f"modeling/{name}", function, *inputs, **options)


def _train(name, function, *inputs, **options):
    train(f"modeling/{name}/train", function, *inputs, **options)


# --- attention --------------------------------------------------------------------------------------------------------


def _sliding(q, k, v, window=32):
    n = q.shape[-2]
    i = torch.arange(n)
    mask = (i[:, None] >= i) & (i[:, None] - i < window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _alibi(q, k, v):
    n, h = q.shape[-2], q.shape[1]
    slopes = 2.0 ** (-8 * torch.arange(1, h + 1) / h)
    bias = -slopes[:, None, None] * (torch.arange(n)[:, None] - torch.arange(n)).abs()
    return ((q @ k.mT) / math.sqrt(q.shape[-1]) + bias).softmax(-1) @ v


def _softcap(q, k, v):
    s = 30 * torch.tanh(q @ k.mT / 30)
    s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), torch.finfo(s.dtype).min)
    return s.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def _sinks(q, k, v, sinks):
    s = q @ k.mT / 8
    s = torch.cat((s, sinks[None, :, None, None].expand(*s.shape[:-1], 1)), -1)
    s = (s - s.amax(-1, keepdim=True)).softmax(-1)
    return s[..., :-1] @ v


def _latent(x, down, up, rope):
    """Multi-head latent attention: keys and values from few numbers, and a part of the keys that is turned."""
    latent = x @ down
    kv, pe = latent.split((64, 16), -1)
    k, v = (kv @ up).view(*x.shape[:2], 4, 64).split((32, 32), -1)
    pe = torch.cat((-pe[..., 8:], pe[..., :8]), -1) * rope + pe
    return torch.cat((k, pe[:, :, None].expand(-1, -1, 4, -1)), -1).transpose(1, 2), v.transpose(1, 2)


def _linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = torch.einsum("bhnd,bhne->bhde", k, v)
    return torch.einsum("bhnd,bhde->bhne", q, kv) / (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True)


def _delta_step(s, q, k, v, beta, g):
    s = s * g.exp()[..., None, None]
    memory = (s * k[..., None]).sum(-2)
    s = s + k[..., None] * ((v - memory) * beta[..., None])[..., None, :]
    return s, (s * q[..., None]).sum(-2)


def _delta_chunk(q, k, v, beta):
    """Inside one chunk of a delta network: the inverse of a triangular matrix, row by row."""
    a = -((k * beta[..., None]) @ k.mT).tril(-1)
    for i in range(1, 16):
        a = torch.cat(
            (a[..., :i, :], (a[..., i, :] + (a[..., i, :, None] * a).sum(-2))[..., None, :], a[..., i + 1 :, :]), -2
        )
    a = a + torch.eye(16)
    return (q @ k.mT).tril() @ (a @ (v * beta[..., None]))


def _mamba(x, dt, a, b, c):
    dt = F.softplus(dt)
    da = torch.exp(dt[..., None] * -a.exp())
    dbx = dt[..., None] * b[:, :, None] * x[..., None]
    h, out = torch.zeros_like(da[:, 0]), []
    for t in range(x.shape[1]):
        h = da[:, t] * h + dbx[:, t]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def _segsum(x):
    x = x.cumsum(-1)
    d = x[..., :, None] - x[..., None, :]
    return d.masked_fill(~torch.ones(d.shape[-2:], dtype=torch.bool).tril(), -torch.inf).exp()


def _rope(q, k, cos, sin):
    half = lambda x: torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)  # noqa: E731
    return q * cos + half(q) * sin, k * cos + half(k) * sin


def _rope_interleaved(x, freqs):
    y = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(y * freqs).flatten(-2).to(x.dtype)


_QKV = [T(2, 4, 97, 32) for _ in range(3)]
_HALF = [T(2, 4, 97, 32, dtype=bf16) for _ in range(3)]
_run("sliding", _sliding, *_QKV)
_train("sliding", _sliding, *_QKV)
_run("alibi", _alibi, *_QKV)
_train("alibi", _alibi, *_QKV)
_run("softcap-bf16", _softcap, *_HALF)
_train("softcap-bf16", _softcap, *_HALF)
_run("sinks", _sinks, *_QKV, T(4))
_train("sinks", _sinks, *_QKV, T(4))
_run("latent", _latent, T(2, 61, 128), T(128, 80), T(64, 256), T(61, 16))
_train("latent", _latent, T(2, 61, 128), T(128, 80), T(64, 256), T(61, 16))
_run("linear-attention", _linear_attention, *_QKV)
_train("linear-attention", _linear_attention, *_QKV)
_run("delta-step", _delta_step, T(2, 8, 32, 48), T(2, 8, 32), T(2, 8, 32), T(2, 8, 48), T(2, 8), T(2, 8))
_train("delta-chunk", _delta_chunk, T(2, 8, 16, 32), T(2, 8, 16, 32), T(2, 8, 16, 24), T(2, 8, 16))
_run("mamba", _mamba, T(2, 24, 64), T(2, 24, 64), T(64, 16), T(2, 24, 16), T(2, 24, 16))
_train("mamba", _mamba, T(2, 24, 64), T(2, 24, 64), T(64, 16), T(2, 24, 16), T(2, 24, 16))
_train("segment-sums", _segsum, T(2, 8, 61))
_run("rope-bf16", _rope, T(2, 8, 97, 64, dtype=bf16), T(2, 2, 97, 64, dtype=bf16), T(97, 64, dtype=bf16),
     T(97, 64, dtype=bf16))  # fmt: skip
_train("rope", _rope, T(2, 8, 97, 64), T(2, 2, 97, 64), T(97, 64), T(97, 64))
_run("rope-complex", _rope_interleaved, T(2, 61, 8, 64, dtype=bf16), T(61, 1, 32, dtype=torch.complex64))
_run("qk-norm-gqa", lambda q, k, v: F.scaled_dot_product_attention(F.normalize(q, dim=-1), F.normalize(k, dim=-1)
     .repeat_interleave(4, 1), v.repeat_interleave(4, 1)), T(1, 8, 61, 32), *[T(1, 2, 61, 32)] * 2)  # fmt: skip
_run("relative-shift", lambda x: F.pad(x, (1, 0)).view(2, 4, -1, 61)[:, :, 1:].reshape(2, 4, 61, 61), T(2, 4, 61, 61))
_run("t5-buckets", lambda n: _buckets(torch.arange(n.shape[0])[None] - torch.arange(n.shape[0])[:, None]), T(127))


def _buckets(distance):
    far, n = (distance > 0).long() * 16, distance.abs()
    large = 8 + (torch.log(n.float() / 8) / math.log(16) * 8).to(i64)
    return far + torch.where(n < 8, n, large.clamp(max=15))


# --- blocks -----------------------------------------------------------------------------------------------------------
class _SwiGlu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.both, self.down = nn.RMSNorm(256), nn.Linear(256, 1376, False), nn.Linear(688, 256, False)

    def forward(self, x):
        a, b = self.both(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(a) * b)


class _Squeeze(nn.Module):
    """An inverted bottleneck with squeeze and excitation, as in EfficientNet."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv2d(24, 96, 1, bias=False), nn.Conv2d(96, 24, 1, bias=False)
        self.deep = nn.Conv2d(96, 96, 3, 1, 1, groups=96, bias=False)
        self.a, self.b = nn.Conv2d(96, 6, 1), nn.Conv2d(6, 96, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (96, 96, 24))

    def forward(self, x):
        y = F.silu(self.norms[0](self.up(x)))
        y = F.silu(self.norms[1](self.deep(y)))
        y = y * self.b(F.silu(self.a(y.mean((2, 3), True)))).sigmoid()
        return x + self.norms[2](self.down(y))


class _ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(48, 48, 7, padding=3, groups=48), nn.LayerNorm(48)
        self.up, self.down, self.scale = nn.Linear(48, 192), nn.Linear(192, 48), nn.Parameter(torch.full((48,), 1e-2))

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class _Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(96), nn.LayerNorm(96)
        self.tokens = nn.Sequential(nn.Linear(49, 98), nn.GELU(), nn.Linear(98, 49))
        self.channels = nn.Sequential(nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96))

    def forward(self, x):
        x = x + self.tokens(self.one(x).mT).mT
        return x + self.channels(self.two(x))


class _Experts(nn.Module):
    """Every token through all experts, weighted: what small models do without sorting."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(64, 8)
        self.up, self.down = nn.Parameter(torch.randn(8, 64, 96) / 8), nn.Parameter(torch.randn(8, 96, 64) / 10)

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        dense = torch.zeros(len(x), 8).scatter(1, chosen, weight / weight.sum(-1, keepdim=True))
        return torch.einsum("end,ne->nd", F.silu(x @ self.up) @ self.down, dense)


for _name, _make, _x in (
    ("swiglu", _SwiGlu, (2, 61, 256)),
    ("squeeze", _Squeeze, (2, 24, 28, 28)),
    ("convnext", _ConvNext, (2, 48, 28, 28)),
    ("mixer", _Mixer, (4, 49, 96)),
    ("experts", _Experts, (127, 64)),
):
    module(f"modeling/{_name}", lambda make=_make: make().eval(), T(*_x))
    module(f"modeling/{_name}/train", _make, T(*_x), training=True, tolerance=2e-3)
    if _name in ("swiglu", "mixer"):
        module(f"modeling/{_name}-bf16", lambda make=_make: make().eval(), T(*_x, dtype=bf16), dtype=bf16)
        module(f"modeling/{_name}-autocast", lambda make=_make: make().eval(), T(*_x), autocast=bf16, tolerance=3e-2)
        module(f"modeling/{_name}-bf16/train", _make, T(*_x, dtype=bf16), dtype=bf16, training=True, tolerance=6e-2)
        module(f"modeling/{_name}-autocast/train", _make, T(*_x), autocast=bf16, training=True, tolerance=6e-2)

_run("f16-softmax-dropless", lambda x: x.softmax(-1, dtype=torch.float32).type_as(x), T(4, 97, 97, dtype=f16))
_run(
    "window-partition",
    lambda x: x.view(2, 4, 7, 4, 7, 48).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 48),
    T(2, 28, 28, 48),
)
_run("window-reverse-shift", lambda x: x.view(2, 4, 4, 7, 7, 48).permute(0, 1, 3, 2, 4, 5).reshape(2, 28, 28, 48)
     .roll((3, 3), (1, 2)), T(32, 49, 48))  # fmt: skip
_run("patch-merging", lambda x: torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), -1),
     T(2, 28, 28, 48))  # fmt: skip
_train("logits-z-loss", lambda x, y: F.cross_entropy(x, y) + 1e-4 * torch.logsumexp(x, -1).square().mean(),
       T(128, 1009), T(128, dtype=i64, low=0, high=1008))  # fmt: skip
_train("load-balance", lambda x: 8 * (F.one_hot(x.softmax(-1).topk(2).indices, 8).float().sum(1).mean(0)
       * x.softmax(-1).mean(0)).sum(), T(1021, 8))  # fmt: skip
_train("vq", lambda z, c: (lambda q: F.mse_loss(q.detach(), z) + F.mse_loss(q, z.detach()))(
       c[torch.cdist(z, c).argmin(1)]), T(503, 32), T(128, 32))  # fmt: skip
