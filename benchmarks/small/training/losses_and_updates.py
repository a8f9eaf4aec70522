"""Losses, steps of training, updates and graphs, as people write them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, i64, infer, train

# Losses


def ctc_like(log_probs, targets):
    return F.ctc_loss(log_probs.log_softmax(-1), targets, torch.tensor([40, 40]), torch.tensor([10, 10]))


def dino(student, teacher, centre):
    target = ((teacher - centre) / 0.04).softmax(-1).detach()
    return -(target * F.log_softmax(student / 0.1, -1)).sum(-1).mean()


def moco(q, k, queue):
    q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
    positive = (q * k).sum(1, keepdim=True)
    logits = torch.cat((positive, q @ queue.detach()), 1) / 0.07
    return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=i64))


def multibox(conf, labels):
    loss = F.cross_entropy(conf.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    positive = labels > 0
    ranked = loss.masked_fill(positive, 0).detach()
    rank = ranked.argsort(1, descending=True).argsort(1)
    negative = rank < 3 * positive.sum(1, keepdim=True)
    return (loss * (positive | negative)).sum() / positive.sum().clamp(min=1)


def varifocal(x, score):
    p = x.sigmoid()
    weight = score * (score > 0) + 0.75 * p.detach().pow(2) * (score <= 0)
    return F.binary_cross_entropy_with_logits(x, score.detach(), weight=weight.detach(), reduction="sum")


def ordinal(x, y):
    levels = (y[:, None] > torch.arange(x.shape[1])).float()
    return -(F.logsigmoid(x) * levels + (F.logsigmoid(x) - x) * (1 - levels)).sum(1).mean()


def orpo(chosen, rejected):
    odds = (chosen - rejected) - (torch.log1p(-chosen.exp()) - torch.log1p(-rejected.exp()))
    return -chosen.mean() - 0.1 * F.logsigmoid(odds).mean()


def kto(policy, reference, desirable):
    ratio = policy - reference
    kl = ratio.mean().clamp(min=0).detach()
    return torch.where(desirable, 1 - torch.sigmoid(0.1 * (ratio - kl)), 1 - torch.sigmoid(0.1 * (kl - ratio))).mean()


def scale_invariant(p, t):
    mask = t > 0.1
    d = (p.clamp(min=1e-3).log() - t.clamp(min=1e-3).log()) * mask
    n = mask.sum()
    return torch.sqrt((d.square().sum() / n) - 0.85 * (d.sum() / n).square() + 1e-6)


def lpips_like(a, b):
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    return (a - b).square().mean((1, 2, 3)).sum()


def mixture(x, logits, mean, scale):
    log = -0.5 * ((x[..., None] - mean) / scale.exp()).square() - scale - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log + logits.log_softmax(-1), -1).mean()


def student_t(x, df, loc, scale):
    df, scale = 2 + F.softplus(df), F.softplus(scale)
    y = (x - loc) / scale
    z = scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi) + torch.lgamma(0.5 * df) - torch.lgamma(0.5 * (df + 1))
    return (0.5 * (df + 1) * torch.log1p(y**2 / df) + z).mean()


def negative_binomial(x, total, logits):
    total = F.softplus(total)
    log = total * F.logsigmoid(-logits) + x * F.logsigmoid(logits)
    return -(log - torch.lgamma(total + x) * -1 - torch.lgamma(1.0 + x) - torch.lgamma(total)).mean()


indices = lambda high, *shape: T(*shape, dtype=i64, low=0, high=high)  # noqa: E731
train("extract/loss/ctc", ctc_like, T(40, 2, 20), T(2, 10, dtype=i64, low=1, high=19), fullgraph=False)
train("extract/loss/dino", dino, T(16, 512), T(16, 512), T(512))
train("extract/loss/moco", moco, T(16, 64), T(16, 64), T(64, 512))
train("extract/loss/multibox", multibox, T(2, 200, 10), indices(9, 2, 200))
train("extract/loss/varifocal", varifocal, T(2, 200, 10), T(2, 200, 10, low=-0.5, high=1.0))
train("extract/loss/ordinal", ordinal, T(128, 9), indices(9, 128))
train("extract/loss/orpo", lambda a, b: orpo(F.logsigmoid(a) - 0.1, F.logsigmoid(b) - 0.1), T(32), T(32))
train("extract/loss/kto", kto, T(32), T(32), T(32, dtype=torch.bool))
train("extract/loss/scale-invariant", scale_invariant, T(2, 48, 64, low=0.1, high=5.0), T(2, 48, 64, low=0.0, high=5.0))
train("extract/loss/lpips", lpips_like, T(2, 32, 16, 16), T(2, 32, 16, 16))
train("extract/loss/mixture-density", mixture, T(256), T(256, 5), T(256, 5), T(256, 5))
train("extract/loss/student-t", student_t, *[T(64, 24)] * 4)
train(
    "extract/loss/negative-binomial",
    lambda total, logits, x: negative_binomial(x.float(), total, logits),
    T(64, 24),
    T(64, 24),
    indices(20, 64, 24),
)
train(
    "extract/loss/kl-balanced-categorical",
    lambda a, b: torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)
    ).mean(),
    T(16, 32, 32),
    T(16, 32, 32),
)
train(
    "extract/loss/normal-log-prob",
    lambda m, s, x: torch.distributions.Normal(m, s.exp()).log_prob(x).sum(-1).mean(),
    T(64, 8),
    T(64, 8),
    T(64, 8),
)
train(
    "extract/loss/multilabel-asymmetric",
    lambda x, y: (
        -(y * F.logsigmoid(x) + (1 - y) * F.logsigmoid((0.05 - x.sigmoid()).clamp(max=0)) * x.sigmoid().pow(4)).sum()
    ),
    T(16, 80),
    T(16, 80, low=0.0, high=1.0),
)
train(
    "extract/loss/margin-ranking", lambda a, b: F.margin_ranking_loss(a, b, torch.ones(256), margin=0.2), T(256), T(256)
)
train("extract/loss/hinge-embedding", lambda x: F.hinge_embedding_loss(x, torch.ones(64, 16), margin=1.0), T(64, 16))
train("extract/loss/soft-margin", lambda x: F.soft_margin_loss(x, torch.ones(256)), T(256))
train(
    "extract/loss/nll-2d",
    lambda x, y: F.nll_loss(x.log_softmax(1), y, weight=torch.linspace(0.5, 1, 8), ignore_index=7),
    T(2, 8, 24, 24),
    indices(7, 2, 24, 24),
)

# Steps of training


def stepping(make: Any, loss: Any, optimizer: Any, *inputs: Any, clip: float = 0.0, cast: Any = None) -> Any:
    """A whole step, optimizer inside."""

    def build() -> Case:
        net = make()
        stepper = optimizer(net)
        given = [x.make() for x in inputs]

        def step(*batch: Any) -> Any:
            stepper.zero_grad()
            if cast is None:
                value = loss(net(batch[0]), *batch[1:])
            else:
                with torch.autocast("cpu", cast):
                    value = loss(net(batch[0]), *batch[1:])
            value.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            stepper.step()
            return value.detach()

        return Case(step, tuple(given), training=False, state=lambda: [p.detach() for p in net.parameters()])

    def graded() -> Case:
        made = build()
        inner = made.function

        def call(*batch: Any) -> Any:
            with torch.enable_grad():
                return inner(*batch)

        made.function = call
        return made

    return graded


def groups(net: nn.Module) -> Any:
    decay = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], 1e-3)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 10))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


rows, pictures, classes = T(32, 32), T(4, 3, 24, 24), indices(9, 32)
for name, build in (
    ("groups", stepping(perceptron, F.cross_entropy, groups, rows, classes)),
    ("groups-clipped", stepping(perceptron, F.cross_entropy, groups, rows, classes, clip=1.0)),
    ("autocast-bf16", stepping(perceptron, F.cross_entropy, groups, rows, classes, cast=bf16)),
    (
        "sgd-nesterov",
        stepping(
            perceptron,
            F.cross_entropy,
            lambda n: torch.optim.SGD(n.parameters(), 0.1, 0.9, nesterov=True),
            rows,
            classes,
        ),
    ),
    ("pictures", stepping(convolutional, F.cross_entropy, groups, pictures, indices(9, 4))),
    (
        "mse-rmsprop",
        stepping(
            lambda: nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)),
            lambda y, t: F.mse_loss(y, t),
            lambda n: torch.optim.RMSprop(n.parameters()),
            rows,
            T(32, 1),
        ),
    ),
):
    case(f"extract/step/{name}", build, fullgraph=False, tolerance=2e-2)


def lists(function: Any, count: int, *shapes: tuple[int, ...]) -> Any:
    return lambda: Case(function, tuple([torch.randn(s) for s in shapes] for _ in range(count)))


def foreach_ema(a, b):
    torch._foreach_lerp_(a, b, 0.01)


def total_norm(gs):
    norms = torch._foreach_norm(gs)
    scale = (1.0 / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gs, scale)


def lookahead(fast, slow):
    for f, s in zip(fast, slow, strict=True):
        s.add_(f - s, alpha=0.5)
        f.copy_(s)


def sam_ascent(ps, gs):
    norm = torch.stack([g.norm(p=2) for g in gs]).norm(p=2)
    scale = 0.05 / (norm + 1e-12)
    for p, g in zip(ps, gs, strict=True):
        p.add_(g * scale)


def prodigy(ps, gs, s, p0):
    d = torch.zeros(())
    n = torch.zeros(())
    for p, g, si, q in zip(ps, gs, s, p0, strict=True):
        d = d + torch.dot(g.flatten(), (q - p).flatten())
        si.mul_(0.99).add_(g, alpha=0.01)
        n = n + si.abs().sum()
    return d / n


SHAPES = ((64, 64), (64,), (128, 64), (128,), (10, 128))
case("extract/update/foreach-ema", lists(foreach_ema, 2, *SHAPES))
case("extract/update/total-norm", lists(total_norm, 1, *SHAPES))
case("extract/update/lookahead", lists(lookahead, 2, *SHAPES))
case("extract/update/sam", lists(sam_ascent, 2, *SHAPES))
case("extract/update/prodigy", lists(prodigy, 4, *SHAPES))
case(
    "extract/update/unscale",
    lists(lambda gs: (torch._foreach_mul(gs, 0.5), torch.stack([g.isfinite().all() for g in gs]).all()), 1, *SHAPES),
)

# Graphs


def gatv2(x, e, w, a):
    s, t = e
    h = (x @ w).view(-1, 4, 16)
    score = (F.leaky_relu(h[s] + h[t], 0.2) * a).sum(-1)
    most = torch.full((x.shape[0], 4), -1e9).scatter_reduce(0, t[:, None].expand(-1, 4), score, "amax")
    weight = (score - most[t]).exp()
    total = torch.zeros(x.shape[0], 4).index_add(0, t, weight)
    return (
        torch.zeros(x.shape[0], 4, 16).index_add(0, t, h[s] * (weight / total[t].clamp(min=1e-9))[..., None]).flatten(1)
    )


def pna(x, e):
    s, t = e
    m = x[s]
    wide_ = t[:, None].expand_as(m)
    zero = torch.zeros_like(x)
    mean = zero.scatter_reduce(0, wide_, m, "mean", include_self=False)
    most = zero.scatter_reduce(0, wide_, m, "amax", include_self=False)
    least = zero.scatter_reduce(0, wide_, m, "amin", include_self=False)
    square = zero.scatter_reduce(0, wide_, m * m, "mean", include_self=False)
    return torch.cat((mean, most, least, (square - mean * mean).clamp(min=0).sqrt()), -1)


def egnn(x, h, e, w):
    s, t = e
    d = x[s] - x[t]
    m = F.silu(torch.cat((h[s], h[t], d.square().sum(-1, keepdim=True)), -1) @ w)
    moved = x.index_add(0, t, d * torch.tanh(m[:, :1]) / 8)
    return moved, torch.zeros(h.shape[0], m.shape[1]).index_add(0, t, m)


def schnet(d, centres, w):
    return (
        (-10.0 * (d[:, None] - centres).square()).exp()
        @ w
        * (0.5 * (torch.cos(d * math.pi / 5) + 1) * (d < 5))[:, None]
    )


edges = T(2, 1024, dtype=i64, low=0, high=127)
infer("extract/graph/gatv2", gatv2, T(128, 32), edges, T(32, 64), T(4, 16))
train("extract/graph/gatv2-training", gatv2, T(128, 32), edges, T(32, 64), T(4, 16))
infer("extract/graph/pna", pna, T(128, 32), edges)
train("extract/graph/pna-training", pna, T(128, 32), edges)
infer("extract/graph/egnn", egnn, T(128, 3), T(128, 16), edges, T(33, 16))
train(
    "extract/graph/egnn-training",
    lambda x, h, e, w: sum(y.sum() for y in egnn(x, h, e, w)),
    T(128, 3),
    T(128, 16),
    edges,
    T(33, 16),
)
infer("extract/graph/schnet", schnet, T(1024, low=0, high=6), T(32), T(32, 64))
infer(
    "extract/graph/bag-offsets",
    lambda i, o, w: F.embedding_bag(i, w, o),
    T(600, dtype=i64, low=0, high=499),
    torch.arange(0, 600, 10),
    T(500, 64),
)
infer(
    "extract/graph/bag-offsets-mean",
    lambda i, o, w: F.embedding_bag(i, w, o, mode="mean"),
    T(600, dtype=i64, low=0, high=499),
    torch.arange(0, 600, 10),
    T(500, 16),
)
train(
    "extract/graph/bag-offsets-training",
    lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"),
    T(500, 64),
    T(600, dtype=i64, low=0, high=499),
    torch.arange(0, 600, 10),
)
infer(
    "extract/graph/segment-lengths",
    lambda x, n: torch.segment_reduce(x, "sum", lengths=n),
    T(600, 16),
    torch.full((60,), 10),
)
