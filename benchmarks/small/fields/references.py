"""Programs as papers' reference code, and libraries for sound, images, metrics and updates, write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, i32, i64, infer, module, train, u8

f64 = torch.float64


def _run(name, function, *inputs, **options):
    infer(f"ref/{name}", function, *inputs, **options)


def _train(name, function, *inputs, **options):
    train(f"ref/{name}/train", function, *inputs, **options)


# --- sequence models --------------------------------------------------------------------------------------------------


def _selective_scan(u, delta, a, b, c, d):
    """Mamba's recurrence, step by step."""
    decay = torch.exp(torch.einsum("bld,dn->bldn", delta, a))
    given = torch.einsum("bld,bln,bld->bldn", delta, b, u)
    state, seen = torch.zeros_like(decay[:, 0]), []
    for at in range(u.shape[1]):
        state = decay[:, at] * state + given[:, at]
        seen.append(torch.einsum("bdn,bn->bd", state, c[:, at]))
    return torch.stack(seen, 1) + u * d


def _wkv(k, v, w, u):
    """RWKV's mixing of times, with a running greatest exponent."""
    top, num, den = torch.full_like(k[0], -1e30), torch.zeros_like(k[0]), torch.zeros_like(k[0])
    seen = []
    for at in range(k.shape[0]):
        most = torch.maximum(top, u + k[at])
        old, new = torch.exp(top - most), torch.exp(u + k[at] - most)
        seen.append((old * num + new * v[at]) / (old * den + new))
        most = torch.maximum(top + w, k[at])
        old, new = torch.exp(top + w - most), torch.exp(k[at] - most)
        num, den, top = old * num + new * v[at], old * den + new, most
    return torch.stack(seen)


def _retention(q, k, v, gamma):
    at = torch.arange(q.shape[-2])
    apart = at[:, None] - at[None]
    decay = torch.where(apart >= 0, gamma[:, None, None] ** apart.clamp(min=0), 0.0)
    return (q @ k.transpose(-1, -2) * decay) @ v


def _delta_rule(q, k, v, beta):
    state, seen = torch.zeros(q.shape[0], k.shape[-1], v.shape[-1]), []
    for at in range(q.shape[1]):
        key = F.normalize(k[:, at], dim=-1)
        old = torch.einsum("bk,bkv->bv", key, state)
        state = state + torch.einsum("bk,bv->bkv", key, beta[:, at, None] * (v[:, at] - old))
        seen.append(torch.einsum("bk,bkv->bv", q[:, at], state))
    return torch.stack(seen, 1)


def _token_shift(x, mix):
    before = F.pad(x, (0, 0, 1, -1))
    return x * mix + before * (1 - mix)


_run("mamba-scan", _selective_scan, T(2, 12, 48), T(2, 12, 48, low=0.0, high=0.5), T(48, 16, low=-2.0, high=-0.1),
     T(2, 12, 16), T(2, 12, 16), T(48))  # fmt: skip
_train("mamba-scan", _selective_scan, T(2, 7, 31), T(2, 7, 31, low=0.0, high=0.5), T(31, 11, low=-2.0, high=-0.1),
       T(2, 7, 11), T(2, 7, 11), T(31))  # fmt: skip
_run("rwkv-wkv", _wkv, T(13, 4, 96), T(13, 4, 96), T(96, low=-1.0, high=-0.1), T(96))
_run("retention", _retention, *[T(2, 5, 127, 32)] * 3, T(5, low=0.8, high=0.99))
_train("retention", _retention, *[T(1, 3, 61, 24)] * 3, T(3, low=0.8, high=0.99))
_run("delta-rule", _delta_rule, T(4, 9, 24), T(4, 9, 24), T(4, 9, 24), T(4, 9, low=0.0, high=1.0))
_run("token-shift-bf16", _token_shift, T(3, 251, 512, dtype=bf16), T(512, dtype=bf16))
_train("token-shift", _token_shift, T(3, 251, 192), T(192))
_run("s4-kernel", lambda a, c, dt: torch.einsum("hn,hnl->hl", c, torch.exp(
     (a * dt[:, None])[..., None] * torch.arange(401))) * 2, T(24, 16, low=-1.0, high=-0.01), T(24, 16),
     T(24, low=0.001, high=0.1))  # fmt: skip
