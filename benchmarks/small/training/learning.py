"""What trains: losses, metrics, optimizers as people write them, reinforcement learning, embeddings, small nets."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, i64, infer, module, train

# Reinforcement learning


def gae(rewards: Any, values: Any, done: Any) -> Any:
    last, found = torch.zeros_like(rewards[0]), []
    for t in reversed(range(rewards.shape[0])):
        alive = 1.0 - done[t]
        delta = rewards[t] + 0.99 * values[t + 1] * alive - values[t]
        last = delta + 0.99 * 0.95 * alive * last
        found.append(last)
    return torch.stack(found[::-1])


infer("agent/gae", gae, T(16, 32), T(17, 32), T(16, 32, low=0, high=1))


def ppo(new: Any, old: Any, advantage: Any, value: Any, back: Any) -> Any:
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (new - old).exp()
    policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return policy + 0.5 * F.mse_loss(value, back)


train("agent/ppo", ppo, *[T(256)] * 5)


def dqn(q: Any, following: Any, action: Any, reward: Any, done: Any) -> Any:
    chosen = q.gather(1, action[:, None]).squeeze(1)
    target = reward + 0.99 * following.max(1).values * (1 - done)
    return F.smooth_l1_loss(chosen, target.detach())


train("agent/dqn", dqn, *[T(64, 6)] * 2, T(64, dtype=i64, low=0, high=5), T(64), T(64, low=0, high=1))


def squashed(mean: Any, spread: Any, noise: Any) -> Any:
    z = mean + spread.clamp(-5, 2).exp() * noise
    log = -0.5 * (noise.square() + 1.8378771) - spread.clamp(-5, 2)
    return z.tanh(), (log - 2 * (0.6931472 - z - F.softplus(-2 * z))).sum(-1)


infer("agent/squashed", squashed, *[T(64, 6)] * 3)
infer(
    "agent/normalize",
    lambda x, m, v: ((x - m) / (v + 1e-8).sqrt()).clamp(-10, 10),
    T(16, 17),
    T(17),
    T(17, low=0, high=1),
)
infer("agent/categorical", lambda x: (x.log_softmax(-1), -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)), T(64, 6))
module(
    "agent/policy",
    lambda: nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6)),
    T(1, 17),
)


def returns(rewards: Any) -> Any:
    total, found = torch.zeros(rewards.shape[0]), []
    for t in range(rewards.shape[1] - 1, -1, -1):
        total = rewards[:, t] + 0.99 * total
        found.insert(0, total)
    return torch.stack(found, 1)


infer("agent/returns", returns, T(64, 12))
infer("agent/soft-update", lambda a, b: a.mul_(0.995).add_(b, alpha=0.005), T(256, 256), T(256, 256))

# Losses


def focal(logits: Any, target: Any) -> Any:
    p = logits.sigmoid()
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_t = p * target + (1 - p) * (1 - target)
    return ((0.25 * target + 0.75 * (1 - target)) * (1 - p_t) ** 2 * loss).mean()


train("fit/focal", focal, T(64, 80), T(64, 80, low=0, high=1))


def dice(logits: Any, target: Any) -> Any:
    p = logits.softmax(1)
    hot = F.one_hot(target, 4).permute(0, 3, 1, 2).float()
    both = (p * hot).sum((0, 2, 3))
    return 1 - ((2 * both + 1) / (p.sum((0, 2, 3)) + hot.sum((0, 2, 3)) + 1)).mean()


train("fit/dice", dice, T(2, 4, 32, 32), T(2, 32, 32, dtype=i64, low=0, high=3))


def info_nce(a: Any, b: Any) -> Any:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() / 0.07
    target = torch.arange(a.shape[0])
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


train("fit/info-nce", info_nce, T(64, 128), T(64, 128))


def supervised_contrast(x: Any, y: Any) -> Any:
    x = F.normalize(x, dim=1)
    sim = x @ x.t() / 0.1
    eye = torch.eye(x.shape[0], dtype=torch.bool)
    log = sim.masked_fill(eye, -1e9).log_softmax(1)
    same = (y[:, None] == y) & ~eye
    return -((log * same).sum(1) / same.sum(1).clamp(min=1)).mean()


train("fit/supervised-contrast", supervised_contrast, T(64, 32), T(64, dtype=i64, low=0, high=9))
train(
    "fit/label-smoothing",
    lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    T(64, 1000),
    T(64, dtype=i64, low=0, high=999),
)
train(
    "fit/distill",
    lambda s, t: F.kl_div(F.log_softmax(s / 2, -1), F.softmax(t.detach() / 2, -1), reduction="batchmean") * 4,
    T(64, 100),
    T(64, 100),
)
train(
    "fit/huber-weighted",
    lambda x, y, w: (F.huber_loss(x, y, reduction="none") * w).sum() / w.sum(),
    *[T(512, low=0.1, high=3)] * 3,
)
train("fit/triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), *[T(64, 128)] * 3)
train(
    "fit/vae",
    lambda x, y, m, s: F.mse_loss(x, y) - 0.5 * (1 + s - m**2 - s.exp()).sum(1).mean(),
    *[T(64, 128)] * 2,
    *[T(64, 16)] * 2,
)


def barlow(a: Any, b: Any) -> Any:
    a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
    c = a.t() @ b / a.shape[0]
    on = (c.diagonal() - 1).square().sum()
    return on + 0.005 * (c.square().sum() - c.diagonal().square().sum())


train("fit/barlow", barlow, T(64, 64), T(64, 64))


def giou(a: Any, b: Any) -> Any:
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    return (1 - inner / union + (hull - union) / hull).mean()


train("fit/giou", giou, T(256, 4), T(256, 4))
train("fit/dpo", lambda a, b, c, d: -F.logsigmoid(0.1 * ((a - b) - (c - d))).mean(), *[T(32)] * 4)


def token_log(logits: Any, ids: Any) -> Any:
    kept = ids[:, 1:] != -100
    log = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:].clamp(min=0)[..., None])[..., 0]
    return -(log * kept).sum() / kept.sum()


train("fit/token-log", token_log, T(2, 32, 500), T(2, 32, dtype=i64, low=0, high=499))

# Metrics


def confusion(p: Any, y: Any) -> Any:
    return torch.bincount(y * 10 + p.argmax(-1), minlength=100).view(10, 10)


infer("score/confusion", confusion, T(512, 10), T(512, dtype=i64, low=0, high=9), fullgraph=False)
infer(
    "score/topk",
    lambda x, y: (x.topk(5, 1).indices == y[:, None]).any(1).float().mean(),
    T(64, 100),
    T(64, dtype=i64, low=0, high=99),
)


def f1(p: Any, y: Any) -> Any:
    hit = p > 0
    tp, fp, fn = (hit & y).sum(0), (hit & ~y).sum(0), (~hit & y).sum(0)
    return (2 * tp / (2 * tp + fp + fn).clamp(min=1)).mean()


infer("score/f1", f1, T(512, 20), T(512, 20, dtype=torch.bool))
infer(
    "score/psnr",
    lambda a, b: 10 * torch.log10(1 / (a - b).square().mean((1, 2, 3))),
    *[T(4, 3, 32, 32, low=0, high=1)] * 2,
)
infer("score/r2", lambda x, y: 1 - (y - x).square().sum() / (y - y.mean()).square().sum(), T(1024), T(1024))
infer(
    "score/pearson",
    lambda x, y: F.cosine_similarity(x - x.mean(1, True), y - y.mean(1, True), 1),
    T(64, 100),
    T(64, 100),
)
infer(
    "score/calibration",
    lambda p, y: (p.max(1).values - (p.argmax(1) == y).float()).abs().mean(),
    T(256, 10),
    T(256, dtype=i64, low=0, high=9),
)

# Optimizers


def lion(p: Any, g: Any, m: Any) -> Any:
    p.mul_(1 - 1e-4)
    p.add_(torch.sign(m * 0.9 + g * 0.1), alpha=-1e-3)
    m.lerp_(g, 0.01)


infer("tune/lion", lion, *[T(256, 256)] * 3)


def adafactor(p: Any, g: Any, row: Any, column: Any) -> Any:
    square = g.square() + 1e-30
    row.mul_(0.99).add_(square.mean(-1), alpha=0.01)
    column.mul_(0.99).add_(square.mean(-2), alpha=0.01)
    factor = (row / row.mean(-1, keepdim=True)).rsqrt()[:, None] * column.rsqrt()[None]
    update = g * factor
    update = update / (update.square().mean().sqrt() / 1.0).clamp(min=1.0)
    p.sub_(update, alpha=1e-2)


infer("tune/adafactor", adafactor, *[T(128, 256)] * 2, T(128, low=0.1, high=1), T(256, low=0.1, high=1))


def lamb(p: Any, g: Any, m: Any, v: Any) -> Any:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    update = m / (v.sqrt() + 1e-6) + 0.01 * p
    a, b = p.norm(), update.norm()
    p.sub_(update * torch.where((a > 0) & (b > 0), a / b, 1.0) * 1e-3)


infer("tune/lamb", lamb, *[T(128, 256)] * 3, T(128, 256, low=0, high=1))


def muon(g: Any) -> Any:
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.t()
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


infer("tune/muon", muon, T(64, 128), tolerance=0.1)


def clip(*grads: Any) -> Any:
    total = torch.stack([g.norm() for g in grads]).norm()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    return [g * scale for g in grads]


infer("tune/clip", clip, T(128, 128), T(128), T(64, 128), T(64))


def nesterov(p: Any, g: Any, m: Any) -> Any:
    g = g + 1e-4 * p
    m.mul_(0.9).add_(g)
    p.add_(g + 0.9 * m, alpha=-0.01)


infer("tune/nesterov", nesterov, *[T(64, 64)] * 3)
infer("tune/ema-bf16", lambda a, b: a.lerp_(b, 0.01), *[T(256, 256, dtype=bf16)] * 2)
infer("tune/grad-norms", lambda g: torch.stack([x.norm() for x in g.unbind(0)]), T(16, 1024))


def stepping(kind: Any, **options: Any) -> Any:
    def build() -> Case:
        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
        for p in net.parameters():
            p.grad = torch.randn_like(p)
        optimizer = kind(net.parameters(), **options)
        return Case(lambda: optimizer.step(), (), state=lambda: [p.detach() for p in net.parameters()])

    return build


case("tune/rmsprop", stepping(torch.optim.RMSprop, lr=1e-3), fullgraph=False)
case("tune/adagrad", stepping(torch.optim.Adagrad, lr=1e-3), fullgraph=False)
case("tune/nadam", stepping(torch.optim.NAdam, lr=1e-3), fullgraph=False)

# Embeddings and small nets


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(1000, 32), nn.Embedding(1000, 32)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user: Any, item: Any) -> Any:
        u, i = self.users(user), self.items(item)
        return self.head(torch.cat((u, i), -1)).squeeze(-1) + (u * i).sum(-1)


module("small/recommender", Recommender, *[T(64, dtype=i64, low=0, high=999)] * 2)
module("small/recommender-train", Recommender, *[T(64, dtype=i64, low=0, high=999)] * 2, training=True)
module("small/bag-mean", lambda: nn.EmbeddingBag(500, 32, mode="mean"), T(32, 20, dtype=i64, low=0, high=499))
module(
    "small/bag-mean-train",
    lambda: nn.EmbeddingBag(500, 32, mode="mean"),
    T(32, 20, dtype=i64, low=0, high=499),
    training=True,
)
module("small/bag-max", lambda: nn.EmbeddingBag(500, 32, mode="max"), T(32, 20, dtype=i64, low=0, high=499))
module(
    "small/mlp-train", lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)), T(8, 16), training=True
)
module(
    "small/mlp-bn-train",
    lambda: nn.Sequential(nn.Linear(20, 64, bias=False), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 10)),
    T(32, 20),
    training=True,
)
module("small/gru-cell", lambda: nn.GRUCell(16, 32), T(4, 16), T(4, 32))
module(
    "small/conv1d",
    lambda: nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
    T(4, 4, 100),
)
infer(
    "small/scalar",
    lambda x, y: (x * 2 + y).sum().sqrt().item(),
    T(32, low=0, high=1),
    T(32, low=0, high=1),
    fullgraph=False,
)
infer("small/add", lambda x, y: x + y, T(8), T(8))
infer("small/chain", lambda x: ((x + 1) * 2 - x / 3).tanh().exp(), T(100))
infer("small/softmax-row", lambda x: x.softmax(-1), T(1, 10))


def fm(x: Any, v: Any) -> Any:
    return 0.5 * ((x @ v).square() - x.square() @ v.square()).sum(1)


train("small/factorization", fm, T(64, 40), T(40, 8))
