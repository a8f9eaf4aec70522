"""Programs as people of many fields write them: science, sound, images, finance, games, graphs, robots, language."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, train, u8


def _run(name, function, *inputs, **options):
    infer(f"people/{name}", function, *inputs, **options)


def _train(name, function, *inputs, **options):
    train(f"people/{name}/train", function, *inputs, **options)


# --- science ----------------------------------------------------------------------------------------------------------


def _heat(u, steps=4):
    for _ in range(steps):
        lap = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u
        u = u + 0.1 * lap
    return u


def _gray_scott(u, v):
    lap = lambda x: F.pad(x, (1, 1, 1, 1), mode="circular")  # noqa: E731
    k = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]])[None, None]
    du, dv = F.conv2d(lap(u), k), F.conv2d(lap(v), k)
    uvv = u * v * v
    return u + 0.16 * du - uvv + 0.06 * (1 - u), v + 0.08 * dv + uvv - 0.122 * v


def _lennard_jones(x):
    d = x[:, None] - x[None]
    r2 = d.square().sum(-1) + torch.eye(len(x))
    inv = (1 / r2) ** 3
    mask = 1 - torch.eye(len(x))
    return (2 * (inv * inv - inv) * mask).sum()


def _rk4(y, t):
    f = lambda y, t: torch.stack((y[1], -y[0] - 0.1 * y[1] + torch.sin(t)))  # noqa: E731
    h = 0.01
    for _ in range(5):
        a = f(y, t)
        b = f(y + h / 2 * a, t + h / 2)
        c = f(y + h / 2 * b, t + h / 2)
        d = f(y + h * c, t + h)
        y, t = y + h / 6 * (a + 2 * b + 2 * c + d), t + h
    return y


_run("heat", _heat, T(257, 263))
_train("heat", _heat, T(257, 263))
_run("gray-scott", _gray_scott, T(1, 1, 128, 128, low=0, high=1), T(1, 1, 128, 128, low=0, high=1))
_train("lennard-jones", _lennard_jones, T(211, 3))
_run("runge-kutta", _rk4, T(2, 5000), T(5000))
_run("covariance", lambda x: (x - x.mean(0)).t() @ (x - x.mean(0)) / (len(x) - 1), T(2003, 37))
_run("correlation", lambda x: torch.corrcoef(x), T(41, 997))
_run("kernel-density", lambda x, y: torch.exp(-((x[:, None] - y[None]) ** 2) / 0.02).mean(1), T(503), T(1009))
_run("gaussian-process", lambda a, b: 1.5 * torch.exp(-0.5 * torch.cdist(a, b).square() / 0.3**2), T(301, 5), T(257, 5))
_run("matern", lambda a, b: (1 + (d := math.sqrt(5) * (a[:, None] - b).norm(dim=-1)) + d * d / 3) * torch.exp(-d),
     T(301, 4), T(203, 4))  # fmt: skip
_run("monte-carlo-pi", lambda x, y: 4 * (x * x + y * y <= 1).float().mean(), T(100003), T(100003))
_run("spherical", lambda p: torch.stack((p.norm(dim=-1), torch.acos(p[..., 2] / p.norm(dim=-1)),
                                         torch.atan2(p[..., 1], p[..., 0])), -1), T(20011, 3))  # fmt: skip
_run("bilinear-form", lambda x, a: torch.einsum("bi,ij,bj->b", x, a, x), T(1009, 61), T(61, 61))
_run("batched-quadratic", lambda x, a: (x[:, None] @ a @ x[..., None]).squeeze(), T(1009, 13), T(1009, 13, 13))
_run("batched-matrix-vector", lambda a, x: torch.einsum("bij,bj->bi", a, x), T(2003, 23, 23), T(2003, 23))
_run("many-rotations", lambda r, p: torch.einsum("nij,npj->npi", r, p), T(301, 3, 3), T(301, 67, 3))
_run("complex-mandelbrot", lambda c: (_iterated(c).abs() < 2).sum(), T(101, 103, dtype=torch.complex64))
_run("trapezoid", lambda y, x: torch.trapezoid(y, x, dim=-1), T(301, 503), T(301, 503))
_run("finite-differences", lambda u: (torch.gradient(u, dim=0)[0] ** 2 + torch.gradient(u, dim=1)[0] ** 2).sqrt(),
     T(301, 307))  # fmt: skip
_run("histogram-match", lambda x, b: torch.bucketize(x, b).float() / len(b), T(100003), torch.linspace(-3, 3, 65))


def _iterated(c):
    z = torch.zeros_like(c)
    for _ in range(6):
        z = z * z + c
    return z


# --- sound ------------------------------------------------------------------------------------------------------------
_run("pre-emphasis", lambda x: torch.cat((x[..., :1], x[..., 1:] - 0.97 * x[..., :-1]), -1), T(7, 16001))
_run("mu-law", lambda x: ((x.sign() * torch.log1p(255 * x.abs()) / math.log1p(255) + 1) / 2 * 255 + 0.5).to(i64),
     T(5, 16001, low=-1, high=1))  # fmt: skip
_run("frames-energy", lambda x: x.unfold(-1, 400, 160).square().mean(-1).log(), T(4, 16000))
_run("mel", lambda s, m: torch.log10(torch.clamp((s.abs() ** 2).transpose(-1, -2) @ m, min=1e-10)),
     T(2, 201, 151, dtype=torch.complex64), T(201, 80, low=0, high=1))  # fmt: skip
_run("zero-crossings", lambda x: (x[..., 1:].signbit() != x[..., :-1].signbit()).float().mean(-1), T(9, 16001))
_run("stereo-to-mid-side", lambda x: torch.stack((x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]), 1) / math.sqrt(2),
     T(3, 2, 44101))  # fmt: skip
_run("int16-to-float", lambda x: x.float() / 32768, T(2, 88211, dtype=torch.int16, low=-32768, high=32767))
_run("float-to-int16", lambda x: (x * 32767).clamp(-32768, 32767).round().to(torch.int16), T(2, 88211))
_run("envelope", lambda x: F.max_pool1d(x.abs()[None], 401, 1, 200)[0], T(2, 16000))
_train("spectral-convergence", lambda a, b: (a - b).norm(dim=(1, 2)).div(b.norm(dim=(1, 2))).mean(), T(8, 101, 103),
       T(8, 101, 103))  # fmt: skip
_train("snr", lambda a, b: -10 * torch.log10(b.square().sum(-1) / ((a - b).square().sum(-1) + 1e-8)).mean(),
       T(8, 16001), T(8, 16001))  # fmt: skip
# --- images -----------------------------------------------------------------------------------------------------------
_run("hwc-tile-means", lambda x: x.view(24, 10, 32, 10, 3).float().mean((1, 3)), T(240, 320, 3, dtype=u8))
_run("palette", lambda i, p: p[i.long()], T(241, 319, dtype=u8), T(256, 3, dtype=u8))
_run("grayscale-bytes", lambda x: (x.float() @ torch.tensor([0.299, 0.587, 0.114])).to(u8), T(240, 321, 3, dtype=u8),
     tolerance=1e-2)  # fmt: skip  # a unit where a number is close to a whole one
_run("alpha-over", lambda a, b: torch.cat((a[..., :3] * a[..., 3:] + b[..., :3] * (1 - a[..., 3:]),
     a[..., 3:] + b[..., 3:] * (1 - a[..., 3:])), -1), *[T(121, 161, 4, low=0, high=1)] * 2)  # fmt: skip
_SOBEL = torch.tensor([[[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]])
_run("sobel", lambda x: torch.sqrt(F.conv2d(x, _SOBEL, padding=1) ** 2 + F.conv2d(x, _SOBEL.mT, padding=1) ** 2),
     T(1, 1, 241, 319))  # fmt: skip
_run("gamma-lut", lambda x, t: t[x.long()].permute(2, 0, 1), T(240, 321, 3, dtype=u8), T(256))
_run("normalize-hwc", lambda x: ((x.float() / 255 - torch.tensor([0.485, 0.456, 0.406]))
     / torch.tensor([0.229, 0.224, 0.225])).permute(2, 0, 1)[None].contiguous(), T(224, 224, 3, dtype=u8))  # fmt: skip
_run(
    "normalize-hwc-bf16", lambda x: ((x.float() / 255 - 0.5) / 0.5).permute(2, 0, 1).to(bf16), T(225, 223, 3, dtype=u8)
)
_run("dilate", lambda m: F.max_pool2d(m.float()[None, None], 3, 1, 1)[0, 0] > 0, T(240, 321, dtype=torch.bool))
_run("integral-image", lambda x: x.cumsum(0).cumsum(1), T(241, 319))
_run("letterbox", lambda x: F.pad(x, (0, 0, 40, 40), value=114 / 255), T(3, 3, 160, 240))
_run("yuv", lambda x: torch.einsum("ij,bjhw->bihw", torch.tensor([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436],
     [0.615, -0.515, -0.1]]), x), T(2, 3, 121, 161))  # fmt: skip
_run("patches", lambda x: x.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5).reshape(2, 196, 768),
     T(2, 3, 224, 224))  # fmt: skip
_run("quarter-turns", lambda x: torch.stack([torch.rot90(x, k, (1, 2)) for k in range(4)]), T(3, 97, 97))
_train("total-variation", lambda x: (x[..., 1:] - x[..., :-1]).abs().mean()
       + (x[..., 1:, :] - x[..., :-1, :]).abs().mean(), T(2, 3, 121, 127))  # fmt: skip
_train("ssim", lambda a, b: _ssim(a, b), T(2, 3, 64, 67), T(2, 3, 64, 67))


def _ssim(a, b):
    pool = lambda x: F.avg_pool2d(x, 7, 1)  # noqa: E731
    ma, mb = pool(a), pool(b)
    va, vb, cov = pool(a * a) - ma * ma, pool(b * b) - mb * mb, pool(a * b) - ma * mb
    return 1 - ((2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))).mean()


# --- finance and games ------------------------------------------------------------------------------------------------
def _black_scholes(s, k, t, v):
    d1 = (torch.log(s / k) + (0.02 + v * v / 2) * t) / (v * t.sqrt())
    cdf = lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2)))  # noqa: E731
    return s * cdf(d1) - k * torch.exp(-0.02 * t) * cdf(d1 - v * t.sqrt())


_PRICES = [T(20011, low=0.5, high=2) for _ in range(4)]
_run("black-scholes", _black_scholes, *_PRICES)
_train("black-scholes", _black_scholes, *_PRICES)
_run("drawdown", lambda p: (1 - p / p.cummax(-1).values).amax(-1), T(101, 1009, low=0.5, high=2))
_run("moving-average", lambda p: (F.pad(p.cumsum(-1), (1, 0))[:, 20:] - F.pad(p.cumsum(-1), (1, 0))[:, :-20]) / 20,
     T(101, 1009))  # fmt: skip
_run("volatility", lambda p: (p[:, 1:] / p[:, :-1]).log().unfold(1, 21, 1).std(-1), T(53, 757, low=0.5, high=2))
_run("paths", lambda z: 100 * torch.exp((0.001 + 0.2 * z).cumsum(-1)), T(1009, 252))
_run("portfolio", lambda w, c: torch.sqrt((w @ c * w).sum(-1)), T(1009, 31), T(31, 31))
_run("life", lambda b: (lambda n: ((n == 3) | (b & (n == 2))))(F.conv2d(b[None, None].float(), _RING, padding=1)[0, 0]),
     T(256, 257, dtype=torch.bool))  # fmt: skip
_RING = torch.tensor([[[[1.0, 1, 1], [1, 0, 1], [1, 1, 1]]]])
_run("elo", lambda a, b, r: a + 32 * (r - 1 / (1 + 10 ** ((b - a) / 400))), T(5003), T(5003), T(5003))
_run("bitboards", lambda b: ((b << 8) & ~b) | ((b >> 8) & ~b), T(20011, dtype=i64))
_run("popcount", lambda b: sum((b >> k) & 1 for k in range(16)), T(20011, dtype=i32, low=0, high=65535))
# --- graphs and robots ------------------------------------------------------------------------------------------------
_EDGES = T(2, 8009, dtype=i64, low=0, high=996)
_run("mean-messages", lambda x, e: torch.zeros_like(x).index_add(0, e[1], x[e[0]])
     / torch.zeros(len(x)).index_add(0, e[1], torch.ones(e.shape[1])).clamp(min=1)[:, None],
     T(997, 64), _EDGES)  # fmt: skip
_train("mean-messages", lambda x, e: torch.zeros_like(x).index_add(0, e[1], x[e[0]]).relu(), T(997, 64), _EDGES)
_run("max-messages", lambda x, e: torch.full_like(x, -1e9).scatter_reduce(0, e[1][:, None].expand(-1, 64), x[e[0]],
     "amax"), T(997, 64), _EDGES)  # fmt: skip
_run("edge-softmax", lambda s, e: (lambda z: z / torch.zeros(997).index_add(0, e[1], z)[e[1]])((s - s.max()).exp()),
     T(8009), _EDGES)  # fmt: skip
_run("laplacian", lambda a: torch.diag(a.sum(1)) - a, T(307, 307))
_run("page-rank", lambda a, r: 0.15 / 307 + 0.85 * (a.t() / a.sum(1)) @ r, T(307, 307, low=0.1, high=1), T(307))
_run("quaternion-rotate", lambda q, p: p + 2 * (q[..., :1] * torch.cross(q[..., 1:], p, -1)
     + torch.cross(q[..., 1:], torch.cross(q[..., 1:], p, -1), -1)), T(5003, 4), T(5003, 3))  # fmt: skip
_run("rotation-6d", lambda d: (lambda a, b: torch.stack((a, b, torch.cross(a, b, -1)), -2))(
     F.normalize(d[..., :3], dim=-1), F.normalize(d[..., 3:] - (F.normalize(d[..., :3], dim=-1) * d[..., 3:])
     .sum(-1, keepdim=True) * F.normalize(d[..., :3], dim=-1), dim=-1)), T(5003, 6))  # fmt: skip
_train("rotation-6d", lambda d: F.normalize(d[..., :3], dim=-1) * d[..., 3:].norm(dim=-1, keepdim=True), T(5003, 6))
_run("forward-kinematics", lambda a: _chain(a), T(1009, 6))
_run("occupancy", lambda p, g: g[tuple(((p + 2) * 8).long().clamp(0, 31).unbind(-1))], T(10007, 3), T(32, 32, 32))
_run("depth-to-points", lambda d: torch.stack(((torch.arange(160.0) - 80) / 100 * d,
     (torch.arange(120.0)[:, None] - 60) / 100 * d, d), -1), T(120, 160, low=0.1, high=5))  # fmt: skip
_run("nearest", lambda a, b: torch.cdist(a, b).min(1), T(503, 3), T(1009, 3))
_train("chamfer", lambda a, b: torch.cdist(a, b).min(1).values.mean() + torch.cdist(a, b).min(0).values.mean(),
       T(211, 3), T(307, 3))  # fmt: skip


def _chain(a):
    c, s = a.cos(), a.sin()
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    steps = torch.stack((c, -s, one, s, c, zero, zero, zero, one), -1).view(*a.shape, 3, 3)
    pose = steps[:, 0]
    for k in range(1, a.shape[1]):
        pose = pose @ steps[:, k]
    return pose[:, :2, 2]


# --- recommenders and reinforcement learning --------------------------------------------------------------------------
_train("bpr", lambda u, i, j: -F.logsigmoid((u * i).sum(-1) - (u * j).sum(-1)).mean(), T(1021, 64), T(1021, 64),
       T(1021, 64))  # fmt: skip
_train("factorization-machine", lambda v: 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1), T(512, 39, 16))
_train("dlrm", lambda d, e: torch.cat((d, torch.bmm(e, e.mT)[:, *torch.tril_indices(26, 26, -1)]), 1), T(128, 64),
       T(128, 26, 32))  # fmt: skip
_run("gae", lambda r, v: _gae(r, v), T(32, 129), T(33, 129))
_train("ppo", lambda n, o, a: -torch.min((n - o).exp() * a, (n - o).exp().clamp(0.8, 1.2) * a).mean(), T(4099), T(4099),
       T(4099))  # fmt: skip
_train("sac", lambda m, s, e: (-0.5 * e * e - s.clamp(-20, 2) - 2 * (math.log(2) - (m + s.exp() * e)
       - F.softplus(-2 * (m + s.exp() * e)))).sum(-1).mean(), T(256, 17), T(256, 17), T(256, 17))  # fmt: skip
_train("quantile-huber", lambda q, t: (lambda d: ((torch.arange(32.0)[:, None] / 32 - (d < 0).float()).abs()
       * F.huber_loss(q[:, :, None].expand_as(d), t[:, None].expand_as(d), reduction="none")).mean())(
       t[:, None] - q[:, :, None]), T(64, 32), T(64, 32))  # fmt: skip
_train("dpo", lambda a, b, c, d: -F.logsigmoid(0.1 * ((a - b) - (c - d))).mean(), *[T(257)] * 4)
_train("grpo", lambda n, o, r: -((n - o).exp() * ((r - r.mean(1, True)) / (r.std(1, keepdim=True) + 1e-4))[..., None])
       .mean(), T(8, 8, 257), T(8, 8, 257), T(8, 8))  # fmt: skip


def _gae(r, v):
    out, last = [], torch.zeros(129)
    for t in reversed(range(32)):
        last = r[t] + 0.99 * v[t + 1] - v[t] + 0.95 * 0.99 * last
        out.append(last)
    return torch.stack(out[::-1])


# --- numbers in few bits ----------------------------------------------------------------------------------------------
_run("quantize-rows", lambda x: (lambda s: ((x / s).round().clamp(-127, 127).to(i8), s))(
     x.abs().amax(-1, keepdim=True) / 127), T(257, 1024))  # fmt: skip
_run("dequantize-groups", lambda q, s: (q.view(257, -1, 64).float() * s[..., None]).view(257, 1024).to(bf16),
     T(257, 1024, dtype=i8), T(257, 16))  # fmt: skip
_run("nf4", lambda q, t, s: (t[torch.stack((q >> 4, q & 15), -1).long()].view(-1, 64) * s).view(257, 512),
     T(257, 256, dtype=u8), T(16), T(257 * 8, 1))  # fmt: skip
_run("ternary", lambda w: (w / w.abs().mean()).round().clamp(-1, 1).to(i8), T(513, 1025))
_run("binary-pack", lambda b: (b.view(-1, 8).int() << torch.arange(8)).sum(-1).to(u8), T(40000, dtype=torch.bool))
_run("binary-unpack", lambda b: ((b[:, None] >> torch.arange(8, dtype=u8)) & 1).bool(), T(5003, dtype=u8))
_train("straight-through", lambda x, s: (lambda q: x + (q - x).detach())((x / s).round().clamp(-8, 7) * s), T(257, 513),
       T(257, 1, low=0.1, high=1))  # fmt: skip
_run("fp8-scale", lambda x: (x / x.abs().amax() * 448).to(torch.float8_e4m3fn).float(), T(257, 513))
# --- samplers and tokenizers ------------------------------------------------------------------------------------------
_run("top-p", lambda x: _top_p(x), T(4, 5003))
_run("min-p", lambda x: x.masked_fill(x.softmax(-1) < 0.05 * x.softmax(-1).amax(-1, keepdim=True), -torch.inf)
     .softmax(-1), T(8, 32003), tolerance=5e-2)  # fmt: skip  # a number at the limit is kept or not
_run("repetition", lambda x, t: x.scatter(1, t, torch.where(x.gather(1, t) > 0, x.gather(1, t) / 1.2,
     x.gather(1, t) * 1.2)), T(4, 32003), T(4, 101, dtype=i64, low=0, high=32002))  # fmt: skip
_run("entropy", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), T(64, 5003))
_run("entropy-f16", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), T(64, 5003, dtype=f16))
_run("pad-mask", lambda t: (t != 0)[:, None, None] & torch.ones(128, 128, dtype=torch.bool).tril(),
     T(8, 128, dtype=i64, low=0, high=3))  # fmt: skip
_run("shift-labels", lambda t: F.pad(t, (0, 1), value=-100)[:, 1:].masked_fill(F.pad(t, (0, 1))[:, 1:] == 0, -100),
     T(16, 511, dtype=i64, low=0, high=9))  # fmt: skip
_run("position-ids", lambda m: (m.long().cumsum(-1) - 1).masked_fill(m == 0, 1), T(16, 511, dtype=torch.bool))
_run("n-grams", lambda t: (t.unfold(-1, 3, 1) * torch.tensor([1, 257, 66049])).sum(-1) % 10007,
     T(8, 2047, dtype=i64, low=0, high=255))  # fmt: skip
_run("speculative", lambda p, q, d: ((p.gather(-1, d) / q.gather(-1, d)).clamp(max=1), (p - q).clamp(min=0)
     / (p - q).clamp(min=0).sum(-1, keepdim=True)), T(5, 32003, low=0.1, high=1), T(5, 32003, low=0.1, high=1),
     T(5, 1, dtype=i64, low=0, high=32002))  # fmt: skip


def _top_p(x):
    values, order = x.softmax(-1).sort(descending=True)
    gone = values.cumsum(-1) - values > 0.9
    return torch.zeros_like(x).scatter(-1, order, values.masked_fill(gone, 0))