_run("hgrn-gates", lambda f, i, low: ((g := low + (1 - low) * f.sigmoid()), F.silu(i) * (1 - g)), T(4, 127, 256),
     T(4, 127, 256), T(256, low=0.0, high=1.0))  # fmt: skip


# --- KernelBench's kinds ----------------------------------------------------------------------------------------------
_run("linear-min-subtract", lambda x, w, b: torch.min(F.linear(x, w, b), torch.tensor(0.5)) - 1.5, T(127, 512),
     T(512, 512), T(512))  # fmt: skip
_run("conv3d-softmax-pool", lambda x, w: F.max_pool3d(F.conv3d(x, w).softmax(1), 2), T(2, 3, 10, 20, 20),
     T(16, 3, 3, 3, 3))  # fmt: skip
_run("convt-mean-bias-tanh", lambda x, w, b: (F.conv_transpose2d(x, w, stride=2).mean((2, 3), keepdim=True) + b).tanh()
     * 2, T(4, 32, 17, 17), T(32, 16, 4, 4), T(16, 1, 1))  # fmt: skip
_run("frobenius", lambda x: x / torch.norm(x, p="fro"), T(11, 64, 41, 41))
_run("rms-channels", lambda x: x / (x.pow(2).mean(1, keepdim=True) + 1e-5).sqrt(), T(7, 64, 37, 37))
_run("l1-rows", lambda x: x / x.abs().mean(1, keepdim=True), T(61, 4099))
_run(
    "triangular-product", lambda a, b: torch.tril(torch.matmul(torch.tril(a), torch.tril(b))), T(251, 251), T(251, 251)
)
_run("masked-cumsum", lambda x, m: torch.cumsum(x * m, 1), T(61, 4001), T(61, 4001, dtype=torch.bool))
_run("cumsum-reverse", lambda x: torch.cumsum(x.flip(1), 1).flip(1), T(61, 4001))
_run("matmul-sum-max-mean", lambda x, w: x.matmul(w).sum(1, keepdim=True).amax(1, keepdim=True).mean(1, keepdim=True)
     .logsumexp(1, keepdim=True), T(128, 400), T(400, 300))  # fmt: skip
