"""Pieces of language models' code, as their authors write them: positions, attention, recurrences."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, bf16, i64, infer, train

# Positions


def rotate_half(x: Any) -> Any:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def rotary_llama(q, k, inv, positions):
    freqs = positions[:, :, None].float() * inv[None, None, :]
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = emb.cos()[:, None], emb.sin()[:, None]
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def rotary_pairs(x, inv):
    t = torch.arange(x.shape[1], dtype=inv.dtype)
    angle = torch.outer(t, inv)
    sin, cos = angle.sin()[None, :, None, :], angle.cos()[None, :, None, :]
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def rotary_partial(x, cos, sin):
    turned, rest = x[..., :32], x[..., 32:]
    return torch.cat((turned * cos + rotate_half(turned) * sin, rest), -1)


def rotary_complex(x, freqs):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs[None, :, None]).flatten(3).type_as(x)


def ntk(positions, base: float = 10000.0):
    length = positions.max() + 1
    scaled = base * (2.0 * length / 64 - 1).clamp(min=1.0) ** (32 / 30)
    inv = 1.0 / (scaled ** (torch.arange(0, 32, 2).float() / 32))
    return torch.outer(positions.float(), inv).cos()


def pixtral(height, width, inv):
    h, w = torch.arange(height), torch.arange(width)
    fh, fw = torch.outer(h, inv[::2]).float(), torch.outer(w, inv[1::2]).float()
    both = torch.cat((fh[:, None].repeat(1, width, 1), fw[None].repeat(height, 1, 1)), -1)
    both = both.reshape(-1, inv.numel())
    return torch.cat((both, both), -1).cos()


def mrope(cos, sin, q):
    sections = [8, 12, 12]
    parts = [m[i % 3] for i, m in enumerate(cos.split(sections, dim=-1))]
    others = [m[i % 3] for i, m in enumerate(sin.split(sections, dim=-1))]
    c, s = torch.cat(parts, -1)[:, None], torch.cat(others, -1)[:, None]
    return q * torch.cat((c, c), -1) + rotate_half(q) * torch.cat((s, s), -1)


for name, dtype in (("f32", torch.float32), ("bf16", bf16)):
    heads = T(2, 8, 64, 64, dtype=dtype)
    infer(
        f"extract/rotary-llama/{name}",
        rotary_llama,
        heads,
        T(2, 2, 64, 64, dtype=dtype),
        T(32),
        T(2, 64, dtype=i64, low=0, high=63),
    )
    infer(f"extract/rotary-partial/{name}", rotary_partial, heads, T(64, 32, dtype=dtype), T(64, 32, dtype=dtype))
    infer(
        f"extract/rotary-complex/{name}", rotary_complex, T(2, 64, 8, 64, dtype=dtype), T(64, 32, dtype=torch.complex64)
    )
infer("extract/rotary-pairs", rotary_pairs, T(2, 64, 8, 64), T(32))
infer("extract/rotary-ntk", ntk, T(128, dtype=i64, low=0, high=127))
infer("extract/rotary-pixtral", lambda inv: pixtral(16, 16, inv), T(32))
infer("extract/rotary-sections", mrope, T(3, 2, 64, 32), T(3, 2, 64, 32), T(2, 8, 64, 64))
train(
    "extract/rotary-llama-training",
    lambda q, k, i: rotary_llama(q, k, i, torch.arange(64)[None]),
    T(2, 8, 64, 64),
    T(2, 2, 64, 64),
    T(32),
)


def interpolate_positions(table, h: int, w: int):
    cls, patches = table[:, :1], table[:, 1:]
    side = int(math.sqrt(patches.shape[1]))
    grid = patches.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(h, w), mode="bicubic", align_corners=False)
    return torch.cat((cls, grid.permute(0, 2, 3, 1).reshape(1, h * w, -1)), 1)


infer("extract/vit-positions-bicubic", lambda t: interpolate_positions(t, 16, 16), T(1, 197, 64))


def fourier_positions(x, bands):
    angle = x[..., None] * bands * math.pi
    return torch.cat((x, angle.sin().flatten(-2), angle.cos().flatten(-2)), -1)


infer("extract/perceiver-fourier", fourier_positions, T(2, 256, 2), T(32))

# Attention


def sinks(q, k, v, sink, mask):
    scores = q @ k.transpose(-1, -2) * 0.125 + mask
    scores = torch.cat((scores, sink.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], -1)), -1)
    scores = scores - scores.max(-1, keepdim=True).values
    return scores.softmax(-1)[..., :-1] @ v


def gemma(q, k, v):
    scores = torch.tanh((q @ k.transpose(-1, -2)) * 0.0625 / 50.0) * 50.0
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril().triu(-31)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def differential(q1, k1, q2, k2, v, lam):
    a = (q1 @ k1.transpose(-1, -2) * 0.125).softmax(-1)
    b = (q2 @ k2.transpose(-1, -2) * 0.125).softmax(-1)
    out = (a - lam * b) @ v
    return out * torch.rsqrt(out.square().mean(-1, keepdim=True) + 1e-5)


def relative_key(q, k, table):
    n = q.shape[2]
    distance = torch.arange(n)[:, None] - torch.arange(n)[None] + n - 1
    return q @ k.transpose(-1, -2) + torch.einsum("bhld,lrd->bhlr", q, table[distance])


def fnet(x):
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


def performer(q, k, v, w):
    def features(x):
        return torch.exp(x @ w - x.square().sum(-1, keepdim=True) / 2 - 1.0) + 1e-4

    q, k = features(q * 0.35), features(k * 0.35)
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2)[..., None])


def landmarks(q, k, v):
    b, h, n, d = q.shape
    ql, kl = q.reshape(b, h, 8, n // 8, d).mean(3), k.reshape(b, h, 8, n // 8, d).mean(3)
    a = (q @ kl.transpose(-1, -2)).softmax(-1)
    m = (ql @ kl.transpose(-1, -2)).softmax(-1)
    c = (ql @ k.transpose(-1, -2)).softmax(-1)
    z = m.transpose(-1, -2) / m.sum(-2).max()
    eye = torch.eye(8)
    for _ in range(3):
        mz = m @ z
        z = 0.25 * z @ (13 * eye - mz @ (15 * eye - mz @ (7 * eye - mz)))
    return a @ z @ (c @ v)


def chunked_window(q, k):
    b, n, d = q.shape
    w = 16

    def chunk(x):
        return x.as_strided((b, n // w - 1, 2 * w, d), (n * d, w * d, d, 1))

    return torch.einsum("bcxd,bcyd->bcxy", chunk(q), chunk(k))


heads = T(2, 4, 64, 32)
infer("extract/attention-sinks", sinks, heads, heads, heads, T(4), T(64, 64))
infer("extract/attention-softcap-window", gemma, heads, heads, heads)
infer("extract/attention-softcap-bf16", gemma, *[T(2, 4, 64, 32, dtype=bf16)] * 3)
infer("extract/attention-differential", differential, *[heads] * 5, T())
infer("extract/attention-relative-key", relative_key, heads, heads, T(127, 32))
infer("extract/fnet", fnet, T(2, 64, 64))
infer("extract/performer", performer, *[T(2, 4, 128, 32)] * 3, T(32, 64))
infer("extract/nystrom", landmarks, heads, heads, heads)
infer("extract/longformer-chunks", chunked_window, T(2, 128, 32), T(2, 128, 32))
train("extract/attention-softcap-training", lambda q, k, v: gemma(q, k, v).sum(), heads, heads, heads)


def causal_mask(attention, length: int):
    base = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
    padding = (1.0 - attention[:, None, None, :].float()) * torch.finfo(torch.float32).min
    return (base[None, None] + padding).clamp(min=torch.finfo(torch.float32).min)


def packed_mask(positions):
    segment = (positions == 0).cumsum(-1)
    same = segment[:, :, None] == segment[:, None, :]
    return same & torch.ones(same.shape[-1], same.shape[-1], dtype=torch.bool).tril()


infer("extract/mask-causal-padding", lambda a: causal_mask(a, 64), T(4, 64, dtype=i64, low=0, high=1))
infer("extract/mask-packed", packed_mask, T(4, 128, dtype=i64, low=0, high=6))

# State spaces and recurrences


def mamba_scan(u, delta, a, b, c, d):
    decay = torch.exp(torch.einsum("bln,ns->blns", F.softplus(delta), -torch.exp(a)))
    fed = torch.einsum("bln,bls,bln->blns", F.softplus(delta), b, u)
    state = torch.zeros(u.shape[0], u.shape[2], a.shape[1])
    out = []
    for t in range(u.shape[1]):
        state = decay[:, t] * state + fed[:, t]
        out.append(torch.einsum("bns,bs->bn", state, c[:, t]))
    return torch.stack(out, 1) + u * d


def segsum(x):
    t = x.shape[-1]
    x = x[..., None].expand(*x.shape, t)
    below = torch.tril(torch.ones(t, t, dtype=torch.bool), -1)
    s = torch.cumsum(x.masked_fill(~below, 0), -2)
    return s.masked_fill(~torch.tril(torch.ones(t, t, dtype=torch.bool)), -torch.inf)


def wkv(time_decay, time_first, k, v):
    num = den = torch.zeros_like(k[:, 0])
    most = torch.full_like(num, -1e38)
    out = []
    for t in range(k.shape[1]):
        now, value = k[:, t], v[:, t]
        top = torch.maximum(most, now + time_first)
        e1, e2 = torch.exp(most - top), torch.exp(now + time_first - top)
        out.append((e1 * num + e2 * value) / (e1 * den + e2))
        top = torch.maximum(most + time_decay, now)
        e1, e2 = torch.exp(most + time_decay - top), torch.exp(now - top)
        num, den, most = e1 * num + e2 * value, e1 * den + e2, top
    return torch.stack(out, 1)


def rg_lru(x, a, gate_in, gate_a):
    log_a = -8.0 * torch.sigmoid(gate_a) * F.softplus(a)
    decay = log_a.exp()
    x = x * torch.sigmoid(gate_in) * torch.sqrt(1 - (2 * log_a).exp())
    h = torch.zeros_like(x[:, 0])
    out = []
    for t in range(x.shape[1]):
        h = decay[:, t] * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1)


def delta_chunk(q, k, v, beta):
    k = F.normalize(k, dim=-1)
    kb, vb = k * beta[..., None], v * beta[..., None]
    n = k.shape[-2]
    mask = torch.triu(torch.ones(n, n, dtype=torch.bool))
    inverse = -(kb @ k.transpose(-1, -2)).masked_fill(mask, 0)
    for i in range(1, n):
        row = inverse[..., i, :i].clone()
        inverse[..., i, :i] = row + (row[..., None] * inverse[..., :i, :i].clone()).sum(-2)
    inverse = inverse + torch.eye(n)
    return (q @ k.transpose(-1, -2)).tril() @ (inverse @ vb)


def xlstm_gates(i, f, z, o, c, n, m):
    log_f = F.logsigmoid(f)
    top = torch.maximum(log_f + m, i)
    fi, ff = torch.exp(i - top), torch.exp(log_f + m - top)
    c, n = ff * c + fi * torch.tanh(z), ff * n + fi
    return torch.sigmoid(o) * c / n.clamp(min=1e-6), c, n, top


wide = T(2, 8, 64)
infer("extract/mamba-scan", mamba_scan, wide, wide, T(64, 16), T(2, 8, 16), T(2, 8, 16), T(64))
train(
    "extract/mamba-scan-training",
    lambda *a: mamba_scan(*a).sum(),
    wide,
    wide,
    T(64, 16),
    T(2, 8, 16),
    T(2, 8, 16),
    T(64),
)
infer("extract/segment-sum", segsum, T(2, 4, 4, 32))
infer("extract/rwkv-wkv", wkv, T(64), T(64), T(2, 16, 64), T(2, 16, 64))
train("extract/rwkv-wkv-training", lambda *a: wkv(*a).sum(), T(64), T(64), T(2, 8, 64), T(2, 8, 64))
infer("extract/rg-lru", rg_lru, T(2, 16, 64), T(64), T(2, 16, 64), T(2, 16, 64))
infer("extract/gated-delta-chunk", delta_chunk, *[T(2, 4, 8, 16)] * 3, T(2, 4, 8, low=0, high=1))
infer("extract/xlstm-gates", xlstm_gates, *[T(8, 256)] * 7)
infer(
    "extract/mamba-conv",
    lambda x, w, b: F.silu(F.conv1d(x, w, b, padding=3, groups=128)[..., :64]),
    T(2, 128, 64),
    T(128, 1, 4),
    T(128),
)
infer(
    "extract/mamba-conv-state",
    lambda s, x, w: F.silu((torch.cat((s[..., 1:], x[..., None]), -1) * w).sum(-1)),
    T(2, 128, 4),
    T(2, 128),
    T(128, 4),
)
