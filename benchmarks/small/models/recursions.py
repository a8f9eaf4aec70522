"""Recursions, queries in groups, filters over time, windows that overlap, and updates of people's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from small.case import Case, T, bf16, case, f16, f32, i64, infer, train

# Queries in groups


def attend(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.mT * 0.125, -1) @ v


def interleaved(q: Any, k: Any, v: Any) -> Any:
    return attend(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))


def expanded(q: Any, k: Any, v: Any) -> Any:
    b, h, s, d = k.shape
    k, v = (x[:, :, None].expand(b, h, 4, s, d).reshape(b, h * 4, s, d) for x in (k, v))
    return attend(q, k, v)


def one_head(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(torch.einsum("bhqd,bkd->bhqk", q, k) * 0.1, -1) @ v[:, None]


def latent(q: Any, w: Any, c: Any) -> Any:
    return torch.einsum("bhr,btr->bht", torch.einsum("bhd,hdr->bhr", q, w), c).softmax(-1)


for word, dtype in (("f32", f32), ("bf16", bf16), ("f16", f16)):
    caches = [T(1, 4, 300, 64, dtype=dtype)] * 2
    infer(f"groups/interleaved/{word}", interleaved, T(1, 16, 1, 64, dtype=dtype), *caches)
    infer(f"groups/expanded/{word}", expanded, T(1, 16, 5, 64, dtype=dtype), *caches)
    infer(f"groups/any-length/{word}", expanded, T(1, 16, 1, 64, dtype=dtype), *caches, dynamic=True)
    infer(f"groups/one-head/{word}", one_head, T(2, 8, 1, 64, dtype=dtype), *[T(2, 256, 64, dtype=dtype)] * 2)
    infer(
        f"groups/latent/{word}",
        latent,
        T(1, 16, 64, dtype=dtype),
        T(16, 64, 128, dtype=dtype),
        T(1, 200, 128, dtype=dtype),
    )

# Recursions


def kalman(x: Any, spread: Any, seen: Any) -> Any:
    """A step of a filter of position and speed in a plane, of which the positions are seen."""
    moves = torch.eye(4) + torch.diag(torch.full((2,), 0.1), 2)
    x, spread = x @ moves.T, moves @ spread @ moves.T + 0.01 * torch.eye(4)
    noise = spread[:, :2, :2] + 0.1 * torch.eye(2)
    (a, b), (c, d) = ((noise[:, i, j] for j in range(2)) for i in range(2))
    inverse = torch.stack((d, -b, -c, a), -1).view(-1, 2, 2) / (a * d - b * c)[:, None, None]
    gain = spread[:, :, :2] @ inverse
    return x + (gain @ (seen - x[:, :2])[..., None])[..., 0], spread - gain @ spread[:, :2]


def warped(cost: Any) -> Any:
    best = torch.full((cost.shape[1] + 1,), float("inf"))
    best[0] = 0.0
    for row in cost:
        best = torch.cat((torch.full((1,), float("inf")), torch.minimum(best[1:], best[:-1]) + row))
    return best


def ctc(alpha: Any, log_p: Any, labels: Any, skips: Any) -> Any:
    for step in log_p:
        one = F.pad(alpha, (1, 0), value=-1e30)[:, :-1]
        two = torch.where(skips, F.pad(alpha, (2, 0), value=-1e30)[:, :-2], -1e30)
        alpha = torch.logsumexp(torch.stack((alpha, one, two)), 0) + step.gather(1, labels)
    return alpha


def mamba(u: Any, steps: Any, a: Any, b: Any, c: Any) -> Any:
    state, found = torch.zeros(u.shape[0], u.shape[2], a.shape[1]), []
    for t in range(16):
        delta = steps[:, t, :, None]
        state = torch.exp(delta * a) * state + delta * b[:, t, None] * u[:, t, :, None]
        found.append((state * c[:, t, None]).sum(-1))
    return torch.stack(found, 1)


MAMBA = (T(2, 16, 64), T(2, 16, 64, low=0.0, high=1.0), T(64, 8, low=-1.0, high=0.0), T(2, 16, 8), T(2, 16, 8))
infer("recursion/kalman", kalman, T(256, 4), T(256, 4, 4, low=0.0, high=0.1), T(256, 2), tolerance=1e-2)
infer("recursion/time-warping", warped, T(10, 33, low=0.0, high=1.0))
CTC = (T(4, 21), T(12, 4, 30), T(4, 21, dtype=i64, low=0, high=29), T(4, 21, dtype=torch.bool))
infer("recursion/ctc", ctc, *CTC)
train("recursion/ctc-training", ctc, *CTC)
infer("recursion/mamba", mamba, *MAMBA)
train("recursion/mamba-training", mamba, *MAMBA)

# Windows that overlap


def there_and_back(x: Any, window: Any) -> Any:
    return torch.istft(torch.stft(x, 256, 64, window=window, return_complex=True), 256, 64, window=window)


train("overlap/frames-training", lambda x, w: (x.unfold(-1, 400, 160) * w).square().mean(-1), T(2, 4000), T(400))
train("overlap/moving-mean-training", lambda x: x.unfold(1, 5, 1).mean(-1).square().sum(), T(8, 300))
infer("overlap/there-and-back", there_and_back, T(2, 4096), torch.hann_window(256))

# Updates


def update(name: str, function: Callable[..., Any], count: int) -> None:
    """``function`` of ``count`` lists of tensors, which it may change; those after gradients are not negative."""

    def build() -> Case:
        lists = [[torch.randn(shape) for shape in ((64, 64), (64,), (128, 64))] for _ in range(count)]
        for x in (x for each in lists[2:] for x in each):
            x.abs_()
        return Case(lambda: function(*lists), (), False, lambda: [x for each in lists for x in each])

    case(f"updates/{name}", build, tolerance=1e-3)


def factored(weights: Any, gradients: Any, squares: Any) -> None:
    for p, g, v in zip(weights, gradients, squares, strict=True):
        if p.dim() == 2:
            rows, columns = g.square().mean(1, keepdim=True), g.square().mean(0, keepdim=True)
            step = g * (rows.mean() / (rows * columns + 1e-30)).sqrt()
        else:
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            step = g * (v + 1e-30).rsqrt()
        p.sub_(1e-3 * step / step.square().mean().sqrt().clamp(min=1.0))


def orthogonal(weights: Any, gradients: Any, averages: Any) -> None:
    for p, g, m in zip(weights, gradients, averages, strict=True):
        m.mul_(0.95).add_(g)
        if p.dim() != 2:
            p.sub_(0.01 * m)
            continue
        x = m / (m.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        p.sub_(0.02 * x)


def layerwise(weights: Any, gradients: Any, averages: Any, squares: Any) -> None:
    for p, g, m, v in zip(weights, gradients, averages, squares, strict=True):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        step = m / (v.sqrt() + 1e-6) + 0.01 * p
        trust = torch.where((p.norm() > 0) & (step.norm() > 0), p.norm() / step.norm(), 1.0)
        p.sub_(1e-3 * trust * step)


update("factored", factored, 3)
update("orthogonal", orthogonal, 3)
update("layerwise", layerwise, 4)

# Experts, fields and mixtures


def experts(x: Any, router: Any, first: Any, second: Any) -> Any:
    weights, which = (x @ router).softmax(-1).topk(2, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for e in range(4):
        out = out + (weights * (which == e)).sum(-1, keepdim=True) * (F.silu(x @ first[e]) @ second[e])
    return out


def lattice(f: Any, weights: Any, directions: Any) -> Any:
    density = f.sum(0)
    speed = torch.einsum("qd,qxy->dxy", directions, f) / density
    rest = density * weights[:, None, None] * (1 + 3 * torch.einsum("qd,dxy->qxy", directions, speed))
    return f - 0.6 * (f - rest)


def mixture(shares: Any, means: Any, scales: Any, y: Any) -> Any:
    apart = (y[:, None] - means) / scales.exp()
    return -torch.logsumexp(shares.log_softmax(-1) - 0.5 * apart**2 - scales, -1).mean()


EXPERTS = (T(64, 64), T(64, 4), T(4, 64, 128), T(4, 128, 64))
infer("recursion/experts", experts, *EXPERTS)
train("recursion/experts-training", experts, *EXPERTS)
infer("recursion/lattice", lattice, T(9, 32, 32, low=0.5, high=1.0), T(9, low=0.0, high=0.2), T(9, 2))
train("recursion/mixture-training", mixture, T(256, 5), T(256, 5), T(256, 5), T(256))