_run("hinge", lambda p, t: torch.clamp(1 - p * t, min=0).mean(), T(20011), T(20011))
_train("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), *[T(61, 509)] * 3)
_run("conv-min-tanh-tanh", lambda x, w: F.conv2d(x, w).amin(1, keepdim=True).tanh().tanh(), T(4, 3, 61, 61),
     T(16, 3, 3, 3))  # fmt: skip
_run("shuffle-channels", lambda x: x.view(4, 3, 20, 29, 31).transpose(1, 2).reshape(4, 60, 29, 31), T(4, 60, 29, 31))


# --- sound ------------------------------------------------------------------------------------------------------------


def _biquad(x, steps=24):
    """A filter of second order over the first samples, as torchaudio's fallback runs it."""
    y1 = y2 = torch.zeros_like(x[:, 0])
    out = []
    for at in range(2, steps):
        y = 0.2 * x[:, at] + 0.3 * x[:, at - 1] + 0.1 * x[:, at - 2] + 0.9 * y1 - 0.2 * y2
        out.append(y)
        y1, y2 = y, y1
    return torch.stack(out, 1)


def _flanger(x, depth):
    at = torch.arange(x.shape[-1])
    late = (at - 40 - 30 * torch.sin(at * 0.001) * depth).clamp(min=0)
    low = late.floor().long()
    part = late - low
    high = (low + 1).clamp(max=x.shape[-1] - 1)
    return x + 0.5 * (x[..., low] * (1 - part) + x[..., high] * part)


def _to_decibels(x, top=80.0):
    db = 10 * torch.log10(x.clamp(min=1e-10)) - 10 * math.log10(max(1e-10, 1.0))
    return torch.max(db, db.amax((-2, -1), keepdim=True) - top)


def _pcen(x, s=0.025):
    smooth = [x[:, 0]]
    for at in range(1, x.shape[1]):
        smooth.append((1 - s) * smooth[-1] + s * x[:, at])
    m = torch.stack(smooth, 1)
    return (x / (1e-6 + m) ** 0.98 + 2.0) ** 0.5 - 2.0**0.5


_run("biquad", _biquad, T(64, 24))
_run("flanger", _flanger, T(2, 16001), 0.7)
_run("decibels", _to_decibels, T(3, 128, 301, low=0.0, high=4.0))
_run("pcen", _pcen, T(4, 21, 80, low=0.0, high=1.0))
_run("vad-smoothing", lambda x: (F.avg_pool1d(x.pow(2)[:, None], 401, 80, 200)[:, 0] > 0.9).float(), T(3, 16003))
_run("fade", lambda x: x * torch.cat((torch.linspace(0, 1, 1601), torch.ones(12801), torch.linspace(1, 0, 1601))),
     T(2, 16003))  # fmt: skip
_run("overlap-add", lambda x: F.fold(x, (1, 40 * 160 + 240), (1, 400), stride=(1, 160))[:, 0, 0], T(4, 400, 40))
_run("dither-quantize-i16", lambda x, n: ((x * 32767 + n).round().clamp(-32768, 32767)).to(torch.int16), T(2, 30011),
     T(2, 30011))  # fmt: skip


# --- images -----------------------------------------------------------------------------------------------------------


def _rgb_to_lab(x):
    m = torch.tensor([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    linear = torch.where(x > 0.04045, ((x + 0.055) / 1.055) ** 2.4, x / 12.92)
    xyz = torch.einsum("ij,bjhw->bihw", m, linear) / torch.tensor([0.95047, 1.0, 1.08883]).view(1, 3, 1, 1)
    f = torch.where(xyz > 0.008856, xyz.clamp(min=0.008856) ** (1 / 3), 7.787 * xyz + 4 / 29)
    return torch.stack((116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])), 1)


def _sharpness(x, factor):
    k = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]).div(13).expand(3, 1, 3, 3)
    soft = x.clone()
    soft[..., 1:-1, 1:-1] = F.conv2d(x, k, groups=3)
    return (x * factor + soft * (1 - factor)).clamp(0, 1)


def _dilate(x):
    return F.unfold(F.pad(x, (1, 1, 1, 1), value=-1e4), 3).view(x.shape[0], x.shape[1], 9, *x.shape[2:]).amax(2)


def _homography(points, h):
    ones = torch.cat((points, torch.ones_like(points[..., :1])), -1) @ h.transpose(-1, -2)
    z = ones[..., 2:]
    return ones[..., :2] * torch.where(z.abs() > 1e-8, 1.0 / (z + 1e-8), torch.ones_like(z))


def _ms_gradient(p, t):
    total = 0.0
    for scale in range(3):
        d = (p - t)[:, :: 2**scale, :: 2**scale]
        total = total + (d[:, 1:] - d[:, :-1]).abs().mean() + (d[..., 1:] - d[..., :-1]).abs().mean()
    return total


