"""Recipes of numerical mathematics: solvers, schemes, small matrices, series, transforms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, infer, train

f64 = torch.float64
n = lambda name, f, *x, **o: infer("recipe/" + name, f, *x, **o)  # noqa: E731


def thomas(a, b, c, d):
    size = 24
    cs, ds = [c[:, 0] / b[:, 0]], [d[:, 0] / b[:, 0]]
    for k in range(1, size):
        w = b[:, k] - a[:, k] * cs[-1]
        cs.append(c[:, k] / w)
        ds.append((d[:, k] - a[:, k] * ds[-1]) / w)
    x = [ds[-1]]
    for k in range(size - 2, -1, -1):
        x.append(ds[k] - cs[k] * x[-1])
    return torch.stack(x[::-1], 1)


n("thomas", thomas, T(200, 24), T(200, 24, low=4.0, high=5.0), T(200, 24, low=0.0, high=1.0), T(200, 24))


def conjugate_gradient(a, b):
    a = a @ a.mT / 50 + torch.eye(50)
    x = torch.zeros_like(b)
    r = p = b
    rs = (r * r).sum()
    for _ in range(8):
        ap = a @ p
        alpha = rs / (p * ap).sum()
        x = x + alpha * p
        r = r - alpha * ap
        new = (r * r).sum()
        p = r + new / rs * p
        rs = new
    return x


n("conjugate-gradient", conjugate_gradient, T(50, 50), T(50))
n("newton-root", lambda a: _newton(a), T(5000, low=1.0, high=9.0))


def _newton(a):
    x = a
    for _ in range(8):
        x = x - (x**3 - a) / (3 * x**2)
    return x


def bisect(c):
    lo, hi = torch.zeros_like(c), torch.full_like(c, 10.0)
    for _ in range(30):
        mid = (lo + hi) / 2
        less = mid * torch.exp(mid) < c
        lo, hi = torch.where(less, mid, lo), torch.where(less, hi, mid)
    return (lo + hi) / 2


n("bisect", bisect, T(2000, low=1.0, high=9.0))
n("simpson", lambda y: (y[:, 0] + 4 * y[:, 1:-1:2].sum(1) + 2 * y[:, 2:-1:2].sum(1) + y[:, -1]) / 300, T(200, 301))
n("gauss-legendre", lambda f, x, w: (torch.exp(-f[:, None] * x**2) * w).sum(1), T(1000), T(32), T(32))
n(
    "barycentric",
    lambda x, y, w: (lambda d: ((w / d) * y).sum(1) / (w / d).sum(1))(x[:, None] - torch.linspace(0, 1, 16) + 1e-7),
    T(1000, low=0.0, high=1.0),
    T(16),
    T(16),
)
n("clenshaw", lambda x, c: _clenshaw(x, c), T(4000, low=-1.0, high=1.0), T(20))


def _clenshaw(x, c):
    b1 = b2 = torch.zeros_like(x)
    for k in range(19, 0, -1):
        b1, b2 = 2 * x * b1 - b2 + c[k], b1
    return x * b1 - b2 + c[0]


n(
    "hermite-interpolate",
    lambda x, p: (
        lambda k, t: (
            lambda a, b, c, d: (
                (2 * t**3 - 3 * t**2 + 1) * b
                + (t**3 - 2 * t**2 + t) * (c - a) / 2
                + (-2 * t**3 + 3 * t**2) * c
                + (t**3 - t**2) * (d - b) / 2
            )
        )(p[k - 1], p[k], p[k + 1], p[k + 2])
    )(x.long().clamp(1, 60), x - x.floor()),
    T(4000, low=1.0, high=60.0),
    T(64),
)
n(
    "laplace-3d",
    lambda u: (
        u[1:-1, 1:-1, 1:-1]
        + 0.1
        * (
            u[2:, 1:-1, 1:-1]
            + u[:-2, 1:-1, 1:-1]
            + u[1:-1, 2:, 1:-1]
            + u[1:-1, :-2, 1:-1]
            + u[1:-1, 1:-1, 2:]
            + u[1:-1, 1:-1, :-2]
            - 6 * u[1:-1, 1:-1, 1:-1]
        )
    ),
    T(40, 40, 40),
)
n(
    "wave-2d",
    lambda u, v: (
        u,
        2 * u
        - v
        + 0.2 * (torch.roll(u, 1, 0) + torch.roll(u, -1, 0) + torch.roll(u, 1, 1) + torch.roll(u, -1, 1) - 4 * u),
    ),
    T(128, 128),
    T(128, 128),
)
n(
    "upwind",
    lambda u, a: u - 0.1 * torch.where(a > 0, a * (u - torch.roll(u, 1, 1)), a * (torch.roll(u, -1, 1) - u)),
    T(50, 400),
    T(50, 400),
)
n(
    "lax-wendroff",
    lambda u: (
        u
        - 0.25 * (F.pad(u, (0, 1), mode="replicate")[:, 1:] - F.pad(u, (1, 0), mode="replicate")[:, :-1])
        + 0.125 * (F.pad(u, (1, 1), mode="replicate").unfold(1, 3, 1) * torch.tensor([1.0, -2.0, 1.0])).sum(-1)
    ),
    T(50, 400),
)
n("weno", lambda u: _weno(F.pad(u, (2, 2), mode="circular")), T(20, 500))


def _weno(p):
    a, b, c, d, e = (p[:, k : p.shape[1] - 4 + k] for k in range(5))
    s0 = 13 / 12 * (a - 2 * b + c) ** 2 + (a - 4 * b + 3 * c) ** 2 / 4
    s1 = 13 / 12 * (b - 2 * c + d) ** 2 + (b - d) ** 2 / 4
    s2 = 13 / 12 * (c - 2 * d + e) ** 2 + (3 * c - 4 * d + e) ** 2 / 4
    w0, w1, w2 = 0.1 / (s0 + 1e-6) ** 2, 0.6 / (s1 + 1e-6) ** 2, 0.3 / (s2 + 1e-6) ** 2
    q = w0 * (2 * a - 7 * b + 11 * c) + w1 * (-b + 5 * c + 2 * d) + w2 * (2 * c + 5 * d - e)
    return q / (6 * (w0 + w1 + w2))


def rk45(y):
    f = lambda v: torch.stack((v[:, 1], (1 - v[:, 0] ** 2) * v[:, 1] - v[:, 0]), 1)  # noqa: E731
    h = 0.05
    k1 = f(y)
    k2 = f(y + h * k1 / 4)
    k3 = f(y + h * (3 * k1 + 9 * k2) / 32)
    k4 = f(y + h * (1932 * k1 - 7200 * k2 + 7296 * k3) / 2197)
    k5 = f(y + h * (439 / 216 * k1 - 8 * k2 + 3680 / 513 * k3 - 845 / 4104 * k4))
    k6 = f(y + h * (-8 / 27 * k1 + 2 * k2 - 3544 / 2565 * k3 + 1859 / 4104 * k4 - 11 / 40 * k5))
    return y + h * (25 / 216 * k1 + 1408 / 2565 * k3 + 2197 / 4104 * k4 - k5 / 5), h * (
        k1 / 360 - 128 / 4275 * k3 - 2197 / 75240 * k4 + k5 / 50 + 2 / 55 * k6
    ).norm(dim=1)


n("rk45", rk45, T(1000, 2))
n("leapfrog", lambda q, p: _leapfrog(q, p), T(500, 3), T(500, 3))


def _leapfrog(q, p):
    for _ in range(6):
        p = p - 0.05 * q / (q.norm(dim=1, keepdim=True) ** 3 + 0.1)
        q = q + 0.1 * p
        p = p - 0.05 * q / (q.norm(dim=1, keepdim=True) ** 3 + 0.1)
    return q, p


n(
    "multigrid-restrict",
    lambda r: F.conv2d(r[None, None], torch.tensor([[[[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]]]) / 16, stride=2, padding=1)[
        0, 0
    ],
    T(129, 129),
)
n(
    "multigrid-prolong",
    lambda e: F.interpolate(e[None, None], size=(129, 129), mode="bilinear", align_corners=True)[0, 0],
    T(65, 65),
)
n(
    "red-black",
    lambda u, f, m: (
        lambda v: torch.where(
            m,
            v,
            (
                F.pad(v, (1, 1, 1, 1))[1:-1, 2:]
                + F.pad(v, (1, 1, 1, 1))[1:-1, :-2]
                + F.pad(v, (1, 1, 1, 1))[2:, 1:-1]
                + F.pad(v, (1, 1, 1, 1))[:-2, 1:-1]
                - f
            )
            / 4,
        )
    )(
        torch.where(
            m,
            (
                F.pad(u, (1, 1, 1, 1))[1:-1, 2:]
                + F.pad(u, (1, 1, 1, 1))[1:-1, :-2]
                + F.pad(u, (1, 1, 1, 1))[2:, 1:-1]
                + F.pad(u, (1, 1, 1, 1))[:-2, 1:-1]
                - f
            )
            / 4,
            u,
        )
    ),
    T(96, 96),
    T(96, 96),
    T(96, 96, dtype=torch.bool),
)


def gram_schmidt(a):
    q = []
    for k in range(6):
        v = a[:, :, k]
        for u in q:
            v = v - (u * v).sum(1, keepdim=True) * u
        q.append(v / v.norm(dim=1, keepdim=True))
    return torch.stack(q, 2)


n("gram-schmidt", gram_schmidt, T(200, 12, 6))


def cholesky(a):
    a = a @ a.mT + 4 * torch.eye(4)
    rows = [[None] * 4 for _ in range(4)]
    for r in range(4):
        for c in range(r + 1):
            s = a[:, r, c] - sum(rows[r][k] * rows[c][k] for k in range(c))
            rows[r][c] = s.sqrt() if r == c else s / rows[c][c]
    return torch.stack([rows[r][c] for r in range(4) for c in range(r + 1)], 1)


n("cholesky-4", cholesky, T(500, 4, 4))


def gauss(a, b):
    m = torch.cat((a + 5 * torch.eye(5), b[:, :, None]), 2)
    for k in range(5):
        row = m[:, k : k + 1] / m[:, k : k + 1, k : k + 1]
        m = m - m[:, :, k : k + 1] * row
        m = torch.cat((m[:, :k], row, m[:, k + 1 :]), 1)
    return m[:, :, 5]


n("gauss-jordan", gauss, T(300, 5, 5), T(300, 5))
n(
    "adjugate-3",
    lambda a: (
        torch.stack(
            (
                torch.linalg.cross(a[:, 1], a[:, 2]),
                torch.linalg.cross(a[:, 2], a[:, 0]),
                torch.linalg.cross(a[:, 0], a[:, 1]),
            ),
            2,
        )
        / (a[:, 0] * torch.linalg.cross(a[:, 1], a[:, 2])).sum(1)[:, None, None]
    ),
    T(1000, 3, 3),
)
n("newton-schulz", lambda g: _schulz(g), T(64, 96))


def _schulz(g):
    x = g / g.norm()
    for _ in range(3):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


n("matrix-exponential", lambda a: _expm(a * 0.1), T(100, 6, 6))


def _expm(a):
    term = total = torch.eye(6).expand_as(a)
    for k in range(1, 8):
        term = term @ a / k
        total = total + term
    return total @ total


n(
    "jacobi-rotation",
    lambda a, b, c: (lambda t: (a - t * b, c + t * b, 1 / (1 + t * t).sqrt()))(
        (lambda th: th.sign() / (th.abs() + (th * th + 1).sqrt()))((c - a) / (2 * b + 1e-9))
    ),
    T(3000),
    T(3000),
    T(3000),
)
n("symmetric-eig-3", lambda a: _eig3(a + a.mT), T(500, 3, 3))


def _eig3(a):
    q = a.diagonal(dim1=1, dim2=2).mean(1)
    b = a - q[:, None, None] * torch.eye(3)
    p = ((b * b).sum((1, 2)) / 6).sqrt()
    b = b / p[:, None, None]
    r = ((b[:, 0] * torch.linalg.cross(b[:, 1], b[:, 2])).sum(1) / 2).clamp(-1, 1)
    phi = torch.acos(r) / 3
    first, last = q + 2 * p * phi.cos(), q + 2 * p * (phi + 2 * math.pi / 3).cos()
    return torch.stack((first, 3 * q - first - last, last), 1)


n("kahan", lambda x: _kahan(x), T(2000, 30))


def _kahan(x):
    s = c = torch.zeros_like(x[:, 0])
    for k in range(30):
        y = x[:, k] - c
        t = s + y
        c = (t - s) - y
        s = t
    return s


n("welford", lambda x: _welford(x), T(2000, 30))


def _welford(x):
    mean = m2 = torch.zeros_like(x[:, 0])
    for k in range(30):
        d = x[:, k] - mean
        mean = mean + d / (k + 1)
        m2 = m2 + d * (x[:, k] - mean)
    return mean, m2 / 29


n(
    "lanczos-gamma",
    lambda x: (
        lambda t: (
            0.9189385332
            + (x + 0.5) * t.log()
            - t
            + torch.log(
                1.000000000190015
                + 76.18009172947146 / (x + 1)
                - 86.50532032941677 / (x + 2)
                + 24.01409824083091 / (x + 3)
            )
            - x.log()
        )
    )(x + 5.5),
    T(10000, low=0.5, high=20.0),
)
n(
    "bessel-j0",
    lambda x: (
        lambda y: (
            (
                57568490574.0
                + y * (-13362590354.0 + y * (651619640.7 + y * (-11214424.18 + y * (77392.33017 + y * -184.9052456))))
            )
            / (57568490411.0 + y * (1029532985.0 + y * (9494680.718 + y * (59272.64853 + y * (267.8532712 + y)))))
        )
    )(x * x),
    T(10000, low=0.0, high=8.0),
)
n(
    "erf-series",
    lambda x: (
        (
            lambda t: (
                1
                - (((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t + 0.254829592)
                * t
                * torch.exp(-x * x)
            )
        )(1 / (1 + 0.3275911 * x.abs()))
        * 1.0
    ),
    T(20000),
)
n("incomplete-gamma", lambda a, x: torch.special.gammainc(a, x), T(2000, low=0.5, high=5.0), T(2000, low=0.1, high=9.0))
n("mandelbrot", lambda c: _mandel(c), T(64, 64, dtype=torch.complex64))


def _mandel(c):
    z = torch.zeros_like(c)
    count = torch.zeros(c.shape, dtype=torch.int32)
    for _ in range(12):
        z = torch.where(z.abs() < 2, z * z + c, z)
        count = count + (z.abs() < 2).int()
    return count


n(
    "durand-kerner",
    lambda c, z: (
        z
        - (((z + c[:, :1]) * z + c[:, 1:2]) * z + c[:, 2:3])
        / torch.stack([(z[:, k : k + 1] - torch.cat((z[:, :k], z[:, k + 1 :]), 1)).prod(1) for k in range(3)], 1)
    ),
    T(500, 3, dtype=torch.complex64),
    T(500, 3, dtype=torch.complex64),
)
n("logistic-map-f64", lambda x: _logistic(x), T(1000, dtype=f64, low=0.1, high=0.9))


def _logistic(x):
    for _ in range(20):
        x = 3.6 * x * (1 - x)
    return x


n(
    "gray-level-cumulative",
    lambda p: (
        p.cumsum(0)
        * (1 - p.cumsum(0))
        * (
            (p * torch.arange(256.0)[:, None]).cumsum(0) / p.cumsum(0)
            - ((p * torch.arange(256.0)[:, None]).sum(0) - (p * torch.arange(256.0)[:, None]).cumsum(0))
            / (1 - p.cumsum(0) + 1e-6)
        )
        ** 2
    ).argmax(0),
    T(256, 40, low=0.001, high=0.01),
)
n("monte-carlo-pi", lambda p: (p.square().sum(1) < 1).float().mean() * 4, T(20000, 2, low=0.0, high=1.0))
n(
    "importance-weights",
    lambda x, m, s: (lambda w: (w * x).sum(0) / w.sum(0))(torch.exp(-0.5 * ((x - m) / s) ** 2) / s),
    T(5000, 4),
    T(4),
    T(4, low=0.5, high=2.0),
)
n(
    "systematic-resample",
    lambda w, x: x[torch.searchsorted((w / w.sum()).cumsum(0).clamp(max=1.0), (torch.arange(1000) + 0.3) / 1000.1)],
    T(1000, low=0.0, high=1.0),
    T(1000, 4),
)
n("spectral-derivative", lambda u: torch.fft.irfft(torch.fft.rfft(u) * (1j * torch.arange(129)), n=256), T(64, 256))
n("fwht", lambda x: _fwht(x), T(200, 64))


def _fwht(x):
    h = 1
    while h < 64:
        x = x.view(200, 64 // (2 * h), 2, h)
        x = torch.stack((x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]), 2).reshape(200, 64)
        h *= 2
    return x


n("fft-by-hand", lambda r, q: _fft(r, q), T(64, 32), T(64, 32))


def _fft(r, q):
    for s in range(5):
        m = 32 >> (s + 1)
        r, q = r.reshape(64, -1, 2, m), q.reshape(64, -1, 2, m)
        angle = -math.pi * torch.arange(m) / m
        c, d = angle.cos(), angle.sin()
        dr, dq = r[:, :, 0] - r[:, :, 1], q[:, :, 0] - q[:, :, 1]
        r = torch.stack((r[:, :, 0] + r[:, :, 1], dr * c - dq * d), 2).flatten(1)
        q = torch.stack((q[:, :, 0] + q[:, :, 1], dr * d + dq * c), 2).flatten(1)
    return r, q


train("recipe/ode-fit", lambda y, a: (_euler(y, a) - 1).square().mean(), T(100, 4), T(4, 4))


def _euler(y, a):
    for _ in range(8):
        y = y + 0.1 * torch.tanh(y @ a)
    return y


train(
    "recipe/pinn-residual",
    lambda x, w, v: (lambda h: ((1 - h * h) @ v * 2 - x).square().mean())(torch.tanh(x @ w)),
    T(500, 1),
    T(1, 64),
    T(64, 1),
)
train(
    "recipe/spline-fit",
    lambda x, c: (
        ((x[:, None] - torch.linspace(0, 1, 16)).abs().mul(-15).add(1).clamp(min=0) @ c - x.sin()).square().mean()
    ),
    T(1000, low=0.0, high=1.0),
    T(16),
)
