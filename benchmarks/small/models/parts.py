"""Parts of models: caches, rotary variants, masks, quantization, graphs, experts, cells, norms, embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i32, i64, infer, module, train, u8

# Caches


def cache_write(cache, k, at):
    cache[:, :, at] = k
    return cache


def paged_read(pages, table, q):
    k = pages[table].flatten(1, 2)
    return (q[:, None] * k).sum(-1) * 0.125


def paged_write(pages, slots, k):
    pages.view(-1, pages.shape[-1])[slots] = k
    return pages


def decode(q, kc, vc, k, v, pos):
    kc[:, :, pos : pos + 1] = k
    vc[:, :, pos : pos + 1] = v
    s = (q @ kc[:, :, : pos + 1].transpose(-1, -2)) * 0.125
    return s.softmax(-1) @ vc[:, :, : pos + 1]


def roll_cache(cache, new):
    cache.copy_(torch.cat((cache[:, 1:], new), 1))
    return cache.sum(1)


def quantized_cache(k, q, s):
    scale = k.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
    q.copy_((k / scale).round().to(torch.int8))
    s.copy_(scale)
    return (q * s).sum(-1)


infer("parts/cache/write", cache_write, T(2, 8, 128, 64), T(2, 8, 4, 64), torch.arange(4) + 17)
infer(
    "parts/cache/write-bf16", cache_write, T(1, 8, 512, 64, dtype=bf16), T(1, 8, 1, 64, dtype=bf16), torch.tensor([300])
)
infer("parts/cache/paged-read", paged_read, T(64, 16, 64), T(4, 8, dtype=i64, low=0, high=63), T(4, 64))
infer(
    "parts/cache/paged-read-bf16",
    paged_read,
    T(64, 16, 64, dtype=bf16),
    T(4, 8, dtype=i64, low=0, high=63),
    T(4, 64, dtype=bf16),
)
infer("parts/cache/paged-write", paged_write, T(64, 16, 64), torch.tensor([5, 77, 1000, 3]), T(4, 64))
infer("parts/cache/decode", decode, T(1, 8, 1, 64), *[T(1, 8, 256, 64)] * 2, *[T(1, 8, 1, 64)] * 2, 200)
infer("parts/cache/decode-bf16", decode, T(2, 8, 1, 64, dtype=bf16), *[T(2, 8, 256, 64, dtype=bf16)] * 2,
      *[T(2, 8, 1, 64, dtype=bf16)] * 2, 200)  # fmt: skip
infer("parts/cache/rolling", roll_cache, T(4, 32, 64), T(4, 1, 64))
infer("parts/cache/int8", quantized_cache, T(1, 8, 128, 64), T(1, 8, 128, 64, dtype=i8), T(1, 8, 128, 1))
infer("parts/cache/beam-reorder", lambda k, at: k.index_select(0, at), T(4, 8, 64, 32), T(4, dtype=i64, low=0, high=3))
infer("parts/cache/gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat_interleave(4, 1),
      v.repeat_interleave(4, 1)),
      T(1, 8, 1, 64), *[T(1, 2, 128, 64)] * 2)  # fmt: skip

# Rotary embeddings and masks


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rope(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def rope_interleaved(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def rope_complex(x, freqs):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * freqs).flatten(-2).type_as(x)


def partial_rope(x, cos, sin):
    turned, kept = x[..., :32], x[..., 32:]
    return torch.cat((turned * cos + rotate_half(turned) * sin, kept), -1)


def rope_tables(pos, inv):
    f = pos[:, :, None].float() * inv
    e = torch.cat((f, f), -1)
    return e.cos(), e.sin()


def rope_2d(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos + rotate_half(a) * sin, b * sin + rotate_half(b) * cos), -1)


def t5_bias(table, n):
    at = torch.arange(n, device=table.device)
    rel = at[None] - at[:, None]
    side = (rel > 0).long() * 16
    rel = rel.abs()
    large = 8 + (torch.log(rel.float().clamp(min=1) / 8) / 2.77 * 8).long().clamp(max=7)
    return table[side + torch.where(rel < 8, rel, large)].permute(2, 0, 1)


def alibi(scores, slopes):
    n = scores.shape[-1]
    at = torch.arange(n, device=scores.device)
    return (scores - slopes[:, None, None] * (at[:, None] - at[None]).clamp(min=0)).softmax(-1)


def sliding_mask(scores):
    n = scores.shape[-1]
    at = torch.arange(n, device=scores.device)
    gap = at[:, None] - at[None]
    return scores.masked_fill((gap < 0) | (gap >= 16), float("-inf")).softmax(-1)


def pad_mask(ids):
    m = (ids != 0).float()
    return (1 - m[:, None, None, :]) * -10000.0


infer("parts/rope/halves", rope, *[T(1, 8, 64, 64)] * 2, *[T(64, 64)] * 2)
infer("parts/rope/halves-one-token", rope, *[T(1, 8, 1, 64)] * 2, *[T(1, 64)] * 2)
infer("parts/rope/halves-bf16", rope, *[T(2, 8, 128, 64, dtype=bf16)] * 2, *[T(128, 64, dtype=bf16)] * 2)
infer("parts/rope/interleaved", rope_interleaved, T(2, 4, 64, 64), *[T(64, 32)] * 2)
infer("parts/rope/complex", rope_complex, T(1, 64, 8, 64), T(64, 1, 32, dtype=torch.complex64))
infer("parts/rope/complex-bf16", rope_complex, T(1, 64, 8, 64, dtype=bf16), T(64, 1, 32, dtype=torch.complex64))
infer("parts/rope/partial", partial_rope, T(1, 8, 64, 80), *[T(64, 32)] * 2)
infer("parts/rope/tables", rope_tables, T(2, 128, dtype=i64, low=0, high=2000), T(32))
infer("parts/rope/two-dimensional", rope_2d, T(2, 4, 196, 64), *[T(196, 32)] * 2)
train("parts/rope/training", lambda q, k, c, s: (rope(q, k, c, s)[0] * rope(q, k, c, s)[1]).sum(-1), *[T(1, 8, 64,
      64)] * 2,
      *[T(64, 64)] * 2)  # fmt: skip
infer("parts/mask/t5-bias", lambda t: t5_bias(t, 64), T(32, 8))
infer("parts/mask/alibi", alibi, T(2, 8, 64, 64), T(8, low=0.01, high=0.5))
infer("parts/mask/sliding", sliding_mask, T(2, 4, 96, 96))
infer("parts/mask/padding", pad_mask, T(8, 64, dtype=i64, low=0, high=3))
infer("parts/mask/packed", lambda d: (d[:, :, None] == d[:, None, :]).tril(), T(2, 200, dtype=i64, low=0, high=3))
infer("parts/mask/lengths", lambda x, n: x * (torch.arange(x.shape[1], device=x.device) < n[:, None])[..., None],
      T(8, 50, 32),
      T(8, dtype=i64, low=1, high=50))  # fmt: skip
infer("parts/mask/scatter-images", lambda x, m, y: x.masked_scatter(m[..., None].expand_as(x), y), T(2, 40, 64),
      torch.arange(80).reshape(2, 40) % 5 == 0, T(16, 64))  # fmt: skip

# Quantization


def dynamic_linear(x, w, s):
    a = x.abs().amax(-1, keepdim=True) / 127
    q = (x / a).round().clamp(-128, 127)
    return (q @ w.float().t()) * a * s


def int4_unpack(w, scale, zero):
    low, high = w & 15, w >> 4
    q = torch.stack((low, high), -1).flatten(-2).float().view(w.shape[0], -1, 32)
    return ((q - zero[..., None]) * scale[..., None]).flatten(1)


def fake_quantize(x, s, z):
    return (((x / s).round() + z).clamp(0, 255) - z) * s


def ste(x):
    s = x.abs().mean().clamp(min=1e-5)
    q = (x / s).round().clamp(-1, 1) * s
    return x + (q - x).detach()


def requantize(acc, m, b):
    return ((acc + b) * m).round().clamp(-128, 127).to(torch.int8)


def vq(x, book):
    d = x.pow(2).sum(1, keepdim=True) - 2 * x @ book.t() + book.pow(2).sum(1)
    at = d.argmin(1)
    q = F.embedding(at, book)
    return x + (q - x).detach(), at, F.mse_loss(q.detach(), x) * 0.25 + F.mse_loss(q, x.detach())


infer("parts/quant/dynamic-linear", dynamic_linear, T(8, 256), T(128, 256, dtype=i8), T(128))
infer("parts/quant/int4-unpack", int4_unpack, T(64, 128, dtype=u8), *[T(64, 8)] * 2)
infer("parts/quant/fake", lambda x: fake_quantize(x, 0.1, 128), T(64, 300))
train("parts/quant/fake-training", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), T(64, 300))
train("parts/quant/straight-through", ste, T(128, 128))
infer("parts/quant/requantize", requantize, T(64, 256, dtype=i32), T(256, low=0, high=0.1), T(256, dtype=i32))
infer(
    "parts/quant/u8-add",
    lambda a, b: ((a.float() * 0.1 + b.float() * 0.2) / 0.15).round().clamp(0, 255).to(u8),
    *[T(128, 128, dtype=u8)] * 2,
)
train("parts/quant/vq", vq, T(128, 32), T(64, 32), tolerance=1e-3)
infer(
    "parts/quant/binarize",
    lambda x: (x.view(-1, 8) > 0).to(u8).mul(2 ** torch.arange(8, device=x.device, dtype=u8)).sum(1).to(u8),
    T(64, 128),
)
infer(
    "parts/quant/i8-matmul", lambda a, b: torch._int_mm(a, b).float() * 0.01, T(32, 128, dtype=i8), T(128, 64, dtype=i8)
)
infer(
    "parts/quant/groups",
    lambda x: (lambda g: (g / (g.abs().amax(-1, keepdim=True) / 7)).round().to(i8))(x.view(x.shape[0], -1, 32)),
    T(64, 256),
)

# Graphs and experts


def gcn(x, src, dst, w):
    deg = torch.zeros(x.shape[0], device=x.device).index_add_(0, dst, torch.ones(dst.shape[0], device=x.device))
    norm = deg.clamp(min=1).rsqrt()
    message = x[src] * (norm[src] * norm[dst])[:, None]
    return torch.zeros_like(x).index_add_(0, dst, message) @ w


def gat(x, src, dst, a):
    e = F.leaky_relu((x[src] * a).sum(-1) + (x[dst] * a).sum(-1), 0.2)
    top = torch.full((x.shape[0],), float("-inf"), device=x.device).scatter_reduce(0, dst, e, "amax")
    p = (e - top[dst]).exp()
    total = torch.zeros(x.shape[0], device=x.device).scatter_add(0, dst, p)
    return torch.zeros_like(x).index_add(0, dst, x[src] * (p / total[dst])[:, None])


def segment_mean(x, at):
    total = torch.zeros(32, x.shape[1], device=x.device).index_add(0, at, x)
    count = torch.zeros(32, device=x.device).index_add(0, at, torch.ones_like(x[:, 0]))
    return total / count.clamp(min=1)[:, None]


def segment_max(x, at):
    return torch.zeros(32, x.shape[1], device=x.device).scatter_reduce(
        0, at[:, None].expand_as(x), x, "amax", include_self=False
    )


def edge_mlp(x, src, dst, w):
    return torch.zeros_like(x).index_add(0, dst, (torch.cat((x[src], x[dst] - x[src]), -1) @ w).relu())


def radial(pos, src, dst):
    d = (pos[src] - pos[dst]).norm(dim=-1)
    c = torch.linspace(0, 5, 16, device=pos.device)
    return torch.exp(-10 * (d[:, None] - c) ** 2) * (0.5 * (torch.cos(d * 0.628) + 1) * (d < 5))[:, None]


def route(x, w):
    p = (x @ w).softmax(-1)
    v, at = p.topk(2)
    v = v / v.sum(-1, keepdim=True)
    gates = torch.zeros_like(p).scatter(-1, at, v)
    return gates, (F.one_hot(at, 8).sum((0, 1)).float() * p.mean(0)).sum()


def capacity(x, w):
    mask = F.one_hot((x @ w).argmax(-1), 8)
    place = (mask.cumsum(0) * mask).sum(-1) - 1
    return torch.where(place < 12, place, -1), mask.sum(0)


def experts(x, w, gates):
    h = torch.einsum("td,edf->etf", x, w).relu()
    return torch.einsum("etf,te->tf", h, gates)


same = torch.Generator(torch.get_default_device())
edges = torch.randint(0, 200, (2, 800), generator=same.manual_seed(0))
more = torch.randint(0, 2000, (2, 16000), generator=same.manual_seed(0))
parts = torch.randint(0, 32, (500,), generator=same.manual_seed(0))
infer("parts/graph/gcn", gcn, T(200, 32), edges[0], edges[1], T(32, 32))
infer("parts/graph/gcn-large", gcn, T(2000, 64), more[0], more[1], T(64, 64))
train("parts/graph/gcn-training", gcn, T(200, 32), edges[0], edges[1], T(32, 32))
infer("parts/graph/gat", gat, T(200, 32), edges[0], edges[1], T(32))
train("parts/graph/gat-training", gat, T(200, 32), edges[0], edges[1], T(32), tolerance=1e-3)
infer("parts/graph/segment-mean", segment_mean, T(500, 24), parts)
train("parts/graph/segment-mean-training", segment_mean, T(500, 24), parts)
infer("parts/graph/segment-max", segment_max, T(500, 24), parts)
train("parts/graph/edge-mlp", edge_mlp, T(200, 16), edges[0], edges[1], T(32, 16))
infer("parts/graph/radial", radial, T(200, 3), edges[0], edges[1])
infer("parts/expert/route", route, T(64, 64), T(64, 8))
train(
    "parts/expert/route-training", lambda x, w: route(x, w)[0].sum(0).pow(2).sum() + route(x, w)[1], T(64, 64), T(64, 8)
)
infer("parts/expert/capacity", capacity, T(128, 32), T(32, 8))
infer("parts/expert/dense", experts, T(64, 32), T(8, 32, 32), T(64, 8))
infer("parts/expert/unpermute", lambda y, at, g: torch.zeros(64, 32, device=y.device).index_add_(0, at, y * g[:,
      None]), T(128, 32),
      T(128, dtype=i64, low=0, high=63), T(128))  # fmt: skip

# Cells, norms, activations


def gru(x, h, wi, wh):
    ri, zi, ni = (x @ wi).chunk(3, -1)
    rh, zh, nh = (h @ wh).chunk(3, -1)
    z = (zi + zh).sigmoid()
    n = (ni + (ri + rh).sigmoid() * nh).tanh()
    return (1 - z) * n + z * h


def unrolled(x, h, wi, wh):
    for t in range(x.shape[0]):
        h = (x[t] @ wi + h @ wh).tanh()
    return h


def mingru(z, h):
    a = -F.softplus(z)
    b = -F.softplus(-z) + torch.where(h >= 0, (F.relu(h) + 0.5).log(), -F.softplus(-h))
    c = a.cumsum(1)
    return (c + (b - c).logcumsumexp(1)).exp()


def ssm(x, dt, a, b, c):
    h = torch.zeros(x.shape[0], x.shape[2], a.shape[1], device=x.device)
    out = []
    da = torch.exp(F.softplus(dt)[..., None] * a)
    for t in range(x.shape[1]):
        h = da[:, t] * h + x[:, t, :, None] * b[:, t, None, :]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def wkv(k, v, w, u):
    p = torch.zeros_like(k[:, 0])
    q = torch.zeros_like(p)
    out = []
    for t in range(k.shape[1]):
        e = (k[:, t] + u).exp()
        out.append((p + e * v[:, t]) / (q + e))
        p, q = w * p + k[:, t].exp() * v[:, t], w * q + k[:, t].exp()
    return torch.stack(out, 1)


def adaln(x, c, w):
    shift, scale, gate = (F.silu(c) @ w).chunk(3, -1)
    return x + gate[:, None] * (F.layer_norm(x, x.shape[-1:]) * (1 + scale[:, None]) + shift[:, None])


def rms(x, w):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).type_as(x) * w


def qk_norm(q, k):
    return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2)


def se(x, a, b):
    s = (F.adaptive_avg_pool2d(x, 1).flatten(1) @ a).relu() @ b
    return x * s.sigmoid()[:, :, None, None]


def grn(x, g, b):
    n = x.norm(dim=(1, 2), keepdim=True)
    return x + g * (x * n / (n.mean(-1, keepdim=True) + 1e-6)) + b


infer("parts/cell/gru", gru, T(16, 32), T(16, 64), T(32, 192), T(64, 192))
train("parts/cell/gru-training", gru, T(16, 32), T(16, 64), T(32, 192), T(64, 192))
infer("parts/cell/unrolled", unrolled, T(12, 8, 16), T(8, 32), T(16, 32), T(32, 32))
train("parts/cell/unrolled-training", unrolled, T(8, 8, 16), T(8, 32), T(16, 32), T(32, 32), tolerance=1e-3)
infer("parts/cell/min-gru", mingru, *[T(4, 64, 32)] * 2)
train("parts/cell/min-gru-training", mingru, *[T(4, 64, 32)] * 2, tolerance=1e-3)
infer("parts/cell/ssm", ssm, *[T(2, 16, 32)] * 2, T(32, 8, low=-1, high=-0.1), *[T(2, 16, 8)] * 2)
infer("parts/cell/wkv", wkv, *[T(2, 16, 64)] * 2, T(64, low=0.5, high=0.99), T(64))
module("parts/cell/lstm-cell", lambda: nn.LSTMCell(32, 64), T(8, 32))
module("parts/norm/layer-training", lambda: nn.LayerNorm(256), T(16, 32, 256), training=True)
module("parts/norm/layer-training-small", lambda: nn.LayerNorm(64), T(4, 64), training=True)
module("parts/norm/group-training", lambda: nn.GroupNorm(8, 32), T(4, 32, 16, 16), training=True)
module("parts/norm/instance-training", lambda: nn.InstanceNorm2d(16, affine=True), T(4, 16, 24, 24), training=True)
module("parts/norm/batch-training", lambda: nn.BatchNorm2d(32), T(4, 32, 16, 16), training=True)
module("parts/norm/batch-1d-training", lambda: nn.BatchNorm1d(64), T(32, 64), training=True)
module("parts/norm/batch-cl-training", lambda: nn.BatchNorm2d(32), T(4, 32, 16, 16), training=True, channels_last=True)
train("parts/norm/ada-layer-training", adaln, T(4, 32, 64), T(4, 64), T(64, 192))
infer("parts/norm/ada-layer", adaln, T(4, 64, 128), T(4, 128), T(128, 384))
infer("parts/norm/rms-bf16", rms, T(4, 32, 512, dtype=bf16), T(512, dtype=bf16))
infer("parts/norm/rms-one-row", rms, T(1, 1, 1024), T(1024))
train("parts/norm/rms-training", rms, T(4, 64, 128), T(128))
infer("parts/norm/qk", qk_norm, *[T(2, 4, 64, 32)] * 2)
infer("parts/norm/squeeze-excite", se, T(2, 64, 14, 14), T(64, 16), T(16, 64))
infer("parts/norm/squeeze-excite-cl", se, T(2, 64, 14, 14, layout="channels_last"), T(64, 16), T(16, 64))
infer("parts/norm/global-response", grn, T(2, 14, 14, 96), T(96), T(96))
infer("parts/act/swiglu", lambda x: F.silu(x[..., :256]) * x[..., 256:], T(8, 16, 512))
infer("parts/act/geglu-f16", lambda x: (lambda a, b: a * F.gelu(b))(*x.chunk(2, -1)), T(8, 16, 512, dtype=f16))
train("parts/act/relu-squared", lambda x: F.relu(x).square(), T(64, 256))
train("parts/act/mish-bf16", F.mish, T(64, 256, dtype=bf16))
infer("parts/act/maxout", lambda x: x.view(32, 64, 4).amax(-1), T(32, 256))
train("parts/act/prelu", F.prelu, T(16, 32, 20), T(32))
infer("parts/act/sparsemax", lambda x: (lambda z: (x - ((z.cumsum(-1) - 1) / torch.arange(1, 33,
      device=x.device)).gather(-1,
      ((1 + torch.arange(1, 33, device=x.device) * z > z.cumsum(-1)).sum(-1, keepdim=True) - 1)))
      .clamp(min=0))(x.sort(-1, descending=True).values), T(64, 32))  # fmt: skip

# Embeddings

module(
    "parts/embed/bag-sum",
    lambda: nn.EmbeddingBag(1000, 32, mode="sum"),
    T(64, 10, dtype=i64, low=0, high=999),
    training=True,
)
module("parts/embed/bag-mean", lambda: nn.EmbeddingBag(1000, 32), T(64, 10, dtype=i64, low=0, high=999), training=True)
module(
    "parts/embed/bag-max",
    lambda: nn.EmbeddingBag(1000, 32, mode="max"),
    T(64, 10, dtype=i64, low=0, high=999),
    training=True,
)
module("parts/embed/training", lambda: nn.Embedding(500, 64), T(8, 32, dtype=i64, low=0, high=499), training=True)
infer("parts/embed/timestep", lambda t, f: torch.cat(((t[:, None] * f).sin(), (t[:, None] * f).cos()), -1), T(8), T(64))
infer("parts/embed/sum-of-three", lambda a, b, c, x, y: F.layer_norm(a[x] + b[y] + c[: x.shape[1]], (64,)), T(500,
      64), T(2, 64),
      T(128, 64), T(4, 32, dtype=i64, low=0, high=499), T(4, 32, dtype=i64, low=0, high=1))  # fmt: skip
infer("parts/embed/fm", lambda e: 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1), T(128, 12, 16))
infer("parts/embed/dot-interaction", lambda e: (e @ e.transpose(1, 2))[:, *torch.tril_indices(8, 8, -1)], T(64, 8, 16))