def _equalize(x):
    counts = torch.bincount(x.flatten().long(), minlength=256)
    sums = counts.cumsum(0)
    table = ((sums - sums.min()) * 255 // (sums.max() - sums.min()).clamp(min=1)).to(torch.uint8)
    return table[x.long()]


_run("rgb-to-lab", _rgb_to_lab, T(2, 3, 97, 89, low=0.0, high=1.0))
_run("sharpness", _sharpness, T(2, 3, 97, 89, low=0.0, high=1.0), 1.7)
_run("dilate", _dilate, T(2, 5, 61, 67))
_run("homography", _homography, T(7, 1021, 2), T(7, 3, 3))
_train("multi-scale-gradient", _ms_gradient, T(3, 127, 131), T(3, 127, 131))
_run("equalize", _equalize, T(199, 211, dtype=u8))
_run("solarize", lambda x: torch.where(x >= 128, 255 - x, x), T(3, 223, 227, dtype=u8))
_run("posterize", lambda x: x & 0b11100000, T(3, 223, 227, dtype=u8))
_run("autocontrast", lambda x: ((x.float() - (lo := x.amin((-2, -1), keepdim=True).float()))
     * (255.0 / (x.amax((-2, -1), keepdim=True).float() - lo).clamp(min=1))).clamp(0, 255).to(torch.uint8),
     T(3, 223, 227, dtype=u8), tolerance=1e-2)  # fmt: skip
_run("blend-patches", lambda x, w: (F.fold(x * w, (41, 41), 9, stride=8) / F.fold(torch.ones_like(x) * w, (41, 41), 9,
     stride=8)), T(3, 81, 25), T(81, 1, low=0.1, high=1.0))  # fmt: skip
_run("permute-normalize-f16", lambda x: ((x.to(f16) / 255 - 0.45) / 0.22).permute(0, 3, 1, 2).contiguous(),
     T(4, 97, 101, 3, dtype=u8))  # fmt: skip


# --- metrics ----------------------------------------------------------------------------------------------------------


def _confusion(p, t, classes=19):
    return torch.bincount(t * classes + p.argmax(1), minlength=classes**2).view(classes, classes)


def _auroc(scores, labels):
    order = scores.argsort(descending=True, stable=True)
    hits = labels[order].float().cumsum(0)
    misses = (1 - labels[order].float()).cumsum(0)
    return torch.trapezoid(hits / hits[-1], misses / misses[-1])


def _pearson(x, y):
    x, y = x - x.mean(0), y - y.mean(0)
    return (x * y).sum(0) / (x.square().sum(0).sqrt() * y.square().sum(0).sqrt() + 1e-8)


def _calibration(p, t):
    sure, best = p.softmax(-1).max(-1)
    bins = (sure * 15).long().clamp(max=14)
    right = (best == t).float()
    count = torch.zeros(15).index_add(0, bins, torch.ones_like(sure))
    gap = torch.zeros(15).index_add(0, bins, sure) - torch.zeros(15).index_add(0, bins, right)
    return gap.abs().sum() / count.sum()


_run("confusion", _confusion, T(4001, 19), T(4001, dtype=i64, low=0, high=18))
_run("auroc", _auroc, T(20011), T(20011, dtype=i64, low=0, high=1))
_run("pearson", _pearson, T(1009, 127), T(1009, 127))
_run("pearson-f64", _pearson, T(1009, 127, dtype=f64), T(1009, 127, dtype=f64))
_run("calibration", _calibration, T(2003, 101), T(2003, dtype=i64, low=0, high=100))
_run("r2-score", lambda p, t: 1 - (t - p).square().sum(0) / (t - t.mean(0)).square().sum(0), T(5003, 7), T(5003, 7))
_run("ndcg", lambda s, r: ((2.0 ** r.gather(1, s.argsort(1, descending=True)) - 1)
     / torch.log2(torch.arange(s.shape[1]) + 2)).sum(1), T(127, 61), T(127, 61, dtype=i64, low=0, high=4))  # fmt: skip


# --- graphs and recommendations ---------------------------------------------------------------------------------------


def _sage(x, edges, own, other):
    total = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
    count = torch.zeros(len(x)).index_add(0, edges[1], torch.ones(edges.shape[1])).clamp(min=1)
    return F.normalize(x @ own + (total / count[:, None]) @ other, dim=-1)


def _gatv2(x, edges, w, a):
    h = (x @ w).view(len(x), 4, -1)
    score = (F.leaky_relu(h[edges[0]] + h[edges[1]], 0.2) * a).sum(-1)
    top = torch.full((len(x), 4), -1e9).scatter_reduce(0, edges[1][:, None].expand_as(score), score, "amax")
    weight = torch.exp(score - top[edges[1]])
    total = torch.zeros(len(x), 4).index_add(0, edges[1], weight)
    out = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]] * (weight / total[edges[1]])[..., None])
    return out.flatten(1)


