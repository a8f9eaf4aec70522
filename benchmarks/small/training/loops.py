"""What training loops compute: losses, steps of optimizers that people write, clipping, averages, normalizations, and
small dynamic programs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, case, f16, i64, infer, module, train
from small.training.around_models import optimizer

# Losses


def focal(x: Any, y: Any) -> Any:
    p = x.sigmoid()
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    p = p * y + (1 - p) * (1 - y)
    return (loss * (1 - p) ** 2 * (0.25 * y + 0.75 * (1 - y))).sum() / y.sum().clamp(min=1)


train("learning/focal-anchors", focal, T(2, 1000, 8), T(2, 1000, 8, low=0, high=1))


def tversky(x: Any, y: Any) -> Any:
    p, t = x.softmax(1), F.one_hot(y, 5).permute(0, 3, 1, 2)
    tp, fp, fn = ((v).sum((0, 2, 3)) for v in (p * t, p * (1 - t), (1 - p) * t))
    return (1 - (tp + 1) / (tp + 0.3 * fp + 0.7 * fn + 1)).pow(0.75).mean()


train("learning/tversky", tversky, T(2, 5, 32, 32), T(2, 32, 32, dtype=i64, low=0, high=4))


def nt_xent(a: Any, b: Any) -> Any:
    z = F.normalize(torch.cat((a, b)), dim=1)
    s = (z @ z.t() / 0.5).masked_fill(torch.eye(64, dtype=torch.bool), -9e15)
    return F.cross_entropy(s, torch.arange(64).roll(32))


train("learning/nt-xent", nt_xent, *[T(32, 64)] * 2)


def siglip(a: Any, b: Any, t: Any, c: Any) -> Any:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() * t.exp() + c
    return -F.logsigmoid((2 * torch.eye(16) - 1) * logits).sum() / 16


train("learning/siglip", siglip, *[T(16, 64)] * 2, T(), T())


def vicreg(a: Any, b: Any) -> Any:
    loss = F.mse_loss(a, b) * 25
    for z in (a, b):
        z = z - z.mean(0)
        loss = loss + F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() * 12.5
        c = z.t() @ z / 31
        loss = loss + (c.square().sum() - c.diagonal().square().sum()) / 64
    return loss


train("learning/vicreg", vicreg, *[T(32, 64)] * 2)


def arcface(x: Any, w: Any, y: Any) -> Any:
    cosine = F.linear(F.normalize(x), F.normalize(w)).clamp(-1 + 1e-6, 1 - 1e-6)
    angle = torch.acos(cosine)
    return F.cross_entropy(30 * torch.where(F.one_hot(y, 50).bool(), torch.cos(angle + 0.5), cosine), y)


train("learning/arcface", arcface, T(16, 64), T(50, 64), T(16, dtype=i64, low=0, high=49))


def ctc_alpha(x: Any) -> Any:
    alpha = torch.full((4, 9), -1e9)
    alpha = torch.cat((x[0, :, :2], alpha[:, 2:]), 1)
    for t in range(1, 12):
        one, two = F.pad(alpha[:, :-1], (1, 0), value=-1e9), F.pad(alpha[:, :-2], (2, 0), value=-1e9)
        alpha = torch.logsumexp(torch.stack((alpha, one, two)), 0) + x[t]
    return -alpha[:, -2:].logsumexp(1).mean()


infer("learning/ctc-forward", ctc_alpha, T(12, 4, 9))
train("learning/ctc-forward-training", ctc_alpha, T(12, 4, 9))


def crf(e: Any, w: Any) -> Any:
    score = e[:, 0]
    for t in range(1, 8):
        score = torch.logsumexp(score[:, :, None] + w + e[:, t, None], 1)
    return score.logsumexp(1).mean()


train("learning/crf", crf, T(8, 8, 12), T(12, 12))


def viterbi(e: Any, w: Any) -> Any:
    score, back = e[:, 0], []
    for t in range(1, 8):
        score, at = (score[:, :, None] + w + e[:, t, None]).max(1)
        back.append(at)
    return score.max(1).indices, torch.stack(back, 1)


infer("learning/viterbi", viterbi, T(8, 8, 12), T(12, 12))


def soft_dtw(d: Any) -> Any:
    row = d[0].cumsum(0)
    for i in range(1, 8):
        cells = [row[0] + d[i, 0]]
        for j in range(1, 8):
            cells.append(d[i, j] - torch.logsumexp(-torch.stack((row[j], row[j - 1], cells[-1])), 0))
        row = torch.stack(cells)
    return row[-1]


infer("learning/soft-dtw", soft_dtw, T(8, 8, low=0, high=1))


def sinkhorn(c: Any) -> Any:
    k = -c / 0.1
    u = v = torch.zeros(32)
    for _ in range(5):
        u = -torch.logsumexp(k + v, 1)
        v = -torch.logsumexp(k + u[:, None], 0)
    return (k + u[:, None] + v).exp()


infer("learning/sinkhorn", sinkhorn, T(32, 32, low=0, high=1))
train("learning/sinkhorn-training", sinkhorn, T(32, 32, low=0, high=1))


def batch_hard(x: Any, y: Any) -> Any:
    d = torch.cdist(x, x)
    same = y[:, None] == y[None]
    far = d.masked_fill(~same, 0).amax(1)
    near = d.masked_fill(same, float("inf")).amin(1)
    return F.relu(far - near + 0.3).mean()


infer("learning/batch-hard", batch_hard, T(32, 64), T(32, dtype=i64, low=0, high=5))


def grpo(new: Any, old: Any, reference: Any, reward: Any, mask: Any) -> Any:
    advantage = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
    ratio = (new - old).exp()
    a = advantage.flatten()[:, None]
    gain = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
    kl = (reference - new).exp() - (reference - new) - 1
    return -(((gain - 0.04 * kl) * mask).sum(1) / mask.sum(1)).mean()


train("learning/grpo", grpo, *[T(16, 64, low=-2, high=0)] * 3, T(4, 4), T(16, 64, low=0.1, high=1))


def gae(r: Any, v: Any, done: Any) -> Any:
    last, out = torch.zeros_like(r[0]), []
    for t in reversed(range(16)):
        delta = r[t] + 0.99 * v[t + 1] * (1 - done[t]) - v[t]
        last = delta + 0.99 * 0.95 * (1 - done[t]) * last
        out.append(last)
    advantage = torch.stack(out[::-1])
    return advantage, advantage + v[:-1]


infer("learning/gae", gae, T(16, 8), T(17, 8), T(16, 8, low=0, high=1))


def sac_actor(mean: Any, log_std: Any, noise: Any, q1: Any, q2: Any) -> Any:
    log_std = -5 + 3.5 * (torch.tanh(log_std) + 1)
    raw = mean + log_std.exp() * noise
    action = torch.tanh(raw)
    logp = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    logp = (logp - torch.log(1 - action.square() + 1e-6)).sum(1)
    return (0.2 * logp - torch.min(q1, q2)).mean()


train("learning/sac-actor", sac_actor, *[T(64, 6)] * 3, *[T(64)] * 2)


def c51(p: Any, r: Any, done: Any) -> Any:
    z = torch.linspace(-10, 10, 51)
    b = ((r[:, None] + 0.99 * (1 - done[:, None]) * z).clamp(-10, 10) + 10) / 0.4
    low, high = b.floor().long().clamp(0, 50), b.ceil().long().clamp(0, 50)
    m = torch.zeros_like(p)
    m = m.scatter_add(1, low, p * (high + (low == high) - b))
    return m.scatter_add(1, high, p * (b - low))


infer("learning/c51", c51, T(32, 51, low=0, high=0.04), T(32), T(32, low=0, high=1))


def quantile_huber(a: Any, b: Any) -> Any:
    tau = (torch.arange(32) + 0.5) / 32
    d = b[:, None, :] - a[:, :, None]
    huber = torch.where(d.abs() <= 1, 0.5 * d.square(), d.abs() - 0.5)
    return ((tau[:, None] - (d < 0).float()).abs() * huber).sum(1).mean()


train("learning/quantile-huber", quantile_huber, *[T(16, 32)] * 2)
train(
    "learning/z-loss",
    lambda x, y: F.cross_entropy(x, y) + 1e-4 * x.logsumexp(-1).square().mean(),
    T(64, 500),
    T(64, dtype=i64, low=0, high=499),
)
train(
    "learning/shifted-lm",
    lambda x, y: F.cross_entropy(x[:, :-1].float().reshape(-1, 200), y[:, 1:].reshape(-1), ignore_index=3),
    T(4, 32, 200, dtype=bf16),
    T(4, 32, dtype=i64, low=0, high=199),
)
train(
    "learning/poly-loss",
    lambda x, y: (F.cross_entropy(x, y, reduction="none") + 1 - x.softmax(1).gather(1, y[:, None]).squeeze(1)).mean(),
    T(64, 20),
    T(64, dtype=i64, low=0, high=19),
)
train(
    "learning/multi-label-soft-margin",
    lambda x, y: F.multilabel_soft_margin_loss(x, y),
    T(32, 20),
    T(32, 20, low=0, high=1),
)
train("learning/multi-margin", lambda x, y: F.multi_margin_loss(x, y), T(32, 20), T(32, dtype=i64, low=0, high=19))
train(
    "learning/triplet-cosine",
    lambda a, p, n: F.relu(F.cosine_similarity(a, n) - F.cosine_similarity(a, p) + 0.2).mean(),
    *[T(64, 64)] * 3,
)
train("learning/charbonnier", lambda a, b: ((a - b).square() + 1e-6).sqrt().mean(), *[T(2, 3, 48, 48)] * 2)
train(
    "learning/edge-smooth",
    lambda d, x: (d.diff(dim=-1).abs() * (-x.diff(dim=-1).abs().mean(1, keepdim=True)).exp()).mean(),
    T(2, 1, 32, 32),
    T(2, 3, 32, 32),
)
train("learning/gan-hinge", lambda r, f: F.relu(1 - r).mean() + F.relu(1 + f).mean(), *[T(32, 1)] * 2)
train(
    "learning/kl-balance",
    lambda a, b: 0.8 * F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean"),
    *[T(16, 32)] * 2,
)
train(
    "learning/evidence",
    lambda e, y: ((y - (F.softplus(e) + 1) / (F.softplus(e) + 1).sum(1, keepdim=True)).square()).sum(1).mean(),
    T(32, 10),
    T(32, 10, low=0, high=1),
)


# Steps by hand


def lamb(p: Any, g: Any, m: Any, v: Any) -> None:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    step = m / (v.sqrt() + 1e-6) + 0.01 * p
    trust = torch.where(p.norm() > 0, torch.where(step.norm() > 0, p.norm() / step.norm(), 1.0), 1.0)
    p.sub_(1e-3 * trust * step)


infer("learning/lamb", lamb, *[T(128, 256)] * 3, T(128, 256, low=0, high=1))


def adafactor(p: Any, g: Any, row: Any, column: Any) -> None:
    square = g.square() + 1e-30
    row.lerp_(square.mean(-1), 0.01)
    column.lerp_(square.mean(-2), 0.01)
    scale = (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
    step = g * scale
    p.sub_(1e-2 * step / (step.square().mean().sqrt()).clamp(min=1.0))


infer("learning/adafactor", adafactor, *[T(128, 256)] * 2, T(128, low=0.1, high=1), T(256, low=0.1, high=1))


def newton_schulz(g: Any) -> Any:
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        b = -4.7750 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return x


infer("learning/muon-bf16", newton_schulz, T(64, 128), tolerance=0.2)


def lion(ps: Any, gs: Any, ms: Any) -> None:
    for p, g, m in zip(ps, gs, ms, strict=True):
        p.mul_(1 - 1e-4).add_(torch.sign(m * 0.9 + g * 0.1), alpha=-1e-4)
        m.lerp_(g, 0.01)


def in_lists(function: Any, count: int, *shapes: tuple[int, ...]) -> Any:
    from small.case import Case

    return lambda: Case(function, tuple([torch.randn(s) for s in shapes] for _ in range(count)))


SHAPES = ((64, 64), (64,), (64, 64), (64,), (10, 64), (10,))
case("learning/lion-lists", in_lists(lion, 3, *SHAPES))


def ema(ps: Any, qs: Any) -> None:
    for p, q in zip(ps, qs, strict=True):
        p.mul_(0.999).add_(q, alpha=0.001)


def clip_value(gs: Any) -> None:
    torch._foreach_clamp_max_(gs, 0.5)
    torch._foreach_clamp_min_(gs, -0.5)


def clip_norm(gs: Any) -> None:
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gs]))
    scale = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    for g in gs:
        g.mul_(scale)


def agc(ps: Any, gs: Any) -> Any:
    out = []
    for p, g in zip(ps, gs, strict=True):
        limit = p.norm(dim=-1, keepdim=True).clamp(min=1e-3) * 0.01
        norm = g.norm(dim=-1, keepdim=True)
        out.append(torch.where(norm > limit, g * (limit / norm.clamp(min=1e-6)), g))
    return out


case("learning/ema-lists", in_lists(ema, 2, *SHAPES))
case("learning/clip-value-lists", in_lists(clip_value, 1, *SHAPES))
case("learning/clip-norm-lists", in_lists(clip_norm, 1, *SHAPES))
case("learning/adaptive-clip-lists", in_lists(agc, 2, *SHAPES))
case("learning/flatten-gradients", in_lists(lambda gs: torch.cat([g.reshape(-1) for g in gs]), 1, *SHAPES))
for name, make in (
    ("nadam", lambda p: torch.optim.NAdam(p, 1e-3)),
    ("radam", lambda p: torch.optim.RAdam(p, 1e-3)),
    ("adamax", lambda p: torch.optim.Adamax(p, 1e-3)),
    ("asgd", lambda p: torch.optim.ASGD(p, 1e-3)),
    ("rprop", lambda p: torch.optim.Rprop(p, 1e-3)),
):
    case(f"learning/step/{name}", lambda make=make: optimizer(make, SHAPES), tolerance=1e-4, fullgraph=False)


def weight_decay_sgd_nesterov(p: Any, g: Any, m: Any) -> None:
    g = g + 5e-4 * p
    m.mul_(0.9).add_(g)
    p.sub_(0.1 * (g + 0.9 * m))


infer("learning/nesterov", weight_decay_sgd_nesterov, *[T(128, 256)] * 3)
infer("learning/ema-bf16", lambda p, q: p.lerp_(q.float(), 0.001), T(128, 256), T(128, 256, dtype=bf16))
infer("learning/unscale-f16", lambda g, s: (g.float() * s, (~torch.isfinite(g)).any()), T(128, 256, dtype=f16), T())
infer("learning/mask-prune", lambda w: w * (w.abs() >= w.abs().kthvalue(2000, -1, keepdim=True).values), T(4, 4000))


# Normalizations and layers, forward and backward


def weight_norm(x: Any, v: Any, g: Any) -> Any:
    return F.linear(x, g * v / v.norm(dim=1, keepdim=True))


def spectral(x: Any, w: Any, u: Any) -> Any:
    with torch.no_grad():
        v = F.normalize(w.t() @ u, dim=0)
        u = F.normalize(w @ v, dim=0)
    return F.linear(x, w / torch.dot(u, w @ v))


def rms(x: Any, w: Any) -> Any:
    y = x.float()
    return w * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


train("learning/weight-norm", weight_norm, T(16, 64), T(48, 64), T(48, 1))
train("learning/spectral-norm", spectral, T(16, 64), T(48, 64), T(48))
train("learning/rms-f32", rms, T(4, 32, 128), T(128))
train("learning/rms-bf16", rms, T(4, 32, 128, dtype=bf16), T(128, dtype=bf16))
train("learning/layer-norm-small", lambda x, w, b: F.layer_norm(x, (32,), w, b), T(8, 32), T(32), T(32))
train("learning/group-norm", lambda x, w, b: F.group_norm(x, 4, w, b), T(2, 32, 16, 16), T(32), T(32))
train("learning/instance-norm", lambda x: F.instance_norm(x), T(2, 16, 24, 24))
train("learning/pixel-norm", lambda x: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-8), T(2, 32, 16, 16))
train(
    "learning/film",
    lambda x, s, b: F.relu(x * (1 + s[:, :, None, None]) + b[:, :, None, None]),
    T(2, 32, 16, 16),
    T(2, 32),
    T(2, 32),
)
train("learning/layer-scale", lambda x, y, g: x + g * y, T(4, 49, 64), T(4, 49, 64), T(64))
train("learning/glu", lambda x: F.glu(x, -1), T(16, 32, 128))
train("learning/swish-bf16", lambda x: x * torch.sigmoid(1.702 * x), T(64, 256, dtype=bf16))
train(
    "learning/gumbel-softmax",
    lambda x, u: ((x - torch.log(-torch.log(u))) / 0.5).softmax(-1),
    T(32, 40),
    T(32, 40, low=0.01, high=0.99),
)
train("learning/vq-straight", lambda x, c: x + (c[torch.cdist(x, c).argmin(-1)] - x).detach(), T(64, 16), T(32, 16))
train("learning/attention-pool", lambda x, w: (x * (x @ w).softmax(1)).sum(1), T(8, 32, 64), T(64, 1))
train(
    "learning/bilinear-fusion",
    lambda a, b, w: torch.einsum("bi,ijk,bj->bk", a, w, b),
    T(16, 16),
    T(16, 16),
    T(16, 16, 8),
)
train(
    "learning/embedding-mean", lambda w, i: F.embedding(i, w).mean(1), T(200, 32), T(16, 10, dtype=i64, low=0, high=199)
)
train(
    "learning/scatter-mean",
    lambda x, i: torch.zeros(50, 16).index_add(0, i, x) / torch.bincount(i, minlength=50).clamp(min=1)[:, None],
    T(200, 16),
    T(200, dtype=i64, low=0, high=49),
)
train(
    "learning/cosine-attention",
    lambda q, k, v: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 10).softmax(-1) @ v,
    *[T(2, 4, 32, 16)] * 3,
)
train(
    "learning/f16-mlp",
    lambda x, w, v: F.gelu(x @ w) @ v,
    T(32, 64, dtype=f16),
    T(64, 128, dtype=f16),
    T(128, 32, dtype=f16),
    tolerance=2e-2,
)
module(
    "learning/lenet",
    lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    ),
    T(8, 1, 28, 28),
    training=True,
)
module(
    "learning/autoencoder",
    lambda: nn.Sequential(
        nn.Linear(64, 32),
        nn.LeakyReLU(),
        nn.Linear(32, 8),
        nn.Linear(8, 32),
        nn.LeakyReLU(),
        nn.Linear(32, 64),
        nn.Sigmoid(),
    ),
    T(32, 64),
    training=True,
)
module(
    "learning/tcn",
    lambda: nn.Sequential(nn.Conv1d(8, 16, 3, dilation=2), nn.ReLU(), nn.Conv1d(16, 16, 3, dilation=4), nn.ReLU()),
    T(4, 8, 64),
    training=True,
)
module(
    "learning/dcgan-up",
    lambda: nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
    T(4, 32, 8, 8),
    training=True,
)
