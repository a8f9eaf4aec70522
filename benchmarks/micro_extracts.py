"""Pieces of models' code, as their authors write them: positions, attention, scans, windows, heads, experts, sampling."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from micro_case import T, bf16, case, f16, i8, i64, infer, module, train, u8
from torch import nn

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
    infer(f"extract/rotary-llama/{name}", rotary_llama, heads, T(2, 2, 64, 64, dtype=dtype), T(32), T(2, 64, dtype=i64, low=0, high=63))
    infer(f"extract/rotary-partial/{name}", rotary_partial, heads, T(64, 32, dtype=dtype), T(64, 32, dtype=dtype))
    infer(f"extract/rotary-complex/{name}", rotary_complex, T(2, 64, 8, 64, dtype=dtype), T(64, 32, dtype=torch.complex64))
infer("extract/rotary-pairs", rotary_pairs, T(2, 64, 8, 64), T(32))
infer("extract/rotary-ntk", ntk, T(128, dtype=i64, low=0, high=127))
infer("extract/rotary-pixtral", lambda inv: pixtral(16, 16, inv), T(32))
infer("extract/rotary-sections", mrope, T(3, 2, 64, 32), T(3, 2, 64, 32), T(2, 8, 64, 64))
train("extract/rotary-llama-training", lambda q, k, i: rotary_llama(q, k, i, torch.arange(64)[None]), T(2, 8, 64, 64), T(2, 2, 64, 64), T(32))


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
train("extract/mamba-scan-training", lambda *a: mamba_scan(*a).sum(), wide, wide, T(64, 16), T(2, 8, 16), T(2, 8, 16), T(64))
infer("extract/segment-sum", segsum, T(2, 4, 4, 32))
infer("extract/rwkv-wkv", wkv, T(64), T(64), T(2, 16, 64), T(2, 16, 64))
train("extract/rwkv-wkv-training", lambda *a: wkv(*a).sum(), T(64), T(64), T(2, 8, 64), T(2, 8, 64))
infer("extract/rg-lru", rg_lru, T(2, 16, 64), T(64), T(2, 16, 64), T(2, 16, 64))
infer("extract/gated-delta-chunk", delta_chunk, *[T(2, 4, 8, 16)] * 3, T(2, 4, 8, low=0, high=1))
infer("extract/xlstm-gates", xlstm_gates, *[T(8, 256)] * 7)
infer("extract/mamba-conv", lambda x, w, b: F.silu(F.conv1d(x, w, b, padding=3, groups=128)[..., :64]), T(2, 128, 64), T(128, 1, 4), T(128))
infer("extract/mamba-conv-state", lambda s, x, w: F.silu((torch.cat((s[..., 1:], x[..., None]), -1) * w).sum(-1)), T(2, 128, 4), T(2, 128), T(128, 4))

# Windows of images, and heads


def maxvit_grid(x):
    b, h, w, c = x.shape
    g = 7
    x = x.view(b, g, h // g, g, w // g, c)
    return x.permute(0, 2, 4, 1, 3, 5).contiguous().view(-1, g * g, c)


def shifted_mask(h: int, w: int, window: int, shift: int):
    image = torch.zeros(1, h, w, 1)
    count = 0
    for rows in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
        for columns in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
            image[:, rows, columns, :] = count
            count += 1
    image = image.view(1, h // window, window, w // window, window, 1).permute(0, 1, 3, 2, 4, 5)
    flat = image.reshape(-1, window * window)
    apart = flat[:, None] - flat[:, :, None]
    return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


def patch_merging(x, norm, weight):
    b, h, w, c = x.shape
    x = torch.cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1).view(b, -1, 4 * c)
    return F.linear(F.layer_norm(x, (4 * c,), norm), weight)


def swin_attention(x, qkv, table, index):
    n, length, c = x.shape
    q, k, v = F.linear(x, qkv).reshape(n, length, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    bias = table[index.view(-1)].view(length, length, -1).permute(2, 0, 1)
    return ((q @ k.transpose(-2, -1)) * 10 + 16 * torch.sigmoid(bias)[None]).softmax(-1) @ v


def segformer_reduce(x, weight, norm):
    b, n, c = x.shape
    x = x.permute(0, 2, 1).reshape(b, c, 16, 16)
    x = F.conv2d(x, weight, stride=4)
    return F.layer_norm(x.reshape(b, c, -1).permute(0, 2, 1), (c,), norm)


def mix_ffn(x, up, conv, down):
    b, n, _ = x.shape
    x = F.linear(x, up)
    c = x.shape[-1]
    x = F.conv2d(x.transpose(1, 2).view(b, c, 16, 16), conv, padding=1, groups=c).flatten(2).transpose(1, 2)
    return F.linear(F.gelu(x), down)


def segformer_head(a, b, c, weights):
    parts = [F.linear(x.flatten(2).transpose(1, 2), w).transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:]) for x, w in zip((a, b, c), weights, strict=True)]
    size = a.shape[2:]
    return torch.cat([F.interpolate(p, size=size, mode="bilinear", align_corners=False) for p in parts], 1)


def deformable(value, locations, weights):
    b, _, heads, dim = value.shape
    queries, points = locations.shape[1], locations.shape[4]
    sizes = ((16, 16), (8, 8))
    grids = 2 * locations - 1
    sampled = []
    for level, part in enumerate(value.split([h * w for h, w in sizes], 1)):
        h, w = sizes[level]
        part = part.flatten(2).transpose(1, 2).reshape(b * heads, dim, h, w)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        sampled.append(F.grid_sample(part, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
    weights = weights.transpose(1, 2).reshape(b * heads, 1, queries, 2 * points)
    out = (torch.stack(sampled, -2).flatten(-2) * weights).sum(-1).view(b, heads * dim, queries)
    return out.transpose(1, 2).contiguous()


def point_sample(x, points):
    return F.grid_sample(x, 2.0 * points[:, :, None] - 1.0, align_corners=False).squeeze(3)


def mask_attention(masks, size: int):
    masks = F.interpolate(masks, size=(size, size), mode="bilinear", align_corners=False)
    masks = (masks.sigmoid().flatten(2)[:, None].repeat(1, 4, 1, 1).flatten(0, 1) < 0.5).bool()
    return masks & (masks.sum(-1, keepdim=True) != masks.shape[-1])


def panoptic(classes, masks):
    scores, labels = classes.softmax(-1)[..., :-1].max(-1)
    weighted = scores[..., None, None] * masks.sigmoid()
    return weighted.argmax(1), labels


def maskformer_semantic(classes, masks):
    return torch.einsum("bqc,bqhw->bchw", classes.softmax(-1)[..., :-1], masks.sigmoid())


infer("extract/maxvit-grid", maxvit_grid, T(2, 28, 28, 64))
infer("extract/maxvit-grid-bf16", maxvit_grid, T(2, 28, 28, 64, dtype=bf16))
infer("extract/swin-shifted-mask", lambda x: x + shifted_mask(28, 28, 7, 3), T(16, 49, 49))
infer("extract/swin-patch-merging", patch_merging, T(2, 16, 16, 64), T(256), T(128, 256))
train("extract/swin-patch-merging-training", patch_merging, T(2, 16, 16, 64), T(256), T(128, 256))
infer("extract/swinv2-attention", swin_attention, T(16, 49, 64), T(192, 64), T(169, 4), T(49, 49, dtype=i64, low=0, high=168))
train("extract/swinv2-attention-training", swin_attention, T(8, 49, 64), T(192, 64), T(169, 4), T(49, 49, dtype=i64, low=0, high=168))
infer("extract/segformer-reduce", segformer_reduce, T(2, 256, 64), T(64, 64, 4, 4), T(64))
infer("extract/segformer-mix-ffn", mix_ffn, T(2, 256, 32), T(128, 32), T(128, 1, 3, 3), T(32, 128))
train("extract/segformer-mix-ffn-training", mix_ffn, T(2, 256, 32), T(128, 32), T(128, 1, 3, 3), T(32, 128))
case(
    "extract/segformer-head",
    lambda: __import__("micro_case").Case(segformer_head, (torch.randn(1, 32, 32, 32), torch.randn(1, 64, 16, 16), torch.randn(1, 128, 8, 8), [torch.randn(64, n) for n in (32, 64, 128)])),
)
infer("extract/deformable-attention", deformable, T(2, 320, 4, 16), T(2, 50, 4, 2, 4, 2, low=0, high=1), T(2, 50, 4, 2, 4))
train("extract/deformable-attention-training", deformable, T(1, 320, 4, 16), T(1, 50, 4, 2, 4, 2, low=0.0, high=1.0), T(1, 50, 4, 2, 4))
infer("extract/mask2former-points", point_sample, T(4, 8, 32, 32), T(4, 256, 2, low=0, high=1))
train("extract/mask2former-points-training", point_sample, T(4, 8, 32, 32), T(4, 256, 2, low=0.0, high=1.0))
infer("extract/mask2former-attention-mask", lambda m: mask_attention(m, 8), T(2, 20, 32, 32))
infer("extract/panoptic", panoptic, T(2, 20, 12), T(2, 20, 32, 32))
infer("extract/semantic-masks", maskformer_semantic, T(2, 20, 12), T(2, 20, 32, 32))


class ConvNextV2(nn.Module):
    def __init__(self, dim: int = 48) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, 1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma, self.beta = nn.Parameter(torch.randn(4 * dim)), nn.Parameter(torch.randn(4 * dim))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = F.gelu(self.up(y))
        strength = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
        y = self.gamma * (y * strength / (strength.mean(-1, keepdim=True) + 1e-6)) + self.beta + y
        return x + self.down(y).permute(0, 3, 1, 2)


class SpatialGate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(64), nn.Conv1d(64, 64, 1)

    def forward(self, x):
        u, v = x.chunk(2, -1)
        return u * self.mix(self.norm(v))


class EfficientFormerPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool, self.scale = nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Parameter(torch.ones(48) * 1e-2)

    def forward(self, x):
        return x + self.scale[:, None, None] * (self.pool(x) - x)


class MobileInverted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64), nn.Hardswish(),
            nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False), nn.BatchNorm2d(64), nn.Hardswish(),
        )
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 16, 1), nn.ReLU(), nn.Conv2d(16, 64, 1), nn.Hardsigmoid())
        self.out = nn.Sequential(nn.Conv2d(64, 16, 1, bias=False), nn.BatchNorm2d(16))

    def forward(self, x):
        y = self.body(x)
        return x + self.out(y * self.squeeze(y))


class Focal(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.f = nn.Linear(dim, 2 * dim + 3)
        self.layers = nn.ModuleList(nn.Conv2d(dim, dim, k, padding=k // 2, groups=dim, bias=False) for k in (3, 5))
        self.h = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        q, ctx, gates = torch.split(self.f(x).permute(0, 3, 1, 2), (32, 32, 3), 1)
        total = 0
        for i, layer in enumerate(self.layers):
            ctx = F.gelu(layer(ctx))
            total = total + ctx * gates[:, i : i + 1]
        total = total + F.gelu(ctx.mean((2, 3), keepdim=True)) * gates[:, 2:]
        return (q * self.h(total)).permute(0, 2, 3, 1)


for name, make, shape in (
    ("convnextv2", ConvNextV2, (2, 48, 16, 16)),
    ("spatial-gate", SpatialGate, (2, 64, 128)),
    ("pool-mixer", EfficientFormerPool, (2, 48, 16, 16)),
    ("mobilenetv3", MobileInverted, (2, 16, 16, 16)),
    ("focal-modulation", Focal, (2, 16, 16, 32)),
):
    module(f"extract/{name}", make, T(*shape))
    module(f"extract/{name}-training", make, T(*shape), training=True)
    if len(shape) == 4 and name != "focal-modulation":
        module(f"extract/{name}-cl", make, T(*shape, layout="channels_last"), channels_last=True)

# Experts, adapters and quantized weights


def deepseek_router(x, w, bias):
    scores = F.linear(x.float(), w).sigmoid()
    choice = scores + bias
    groups = choice.view(-1, 4, 4).topk(2, -1).values.sum(-1)
    kept = groups.topk(2, -1, sorted=False).indices
    mask = torch.zeros_like(groups).scatter_(1, kept, 1)[:, :, None].expand(-1, 4, 4).reshape(-1, 16)
    which = choice.masked_fill(~mask.bool(), 0.0).topk(4, -1, sorted=False).indices
    weight = scores.gather(1, which)
    return which, weight / (weight.sum(-1, keepdim=True) + 1e-20) * 2.5


def experts_batched(x, gate_up, down, weights):
    h = torch.bmm(x.repeat(4, 1).view(4, -1, 32), gate_up)
    gate, up = h[..., ::2].clamp(max=7.0), h[..., 1::2].clamp(-7.0, 7.0)
    out = torch.bmm((up + 1) * gate * torch.sigmoid(gate * 1.702), down)
    return (out * weights.transpose(0, 1)[..., None]).sum(0)


def balance(logits, mask):
    p = logits.softmax(-1)
    hot = F.one_hot(p.topk(2, -1).indices, 8)
    m = mask.reshape(-1, 1, 1).float()
    tokens = (hot.float() * m).sum(0) / m.sum()
    return (tokens * ((p * m[:, 0]).sum(0) / m.sum())[None]).sum() * 8


def jitter_free_sparsemixer(scores):
    most, index = scores.max(-1, keepdim=True)
    factor = scores.abs().clamp(min=most)
    masked = scores.masked_fill(((most - scores) / factor) > 0.02, float("-inf"))
    first = masked.softmax(-1).gather(-1, index)
    rest = scores.scatter(-1, index, float("-inf"))
    return first, rest.max(-1).indices


def lora(x, w, a, b, m):
    w_new = w + 2.0 * (b @ a)
    return F.linear(x, m[:, None] * w_new / w_new.norm(dim=1, keepdim=True))


infer("extract/router-deepseek", deepseek_router, T(64, 64), T(16, 64), T(16))
infer("extract/experts-gpt-oss", experts_batched, T(16, 32), T(4, 32, 128), T(4, 64, 32), T(16, 4))
train("extract/router-balance-training", lambda x, m: balance(x, m), T(256, 8), T(256, dtype=i64, low=0, high=1))
infer("extract/sparsemixer", jitter_free_sparsemixer, T(128, 16))
infer("extract/lora", lambda x, w, a, b: F.linear(x, w) + F.linear(F.linear(x, a), b) * 2.0, T(16, 128), T(128, 128), T(8, 128), T(128, 8))
train("extract/lora-training", lambda x, w, a, b: F.linear(x, w) + F.linear(F.linear(x, a), b) * 2.0, T(64, 128), T(128, 128), T(8, 128), T(128, 8))
train("extract/dora-training", lora, T(32, 128), T(128, 128), T(8, 128), T(128, 8), T(128))


def bitlinear(x, w):
    scale = 127.0 / x.abs().max(-1, keepdim=True).values.clamp(min=1e-5)
    q = (x * scale).round().clamp(-128, 127) / scale
    s = 1.0 / w.abs().mean().clamp(min=1e-5)
    t = (w * s).round().clamp(-1, 1) / s
    return F.linear(x + (q - x).detach(), w + (t - w).detach())


def unpack_ternary(packed):
    shifts = torch.arange(0, 8, 2, dtype=u8)
    return ((packed[None] >> shifts[:, None, None]) & 3).flatten(0, 1).to(i8) - 1


def hqq(packed, scale, zero):
    low, high = packed & 0xF, packed >> 4
    return ((torch.cat((high, low), 0).float() - zero) * scale).view(128, -1)


def mxfp4(blocks, scales, table):
    exponent = scales.to(torch.int32) - 127
    out = torch.empty(*blocks.shape[:-1], blocks.shape[-1] * 2)
    out[..., 0::2] = table[(blocks & 0x0F).long()]
    out[..., 1::2] = table[(blocks >> 4).long()]
    return torch.ldexp(out, exponent[..., None])


def smooth(x, w, s):
    q = (x / s).abs().amax(-1, keepdim=True) / 127
    xi = ((x / s) / q).round().clamp(-128, 127).to(i8)
    return (xi.float() @ w.float().t()) * q


infer("extract/bitlinear", bitlinear, T(16, 128), T(128, 128))
train("extract/bitlinear-training", bitlinear, T(16, 128), T(128, 128))
infer("extract/unpack-ternary", unpack_ternary, T(64, 128, dtype=u8, low=0, high=170))
infer("extract/hqq-unpack", hqq, T(64, 128, dtype=u8), T(1, 128), T(1, 128))
infer("extract/mxfp4-unpack", mxfp4, T(64, 4, 16, dtype=u8), T(64, 4, dtype=u8, low=120, high=134), T(16))
infer("extract/smoothquant", smooth, T(16, 128), T(128, 128, dtype=i8), T(128, low=0.5, high=2))

# Sampling


def eta_sampling(logits):
    p = logits.softmax(-1)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    limit = torch.minimum(torch.tensor(3e-4), torch.sqrt(torch.tensor(3e-4)) * torch.exp(-entropy))[..., None]
    remove = (p < limit) & (logits < logits.topk(1)[0][..., -1, None])
    return logits.masked_fill(remove, -torch.inf)


def nucleus(logits):
    s, order = torch.sort(logits, descending=False)
    remove = s.softmax(-1).cumsum(-1) <= 0.1
    remove[..., -1:] = 0
    return logits.masked_fill(remove.scatter(1, order, remove), -torch.inf)


def no_repeat(scores, ids):
    score = scores.gather(1, ids)
    score = torch.where(score < 0, score * 1.2, score / 1.2)
    return scores.scatter(1, ids, score)


def suppress(scores, tokens):
    hit = torch.isin(torch.arange(scores.shape[-1]), tokens)
    return torch.where(hit, -float("inf"), scores)


def classifier_free(logits, unconditional):
    logits, unconditional = logits.log_softmax(-1), unconditional.log_softmax(-1)
    return 1.5 * (logits - unconditional) + unconditional


def beam_scores(log_probs, running):
    total = log_probs.log_softmax(-1) + running[:, :, None]
    values, index = total.view(total.shape[0], -1).topk(8)
    return values, index // total.shape[-1], index % total.shape[-1]


def contrastive(hidden, candidates, p):
    a = hidden / hidden.norm(dim=2, keepdim=True)
    b = candidates / candidates.norm(dim=2, keepdim=True)
    worst = torch.matmul(a, b.transpose(1, 2)).squeeze(-1).max(-1).values
    return (0.4 * p - 0.6 * worst).view(-1, 4).max(-1)


def watermark(scores, hashes):
    green = (hashes[:, None] * torch.arange(1, scores.shape[1] + 1)) % 97 < 25
    return scores + green * 2.0


words = T(4, 4000)
for name, function, inputs in (
    ("eta", eta_sampling, (words,)),
    ("top-p-processor", nucleus, (words,)),
    ("repetition", no_repeat, (words, T(4, 64, dtype=i64, low=0, high=3999))),
    ("suppress", suppress, (words, T(20, dtype=i64, low=0, high=3999))),
    ("classifier-free", classifier_free, (words, words)),
    ("beam", beam_scores, (T(2, 4, 2000), T(2, 4))),
    ("contrastive", contrastive, (T(16, 32, 64), T(16, 1, 64), T(16))),
    ("watermark", watermark, (words, T(4, dtype=i64, low=1, high=1000))),
    ("min-p-f16", lambda x: x.masked_fill(x.softmax(-1) < 0.05 * x.softmax(-1).amax(-1, keepdim=True), -torch.inf), (T(4, 4000, dtype=f16),)),
    ("top-k-fill", lambda x: x.masked_fill(x < torch.topk(x, 40)[0][..., -1, None], -torch.inf), (words,)),
    ("prompt-lookup", lambda ids: (ids.unfold(1, 3, 1) == ids[:, -3:, None].transpose(1, 2)).all(2), (T(1, 512, dtype=i64, low=0, high=9),)),
):
    infer(f"extract/sampling/{name}", function, *inputs)
