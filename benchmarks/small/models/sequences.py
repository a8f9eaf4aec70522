"""From models of language and sound: positions, caches, sampling, adapters, metrics."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, module, train, u8

# Positions and masks


def rotary(q: Any, k: Any, position: Any) -> Any:
    frequency = 1e4 ** (-torch.arange(0, 64, 2, device=q.device) / 64)
    angle = position[:, None, :, None].float() * frequency
    cos, sin = torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1)

    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    return turned(q), turned(k)


def partial_rotary(x: Any, cos: Any, sin: Any) -> Any:
    turned, kept = x[..., :32], x[..., 32:]
    even, odd = turned[..., ::2], turned[..., 1::2]
    return torch.cat((torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2), kept), -1)


def alibi(scores: Any) -> Any:
    heads, _, rows, columns = (scores.shape[1], *scores.shape[1:])
    slopes = 2 ** (-8 * torch.arange(1, heads + 1, device=scores.device) / heads)
    away = torch.arange(columns, device=scores.device) - torch.arange(rows, device=scores.device)[:, None]
    return (scores + slopes[:, None, None] * away).masked_fill(away > 0, float("-inf")).softmax(-1)


def bucketed(bias: Any) -> Any:
    away = torch.arange(64)[None] - torch.arange(64)[:, None]
    n = away.abs()
    large = 8 + (torch.log(n.clamp_min(1).float() / 8) / math.log(16) * 8).long()
    return bias[(away > 0).long() * 16 + torch.where(n < 8, n, large.clamp_max(15))].permute(2, 0, 1)


def sliding(q: Any, k: Any, v: Any) -> Any:
    i = torch.arange(q.shape[-2], device=q.device)
    seen = (i[:, None] >= i) & (i[:, None] - i < 32)
    return ((q @ k.mT / 8).masked_fill(~seen, float("-inf")).softmax(-1)) @ v


def packed_mask(document: Any) -> Any:
    i = torch.arange(document.shape[1], device=document.device)
    return ((document[:, :, None] == document[:, None]) & (i[:, None] >= i))[:, None]


def position_ids(mask: Any) -> Any:
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 1)


infer("position/rotary", rotary, T(2, 8, 64, 64), T(2, 2, 64, 64), T(2, 64, dtype=i64, low=0, high=500))
infer(
    "position/rotary-bf16",
    rotary,
    T(1, 8, 1, 64, dtype=bf16),
    T(1, 2, 1, 64, dtype=bf16),
    T(1, 1, dtype=i64, low=9, high=9),
)
infer("position/partial-rotary", partial_rotary, T(2, 64, 8, 64), T(64, 1, 16), T(64, 1, 16))
infer("position/alibi", alibi, T(1, 8, 96, 96))
infer("position/bucketed", bucketed, T(32, 8))
infer("position/sliding", sliding, T(1, 4, 128, 64), T(1, 4, 128, 64), T(1, 4, 128, 64))
infer("position/packed-mask", packed_mask, T(4, 128, dtype=i64, low=0, high=3))
infer("position/ids", position_ids, T(8, 128, dtype=i64, low=0, high=1))
infer("position/lengths", lambda n: torch.arange(256)[None] < n[:, None], T(32, dtype=i64, low=1, high=256))
infer(
    "position/prefix-mask",
    lambda n, x: x.masked_fill(torch.arange(128) >= n[:, None, None], -1e9),
    T(8, dtype=i64, low=1, high=128),
    T(8, 16, 128),
)
infer(
    "position/sinusoid-add",
    lambda x: (
        x
        + torch.cat(
            [f(torch.arange(64)[:, None] * 1e-2 ** (torch.arange(64) / 64)) for f in (torch.sin, torch.cos)], -1
        )
    ),
    T(4, 64, 128),
)

# Steps of decoding


def accept_drafts(p: Any, q: Any, token: Any, u: Any) -> Any:
    at = token[..., None]
    ratio = (p.softmax(-1).gather(-1, at) / q.softmax(-1).gather(-1, at)).squeeze(-1)
    kept = (u < ratio).long().cumprod(-1)
    rest = (p.softmax(-1) - q.softmax(-1)).clamp_min(0)
    return kept.sum(-1), rest / rest.sum(-1, keepdim=True).clamp_min(1e-9)


def penalties(logits: Any, tokens: Any) -> Any:
    counts = torch.zeros_like(logits).scatter_add(1, tokens, torch.ones_like(tokens, dtype=logits.dtype))
    return logits - 0.5 * counts - 0.3 * (counts > 0)


def typical(logits: Any) -> Any:
    p = logits.log_softmax(-1)
    entropy = -(p.exp() * p).sum(-1, keepdim=True)
    shifted, order = (-p - entropy).abs().sort(-1)
    last = (p.gather(-1, order).exp().cumsum(-1) < 0.9).sum(-1, keepdim=True)
    return logits.masked_fill((-p - entropy).abs() > shifted.gather(-1, last.clamp_max(p.shape[-1] - 1)), -1e9)


def beam_step(score: Any, logits: Any, tokens: Any) -> Any:
    total = (score[..., None] + logits.log_softmax(-1)).flatten(1)
    best, at = total.topk(8, -1)
    kept = tokens.gather(1, (at // logits.shape[-1])[..., None].expand(-1, -1, tokens.shape[-1]))
    return best[:, :4], torch.cat((kept, (at % logits.shape[-1])[..., None]), -1)[:, :4]


def write_kv(k: Any, cache: Any, position: Any) -> Any:
    cache[torch.arange(4), :, position] = k
    return cache.sum()


def paged(cache: Any, table: Any, q: Any) -> Any:
    k = cache[table].flatten(1, 2)
    return torch.einsum("bhd,bshd->bhs", q, k).softmax(-1)


def quantize_kv(k: Any) -> Any:
    low, high = k.amin(-1, keepdim=True), k.amax(-1, keepdim=True)
    scale = (high - low) / 255
    return ((k - low) / scale).round().to(u8), scale, low


infer(
    "step-of/accept-drafts",
    accept_drafts,
    T(2, 4, 1000),
    T(2, 4, 1000),
    T(2, 4, dtype=i64, low=0, high=999),
    T(2, 4, low=0, high=1),
)
infer("step-of/penalties", penalties, T(4, 4000), T(4, 64, dtype=i64, low=0, high=3999))
infer("step-of/typical", typical, T(2, 1000))
infer("step-of/beam", beam_step, T(2, 4), T(2, 4, 2000), T(2, 4, 16, dtype=i64, low=0, high=1999))
infer("step-of/write-kv", write_kv, T(4, 8, 64), T(4, 8, 128, 64), T(4, dtype=i64, low=0, high=127))
infer("step-of/paged", paged, T(64, 16, 4, 32), T(4, 8, dtype=i64, low=0, high=63), T(4, 4, 32))
infer("step-of/quantize-kv", quantize_kv, T(1, 8, 64, 64))
infer(
    "step-of/min-p-bf16",
    lambda x: x.masked_fill((p := x.float().softmax(-1)) < 0.05 * p.amax(-1, keepdim=True), -1e4),
    T(4, 4000, dtype=bf16),
)
infer("step-of/entropy", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), T(16, 4000))
infer(
    "step-of/stop",
    lambda t, e: (t[:, None] == e).any(1) | (t == 0),
    T(64, dtype=i64, low=0, high=99),
    T(4, dtype=i64, low=0, high=99),
)
infer(
    "step-of/gumbel-argmax",
    lambda x, u: (x / 0.8 - torch.log(-torch.log(u))).argmax(-1),
    T(4, 4000),
    T(4, 4000, low=0.01, high=0.99),
)
infer(
    "step-of/shift-labels",
    lambda x, y: F.cross_entropy(x[:, :-1].flatten(0, 1), y[:, 1:].flatten()),
    T(2, 64, 500),
    T(2, 64, dtype=i64, low=0, high=499),
)


# Adapters, gates and quantized weights


class LoraLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(256, 256).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(8, 256) / 16), nn.Parameter(torch.randn(256, 8) / 16)

    def forward(self, x: Any) -> Any:
        return self.base(x) + F.linear(F.linear(x, self.a), self.b) * 2


class Adapter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.norm = nn.Linear(128, 16), nn.Linear(16, 128), nn.LayerNorm(128)

    def forward(self, x: Any) -> Any:
        return x + self.up(F.gelu(self.down(self.norm(x)), approximate="tanh"))


class Modulated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into = nn.LayerNorm(128, elementwise_affine=False), nn.Linear(64, 384)

    def forward(self, x: Any, c: Any) -> Any:
        shift, scale, gate = self.into(F.silu(c))[:, None].chunk(3, -1)
        return x + gate * (self.norm(x) * (1 + scale) + shift)


def ternary(x: Any, w: Any) -> Any:
    scale = w.abs().mean().clamp_min(1e-5)
    return F.linear(x, (w / scale).round().clamp(-1, 1) * scale)


def dynamic_int8(x: Any, q: Any, s: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True) / 127
    xq = (x / scale).round().clamp(-127, 127)
    return (xq @ q.float().t()) * scale * s


def blockwise(x: Any) -> Any:
    b = x.view(-1, 64)
    most = b.abs().amax(1, keepdim=True)
    return (b / most * 127).round().to(i8).view_as(x), most


module("adapter/lora", LoraLinear, T(32, 256))
module("adapter/lora-training", LoraLinear, T(32, 256), training=True)
module("adapter/bottleneck", Adapter, T(4, 32, 128))
module("adapter/bottleneck-training", Adapter, T(4, 32, 128), training=True)
module("adapter/modulated", Modulated, T(4, 32, 128), T(4, 64))
module("adapter/modulated-bf16", Modulated, T(4, 32, 128, dtype=bf16), T(4, 64, dtype=bf16), dtype=bf16)
infer("adapter/ternary", ternary, T(16, 256), T(256, 256))
infer("adapter/dynamic-int8", dynamic_int8, T(16, 256), T(256, 256, dtype=i8), T(256))
infer("adapter/blockwise-int8", blockwise, T(256, 512))
infer(
    "adapter/unblock-int8",
    lambda q, s: (q.view(-1, 64).float() * s / 127).view(256, 512),
    T(256, 512, dtype=i8),
    T(2048, 1),
)
infer("adapter/geglu-f16", lambda x: (c := x.chunk(2, -1))[0] * F.gelu(c[1]), T(32, 1024, dtype=f16))
infer("adapter/relu-squared", lambda x: F.relu(x).square(), T(64, 1024))
infer(
    "adapter/qk-norm", lambda q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT, T(2, 4, 64, 32), T(2, 4, 64, 32)
)
infer("adapter/tanh-cap-bf16", lambda x: 30 * torch.tanh(x / 30), T(16, 4000, dtype=bf16))

# Sequences in order


def state_space(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
    h, out = torch.zeros(x.shape[0], x.shape[2], a.shape[1], device=x.device), []
    step = F.softplus(delta)
    for t in range(x.shape[1]):
        h = h * torch.exp(step[:, t, :, None] * a) + (step[:, t] * x[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def forward_algorithm(emission: Any, transition: Any) -> Any:
    alpha = emission[:, 0]
    for t in range(1, emission.shape[1]):
        alpha = torch.logsumexp(alpha[:, :, None] + transition, 1) + emission[:, t]
    return alpha.logsumexp(-1)


def viterbi(emission: Any, transition: Any) -> Any:
    score, back = emission[:, 0], []
    for t in range(1, emission.shape[1]):
        best, at = (score[:, :, None] + transition).max(1)
        score = best + emission[:, t]
        back.append(at)
    return score, torch.stack(back)


def advantage(reward: Any, value: Any, done: Any) -> Any:
    last, out = torch.zeros(reward.shape[0], device=reward.device), []
    for t in reversed(range(reward.shape[1])):
        last = reward[:, t] + 0.99 * value[:, t + 1] * (1 - done[:, t]) - value[:, t] + 0.94 * (1 - done[:, t]) * last
        out.append(last)
    return torch.stack(out[::-1], 1)


def smoothed(x: Any, h: Any) -> Any:
    out = []
    for t in range(x.shape[1]):
        h = 0.9 * h + 0.1 * x[:, t]
        out.append(h)
    return torch.stack(out, 1)


def gated_linear(q: Any, k: Any, v: Any, g: Any) -> Any:
    s, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2], device=q.device), []
    for t in range(q.shape[1]):
        s = s * g[:, t, :, None].sigmoid() + k[:, t, :, None] * v[:, t, None]
        out.append((q[:, t, None] @ s)[:, 0])
    return torch.stack(out, 1)


def vanilla(x: Any, h: Any, w: Any, u: Any) -> Any:
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ w + h @ u)
    return h


infer(
    "in-order/state-space",
    state_space,
    T(2, 16, 32),
    T(2, 16, 32),
    T(32, 8, low=-2, high=-0.1),
    T(2, 16, 8),
    T(2, 16, 8),
)
infer("in-order/forward-algorithm", forward_algorithm, T(8, 16, 12), T(12, 12))
train("in-order/forward-algorithm-training", forward_algorithm, T(8, 12, 12), T(12, 12))
infer("in-order/viterbi", viterbi, T(8, 16, 12), T(12, 12))
infer("in-order/advantage", advantage, T(64, 16), T(64, 17), T(64, 16, low=0, high=1))
infer("in-order/smoothed", smoothed, T(16, 24, 64), T(16, 64))
infer("in-order/gated-linear", gated_linear, T(2, 12, 32), T(2, 12, 32), T(2, 12, 32), T(2, 12, 32))
infer("in-order/vanilla", vanilla, T(8, 12, 32), T(8, 64), T(32, 64), T(64, 64))

# Sound


def melody(x: Any, basis: Any) -> Any:
    frames = F.pad(x, (128, 128)).unfold(-1, 256, 128) * torch.hann_window(256)
    power = (frames @ basis[0]).square() + (frames @ basis[1]).square()
    return power.clamp_min(1e-10).log10()


infer("audio/log-power", melody, T(2, 4096), T(2, 256, 80))
infer(
    "audio/zero-crossings",
    lambda x: (x.unfold(-1, 256, 128)[..., 1:].sign() != x.unfold(-1, 256, 128)[..., :-1].sign()).float().mean(-1),
    T(4, 8192),
)
infer(
    "audio/rms-db", lambda x: 20 * x.unfold(-1, 512, 256).square().mean(-1).sqrt().clamp_min(1e-8).log10(), T(4, 8192)
)
infer(
    "audio/depthwise-causal", lambda x, w: F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=64)), T(2, 64, 128), T(64, 1, 4)
)
infer(
    "audio/mean-variance",
    lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(),
    T(4, 200, 80),
)
infer("audio/i16-to-float", lambda x: x.float().mean(1) / 32768, T(4, 2, 8000, dtype=torch.int16))
infer("audio/gain-ramp", lambda x: (x * torch.linspace(0, 1, 8000)).clamp(-1, 1), T(4, 8000))
infer("audio/upsampled", lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"), T(4, 16, 512))

# Tokens


def chunk_hash(t: Any) -> Any:
    h = torch.zeros(t.shape[0], dtype=i64, device=t.device)
    for k in range(t.shape[1]):
        h = (h * 31 + t[:, k]) % 1000003
    return h


def mlm_mask(t: Any, u: Any) -> Any:
    chosen = (u < 0.15) & (t > 3)
    return torch.where(chosen, torch.full_like(t, 3), t), torch.where(chosen, t, -100)


infer("token/hash", chunk_hash, T(1024, 8, dtype=i64, low=0, high=999))
infer("token/mlm-mask", mlm_mask, T(16, 128, dtype=i64, low=0, high=999), T(16, 128, low=0, high=1))
infer(
    "token/ngrams",
    lambda t: (t.unfold(-1, 3, 1) * torch.tensor([10000, 100, 1])).sum(-1),
    T(16, 128, dtype=i64, low=0, high=99),
)
infer("token/counts", lambda t: (t[:, :, None] == torch.arange(50)).sum(1), T(16, 64, dtype=i64, low=0, high=49))
infer(
    "token/causal-4d",
    lambda m: torch.where(m[:, None, None, :] & torch.ones(96, 96, dtype=torch.bool).tril(), 0.0, -1e9),
    T(4, 96, dtype=torch.bool),
)
infer("token/xorshift", lambda x: (y := (x ^ (x << 13)) ^ ((x ^ (x << 13)) >> 7)) ^ (y << 17), T(256, 256, dtype=i64))
infer(
    "token/signs-packed",
    lambda x: ((x.view(64, 32, 8) > 0).to(u8) << torch.arange(8, dtype=u8)).sum(-1).to(u8),
    T(64, 256),
)
infer("token/hamming", lambda a, b: (a[:, None] != b[None]).sum(-1), T(64, 16, dtype=u8), T(64, 16, dtype=u8))
infer(
    "token/last-valid",
    lambda x, m: x[torch.arange(8), m.long().sum(1).clamp_min(1) - 1],
    T(8, 64, 128),
    T(8, 64, dtype=torch.bool),
)
infer("token/segment-ids", lambda t: (t == 2).long().cumsum(1).clamp_max(1), T(32, 128, dtype=i32, low=0, high=9))
