"""Pieces of language models as people write them: attention, positions, norms, sampling, caches, experts."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i64, infer, module, train, u8

# Positions and masks


def rotary(q: Any, k: Any, position: Any, inverse: Any) -> Any:
    angle = position[:, :, None].float() * inverse[None, None, :]
    both = torch.cat((angle, angle), -1)
    cos, sin = both.cos()[:, None].to(q.dtype), both.sin()[:, None].to(q.dtype)

    def half(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    return q * cos + half(q) * sin, k * cos + half(k) * sin


infer("prose/rotary", rotary, T(1, 12, 64, 64), T(1, 4, 64, 64), T(1, 64, dtype=i64, low=0, high=99), T(32))
infer(
    "prose/rotary-bf16",
    rotary,
    T(2, 8, 32, 64, dtype=bf16),
    T(2, 8, 32, 64, dtype=bf16),
    T(2, 32, dtype=i64, low=0, high=99),
    T(32),
)
infer("prose/rotary-one-token", rotary, T(1, 12, 1, 64), T(1, 4, 1, 64), T(1, 1, dtype=i64, low=0, high=99), T(32))


def rotary_of_pairs(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


infer("prose/rotary-pairs", rotary_of_pairs, T(2, 8, 64, 64), T(64, 32), T(64, 32))


def rotary_complex(x: Any, freqs: Any) -> Any:
    turned = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * freqs
    return torch.view_as_real(turned).flatten(-2).type_as(x)


infer("prose/rotary-complex", rotary_complex, T(2, 8, 64, 64), T(64, 32, dtype=torch.complex64))


def alibi(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    n = q.shape[-2]
    at = torch.arange(n)
    bias = -(at[:, None] - at[None, :]).abs() * slopes[:, None, None]
    return ((q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + bias).softmax(-1) @ v


infer("prose/alibi", alibi, *[T(1, 8, 96, 32)] * 3, T(8))


def sliding_window(q: Any, k: Any, v: Any) -> Any:
    n = q.shape[-2]
    at = torch.arange(n)
    seen = (at[:, None] >= at) & (at[:, None] - at < 32)
    scores = (q @ k.mT * 0.125).masked_fill(~seen, torch.finfo(q.dtype).min)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


infer("prose/sliding-window", sliding_window, *[T(1, 4, 128, 64)] * 3)
infer("prose/sliding-window-bf16", sliding_window, *[T(1, 4, 128, 64, dtype=bf16)] * 3)


def t5_buckets(q: Any, k: Any, table: Any) -> Any:
    distance = torch.arange(k.shape[0])[None, :] - torch.arange(q.shape[0])[:, None]
    side = (distance > 0).long() * 16
    distance = distance.abs()
    far = 8 + (torch.log(distance.float() / 8) / math.log(128 / 8) * 8).long()
    far = torch.minimum(far, torch.full_like(far, 15))
    return table[side + torch.where(distance < 8, distance, far)].permute(2, 0, 1)


infer("prose/t5-buckets", t5_buckets, T(64), T(64), T(32, 8))


def padded_causal(ids: Any) -> Any:
    padding = (ids != 0)[:, None, None, :]
    n = ids.shape[1]
    allowed = torch.ones(n, n, dtype=torch.bool).tril() & padding
    return torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))


infer("prose/padded-causal", padded_causal, T(4, 64, dtype=i64, low=0, high=5))
infer(
    "prose/position-ids",
    lambda mask: (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 1),
    T(8, 64, dtype=i64, low=0, high=1),
)
infer(
    "prose/shift-right",
    lambda ids: torch.cat((torch.zeros_like(ids[:, :1]), ids[:, :-1]), 1).masked_fill(ids == -100, 0),
    T(8, 128, dtype=i64, low=0, high=99),
)

# Norms and feed-forward layers


def rms(x: Any, w: Any) -> Any:
    y = x.float()
    return w * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


infer("prose/rms-one-token", rms, T(1, 1, 512), T(512))
infer("prose/rms-bf16", rms, T(4, 64, 512, dtype=bf16), T(512, dtype=bf16))
infer("prose/rms-heads", rms, T(2, 32, 8, 64), T(64))
train("prose/rms-train", rms, T(64, 512), T(512))
infer("prose/swiglu", lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], T(64, 1024, dtype=bf16))
infer("prose/geglu", lambda x: x[..., :512] * F.gelu(x[..., 512:], approximate="tanh"), T(64, 1024))
infer("prose/relu-squared", lambda x: F.relu(x).square(), T(64, 1024, dtype=f16))
infer(
    "prose/qkv-split",
    lambda x: [y.reshape(2, 32, 8, 32).transpose(1, 2).contiguous() for y in x.split(256, -1)],
    T(2, 32, 768),
)
infer("prose/softcap", lambda x: 30 * torch.tanh(x / 30), T(32, 2048))
module(
    "prose/block",
    lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True),
    T(2, 16, 64),
)
module(
    "prose/block-train",
    lambda: nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True),
    T(2, 16, 64),
    training=True,
)

# Generation


def top_p(logits: Any) -> Any:
    found, order = logits.sort(-1, descending=True)
    drop = found.softmax(-1).cumsum(-1) - found.softmax(-1) > 0.9
    return logits.masked_fill(drop.scatter(1, order, drop), float("-inf"))


infer("say/top-p", top_p, T(4, 1000))


def top_k(logits: Any) -> Any:
    return logits.masked_fill(logits < logits.topk(50)[0][..., -1, None], float("-inf")).softmax(-1)


infer("say/top-k", top_k, T(4, 2000))
infer("say/min-p", lambda x: x.masked_fill(x.softmax(-1) < 0.1 * x.softmax(-1).amax(-1, True), -1e9), T(4, 2000))


def repetition(logits: Any, ids: Any) -> Any:
    score = logits.gather(1, ids)
    return logits.scatter(1, ids, torch.where(score < 0, score * 1.2, score / 1.2))


infer("say/repetition", repetition, T(4, 1000), T(4, 32, dtype=i64, low=0, high=999))
infer("say/greedy", lambda x, done: torch.where(done, 0, x[:, -1].argmax(-1)), T(4, 3, 1000), T(4, dtype=torch.bool))


def beam_step(logits: Any, scores: Any) -> Any:
    total = (F.log_softmax(logits, -1) + scores[:, None]).view(2, -1)
    best, at = total.topk(8, 1)
    return best, at // logits.shape[-1], at % logits.shape[-1]


infer("say/beam-step", beam_step, T(8, 500), T(8))
infer("say/gumbel", lambda x, u: (x - torch.log(-torch.log(u))).argmax(-1), T(8, 1000), T(8, 1000, low=0.01, high=0.99))
infer(
    "say/frequency-penalty",
    lambda x, ids: x - 0.5 * torch.zeros_like(x).scatter_add_(1, ids, torch.ones_like(ids, dtype=x.dtype)),
    T(4, 1000),
    T(4, 32, dtype=i64, low=0, high=999),
)


def speculative(draft: Any, target: Any, ids: Any, u: Any) -> Any:
    p = target.gather(-1, ids[..., None])[..., 0]
    q = draft.gather(-1, ids[..., None])[..., 0]
    kept = (u < (p / q).clamp(max=1)).long().cumprod(-1)
    rest = (target - draft).clamp_min(0)
    return kept.sum(-1), rest / rest.sum(-1, keepdim=True)


infer(
    "say/speculative",
    speculative,
    *[T(2, 5, 500, low=0.001, high=1)] * 2,
    T(2, 5, dtype=i64, low=0, high=499),
    T(2, 5, low=0, high=1),
)


def cached(cache_k: Any, cache_v: Any, k: Any, v: Any, q: Any, at: Any) -> Any:
    cache_k[:, :, at] = k
    cache_v[:, :, at] = v
    seen = torch.arange(cache_k.shape[2]) <= at
    return F.scaled_dot_product_attention(q, cache_k, cache_v, attn_mask=seen[None, None, None, :])


infer("say/cached", cached, *[T(1, 8, 128, 32)] * 2, *[T(1, 8, 1, 32)] * 3, torch.tensor([17]))


def grouped_query(q: Any, k: Any, v: Any) -> Any:
    k, v = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


infer("say/grouped-query", grouped_query, T(1, 8, 64, 32), *[T(1, 2, 64, 32)] * 2)

# Experts, quantized weights


def route(x: Any, gate: Any) -> Any:
    weights, experts = torch.topk(F.softmax(x @ gate.t(), -1, dtype=torch.float), 2, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    mask = F.one_hot(experts, 8)
    return weights, mask.permute(2, 1, 0), mask.float().mean((0, 1))


infer("expert/route", route, T(128, 64), T(8, 64))


def balance(logits: Any) -> Any:
    p = logits.softmax(-1)
    chosen = F.one_hot(p.argmax(-1), p.shape[-1]).float()
    return (p.mean(0) * chosen.mean(0)).sum() * p.shape[-1] + logits.logsumexp(-1).square().mean() * 1e-3


train("expert/balance", balance, T(256, 8))


def all_experts(x: Any, w1: Any, w2: Any, weights: Any) -> Any:
    h = F.silu(torch.einsum("td,edf->etf", x, w1))
    return torch.einsum("etd,te->td", torch.bmm(h, w2), weights)


infer("expert/all", all_experts, T(32, 64), T(4, 64, 128), T(4, 128, 64), T(32, 4))


def int4(packed: Any, scale: Any, zero: Any) -> Any:
    both = torch.stack((packed & 15, packed >> 4), -1).flatten(1).float()
    return ((both.view(packed.shape[0], -1, 32) - zero[..., None]) * scale[..., None]).flatten(1)


infer("quant/int4", int4, T(128, 256, dtype=u8), T(128, 16), T(128, 16))


def per_token(x: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    return (x / scale).round().clamp(-128, 127).to(i8), scale


infer("quant/per-token", per_token, T(64, 512))
infer("quant/per-token-bf16", per_token, T(64, 512, dtype=bf16), tolerance=0.01)  # a step of 127
infer("quant/pack-int4", lambda x: x[:, ::2] | (x[:, 1::2] << 4), T(256, 512, dtype=u8, low=0, high=15))
infer(
    "quant/ternary", lambda w: (w / w.abs().mean().clamp(min=1e-5)).round().clamp(-1, 1) * w.abs().mean(), T(256, 256)
)


def straight_through(x: Any, s: Any) -> Any:
    return (x + ((x / s).round().clamp(-8, 7) * s - x).detach()).square().sum()


train("quant/straight-through", straight_through, T(128, 256), T(128, 1, low=0.1, high=1.0))
infer("quant/int8-linear", lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, T(4, 256), T(512, 256, dtype=i8), T(512))
infer("quant/fp8-e4m3", lambda x: (x * 8).clamp(-448, 448).to(torch.float8_e4m3fn).to(bf16), T(128, 256))
