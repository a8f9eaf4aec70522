"""As other people write them: graphs, decoding, sequences, few bits, updates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from small.case import T, bf16, boxes, f32, i8, i32, i64, infer, train, u8

# Graphs, texts, decoding


def page_rank(rank: Any, s: Any, d: Any, degree: Any) -> Any:
    for _ in range(3):
        flow = rank[s] / degree[s]
        rank = 0.15 / 1024 + 0.85 * torch.zeros_like(rank).scatter_add(0, d, flow)
    return rank


def propagated(label: Any, s: Any, d: Any) -> Any:
    for _ in range(3):
        label = label.scatter_reduce(0, d, label[s], "amin")
    return label


def edit_row(previous: Any, match: Any) -> Any:
    cost = torch.minimum(previous[:, 1:] + 1, previous[:, :-1] + (~match).float())
    at = torch.arange(1, cost.shape[1] + 1, dtype=f32)
    return torch.cummin(torch.minimum(cost, previous[:, :1] + 1 + at) - at, 1).values + at


def ctc_row(alpha: Any, probability: Any, skip: Any) -> Any:
    one = F.pad(alpha, (1, -1), value=-1e30)
    two = torch.where(skip, F.pad(alpha, (2, -2), value=-1e30), -1e30)
    return torch.logsumexp(torch.stack((alpha, one, two)), 0) + probability


def beams(score: Any, logits: Any, history: Any) -> Any:
    total = score[..., None] + F.log_softmax(logits, -1)
    best, at = total.flatten(1).topk(4, -1)
    beam, token = at // logits.shape[-1], at % logits.shape[-1]
    return best, torch.cat((history.gather(1, beam[..., None].expand(-1, -1, history.shape[-1])), token[..., None]), -1)


def iou(a: Any, b: Any) -> Any:
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = ((z[:, 2:] - z[:, :2]).prod(-1) for z in (a, b))
    return inner / (area_a[:, None] + area_b - inner)


def soft_nms(b: Any, score: Any) -> Any:
    order = score.argsort(descending=True)
    overlap = torch.triu(iou(b[order], b[order]), 1)
    return score[order] * torch.exp(-(overlap.amax(0) ** 2) / 0.5)


def penalized(logits: Any, tokens: Any) -> Any:
    seen = torch.gather(logits, 1, tokens)
    logits = logits.scatter(1, tokens, torch.where(seen < 0, seen * 1.2, seen / 1.2)) / 0.8
    probability = torch.softmax(logits, -1)
    return torch.where(probability < 0.05 * probability.amax(-1, keepdim=True), -math.inf, logits)


EDGES = T(4096, dtype=i64, low=0, high=1023)
infer("network/page-rank", page_rank, T(1024, low=0, high=1), EDGES, EDGES, T(1024, low=1, high=9))
infer("network/labels", propagated, T(1024, dtype=i64, low=0, high=1023), EDGES, EDGES)
infer(
    "network/clustering",
    lambda a: (lambda m: torch.diagonal(m @ m @ m) / (m.sum(-1) * (m.sum(-1) - 1)).clamp(min=1))((a > 0.8).float()),
    T(128, 128, low=0, high=1),
)
infer(
    "network/max-pool",
    lambda x, b: torch.full((32, 64), -math.inf).scatter_reduce(0, b[:, None].expand(-1, 64), x, "amax"),
    T(1024, 64),
    T(1024, dtype=i64, low=0, high=31),
)
train(
    "network/mean-training",
    lambda x, b: torch.zeros(32, 64).scatter_reduce(0, b[:, None].expand(-1, 64), x, "mean", include_self=False).sin(),
    T(1024, 64),
    T(1024, dtype=i64, low=0, high=31),
)
infer("network/laplacian", lambda a: torch.diag_embed(a.sum(-1)) - a, T(4, 96, 96))
infer("string/edit-row", edit_row, T(64, 129, low=0, high=50), T(64, 128, dtype=torch.bool))
infer("string/ctc-row", ctc_row, T(32, 128), T(32, 128), T(32, 128, dtype=torch.bool))
infer(
    "string/bigrams",
    lambda t: torch.zeros(4096).index_add_(0, (t[:, :-1] * 64 + t[:, 1:]).flatten(), torch.ones(32 * 127)),
    T(32, 128, dtype=i64, low=0, high=63),
)
infer("string/vowels", lambda b, table: table[b.long()].sum(-1), T(64, 512, dtype=u8), T(256, dtype=i64, low=0, high=1))
infer(
    "string/word-starts",
    lambda b: ((b[:, 1:] != 32) & (b[:, :-1] == 32)).cumsum(-1),
    T(64, 512, dtype=u8, low=30, high=40),
)
infer(
    "string/popcount",
    lambda x: (lambda v: (v + (v >> 4) & 0x0F0F0F0F) * 0x01010101 >> 24)(
        (lambda v: (v & 0x33333333) + (v >> 2 & 0x33333333))(x - (x >> 1 & 0x55555555))
    ),
    T(16384, dtype=i32, low=0, high=2**31 - 1),
)
infer(
    "string/morton",
    lambda x, y: (lambda s: s(x) | s(y) << 1)(
        lambda v: (lambda v: (v | v << 2) & 0x33333333)((v | v << 4) & 0x0F0F0F0F)
    ),
    T(8192, dtype=i64, low=0, high=255),
    T(8192, dtype=i64, low=0, high=255),
)
infer(
    "string/bag-of-words",
    lambda t, w: F.embedding_bag(t, w, mode="mean"),
    T(256, 32, dtype=i64, low=0, high=4095),
    T(4096, 64),
)
infer(
    "string/bag-padding",
    lambda t, w: F.embedding_bag(t, w, mode="sum", padding_idx=0),
    T(256, 32, dtype=i64, low=0, high=9),
    T(4096, 64),
)
train(
    "string/bag-training",
    lambda t, w: F.embedding_bag(t, w, mode="mean").tanh(),
    T(256, 16, dtype=i64, low=0, high=1023),
    T(1024, 64),
)
infer("search/beams", beams, T(8, 4), T(8, 4, 1000), T(8, 4, 12, dtype=i64, low=0, high=999))
infer("search/penalties", penalized, T(8, 4096), T(8, 32, dtype=i64, low=0, high=4095))
infer("search/iou", iou, boxes(256), boxes(256))
infer("search/soft-nms", soft_nms, boxes(256), T(256, low=0, high=1))
infer(
    "search/decode-boxes",
    lambda d, b: torch.cat(
        (b[:, :2] + d[:, :2] * (b[:, 2:] - b[:, :2]), (b[:, 2:] - b[:, :2]) * d[:, 2:].clamp(max=4).exp()), -1
    ),
    T(4096, 4),
    boxes(4096),
)
infer(
    "search/heatmap-peaks",
    lambda x: torch.where(F.max_pool2d(x, 3, 1, 1) == x, x, 0).flatten(1).topk(50).values,
    T(4, 2, 64, 64),
)

# Sequence models


def gqa(q: Any, k: Any, v: Any) -> Any:
    k, v = (z.repeat_interleave(4, 1) for z in (k, v))
    s = q @ k.transpose(-1, -2) / 8
    return s.softmax(-1) @ v


def windowed(q: Any, k: Any, v: Any) -> Any:
    n = q.shape[-2]
    i = torch.arange(n)
    mask = (i[:, None] >= i) & (i[:, None] - i < 32)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2, keepdim=True).transpose(-1, -2))


def mamba_step(state: Any, x: Any, dt: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    dt = F.softplus(dt)
    state = state * torch.exp(dt[..., None] * -torch.exp(a)) + (dt * x)[..., None] * b[:, None]
    return (state * c[:, None]).sum(-1) + d * x, state


def selective_scan(x: Any, dt: Any, a: Any, b: Any) -> Any:
    h = torch.zeros(x.shape[0], x.shape[2], a.shape[1])
    out = []
    for t in range(8):
        h = torch.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        out.append(h.sum(-1))
    return torch.stack(out, 1)


def rwkv(k: Any, v: Any, r: Any, aa: Any, bb: Any, pp: Any, w: Any, u: Any) -> Any:
    q = torch.maximum(pp, u + k)
    e1, e2 = torch.exp(pp - q), torch.exp(u + k - q)
    y = torch.sigmoid(r) * (e1 * aa + e2 * v) / (e1 * bb + e2)
    q = torch.maximum(pp + w, k)
    e1, e2 = torch.exp(pp + w - q), torch.exp(k - q)
    return y, e1 * aa + e2 * v, e1 * bb + e2, q


def token_shift(x: Any, mu: Any, w: Any) -> Any:
    past = F.pad(x, (0, 0, 1, -1))
    return torch.relu((x * mu + past * (1 - mu)) @ w) ** 2


def retention(q: Any, k: Any, v: Any) -> Any:
    i = torch.arange(q.shape[-2])
    decay = torch.where(i[:, None] >= i, 0.97 ** (i[:, None] - i).float(), 0.0)
    return (q @ k.transpose(-1, -2) * decay) @ v


HEADS = T(2, 8, 64, 64)
infer("sequence/gqa", gqa, HEADS, T(2, 2, 64, 64), T(2, 2, 64, 64))
infer("sequence/window", windowed, HEADS, HEADS, HEADS)
infer("sequence/linear-attention", linear_attention, HEADS, HEADS, HEADS)
train(
    "sequence/linear-attention-training",
    linear_attention,
    T(2, 4, 64, 32),
    T(2, 4, 64, 32),
    T(2, 4, 64, 32),
    tolerance=1e-3,
)
infer("sequence/mamba-step", mamba_step, T(4, 256, 16), T(4, 256), T(4, 256), T(256, 16), T(4, 16), T(4, 16), T(256))
infer(
    "sequence/mamba-step-bf16",
    mamba_step,
    *(T(*s, dtype=bf16) for s in ((4, 256, 16), (4, 256), (4, 256), (256, 16), (4, 16), (4, 16), (256,))),
)
train(
    "sequence/scan-training",
    selective_scan,
    T(2, 8, 64),
    T(2, 8, 64, low=0, high=0.1),
    T(64, 8, low=-1, high=0),
    T(2, 8, 8),
)
infer("sequence/rwkv", rwkv, *(T(8, 512),) * 6, T(512, low=-1, high=0), T(512))
infer("sequence/token-shift", token_shift, T(4, 64, 128), T(128), T(128, 128))
infer("sequence/retention", retention, HEADS, HEADS, HEADS)
infer(
    "sequence/causal-conv",
    lambda x, w, b: F.silu(F.conv1d(F.pad(x, (3, 0)), w, b, groups=64)),
    T(4, 64, 128),
    T(64, 1, 4),
    T(64),
)
infer(
    "sequence/weight-norm",
    lambda x, v, g: F.linear(x, v * (g / v.norm(dim=1, keepdim=True))),
    T(32, 256),
    T(128, 256),
    T(128, 1),
)
train(
    "sequence/qk-norm-training",
    lambda q, k, g: (F.rms_norm(q, (32,), g) @ F.rms_norm(k, (32,), g).transpose(-1, -2)).softmax(-1),
    T(2, 4, 48, 32),
    T(2, 4, 48, 32),
    T(32),
)
infer(
    "sequence/deep-norm",
    lambda x, y, w, b: F.layer_norm(x * 1.8 + y, (256,), w, b),
    T(128, 256, dtype=bf16),
    T(128, 256, dtype=bf16),
    T(256, dtype=bf16),
    T(256, dtype=bf16),
)
infer("sequence/softcap", lambda q, k: (torch.tanh(q @ k.transpose(-1, -2) / 50) * 50).softmax(-1), HEADS, HEADS)

# Numbers in few bits

infer(
    "bits-of/int4-rows",
    lambda p, s: (torch.stack((p & 15, p >> 4), -1).flatten(1).to(i8) - 8) * s,
    T(256, 128, dtype=u8),
    T(256, 1),
)
infer(
    "bits-of/fp8",
    lambda x: (x / (x.abs().amax() / 448)).clamp(-448, 448).to(torch.float8_e4m3fn).to(f32),
    T(256, 256),
    tolerance=0.05,
)
infer("bits-of/fp4", lambda x, t: t[(x[..., None] - t).abs().argmin(-1)], T(64, 128), T(16))
infer(
    "bits-of/binary-pack",
    lambda x: ((x > 0).view(-1, 8).to(u8) * torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=u8)).sum(-1).to(u8),
    T(128, 256),
)
infer(
    "bits-of/binary-unpack",
    lambda b: ((b[..., None] >> torch.arange(8, dtype=u8)) & 1).flatten(-2).to(f32) * 2 - 1,
    T(128, 64, dtype=u8),
)
infer(
    "bits-of/per-channel",
    lambda x: (lambda s: ((x / s).round().clamp(-127, 127).to(i8), s))(x.abs().amax(1, keepdim=True) / 127),
    T(256, 512),
)
infer(
    "bits-of/asymmetric",
    lambda x: (lambda lo, hi: ((x - lo) / (hi - lo) * 255).round().to(u8))(
        x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    ),
    T(256, 512),
)
train(
    "bits-of/straight-through",
    lambda x, s: x + ((x / s).round().clamp(-8, 7) * s - x).detach(),
    T(256, 256),
    T(1, 256, low=0.1, high=1),
)
infer(
    "bits-of/mx-scales",
    lambda x: (lambda b: (lambda e: (b * torch.exp2(-e)).flatten(1))(b.abs().amax(-1, keepdim=True).log2().floor()))(
        x.view(64, 16, 32)
    ),
    T(64, 512),
)

# Objectives and updates


def dice(x: Any, t: Any) -> Any:
    p = x.softmax(1)
    t = F.one_hot(t, 4).permute(0, 3, 1, 2).float()
    inner, total = (p * t).sum((0, 2, 3)), (p + t).sum((0, 2, 3))
    return 1 - ((2 * inner + 1) / (total + 1)).mean()


def barlow(a: Any, b: Any) -> Any:
    a, b = ((z - z.mean(0)) / (z.std(0) + 1e-5) for z in (a, b))
    c = a.t() @ b / a.shape[0]
    return (c.diagonal() - 1).square().sum() + 0.005 * (c - torch.diag_embed(c.diagonal())).square().sum()


def clip(a: Any, b: Any, t: Any) -> Any:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() * t.exp()
    labels = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def lion(p: Any, g: Any, m: Any) -> None:
    p.mul_(1 - 1e-4).add_(torch.sign(m * 0.9 + g * 0.1), alpha=-1e-4)
    m.mul_(0.99).add_(g, alpha=0.01)


def adafactor(p: Any, g: Any, row: Any, col: Any) -> None:
    square = g * g + 1e-30
    row.lerp_(square.mean(-1), 0.01)
    col.lerp_(square.mean(-2), 0.01)
    update = g * (row / row.mean()).rsqrt()[:, None] * col.rsqrt()
    p.add_(update / (update.square().mean().sqrt() / 1.0).clamp(min=1.0), alpha=-1e-3)


def newton_schulz(g: Any) -> Any:
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.t()
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def sophia(p: Any, m: Any, h: Any, g: Any) -> None:
    m.lerp_(g, 0.04)
    p.addcmul_(m.sign(), (m.abs() / (0.04 * h + 1e-12)).clamp(max=1), value=-1e-3)


infer("rule/lion", lion, T(512, 256), T(512, 256), T(512, 256))
infer("rule/adafactor", adafactor, T(256, 256), T(256, 256), T(256, low=0, high=1), T(256, low=0, high=1))
infer("rule/muon", newton_schulz, T(64, 128), tolerance=1e-3)
infer("rule/muon-bf16", newton_schulz, T(64, 128, dtype=bf16), tolerance=0.1)
infer("rule/sophia", sophia, T(256, 256), T(256, 256), T(256, 256, low=0, high=1), T(256, 256))
infer(
    "rule/shampoo",
    lambda left, right, g: (left.mul_(0.9).addmm_(g, g.t(), alpha=0.1), right.mul_(0.9).addmm_(g.t(), g, alpha=0.1)),
    T(64, 64),
    T(96, 96),
    T(64, 96),
)
train("goal/dice-map", dice, T(2, 4, 48, 48), T(2, 48, 48, dtype=i64, low=0, high=3))
train("goal/barlow", barlow, T(64, 96), T(64, 96))
train("goal/clip", clip, T(48, 64), T(48, 64), T(1, low=0, high=2))
train(
    "goal/huber-td",
    lambda q, a, t: F.smooth_l1_loss(q.gather(1, a).squeeze(1), t),
    T(256, 6),
    T(256, 1, dtype=i64, low=0, high=5),
    T(256),
)
train(
    "goal/arcface",
    lambda x, w, t: F.cross_entropy(
        30
        * (lambda c: torch.where(F.one_hot(t, 32).bool(), torch.cos(torch.acos(c.clamp(-0.99, 0.99)) + 0.5), c))(
            F.normalize(x) @ F.normalize(w).t()
        ),
        t,
    ),
    T(64, 64),
    T(32, 64),
    T(64, dtype=i64, low=0, high=31),
)
train("goal/wasserstein", lambda a, b: (a.sort(-1).values - b.sort(-1).values).abs().mean(), T(64, 128), T(64, 128))
train("goal/charbonnier", lambda a, b: ((a - b) ** 2 + 1e-6).sqrt().mean(), T(4, 3, 32, 32), T(4, 3, 32, 32))
train(
    "goal/mmd",
    lambda a, b: (lambda k: k(a, a).mean() + k(b, b).mean() - 2 * k(a, b).mean())(
        lambda x, y: torch.exp(-(torch.cdist(x, y) ** 2) / 8)
    ),
    T(64, 16),
    T(64, 16),
    tolerance=1e-3,
)
train(
    "goal/masked-lm",
    lambda x, t: F.cross_entropy(x.flatten(0, 1), torch.where(t % 7 == 0, t, -100).flatten()),
    T(4, 32, 200),
    T(4, 32, dtype=i64, low=0, high=199),
)
infer(
    "choice/masked-scatter",
    lambda x, m, s: x.masked_scatter(m[:, None].expand_as(x), s),
    T(256, 64),
    T(256, dtype=torch.bool),
    T(256, 64),
)
infer(
    "choice/image-tokens",
    lambda x, t, s: torch.where((t == 3)[..., None], 0.0, x).masked_scatter((t == 3)[..., None], s),
    T(4, 64, 64),
    T(4, 64, dtype=i64, low=0, high=4),
    T(256, 64),
)
