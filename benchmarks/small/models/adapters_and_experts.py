"""Experts, adapters, quantized layers, pieces of several kinds of models; autocast and symbolic sizes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i64, infer, module, u8

b8 = torch.bool
p = lambda name, f, *x, **o: infer("lm/" + name, f, *x, **o)  # noqa: E731

p(
    "expert-choice",
    lambda x, w: (lambda g, i: torch.zeros_like(x).index_add(0, i.flatten(), x[i.flatten()] * g.flatten()[:, None]))(
        *(x @ w).softmax(-1).T.topk(16, -1)
    ),
    T(128, 64),
    T(64, 8),
)
p(
    "soft-moe",
    lambda x, f, w: (lambda logits: logits.softmax(-1) @ torch.einsum("bsd,sdf->bsf", logits.softmax(1).mT @ x, w))(
        x @ f
    ),
    T(2, 64, 32),
    T(32, 8),
    T(8, 32, 32),
)
p("moe-permute", lambda x, e: x[e.argsort(stable=True) // 2], T(100, 64), T(200, dtype=i64, low=0, high=7))
p("moe-capacity", lambda g: (lambda m: m * ((m.cumsum(0) - 1) < 20))(F.one_hot(g.argmax(-1), 8)), T(200, 8))
p(
    "router-z",
    lambda g: (
        g.logsumexp(-1).square().mean(),
        g.softmax(-1).mean(0) @ F.one_hot(g.argmax(-1), 16).float().mean(0) * 16,
    ),
    T(500, 16),
)
p(
    "grouped-topk",
    lambda g: (
        lambda s: (
            s.view(64, 8, 8)
            .masked_fill(
                ~torch.zeros(64, 8, dtype=b8).scatter(1, s.view(64, 8, 8).topk(2)[0].sum(-1).topk(3)[1], True)[
                    :, :, None
                ],
                0.0,
            )
            .flatten(1)
            .topk(6)
        )
    )(g.sigmoid()),
    T(64, 64),
)
p(
    "canine-hash",
    lambda ids: torch.stack([((ids + 1) * k) % 512 for k in (31, 43, 59, 61)], -1),
    T(4, 200, dtype=i64, low=0, high=60000),
)
p("byte-patches", lambda x, e: (e[x] * 1.0).view(4, 32, -1), T(4, 128, dtype=i64, low=0, high=255), T(256, 24))
p(
    "hubert-pos-conv",
    lambda x, w: F.gelu(F.conv1d(x.mT, w, padding=8, groups=4)[..., :-1]).mT + x,
    T(2, 100, 32),
    T(32, 8, 16),
)
p(
    "conformer-shift",
    lambda x: F.pad(x, (1, 0)).view(2, 4, -1, 50)[:, :, 1:].view(2, 4, 50, 99)[..., :50] * 0.1,
    T(2, 4, 50, 99),
)
p(
    "whisper-scores",
    lambda logits, m: (
        lambda t: torch.where(
            (t[:, 900:].logsumexp(-1) > t[:, :900].amax(-1))[:, None] & (torch.arange(1000) < 900), float("-inf"), t
        )
    )(logits.masked_fill(m, float("-inf")).log_softmax(-1)),
    T(4, 1000),
    T(1000, dtype=b8),
)
p(
    "layoutlm-boxes",
    lambda b, x, y, h, w: (
        x[b[..., 0]]
        + y[b[..., 1]]
        + x[b[..., 2]]
        + y[b[..., 3]]
        + h[b[..., 3] - b[..., 1].clamp(max=0)]
        + w[b[..., 2] - b[..., 0].clamp(max=0)]
    ),
    T(2, 100, 4, dtype=i64, low=0, high=499),
    T(500, 32),
    T(500, 32),
    T(500, 32),
    T(500, 32),
)
p(
    "tapas-reduced",
    lambda x, r, c: torch.zeros(64 * 32, 32).scatter_reduce(
        0, (r * 32 + c)[:, None].expand(-1, 32), x, "mean", include_self=False
    )[(r * 32 + c)],
    T(400, 32),
    T(400, dtype=i64, low=0, high=63),
    T(400, dtype=i64, low=0, high=31),
)
p(
    "clip-eos",
    lambda h, ids: F.normalize(h[torch.arange(8), ids.argmax(-1)], dim=-1),
    T(8, 77, 64),
    T(8, 77, dtype=i64, low=0, high=1000),
)
p("siglip-head", lambda x, q, w: (lambda a: a.softmax(-1) @ x)(q @ (x @ w).mT / 8), T(8, 64, 64), T(1, 64), T(64, 64))
p("dinov2-scale", lambda x, g, y: x + g * F.gelu(y), T(4, 65, 96), T(96), T(4, 65, 96))
p(
    "interpolate-positions",
    lambda e: torch.cat(
        (
            e[:, :1],
            F.interpolate(e[:, 1:].view(1, 14, 14, 48).permute(0, 3, 1, 2), (16, 20), mode="bicubic").flatten(2).mT,
        ),
        1,
    ),
    T(1, 197, 48),
)
p(
    "sam-relative",
    lambda a, q, rh, rw: (
        a.view(4, 12, 12, 12, 12)
        + torch.einsum("bhwc,hkc->bhwk", q, rh)[..., None]
        + torch.einsum("bhwc,wkc->bhwk", q, rw)[:, :, :, None]
    ).view(4, 144, 144),
    T(4, 144, 144),
    T(4, 12, 12, 16),
    T(12, 12, 16),
    T(12, 12, 16),
)
p(
    "beit-bias",
    lambda t, i: t[i.flatten()].view(65, 65, 4).permute(2, 0, 1).contiguous().unsqueeze(0),
    T(732, 4),
    T(65, 65, dtype=i64, low=0, high=731),
)
p(
    "token-merge",
    lambda x: (
        lambda a, b, s: (
            lambda m, n: b.scatter_reduce(
                1,
                n.gather(1, m.argsort(1, descending=True)[:, :8])[..., None].expand(-1, -1, 32),
                a.gather(1, m.argsort(1, descending=True)[:, :8, None].expand(-1, -1, 32)),
                "mean",
            )
        )(*s.max(-1))
    )(x[:, ::2], x[:, 1::2], F.normalize(x, dim=-1)[:, ::2] @ F.normalize(x, dim=-1)[:, 1::2].mT),
    T(4, 64, 32),
)
p("patch-dropout", lambda x, n: x.gather(1, n.argsort(1)[:, :32, None].expand(-1, -1, 48)), T(8, 64, 48), T(8, 64))
p(
    "mae-restore",
    lambda x, m, o: torch.cat((x, m.expand(8, 32, 48)), 1).gather(1, o[..., None].expand(-1, -1, 48)),
    T(8, 32, 48),
    T(1, 1, 48),
    torch.stack([torch.randperm(64) for _ in range(8)]),
)
p(
    "perceiver-fourier",
    lambda x: torch.cat(
        (x, *(f(math.pi * x[..., None] * torch.linspace(1, 16, 12)).flatten(2) for f in (torch.sin, torch.cos))), -1
    ),
    T(2, 200, 2, low=-1.0, high=1.0),
)
p("mimi-rvq", lambda x, c: _rvq(x, c), T(200, 32), T(4, 64, 32))


def _rvq(x, c):
    total = torch.zeros_like(x)
    codes = []
    for k in range(4):
        i = torch.cdist(x - total, c[k]).argmin(-1)
        total = total + c[k][i]
        codes.append(i)
    return total, torch.stack(codes, -1)


p("snake", lambda x, a: x + (1 / (a + 1e-9)) * torch.sin(a * x).pow(2), T(2, 64, 500), T(1, 64, 1, low=0.1, high=1.0))
p(
    "vits-coupling",
    lambda x, m, s: torch.cat((x[:, :32], m + x[:, 32:] * s.exp()), 1).flip(1),
    T(2, 64, 200),
    T(2, 32, 200),
    T(2, 32, 200, low=-0.5, high=0.5),
)
p(
    "duration-align",
    lambda d: (
        lambda c: (
            (torch.arange(100) < c[..., None]).float()
            - F.pad((torch.arange(100) < c[..., None]).float(), (0, 0, 1, 0))[:, :-1]
        )
    )(d.cumsum(1)),
    T(4, 30, dtype=i64, low=0, high=5),
)
p(
    "rectified-flow",
    lambda x, v, t, s: x + (s - t)[:, None, None, None] * v,
    T(4, 4, 32, 32),
    T(4, 4, 32, 32),
    T(4),
    T(4),
)
p(
    "dpm-step",
    lambda x, a, b, s: s[0] * x - s[1] * torch.expm1(-s[2]) * (a + 0.5 * (a - b) / s[3]),
    T(2, 4, 64, 64),
    T(2, 4, 64, 64),
    T(2, 4, 64, 64),
    T(4, low=0.5, high=1.0),
)
p(
    "adaln-six",
    lambda x, c, w: (lambda m: x + m[2][:, None] * (F.layer_norm(x, (64,)) * (1 + m[1][:, None]) + m[0][:, None]))(
        (F.silu(c) @ w).chunk(6, -1)
    ),
    T(4, 64, 64),
    T(4, 64),
    T(64, 384),
)
p("unpatchify", lambda x: torch.einsum("nhwpqc->nchpwq", x.view(4, 8, 8, 4, 4, 3)).reshape(4, 3, 32, 32), T(4, 64, 48))
p(
    "lora-many",
    lambda x, w, a, b, i: x @ w + torch.einsum("bsr,bro->bso", torch.einsum("bsd,bdr->bsr", x, a[i]), b[i]) * 2,
    T(8, 16, 64),
    T(64, 64),
    T(5, 64, 4),
    T(5, 4, 64),
    T(8, dtype=i64, low=0, high=4),
)
p(
    "dora",
    lambda x, w, a, b, m: F.linear(x, (w + b @ a) * (m / (w + b @ a).norm(dim=1, keepdim=True))),
    T(64, 64),
    T(96, 64),
    T(4, 64),
    T(96, 4),
    T(96, 1),
)
p("loha", lambda x, a, b, c, d: x @ ((a @ b) * (c @ d)), T(64, 96), T(96, 4), T(4, 96), T(96, 4), T(4, 96))
p(
    "oft",
    lambda x, s: torch.einsum(
        "ngk,gkl->ngl", x.view(100, 8, 12), torch.linalg.solve(torch.eye(12) + (s - s.mT), torch.eye(12) - (s - s.mT))
    ).flatten(1),
    T(100, 96),
    T(8, 12, 12, low=-0.1, high=0.1),
)
p("ia3", lambda x, w, logits: F.linear(x, w) * logits, T(64, 64), T(192, 64), T(192))
p(
    "prefix-kv",
    lambda q, k, v, pk, pv: (
        (q @ torch.cat((pk.expand(2, -1, -1, -1), k), 2).mT / 6).softmax(-1)
        @ torch.cat((pv.expand(2, -1, -1, -1), v), 2)
    ),
    T(2, 4, 32, 32),
    T(2, 4, 32, 32),
    T(2, 4, 32, 32),
    T(1, 4, 8, 32),
    T(1, 4, 8, 32),
)
p(
    "kv-int8-append",
    lambda c, s, k, n: (
        c.index_copy(2, n, (k / (k.abs().amax(-1, keepdim=True) / 127)).round().to(i8)),
        s.index_copy(2, n, k.abs().amax(-1, keepdim=True) / 127),
    ),
    T(2, 4, 64, 32, dtype=i8),
    T(2, 4, 64, 1),
    T(2, 4, 1, 32),
    torch.tensor([17]),
)
p(
    "awq-linear",
    lambda x, w, s, z: x @ ((w.view(8, 16, 96).float() - z) * s).view(128, 96),
    T(4, 128),
    T(128, 96, dtype=u8, low=0, high=15),
    T(8, 1, 96),
    T(8, 1, 96),
)
p(
    "smooth-int8",
    lambda x, w, s: (lambda a: ((x / a).round().clamp(-127, 127).to(i8).int() @ w.int().T).float() * a * s)(
        x.abs().amax(-1, keepdim=True) / 127
    ),
    T(32, 128),
    T(96, 128, dtype=i8),
    T(96),
)
p(
    "bitnet",
    lambda x, w: (lambda a, b: F.linear((x * a).round().clamp(-128, 127) / a, (w * b).round().clamp(-1, 1) / b))(
        127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5), 1 / w.abs().mean().clamp(min=1e-5)
    ),
    T(32, 128),
    T(96, 128),
)
p(
    "fake-quant-channels",
    lambda w, s, z: torch.fake_quantize_per_channel_affine(w, s, z, 0, -128, 127),
    T(64, 300),
    T(64, low=0.01, high=0.1),
    torch.zeros(64, dtype=torch.int32),
)
p(
    "mx-block",
    lambda x: (
        lambda b: (lambda e: (b / e * 4).round().clamp(-6, 6) * e / 4)(
            torch.exp2(b.abs().amax(-1, keepdim=True).clamp(min=1e-6).log2().floor())
        )
    )(x.view(-1, 32)).view_as(x),
    T(64, 512),
)
p("hadamard-rotate", lambda x, h: (x.view(64, 4, 32) @ h).mT.reshape(64, 128), T(64, 128), T(32, 32))
p("gptq-step", lambda w, h, q: w - (w[:, :1] - q) / h[0, 0] * h[:1], T(96, 64), T(64, 64), T(96, 1))

# Under autocast, and with symbolic sizes.
module("lm/autocast-block", lambda: _Block(), T(2, 32, 64), autocast=bf16)
module("lm/autocast-block-training", lambda: _Block(), T(2, 32, 64), training=True, autocast=bf16)
module(
    "lm/autocast-f16-mlp",
    lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64)),
    T(64, 64),
    autocast=f16,
)
module("lm/symbolic-block", lambda: _Block(), T(2, 32, 64), dynamic=True)
module("lm/symbolic-block-training", lambda: _Block(), T(2, 32, 64), training=True, dynamic=True)


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LayerNorm(64), nn.RMSNorm(64)
        self.qkv, self.out = nn.Linear(64, 192, bias=False), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(128, 64)

    def forward(self, x):
        q, k, v = self.qkv(self.a(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        u, g = self.up(self.b(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


y = lambda name, f, *x, **o: infer("lm/symbolic-" + name, f, *x, dynamic=True, **o)  # noqa: E731
y(
    "alibi",
    lambda s, m: (s + (torch.arange(s.shape[-1]) - s.shape[-1] + 1) * m[:, None, None]).softmax(-1),
    T(2, 4, 40, 40),
    T(4),
)
y(
    "mean-pool",
    lambda h, m: (h * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-9),
    T(8, 50, 96),
    T(8, 50, low=0.0, high=1.0),
)
y("pad-multiple", lambda x: F.pad(x, (0, 0, 0, -x.shape[1] % 16)).unflatten(1, (-1, 16)).mean(2), T(4, 50, 64))
y(
    "grid",
    lambda x: (
        torch.stack(
            torch.meshgrid(torch.arange(x.shape[2]) / x.shape[2], torch.arange(x.shape[3]) / x.shape[3], indexing="ij")
        )
        + x[:, :2]
    ),
    T(2, 3, 40, 50),
)
y(
    "windows",
    lambda x: x.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3).flatten(0, 2).reshape(-1, 64, 16),
    T(2, 32, 40, 16),
)
y("resize", lambda x: F.interpolate(x, (x.shape[2] * 2, x.shape[3] * 2), mode="bilinear"), T(1, 8, 20, 24))
y("top-rows", lambda x: x.topk(x.shape[1] // 4, 1).values.mean(1), T(32, 200))
y("conv", lambda x, w: F.relu(F.conv1d(x, w, padding=1)).amax(-1), T(4, 16, 100), T(32, 16, 3))
y(
    "ngrams",
    lambda x: x.unfold(1, 3, 1).flatten(0, 1) @ torch.tensor([1, 100, 10000]),
    T(8, 60, dtype=i64, low=0, high=99),
)
y(
    "cross-entropy",
    lambda logits, t: F.cross_entropy(logits[:, :-1].flatten(0, 1), t[:, 1:].flatten(), ignore_index=0),
    T(4, 30, 200),
    T(4, 30, dtype=i64, low=0, high=199),
)
y("pairwise", lambda a, b: (a[:, None] - b).abs().sum(-1).softmax(-1) @ b, T(60, 24), T(50, 24))
y(
    "rope",
    lambda x: (
        lambda a: torch.cat(
            (x[..., :16] * a.cos() - x[..., 16:] * a.sin(), x[..., 16:] * a.cos() + x[..., :16] * a.sin()), -1
        )
    )(torch.arange(x.shape[2])[:, None] * 1e4 ** -(torch.arange(16) / 16)),
    T(2, 4, 50, 32),
)
y(
    "segment-sum",
    lambda x, i: x.new_zeros(int(x.shape[0]) // 5, x.shape[1]).index_add(0, i, x),
    T(200, 32),
    T(200, dtype=i64, low=0, high=39),
)