def _factorization(x, v):
    e = v[x + torch.arange(x.shape[1]) * 100]
    return 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(-1)


def _dlrm(dense, parts):
    t = torch.cat((dense[:, None], parts), 1)
    z = torch.bmm(t, t.transpose(1, 2))
    i, j = torch.tril_indices(t.shape[1], t.shape[1], offset=-1)
    return torch.cat((dense, z[:, i, j]), 1)


_EDGES = T(2, 3001, dtype=i64, low=0, high=500)
_run("sage", _sage, T(501, 48), _EDGES, T(48, 32), T(48, 32))
_train("sage", _sage, T(501, 48), _EDGES, T(48, 32), T(48, 32))
_run("gat-v2", _gatv2, T(501, 48), _EDGES, T(48, 64), T(4, 16))
_run("factorization-machine", _factorization, T(509, 13, dtype=i64, low=0, high=99), T(1300, 16))
_run("dlrm-interaction", _dlrm, T(257, 32), T(257, 13, 32))
_train("dlrm-interaction", _dlrm, T(257, 32), T(257, 13, 32))
_train("cross-network", lambda x, w, b, v, c: (y := x * (x @ w)[:, None] + b + x) * (x @ v)[:, None] + c + y,
       T(509, 67), T(67), T(67), T(67), T(67))  # fmt: skip
_run("bpr-loss", lambda u, p, n: -F.logsigmoid((u * p).sum(-1) - (u * n).sum(-1)).mean(), *[T(2003, 37)] * 3)


# --- decisions and diffusion ------------------------------------------------------------------------------------------


def _vtrace(rewards, values, ratio):
    rho, c = ratio.clamp(max=1.0), ratio.clamp(max=1.0)
    after = torch.cat((values[1:], values[-1:]))
    delta = rho * (rewards + 0.99 * after - values)
    last, seen = torch.zeros_like(values[0]), []
    for at in reversed(range(len(rewards))):
        last = delta[at] + 0.99 * c[at] * last
        seen.insert(0, last)
    return torch.stack(seen) + values


def _c51(probabilities, rewards, done):
    z = torch.linspace(-10, 10, 51)
    b = ((rewards[:, None] + 0.99 * (1 - done[:, None]) * z).clamp(-10, 10) + 10) / 0.4
    low, high = b.floor().long().clamp(0, 50), b.ceil().long().clamp(0, 50)
    out = torch.zeros_like(probabilities)
    out = out.scatter_add(1, low, probabilities * (high.float() + (low == high).float() - b))
    return out.scatter_add(1, high, probabilities * (b - low.float()))


def _quantile_huber(p, t):
    tau = (torch.arange(p.shape[1]) + 0.5) / p.shape[1]
    u = t[:, None, :] - p[:, :, None]
    huber = torch.where(u.abs() <= 1, 0.5 * u * u, u.abs() - 0.5)
    return ((tau[None, :, None] - (u < 0).float()).abs() * huber).sum(1).mean()


def _dpm_step(x, e, before, t):
    s, a = torch.cos(t)[:, None, None, None], torch.sin(t)[:, None, None, None]
    x0 = ((x - a * e) / s).clamp(-1, 1)
    return s * 1.01 * x - a * torch.expm1(torch.tensor(-0.1)) * (1.5 * x0 - 0.5 * before)


_run("v-trace", _vtrace, T(20, 61), T(20, 61), T(20, 61, low=0.5, high=1.5))
_run("categorical-projection", _c51, T(127, 51, low=0.0, high=0.04), T(127), T(127, low=0, high=1))
_train("quantile-huber", _quantile_huber, T(61, 51), T(61, 51))
_run("dpm-solver-step", _dpm_step, *[T(3, 4, 61, 61)] * 3, T(3, low=0.1, high=1.4))
_run("guidance-rescale", lambda c, u: ((g := u + 7.5 * (c - u)) * (c.std((1, 2, 3), keepdim=True)
     / g.std((1, 2, 3), keepdim=True))) * 0.7 + 0.3 * g, T(3, 4, 61, 61), T(3, 4, 61, 61))  # fmt: skip
