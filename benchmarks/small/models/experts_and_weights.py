"""Pieces of code about experts, adapters, quantized weights and sampling, as their authors write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, f16, i8, i64, infer, module, train, u8

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
infer(
    "extract/lora",
    lambda x, w, a, b: F.linear(x, w) + F.linear(F.linear(x, a), b) * 2.0,
    T(16, 128),
    T(128, 128),
    T(8, 128),
    T(128, 8),
)
train(
    "extract/lora-training",
    lambda x, w, a, b: F.linear(x, w) + F.linear(F.linear(x, a), b) * 2.0,
    T(64, 128),
    T(128, 128),
    T(8, 128),
    T(128, 8),
)
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
    (
        "min-p-f16",
        lambda x: x.masked_fill(x.softmax(-1) < 0.05 * x.softmax(-1).amax(-1, keepdim=True), -torch.inf),
        (T(4, 4000, dtype=f16),),
    ),
    ("top-k-fill", lambda x: x.masked_fill(x < torch.topk(x, 40)[0][..., -1, None], -torch.inf), (words,)),
    (
        "prompt-lookup",
        lambda ids: (ids.unfold(1, 3, 1) == ids[:, -3:, None].transpose(1, 2)).all(2),
        (T(1, 512, dtype=i64, low=0, high=9),),
    ),
):
    infer(f"extract/sampling/{name}", function, *inputs)


class Routed(nn.Module):
    """Experts in a loop, each of the rows that chose it."""

    def __init__(self, width=64, count=4):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        layers = (nn.Sequential(nn.Linear(width, 128), nn.SiLU(), nn.Linear(128, width)) for _ in range(count))
        self.experts = nn.ModuleList(layers)

    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2, -1)
        result = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            rows, which = torch.where(chosen == at)
            result.index_add_(0, rows, expert(x[rows]) * weights[rows, which, None])
        return result


module("experts/loop", Routed, T(64, 64), fullgraph=False)
module("experts/loop-training", Routed, T(64, 64), training=True, fullgraph=False)
