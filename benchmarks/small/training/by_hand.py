"""Optimizers by hand, merged and pruned weights, steps of small networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, i64, infer, module


def optimizer(name, update, count=6, shape=(96, 64), states=2):
    def build():
        params = [torch.randn(shape) for _ in range(count)]
        grads = [torch.randn(shape) for _ in range(count)]
        kept = [[torch.zeros(shape) for _ in range(count)] for _ in range(states)]
        number = torch.tensor(3.0)

        def step(params, grads, *kept):
            for each in zip(params, grads, *kept, strict=False):
                update(number, *each)

        return Case(step, (params, grads, *kept))

    case("learn/by-hand-" + name, build)


def adan(k, p, g, m, v, d, s):
    d.sub_(g).neg_()
    m.mul_(0.98).add_(g, alpha=0.02)
    v.mul_(0.92).add_(d, alpha=0.08)
    s.mul_(0.99).addcmul_(g + 0.92 * d, g + 0.92 * d, value=0.01)
    p.sub_(0.001 * (m + 0.92 * v) / (s.sqrt() + 1e-8))
    d.copy_(g)


optimizer("adan", adan, states=4)


def ademamix(k, p, g, a, b, v):
    a.lerp_(g, 0.1)
    b.lerp_(g, 1e-4)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.sub_(0.001 * ((a / (1 - 0.9**k) + 5 * b) / ((v / (1 - 0.999**k)).sqrt() + 1e-8) + 0.1 * p))


optimizer("ademamix", ademamix, states=3)


def tiger(k, p, g, m):
    m.mul_(0.96).add_(g, alpha=0.04)
    p.mul_(1 - 1e-4).add_(m.sign(), alpha=-0.001)


optimizer("tiger", tiger, states=1)


def sm3(k, p, g, m, v):
    nu = torch.minimum(m.amax(1, keepdim=True), v.amax(0, keepdim=True)) + g * g
    p.sub_(0.01 * g / (nu.sqrt() + 1e-8))
    m.copy_(nu)
    v.copy_(nu)


optimizer("sm3", sm3)


def came(k, p, g, r, c):
    u = g / (g.square().mean(1, keepdim=True) * g.square().mean(0, keepdim=True) / g.square().mean() + 1e-30).sqrt()
    u = u / (u.square().mean().sqrt()).clamp(min=1.0)
    r.mul_(0.9).add_(u, alpha=0.1)
    c.mul_(0.99).add_((u - r).square(), alpha=0.01)
    p.sub_(0.001 * r / (c.sqrt() + 1e-8))


optimizer("came", came)


def prodigy(k, p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    d = (g * p).sum().abs() / (v.sqrt().sum() + 1e-8)
    p.sub_(d * m / (v.sqrt() + d * 1e-8))


optimizer("prodigy", prodigy)


def yogi(k, p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.sub_(0.001 * torch.sign(v - g * g) * g * g)
    p.addcdiv_(m, v.abs().sqrt() + 1e-3, value=-0.01)


optimizer("yogi", yogi)


def adabelief(k, p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g - m, g - m, value=0.001).add_(1e-8)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.001)


optimizer("adabelief", adabelief)


def novograd(k, p, g, m, v):
    v.mul_(0.98).add_(g.square().sum(), alpha=0.02)
    m.mul_(0.95).add_(g / (v.sqrt() + 1e-8) + 0.001 * p)
    p.sub_(m, alpha=0.001)


optimizer("novograd", novograd)


def centralized(k, p, g, m):
    m.mul_(0.9).add_(g - g.mean(1, keepdim=True))
    p.sub_(0.01 * m)


optimizer("centralized", centralized, states=1)


def sam(k, p, g, m):
    m.copy_(0.05 * g / (g.norm() + 1e-12))
    p.add_(m)


optimizer("sam-ascend", sam, states=1)
infer(
    "learn/swa",
    lambda a, b: [x + (y - x) / 5 for x, y in zip(a, b, strict=False)],
    [torch.randn(64, 64) for _ in range(8)],
    [torch.randn(64, 64) for _ in range(8)],
)
infer(
    "learn/task-arithmetic",
    lambda b, a, c: [
        x + 0.4 * torch.where((y - x).sign() == (z - x).sign(), y + z - 2 * x, 0.0)
        for x, y, z in zip(b, a, c, strict=False)
    ],
    [torch.randn(64, 64) for _ in range(4)],
    [torch.randn(64, 64) for _ in range(4)],
    [torch.randn(64, 64) for _ in range(4)],
)
infer(
    "learn/slerp-merge",
    lambda a, b: (lambda w: (torch.sin(0.7 * w) * a + torch.sin(0.3 * w) * b) / torch.sin(w))(
        torch.acos(((a * b).sum() / (a.norm() * b.norm())).clamp(-1, 1))
    ),
    T(128, 128),
    T(128, 128),
)
infer(
    "learn/global-norm-clip",
    lambda *g: (lambda s: [x * (1.0 / (s + 1e-6)).clamp(max=1.0) for x in g])(
        torch.stack([x.norm() for x in g]).norm()
    ),
    T(64, 64),
    T(64),
    T(64, 32),
    T(32),
)
infer(
    "learn/fisher-diagonal",
    lambda x, g: torch.einsum("bi,bo->oi", x.square(), g.square()) / 128,
    T(128, 64),
    T(128, 32),
)
infer(
    "learn/kfac-factors",
    lambda a, g: (
        torch.linalg.inv(a.T @ a / 128 + 0.1 * torch.eye(32)),
        torch.linalg.inv(g.T @ g / 128 + 0.1 * torch.eye(16)),
    ),
    T(128, 32),
    T(128, 16),
)
infer("learn/magnitude-prune", lambda w: w * (w.abs() > w.abs().flatten().kthvalue(2048).values), T(64, 64))
infer(
    "learn/wanda",
    lambda w, x: w.masked_fill((w.abs() * x.norm(dim=0)) < (w.abs() * x.norm(dim=0)).sort(1).values[:, 32:33], 0.0),
    T(64, 64),
    T(256, 64),
)
infer("learn/influence", lambda g, h: -(g @ torch.linalg.solve(h @ h.T + torch.eye(24), g.T)), T(50, 24), T(24, 24))


class Net(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.net = nn.Sequential(*layers)

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


def net(name, make, x, **o):
    module("learn/net-" + name, lambda: Net(*make()), x, T(x.shape[0], dtype=i64, low=0, high=9), training=True, **o)


net("digits", lambda: (nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)), T(32, 1, 28, 28))
net(
    "deep-narrow",
    lambda: [y for _ in range(8) for y in (nn.Linear(32, 32), nn.Tanh())] + [nn.Linear(32, 10)],
    T(64, 32),
)
net(
    "bn-dropoutless",
    lambda: (
        nn.Linear(64, 128),
        nn.BatchNorm1d(128),
        nn.ELU(),
        nn.Linear(128, 64),
        nn.BatchNorm1d(64),
        nn.ELU(),
        nn.Linear(64, 10),
    ),
    T(128, 64),
)
net(
    "conv1d",
    lambda: (
        nn.Conv1d(8, 16, 5),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ),
    T(16, 8, 64),
)
net(
    "cifar",
    lambda: (
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2048, 10),
    ),
    T(8, 3, 32, 32),
)
net("selu", lambda: (nn.Linear(50, 100), nn.SELU(), nn.AlphaDropout(0.0), nn.Linear(100, 10)), T(64, 50))
net(
    "gn-strided",
    lambda: (
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.GroupNorm(4, 32),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ),
    T(8, 3, 32, 32),
)
net(
    "conv3d",
    lambda: (nn.Conv3d(1, 8, 3), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(8 * 7 * 7 * 3, 10)),
    T(4, 1, 8, 16, 16),
)
net(
    "autocast", lambda: (nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)), T(64, 64), autocast=bf16
)
net(
    "bf16",
    lambda: (nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)),
    T(64, 64, dtype=bf16),
    dtype=bf16,
)
net("symbolic", lambda: (nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), T(64, 64), dynamic=True)
net(
    "depthwise",
    lambda: (
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 16, 1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ),
    T(8, 8, 24, 24),
)
