"""Attention and its caches, routing, graphs, quantized layers and norms, as newer code writes them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, i8, i64, infer, module, train, u8

flags = torch.bool

# Attention


def alibi(q, k, v):
    h, n = q.shape[1], q.shape[2]
    slopes = 2.0 ** (-8 / h * torch.arange(1, h + 1))
    at = torch.arange(n)
    bias = -(at[:, None] - at).abs() * slopes[:, None, None]
    bias = bias.masked_fill(at[:, None] < at, float("-inf"))
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias).softmax(-1) @ v


def sliding(q, k, v):
    at = torch.arange(q.shape[2])
    apart = at[:, None] - at
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(apart >= 0) & (apart < 32))


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def grouped_by_hand(q, k, v):
    k, v = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)
    return (q @ k.transpose(-1, -2) * 0.17).softmax(-1) @ v


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def rotated_pairs(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def rotary_attention(q, k, v, cos, sin):
    return F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)


def rotary_tables(at):
    angle = at[:, None].float() * (10000.0 ** (-torch.arange(0, 64, 2) / 64))
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def soft_capped(q, k, v):
    s = q @ k.transpose(-1, -2) / 8
    return (50 * torch.tanh(s / 50)).softmax(-1) @ v


def with_sink(q, k, v, sink):
    s = q @ k.transpose(-1, -2) / 8
    s = torch.cat((s, sink[None, :, None, None].expand(*s.shape[:3], 1)), -1)
    return s.softmax(-1)[..., :-1] @ v


def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(-2)[..., None])


def latent(x, down, up_k, up_v, q):
    c = x @ down
    k, v = (c @ up_k).view(2, 64, 4, 32).transpose(1, 2), (c @ up_v).view(2, 64, 4, 32).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def padded(q, k, v, lengths):
    keep = torch.arange(k.shape[2]) < lengths[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None])


def windows(x):
    b, h, w, c = x.shape
    return x.roll((-4, -4), (1, 2)).view(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)


def relative_bias(s, table):
    n = s.shape[-1]
    at = torch.arange(n)
    apart = (at[:, None] - at).clamp(-16, 16) + 16
    return (s + table[apart].permute(2, 0, 1)).softmax(-1)


heads = T(2, 8, 64, 32)
infer("later/alibi", alibi, heads, heads, heads)
infer("later/sliding", sliding, T(1, 4, 128, 32), T(1, 4, 128, 32), T(1, 4, 128, 32))
infer("later/grouped", grouped, heads, T(2, 2, 64, 32), T(2, 2, 64, 32))
infer("later/grouped-by-hand", grouped_by_hand, heads, T(2, 2, 64, 32), T(2, 2, 64, 32))
infer("later/rotary", rotated, T(2, 8, 128, 64), T(128, 64), T(128, 64))
infer("later/rotary-bf16", rotated, T(2, 8, 128, 64, dtype=bf16), T(128, 64, dtype=bf16), T(128, 64, dtype=bf16))
infer("later/rotary-pairs", rotated_pairs, T(2, 128, 8, 64), T(128, 1, 32), T(128, 1, 32))
infer("later/rotary-attention", rotary_attention, heads, heads, heads, T(64, 32), T(64, 32))
infer("later/rotary-tables", rotary_tables, torch.arange(256))
infer("later/soft-capped", soft_capped, heads, heads, heads)
infer("later/sink", with_sink, heads, heads, heads, T(8))
infer("later/linear-attention", linear_attention, heads, heads, heads)
infer("later/latent", latent, T(2, 64, 128), T(128, 32), T(32, 128), T(32, 128), T(2, 4, 64, 32))
infer("later/padded", padded, heads, heads, heads, T(2, dtype=i64, low=10, high=60))
infer("later/windows", windows, T(2, 32, 32, 48))
infer("later/relative-bias", relative_bias, T(2, 4, 64, 64), T(33, 4))
infer(
    "later/decode-one",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    T(2, 8, 1, 64),
    T(2, 8, 200, 64),
    T(2, 8, 200, 64),
)
infer(
    "later/decode-one-bf16",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    *[T(2, 8, n, 64, dtype=bf16) for n in (1, 200, 200)],
)
train("later/train/alibi", alibi, *[T(1, 4, 32, 32)] * 3)
train("later/train/rotary", rotated, T(2, 4, 64, 64), T(64, 64), T(64, 64))
train("later/train/linear-attention", linear_attention, *[T(2, 4, 64, 32)] * 3)
train("later/train/soft-capped", soft_capped, *[T(2, 4, 64, 32)] * 3)

# Caches


def appended(cache, new, at):
    cache.index_copy_(2, at, new)
    return cache[:, :, :64].sum(-1)


def quantized_cache(cache, scale, new, at):
    most = new.abs().amax(-1, keepdim=True) / 127
    cache[:, :, at] = (new / most).round().to(i8)
    scale[:, :, at] = most
    return cache[:, :, :32].float() * scale[:, :, :32]


def gathered_pages(pages, table):
    return pages[table].flatten(1, 2)


def reordered(cache, order):
    return cache.index_select(0, order)


infer("later/cache/append", appended, T(2, 4, 256, 32), T(2, 4, 1, 32), T(1, dtype=i64, low=0, high=255))
infer(
    "later/cache/quantized",
    quantized_cache,
    T(2, 4, 256, 32, dtype=i8),
    T(2, 4, 256, 1),
    T(2, 4, 1, 32),
    T(1, dtype=i64, low=0, high=255),
)
infer("later/cache/pages", gathered_pages, T(64, 16, 4, 32), T(4, 8, dtype=i64, low=0, high=63))
infer("later/cache/pages-bf16", gathered_pages, T(64, 16, 4, 32, dtype=bf16), T(4, 8, dtype=i64, low=0, high=63))
infer("later/cache/reorder", reordered, T(4, 4, 100, 32), torch.tensor([2, 0, 0, 1]))
infer("later/cache/shift", lambda c, n: torch.cat((c[:, :, 1:], n), 2), T(2, 4, 128, 32), T(2, 4, 1, 32))

# Experts


def top_two(x, w):
    p = (x @ w).softmax(-1)
    weight, which = p.topk(2, -1)
    load = F.one_hot(which, 8).sum((0, 1)).float()
    return weight / weight.sum(-1, keepdim=True), which, (load / load.sum() * p.mean(0)).sum() * 8


def sigmoid_groups(x, w, bias):
    s = (x @ w).sigmoid()
    grouped = (s + bias).view(-1, 4, 8).topk(2, -1)[0].sum(-1)
    best = grouped.topk(2, -1)[1]
    keep = torch.zeros_like(grouped).scatter_(1, best, 1.0)
    chosen = (s.view(-1, 4, 8) * keep[..., None]).flatten(1).topk(4, -1)
    return chosen[0] / chosen[0].sum(-1, keepdim=True), chosen[1]


def dense_experts(x, gate, up, down, p):
    h = torch.einsum("td,edh->eth", x, up)
    h = F.silu(torch.einsum("td,edh->eth", x, gate)) * h
    return torch.einsum("eth,ehd,te->td", h, down, p)


def positions(which):
    hot = F.one_hot(which.flatten(), 8)
    return (hot.cumsum(0) * hot).sum(-1) - 1


infer("later/route/top-two", top_two, T(256, 64), T(64, 8))
infer("later/route/groups", sigmoid_groups, T(256, 64), T(64, 32), T(32))
infer("later/route/dense", dense_experts, T(32, 64), T(4, 64, 96), T(4, 64, 96), T(4, 96, 64), T(32, 4))
infer("later/route/positions", positions, T(256, 2, dtype=i64, low=0, high=7))
infer(
    "later/route/sort",
    lambda w: (w.flatten().argsort(), F.one_hot(w.flatten(), 8).sum(0).cumsum(0)),
    T(256, 2, dtype=i64, low=0, high=7),
)
train("later/route/train", lambda x, w: top_two(x, w)[::2], T(256, 64), T(64, 8))

# Graphs

links = T(2, 2000, dtype=i64, low=0, high=299)


def sage(x, e, w, v):
    total = torch.zeros_like(x).index_add_(0, e[1], x[e[0]])
    count = torch.zeros(x.shape[0]).index_add_(0, e[1], torch.ones(e.shape[1])).clamp(min=1)
    return F.relu(x @ w + (total / count[:, None]) @ v)


def gin(x, e, w):
    return F.relu((1.1 * x + torch.zeros_like(x).index_add_(0, e[1], x[e[0]])) @ w)


def edge_conv(x, e, w):
    m = F.relu(torch.cat((x[e[1]], x[e[0]] - x[e[1]]), -1) @ w)
    return torch.full((300, w.shape[1]), float("-inf")).scatter_reduce(0, e[1][:, None].expand_as(m), m, "amax")


def distances(p, e):
    d = p[e[0]] - p[e[1]]
    r = d.norm(dim=-1)
    return torch.exp(-(r[:, None] - torch.linspace(0, 5, 20)).square() * 4) * (r < 5)[:, None]


def knn(p):
    return torch.cdist(p, p).topk(8, largest=False)


def pooled(x, b):
    return torch.zeros(16, x.shape[1]).index_add_(0, b, x), torch.full((16, x.shape[1]), -1e9).index_reduce_(
        0, b, x, "amax"
    )


infer("later/graph/sage", sage, T(300, 32), links, T(32, 32), T(32, 32))
infer("later/graph/gin", gin, T(300, 32), links, T(32, 32))
infer("later/graph/edge-conv", edge_conv, T(300, 16), links, T(32, 32))
infer("later/graph/distances", distances, T(300, 3), links)
infer("later/graph/knn", knn, T(300, 3), tolerance=1e-3)
infer("later/graph/pooled", pooled, T(300, 32), T(300, dtype=i64, low=0, high=15))
train("later/graph/train-sage", sage, T(300, 32), links, T(32, 32), T(32, 32))
train("later/graph/train-gin", gin, T(300, 32), links, T(32, 32))
train("later/graph/train-distances", distances, T(300, 3), links)

# Quantized layers


def int8_linear(x, w, s):
    return x @ (w.float() * s[:, None]).t()


def dynamic_int8(x, w, s):
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = (x / scale).round().clamp(-127, 127)
    return (q @ w.float().t()) * scale * s


def int4_groups(x, packed, s):
    low, high = (packed & 15).to(i8) - 8, (packed >> 4).to(i8) - 8
    w = torch.stack((low, high), -1).view(packed.shape[0], -1, 32).float() * s[..., None]
    return x @ w.flatten(1).t()


def fake_quantized(x):
    scale = x.abs().amax() / 127
    return x + ((x / scale).round() * scale - x).detach()


def ternary(x, w):
    scale = w.abs().mean().clamp(min=1e-5)
    return F.linear(x, (w / scale).round().clamp(-1, 1) * scale)


def as_bits(x):
    return ((x.view(-1, 8) > 0).to(u8) << torch.arange(8, dtype=u8)).sum(-1).to(u8)


infer("later/quant/int8-linear", int8_linear, T(8, 256), T(512, 256, dtype=i8), T(512, low=0.01, high=0.02))
infer(
    "later/quant/int8-linear-bf16",
    lambda x, w, s: F.linear(x, w.to(bf16)) * s,
    T(4, 256, dtype=bf16),
    T(512, 256, dtype=i8),
    T(512, dtype=bf16),
)
infer("later/quant/dynamic", dynamic_int8, T(8, 256), T(512, 256, dtype=i8), T(512, low=0.01, high=0.02))
infer("later/quant/int4", int4_groups, T(4, 256), T(256, 128, dtype=u8), T(256, 8, low=0.01, high=0.02))
infer("later/quant/fake", fake_quantized, T(256, 256))
infer("later/quant/ternary", ternary, T(8, 256), T(256, 256))
infer("later/quant/bits", as_bits, T(64, 1024))
infer(
    "later/quant/per-channel",
    lambda w: ((s := w.abs().amax(1, keepdim=True) / 127), (w / s).round().to(i8)),
    T(256, 512),
)
infer(
    "later/quant/kv",
    lambda x: (
        ((x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)) * 15).round().to(u8)
    ),
    T(2, 8, 64, 64),
)
train("later/quant/train-fake", lambda x, w: F.linear(x, fake_quantized(w)), T(16, 128), T(128, 128))

# Norms and gates


def rms(x, w):
    return x * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt().to(x.dtype) * w


def adaptive(x, c, w):
    shift, scale, gate = (F.silu(c) @ w).chunk(3, -1)
    return x + gate[:, None] * (F.layer_norm(x, (64,)) * (1 + scale[:, None]) + shift[:, None])


def response(x):
    g = x.norm(dim=(1, 2), keepdim=True)
    return x * (g / (g.mean(-1, keepdim=True) + 1e-6)) + x


def qk_norm(q, k):
    return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2) * 10


for dtype, of in ((torch.float32, "f32"), (bf16, "bf16"), (f16, "f16")):
    infer(f"later/norm/rms-{of}", rms, T(64, 512, dtype=dtype), T(512, dtype=dtype))
    infer(f"later/gate/swiglu-{of}", lambda x: F.silu(x[..., :256]) * x[..., 256:], T(64, 512, dtype=dtype))
    infer(f"later/gate/relu2-{of}", lambda x: F.relu(x).square(), T(64, 512, dtype=dtype))
infer("later/norm/adaptive", adaptive, T(2, 64, 64), T(2, 32), T(32, 192))
infer("later/norm/response", response, T(2, 16, 16, 64))
infer("later/norm/qk", qk_norm, heads, heads)
infer("later/norm/rms-sliced", rms, T(64, 512, layout="sliced"), T(512))
infer(
    "later/norm/layer-transposed", lambda x, w: F.layer_norm(x, (256,), w), T(4, 64, 256, layout="transposed"), T(256)
)
infer(
    "later/norm/channels-first",
    lambda x, w: F.layer_norm(x.permute(0, 2, 3, 1), (32,), w).permute(0, 3, 1, 2),
    T(2, 32, 24, 24),
    T(32),
)
train("later/norm/train-rms", rms, T(64, 512), T(512))
train("later/norm/train-adaptive", adaptive, T(2, 64, 64), T(2, 32), T(32, 192))
train("later/norm/train-rms-bf16", rms, T(64, 512, dtype=bf16), T(512, dtype=bf16))


class ConvNext(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(32, 32, 7, padding=3, groups=32), nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class Squeeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.less, self.more = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x):
        y = F.silu(self.norm(self.conv(x)))
        return x + y * self.more(F.silu(self.less(y.mean((2, 3), keepdim=True)))).sigmoid()


for last in (False, True):
    of = "cl" if last else "nchw"
    image = T(2, 32, 16, 16, layout="channels_last" if last else "contiguous")
    small = T(2, 16, 24, 24, layout="channels_last" if last else "contiguous")
    module(f"later/vision/convnext-{of}", ConvNext, image, channels_last=last)
    module(f"later/vision/squeeze-{of}", Squeeze, small, channels_last=last)
    module(f"later/vision/train-squeeze-{of}", Squeeze, small, channels_last=last, training=True)


def buffer_of_rewards():
    store, place = torch.zeros(64, 8), torch.zeros((), dtype=i64)

    def push(x):
        store[place % 64] = x
        place.add_(1)
        return store.mean(0)

    return Case(push, (torch.randn(8),), state=lambda: [store, place])


case("later/cache/ring-of-rewards", buffer_of_rewards)