_run("dynamic-threshold", lambda x: (s := x.abs().flatten(1).quantile(0.995, 1).clamp(min=1)[:, None, None, None],
     x.clamp(-1, 1) / s)[1], T(3, 3, 32, 32))  # fmt: skip
_train("edm-loss", lambda d, x, s: ((s**2 + 0.25) / (s * 0.5) ** 2 * (d - x) ** 2).mean(), T(5, 3, 61, 61),
       T(5, 3, 61, 61), T(5, 1, 1, 1, low=0.1, high=2.0))  # fmt: skip


# --- rays, physics, filters -------------------------------------------------------------------------------------------


def _composite(rgb, density, t):
    apart = torch.cat((t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e10)), -1)
    alpha = 1 - torch.exp(-F.relu(density) * apart)
    clear = torch.cumprod(torch.cat((torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10), -1), -1)[:, :-1]
    weight = alpha * clear
    return (weight[..., None] * rgb.sigmoid()).sum(-2), (weight * t).sum(-1)


def _frequencies(x):
    return torch.cat([x] + [f(x * 2.0**n) for n in range(10) for f in (torch.sin, torch.cos)], -1)


def _collided(f):
    e = torch.tensor(_LBM).float()
    w = torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    rho = f.sum(0)
    u = torch.einsum("qd,qxy->dxy", e, f) / rho
    eu = torch.einsum("qd,dxy->qxy", e, u)
    balance = w[:, None, None] * rho * (1 + 3 * eu + 4.5 * eu**2 - 1.5 * (u**2).sum(0))
    return f - (f - balance) / 0.6


_LBM = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]


def _streamed(f):
    return torch.stack([f[q].roll(_LBM[q], (0, 1)) for q in range(9)])


def _kalman(x, p, z, f, h, q, r):
    x, p = f @ x, f @ p @ f.mT + q
    s = h @ p @ h.mT + r
    k = p @ h.mT @ torch.linalg.inv(s)
    return x + k @ (z - h @ x), (torch.eye(4) - k @ h) @ p


def _verlet(x, before, pairs, rest):
    x, before = 2 * x - before + 0.01 * torch.tensor([0.0, -9.8, 0.0]), x
    for _ in range(3):
        d = x[pairs[0]] - x[pairs[1]]
        length = d.norm(dim=-1, keepdim=True)
        move = 0.5 * d * (1 - rest[:, None] / length.clamp(min=1e-6))
        x = x.index_add(0, pairs[0], -move).index_add(0, pairs[1], move)
    return x, before


_run("nerf-composite", _composite, T(509, 61, 3), T(509, 61), T(1, 61, low=0.0, high=1.0))
_train("nerf-composite", _composite, T(127, 31, 3), T(127, 31), T(1, 31, low=0.0, high=1.0))
_run("frequencies", _frequencies, T(2003, 3))
_run("lattice-collision", _collided, T(9, 101, 103, low=0.1, high=1.0))
_run("lattice-streaming", _streamed, T(9, 101, 103))
_run("kalman", _kalman, T(61, 4, 1), T(61, 4, 4), T(61, 2, 1), T(4, 4), T(2, 4), T(4, 4), 3 * torch.eye(2), tolerance=1)
_run("cloth", _verlet, T(401, 3), T(401, 3), T(2, 1103, dtype=i64, low=0, high=400), T(1103, low=0.5, high=1.0))
_run("wave-f64", lambda u, v: 2 * u - v + 0.1 * (F.pad(u[None, None], (1, 1, 1, 1))[0, 0][2:, 1:-1] + u.roll(1, 0)
     - 2 * u), T(301, 307, dtype=f64), T(301, 307, dtype=f64))  # fmt: skip
_run("langevin", lambda x, g, n: x - 0.01 * (4 * x * (x * x - 1) + g) + math.sqrt(0.02) * n, *[T(100003)] * 3)
_train("harmonic-energy", lambda x, i: (((x[i[0]] - x[i[1]]).norm(dim=-1) - 1.0) ** 2).sum(), T(1009, 3),
       torch.stack((torch.arange(1008), torch.arange(1, 1009))))  # fmt: skip


