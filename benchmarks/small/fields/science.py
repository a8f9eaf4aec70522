"""From simulation, statistics, clustering, optimization and metrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from small.case import Case, T, bf16, case, f32, i32, i64, infer, module, train, u8

# Physics


def heat(u: Any) -> Any:
    for _ in range(4):
        u = u + 0.1 * (u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u)
    return u


def wave(u: Any, before: Any) -> Any:
    inner = u[1:-1, 1:-1]
    laplacian = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner
    return F.pad(2 * inner - before[1:-1, 1:-1] + 0.2 * laplacian, (1, 1, 1, 1))


def runge_kutta(y: Any, w: Any) -> Any:
    def f(z: Any) -> Any:
        return torch.tanh(z @ w)

    a = f(y)
    b = f(y + 0.05 * a)
    c = f(y + 0.05 * b)
    d = f(y + 0.1 * c)
    return y + 0.1 / 6 * (a + 2 * b + 2 * c + d)


def gravity(x: Any, mass: Any) -> Any:
    away = x[None] - x[:, None]
    far = (away.square().sum(-1) + 1e-2).rsqrt()
    return (away * (mass[None] * far**3)[..., None]).sum(1)


def lennard_jones(x: Any) -> Any:
    far = (x[:, None] - x[None]).square().sum(-1) + torch.eye(x.shape[0], device=x.device) * 1e6
    s = (1 / far) ** 3
    return (4 * (s * s - s)).sum() / 2


def leapfrog(x: Any, v: Any) -> Any:
    for _ in range(3):
        v = v - 0.05 * x
        x = x + 0.1 * v
        v = v - 0.05 * x
    return x, v, 0.5 * (x * x + v * v).sum(-1)


def life(x: Any) -> Any:
    near = sum(x.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    return ((near == 3) | ((x == 1) & (near == 2))).to(x.dtype)


def lorenz(s: Any) -> Any:
    x, y, z = s.unbind(-1)
    return s + 0.01 * torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z), -1)


def rotation(r: Any) -> Any:
    angle = r.norm(dim=-1, keepdim=True).clamp_min(1e-8)
    x, y, z = (r / angle).unbind(-1)
    zero = torch.zeros_like(x)
    k = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).view(-1, 3, 3)
    s, c = angle.sin()[..., None], angle.cos()[..., None]
    return torch.eye(3, device=r.device) + s * k + (1 - c) * k @ k


infer("physics/heat", heat, T(128, 128))
infer("physics/wave", wave, T(256, 256), T(256, 256))
infer("physics/runge-kutta", runge_kutta, T(64, 64), T(64, 64))
infer("physics/gravity", gravity, T(128, 3), T(128, low=0.1, high=1))
train("physics/lennard-jones-training", lennard_jones, T(64, 3))
infer("physics/leapfrog", leapfrog, T(512, 64), T(512, 64))
infer("physics/life", life, T(128, 128, dtype=i32, low=0, high=1))
infer("physics/lorenz", lorenz, T(4096, 3))
infer("physics/rotation", rotation, T(1024, 3))
infer(
    "physics/homogeneous",
    lambda x, m: (y := F.pad(x, (0, 1), value=1.0) @ m.mT)[..., :3] / y[..., 3:],
    T(1024, 3),
    T(4, 4),
)
infer(
    "physics/ray-sphere",
    lambda o, d: (b := (o * d).sum(-1)) - (b * b - (o * o).sum(-1) + 9.0).clamp_min(0).sqrt(),
    T(4096, 3),
    T(4096, 3),
)
infer(
    "physics/volume-render",
    lambda s, c: (((1 - torch.exp(-s * 0.1)) * torch.exp(-0.1 * (s.cumsum(-1) - s)))[..., None] * c).sum(-2),
    T(256, 32, low=0, high=3),
    T(256, 32, 3),
)

# Statistics and clusters


def kmeans_step(x: Any, c: Any) -> Any:
    nearest = torch.cdist(x, c).argmin(1)
    member = F.one_hot(nearest, c.shape[0]).to(x.dtype)
    return (member.t() @ x) / member.sum(0)[:, None].clamp_min(1)


def kmeans_scatter(x: Any, c: Any) -> Any:
    nearest = ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1)
    total = torch.zeros_like(c).index_add(0, nearest, x)
    return total / torch.bincount(nearest, minlength=c.shape[0])[:, None].clamp_min(1)


def sinkhorn(cost: Any) -> Any:
    f, g = torch.zeros(cost.shape[0]), torch.zeros(cost.shape[1])
    for _ in range(4):
        f = -torch.logsumexp((g[None] - cost) / 0.1, 1) * 0.1
        g = -torch.logsumexp((f[:, None] - cost) / 0.1, 0) * 0.1
    return torch.exp((f[:, None] + g[None] - cost) / 0.1)


def sinkhorn_scaling(x: Any) -> Any:
    q = torch.exp(x / 0.5).t()
    for _ in range(3):
        q = q / q.sum(1, keepdim=True) / q.shape[0]
        q = q / q.sum(0, keepdim=True) / q.shape[1]
    return (q * q.shape[1]).t()


def mixture(x: Any, mean: Any, log_sd: Any, weight: Any) -> Any:
    z = (x[:, None] - mean) * torch.exp(-log_sd)
    return (weight.log_softmax(0) - 0.5 * z.square().sum(-1) - log_sd.sum(-1)).logsumexp(1)


def power_iteration(a: Any, v: Any) -> Any:
    for _ in range(5):
        v = F.normalize(a @ v, dim=0)
    return v @ (a @ v)


def kernel_matrix(x: Any, y: Any) -> Any:
    d = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.t()
    return torch.exp(-d.clamp_min(0) / 2)


def welford(count: Any, mean: Any, m2: Any, x: Any) -> Any:
    count += x.shape[0]
    delta = x - mean
    mean += delta.sum(0) / count
    m2 += (delta * (x - mean)).sum(0)
    return m2 / count


infer("statistics/kmeans", kmeans_step, T(512, 16), T(16, 16))
infer("statistics/kmeans-scatter", kmeans_scatter, T(512, 16), T(16, 16))
infer("statistics/knn", lambda x, y: torch.cdist(x, y).topk(5, largest=False), T(128, 16), T(256, 16))
infer("statistics/sinkhorn", sinkhorn, T(64, 64))
infer("statistics/sinkhorn-scaling", sinkhorn_scaling, T(128, 64))
infer("statistics/mixture", mixture, T(512, 8), T(10, 8), T(10, 8), T(10))
train("statistics/mixture-training", mixture, T(256, 8), T(10, 8), T(10, 8), T(10))
infer("statistics/power-iteration", power_iteration, T(128, 128), T(128))
infer("statistics/kernel-matrix", kernel_matrix, T(256, 16), T(256, 16))
infer("statistics/welford", welford, T(low=4, high=4), T(128), T(128, low=1, high=2), T(64, 128))
infer("statistics/winsorize", lambda x: x.clamp(x.quantile(0.05), x.quantile(0.95)), T(4096))
infer("statistics/z-score-columns", lambda x: (x - x.mean(0)) / x.std(0).clamp_min(1e-6), T(512, 64))
infer(
    "statistics/robust-scale",
    lambda x: (x - x.median(0).values) / (x - x.median(0).values).abs().median(0).values,
    T(256, 32),
)
infer(
    "statistics/soft-histogram",
    lambda x: torch.exp(-((x[:, None] - torch.linspace(-3, 3, 32)) ** 2) * 8).sum(0),
    T(2048),
)
infer(
    "statistics/skew-kurtosis",
    lambda x: (((z := (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)) ** 3).mean(1), (z**4).mean(1)),
    T(64, 1024),
)
infer(
    "statistics/autocorrelation",
    lambda x: torch.stack([(x[:, : 512 - k] * x[:, k:]).mean(1) for k in range(1, 9)], 1),
    T(32, 512),
)
infer(
    "statistics/ema-f64",
    lambda x: (x.double() * 0.9 ** torch.arange(511, -1, -1, dtype=torch.float64)).cumsum(-1),
    T(16, 512),
)
infer("statistics/rolling-std", lambda x: x.unfold(-1, 16, 1).std(-1), T(16, 512))

# Metrics


def expected_calibration(p: Any, y: Any) -> Any:
    confidence, label = p.softmax(-1).max(-1)
    bin = (confidence * 10).long().clamp_max(9)
    one = F.one_hot(bin, 10).float()
    n = one.sum(0).clamp_min(1)
    return ((one.t() @ (label == y).float() / n - one.t() @ confidence / n).abs() * n).sum() / y.shape[0]


def f1(p: Any, y: Any) -> Any:
    yes, label = p.sigmoid() > 0.5, y > 0
    hit = (yes & label).sum(0)
    return 2 * hit / (2 * hit + (yes & ~label).sum(0) + (~yes & label).sum(0)).clamp_min(1)


def average_precision(score: Any, y: Any) -> Any:
    label = y.gather(1, score.argsort(1, descending=True)).float()
    return ((label.cumsum(1) / torch.arange(1, y.shape[1] + 1)) * label).sum(1) / label.sum(1).clamp_min(1)


infer("metric/calibration", expected_calibration, T(1024, 10), T(1024, dtype=i64, low=0, high=9))
infer("metric/f1", f1, T(1024, 32), T(1024, 32, dtype=i64, low=0, high=1))
infer("metric/average-precision", average_precision, T(32, 256), T(32, 256, dtype=i64, low=0, high=1))
infer("metric/mape", lambda x, y: ((x - y).abs() / y.abs().clamp_min(1e-3)).mean() * 100, T(256, 512), T(256, 512))
infer("metric/r2", lambda x, y: 1 - (y - x).square().sum(0) / (y - y.mean(0)).square().sum(0), T(512, 32), T(512, 32))
infer(
    "metric/top-k-recall",
    lambda x, y: (x.topk(5, -1).indices == y[:, None]).any(1).float().mean(),
    T(256, 100),
    T(256, dtype=i64, low=0, high=99),
)
infer(
    "metric/confusion-normalized",
    lambda p, y: (m := F.one_hot(y, 10).t().float() @ F.one_hot(p, 10).float()) / m.sum(1, keepdim=True).clamp_min(1),
    T(512, dtype=i64, low=0, high=9),
    T(512, dtype=i64, low=0, high=9),
)

# Losses


def asymmetric(x: Any, y: Any) -> Any:
    p = x.sigmoid()
    q = (1 - p + 0.05).clamp_max(1)
    return -(y * p.clamp_min(1e-8).log() + (1 - y) * q.log() * (1 - q) ** 4).sum()


def barlow(a: Any, b: Any) -> Any:
    a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
    c = a.t() @ b / a.shape[0]
    on = (torch.diagonal(c) - 1).square().sum()
    return on + 5e-3 * (c.square().sum() - torch.diagonal(c).square().sum())


def preference(a: Any, b: Any, ra: Any, rb: Any) -> Any:
    return -F.logsigmoid(0.1 * ((a - ra) - (b - rb))).mean()


def margin_softmax(x: Any, w: Any, y: Any) -> Any:
    cos = F.normalize(x) @ F.normalize(w).t()
    return F.cross_entropy(30 * (cos - 0.35 * F.one_hot(y, w.shape[0])), y)


def wing(x: Any, y: Any) -> Any:
    d = (x - y).abs()
    return torch.where(d < 10, 10 * torch.log1p(d / 2), d - 10 + 10 * 1.79).mean()


def poly(x: Any, y: Any) -> Any:
    return (F.cross_entropy(x, y, reduction="none") + 1 - x.softmax(-1).gather(1, y[:, None])[:, 0]).mean()


train("objective/asymmetric", asymmetric, T(128, 80), T(128, 80, dtype=i64, low=0, high=1))
train("objective/barlow", barlow, T(128, 64), T(128, 64))
train("objective/preference", preference, T(256), T(256), T(256), T(256))
train("objective/margin-softmax", margin_softmax, T(64, 64), T(50, 64), T(64, dtype=i64, low=0, high=49))
train("objective/wing", wing, T(64, 136), T(64, 136))
train("objective/poly", poly, T(128, 50), T(128, dtype=i64, low=0, high=49))
train("objective/log-cosh", lambda x, y: (d := x - y).add(F.softplus(-2 * d)).mean(), T(256, 256), T(256, 256))
train("objective/entropy-bonus", lambda x: (x.softmax(-1) * x.log_softmax(-1)).sum(-1).mean(), T(256, 64))
train(
    "objective/charbonnier-bf16",
    lambda x, y: ((x - y).square() + 1e-6).sqrt().mean(),
    T(128, 256, dtype=bf16),
    T(128, 256, dtype=bf16),
)
train("objective/hinge", lambda x, y: F.relu(1 - x * y).mean(), T(512, 16), T(512, 16))

# Updates


def lamb(p: Any, g: Any, m: Any, v: Any) -> Any:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    update = m / (v.sqrt() + 1e-6) + 0.01 * p
    p.sub_(update * (1e-3 * p.norm() / update.norm().clamp_min(1e-6)))


def signs_of_many(ps: Any, gs: Any) -> Any:
    torch._foreach_mul_(ps, 0.999)
    torch._foreach_add_(ps, torch._foreach_sign(gs), alpha=-1e-3)


def running(x: Any, mean: Any, var: Any) -> Any:
    mean.lerp_(x.mean(0), 0.1)
    var.lerp_(x.var(0), 0.1)
    return (x - mean) * (var + 1e-5).rsqrt()


def codebook(x: Any, book: Any, count: Any) -> Any:
    d = x.square().sum(1, keepdim=True) - 2 * x @ book.t() + book.square().sum(1)
    at = d.argmin(1)
    count.mul_(0.99).add_(F.one_hot(at, book.shape[0]).to(f32).sum(0), alpha=0.01)
    return book[at], at


infer("update/lamb", lamb, T(128, 256), T(128, 256), T(128, 256), T(128, 256, low=0, high=1))
case(
    "update/signs-foreach",
    lambda: Case(signs_of_many, ([torch.randn(64, 64) for _ in range(6)], [torch.randn(64, 64) for _ in range(6)])),
)
infer("update/running", running, T(256, 64), T(64), T(64, low=0.5, high=1))
infer("update/codebook", codebook, T(256, 32), T(64, 32), T(64, low=0, high=1))
infer(
    "update/zero-grad-norm",
    lambda g: (n := g.square().sum().sqrt(), g.mul_((1 / (n + 1e-6)).clamp_max(1)))[0],
    T(512, 512),
)
infer("update/polyak-f32-bf16", lambda p, m: p.copy_(m.lerp_(p.float(), 0.05)), T(256, 256, dtype=bf16), T(256, 256))

# Numbers


infer(
    "number/complex-product",
    lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)),
    T(256, 256, 2),
    T(256, 256, 2),
)
infer("number/complex-phase", lambda x: torch.polar(x.abs(), x).real, T(256, 256))
infer("number/horner", lambda x: ((((0.1 * x + 0.2) * x + 0.3) * x + 0.4) * x + 0.5) * x + 0.6, T(512, 512))
infer(
    "number/spline",
    lambda x: torch.where(x.abs() < 1, 2 / 3 - x**2 + x.abs() ** 3 / 2, ((2 - x.abs()).clamp_min(0) ** 3) / 6),
    T(256, 512),
)
infer(
    "number/interp",
    lambda x, k, v: (
        (v[(i := torch.searchsorted(k, x).clamp(1, 31))] - v[i - 1]) * (x - k[i - 1]) / (k[i] - k[i - 1]) + v[i - 1]
    ),
    T(2048, low=0, high=1),
    torch.linspace(0, 1, 32),
    T(32),
)
infer("number/round-half", lambda x: (x * 100).round() / 100, T(256, 512))
infer("number/frac-floor", lambda x: x - x.floor() + (x / 3).trunc(), T(256, 512))
infer("number/cross-batch", lambda a, b: torch.linalg.cross(a, b), T(4096, 3), T(4096, 3))
infer("number/determinant-3", lambda m: (m[:, 0] * torch.linalg.cross(m[:, 1], m[:, 2])).sum(-1), T(2048, 3, 3))
infer(
    "number/matrix-2-inverse",
    lambda m: (
        torch.stack((m[:, 1, 1], -m[:, 0, 1], -m[:, 1, 0], m[:, 0, 0]), -1).view(-1, 2, 2)
        / (m[:, 0, 0] * m[:, 1, 1] - m[:, 0, 1] * m[:, 1, 0])[:, None, None]
    ),
    T(2048, 2, 2),
)
infer("number/trace-batch", lambda m: m.diagonal(dim1=-2, dim2=-1).sum(-1), T(256, 16, 16))
infer("number/outer-difference", lambda x: (x[:, None] - x[None]).abs(), T(512))
infer("number/triangular", lambda x: (x.tril(-1) + x.triu(1).mT) / 2, T(256, 256))
infer("number/cumulative-log", lambda x: x.log().cumsum(-1).exp(), T(64, 512, low=0.9, high=1.1))
infer(
    "number/mask-select-sum",
    lambda x, m: (x * m).sum(-1) / m.sum(-1).clamp_min(1),
    T(256, 512),
    T(256, 512, dtype=torch.bool),
)
infer(
    "number/gather-nested",
    lambda x, i, j: x[i][:, j],
    T(128, 128),
    T(64, dtype=i64, low=0, high=127),
    T(64, dtype=i64, low=0, high=127),
)
infer("number/bool-cumulative", lambda x: (x > 0).cumsum(0), T(256, 256))
infer("number/reverse-cumulative", lambda x: x.flip(0).cumsum(0).flip(0), T(256, 256))
infer(
    "number/haar",
    lambda x: torch.cat((x[..., ::2] + x[..., 1::2], x[..., ::2] - x[..., 1::2]), -1) * 0.7071,
    T(256, 512),
)
infer(
    "number/butterfly",
    lambda x: torch.stack(
        (
            x.view(64, 8, 2, 32)[:, :, 0] + x.view(64, 8, 2, 32)[:, :, 1],
            x.view(64, 8, 2, 32)[:, :, 0] - x.view(64, 8, 2, 32)[:, :, 1],
        ),
        2,
    ).view(64, 512),
    T(64, 512),
)

# Complex numbers, waves and codes


c64 = torch.complex64


def apply_gate(state: Any, gate: Any) -> Any:
    """One qubit of ten: ``gate`` mixes the two halves of the amplitudes that differ in it."""
    low, high = state.view(32, 2, 16).unbind(1)
    return torch.stack((gate[0, 0] * low + gate[0, 1] * high, gate[1, 0] * low + gate[1, 1] * high), 1).view(-1)


def mandelbrot_steps(c: Any) -> Any:
    z = torch.zeros_like(c)
    for _ in range(8):
        z = z * z + c
    return z.abs() < 2


infer("wave/quantum-gate", apply_gate, T(1024, dtype=c64), T(2, 2, dtype=c64))
infer("wave/probabilities", lambda s: (p := (s * s.conj()).real) / p.sum(-1, keepdim=True), T(64, 512, dtype=c64))
infer("wave/propagate", lambda f, k: f * torch.exp(1j * k), T(128, 256, dtype=c64), T(128, 256))
infer("wave/mandelbrot", mandelbrot_steps, T(128, 128, dtype=c64))
infer("wave/impedance", lambda r, x: (50 - (z := torch.complex(r, x))) / (50 + z), T(4096, low=1, high=9), T(4096))
infer(
    "wave/mix-down", lambda x, t: (x * torch.polar(torch.ones_like(t), -t)).view(64, 8, 32).sum(-1), T(64, 256), T(256)
)
infer("wave/beamform", lambda s, w: (s * w[:, None].conj()).sum(0).abs(), T(16, 1024, dtype=c64), T(16, dtype=c64))
infer("wave/qam", lambda s, p: (s[:, None] - p).abs().argmin(-1), T(1024, dtype=c64), T(16, dtype=c64))
infer("wave/moebius", lambda z: (z * 2 + 1j) / (z + 3), T(64, 256, dtype=c64))
infer(
    "wave/cross-spectrum",
    lambda a, b: ((c := a * b.conj()) / c.abs().clamp_min(1e-6)).mean(0),
    *[T(16, 513, dtype=c64)] * 2,
)
infer(
    "code/fast-inverse-root", lambda x: (0x5F3759DF - (x.view(i32) >> 1)).view(f32) * 1.5, T(512, 256, low=0.5, high=9)
)
infer("code/bf16-by-hand", lambda x: ((x.view(i32) + 0x8000) >> 16).to(torch.int16).view(bf16), T(512, 256))
infer("code/bytes-to-words", lambda b: b.view(i32) ^ 0x5A5A5A5A, T(256, 1024, dtype=u8))
infer("code/words-to-bytes", lambda w: (w * 31).view(u8).to(f32) / 255, T(256, 128, dtype=i32))
infer(
    "code/place-values",
    lambda d: (d * 8 ** torch.arange(6, device=d.device)).sum(-1),
    T(2048, 6, dtype=i64, low=0, high=7),
)
infer("code/polynomial-hash", lambda t: (t.long() * 31 ** torch.arange(31, -1, -1)).sum(-1), T(256, 32, dtype=u8))
infer("code/patches-blended", lambda p: F.fold(p, (64, 64), 16, stride=8) / 4, T(2, 256, 49))
train("wave/phase-loss", lambda a, b: (torch.polar(a, b) * torch.polar(a, -a)).real.square().sum(), *[T(64, 64)] * 2)


class Kan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.center = nn.Parameter(torch.randn(32, 16 * 8) / 8), nn.Parameter(torch.linspace(-2, 2, 8))

    def forward(self, x: Any) -> Any:
        return torch.exp(-((x[..., None] - self.center) ** 2)).flatten(1) @ self.weight.t()


class Siren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, x: Any) -> Any:
        return self.c(torch.sin(30 * self.b(torch.sin(30 * self.a(x)))))


module("number/radial-layer", Kan, T(128, 16))
module("number/radial-layer-training", Kan, T(128, 16), training=True)
module("number/siren", Siren, T(256, 2))
module("number/siren-training", Siren, T(256, 2), training=True, tolerance=2e-3)
