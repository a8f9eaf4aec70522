"""What is simulated and scored by the million: markets, cells, sequences, arms, vehicles, and stars."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, f32, i64, infer, train, u8

f64 = torch.float64


def s(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    infer("sim/" + name, function, *inputs, **options)


# Markets


def heston(z: Any, w: Any) -> Any:
    x, v, dt = torch.zeros(4096), torch.full((4096,), 0.04), 1 / 64
    for k in range(16):
        root = (v.clamp(min=0) * dt).sqrt()
        x = x - v.clamp(min=0) * dt / 2 + root * z[k]
        v = v + 2 * (0.04 - v.clamp(min=0)) * dt + 0.3 * root * (-0.7 * z[k] + 0.714 * w[k])
    return (x.exp() - 1).clamp(min=0).mean(), v


s("heston", heston, T(16, 4096), T(16, 4096))


def longstaff(paths: Any) -> Any:
    cash = (1.1 - paths[:, -1]).clamp(min=0)
    for t in range(6, 0, -1):
        x, now = paths[:, t], (1.1 - paths[:, t]).clamp(min=0)
        a = torch.stack((torch.ones_like(x), x, x * x), 1) * (now > 0)[:, None]
        gram = a.t() @ a + 1e-4 * torch.eye(3)
        continued = a @ torch.linalg.solve(gram, a.t() @ (cash * 0.99))
        cash = torch.where((now > continued) & (now > 0), now, cash * 0.99)
    return cash.mean()


# Whether a path is ended is decided by numbers that are nearly equal.
s("longstaff", longstaff, T(2000, 8, low=0.8, high=1.3), tolerance=2e-3)


def garch(r: Any) -> Any:
    v = torch.full((64,), 1.0)
    total = torch.zeros(64)
    for t in range(40):
        v = 0.05 + 0.1 * r[t] ** 2 + 0.85 * v
        total = total + v.log() + r[t + 1] ** 2 / v
    return total


s("garch", garch, T(41, 64))
train("sim/garch-train", lambda r: garch(r).mean(), T(41, 64))
s(
    "ewma-covariance",
    lambda r: torch.einsum("t,ti,tj->ij", 0.94 ** torch.arange(249, -1, -1.0) * 0.06, r, r),
    T(250, 30),
)
s(
    "implied-volatility",
    lambda price: _implied(price, torch.linspace(0.8, 1.2, 500)),
    T(500, low=0.21, high=0.3),
)


def _implied(price: Any, strike: Any) -> Any:
    v = torch.full_like(price, 0.5)
    for _ in range(6):
        d = (-strike.log() + v * v / 2) / v
        value = torch.special.ndtr(d) - strike * torch.special.ndtr(d - v)
        v = (v - (value - price) / (torch.exp(-d * d / 2) / math.sqrt(2 * math.pi) + 0.05)).clamp(0.05, 3)
    return v


s("kelly", lambda p, b: ((p * (b + 1) - 1) / b).clamp(0, 0.25), T(999, low=0.3, high=0.7), T(999, low=0.5, high=3.0))
s("bond-price", lambda c, y: (c[:, None] / (1 + y[:, None]) ** torch.arange(1, 31)).sum(1), T(257, low=1.0, high=5.0),
  T(257, low=0.01, high=0.1))  # fmt: skip
s("vwap", lambda p, q: (p * q).cumsum(-1) / q.cumsum(-1), T(31, 390, low=9.0, high=11.0), T(31, 390, low=1.0, high=9.0))

# Sequences and cells

s("kmer-counts", lambda x: _kmers(x), T(17, 301, dtype=i64, low=0, high=3))


def _kmers(x: Any) -> Any:
    code = x[:, :-3] * 64 + x[:, 1:-2] * 16 + x[:, 2:-1] * 4 + x[:, 3:]
    return torch.zeros(17, 256).scatter_add(1, code, torch.ones_like(code, dtype=f32))


s("motif-scan", lambda x, w: F.conv1d(F.one_hot(x, 4).transpose(1, 2).float(), w).amax(-1),
  T(8, 503, dtype=i64, low=0, high=3), T(12, 4, 11))  # fmt: skip
s("substitution-score", lambda m, a, b: m[a[:, None], b[None]].sum(-1), T(20, 20),
  T(40, 60, dtype=i64, low=0, high=19), T(50, 60, dtype=i64, low=0, high=19))  # fmt: skip


def needleman(a: Any, b: Any) -> Any:
    row = -torch.arange(41.0).repeat(32, 1)
    for i in range(12):
        diagonal = row[:, :-1] + torch.where(a[:, i, None] == b, 1.0, -1.0)
        first = row[:, :1] - 1
        best = torch.cat((first, torch.maximum(diagonal, row[:, 1:] - 1)), 1)
        row = (best + torch.arange(41.0)).cummax(1)[0] - torch.arange(41.0)
    return row[:, -1]


s("needleman", needleman, T(32, 12, dtype=i64, low=0, high=3), T(32, 40, dtype=i64, low=0, high=3))
s("tanimoto", lambda a, b: _tanimoto(a, b), T(30, 128, dtype=torch.bool), T(70, 128, dtype=torch.bool))


def _tanimoto(a: Any, b: Any) -> Any:
    both = a.float() @ b.float().t()
    return both / (a.sum(1)[:, None] + b.sum(1)[None] - both)


s("log-normalize-cells", lambda x: torch.log1p(x / x.sum(1, keepdim=True) * 1e4), T(211, 307, low=0.0, high=9.0))
s("gillespie", lambda x, u: _gillespie(x, u), T(500, 3, low=5.0, high=50.0), T(10, 500, low=0.01, high=0.99))


def _gillespie(x: Any, u: Any) -> Any:
    change = torch.tensor([[-1.0, 1, 0], [0, -1, 1], [1, 0, -1]])
    for k in range(10):
        rates = x.clamp(min=0) * torch.tensor([0.3, 0.2, 0.1])
        chosen = (rates.cumsum(1) < u[k, :, None] * rates.sum(1, keepdim=True)).sum(1)
        x = x + change[chosen]
    return x


def izhikevich(v: Any, u: Any, w: Any, given: Any) -> Any:
    for k in range(8):
        fired = v >= 30
        v, u = torch.where(fired, -65.0, v), torch.where(fired, u + 8, u)
        current = given[k] + w @ fired.float()
        v = v + 0.5 * (0.04 * v * v + 5 * v + 140 - u + current)
        u = u + 0.02 * (0.2 * v - u)
    return v, u


s("izhikevich", izhikevich, T(200, low=-70.0, high=35.0), T(200), T(200, 200), T(8, 200))


def epidemic(x: Any, contacts: Any) -> Any:
    for _ in range(20):
        new = 0.3 * x[:, 0] * (contacts @ x[:, 1])
        gone = 0.1 * x[:, 1]
        x = torch.stack((x[:, 0] - new * 0.1, x[:, 1] + (new - gone) * 0.1, x[:, 2] + gone * 0.1), 1)
    return x


s("epidemic", epidemic, T(17, 3, low=0.0, high=1.0), T(17, 17, low=0.0, high=0.2))

# Arms, vehicles, filters


def chain_of_joints(q: Any) -> Any:
    at = torch.eye(4).repeat(64, 1, 1)
    for k in range(7):
        c, t, o, e = q[:, k].cos(), q[:, k].sin(), torch.zeros(64), torch.ones(64)
        turn = torch.stack((c, -t, o, o + 0.3, t, c, o, o, o, o, e, o + 0.1, o, o, o, e), 1).view(64, 4, 4)
        at = at @ turn
    return at[:, :3, 3]


s("joints", chain_of_joints, T(64, 7))
train("sim/joints-train", lambda q, goal: (chain_of_joints(q) - goal).square().sum(), T(64, 7), T(64, 3))


def bicycle(x: Any, u: Any) -> Any:
    costs = torch.zeros(256)
    for k in range(15):
        a, d = u[:, k, 0], u[:, k, 1].clamp(-0.5, 0.5)
        px, py, h, v = x.unbind(1)
        x = torch.stack((px + v * h.cos() * 0.1, py + v * h.sin() * 0.1, h + v * d.tan() / 2.5 * 0.1, v + a * 0.1), 1)
        costs = costs + x[:, 1] ** 2 + 0.1 * (x[:, 3] - 5) ** 2 + 0.01 * a * a
    return costs, costs.topk(16, largest=False)[1]


s("bicycle-rollouts", bicycle, T(256, 4), T(256, 15, 2))


def extended_kalman(x: Any, p: Any, z: Any) -> Any:
    for k in range(4):
        c, d = x[:, 2].cos(), x[:, 2].sin()
        x = torch.stack((x[:, 0] + 0.1 * c, x[:, 1] + 0.1 * d, x[:, 2] + 0.01), 1)
        j = torch.eye(3).repeat(50, 1, 1)
        j[:, 0, 2], j[:, 1, 2] = -0.1 * d, 0.1 * c
        p = j @ p @ j.transpose(1, 2) + 0.01 * torch.eye(3)
        gain = p[:, :, :2] @ torch.linalg.inv(p[:, :2, :2] + 0.1 * torch.eye(2))
        x = x + (gain @ (z[k] - x[:, :2])[:, :, None])[:, :, 0]
        p = p - gain @ p[:, :2]
    return x, p


s("extended-kalman", extended_kalman, T(50, 3), torch.eye(3).repeat(50, 1, 1), T(4, 50, 2))
s("skew-exp", lambda w: _skew_exp(w), T(333, 3))


def _skew_exp(w: Any) -> Any:
    angle = w.norm(dim=1).clamp(min=1e-6)[:, None, None]
    o, (x, y, z) = torch.zeros(333), w.unbind(1)
    k = torch.stack((o, -z, y, z, o, -x, -y, x, o), 1).view(333, 3, 3) / angle
    return torch.eye(3) + angle.sin() * k + (1 - angle.cos()) * (k @ k)


s("quaternion-to-euler", lambda q: _euler(F.normalize(q, dim=1)), T(1021, 4))


def _euler(q: Any) -> Any:
    w, x, y, z = q.unbind(1)
    roll = torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    return torch.stack((roll, (2 * (w * y - z * x)).clamp(-1, 1).asin(),
                        torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))), 1)  # fmt: skip


s("costmap-inflate", lambda x: (F.max_pool2d(x[None, None].float(), 7, 1, 3)[0, 0] * 0.5).maximum(x.float()),
  T(127, 127, dtype=u8, low=0, high=1))  # fmt: skip

# Fields and stars


def vorticity(w: Any) -> Any:
    for _ in range(3):
        n, t = w.roll(1, 0), w.roll(-1, 0)
        e, o = w.roll(1, 1), w.roll(-1, 1)
        w = w + 0.01 * (n + t + e + o - 4 * w) - 0.1 * ((e - o) * w.roll((1, 1), (0, 1)) - (n - t) * w.roll(-2, 1)) / 4
    return w


s("vorticity", vorticity, T(97, 101))
s("gray-scott-f64", lambda u, v: _gray_scott(u, v), T(64, 64, dtype=f64, low=0.0, high=1.0),
  T(64, 64, dtype=f64, low=0.0, high=0.5))  # fmt: skip


def _gray_scott(u: Any, v: Any) -> Any:
    k = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1, 0.2], [0.05, 0.2, 0.05]], dtype=f64)[None, None]
    for _ in range(4):
        lu, lv = (F.conv2d(F.pad(x[None, None], (1, 1, 1, 1), mode="circular"), k)[0, 0] for x in (u, v))
        u, v = u + 0.16 * lu - u * v * v + 0.035 * (1 - u), v + 0.08 * lv + u * v * v - 0.1 * v
    return u, v


s("shallow-water", lambda h, u: _shallow(h, u), T(1001, low=1.0, high=1.2), T(1001))


def _shallow(h: Any, u: Any) -> Any:
    for _ in range(5):
        q = h * u
        h1 = h[1:-1] - 0.02 * (q[2:] - q[:-2])
        f = q * u + 4.9 * h * h
        u = F.pad((q[1:-1] - 0.02 * (f[2:] - f[:-2])) / h1, (1, 1), mode="constant", value=0.0)
        h = F.pad(h1[None, None], (1, 1), mode="replicate")[0, 0]
    return h, u


s("planck", lambda t, w: 1.19e-2 / w**5 / torch.expm1(14.4 / (w * t[:, None])), T(41, low=3.0, high=6.0),
  T(211, low=0.3, high=2.0))  # fmt: skip
s("kepler", lambda m, e: _kepler(m, e), T(3001, low=0.0, high=6.28), T(3001, low=0.0, high=0.9))


def _kepler(m: Any, e: Any) -> Any:
    x = m
    for _ in range(8):
        x = x - (x - e * x.sin() - m) / (1 - e * x.cos())
    return 2 * torch.atan2((1 + e).sqrt() * (x / 2).sin(), (1 - e).sqrt() * (x / 2).cos())


s("ricker-traces", lambda t, f: _ricker(t[None, :] - torch.linspace(0, 1, 37)[:, None], f[:, None]), T(501),
  T(37, low=10.0, high=30.0))  # fmt: skip


def _ricker(t: Any, f: Any) -> Any:
    a = (math.pi * f * t) ** 2
    return (1 - 2 * a) * torch.exp(-a)
