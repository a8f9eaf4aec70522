"""What moves in steps: schedulers of diffusion, physics, optimizers, and small models that are trained."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, i32, i64, infer, module, train, u8

# Schedulers and physics


def ddim(x, e, a, b):
    x0 = ((x - (1 - a).sqrt() * e) / a.sqrt()).clamp(-1, 1)
    return b.sqrt() * x0 + (1 - b).sqrt() * e


def cfg(x, e, scale, sigma, nxt):
    u, c = e.chunk(2)
    e = u + scale * (c - u)
    std = c.std((1, 2, 3), keepdim=True) / e.std((1, 2, 3), keepdim=True)
    e = 0.7 * e * std + 0.3 * e
    return x + e * (nxt - sigma)


def add_noise(x, n, t, table):
    a = table[t].view(-1, 1, 1, 1)
    return a.sqrt() * x + (1 - a).sqrt() * n


def threshold(x):
    s = x.flatten(1).abs().quantile(0.99, 1).clamp(min=1)[:, None, None, None]
    return x.clamp(-s, s) / s


def heat(u):
    lap = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u
    return u + 0.1 * lap


def nbody(p, v, m):
    d = p[None] - p[:, None]
    r = (d.pow(2).sum(-1) + 1e-2).rsqrt()
    a = (d * (m[None] * r**3)[..., None]).sum(1)
    v = v + 0.01 * a
    return p + 0.01 * v, v


def rk4(x, w):
    f = lambda y: (y @ w).tanh()  # noqa: E731
    a = f(x)
    b = f(x + 0.05 * a)
    c = f(x + 0.05 * b)
    return x + 0.1 / 6 * (a + 2 * b + 2 * c + f(x + 0.1 * c))


def lj(pos):
    d = pos[:, None] - pos[None]
    r2 = d.pow(2).sum(-1) + torch.eye(pos.shape[0], device=pos.device)
    s = (1 / r2) ** 3
    return (4 * (s * s - s)).triu(1).sum()


def quaternion(q, p):
    w, v = q[:, :1], q[:, 1:]
    t = 2 * torch.linalg.cross(v, p)
    return p + w * t + torch.linalg.cross(v, t)


def volume(sigma, rgb, delta):
    alpha = 1 - torch.exp(-F.relu(sigma) * delta)
    trans = torch.cumprod(torch.cat((torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10), 1), 1)[:, :-1]
    w = alpha * trans
    return (w[..., None] * rgb.sigmoid()).sum(1), w.sum(1)


def encode(x):
    f = 2.0 ** torch.arange(6, device=x.device)
    y = (x[..., None] * f).flatten(1)
    return torch.cat((x, y.sin(), y.cos()), -1)


def life(g):
    n = sum(g.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    return ((n == 3) | ((g == 1) & (n == 2))).to(g.dtype)


infer("parts/diffuse/ddim", ddim, *[T(1, 4, 32, 32)] * 2, torch.tensor(0.5), torch.tensor(0.6))
infer("parts/diffuse/ddim-f16", ddim, *[T(2, 4, 64, 64, dtype=f16)] * 2, torch.tensor(0.5), torch.tensor(0.6))
infer("parts/diffuse/guidance", lambda x, e: cfg(x, e, 7.5, 1.0, 0.9), T(1, 4, 32, 32), T(2, 4, 32, 32))
infer(
    "parts/diffuse/add-noise",
    add_noise,
    *[T(8, 3, 32, 32)] * 2,
    T(8, dtype=i64, low=0, high=999),
    T(1000, low=0.1, high=1),
)
infer("parts/diffuse/threshold", threshold, T(2, 3, 24, 24))
infer(
    "parts/diffuse/to-image",
    lambda x: (x / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).mul(255).round().to(u8),
    T(2, 3, 64, 64),
)
infer("parts/physics/heat", heat, T(128, 128))
infer("parts/physics/heat-small", heat, T(16, 16))
infer("parts/physics/n-body", nbody, *[T(64, 3)] * 2, T(64, low=0, high=1))
infer("parts/physics/rk4", rk4, T(32, 16), T(16, 16))
train("parts/physics/lennard-jones", lj, T(48, 3, low=0, high=6), tolerance=1e-3)
infer("parts/physics/quaternion", quaternion, T(500, 4), T(500, 3))
infer("parts/physics/volume", volume, T(128, 48), T(128, 48, 3), T(128, 48, low=0, high=0.1))
train(
    "parts/physics/volume-training",
    lambda a, b, c: volume(a, b, c)[0],
    T(128, 48),
    T(128, 48, 3),
    T(128, 48, low=0, high=0.1),
)
infer("parts/physics/encode", encode, T(1000, 3))
infer("parts/physics/life", life, T(64, 64, dtype=i32, low=0, high=1))
infer("parts/physics/f64-chain", lambda x: (x * 2 + 1).sin().exp().sum(-1), T(64, 100, dtype=torch.float64))
infer("parts/tiny/add-scalar", lambda x: x * 2 + 1, T(8))
infer("parts/tiny/distance", lambda a, b: (a - b).norm(), *[T(3)] * 2)
infer("parts/tiny/policy", lambda x, w, b: (x @ w + b).softmax(-1), T(1, 4), T(4, 2), T(2))
train("parts/tiny/regression", lambda x, y, w, b: ((x @ w + b - y) ** 2).mean(), T(16, 4), T(16, 1), T(4, 1), T(1))

# Optimizers and whole steps


def optimizer(kind, **options):
    def build():
        model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 32))
        chosen = kind(model.parameters(), **options)
        for p in model.parameters():
            p.grad = torch.randn_like(p)

        def step():
            chosen.step()

        return Case(step, (), state=lambda: [p.data for p in model.parameters()])

    return build


def ema_update():
    a, b = [torch.randn(64, 64) for _ in range(6)], [torch.randn(64, 64) for _ in range(6)]

    def update():
        for x, y in zip(a, b, strict=True):
            x.lerp_(y, 0.01)

    return Case(update, (), state=lambda: a)


def clip():
    grads = [torch.randn(64, 64) for _ in range(6)]

    def clipped():
        norm = torch.stack([g.norm() for g in grads]).norm()
        scale = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(scale)
        return norm

    return Case(clipped, (), state=lambda: grads)


def lion():
    p, g, m = (torch.randn(128, 128) for _ in range(3))

    def step():
        p.mul_(1 - 1e-3).sub_((0.9 * m + 0.1 * g).sign() * 1e-3)
        m.mul_(0.99).add_(g, alpha=0.01)

    return Case(step, (), state=lambda: [p, m])


def muon():
    g = torch.randn(64, 48)

    def orthogonal():
        x = g / (g.norm() + 1e-7)
        for _ in range(5):
            a = x.t() @ x
            x = 3.4445 * x + x @ (-4.775 * a + 2.0315 * a @ a)
        return x

    return Case(orthogonal)


for kind, options in [("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {}),
                      ("Adagrad", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}), ("Adadelta", {})]:  # fmt: skip
    # RAdam branches on the number of its steps.
    case(f"parts/step/{kind.lower()}", optimizer(getattr(torch.optim, kind), **options), fullgraph=kind != "RAdam")
case("parts/step/ema", ema_update)
case("parts/step/clip", clip)
case("parts/step/lion", lion)
case("parts/step/muon", muon, tolerance=2e-3)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-1, -2) / 4).softmax(-1)
        return self.out((w @ v).transpose(1, 2).flatten(2))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(49, 64), nn.Linear(64, 49), nn.Linear(64, 128), nn.Linear(128, 64)
        self.n, self.m = nn.LayerNorm(64), nn.LayerNorm(64)

    def forward(self, x):
        x = x + self.b(F.gelu(self.a(self.n(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.d(F.gelu(self.c(self.m(x))))


module("parts/train/attention", Attention, T(4, 32, 64), training=True)
module("parts/train/attention-autocast", Attention, T(4, 32, 64), training=True, autocast=bf16, tolerance=3e-2)
module("parts/train/mixer", Mixer, T(2, 49, 64), training=True)
module("parts/infer/mixer", Mixer, T(1, 49, 64))
module("parts/train/mlp", lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
      nn.Linear(64, 1)),
       T(32, 20), training=True)  # fmt: skip
module("parts/infer/mlp", lambda: nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 4)), T(1, 20))
module("parts/train/small-cnn", lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8,
      16, 3), nn.ReLU(),
       nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)), T(8, 1, 28, 28), training=True)  # fmt: skip
module("parts/infer/depthwise-cl", lambda: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32),
      nn.BatchNorm2d(32), nn.ReLU6(),
       nn.Conv2d(32, 64, 1)), T(1, 32, 28, 28), channels_last=True)  # fmt: skip
module(
    "parts/train/encoder-layer",
    lambda: nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True),
    T(2, 16, 32),
    training=True,
)
module(
    "parts/infer/encoder-layer-bf16",
    lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
    T(2, 32, 64, dtype=bf16),
    dtype=bf16,
)
module(
    "parts/train/conv1d-glu",
    lambda: nn.Sequential(nn.Conv1d(16, 64, 5, padding=2), nn.GLU(1), nn.Conv1d(32, 16, 1)),
    T(4, 16, 100),
    training=True,
)
