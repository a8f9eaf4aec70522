"""Programs of many fields: markets, chemistry, optics, robots, codes, games, maps, and learning without gradients."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i32, i64, infer, module, train, u8


def order_book(bids, asks, sizes):
    mid = (bids[:, 0] + asks[:, 0]) / 2
    depth = sizes.cumsum(1)
    return ((depth[:, :10] * bids).sum(1) - (depth[:, 10:] * asks).sum(1)) / depth[:, -1], mid.diff()


infer("field/order-book", order_book, T(500, 10), T(500, 10), T(500, 20, low=0.0, high=9.0))


def drawdown(prices):
    peak = prices.cummax(1)[0]
    fall = (prices - peak) / peak
    return fall.amin(1), fall.argmin(1)


infer("field/drawdown", drawdown, T(64, 1000, low=10.0, high=20.0))
infer("field/bollinger", lambda x: (lambda w: (x[:, 19:] - w.mean(-1)) / w.std(-1))(x.unfold(1, 20, 1)), T(32, 500))
infer(
    "field/macd",
    lambda p, k: F.conv1d(p[:, None], k)[:, 0] - F.conv1d(p[:, None], k.flip(2))[:, 0],
    T(16, 800),
    T(1, 1, 26),
)
infer("field/var-quantile", lambda r: torch.quantile(r, torch.tensor([0.01, 0.05, 0.5]), dim=1), T(40, 2000))
train(
    "field/portfolio",
    lambda w, r, c: (w.softmax(0) @ r).mean() - 0.5 * (w.softmax(0) @ c @ w.softmax(0)),
    T(50),
    T(50, 250),
    T(50, 50),
)


def lennard_jones(x, box):
    d = x[:, None] - x[None]
    d = d - box * torch.round(d / box)
    r2 = (d * d).sum(-1) + torch.eye(x.shape[0])
    inv = (1 / r2) ** 3
    return (4 * (inv * inv - inv)).triu(1).sum()


train("field/lennard-jones", lennard_jones, T(100, 3, low=0.0, high=6.0), 6.0)
infer(
    "field/verlet",
    lambda x, v, f, m: (x + v * 0.01 + f / m * 5e-5, v + f / m * 0.01),
    T(2000, 3),
    T(2000, 3),
    T(2000, 3),
    T(2000, 1, low=1.0, high=2.0),
)
infer(
    "field/dihedrals",
    lambda p: torch.atan2(
        (torch.linalg.cross(p[1:-2] - p[:-3], p[2:-1] - p[1:-2]) * (p[3:] - p[2:-1])).sum(-1),
        ((p[1:-2] - p[:-3]) * (p[3:] - p[2:-1])).sum(-1),
    ),
    T(1500, 3),
)
infer("field/contact-map", lambda p: (torch.cdist(p, p) < 1.0).sum(-1), T(256, 3))
infer("field/radial-histogram", lambda p: torch.histc(torch.cdist(p, p).flatten(), 64, 0.1, 4.0), T(128, 3))
infer(
    "field/fresnel",
    lambda c, n: (lambda t: ((c - n * t) / (c + n * t)) ** 2)(torch.sqrt((1 - (1 - c * c) / (n * n)).clamp(min=0))),
    T(4096, low=0.0, high=1.0),
    1.5,
)
infer("field/interference", lambda x, k: torch.sin(x[:, None] * k).sum(1).square(), T(2000), T(24))
infer("field/thin-lens", lambda m, r: torch.einsum("bij,bnj->bni", m, r), T(32, 2, 2), T(32, 100, 2))


def kinematics(q, a, d):
    z = torch.zeros(3)
    x, y, t = z[0], z[1], z[2]
    for i in range(7):
        t = t + q[:, i]
        x = x + a[i] * torch.cos(t)
        y = y + a[i] * torch.sin(t) + d[i]
    return torch.stack((x, y, t), -1)


infer("field/arm-forward", kinematics, T(256, 7), T(7), T(7))
train("field/arm-inverse", lambda q, a, d: (kinematics(q, a, d)[:, :2] - 1).square().sum(), T(256, 7), T(7), T(7))
infer(
    "field/quaternion-slerp",
    lambda a, b, t: (lambda w: (torch.sin((1 - t) * w) * a + torch.sin(t * w) * b) / torch.sin(w))(
        torch.acos((F.normalize(a, dim=-1) * F.normalize(b, dim=-1)).sum(-1, True).clamp(-0.999, 0.999))
    ),
    T(500, 4),
    T(500, 4),
    T(500, 1, low=0.0, high=1.0),
)
infer(
    "field/lidar-bins",
    lambda p: torch.zeros(360).scatter_reduce(
        0,
        ((torch.atan2(p[:, 1], p[:, 0]) + math.pi) * (179.5 / math.pi)).long(),
        p.norm(dim=1),
        "amin",
        include_self=False,
    ),
    T(4000, 2),
)
infer(
    "field/occupancy",
    lambda g, i, j, o: g.index_put((i, j), o, accumulate=True).clamp(-5, 5).sigmoid(),
    T(64, 64),
    T(500, dtype=i64, low=0, high=63),
    T(500, dtype=i64, low=0, high=63),
    T(500),
)
infer(
    "field/kalman",
    lambda x, P, A, H, z: (
        lambda p: (lambda k: ((A @ x) + k @ (z - H @ (A @ x)), p - k @ H @ p))(
            p @ H.mT @ torch.linalg.inv(H @ p @ H.mT + torch.eye(2))
        )
    )(A @ P @ A.mT + torch.eye(4)),
    T(32, 4, 1),
    torch.eye(4).repeat(32, 1, 1),
    T(4, 4),
    T(2, 4),
    T(32, 2, 1),
)


def crc(data, table):
    c = torch.full((data.shape[0],), 0xFFFF, dtype=torch.int64)
    for i in range(16):
        c = (c >> 8) ^ table[(c ^ data[:, i]) & 0xFF]
    return c ^ 0xFFFF


infer("field/crc", crc, T(200, 16, dtype=i64, low=0, high=255), T(256, dtype=i64, low=0, high=65535))
infer(
    "field/hamming-decode",
    lambda b, h: (b.int() @ h % 2) @ torch.tensor([1, 2, 4], dtype=i32),
    T(512, 7, dtype=u8, low=0, high=1),
    T(7, 3, dtype=i32, low=0, high=1),
)
infer("field/run-lengths", lambda x: (x[:, 1:] != x[:, :-1]).cumsum(1), T(64, 512, dtype=u8, low=0, high=2))
infer(
    "field/delta-zigzag",
    lambda x: (lambda d: (d << 1) ^ (d >> 31))(x.diff(dim=1)),
    T(64, 512, dtype=i32, low=0, high=1000),
)
infer(
    "field/bits-of-words",
    lambda x: ((x.unsqueeze(-1) >> torch.arange(32, dtype=i32)) & 1).to(torch.bool),
    T(2000, dtype=i32),
)
infer(
    "field/parity",
    lambda x: (lambda y: (y ^ (y >> 1)) & 1)((lambda y: y ^ (y >> 2))((lambda y: y ^ (y >> 4))(x))),
    T(8192, dtype=u8),
)
infer(
    "field/life",
    lambda g: (lambda n: ((n == 3) | ((n == 2) & g)).to(g.dtype))(
        sum(torch.roll(g.to(i8), (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)
    ),
    T(128, 128, dtype=torch.bool),
)
infer(
    "field/life-conv",
    lambda g: (lambda n: ((n == 3) | ((n == 2) & (g > 0))).float())(
        F.conv2d(F.pad(g, (1, 1, 1, 1), mode="circular"), torch.tensor([[[[1.0, 1, 1], [1, 0, 1], [1, 1, 1]]]]))
    ),
    T(1, 1, 128, 128),
)
infer(
    "field/board-moves", lambda b: (b == 0).flatten(1).nonzero(), T(16, 8, 8, dtype=i8, low=0, high=2), fullgraph=False
)
infer(
    "field/tic-tac-toe",
    lambda b, lines: (b[:, lines].sum(-1).abs() == 3).any(-1),
    T(500, 9, dtype=i8, low=-1, high=1),
    torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]),
)
infer(
    "field/elo",
    lambda r, a, b, s: r.index_add(0, a, 32 * (s - 1 / (1 + 10 ** ((r[b] - r[a]) / 400)))),
    T(500, low=800.0, high=2000.0),
    T(256, dtype=i64, low=0, high=499),
    T(256, dtype=i64, low=0, high=499),
    T(256, low=0.0, high=1.0),
)
infer(
    "field/haversine",
    lambda a, b: (
        12742
        * torch.asin(
            torch.sqrt(
                torch.sin((a[:, None, 0] - b[None, :, 0]) / 2) ** 2
                + torch.cos(a[:, None, 0])
                * torch.cos(b[None, :, 0])
                * torch.sin((a[:, None, 1] - b[None, :, 1]) / 2) ** 2
            )
        )
    ),
    T(100, 2, low=0.0, high=0.5),
    T(120, 2, low=0.0, high=0.5),
)
infer(
    "field/mercator",
    lambda p: torch.stack((p[:, 0], torch.log(torch.tan(math.pi / 4 + p[:, 1] / 2))), 1),
    T(3000, 2, low=-1.0, high=1.0),
)
infer(
    "field/hillshade",
    lambda z: (lambda dy, dx: (1 / torch.sqrt(1 + dx * dx + dy * dy)).clamp(0, 1))(*torch.gradient(z)),
    T(200, 200),
)
infer("field/flow-direction", lambda z: F.unfold(z[None, None], 3).argmin(1), T(96, 96))
infer(
    "field/point-in-polygon",
    lambda p, v: (
        (
            ((v[:, 1] > p[:, None, 1]) != (v.roll(1, 0)[:, 1] > p[:, None, 1]))
            & (
                p[:, None, 0]
                < (v.roll(1, 0)[:, 0] - v[:, 0]) * (p[:, None, 1] - v[:, 1]) / (v.roll(1, 0)[:, 1] - v[:, 1]) + v[:, 0]
            )
        ).sum(1)
        % 2
        == 1
    ),
    T(1000, 2),
    T(12, 2),
)
infer(
    "field/shoelace",
    lambda v: 0.5 * (v[..., 0] * v[..., 1].roll(-1, -1) - v[..., 1] * v[..., 0].roll(-1, -1)).sum(-1).abs(),
    T(400, 16, 2),
)
infer("field/convex-support", lambda v, d: (v @ d.T).max(1), T(64, 50, 3), T(26, 3))


def evolution(pop, fit):
    keep = fit.topk(32).indices
    parents = pop[keep]
    children = torch.where(torch.arange(40) % 2 == 0, parents, parents.flip(0))
    return torch.cat((parents, children)).clamp(-3, 3)


infer("field/evolution", evolution, T(128, 40), T(128))
infer(
    "field/cma-rank",
    lambda x, f, m: (lambda w, i: (w[:, None] * (x[i] - m)).sum(0))(
        torch.log(torch.tensor(33.0)) - torch.log(torch.arange(1, 33)), f.argsort()[:32]
    ),
    T(64, 30),
    T(64),
    T(30),
)
infer(
    "field/tournament",
    lambda f, i: i.gather(1, f[i].argmax(1, keepdim=True))[:, 0],
    T(200),
    T(200, 4, dtype=i64, low=0, high=199),
)
infer(
    "field/ant-pheromone",
    lambda p, path, q: (p * 0.9).index_put(
        (path[:, :-1].flatten(), path[:, 1:].flatten()), q.repeat_interleave(19), accumulate=True
    ),
    T(60, 60),
    T(16, 20, dtype=i64, low=0, high=59),
    T(16),
)
infer(
    "field/particle-swarm",
    lambda x, v, p, g, a, b: (lambda n: (x + n, n))(0.7 * v + 1.5 * a * (p - x) + 1.5 * b * (g - x)),
    T(100, 20),
    T(100, 20),
    T(100, 20),
    T(20),
    T(100, 20),
    T(100, 20),
)
infer(
    "field/simulated-annealing",
    lambda e, n, u, t: torch.where(u < torch.exp(-(n - e) / t).clamp(max=1), n, e),
    T(4000),
    T(4000),
    T(4000, low=0.0, high=1.0),
    0.5,
)
infer(
    "field/thompson",
    lambda a, b, za: (a / (a + b) + za * torch.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))).argmax(-1),
    T(100, 10, low=1.0, high=9.0),
    T(100, 10, low=1.0, high=9.0),
    T(100, 10),
)


def perceptron(w, x, y):
    for i in range(8):
        w = w + 0.1 * y[i] * x[i] * ((x[i] * w).sum() * y[i] <= 0)
    return w


infer("field/perceptron", perceptron, T(64), T(8, 64), T(8))
infer(
    "field/naive-bayes",
    lambda x, p, q: (x.unsqueeze(1) * p + (1 - x).unsqueeze(1) * q).sum(-1).argmax(-1),
    T(100, 50, low=0.0, high=1.0),
    T(5, 50),
    T(5, 50),
)
infer(
    "field/tree-walk",
    lambda x, f, t, a, b, n: (lambda m: torch.where(x.gather(1, f[m][:, None])[:, 0] < t[m], a[m], b[m]))(
        torch.where(x.gather(1, f[n][:, None])[:, 0] < t[n], a[n], b[n])
    ),
    T(512, 20),
    T(63, dtype=i64, low=0, high=19),
    T(63),
    T(63, dtype=i64, low=0, high=62),
    T(63, dtype=i64, low=0, high=62),
    torch.zeros(512, dtype=i64),
)
infer("field/isolation", lambda d, c: 2 ** (-d.mean(1) / c), T(800, 50, low=1.0, high=10.0), 5.0)
infer(
    "field/knn-vote",
    lambda x, y, c: F.one_hot(c[torch.cdist(x, y).topk(5, largest=False).indices], 10).sum(1).argmax(1),
    T(64, 16),
    T(300, 16),
    T(300, dtype=i64, low=0, high=9),
)
infer(
    "field/som",
    lambda w, x: (lambda g: w + 0.1 * g[:, None] * (x - w))(
        torch.exp(-(torch.arange(100) - (w - x).square().sum(1).argmin()).float().square() / 8)
    ),
    T(100, 12),
    T(12),
)
infer("field/hopfield", lambda s, w: torch.sign(s @ w - (s * w.diagonal())), T(32, 100), T(100, 100))
train("field/rbm", lambda v, w, a, b: (v @ a + F.softplus(v @ w + b).sum(1)).mean(), T(64, 50), T(50, 30), T(50), T(30))
train("field/pca-reconstruction", lambda x, w: (x - x @ w @ w.T).square().mean(), T(200, 40), T(40, 8))
train("field/nmf", lambda w, h, v: (v - w.relu() @ h.relu()).square().sum(), T(60, 8), T(8, 80), T(60, 80))
train(
    "field/ot-dual",
    lambda f, g, c: f.mean() + g.mean() - 0.1 * torch.exp((f[:, None] + g[None] - c) / 0.1).mean(),
    T(64),
    T(64),
    T(64, 64, low=2.0, high=4.0),
)
infer("field/sinkhorn-log", lambda c: _sinkhorn(c), T(48, 48))
infer(
    "field/auction",
    lambda v, p: (lambda t: (t.indices[:, 0], t.values[:, 0] - t.values[:, 1] + 0.01))((v - p).topk(2, 1)),
    T(100, 80),
    T(80),
)


def _sinkhorn(c):
    f = g = torch.zeros(c.shape[0])
    for _ in range(5):
        f = -torch.logsumexp(g[None] - c, 1)
        g = -torch.logsumexp(f[:, None] - c, 0)
    return torch.exp(f[:, None] + g[None] - c)


class Neuron(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.rec = nn.Linear(32, 64), nn.Linear(64, 64, bias=False)

    def forward(self, x):
        v = x.new_zeros(x.shape[0], 64)
        s, out = v, []
        for t in range(x.shape[1]):
            v = 0.9 * v * (1 - s) + self.inp(x[:, t]) + self.rec(s)
            s = (v > 1).to(x.dtype)
            out.append(s)
        return torch.stack(out, 1).mean(1)


module("field/spiking", Neuron, T(16, 10, 32))


class Hyper(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16 * 16 + 16))

    def forward(self, z, x):
        w = self.net(z)
        return torch.baddbmm(w[:, 256:].unsqueeze(1), x, w[:, :256].view(-1, 16, 16))


module("field/hypernetwork", Hyper, T(12, 8), T(12, 20, 16))
module("field/hypernetwork-training", Hyper, T(12, 8), T(12, 20, 16), training=True)


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8, 12, 2) / 8)
        self.skip = nn.Conv1d(8, 8, 1)

    def forward(self, x):
        f = torch.fft.rfft(x)
        out = torch.zeros_like(f)
        out[..., :12] = torch.einsum("bim,iom->bom", f[..., :12], torch.view_as_complex(self.w))
        return F.gelu(torch.fft.irfft(out, n=x.shape[-1]) + self.skip(x))


module("field/fourier-operator", Fourier, T(4, 8, 128))
module("field/fourier-operator-training", Fourier, T(4, 8, 128), training=True)
infer(
    "field/poisson-fft",
    lambda r: torch.fft.irfft2(
        torch.fft.rfft2(r) / (torch.fft.fftfreq(64)[:, None] ** 2 + torch.fft.rfftfreq(64)[None] ** 2 + 1)
    ),
    T(4, 64, 64),
)
infer(
    "field/burgers",
    lambda u: u - 0.01 * u * (u - u.roll(1, -1)) + 0.001 * (u.roll(-1, -1) - 2 * u + u.roll(1, -1)),
    T(16, 1024),
)
infer(
    "field/lattice-boltzmann",
    lambda f, w, c: (
        lambda rho: (lambda u: f - 0.6 * (f - w[:, None, None] * rho * (1 + 3 * torch.einsum("qd,dxy->qxy", c, u))))(
            torch.einsum("qxy,qd->dxy", f, c) / rho
        )
    )(f.sum(0)),
    T(9, 64, 64, low=0.5, high=1.0),
    T(9),
    T(9, 2),
)
infer(
    "field/upwind",
    lambda h, u: h - 0.1 * (torch.where(u > 0, u * (h - F.pad(h[:, :-1], (1, 0))), u * (F.pad(h[:, 1:], (0, 1)) - h))),
    T(128, 256),
    T(128, 256),
)
infer(
    "field/minmod",
    lambda u: (lambda a, b: torch.where(a * b > 0, torch.where(a.abs() < b.abs(), a, b), 0.0))(
        u[..., 1:-1] - u[..., :-2], u[..., 2:] - u[..., 1:-1]
    ),
    T(32, 1024),
)
infer(
    "field/weno-smoothness",
    lambda u: (lambda w: 13 / 12 * (w[..., 0] - 2 * w[..., 1] + w[..., 2]) ** 2 + 0.25 * (w[..., 0] - w[..., 2]) ** 2)(
        u.unfold(-1, 3, 1)
    ),
    T(16, 2048),
)
infer(
    "field/red-black",
    lambda u, f, m: torch.where(m, 0.25 * (u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - f), u),
    T(128, 128),
    T(128, 128),
    T(128, 128, dtype=torch.bool),
)
infer(
    "field/tridiagonal",
    lambda a, b: torch.linalg.solve(
        torch.diag_embed(a) + torch.diag_embed(b, 1) + torch.diag_embed(b, -1) + 9 * torch.eye(20), a.unsqueeze(-1)
    )[..., 0],
    T(16, 20),
    T(16, 19),
)
infer("field/chebyshev", lambda x, c: _chebyshev(x, c), T(4000, low=-1.0, high=1.0), T(12))


def _chebyshev(x, c):
    a = b = torch.zeros_like(x)
    for i in range(11, 0, -1):
        a, b = 2 * x * a - b + c[i], a
    return x * a - b + c[0]


infer(
    "field/ising",
    lambda s, u: (lambda e: torch.where(u < torch.exp(-e * 0.44), -s, s))(
        2 * s * (s.roll(1, 0) + s.roll(-1, 0) + s.roll(1, 1) + s.roll(-1, 1))
    ),
    (torch.randn(128, 128) > 0).to(torch.int8),
    T(128, 128, low=0.0, high=1.0),
)
infer("field/percolation", lambda m: _flood(m), T(64, 64, dtype=torch.bool))


def _flood(m):
    x = torch.zeros_like(m)
    x[0] = m[0]
    for _ in range(8):
        x = m & (x | x.roll(1, 0) | x.roll(1, 1) | x.roll(-1, 1))
    return x


infer(
    "field/barnes-cells",
    lambda p: torch.bincount(((p * 16).long().clamp(0, 15) * torch.tensor([256, 16, 1])).sum(-1), minlength=4096),
    T(2000, 3, low=0.0, high=1.0),
)
infer(
    "field/spectral-lines",
    lambda x, m, s: (torch.exp(-0.5 * ((x[:, None] - m) / s) ** 2) / s).sum(-1),
    T(1000),
    T(20),
    T(20, low=0.5, high=1.0),
)
infer(
    "field/survival",
    lambda t, e: torch.cumprod(1 - e / torch.arange(e.shape[-1], 0, -1), -1),
    T(30, 300),
    T(30, 300, low=0.0, high=0.9),
)
infer("field/cox", lambda h, e: ((h - torch.logcumsumexp(h.flip(0), 0).flip(0)) * e).sum(), T(400), T(400))
train(
    "field/cox-training",
    lambda h, e: -((h - torch.logcumsumexp(h.flip(0), 0).flip(0)) * e).sum(),
    T(400),
    T(400, dtype=torch.bool),
)
train(
    "field/item-response",
    lambda a, b, c, y: F.binary_cross_entropy_with_logits(a[:, None] * b - c, y.float()),
    T(200),
    T(40),
    T(40),
    T(200, 40, dtype=torch.bool),
)
train(
    "field/tobit",
    lambda m, s, y: (
        -torch.where(y > 0, -0.5 * ((y - m) / s.exp()) ** 2 - s, torch.special.log_ndtr(-m / s.exp())).mean()
    ),
    T(500),
    T(500),
    T(500),
)
infer(
    "field/auc",
    lambda s, y: (lambda r: (r[y].sum() - 5000) / 1e4)(s.argsort().argsort().float()),
    T(400),
    (torch.arange(400) % 2 == 0),
    fullgraph=False,
)
infer(
    "field/calibration",
    lambda p, y: torch.zeros(15).index_add(0, (p * 15).long().clamp(max=14), p - y),
    T(3000, low=0.0, high=1.0),
    T(3000, low=0.0, high=1.0),
)
infer(
    "field/confusion",
    lambda p, y: torch.bincount(y * 10 + p.argmax(-1), minlength=100).view(10, 10),
    T(500, 10),
    T(500, dtype=i64, low=0, high=9),
)
infer(
    "field/dcg",
    lambda s, r: ((2.0 ** r.gather(1, s.argsort(1, descending=True)) - 1) / torch.log2(torch.arange(20) + 2.0)).sum(1),
    T(64, 20),
    T(64, 20, dtype=i64, low=0, high=4),
)
infer(
    "field/edit-row",
    lambda p, s: torch.minimum(torch.minimum(p[:, 1:] + 1, p[:, :-1] + s), p[:, :-1] + 2),
    T(64, 101, dtype=i32, low=0, high=50),
    T(64, 100, dtype=i32, low=0, high=1),
)
infer(
    "field/half-blend",
    lambda a, b, m: torch.lerp(a, b, m),
    T(3, 128, 128, dtype=f16),
    T(3, 128, 128, dtype=f16),
    T(1, 128, 128, dtype=f16),
)
infer(
    "field/bf16-threshold",
    lambda x: torch.where(x.abs() > 0.5, x, torch.zeros((), dtype=bf16)).sum(-1),
    T(256, 512, dtype=bf16),
)
infer("field/i8-dot", lambda a, b: (a.int() * b.int()).sum(-1), T(512, 256, dtype=i8), T(512, 256, dtype=i8))
