"""Variants of attention, of positions and of state spaces, with the sizes of small models."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import T, i64, infer, train

b8 = torch.bool
p = lambda name, f, *x, **o: infer("lm/" + name, f, *x, **o)  # noqa: E731


def rel_shift(x):
    b, h, q, k = x.shape
    return F.pad(x, (1, 0)).view(b, h, k + 1, q)[:, :, 1:].reshape(b, h, q, k)


p(
    "xl-attention",
    lambda q, k, r, u, w: (
        (torch.einsum("bhqd,bhkd->bhqk", q + u, k) + rel_shift(torch.einsum("bhqd,hkd->bhqk", q + w, r)))
        .div(8)
        .softmax(-1)
    ),
    T(2, 4, 48, 32),
    T(2, 4, 48, 32),
    T(4, 48, 32),
    T(4, 1, 32),
    T(4, 1, 32),
)
p(
    "alibi-causal",
    lambda q, k, v: (
        (
            (q @ k.mT) / 8
            + (torch.arange(64) - torch.arange(64)[:, None]) * torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None]
            + torch.full((64, 64), float("-inf")).triu(1)
        ).softmax(-1)
        @ v
    ),
    T(2, 4, 64, 32),
    T(2, 4, 64, 32),
    T(2, 4, 64, 32),
)
p(
    "disentangled",
    lambda c, r, i: c + torch.gather(r, -1, i.expand(2, 4, 48, 48)),
    T(2, 4, 48, 48),
    T(2, 4, 48, 96),
    T(1, 1, 48, 48, dtype=i64, low=0, high=95),
)
p(
    "longformer-band",
    lambda q, k: (
        torch.einsum("bcxd,bcyd->bcxy", q.view(4, 8, 16, 32), F.pad(k, (0, 0, 16, 16)).unfold(1, 48, 16).mT)
        .masked_fill(torch.ones(16, 48).triu(33).bool(), -1e4)
        .softmax(-1)
    ),
    T(4, 128, 32),
    T(4, 128, 32),
)
p(
    "lsh-attention",
    lambda x, r: (lambda o: x.gather(1, o[..., None].expand_as(x)).view(4, 8, 16, 32))(
        (torch.cat((x @ r, -(x @ r)), -1).argmax(-1) * 128 + torch.arange(128)).argsort(-1)
    ),
    T(4, 128, 32),
    T(32, 8),
)
p(
    "performer-map",
    lambda x, w: (
        (
            torch.exp(x @ w / 2.38 - x.square().sum(-1, keepdim=True) / 11.3 - (x @ w).amax((-1, -2), keepdim=True))
            + 1e-4
        )
        / 8
    ),
    T(2, 4, 96, 32),
    T(32, 64),
)
p(
    "linformer",
    lambda q, k, v, e: (q @ (e @ k).mT / 5.6).softmax(-1) @ (e @ v),
    T(2, 4, 128, 32),
    T(2, 4, 128, 32),
    T(2, 4, 128, 32),
    T(24, 128),
)
p(
    "nystrom",
    lambda q, k, v: (
        lambda a, b: (q @ b.mT / 5.6).softmax(-1) @ ((a @ b.mT / 5.6).softmax(-1) @ ((a @ k.mT / 5.6).softmax(-1) @ v))
    )(q.view(2, 4, 16, 8, 32).mean(3), k.view(2, 4, 16, 8, 32).mean(3)),
    T(2, 4, 128, 32),
    T(2, 4, 128, 32),
    T(2, 4, 128, 32),
)
p(
    "retnet-chunk",
    lambda q, k, v, s: (
        lambda d: (
            (q @ k.mT * d) @ v + q @ s * 0.97 ** torch.arange(1, 33)[:, None],
            s * 0.97**32 + (k * 0.97 ** torch.arange(31, -1, -1)[:, None]).mT @ v,
        )
    )(torch.tril(0.97 ** (torch.arange(32)[:, None] - torch.arange(32)).clamp(min=0))),
    T(4, 4, 32, 32),
    T(4, 4, 32, 32),
    T(4, 4, 32, 64),
    T(4, 4, 32, 64),
)


def rwkv6(r, k, v, w, u):
    state = torch.zeros(4, 2, 16, 16)
    out = []
    for t in range(12):
        kv = k[:, :, t, :, None] * v[:, :, t, None]
        out.append((r[:, :, t, None] @ (state + u[..., None] * kv))[:, :, 0])
        state = torch.exp(-torch.exp(w[:, :, t]))[..., None] * state + kv
    return torch.stack(out, 2)


p("rwkv6-loop", rwkv6, T(4, 2, 12, 16), T(4, 2, 12, 16), T(4, 2, 12, 16), T(4, 2, 12, 16), T(2, 16))


def ssd(x, a, b, c):
    s = torch.cumsum(a, -1)
    seg = (s[..., :, None] - s[..., None, :]).masked_fill(~torch.ones(16, 16).tril().bool(), float("-inf"))
    y = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, seg.exp(), x)
    states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, (s[..., -1:] - s).exp(), x)
    return y, states


p("mamba2-ssd", ssd, T(2, 4, 16, 4, 16), T(2, 4, 4, 16, low=-1.0, high=0.0), T(2, 4, 16, 32), T(2, 4, 16, 32))
train(
    "lm/mamba2-ssd-training",
    ssd,
    T(2, 4, 16, 4, 16),
    T(2, 4, 4, 16, low=-1.0, high=0.0),
    T(2, 4, 16, 32),
    T(2, 4, 16, 32),
)


def selective(x, dt, a, b, c):
    h = torch.zeros(4, 64, 8)
    out = []
    for t in range(16):
        h = torch.exp(dt[:, t, :, None] * a) * h + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


p(
    "mamba-scan",
    selective,
    T(4, 16, 64),
    T(4, 16, 64, low=0.0, high=0.1),
    T(64, 8, low=-2.0, high=-0.5),
    T(4, 16, 8),
    T(4, 16, 8),
)
train(
    "lm/mamba-scan-training",
    selective,
    T(4, 16, 64),
    T(4, 16, 64, low=0.0, high=0.1),
    T(64, 8, low=-2.0, high=-0.5),
    T(4, 16, 8),
    T(4, 16, 8),
)
p(
    "s4d-kernel",
    lambda c, a, dt: 2 * torch.einsum("hn,hnl->hl", c, torch.exp((a * dt)[:, :, None] * torch.arange(128))).real,
    T(32, 16, dtype=torch.complex64),
    T(32, 16, dtype=torch.complex64),
    T(32, 1, low=0.0, high=0.001),
)
p(
    "hyena-conv",
    lambda u, k: torch.fft.irfft(torch.fft.rfft(u, 256) * torch.fft.rfft(k, 256), n=256)[..., :128] + u,
    T(4, 32, 128),
    T(32, 128),
)
p(
    "gla-chunk",
    lambda q, k, v, g: (lambda s: ((q * s.exp()) @ (k * (-s).exp()).mT).tril() @ v)(g.cumsum(-2)),
    T(4, 4, 16, 32),
    T(4, 4, 16, 32),
    T(4, 4, 16, 32),
    T(4, 4, 16, 32, low=-0.1, high=0.0),
)


def delta(q, k, v, beta):
    s = torch.zeros(4, 2, 16, 16)
    out = []
    for t in range(12):
        kt = k[:, :, t]
        s = s + kt[..., None] * (beta[:, :, t, None] * (v[:, :, t] - (s * kt[..., None]).sum(-2)))[..., None, :]
        out.append((s * q[:, :, t, :, None]).sum(-2))
    return torch.stack(out, 2)


p(
    "delta-loop",
    delta,
    T(4, 2, 12, 16),
    T(4, 2, 12, 16, low=-0.2, high=0.2),
    T(4, 2, 12, 16),
    T(4, 2, 12, low=0.0, high=1.0),
)
p("associative-scan", lambda a, x: _hillis(a, x), T(8, 64, 64, low=0.5, high=1.0), T(8, 64, 64))


def _hillis(a, x):
    n = 1
    while n < 64:
        x = torch.cat((x[:, :n], x[:, n:] + a[:, n:] * x[:, :-n]), 1)
        a = torch.cat((a[:, :n], a[:, n:] * a[:, :-n]), 1)
        n *= 2
    return x


p(
    "heinsen",
    lambda c, x: (lambda a: (a + (x - a).logcumsumexp(1)).exp())(F.pad(c, (0, 0, 1, 0)).cumsum(1)[:, 1:]),
    T(8, 100, 32, low=-0.5, high=0.0),
    T(8, 100, 32),
)
p(
    "mla-decode",
    lambda q, c, w, wv: (lambda s: torch.einsum("bhk,hkv->bhv", s @ c, wv))(
        (torch.einsum("bhd,hdk->bhk", q, w) @ c.mT / 8).softmax(-1)
    ),
    T(2, 8, 32),
    T(2, 100, 64),
    T(8, 32, 64),
    T(8, 64, 32),
)
p(
    "yarn-frequencies",
    lambda pos: (lambda f, m: torch.cat((pos[:, None] * (f / 4 * (1 - m) + f * m),) * 2, -1).cos())(
        1e4 ** -(torch.arange(0, 64, 2) / 64), 1 - ((torch.arange(32) - 8) / 16.0).clamp(0, 1)
    ),
    torch.arange(200.0),
)
p(
    "mrope",
    lambda q, c, s: (
        q * torch.cat([m[k % 3] for k, m in enumerate(c.split([8, 12, 12] * 2, -1))], -1)
        + torch.cat((-q[..., 32:], q[..., :32]), -1)
        * torch.cat([m[k % 3] for k, m in enumerate(s.split([8, 12, 12] * 2, -1))], -1)
    ),
    T(8, 50, 64),
    T(3, 50, 64),
    T(3, 50, 64),
)
p(
    "rope-2d",
    lambda x, f: (
        lambda a: torch.view_as_real(
            torch.view_as_complex(x.view(2, 4, 64, 16, 2)) * torch.polar(torch.ones_like(a), a)
        ).flatten(3)
    )(torch.cat(((torch.arange(64) // 8)[:, None] * f, (torch.arange(64) % 8)[:, None] * f), -1)),
    T(2, 4, 64, 32),
    T(8),
)
p("nope-scale", lambda q: q * (1 + 0.1 * torch.log1p((torch.arange(64.0) / 16).floor()))[:, None], T(2, 8, 64, 32))
p(
    "sinks",
    lambda q, k, v, s: (
        lambda logits: torch.cat((logits, s.view(1, 4, 1, 1).expand(2, 4, 48, 1)), -1).softmax(-1)[..., :-1] @ v
    )(q @ k.mT / 6),
    T(2, 4, 48, 32),
    T(2, 4, 48, 32),
    T(2, 4, 48, 32),
    T(4),
)
p(
    "chunked-mask",
    lambda m: (lambda i: m[:, None, None] & (i[:, None] >= i) & (i[:, None] // 16 == i // 16))(torch.arange(64)),
    T(4, 64, dtype=b8),
)
p(
    "prefix-lm-mask",
    lambda n: torch.where(
        (torch.arange(64)[:, None] >= torch.arange(64)) | (torch.arange(64) < n[:, None, None]),
        0.0,
        torch.finfo(torch.float32).min,
    )[:, None],
    T(8, dtype=i64, low=1, high=64),
)
p(
    "document-mask",
    lambda d: (d[:, :, None] == d[:, None]) & torch.ones(128, 128).tril().bool(),
    T(4, 128, dtype=i64, low=0, high=4),
)
p(
    "block-sparse",
    lambda s, k: (
        s.view(2, 4, 8, 16, 8, 16).masked_fill(~k[:, :, None, :, None], float("-inf")).view(2, 4, 128, 128).softmax(-1)
    ),
    T(2, 4, 128, 128),
    torch.ones(4, 8, 8).tril().bool(),
)
