"""Returns of agents, dynamic programs over sequences, decoding, sampling."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import T, bf16, i32, i64, infer, train

b8 = torch.bool
r = lambda name, f, *x, **o: infer("agents/" + name, f, *x, **o)  # noqa: E731


def gae(rewards, values, done):
    last = torch.zeros_like(values[0])
    out = []
    for k in range(31, -1, -1):
        alive = 1.0 - done[k].float()
        delta = rewards[k] + 0.99 * values[k + 1] * alive - values[k]
        last = delta + 0.95 * 0.99 * alive * last
        out.append(last)
    a = torch.stack(out[::-1])
    return (a - a.mean()) / (a.std() + 1e-8), a + values[:-1]


r("gae-32", gae, T(32, 64), T(33, 64), T(32, 64, dtype=b8))


def vtrace(log_rho, rewards, values, last):
    rho = log_rho.exp()
    clipped = rho.clamp(max=1.0)
    following = torch.cat((values[1:], last[None]))
    deltas = clipped * (rewards + 0.99 * following - values)
    acc = torch.zeros_like(last)
    out = []
    for k in range(23, -1, -1):
        acc = deltas[k] + 0.99 * clipped[k] * acc
        out.append(acc)
    vs = torch.stack(out[::-1]) + values
    return vs, clipped * (rewards + 0.99 * torch.cat((vs[1:], last[None])) - values)


r("vtrace", vtrace, T(24, 32), T(24, 32), T(24, 32), T(32))
r(
    "n-step",
    lambda x, v: sum(0.9**k * x[:, k : 95 + k] for k in range(5)) + 0.9**5 * v[:, 5:100],
    T(32, 100),
    T(32, 100),
)
r(
    "discount-matrix",
    lambda x: x @ torch.tril(0.99 ** (torch.arange(64)[:, None] - torch.arange(64)).clamp(min=0)),
    T(128, 64),
)


def retrace(q, v, c, x):
    y = v[:, -1]
    out = []
    for k in range(15, -1, -1):
        y = x[:, k] + 0.99 * (v[:, k + 1] + c[:, k].clamp(max=1) * (y - q[:, k]))
        out.append(y)
    return torch.stack(out, 1)


r("retrace", retrace, T(128, 16), T(128, 17), T(128, 16), T(128, 16))
r(
    "munchausen",
    lambda q, t, a, x: (
        x
        + 0.9 * (0.03 * F.log_softmax(q / 0.03, 1).gather(1, a)).clamp(-1, 0)[:, 0]
        + 0.99 * (F.softmax(t / 0.03, 1) * (t - 0.03 * F.log_softmax(t / 0.03, 1))).sum(1)
    ),
    T(256, 18),
    T(256, 18),
    T(256, 1, dtype=i64, low=0, high=17),
    T(256),
)
r(
    "prioritized",
    lambda p, u: (lambda c: torch.searchsorted(c, u * c[-1]))(p.pow(0.6).cumsum(0)),
    T(10000, low=0.01, high=1.0),
    T(64, low=0.0, high=0.999),
)
r(
    "running-reward-norm",
    lambda x, m, v: (lambda b: (m + 0.01 * (b - m), ((x - b) / (v + 1e-5).sqrt()).clamp(-10, 10)))(x.mean(0)),
    T(256, 32),
    T(32),
    T(32, low=0.5, high=1.0),
)
r("upgo", lambda x, v: torch.where(x + 0.99 * v[1:] > v[:-1], x + 0.99 * v[1:], v[:-1]), T(100, 32), T(101, 32))
r("rnd-bonus", lambda o, w, z: F.relu(o @ w).sub(F.relu(o @ z)).square().mean(1), T(256, 64), T(64, 128), T(64, 128))
r(
    "mcts-puct",
    lambda n, w, p: (w / n.clamp(min=1) + 1.25 * p * n.sum(1, keepdim=True).sqrt() / (1 + n)).argmax(1),
    T(64, 82, low=0.0, high=20.0),
    T(64, 82),
    T(64, 82, low=0.0, high=1.0),
)
r(
    "muzero-support",
    lambda logits: (lambda v: v.sign() * ((((1 + 4 * 0.001 * (v.abs() + 1 + 0.001)).sqrt() - 1) / 0.002) ** 2 - 1))(
        (logits.softmax(-1) * torch.arange(-20.0, 21)).sum(-1)
    ),
    T(128, 41),
)
r(
    "two-hot",
    lambda x: (lambda k, f: F.one_hot(k, 42)[:, :41] * (1 - f)[:, None] + F.one_hot(k + 1, 42)[:, :41] * f[:, None])(
        (x + 20).floor().long(), x - x.floor()
    ),
    T(256, low=-19.0, high=19.0),
)
r("symlog", lambda x: (x.sign() * torch.log1p(x.abs()), x.sign() * torch.expm1(x.abs())), T(256, 64))
r(
    "action-mask",
    lambda logits, m, g: (logits.masked_fill(~m, -1e8).log_softmax(-1), (logits.masked_fill(~m, -1e8) + g).argmax(-1)),
    T(256, 82),
    T(256, 82, dtype=b8),
    T(256, 82),
)
r("grid-world", lambda v, x: _value_iteration(v, x), T(24, 24), T(24, 24))


def _value_iteration(v, x):
    for _ in range(5):
        p = F.pad(v[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
        v = x + 0.9 * torch.maximum(torch.maximum(p[2:, 1:-1], p[:-2, 1:-1]), torch.maximum(p[1:-1, 2:], p[1:-1, :-2]))
    return v


g = lambda name, f, *x, **o: train("agents/" + name, f, *x, **o)  # noqa: E731
g(
    "ppo-full",
    lambda logits, o, a, v, t, i: (
        -torch.minimum((logits - o).exp() * a, (logits - o).exp().clamp(0.8, 1.2) * a).mean()
        + 0.5 * torch.maximum((v - t) ** 2, ((t + (v - t).clamp(-0.2, 0.2)) - t) ** 2).mean()
        - 0.01 * i.mean()
    ),
    T(512),
    T(512),
    T(512),
    T(512),
    T(512),
    T(512),
)
g(
    "a2c",
    lambda logits, v, a, x: (
        -(F.log_softmax(logits, 1).gather(1, a)[:, 0] * (x - v).detach()).mean()
        + (x - v).square().mean()
        + 0.01 * (F.softmax(logits, 1) * F.log_softmax(logits, 1)).sum(1).mean()
    ),
    T(256, 18),
    T(256),
    T(256, 1, dtype=i64, low=0, high=17),
    T(256),
)
g(
    "awr",
    lambda logits, v, x: -(((x - v).detach() / 0.5).exp().clamp(max=20) * logits).mean(),
    T(1024),
    T(1024),
    T(1024),
)
g("iql-expectile", lambda q, v: (lambda d: (torch.where(d > 0, 0.7, 0.3) * d.square()).mean())(q - v), T(1024), T(1024))
g(
    "cql",
    lambda q, a: torch.logsumexp(q, 1).mean() - q.gather(1, a).mean(),
    T(512, 18),
    T(512, 1, dtype=i64, low=0, high=17),
)
g(
    "qr-dqn",
    lambda p, t: (
        lambda d: (
            ((torch.arange(32) + 0.5).div(32)[None, :, None] - (d < 0).float())
            .abs()
            .mul(F.huber_loss(p[:, :, None].expand_as(d), t[:, None].expand_as(d), reduction="none"))
            .mean()
        )
    )(t[:, None] - p[:, :, None]),
    T(64, 32),
    T(64, 32),
)
g(
    "tanh-normal",
    lambda m, s, e: (lambda u: (-(e**2) / 2 - s - 0.919 - 2 * (0.6931 - u - F.softplus(-2 * u))).sum(-1).mean())(
        m + s.exp() * e
    ),
    T(512, 6),
    T(512, 6),
    T(512, 6),
)
g(
    "decision-transformer",
    lambda s, a, x, w: F.mse_loss(torch.stack((x, s, a), 2).flatten(1, 2)[:, 1::3] @ w, a),
    T(16, 20, 32),
    T(16, 20, 32),
    T(16, 20, 32),
    T(32, 32),
)

d = lambda name, f, *x, **o: infer("chain/" + name, f, *x, **o)  # noqa: E731


def viterbi(emissions, transition):
    score = emissions[:, 0]
    back = []
    for k in range(1, 20):
        best, where = (score[:, :, None] + transition).max(1)
        score = best + emissions[:, k]
        back.append(where)
    tag = score.argmax(1)
    path = [tag]
    for where in back[::-1]:
        tag = where.gather(1, tag[:, None])[:, 0]
        path.append(tag)
    return torch.stack(path[::-1], 1), score.amax(1)


d("viterbi", viterbi, T(32, 20, 9), T(9, 9))


def hmm(log_b, log_a):
    alpha = log_b[:, 0]
    for k in range(1, 16):
        alpha = torch.logsumexp(alpha[:, :, None] + log_a, 1) + log_b[:, k]
    return alpha.logsumexp(1)


d("hmm-forward", hmm, T(32, 16, 8), T(8, 8))
train("chain/hmm-training", hmm, T(32, 16, 8), T(8, 8))


def ctc_alpha(lp, ext):
    a = torch.full((16, 21), -1e30)
    a = torch.cat((lp[0].gather(1, ext[:, :2]), a[:, 2:]), 1)
    skip = F.pad((ext[:, 2:] != ext[:, :-2]) & (ext[:, 2:] != 0), (2, 0))
    for k in range(1, 24):
        one = F.pad(a, (1, 0), value=-1e30)[:, :-1]
        two = F.pad(a, (2, 0), value=-1e30)[:, :-2].masked_fill(~skip, -1e30)
        a = torch.logsumexp(torch.stack((a, one, two)), 0) + lp[k].gather(1, ext)
    return torch.logaddexp(a[:, -1], a[:, -2])


d("ctc-alpha", ctc_alpha, T(24, 16, 30), T(16, 21, dtype=i64, low=0, high=29))
d(
    "ctc-collapse",
    lambda x: (lambda p: torch.where((p != F.pad(p, (1, 0))[:, :-1]) & (p != 0), p, -1))(x.argmax(-1)),
    T(16, 200, 30),
)


def dtw(x, y):
    cost = (x[:, :, None] - y[:, None]).abs()
    row = cost[:, 0].cumsum(1)
    for k in range(1, 12):
        new = [row[:, 0] + cost[:, k, 0]]
        for j in range(1, 12):
            new.append(cost[:, k, j] + torch.minimum(torch.minimum(row[:, j], row[:, j - 1]), new[-1]))
        row = torch.stack(new, 1)
    return row[:, -1]


d("dtw-12", dtw, T(64, 12), T(64, 12))
d(
    "levenshtein-row",
    lambda p, c: (lambda m: torch.minimum(m, (m - torch.arange(64)).cummin(1).values + torch.arange(64)))(
        torch.minimum(p[:, 1:] + 1, p[:, :-1] + c)
    ),
    T(200, 65, dtype=i32, low=0, high=50),
    T(200, 64, dtype=i32, low=0, high=1),
)
d(
    "smith-waterman-diagonal",
    lambda a, b, s: torch.maximum(
        torch.maximum(F.pad(a, (1, 0))[:, :-1] + s, b - 2), F.pad(b, (1, 0))[:, :-1] - 2
    ).clamp(min=0),
    T(128, 100),
    T(128, 100),
    T(128, 100),
)
d(
    "cky-span",
    lambda logits, x, w: torch.einsum("bkx,bky,zxy->bz", logits, x, w),
    T(16, 8, 12),
    T(16, 8, 12),
    T(12, 12, 12),
)
d(
    "edit-traceback",
    lambda c: torch.stack((c[:, :-1, :-1], c[:, 1:, :-1] + 1, c[:, :-1, 1:] + 1)).argmin(0),
    T(16, 40, 40),
)
d("crf-marginals", lambda u, p: _loopy(u, p), T(16, 24, 24, 5), T(5, 5))


def _loopy(u, p):
    q = u.softmax(-1)
    for _ in range(3):
        n = F.pad(q, (0, 0, 1, 1, 1, 1))
        m = n[:, 2:, 1:-1] + n[:, :-2, 1:-1] + n[:, 1:-1, 2:] + n[:, 1:-1, :-2]
        q = (u + m @ p).softmax(-1)
    return q


s = lambda name, f, *x, **o: infer("draw/" + name, f, *x, **o)  # noqa: E731


def beam(scores, logp, tokens):
    total = (scores[:, :, None] + logp).flatten(1)
    best, where = total.topk(8, 1)
    parent, token = where // 4000, where % 4000
    return best, torch.cat((tokens.gather(1, parent[:, :, None].expand(-1, -1, 16)), token[:, :, None]), 2)


s("beam-4000", beam, T(4, 4), T(4, 4, 4000), T(4, 4, 16, dtype=i64, low=0, high=3999))
s(
    "diverse-beam",
    lambda logits, c: (F.log_softmax(logits, -1) - 0.5 * c[:, None]).flatten(1).topk(8).indices,
    T(4, 4, 1000),
    T(4, 1000, low=0.0, high=3.0),
)
s(
    "top-a",
    lambda logits: logits.masked_fill(
        logits.softmax(-1) < 0.2 * logits.softmax(-1).amax(-1, keepdim=True).square(), float("-inf")
    ).softmax(-1),
    T(16, 5000),
)
s(
    "epsilon",
    lambda logits: (lambda p: logits.masked_fill((p < 3e-4) & (logits < logits.topk(2).values[:, -1:]), float("-inf")))(
        logits.softmax(-1)
    ),
    T(16, 5000),
)
s(
    "tail-free",
    lambda logits: (
        lambda v, o: (
            lambda c: logits.masked_fill(
                torch.zeros_like(logits, dtype=b8).scatter(1, o, F.pad(c > 0.95, (1, 1), value=False)), float("-inf")
            )
        )((lambda e: (e / e.sum(-1, keepdim=True)).cumsum(-1))(v.softmax(-1).diff().diff().abs()))
    )(*logits.sort(descending=True)),
    T(8, 2000),
)
s(
    "mirostat",
    lambda logits, m: logits.masked_fill(-logits.log_softmax(-1) * 1.4427 > m, float("-inf")).softmax(-1),
    T(16, 5000),
    T(16, 1, low=8.0, high=14.0),
)
s(
    "presence",
    lambda logits, ids: (lambda c: logits - 0.5 * c - 0.4 * (c > 0).float())(
        torch.zeros_like(logits).scatter_add(1, ids, torch.ones(ids.shape))
    ),
    T(8, 5000),
    T(8, 60, dtype=i64, low=0, high=4999),
)
s(
    "logit-bias",
    lambda logits, k, b: logits.index_add(1, k, b.expand(8, -1)),
    T(8, 5000),
    T(20, dtype=i64, low=0, high=4999),
    T(20),
)
s(
    "dry",
    lambda logits, ids, last: logits.scatter_reduce(1, ids, -((ids == last).float().cumsum(1).clamp(max=4)), "amin"),
    T(8, 5000),
    T(8, 60, dtype=i64, low=0, high=4999),
    T(8, 1, dtype=i64, low=0, high=4999),
)
s(
    "speculative-accept",
    lambda p, q, u, t: (
        lambda ok: (
            ok.cumprod(1).sum(1),
            (p - q).clamp(min=0) / (p - q).clamp(min=0).sum(-1, keepdim=True).clamp(min=1e-9),
        )
    )((u < p.gather(2, t[..., None])[..., 0] / q.gather(2, t[..., None])[..., 0]).long()),
    T(4, 5, 1000, low=0.0, high=1.0),
    T(4, 5, 1000, low=0.01, high=1.0),
    T(4, 5, low=0.0, high=1.0),
    T(4, 5, dtype=i64, low=0, high=999),
)
s(
    "medusa-tree",
    lambda logits, i, m: (logits.flatten(0, 1)[i].softmax(-1).amax(-1) * m).cumprod(0),
    T(4, 8, 500),
    T(26, dtype=i64, low=0, high=31),
    T(26, low=0.5, high=1.0),
)
s("cfg", lambda c, u: (u + 1.5 * (c - u)).log_softmax(-1), T(4, 8000, dtype=bf16), T(4, 8000, dtype=bf16))
s(
    "contrastive-search",
    lambda h, c, p: 0.4 * p - 0.6 * (F.normalize(c, dim=-1) @ F.normalize(h, dim=-1).mT).amax(-1),
    T(2, 60, 96),
    T(2, 5, 96),
    T(2, 5),
)
s(
    "stop-words",
    lambda ids, w: (ids.unfold(1, 3, 1)[:, :, None] == w).all(-1).any(-1).any(-1),
    T(16, 100, dtype=i64, low=0, high=9),
    T(8, 3, dtype=i64, low=0, high=9),
)
s(
    "no-repeat-bigram",
    lambda logits, ids: logits.scatter(1, torch.where(ids[:, :-1] == ids[:, -1:], ids[:, 1:], 0), float("-inf")),
    T(8, 1000),
    T(8, 50, dtype=i64, low=1, high=999),
)
s(
    "gumbel-topk",
    lambda logits, u: (logits - torch.log(-torch.log(u.clamp(1e-6, 1 - 1e-6)))).topk(10).indices,
    T(16, 1000),
    T(16, 1000, low=0.0, high=1.0),
)
s(
    "alias-table",
    lambda i, u, p, a: torch.where(u < p[i], i, a[i]),
    T(10000, dtype=i64, low=0, high=999),
    T(10000, low=0.0, high=1.0),
    T(1000, low=0.0, high=1.0),
    T(1000, dtype=i64, low=0, high=999),
)
s(
    "reservoir",
    lambda p, u: (u.log() / p).topk(50).indices,
    T(4, 3000, low=0.1, high=1.0),
    T(4, 3000, low=0.01, high=1.0),
)
s(
    "nucleus-bf16",
    lambda logits: (
        lambda v, o: v.masked_fill(
            v.float().softmax(-1).cumsum(-1) - v.float().softmax(-1) > 0.9, float("-inf")
        ).gather(1, o.argsort(1))
    )(*logits.sort(descending=True)),
    T(4, 1000, dtype=bf16),
)