# --- text and tokens --------------------------------------------------------------------------------------------------


def _beam_step(scores, logits, tokens):
    total = scores[..., None] + logits.log_softmax(-1)
    best, at = total.flatten(1).topk(4, -1)
    beam, word = at // logits.shape[-1], at % logits.shape[-1]
    kept = tokens.gather(1, beam[..., None].expand(-1, -1, tokens.shape[-1]))
    return best, torch.cat((kept, word[..., None]), -1)


def _packed_mask(lengths):
    ids = torch.repeat_interleave(torch.arange(len(lengths)), lengths, output_size=256)
    return (ids[:, None] == ids[None]) & torch.ones(256, 256, dtype=torch.bool).tril()


def _no_repeat(logits, tokens):
    pairs = (tokens[:, :-1] == tokens[:, -1:]) & (torch.arange(tokens.shape[1] - 1) < tokens.shape[1] - 1)
    return logits.scatter(1, torch.where(pairs, tokens[:, 1:], tokens[:, -1:]), float("-inf"))


def _span_mask(x, starts):
    at = torch.arange(x.shape[1])
    covered = ((at[None, None] >= starts[..., None]) & (at[None, None] < starts[..., None] + 10)).any(1)
    return torch.where(covered[..., None], torch.zeros_like(x), x)


_run("beam-step", _beam_step, T(3, 4), T(3, 4, 1009), T(3, 4, 21, dtype=i64, low=0, high=1008))
_run("packed-mask", _packed_mask, torch.tensor([31, 47, 64, 50, 64]))
_run("no-repeat-bigram", _no_repeat, T(5, 5003), T(5, 67, dtype=i64, low=0, high=5002))
_run("span-mask", _span_mask, T(4, 199, 256), T(4, 7, dtype=i64, low=0, high=180))
_run("shift-labels", lambda x: torch.where((y := F.pad(x[:, 1:], (0, 1), value=-100)) == 0, -100, y),
     T(16, 1021, dtype=i64, low=0, high=9))  # fmt: skip
_run("position-ids", lambda m: (m.long().cumsum(-1) - 1).masked_fill(m == 0, 1), T(16, 1021, dtype=torch.bool))


# --- quantization -----------------------------------------------------------------------------------------------------


def _blockwise(x):
    blocks = x.view(-1, 64)
    scale = blocks.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
    return (blocks / scale).round().clamp(-128, 127).to(torch.int8), scale


def _mx(x):
    blocks = x.view(-1, 32)
    shared = torch.floor(torch.log2(blocks.abs().amax(1, keepdim=True).clamp(min=1e-20))) - 2
    scale = torch.exp2(shared)
    return ((blocks / scale * 2).round().clamp(-12, 12) / 2 * scale).view_as(x)


def _lsq(x, s):
    g = 1 / math.sqrt(x.numel() * 7)
    s = (s - s * g).detach() + s * g
    y = (x / s).clamp(-8, 7)
    return ((y.round() - y).detach() + y) * s


_run("blockwise-i8", _blockwise, T(509, 256))
_run("blockwise-i8-bf16", _blockwise, T(509, 256, dtype=bf16))
_run("mx-format", _mx, T(257, 512))
_train("learned-step", _lsq, T(127, 509), T(1, low=0.1, high=0.3))
_run("ternary-weights", lambda x, w: F.linear(x, (w / (s := w.abs().mean().clamp(min=1e-5))).round().clamp(-1, 1) * s),
     T(61, 256), T(256, 256))  # fmt: skip
_run("per-token-asymmetric", lambda x: (((x - (lo := x.amin(-1, keepdim=True))) / (s := (x.amax(-1, keepdim=True) - lo)
     .clamp(min=1e-5) / 255)).round().clamp(0, 255).to(torch.uint8), lo, s), T(509, 255, dtype=f16))  # fmt: skip


# --- updates ----------------------------------------------------------------------------------------------------------
_SHAPES = [(127, 61), (61,), (61, 67), (67,), (67, 10), (10,)] * 3


