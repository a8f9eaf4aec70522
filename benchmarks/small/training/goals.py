"""Losses, agents, samplers, optimizers, recommenders and series, forward or forward and backward."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, bf16, i64, infer, train

flags = torch.bool

# Agents


def ppo(new, old, gain):
    ratio = (new - old).exp()
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def advantages(r, v, done):
    out, last = [], torch.zeros(r.shape[1])
    for t in range(r.shape[0] - 1, -1, -1):
        nxt = v[t + 1] * (1 - done[t])
        last = r[t] + 0.99 * nxt - v[t] + 0.99 * 0.95 * (1 - done[t]) * last
        out.append(last)
    return torch.stack(out[::-1])


def dqn(q, q_next, a, r, d):
    goal = (r + 0.99 * (1 - d) * q_next.amax(1)).detach()
    return F.smooth_l1_loss(q.gather(1, a[:, None])[:, 0], goal)


def squashed(mean, log_std, noise):
    std = log_std.clamp(-5, 2).exp()
    x = mean + std * noise
    log_p = -0.5 * ((x - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)
    log_p = log_p - 2 * (math.log(2) - x - F.softplus(-2 * x))
    return x.tanh(), log_p.sum(-1)


def quantile_huber(q, goal):
    tau = (torch.arange(32) + 0.5) / 32
    u = goal[:, None] - q[:, :, None]
    huber = torch.where(u.abs() <= 1, 0.5 * u * u, u.abs() - 0.5)
    return ((tau[:, None] - (u.detach() < 0).float()).abs() * huber).sum(1).mean()


def c51(p, r):
    z = torch.linspace(-10, 10, 51)
    at = ((r[:, None] + 0.99 * z).clamp(-10, 10) + 10) / 0.4
    low = at.floor().long().clamp(0, 49)
    out = torch.zeros_like(p)
    out.scatter_add_(1, low, p * (low + 1 - at))
    return out.scatter_add_(1, low + 1, p * (at - low))


def grpo(logp, reward, mask):
    gain = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
    return -(logp * gain.flatten()[:, None] * mask).sum() / mask.sum()


def discounted(r):
    at = torch.arange(r.shape[1])
    return (r * 0.99**at).flip(1).cumsum(1).flip(1) / 0.99**at


infer("goal/gae", advantages, T(16, 32), T(17, 32), T(16, 32, low=0, high=1))
infer("goal/squashed", squashed, T(256, 6), T(256, 6), T(256, 6))
infer("goal/c51", c51, T(64, 51, low=0, high=1), T(64))
infer("goal/discounted", discounted, T(32, 200))
train("goal/train/ppo", ppo, T(512), T(512), T(512))
train("goal/train/dqn", dqn, T(128, 6), T(128, 6), T(128, dtype=i64, low=0, high=5), T(128), T(128))
train("goal/train/squashed", squashed, T(256, 6), T(256, 6), T(256, 6))
train("goal/train/quantile", quantile_huber, T(64, 32), T(64, 32))
train("goal/train/grpo", grpo, T(32, 64), T(4, 8), T(32, 64, low=0, high=1))

# Losses


def info_nce(a, b):
    a, b = F.normalize(a), F.normalize(b)
    s = a @ b.t() / 0.07
    y = torch.arange(a.shape[0])
    return (F.cross_entropy(s, y) + F.cross_entropy(s.t(), y)) / 2


def triplet(a):
    d = torch.cdist(a, a)
    y = torch.arange(a.shape[0]) // 4
    same = y[:, None] == y
    return F.relu(d.masked_fill(~same, 0).amax(1) - d.masked_fill(same, 1e9).amin(1) + 0.3).mean()


def vae(x, y, mean, log_var):
    return F.mse_loss(x, y) - 0.5 * (1 + log_var - mean.square() - log_var.exp()).mean()


def dpo(a, b, ra, rb):
    return -F.logsigmoid(0.1 * ((a - ra) - (b - rb)).sum(-1)).mean()


def dice(x, y):
    p = x.softmax(1)
    hot = F.one_hot(y, x.shape[1]).permute(0, 3, 1, 2).float()
    return 1 - (2 * (p * hot).sum((2, 3)) / (p.sum((2, 3)) + hot.sum((2, 3)) + 1e-6)).mean()


def smooth(x, y):
    return F.cross_entropy(x, y, label_smoothing=0.1)


def masked_lm(x, y):
    return F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=0)


def distill(s, t):
    return F.kl_div(F.log_softmax(s / 2, -1), F.softmax(t / 2, -1), reduction="batchmean") * 4


def barlow(a, b):
    a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
    c = a.t() @ b / a.shape[0]
    return (c.diagonal() - 1).square().sum() + 0.005 * (c - torch.diag(c.diagonal())).square().sum()


def arcface(x, w, y):
    cos = F.linear(F.normalize(x), F.normalize(w)).clamp(-0.999, 0.999)
    hot = F.one_hot(y, w.shape[0]).bool()
    return F.cross_entropy(torch.where(hot, (cos.acos() + 0.5).cos(), cos) * 30, y)


def chamfer(a, b):
    d = (a[:, :, None] - b[:, None]).square().sum(-1)
    return d.amin(2).mean() + d.amin(1).mean()


def poisson(x, y):
    return F.poisson_nll_loss(x, y) + F.gaussian_nll_loss(x, y, x.exp())


def total_variation(x):
    return (x[..., 1:] - x[..., :-1]).abs().mean() + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()


train("goal/train/info-nce", info_nce, T(64, 64), T(64, 64))
train("goal/train/triplet", triplet, T(32, 32), tolerance=1e-2)
train("goal/train/vae", vae, T(32, 256), T(32, 256), T(32, 16), T(32, 16))
train("goal/train/dpo", dpo, *[T(16, 64)] * 4)
train("goal/train/dice", dice, T(2, 5, 32, 32), T(2, 32, 32, dtype=i64, low=0, high=4))
train("goal/train/smooth", smooth, T(128, 200), T(128, dtype=i64, low=0, high=199))
train("goal/train/masked-lm", masked_lm, T(4, 32, 500), T(4, 32, dtype=i64, low=0, high=499))
train("goal/train/masked-lm-bf16", masked_lm, T(4, 32, 500, dtype=bf16), T(4, 32, dtype=i64, low=0, high=499))
train("goal/train/distill", distill, T(64, 200), T(64, 200))
train("goal/train/barlow", barlow, T(64, 64), T(64, 64), tolerance=1e-2)
train("goal/train/arcface", arcface, T(32, 64), T(50, 64), T(32, dtype=i64, low=0, high=49), tolerance=1e-2)
train("goal/train/chamfer", chamfer, T(2, 100, 3), T(2, 120, 3))
train("goal/train/poisson", poisson, T(64, 64), T(64, 64, low=0, high=3))
train("goal/train/total-variation", total_variation, T(2, 3, 64, 64))
train("goal/train/huber", lambda x, y: F.huber_loss(x, y), T(2000), T(2000))
train("goal/train/hinge", lambda x, y: F.multi_margin_loss(x, y), T(64, 20), T(64, dtype=i64, low=0, high=19))
train(
    "goal/train/bce-weights",
    lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.arange(1.0, 21.0)),
    T(64, 20),
    T(64, 20, low=0, high=1),
)

# Choosing the next token


def top_p(x):
    s, order = x.sort(-1, descending=True)
    p = s.softmax(-1)
    s = s.masked_fill(p.cumsum(-1) - p > 0.9, float("-inf"))
    return torch.empty_like(x).scatter_(-1, order, s)


def penalty(x, seen):
    hot = torch.zeros_like(x).scatter_(1, seen, 1.0)
    x = torch.where(hot > 0, torch.where(x > 0, x / 1.2, x * 1.2), x)
    return x - 0.5 * hot


def beams(total, x):
    s = (total[:, :, None] + x.log_softmax(-1)).flatten(1)
    best, which = s.topk(4)
    return best, which // x.shape[-1], which % x.shape[-1]


def no_repeat(x, last, ban):
    return x.masked_fill(F.one_hot(ban, x.shape[-1]).bool() & (last == 3)[:, None], float("-inf"))


def speculative(p, q, drafted, u):
    pd, qd = p.gather(-1, drafted[..., None])[..., 0], q.gather(-1, drafted[..., None])[..., 0]
    ok = u < pd / qd
    count = ok.long().cumprod(-1).sum(-1)
    rest = (p - q).clamp(min=0)
    return count, rest / rest.sum(-1, keepdim=True)


def typical(x):
    logp = x.log_softmax(-1)
    apart = (-logp - -(logp.exp() * logp).sum(-1, keepdim=True)).abs()
    return x.gather(-1, apart.topk(50, largest=False)[1])


infer("goal/next/top-p", top_p, T(4, 2000))
infer("goal/next/penalty", penalty, T(4, 4000), T(4, 100, dtype=i64, low=0, high=3999))
infer("goal/next/beams", beams, T(4, 4), T(4, 4, 1000))
infer("goal/next/no-repeat", no_repeat, T(8, 2000), T(8, dtype=i64, low=0, high=5), T(8, dtype=i64, low=0, high=1999))
infer(
    "goal/next/speculative",
    speculative,
    T(4, 5, 500, low=0, high=1),
    T(4, 5, 500, low=0, high=1),
    T(4, 5, dtype=i64, low=0, high=499),
    T(4, 5, low=0, high=1),
)
infer("goal/next/typical", typical, T(4, 2000))
infer(
    "goal/next/temperature-bf16",
    lambda x, t: (x.float() / t).softmax(-1),
    T(8, 4000, dtype=bf16),
    T(8, 1, low=0.5, high=1),
)
infer(
    "goal/next/perplexity",
    lambda x, y: F.cross_entropy(x[:, :-1].flatten(0, 1), y[:, 1:].flatten()).exp(),
    T(2, 32, 1000),
    T(2, 32, dtype=i64, low=0, high=999),
)

# Updates


def adamw(p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.mul_(0.999).addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def adafactor(p, g, rows, columns):
    s = g.square() + 1e-30
    rows.mul_(0.99).add_(s.mean(1), alpha=0.01)
    columns.mul_(0.99).add_(s.mean(0), alpha=0.01)
    u = g * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()
    p.sub_(u / (u.square().mean().sqrt() / 1.0).clamp(min=1) * 1e-2)


def lamb(p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    u = m / (v.sqrt() + 1e-6) + 0.01 * p
    p.sub_(1e-3 * p.norm() / u.norm() * u)


def ema(a, b):
    a.lerp_(b, 0.01)
    return (a - b).abs().amax()


def newton_schulz(g):
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.t()
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


def sam(p, g):
    return p + g * (0.05 / (g.norm() + 1e-12))


infer("goal/update/adamw", adamw, T(256, 256), T(256, 256), T(256, 256), T(256, 256, low=0, high=1))
infer("goal/update/adamw-bf16", adamw, *[T(256, 256, dtype=bf16)] * 3, T(256, 256, dtype=bf16, low=0, high=1))
infer("goal/update/adafactor", adafactor, T(256, 128), T(256, 128), T(256, low=0, high=1), T(128, low=0, high=1))
infer("goal/update/lamb", lamb, T(256, 128), T(256, 128), T(256, 128), T(256, 128, low=0, high=1))
infer("goal/update/ema", ema, T(256, 256), T(256, 256))
infer("goal/update/newton-schulz", newton_schulz, T(64, 128), tolerance=1e-3)
infer("goal/update/sam", sam, T(256, 256), T(256, 256))
infer(
    "goal/update/clip-norm",
    lambda *g: torch.nn.utils.clip_grads_with_norm_(g, 1.0, torch.nn.utils.get_total_norm(g)),
    T(64, 64),
    T(64),
    T(128, 64),
)

# Recommenders


def machine(i, w, v):
    e = v[i]
    return w[i].sum(1) + 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(-1)


def crossed(x, w, b):
    y = x
    for n in range(3):
        y = x * (y @ w[n])[:, None] + b[n] + y
    return y


def interactions(d, e):
    t = torch.cat((d[:, None], e), 1)
    s = t @ t.transpose(1, 2)
    row, column = torch.tril_indices(9, 9, -1)
    return torch.cat((d, s[:, row, column]), 1)


def bpr(u, a, b):
    return -F.logsigmoid((u * a).sum(-1) - (u * b).sum(-1)).mean()


def ndcg(s, y):
    order = s.argsort(-1, descending=True)
    gain = (2 ** y.gather(1, order) - 1) / torch.log2(torch.arange(s.shape[1]) + 2.0)
    best = (2 ** y.sort(-1, descending=True)[0] - 1) / torch.log2(torch.arange(s.shape[1]) + 2.0)
    return (gain.sum(1) / best.sum(1).clamp(min=1e-6)).mean()


infer("goal/rank/machine", machine, T(128, 10, dtype=i64, low=0, high=999), T(1000), T(1000, 16))
infer("goal/rank/crossed", crossed, T(256, 64), T(3, 64), T(3, 64))
infer("goal/rank/interactions", interactions, T(64, 16), T(64, 8, 16))
infer("goal/rank/ndcg", ndcg, T(32, 50), T(32, 50, low=0, high=3))
infer("goal/rank/score-all", lambda u, v: (u @ v.t()).topk(10), T(16, 32), T(2000, 32))
train(
    "goal/rank/train-machine",
    lambda w, v, i: machine(i, w, v),
    T(1000),
    T(1000, 16),
    T(128, 10, dtype=i64, low=0, high=999),
)
train("goal/rank/train-bpr", bpr, T(256, 32), T(256, 32), T(256, 32))
train("goal/rank/train-crossed", crossed, T(256, 64), T(3, 64), T(3, 64))

# Series and numbers


def instance_forecast(x, w):
    mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
    return ((x - mean) / std).transpose(1, 2) @ w * std.transpose(1, 2) + mean.transpose(1, 2)


def decomposed(x):
    trend = F.avg_pool1d(F.pad(x, (12, 12), mode="replicate"), 25, 1)
    return x - trend, trend


def holt(x):
    level, slope = x[:, 0], x[:, 1] - x[:, 0]
    out = []
    for t in range(1, 24):
        new = 0.5 * x[:, t] + 0.5 * (level + slope)
        slope = 0.3 * (new - level) + 0.7 * slope
        level = new
        out.append(level)
    return torch.stack(out, 1)


def lags(x):
    return torch.stack([x[:, 24 - n : -n or None] for n in (0, 1, 7, 24)], -1)


def heat(x):
    for _ in range(5):
        x = x + 0.1 * (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4 * x)
    return x


def lorenz(s):
    for _ in range(10):
        x, y, z = s.unbind(-1)
        s = s + 0.01 * torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z), -1)
    return s


def runge_kutta(y, w):
    def f(y):
        return torch.tanh(y @ w)

    k1 = f(y)
    k2 = f(y + 0.05 * k1)
    k3 = f(y + 0.05 * k2)
    k4 = f(y + 0.1 * k3)
    return y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def gravity(p, m):
    d = p[None] - p[:, None]
    r = (d.square().sum(-1) + 1e-2).rsqrt()
    return (d * (r**3 * m)[..., None]).sum(1)


def power_iteration(a, v):
    for _ in range(5):
        v = a @ v
        v = v / v.norm()
    return v @ (a @ v)


def jacobi(a, b):
    d = a.diagonal()
    x = torch.zeros_like(b)
    for _ in range(5):
        x = (b - a @ x + d * x) / d
    return x


def life(x):
    n = F.conv2d(x[None, None], torch.ones(1, 1, 3, 3), padding=1)[0, 0] - x
    return ((n == 3) | ((x == 1) & (n == 2))).float()


def black_scholes(s, k, t):
    d = ((s / k).log() + (0.02 + 0.02) * t) / (0.2 * t.sqrt())
    n = torch.special.ndtr
    return s * n(d) - k * torch.exp(-0.02 * t) * n(d - 0.2 * t.sqrt())


infer("goal/series/forecast", instance_forecast, T(8, 96, 7), T(96, 24))
infer("goal/series/decompose", decomposed, T(8, 7, 96))
infer("goal/series/holt", holt, T(64, 24))
infer("goal/series/lags", lags, T(32, 200))
infer("goal/number/heat", heat, T(96, 96))
infer("goal/number/lorenz", lorenz, T(1000, 3))
infer("goal/number/runge-kutta", runge_kutta, T(64, 32), T(32, 32))
infer("goal/number/gravity", gravity, T(150, 3), T(150, low=0, high=1))
infer("goal/number/power", power_iteration, T(128, 128), T(128), tolerance=1e-3)
infer("goal/number/jacobi", jacobi, T(64, 64, low=1, high=2), T(64), tolerance=1e-3)
infer("goal/number/life", life, T(96, 96, dtype=torch.float32, low=0, high=1))
infer(
    "goal/number/black-scholes",
    black_scholes,
    T(4096, low=50, high=150),
    T(4096, low=50, high=150),
    T(4096, low=0.1, high=2),
)
infer("goal/number/lorenz-f64", lorenz, T(1000, 3, dtype=torch.float64))
infer("goal/number/center-of-mass", lambda p, m: (p * m[:, None]).sum(0) / m.sum(), T(5000, 3), T(5000, low=0, high=1))
infer("goal/number/covariance-3", lambda p: (c := p - p.mean(0)).t() @ c / (p.shape[0] - 1), T(3000, 3))
infer("goal/number/bounds", lambda p: (p.amin(0), p.amax(0), p.mean(0)), T(5000, 3))
infer("goal/number/horner", lambda x, c: ((c[3] * x + c[2]) * x + c[1]) * x + c[0], T(8192), T(4))
train("goal/number/train-gravity", gravity, T(80, 3), T(80, low=0, high=1))
train("goal/number/train-runge-kutta", runge_kutta, T(64, 32), T(32, 32))
train("goal/series/train-forecast", instance_forecast, T(8, 96, 7), T(96, 24))
train(
    "goal/number/train-black-scholes",
    black_scholes,
    T(2048, low=50, high=150),
    T(2048, low=50, high=150),
    T(2048, low=0.1, high=2),
)
