"""Forward passes of models of the usual libraries: attention, caches, masks, scans, gates and blocks."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i64, infer, module, train, u8

# Positions


def turn_halves(x: Any) -> Any:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rotary_gathered(q: Any, k: Any, cos: Any, sin: Any, at: Any) -> Any:
    c, s = cos[at].unsqueeze(1), sin[at].unsqueeze(1)
    return q * c + turn_halves(q) * s, k * c + turn_halves(k) * s


for word, dtype in (("f32", torch.float32), ("bf16", bf16)):
    infer(
        f"library/rotary-gathered/{word}",
        rotary_gathered,
        T(2, 8, 64, 64, dtype=dtype),
        T(2, 2, 64, 64, dtype=dtype),
        *[T(256, 64, dtype=dtype)] * 2,
        T(2, 64, dtype=i64, low=0, high=255),
    )


def rotary_from_positions(x: Any, at: Any) -> Any:
    inverse = 1.0 / (10000.0 ** (torch.arange(0, 32, 2, dtype=torch.float32) / 32))
    angle = at[:, :, None].float() * inverse
    angle = torch.cat((angle, angle), -1)[:, None]
    return (x.float() * angle.cos() + turn_halves(x.float()) * angle.sin()).to(x.dtype)


infer(
    "library/rotary-from-positions", rotary_from_positions, T(1, 8, 128, 32, dtype=bf16), torch.arange(128).view(1, 128)
)


def rotary_yarn(at: Any) -> Any:
    dims = torch.arange(0, 64, 2, dtype=torch.float32)
    extrapolated, interpolated = 1 / (1e4 ** (dims / 64)), 1 / (8 * 1e4 ** (dims / 64))
    ramp = ((torch.arange(32, dtype=torch.float32) - 4) / 20).clamp(0, 1)
    inverse = interpolated * ramp + extrapolated * (1 - ramp)
    angle = torch.outer(at.float(), inverse)
    return torch.cat((angle, angle), -1).cos() * 1.2, torch.cat((angle, angle), -1).sin() * 1.2


infer("library/rotary-yarn", rotary_yarn, torch.arange(256))


def rotary_three(q: Any, cos: Any, sin: Any) -> Any:
    parts = [8, 12, 12, 8, 12, 12]
    c = torch.cat([m[i % 3] for i, m in enumerate(cos.split(parts, -1))], -1).unsqueeze(1)
    s = torch.cat([m[i % 3] for i, m in enumerate(sin.split(parts, -1))], -1).unsqueeze(1)
    return q * c + turn_halves(q) * s


infer("library/rotary-three-sections", rotary_three, T(1, 8, 96, 64), *[T(3, 1, 96, 64)] * 2)


def gptj_rotary(x: Any, s: Any) -> Any:
    sin, cos = s.chunk(2, -1)
    sin, cos = sin.repeat_interleave(2, -1)[:, :, None], cos.repeat_interleave(2, -1)[:, :, None]
    rotated, rest = x[..., :32], x[..., 32:]
    turned = torch.stack((-rotated[..., 1::2], rotated[..., ::2]), -1).flatten(-2)
    return torch.cat((rotated * cos + turned * sin, rest), -1)


infer("library/rotary-gptj", gptj_rotary, T(1, 64, 8, 64), T(1, 64, 32))


def axial(h: Any, w: Any) -> Any:
    y, x = torch.meshgrid(h, w, indexing="ij")
    inverse = 1.0 / (100.0 ** (torch.arange(0, 16, 1, dtype=torch.float32) / 16))
    angle = torch.cat((y.reshape(-1, 1) * inverse, x.reshape(-1, 1) * inverse), -1)
    return torch.stack((angle.cos(), angle.sin()), -1)


infer("library/axial-frequencies", axial, T(14), T(14))


def sine_2d(mask: Any) -> Any:
    keep = ~mask
    y, x = keep.cumsum(1, dtype=torch.float32), keep.cumsum(2, dtype=torch.float32)
    y = y / (y[:, -1:, :] + 1e-6) * 6.2831853
    x = x / (x[:, :, -1:] + 1e-6) * 6.2831853
    scale = torch.arange(32, dtype=torch.float32)
    scale = 10000 ** (2 * torch.div(scale, 2, rounding_mode="floor") / 32)
    px, py = x[:, :, :, None] / scale, y[:, :, :, None] / scale
    px = torch.stack((px[..., 0::2].sin(), px[..., 1::2].cos()), 4).flatten(3)
    py = torch.stack((py[..., 0::2].sin(), py[..., 1::2].cos()), 4).flatten(3)
    return torch.cat((py, px), 3).permute(0, 3, 1, 2)


infer("library/detr-sine", sine_2d, T(1, 20, 20, dtype=torch.bool))


def t5_bucket(q: Any, k: Any, table: Any) -> Any:
    relative = k[None, :] - q[:, None]
    bucket = (relative > 0).long() * 16
    n = relative.abs()
    large = 8 + (torch.log(n.float() / 8) / math.log(16) * 8).long()
    large = torch.min(large, torch.full_like(large, 15))
    bucket = bucket + torch.where(n < 8, n, large)
    return table[bucket].permute(2, 0, 1).unsqueeze(0)


infer("library/t5-buckets", t5_bucket, torch.arange(64), torch.arange(64), T(32, 8))


def swin_bias(table: Any, scores: Any) -> Any:
    c = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")).flatten(1)
    r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + 6
    index = r[..., 0] * 13 + r[..., 1]
    bias = table[index.view(-1)].view(49, 49, -1).permute(2, 0, 1)
    return (scores + bias[None]).softmax(-1)


infer("library/swin-bias", swin_bias, T(169, 4), T(16, 4, 49, 49))


def deberta_gather(c2p: Any, p2c: Any) -> Any:
    at = torch.arange(48)
    relative = (at[:, None] - at[None, :]).clamp(-24, 23) + 24
    a = torch.gather(c2p, -1, relative.expand(8, 48, 48))
    b = torch.gather(p2c, -1, (47 - relative).expand(8, 48, 48)).transpose(-1, -2)
    return (a + b) / 3**0.5


infer("library/deberta-gather", deberta_gather, *[T(8, 48, 48)] * 2)


def shifted_relative(x: Any) -> Any:
    b, h, n, m = x.shape
    x = F.pad(x, (1, 0)).view(b, h, m + 1, n)
    return x[:, :, 1:].view(b, h, n, m)[..., : m // 2 + 1] * 0.125


infer("library/transformer-xl-shift", shifted_relative, T(2, 4, 64, 127))

# Attention and caches


def repeat_heads(x: Any, n: int) -> Any:
    b, h, s, d = x.shape
    return x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)


def gqa_step(cache_k: Any, cache_v: Any, q: Any, k: Any, v: Any, at: Any) -> Any:
    cache_k.index_copy_(2, at, k)
    cache_v.index_copy_(2, at, v)
    keys, values = repeat_heads(cache_k, 4), repeat_heads(cache_v, 4)
    mask = torch.arange(cache_k.shape[2]) <= at[:, None]
    scores = (q @ keys.transpose(2, 3)) * 0.125
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ values


for word, dtype in (("f32", torch.float32), ("bf16", bf16), ("f16", f16)):
    infer(
        f"library/gqa-step/{word}",
        gqa_step,
        *[T(1, 2, 256, 64, dtype=dtype)] * 2,
        T(1, 8, 1, 64, dtype=dtype),
        *[T(1, 2, 1, 64, dtype=dtype)] * 2,
        torch.tensor([100]),
    )
    infer(
        f"library/sdpa-step/{word}",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        T(1, 8, 1, 64, dtype=dtype),
        *[T(1, 8, 200, 64, dtype=dtype)] * 2,
        T(1, 1, 1, 200, dtype=torch.bool),
    )
infer(
    "library/grow-cache-bf16",
    lambda k, v, a, b: (torch.cat((k, a), 2), torch.cat((v, b), 2)),
    *[T(1, 4, 127, 64, dtype=bf16)] * 2,
    *[T(1, 4, 1, 64, dtype=bf16)] * 2,
)


def quantized_cache(codes: Any, scale: Any, q: Any) -> Any:
    keys = codes.to(torch.float32) * scale
    return (q @ keys.transpose(-1, -2)).softmax(-1) @ keys


infer("library/int8-cache", quantized_cache, T(4, 256, 64, dtype=i8), T(4, 256, 1, low=0, high=0.02), T(4, 1, 64))


def window_mask(x: Any) -> Any:
    at = torch.arange(x.shape[-1])
    keep = (at[None, :] <= at[:, None]) & (at[:, None] - at[None, :] < 32)
    return x.masked_fill(~keep, float("-inf")).softmax(-1)


infer("library/window-softmax", window_mask, T(4, 128, 128))
infer("library/window-softmax-bf16", window_mask, T(4, 128, 128, dtype=bf16))


def hf_mask(attention: Any) -> Any:
    causal = torch.full((64, 64), torch.finfo(torch.float32).min).triu(1)
    padded = (1.0 - attention[:, None, None, :].float()) * torch.finfo(torch.float32).min
    return torch.maximum(causal[None, None] + padded, torch.tensor(torch.finfo(torch.float32).min))


infer("library/additive-mask", hf_mask, T(4, 64, dtype=i64, low=0, high=1))


def alibi_scores(q: Any, k: Any) -> Any:
    slopes = 2.0 ** -torch.arange(1, 9, dtype=torch.float32)
    distance = torch.arange(64)[None, :] - torch.arange(64)[:, None]
    scores = q @ k.transpose(-1, -2) * 0.125 + slopes[:, None, None] * distance
    return scores.masked_fill(distance > 0, float("-inf")).softmax(-1)


infer("library/alibi-scores", alibi_scores, *[T(1, 8, 64, 64)] * 2)


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = torch.einsum("bhnd,bhne->bhde", k, v)
    z = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(2)) + 1e-6)
    return torch.einsum("bhnd,bhde,bhn->bhne", q, kv, z)


infer("library/linear-attention", linear_attention, *[T(2, 4, 128, 32)] * 3)
train("library/linear-attention-training", linear_attention, *[T(2, 4, 128, 32)] * 3)


def xcit(q: Any, k: Any, v: Any, t: Any) -> Any:
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    return (q @ k.transpose(-2, -1) * t).softmax(-1) @ v


infer("library/cross-covariance", xcit, *[T(2, 4, 32, 196)] * 3, T(4, 1, 1))


def swin_windows(x: Any) -> Any:
    x = torch.roll(x, (-3, -3), (1, 2))
    b, h, w, c = x.shape
    return x.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)


def swin_back(x: Any, shortcut: Any) -> Any:
    b, h, w, c = shortcut.shape
    x = x.view(b, h // 7, w // 7, 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return shortcut + torch.roll(x, (3, 3), (1, 2))


infer("library/swin-windows", swin_windows, T(2, 28, 28, 64))
infer("library/swin-windows-bf16", swin_windows, T(2, 28, 28, 64, dtype=bf16))
infer("library/swin-back", swin_back, T(32, 49, 64), T(2, 28, 28, 64))
infer("library/talking-heads", lambda s, w: torch.einsum("bhij,hg->bgij", s, w).softmax(-1), T(2, 8, 64, 64), T(8, 8))


# Recurrences and state spaces


def selective_step(state: Any, x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    dt = F.softplus(dt)
    da = torch.exp(dt[..., None] * a)
    state.copy_(state * da + dt[..., None] * b[:, None, :] * x[..., None])
    return (state * c[:, None, :]).sum(-1) + d * x


infer(
    "library/mamba-step",
    selective_step,
    T(1, 256, 16),
    *[T(1, 256)] * 2,
    T(256, 16, low=-1, high=0),
    *[T(1, 16)] * 2,
    T(256),
)


def selective_scan(x: Any, dt: Any, a: Any, b: Any, c: Any) -> Any:
    da, dbx = torch.exp(dt[..., None] * a), dt[..., None] * b[:, :, None] * x[..., None]
    state, out = torch.zeros_like(da[:, 0]), []
    for i in range(x.shape[1]):
        state = da[:, i] * state + dbx[:, i]
        out.append((state * c[:, i, None]).sum(-1))
    return torch.stack(out, 1)


infer(
    "library/mamba-scan-16",
    selective_scan,
    T(2, 16, 64),
    T(2, 16, 64, low=0, high=0.2),
    T(64, 8, low=-1, high=0),
    *[T(2, 16, 8)] * 2,
)


def segment_sum(x: Any) -> Any:
    n = x.shape[-1]
    x = x[..., None].repeat(1, 1, 1, n)
    x = x.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(-1), 0)
    x = x.cumsum(-2)
    return x.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(0), float("-inf")).exp()


infer("library/mamba2-segments", segment_sum, T(2, 4, 64, low=-0.2, high=0))


def rwkv_shift(x: Any, mix: Any, w: Any) -> Any:
    before = F.pad(x, (0, 0, 1, -1))
    return torch.square(torch.relu((x * mix + before * (1 - mix)) @ w))


infer("library/rwkv-channel-mix", rwkv_shift, T(2, 32, 64), T(64, low=0, high=1), T(64, 128))


def retention(q: Any, k: Any, v: Any) -> Any:
    at = torch.arange(64)
    gamma = 1 - 2.0 ** (-5 - torch.arange(4, dtype=torch.float32))
    distance = at[:, None] - at[None, :]
    decay = torch.where(distance >= 0, gamma[:, None, None] ** distance.clamp(min=0), 0.0)
    return (q @ k.transpose(-1, -2) * decay) @ v


infer("library/retention", retention, *[T(2, 4, 64, 32)] * 3)


def causal_conv_step(state: Any, x: Any, w: Any, b: Any) -> Any:
    state.copy_(torch.roll(state, -1, -1))
    state[:, :, -1] = x
    return F.silu((state * w).sum(-1) + b)


infer("library/mamba-conv-step", causal_conv_step, T(1, 256, 4), T(1, 256), T(256, 4), T(256))


def delta_rule(s: Any, q: Any, k: Any, v: Any, beta: Any) -> Any:
    k = F.normalize(k, dim=-1)
    old = torch.einsum("bhkv,bhk->bhv", s, k)
    s = s + torch.einsum("bhk,bhv->bhkv", k, beta[..., None] * (v - old))
    return torch.einsum("bhkv,bhk->bhv", s, q), s


infer("library/delta-rule-step", delta_rule, T(1, 8, 32, 32), *[T(1, 8, 32)] * 3, T(1, 8, low=0, high=1))


# Blocks


class ConvNeXt(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


module("library/convnext", ConvNeXt, T(1, 48, 28, 28))
module("library/convnext-cl", ConvNeXt, T(1, 48, 28, 28, layout="channels_last"), channels_last=True)
module("library/convnext-training", ConvNeXt, T(1, 48, 14, 14), training=True)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
        self.tokens = nn.Sequential(nn.Linear(49, 96), nn.GELU(), nn.Linear(96, 49))
        self.channels = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


module("library/mlp-mixer", Mixer, T(4, 49, 64))
module("library/mlp-mixer-bf16", Mixer, T(4, 49, 64, dtype=bf16), dtype=bf16)


class ResnetTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, 32), nn.GroupNorm(8, 32)
        self.conv1, self.conv2 = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.time = nn.Linear(64, 64)

    def forward(self, x: Any, t: Any) -> Any:
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        h = self.norm2(h) * (1 + scale) + shift
        return (x + self.conv2(F.silu(h))) / 2**0.5


module("library/diffusers-resnet", ResnetTime, T(2, 32, 16, 16), T(2, 64))
module("library/diffusers-resnet-training", ResnetTime, T(2, 32, 16, 16), T(2, 64), training=True)


class AdaZero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64, elementwise_affine=False, eps=1e-6)
        self.modulate, self.mlp = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Any, c: Any) -> Any:
        shift, scale, gate = self.modulate(F.silu(c)).chunk(3, -1)
        return x + gate[:, None] * self.mlp(self.norm(x) * (1 + scale[:, None]) + shift[:, None])


module("library/dit-block", AdaZero, T(2, 64, 64), T(2, 64))
module("library/dit-block-training", AdaZero, T(2, 64, 64), T(2, 64), training=True)


class Eca(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.conv(x.mean((2, 3)).view(x.shape[0], 1, -1)).view(x.shape[0], -1, 1, 1).sigmoid()
        return x * y.expand_as(x)


class Cbam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Any) -> Any:
        y = torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)
        return x * torch.sigmoid(self.conv(y))


module("library/eca", Eca, T(4, 64, 14, 14))
module("library/cbam", Cbam, T(2, 32, 28, 28))
module("library/cbam-cl", Cbam, T(2, 32, 28, 28, layout="channels_last"), channels_last=True)


def split_attention(x: Any, w: Any) -> Any:
    x = x.view(2, 2, 32, 14, 14)
    gap = x.sum(1).mean((2, 3))
    a = (gap @ w).view(2, 2, 32).softmax(1)
    return (x * a[..., None, None]).sum(1)


infer("library/split-attention", split_attention, T(2, 64, 14, 14), T(32, 64))
infer(
    "library/drop-path-eval-residual",
    lambda x, y, g: x + y * g.view(1, -1, 1, 1),
    *[T(2, 64, 14, 14, layout="channels_last")] * 2,
    T(64),
)


def standardized(w: Any, x: Any) -> Any:
    mean, var = w.mean((1, 2, 3), keepdim=True), w.var((1, 2, 3), keepdim=True, unbiased=False)
    return F.conv2d(x, (w - mean) * torch.rsqrt(var + 1e-6), padding=1)


infer("library/standardized-conv", standardized, T(32, 16, 3, 3), T(1, 16, 14, 14))
train("library/standardized-conv-training", standardized, T(32, 16, 3, 3), T(1, 16, 14, 14))


def gem(x: Any, p: Any) -> Any:
    return F.avg_pool2d(x.clamp(min=1e-6).pow(p), (x.size(-2), x.size(-1))).pow(1.0 / p).flatten(1)


infer("library/gem-pool", gem, T(4, 64, 14, 14), T(1, low=2, high=3))
train("library/gem-pool-training", gem, T(4, 64, 14, 14), T(1, low=2, high=3))


class Whisper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, 64, 3, padding=1), nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(100, 64))

    def forward(self, x: Any) -> Any:
        x = F.gelu(self.conv2(F.gelu(self.conv1(x))))
        return x.permute(0, 2, 1) + self.positions


module("library/whisper-stem", Whisper, T(1, 80, 200))


def pool_tokens(x: Any, m: Any) -> Any:
    m = m[..., None].to(x.dtype)
    return F.normalize((x * m).sum(1) / m.sum(1).clamp(min=1e-9), dim=-1)


infer("library/sentence-embedding", pool_tokens, T(8, 32, 384), T(8, 32, dtype=i64, low=0, high=1))
infer("library/sentence-embedding-bf16", pool_tokens, T(8, 32, 384, dtype=bf16), T(8, 32, dtype=i64, low=0, high=1))


def clip_logits(a: Any, b: Any, scale: Any) -> Any:
    a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
    logits = scale.exp() * a @ b.t()
    return logits, logits.t()


infer("library/clip-logits", clip_logits, *[T(16, 128)] * 2, T(low=2, high=3))


def gguf_q4(codes: Any, scale: Any) -> Any:
    low, high = (codes & 0x0F).to(i8) - 8, (codes >> 4).to(i8) - 8
    return torch.cat((low, high), -1).to(f16) * scale


def gguf_q8(codes: Any, scale: Any, x: Any) -> Any:
    return x @ (codes.float() * scale.float()).view(128, 256).t()


def gguf_q5(codes: Any, high: Any, d: Any, m: Any) -> Any:
    low, up = codes & 0x0F, codes >> 4
    bits = (high[:, None].to(torch.int32) >> torch.arange(32, dtype=torch.int32)) & 1
    q = torch.cat((low, up), -1).to(torch.int32) | (bits << 4)
    return (q.float() * d.float() + m.float()).view(64, -1)


infer("library/gguf-q4", gguf_q4, T(2048, 16, dtype=u8), T(2048, 1, dtype=f16))
infer("library/gguf-q8", gguf_q8, T(1024, 32, dtype=i8), T(1024, 1, dtype=f16), T(4, 256))
infer(
    "library/gguf-q5",
    gguf_q5,
    T(1024, 16, dtype=u8),
    T(1024, dtype=torch.int32, low=0, high=2**31 - 1),
    *[T(1024, 1, dtype=f16)] * 2,
)


def awq(codes: Any, zeros: Any, scales: Any) -> Any:
    shift = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], dtype=torch.int32)
    w = (codes[..., None] >> shift & 15).flatten(-2)
    z = (zeros[..., None] >> shift & 15).flatten(-2)
    return (w - z.repeat_interleave(32, 0)).to(f16) * scales.repeat_interleave(32, 0)


infer(
    "library/awq-unpack",
    awq,
    T(128, 16, dtype=torch.int32, low=0, high=2**31 - 1),
    T(4, 16, dtype=torch.int32, low=0, high=2**31 - 1),
    T(4, 128, dtype=f16),
)