def _updates(name, step, states=1):
    def build():
        made = [[torch.randn(shape) for shape in _SHAPES] for _ in range(2 + states)]
        made[-1] = [x.abs() for x in made[-1]]

        def run():
            for each in zip(*made, strict=True):
                step(*each)

        return Case(run, (), False, lambda: [x for each in made for x in each])

    case(f"ref/update/{name}", build)


def _lars(p, g, m):
    trust = torch.where(p.norm() > 0, 0.001 * p.norm() / (g.norm() + 1e-4 * p.norm() + 1e-8), 1.0)
    m.mul_(0.9).add_((g + 1e-4 * p) * trust)
    p.sub_(0.1 * m)


def _adan(p, g, m, v, n):
    m.lerp_(g, 0.02)
    d = g - v
    n.mul_(0.99).addcmul_(g + 0.92 * d, g + 0.92 * d, value=0.01)
    v.copy_(g)
    p.addcdiv_(m, n.sqrt() + 1e-8, value=-1e-3)


def _sophia(p, g, m, h):
    m.lerp_(g, 0.04)
    p.mul_(1 - 1e-4).add_((m / (0.04 * h + 1e-12)).clamp(-1, 1), alpha=-1e-3)


def _shampoo(x, left, right, g):
    left = left + g @ g.mT
    right = right + g.mT @ g
    return x - 0.1 * (left / left.norm()) @ g @ (right / right.norm()), left, right


_updates("lars", _lars)
_updates("adan", _adan, 3)
_updates("sophia", _sophia, 2)
_updates("nesterov", lambda p, g, m: (m.mul_(0.9).add_(g), p.add_(g + 0.9 * m, alpha=-0.1)))
_run("update/shampoo", _shampoo, T(127, 61), T(127, 127), T(61, 61), T(127, 61))


# --- layers and layouts -----------------------------------------------------------------------------------------------
class _Kan(nn.Module):
    """A layer of radial functions with one weight for each pair."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(-2, 2, 8))
        self.weight, self.base = nn.Parameter(torch.randn(b, a * 8) / a), nn.Linear(a, b)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        basis = torch.exp(-(((x[..., None] - self.grid) / 0.57) ** 2))
        return F.linear(basis.flatten(-2), self.weight) + self.base(F.silu(x))


class _Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.tokens, self.channels = nn.LayerNorm(96), nn.Linear(49, 49), nn.Linear(96, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + F.gelu(self.tokens(self.norm(x).transpose(1, 2))).transpose(1, 2)
        return x + F.gelu(self.channels(self.norm(x)))


module("ref/kan", lambda: _Kan(61, 31), T(127, 61))
module("ref/kan/train", lambda: _Kan(61, 31), T(127, 61), training=True)
module("ref/mixer", _Mixer, T(5, 49, 96))
module("ref/mixer/train", _Mixer, T(5, 49, 96), training=True)
_run("expanded-bias-gelu", lambda x, b: F.gelu(x + b.expand_as(x)), T(509, 769), T(769))
_run("turned-norm", lambda x: F.layer_norm(x.transpose(1, 2), (61,)), T(7, 61, 499))
_run("turned-softmax-bf16", lambda x: x.float().softmax(-1).to(bf16), T(7, 499, 61, dtype=bf16, layout="transposed"))
_run("i32-hash", lambda x: ((x * 73856093) ^ (x.roll(1) * 19349663)) & 0x3FFF, T(30011, dtype=i32, low=0, high=2000))
_run("tiny-affine", lambda x, a, b: x * a + b, T(3), T(3), T(3))
_run("tiny-norm-clip", lambda g: g * (1.0 / g.norm().clamp(min=1.0)), T(5))
_run("axpby-large", lambda x, y: 2.5 * x - 0.5 * y, T(3000017), T(3000017))
_run("sum-of-squares-large-bf16", lambda x: x.float().square().sum(), T(4000037, dtype=bf16))
_run("clip-by-value-large-f16", lambda x: x.clamp(-1, 1) * 0.5, T(4000037, dtype=f16))
