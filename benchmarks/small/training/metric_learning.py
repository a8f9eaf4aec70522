"""Losses of metric learning, self-supervision, ranking, distillation and preferences."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import T, bf16, i64, train

t = lambda name, f, *x, **o: train("learn/" + name, f, *x, **o)  # noqa: E731
L = T(128, dtype=i64, low=0, high=9)
E = T(128, 64)
n = lambda x: F.normalize(x, dim=-1)  # noqa: E731

t(
    "proxy-anchor",
    lambda x, p, y: (
        lambda c, h: (
            torch.where(h, torch.exp(-32 * (c - 0.1)), 0.0).sum(0).log1p().mean()
            + torch.where(h, 0.0, torch.exp(32 * (c + 0.1))).sum(0).log1p().mean()
        )
    )(n(x) @ n(p).T, F.one_hot(y, 10).bool()),
    E,
    T(10, 64),
    L,
)
t(
    "circle",
    lambda x, y: (
        lambda s, m: F.softplus(
            torch.logsumexp(torch.where(m.triu(1), -(1.25 - s).clamp(min=0).detach() * (s - 0.75) * 64, -1e9), (0, 1))
            + torch.logsumexp(torch.where(m, -1e9, (s + 0.25).clamp(min=0).detach() * (s - 0.25) * 64), (0, 1))
        )
    )(n(x) @ n(x).T, y[:, None] == y),
    E,
    L,
)
t(
    "multi-similarity",
    lambda x, y: (
        lambda s, m: (
            torch.log1p((torch.exp(-2 * (s - 0.5)) * m).sum(1)) / 2
            + torch.log1p((torch.exp(50 * (s - 0.5)) * ~m).sum(1)) / 50
        ).mean()
    )(n(x) @ n(x).T, y[:, None] == y),
    E,
    L,
)
t(
    "lifted",
    lambda x, y: (
        lambda d, m: (
            (torch.logsumexp((1 - d).masked_fill(m, -1e9), 1)[:, None] + d)
            .masked_fill(~m, 0.0)
            .clamp(min=0)
            .square()
            .mean()
        )
    )((n(x) @ n(x).T).mul(-2).add(2).clamp(min=1e-6).sqrt(), y[:, None] == y),
    E,
    L,
)
t(
    "n-pair",
    lambda a, b: F.cross_entropy(a @ b.T, torch.arange(64)) + 0.002 * (a.square().sum(1) + b.square().sum(1)).mean(),
    T(64, 64),
    T(64, 64),
)
t(
    "angular",
    lambda a, p, q: torch.log1p(
        torch.exp(4 * 1.0 * (a + p) @ q.T - 2 * 2.0 * (a * p).sum(1, keepdim=True)).clamp(max=1e6).sum(1)
    ).mean(),
    T(64, 32, low=0.0, high=0.1),
    T(64, 32, low=0.0, high=0.1),
    T(64, 32, low=0.0, high=0.1),
)
t(
    "soft-triple",
    lambda x, c, y: F.cross_entropy(
        (lambda s: 20 * ((s * 10).softmax(-1) * s).sum(-1))(torch.einsum("bd,ckd->bck", n(x), n(c))), y
    ),
    E,
    T(10, 4, 64),
    L,
)
t(
    "supcon",
    lambda x, y: (
        lambda logits, m: (
            -((logits - torch.logsumexp(logits.masked_fill(torch.eye(128).bool(), -1e9), 1, keepdim=True)) * m)
            .sum(1)
            .div(m.sum(1).clamp(min=1))
            .mean()
        )
    )(n(x) @ n(x).T / 0.1, ((y[:, None] == y) & ~torch.eye(128).bool()).float()),
    E,
    L,
)
t(
    "vicreg",
    lambda a, b: (
        25 * F.mse_loss(a, b)
        + 25 * (F.relu(1 - (a.var(0) + 1e-4).sqrt()).mean() + F.relu(1 - (b.var(0) + 1e-4).sqrt()).mean())
        + sum(
            ((lambda c: c.square().sum() - c.diagonal().square().sum())((z - z.mean(0)).T @ (z - z.mean(0)) / 127)) / 64
            for z in (a, b)
        )
    ),
    E,
    E,
)
t("byol", lambda a, b: 2 - 2 * (n(a) * n(b.detach())).sum(-1).mean(), E, E)
t(
    "simsiam",
    lambda p, z, q, w: -(F.cosine_similarity(p, z.detach()).mean() + F.cosine_similarity(q, w.detach()).mean()) / 2,
    E,
    E,
    E,
    E,
)
t(
    "swav",
    lambda x, y, c: (lambda q, s: -(q * F.log_softmax(s / 0.1, 1)).sum(1).mean())(
        _sinkhorn((n(x) @ n(c).T).detach()), n(y) @ n(c).T
    ),
    E,
    E,
    T(30, 64),
)


def _sinkhorn(s):
    q = torch.exp(s / 0.05).T
    q = q / q.sum()
    for _ in range(3):
        q = q / q.sum(1, keepdim=True) / 30
        q = q / q.sum(0, keepdim=True) / 128
    return (q * 128).T


t(
    "dino-center",
    lambda s, x, c: -(((x - c) / 0.04).softmax(-1).detach() * (s / 0.1).log_softmax(-1)).sum(-1).mean(),
    T(128, 200),
    T(128, 200),
    T(200),
)
t(
    "koleo",
    lambda x: (
        -(lambda d: (d.masked_fill(torch.eye(128).bool(), 9.0).amin(1) + 1e-8).log().mean())(torch.cdist(n(x), n(x)))
    ),
    E,
)
t(
    "clip-loss",
    lambda a, b, s: (
        lambda logits: (F.cross_entropy(logits, torch.arange(128)) + F.cross_entropy(logits.T, torch.arange(128))) / 2
    )(s.exp() * n(a) @ n(b).T),
    E,
    E,
    T(),
)
t(
    "siglip-loss",
    lambda a, b, s: -F.logsigmoid((n(a) @ n(b).T * s.exp() - 1) * (2 * torch.eye(128) - 1)).sum() / 128,
    E,
    E,
    T(),
)
t("w-mse", lambda x: (lambda z: (z.T @ z / 127 - torch.eye(64)).square().mean())(x - x.mean(0)), E)
t(
    "cka",
    lambda a, b: (lambda k, logits: (k * logits).sum() / (k.norm() * logits.norm()))(
        (a @ a.T) - (a @ a.T).mean(0), (b @ b.T) - (b @ b.T).mean(0)
    ),
    E,
    E,
)
t(
    "mmd-rbf",
    lambda a, b: (lambda k: k(a, a) + k(b, b) - 2 * k(a, b))(
        lambda u, w: sum(torch.exp(-torch.cdist(u, w).square() / s).mean() for s in (4.0, 16.0, 64.0))
    ),
    E,
    E,
)
t(
    "coral",
    lambda a, b: ((a - a.mean(0)).T @ (a - a.mean(0)) - (b - b.mean(0)).T @ (b - b.mean(0))).square().sum() / 4e6,
    E,
    E,
)
t("sliced-wasserstein", lambda a, b, r: ((a @ r).sort(0).values - (b @ r).sort(0).values).abs().mean(), E, E, T(64, 32))
t(
    "energy-distance",
    lambda a, b: 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean(),
    E,
    E,
)
t(
    "gumbel-vq",
    lambda logits, c: ((F.one_hot(logits.argmax(-1), 32) - logits.softmax(-1)).detach() + logits.softmax(-1)) @ c,
    T(256, 32),
    T(32, 16),
)
t(
    "vq-straight",
    lambda x, c: (
        lambda q: (
            (x + (q - x).detach()).square().mean()
            + 0.25 * (x - q.detach()).square().mean()
            + (x.detach() - q).square().mean()
        )
    )(c[torch.cdist(x, c).argmin(1)]),
    T(256, 16),
    T(32, 16),
)
t(
    "arcface-easy",
    lambda x, w, y: F.cross_entropy(
        (
            lambda c: (
                30 * torch.where(F.one_hot(y, 10).bool(), c * 0.878 - (1 - c * c).clamp(min=1e-6).sqrt() * 0.479, c)
            )
        )(n(x) @ n(w).T),
        y,
    ),
    E,
    T(10, 64),
    L,
)
t(
    "adaface",
    lambda x, w, y: (lambda z: F.cross_entropy(30 * (n(x) @ n(w).T - 0.4 * (1 + z) * F.one_hot(y, 10)), y))(
        ((x.norm(dim=1, keepdim=True) - 8) / 2).clamp(-1, 1).detach()
    ),
    E,
    T(10, 64),
    L,
)
t("center-loss", lambda x, c, y: (x - c[y]).square().sum(1).clamp(1e-12, 1e12).mean(), E, T(10, 64), L)
t(
    "histogram-loss",
    lambda s: (
        ((1 - (s[:, None] - torch.linspace(-1, 1, 50)).abs() / 0.04).clamp(min=0)).mean(0).cumsum(0).square().mean()
    ),
    T(2000, low=-1.0, high=1.0),
)
t(
    "smooth-ap",
    lambda s: (lambda d: (1 / (1 + torch.sigmoid(d / 0.01).masked_fill(torch.eye(64).bool(), 0.0).sum(-1))).mean())(
        s[:, None, :] - s[:, :, None]
    ),
    T(16, 64),
)
t("list-net", lambda s, r: -(r.softmax(1) * s.log_softmax(1)).sum(1).mean(), T(64, 50), T(64, 50))
t(
    "lambda-rank",
    lambda s, r: (lambda d, w: (F.softplus(-d) * w).masked_fill(r[:, :, None] <= r[:, None], 0.0).sum() / 64)(
        s[:, :, None] - s[:, None], (r[:, :, None] - r[:, None]).abs().detach()
    ),
    T(16, 30),
    T(16, 30),
)
t(
    "approx-ndcg",
    lambda s, r: (
        -(
            ((2 ** r.clamp(0, 3) - 1).detach())
            / torch.log2(1.5 + torch.sigmoid((s[:, None] - s[:, :, None]) / 0.1).sum(-1))
        )
        .sum(1)
        .mean()
    ),
    T(32, 40),
    T(32, 40),
)
t("gce", lambda logits, y: ((1 - logits.softmax(1).gather(1, y[:, None]).pow(0.7)) / 0.7).mean(), T(128, 10), L)
t(
    "sce",
    lambda logits, y: (
        F.cross_entropy(logits, y) - 4 * (logits.softmax(1) * (F.one_hot(y, 10) - 1).float()).sum(1).mean()
    ),
    T(128, 10),
    L,
)
t(
    "ldam",
    lambda logits, y, m: F.cross_entropy(30 * (logits - F.one_hot(y, 10) * m), y),
    T(128, 10),
    L,
    T(10, low=0.1, high=0.5),
)
t(
    "logit-adjusted",
    lambda logits, y, p: F.cross_entropy(logits + p.clamp(min=1e-4).log(), y),
    T(128, 10),
    L,
    T(10, low=0.01, high=0.3),
)
t(
    "mixup-loss",
    lambda logits, y, z: 0.3 * F.cross_entropy(logits, y) + 0.7 * F.cross_entropy(logits, z),
    T(128, 10),
    L,
    L,
)
t(
    "fixmatch",
    lambda s, w: (lambda p: (F.cross_entropy(s, p.argmax(1), reduction="none") * (p.amax(1) > 0.3)).mean())(
        w.detach().softmax(1)
    ),
    T(128, 10),
    T(128, 10),
)
t(
    "mcc-loss",
    lambda logits: (
        lambda p: (lambda c: (c / c.sum(1, keepdim=True)).sum() - (c / c.sum(1, keepdim=True)).trace())(
            p.T @ (p * (1 + torch.exp(-(-p * (p + 1e-5).log()).sum(1, keepdim=True))))
        )
    )((logits / 2.5).softmax(1)),
    T(128, 10),
)
t(
    "evidential",
    lambda m, v, a, b, y: (
        lambda o: (
            0.5 * (3.14159 / v).log()
            - a * o.log()
            + (a + 0.5) * ((y - m) ** 2 * v + o).log()
            + torch.lgamma(a)
            - torch.lgamma(a + 0.5)
        ).mean()
    )(2 * b * (1 + v)),
    T(500),
    T(500, low=0.1, high=1.0),
    T(500, low=1.1, high=2.0),
    T(500, low=0.1, high=1.0),
    T(500),
)
t(
    "beta-nll",
    lambda m, v, y: (0.5 * (((y - m) ** 2) / v + v.log()) * v.detach() ** 0.5).mean(),
    T(1000),
    T(1000, low=0.1, high=1.0),
    T(1000),
)
t(
    "mdn",
    lambda logits, m, s, y: (
        -torch.logsumexp(logits.log_softmax(1) - s - 0.5 * ((y[:, None] - m) / s.exp()) ** 2, 1).mean()
    ),
    T(500, 5),
    T(500, 5),
    T(500, 5),
    T(500),
)
t(
    "logistic-mixture",
    lambda m, s, x: (
        -(
            (torch.sigmoid((x + 1 / 255 - m) / s.exp()) - torch.sigmoid((x - 1 / 255 - m) / s.exp()))
            .clamp(min=1e-12)
            .log()
        ).mean()
    ),
    T(4, 3, 24, 24),
    T(4, 3, 24, 24, low=-1.0, high=0.0),
    T(4, 3, 24, 24),
)
t("deep-svdd", lambda x, w, c: ((torch.tanh(x @ w) - c) ** 2).sum(1).mean(), T(256, 32), T(32, 16), T(16))
t(
    "nca",
    lambda x, y: (
        -(lambda p: ((p * (y[:, None] == y)).sum(1) + 1e-8).log().mean())(
            (-torch.cdist(x, x).square() - 1e9 * torch.eye(128)).softmax(1)
        )
    ),
    E,
    L,
)
t(
    "prototypical",
    lambda q, s, y: F.cross_entropy(-torch.cdist(q, s.view(10, 5, 32).mean(1)), y),
    T(128, 32),
    T(50, 32),
    L,
)
t(
    "relation-distance",
    lambda a, b: (lambda d, e: F.smooth_l1_loss(d / d.mean(), (e / e.mean()).detach()))(
        torch.cdist(a, a), torch.cdist(b, b)
    ),
    E,
    E,
)
t(
    "attention-transfer",
    lambda a, b: (n(a.square().mean(1).flatten(1)) - n(b.square().mean(1).flatten(1))).square().mean(),
    T(8, 16, 14, 14),
    T(8, 32, 14, 14),
)
t(
    "pearson-distill",
    lambda a, b: 1 - F.cosine_similarity(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)).mean(),
    T(128, 50),
    T(128, 50),
)
t(
    "reverse-kl",
    lambda s, w: (s.softmax(-1) * (s.log_softmax(-1) - w.log_softmax(-1))).sum(-1).mean(),
    T(64, 500),
    T(64, 500),
)
t(
    "grpo-loss",
    lambda logits, o, r, a, m: (
        lambda k: (
            (
                (
                    -torch.minimum(
                        (logits - o.detach()).exp() * a[:, None],
                        (logits - o.detach()).exp().clamp(0.8, 1.2) * a[:, None],
                    )
                    + 0.04 * (k.exp() - k - 1)
                )
                * m
            ).sum()
            / m.sum()
        )
    )(r.detach() - logits),
    T(8, 100),
    T(8, 100),
    T(8, 100),
    T(8),
    T(8, 100, low=0.1, high=1.0),
)
t("simpo", lambda c, r: -F.logsigmoid(2 * (c.mean(1) - r.mean(1)) - 1).mean(), T(16, 80), T(16, 80))
t(
    "z-loss-bf16",
    lambda logits, y: F.cross_entropy(logits.float(), y) + 1e-4 * logits.float().logsumexp(-1).square().mean(),
    T(128, 500, dtype=bf16),
    T(128, dtype=i64, low=0, high=499),
)
