"""Losses, returns, updates and loops of small modules, in sizes that nobody would choose for a benchmark."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, i64, infer, module, train

# Losses


def g(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    train("further/" + name, function, *inputs, **options)


g("unified-focal", lambda x, y: ((1 - x.softmax(-1)) ** 1.7 * -x.log_softmax(-1)).gather(1, y[:, None]).mean(),
  T(53, 11), T(53, dtype=i64, low=0, high=10))  # fmt: skip
g("log-cosh-dice", lambda x, y: (1 - (2 * (x.sigmoid() * y).sum((1, 2)) + 1) / (x.sigmoid().sum((1, 2)) + y.sum((1, 2))
  + 1)).cosh().log().mean(), T(3, 29, 31), T(3, 29, 31, low=0.0, high=1.0))  # fmt: skip
g("boundary", lambda x, d: (x.softmax(1)[:, 1] * d).mean(), T(2, 2, 29, 31), T(2, 29, 31))
g("hausdorff", lambda a, b: torch.cdist(a, b).amin(1).amax() + torch.cdist(a, b).amin(0).amax(), T(31, 3), T(43, 3))
g("earth-mover-1d", lambda x, y: (x.softmax(-1).cumsum(-1) - y.softmax(-1).cumsum(-1)).abs().sum(-1).mean(), T(17, 101),
  T(17, 101))  # fmt: skip
g("spectral", lambda x, y: sum((torch.stft(x, n, n // 4, window=torch.hann_window(n), return_complex=True).abs()
  - torch.stft(y, n, n // 4, window=torch.hann_window(n), return_complex=True).abs()).abs().mean() for n in (64, 128)),
  T(2, 1000), T(2, 1000))  # fmt: skip
g("si-sdr", lambda x, y: _si_sdr(x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)), T(3, 2001), T(3, 2001))


def _si_sdr(x: Any, y: Any) -> Any:
    a = (x * y).sum(-1, keepdim=True) / y.square().sum(-1, keepdim=True) * y
    return -10 * (a.square().sum(-1) / (x - a).square().sum(-1)).log10().mean()


g("edge-aware", lambda d, x: ((d[..., 1:] - d[..., :-1]).abs() * (-(x[..., 1:] - x[..., :-1]).abs().mean(1, True)).exp()
  ).mean(), T(2, 1, 31, 37), T(2, 3, 31, 37))  # fmt: skip
g("plackett-luce", lambda s: (s.flip(-1).logcumsumexp(-1).flip(-1) - s).sum(-1).mean(), T(23, 13))
g("pinball-f16", lambda p, y: torch.maximum(0.9 * (y - p), -0.1 * (y - p)).float().mean(), T(101, 7, dtype=f16),
  T(101, 1, dtype=f16))  # fmt: skip
g("box-l1-ciou", lambda a, b: _ciou(a.sigmoid(), b.sigmoid()), T(47, 4), T(47, 4))


def _ciou(a: Any, b: Any) -> Any:
    a0, a1, b0, b1 = a[:, :2] - a[:, 2:] / 2, a[:, :2] + a[:, 2:] / 2, b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2
    inner = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0).prod(1)
    iou = inner / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inner + 1e-7)
    far = (torch.maximum(a1, b1) - torch.minimum(a0, b0)).square().sum(1)
    v = 0.405 * (torch.atan(b[:, 2] / b[:, 3]) - torch.atan(a[:, 2] / a[:, 3])) ** 2
    alpha = (v / (1 - iou + v + 1e-7)).detach()
    return (1 - iou + (a[:, :2] - b[:, :2]).square().sum(1) / far + alpha * v).mean() + (a - b).abs().mean()


def transducer_row(x: Any) -> Any:
    a = x[:, 0, :, 0]
    for t in range(1, 9):
        rows = [a[:, 0] + x[:, t, 0, 0]]
        for u in range(1, 5):
            rows.append(torch.logaddexp(a[:, u] + x[:, t, u, 0], rows[-1] + x[:, t, u, 1]))
        a = torch.stack(rows, 1)
    return -a[:, -1].mean()


g("transducer", lambda x: transducer_row(x.log_softmax(-1)), T(6, 9, 5, 2))
g("decorrelate", lambda x: (torch.corrcoef(x.t()) - torch.eye(19)).square().sum(), T(67, 19))
g("kl-normals", lambda m, s: (-0.5 * (1 + s - m * m - s.exp())).sum(-1).mean(), T(37, 5), T(37, 5))
g("mixture-of-logits", lambda x, w: (x.softmax(-1) * w.softmax(0)[:, None, None]).sum(0).clamp(min=1e-9).log().mean(),
  T(3, 41, 17), T(3))  # fmt: skip
g("temporal-difference", lambda v, r: (v[:-1] - (r + 0.9 * v[1:]).detach()).square().mean(), T(64, 3), T(63, 3))
g("barycentric-area", lambda v, f: torch.linalg.cross(v[f[:, 1]] - v[f[:, 0]], v[f[:, 2]] - v[f[:, 0]]).norm(dim=1)
  .sum(), T(101, 3), T(197, 3, dtype=i64, low=0, high=100))  # fmt: skip
g("mesh-laplacian", lambda v, e: (v - torch.zeros_like(v).index_add(0, e[0], v[e[1]]) / 6).square().sum(), T(101, 3),
  T(2, 600, dtype=i64, low=0, high=100))  # fmt: skip

# Returns


def lambda_returns(r: Any, v: Any) -> Any:
    found = [v[-1]]
    for t in range(r.shape[0] - 1, -1, -1):
        found.append(r[t] + 0.99 * (0.05 * v[t] + 0.95 * found[-1]))
    return torch.stack(found[:0:-1])


infer("further/lambda-returns", lambda_returns, T(25, 19), T(26, 19))
infer("further/episode-returns", lambda r, d: _episodes(r, d), T(23, 41), T(23, 41, dtype=torch.bool))


def _episodes(r: Any, d: Any) -> Any:
    total, found = torch.zeros(41), []
    for t in range(23):
        total = total + r[t]
        found.append(torch.where(d[t], total, float("nan")))
        total = total * ~d[t]
    return torch.stack(found).nanmean(0)


infer("further/visit-counts", lambda s: torch.zeros(64).index_add(0, s, torch.ones(500)).rsqrt().clamp(max=1)[s],
      T(500, dtype=i64, low=0, high=63))  # fmt: skip

# Updates by hand


def holding(name: str, function: Any, count: int, *shape: int, dtype: torch.dtype = torch.float32) -> None:
    def build() -> Case:
        state = [torch.randn(*shape).to(dtype) for _ in range(count)]
        return Case(function, tuple(state), False, lambda: list(state))

    case("further/" + name, build)


@torch.no_grad()
def schedule_free(w: Any, z: Any, v: Any, g: Any) -> None:
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    z.sub_(0.1 * g / (v.abs().sqrt() + 1e-8))
    w.lerp_(z, 0.05)


@torch.no_grad()
def sign_momentum(w: Any, m: Any, g: Any) -> None:
    w.mul_(0.999).add_((m * 0.9 + g * 0.1).sign(), alpha=-1e-3)
    m.lerp_(g, 0.01)


@torch.no_grad()
def factored(w: Any, r: Any, g: Any) -> None:
    s = g * g + 1e-30
    row, col = s.mean(1, keepdim=True), s.mean(0, keepdim=True)
    r.lerp_((row * col / row.mean()).sqrt(), 0.1)
    w.sub_(g / (r.abs() + 1e-3) * 0.01)


@torch.no_grad()
def projected(w: Any, g: Any) -> None:
    w.sub_(0.1 * (g - (g * w).sum(1, keepdim=True) * w))
    w.div_(w.norm(dim=1, keepdim=True))


holding("schedule-free", schedule_free, 4, 97, 31)
holding("sign-momentum-bf16", sign_momentum, 3, 97, 31, dtype=bf16)
holding("factored", factored, 3, 97, 31)
holding("projected", projected, 2, 97, 31)

# Small modules, whole steps


class Highway(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(29, 29), nn.Linear(29, 29)

    def forward(self, x: Any) -> Any:
        t = self.b(x).sigmoid()
        return t * self.a(x).relu() + (1 - t) * x


class Maxout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(23, 4 * 13)

    def forward(self, x: Any) -> Any:
        return self.a(x).view(-1, 13, 4).amax(-1)


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Embedding(101, 12), nn.Embedding(203, 12)

    def forward(self, i: Any, j: Any) -> Any:
        return F.logsigmoid((self.a(i) * self.b(j)).sum(-1)).mean()


class Dilated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv1d(7, 14, 3, dilation=2**k) for k in range(3))

    def forward(self, x: Any) -> Any:
        for k, part in enumerate(self.parts):
            a, b = part(F.pad(x, (2 << k, 0))).chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return x.mean()


class Capsule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(12, 5, 6, 4) * 0.1)

    def forward(self, x: Any) -> Any:
        u = torch.einsum("bid,iodk->biok", x, self.w.transpose(2, 3).transpose(2, 3))
        logits = torch.zeros(u.shape[:3])
        for _ in range(2):
            v = (logits.softmax(2)[..., None] * u).sum(1)
            n = v.square().sum(-1, keepdim=True)
            v = v * n / (1 + n) / (n + 1e-6).sqrt()
            logits = logits + (u * v[:, None]).sum(-1)
        return v.norm(dim=-1)


module("further/highway-train", lambda: nn.Sequential(Highway(), Highway()), T(17, 29), training=True)
module("further/maxout-train", Maxout, T(19, 23), training=True)
module("further/two-towers-train", TwoTowers, T(31, dtype=i64, low=0, high=100), T(31, dtype=i64, low=0, high=202),
       training=True)  # fmt: skip
module("further/dilated-train", Dilated, T(2, 7, 61), training=True)
module("further/capsules-train", Capsule, T(5, 12, 6), training=True)
# The result is of float32, and computed from products of half precision.
for kind, dtype in (("bf16", bf16), ("f16", f16)):
    module(f"further/highway-autocast-{kind}", Highway, T(17, 29), autocast=dtype, tolerance=2e-2)
module("further/highway-autocast-train", Highway, T(17, 29), training=True, autocast=bf16, tolerance=2e-2)
module(
    "further/conv-cl-train",
    lambda: nn.Sequential(nn.Conv2d(3, 7, 3), nn.GroupNorm(1, 7), nn.SiLU(), nn.Conv2d(7, 5, 1)),
    T(2, 3, 17, 19, layout="channels_last"),
    training=True,
    channels_last=True,
)
module("further/autocast-cnn", lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 17, 1)),
       T(1, 3, 33, 33), autocast=bf16)  # fmt: skip
