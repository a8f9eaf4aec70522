"""Pieces of models and decoders in odd sizes, half precision and odd layouts: blocks, scans, graphs, search."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, boxes, f16, i64, infer, module, train


def _use(name, function, *inputs, **options):
    infer(f"usual/{name}", function, *inputs, **options)


def _both(name, function, *inputs, **options):
    _use(name, function, *inputs, **options)
    train(f"usual/{name}/train", function, *inputs, **options)


# Blocks


class _UnetBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(64, 2 * width)

    def forward(self, x, t):
        y = self.first(F.silu(self.one(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        return x + self.second(F.silu(self.two(y) * (1 + scale) + shift))


class _Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depth = nn.Conv2d(width, width, 5, padding=2, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.down, self.up = nn.Conv2d(width, 8, 1), nn.Conv2d(8, width, 1)

    def forward(self, x):
        y = F.hardswish(self.norm(self.depth(x)))
        return y * F.hardsigmoid(self.up(F.relu(self.down(y.mean((2, 3), keepdim=True)))))


class _Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.both, self.down = nn.RMSNorm(width), nn.Linear(width, 6 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        gate, up = self.both(self.norm(x)).chunk(2, -1)
        return x + self.down(F.gelu(gate, approximate="tanh") * up)


def _small_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 40, 3, 2, 1, bias=False), nn.BatchNorm2d(40), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10),
    )  # fmt: skip


for _end, _training in (("", False), ("/train", True)):
    for _word, _dtype in (("", torch.float32), ("-bf16", bf16), ("-f16", f16)):
        _loose = {"tolerance": {"": 1e-3, "-bf16": 0.1, "-f16": 2e-2}[_word]}
        module(f"usual/unet-block{_word}{_end}", lambda: _UnetBlock(40), T(2, 40, 27, 27, dtype=_dtype),
               T(2, 64, dtype=_dtype), training=_training, dtype=_dtype, **_loose)  # fmt: skip
        module(f"usual/gated-mlp{_word}{_end}", lambda: _Gate(120), T(3, 37, 120, dtype=_dtype), training=_training,
               dtype=_dtype, **_loose)  # fmt: skip
    module(f"usual/squeeze{_end}", lambda: _Squeeze(44), T(3, 44, 19, 19), training=_training, tolerance=1e-3)
    module(f"usual/cnn-bf16{_end}", _small_cnn, T(6, 3, 45, 45, dtype=bf16), training=_training, dtype=bf16,
           tolerance=0.2)  # fmt: skip
    module(f"usual/cnn-autocast{_end}", _small_cnn, T(6, 3, 45, 45), training=_training, autocast=bf16, tolerance=0.2)


# Attention and scans


def _rotary_gqa(q, k, v, angle):
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

    def turn(x):
        one, two = x.chunk(2, -1)
        return x * cos + torch.cat((-two, one), -1) * sin

    q, k = turn(q), turn(k).repeat_interleave(3, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v.repeat_interleave(3, 1)


def _alibi(q, k, v):
    n = q.shape[-2]
    slope = 2.0 ** -torch.arange(1, q.shape[1] + 1)
    away = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    return (q @ k.mT / 7 - slope[:, None, None] * away).softmax(-1) @ v


def _linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    total = (k[..., None] * v[..., None, :]).cumsum(-3)
    return torch.einsum("bhnd,bhnde->bhne", q, total) / (q * k.cumsum(-2)).sum(-1, keepdim=True)


def _selective_scan(x, step, a, b, c):
    step = F.softplus(step)
    state, found = x.new_zeros(x.shape[0], x.shape[2], a.shape[1]), []
    for t in range(x.shape[1]):
        state = state * torch.exp(step[:, t, :, None] * -a.exp()) + (step * x)[:, t, :, None] * b[:, t, None]
        found.append((state * c[:, t, None]).sum(-1))
    return torch.stack(found, 1)


def _rwkv(k, v, r, decay, first):
    top, low, peak, found = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), torch.full_like(k[:, 0], -1e30), []
    for t in range(k.shape[1]):
        most = torch.maximum(peak, first + k[:, t])
        old, new = torch.exp(peak - most), torch.exp(first + k[:, t] - most)
        found.append(torch.sigmoid(r[:, t]) * (old * top + new * v[:, t]) / (old * low + new))
        most = torch.maximum(peak - decay.exp(), k[:, t])
        old, new = torch.exp(peak - decay.exp() - most), torch.exp(k[:, t] - most)
        top, low, peak = old * top + new * v[:, t], old * low + new, most
    return torch.stack(found, 1)


def _delta_rule(q, k, v, beta):
    k, state, found = F.normalize(k, dim=-1), q.new_zeros(q.shape[0], q.shape[2], v.shape[2]), []
    for t in range(q.shape[1]):
        wrong = v[:, t] - torch.einsum("bd,bde->be", k[:, t], state)
        state = state + torch.einsum("bd,be->bde", k[:, t], beta[:, t].sigmoid() * wrong)
        found.append(torch.einsum("bd,bde->be", q[:, t], state))
    return torch.stack(found, 1)


_both("rotary-gqa", _rotary_gqa, T(2, 6, 53, 48), T(2, 2, 53, 48), T(2, 2, 53, 48), T(53, 24))
_use("rotary-gqa-any-size", _rotary_gqa, T(2, 6, 53, 48), T(2, 2, 53, 48), T(2, 2, 53, 48), T(53, 24), dynamic=True)
_both("alibi", _alibi, *[T(2, 6, 61, 49)] * 3)
_both("linear-attention", _linear_attention, *[T(2, 3, 29, 12)] * 3)
_both("selective-scan", _selective_scan, T(3, 14, 50), T(3, 14, 50), T(50, 8), T(3, 14, 8), T(3, 14, 8))
_both("rwkv", _rwkv, *[T(3, 11, 70)] * 3, T(70), T(70))
_both("delta-rule", _delta_rule, *[T(3, 9, 20)] * 3, T(3, 9, 1), tolerance=1e-3)
_use("decode-cache-bf16", lambda q, k, v, n: F.scaled_dot_product_attention(
    q, k, v, (torch.arange(k.shape[2]) < n)[:, None, None], enable_gqa=True),
    T(2, 8, 1, 40, dtype=bf16), T(2, 2, 333, 40, dtype=bf16), T(2, 2, 333, 40, dtype=bf16),
    T(2, 1, dtype=i64, low=100, high=333), tolerance=6e-2)  # fmt: skip


# Graphs and sets


def _messages(x, source, target, w):
    sent = F.relu(x[source] @ w + x[target])
    total = torch.zeros_like(x).index_add(0, target, sent)
    count = torch.zeros(len(x)).index_add(0, target, torch.ones(len(source)))
    return total / count.clamp(min=1)[:, None]


def _graph_attention(x, source, target):
    score = F.leaky_relu((x[source] * x[target]).sum(-1), 0.2)
    top = torch.full((len(x),), -1e9).scatter_reduce(0, target, score.detach(), "amax")
    weight = (score - top[target]).exp()
    total = torch.zeros(len(x)).scatter_add(0, target, weight)
    return torch.zeros_like(x).index_add(0, target, x[source] * (weight / total[target])[:, None])


def _ragged_mean(x, lengths):
    part = torch.repeat_interleave(torch.arange(len(lengths)), lengths, output_size=len(x))
    return torch.zeros(len(lengths), x.shape[1]).index_add(0, part, x) / lengths[:, None]


def _padded_loss(x, y, lengths):
    keep = torch.arange(x.shape[1]) < lengths[:, None]
    loss = F.cross_entropy(x.transpose(1, 2), y, reduction="none")
    return (loss * keep).sum() / keep.sum()


def _router(x, w):
    weight, chosen = (x @ w).softmax(-1).topk(2)
    weight = weight / weight.sum(-1, keepdim=True)
    order = chosen.flatten().argsort(stable=True)
    return x[order // 2] * weight.flatten()[order, None], torch.bincount(chosen.flatten(), minlength=w.shape[1])


def _soft_experts(x, w, up, down):
    weight = (x @ w).softmax(-1)
    hidden = F.silu(torch.einsum("nd,edh->neh", x, up))
    return torch.einsum("neh,ehd,ne->nd", hidden, down, weight)


_many = T(900, dtype=i64, low=0, high=210)
_both("messages", _messages, T(211, 29), _many, _many, T(29, 29), tolerance=1e-3)
_both("graph-attention", _graph_attention, T(211, 29), _many, _many, tolerance=1e-3)
_both("ragged-mean", _ragged_mean, T(7 * 13, 45), torch.full((7,), 13))
_both("padded-loss", _padded_loss, T(5, 31, 77), T(5, 31, dtype=i64, low=0, high=76),
      T(5, dtype=i64, low=3, high=31))  # fmt: skip
_use("router", _router, T(67, 48), T(48, 9))
_both("soft-experts", _soft_experts, T(35, 40), T(40, 5), T(5, 40, 56), T(5, 56, 40), tolerance=1e-3)
_both("weighted-bags", lambda w, at, scale: F.embedding_bag(at, w, mode="sum", per_sample_weights=scale),
      T(901, 33), T(23, 11, dtype=i64, low=0, high=900), T(23, 11))  # fmt: skip
_both("tied-logits-bf16", lambda x, w: F.log_softmax((x @ w.mT).float(), -1).logsumexp(0), T(21, 88, dtype=bf16),
      T(403, 88, dtype=bf16), tolerance=0.1)  # fmt: skip


# Search and sequences


def _top_p(x):
    sorted_, at = (x / 0.7).softmax(-1).sort(-1, descending=True)
    sorted_ = sorted_.masked_fill(sorted_.cumsum(-1) - sorted_ > 0.9, 0)
    return torch.zeros_like(x).scatter(-1, at, sorted_ / sorted_.sum(-1, keepdim=True))


def _beam(scores, logits, ended):
    logits = logits.log_softmax(-1).masked_fill(ended[..., None], -1e9)
    best, at = (scores[..., None] + logits).flatten(1).topk(scores.shape[1])
    return best, at // logits.shape[-1], at % logits.shape[-1]


def _min_p(x, counts):
    x = x - 0.3 * counts - 0.2 * (counts > 0)
    p = x.softmax(-1)
    return torch.where(p < 0.05 * p.amax(-1, keepdim=True), float("-inf"), x).log_softmax(-1)


def _viterbi(emission, move):
    score, back = emission[:, 0], []
    for t in range(1, emission.shape[1]):
        best, at = (score[:, :, None] + move).max(1)
        score = best + emission[:, t]
        back.append(at)
    path = [score.argmax(1)]
    for at in reversed(back):
        path.append(at.gather(1, path[-1][:, None])[:, 0])
    return torch.stack(path[::-1], 1)


def _forward_algorithm(emission, move):
    score = emission[:, 0]
    for t in range(1, emission.shape[1]):
        score = torch.logsumexp(score[:, :, None] + move, 1) + emission[:, t]
    return score.logsumexp(1)


def _ctc(x, y):
    n, size = torch.full((x.shape[1],), x.shape[0]), torch.full((len(y),), y.shape[1])
    return F.ctc_loss(x.log_softmax(-1), y, n, size)


def _iou(a, b):
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = [(x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b)]
    union = area[0][:, None] + area[1] - shared
    hull = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).prod(-1)
    return shared / union - (hull - union) / hull


_use("top-p", _top_p, T(3, 1001))
_use("beam", _beam, T(2, 5), T(2, 5, 777), torch.tensor([[False, True, False, False, False]] * 2))
_use("min-p-f16", _min_p, T(5, 999, dtype=f16), T(5, 999, dtype=i64, low=0, high=2), tolerance=1e-2)
_use("viterbi", _viterbi, T(7, 13, 11), T(11, 11))
_both("forward-algorithm", _forward_algorithm, T(7, 13, 11), T(11, 11))
_both("ctc", _ctc, T(25, 4, 21), T(4, 6, dtype=i64, low=1, high=20), fullgraph=False)
_use("giou", _iou, boxes(83), boxes(47))
_use("giou-any-size", _iou, boxes(83), boxes(47), dynamic=True)
