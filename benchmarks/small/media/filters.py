"""Filters, spectra and synthesis of sound, written out as people write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, i64, infer

i = lambda name, f, *x, **o: infer("dsp/" + name, f, *x, **o)  # noqa: E731


def iir(x, b, a):
    y1 = y2 = x1 = x2 = torch.zeros_like(x[:, 0])
    out = []
    for n in range(48):
        y = b[0] * x[:, n] + b[1] * x1 + b[2] * x2 - a[0] * y1 - a[1] * y2
        x1, x2, y1, y2 = x[:, n], x1, y, y1
        out.append(y)
    return torch.stack(out, 1)


i("iir-loop", iir, T(64, 48), T(3), T(2, low=-0.4, high=0.4))
i("savgol", lambda x: F.conv1d(x[:, None], torch.tensor([[[-3.0, 12, 17, 12, -3]]]) / 35, padding=2)[:, 0], T(32, 2000))
i(
    "hilbert",
    lambda x: (lambda s, h: torch.fft.ifft(s * h).abs())(
        torch.fft.fft(x), torch.cat((torch.ones(1), 2 * torch.ones(255), torch.ones(1), torch.zeros(255)))
    ),
    T(16, 512),
)
i("zero-crossing", lambda x: (x[:, 1:].sign() != x[:, :-1].sign()).float().mean(1), T(64, 4000))
i("zero-crossing-frames", lambda x: (x.unfold(1, 400, 160).sign().diff(dim=2).abs() > 0).sum(2), T(4, 16000))
i(
    "polyphase",
    lambda x, h: torch.einsum("bnk,pk->bnp", F.pad(x, (3, 4)).unfold(1, 8, 1), h).flatten(1),
    T(8, 1000),
    T(3, 8),
)
i("decimate", lambda x, h: F.conv1d(x[:, None], h[None, None], stride=4)[:, 0], T(8, 8000), T(31))
i("cic", lambda x: x.cumsum(1).cumsum(1)[:, ::8].diff(dim=1).diff(dim=1) / 64, T(16, 4000))
i(
    "welch",
    lambda x: (
        torch.fft.rfft((lambda w: (w - w.mean(-1, True)) * torch.hann_window(256))(x.unfold(1, 256, 128))).abs() ** 2
    ).mean(1),
    T(4, 8000),
)
i(
    "dct-matrix",
    lambda x: x @ torch.cos(torch.pi / 64 * (torch.arange(64) + 0.5)[:, None] * torch.arange(64)),
    T(500, 64),
)


def levinson(r):
    a = [torch.ones_like(r[:, 0])]
    e = r[:, 0]
    for n in range(1, 9):
        k = -sum(a[j] * r[:, n - j] for j in range(n)) / e
        a = [*a, torch.zeros_like(e)]
        a = [a[j] + k * a[n - j] for j in range(n + 1)]
        e = e * (1 - k * k)
    return torch.stack(a, 1), e


i("levinson", lambda x: levinson(torch.stack([(x[:, : 400 - n] * x[:, n:]).sum(1) for n in range(9)], 1)), T(64, 400))
i(
    "yin",
    lambda x: torch.stack([(x[:, :200] - x[:, t : t + 200]).square().sum(1) for t in range(1, 60)], 1).argmin(1),
    T(32, 300),
)
i(
    "cumulative-difference",
    lambda d: d * torch.arange(1, 101) / d.cumsum(1).clamp(min=1e-6),
    T(200, 100, low=0.0, high=1.0),
)


def pll(x):
    phase = torch.zeros(x.shape[0])
    freq = torch.full((x.shape[0],), 0.1)
    for n in range(40):
        error = x[:, n] * torch.cos(phase)
        freq = freq + 0.01 * error
        phase = torch.remainder(phase + freq + 0.1 * error, 2 * math.pi)
    return phase, freq


i("pll", pll, T(256, 40))


def wavelet(x):
    details = []
    for _ in range(5):
        even, odd = x[:, ::2], x[:, 1::2]
        d = odd - 0.5 * (even + torch.roll(even, -1, 1))
        x = even + 0.25 * (d + torch.roll(d, 1, 1))
        details.append(d)
    return torch.cat((x, *details[::-1]), 1)


i("lifting-five", wavelet, T(16, 1024))
i(
    "haar-2d",
    lambda x: (lambda a, b, c, d: torch.cat((a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d), 1) / 2)(
        x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]
    ),
    T(4, 3, 128, 128),
)
i(
    "compressor",
    lambda x: (lambda db: x * 10 ** (torch.where(db > -20, (-20 + (db + 20) / 4) - db, torch.zeros_like(db)) / 20))(
        20 * torch.log10(x.abs() + 1e-6)
    ),
    T(2, 16000),
)
i(
    "soft-clip",
    lambda x: torch.where(
        x.abs() < 1 / 3, 2 * x, torch.where(x.abs() < 2 / 3, x.sign() * (3 - (2 - 3 * x.abs()) ** 2) / 3, x.sign())
    ),
    T(2, 16000),
)
i("tremolo", lambda x: x * (1 + 0.5 * torch.sin(torch.arange(x.shape[1]) * (2 * math.pi * 5 / 16000))), T(2, 16000))
i("delay-line", lambda x: x + 0.5 * F.pad(x, (1600, 0))[:, :-1600] + 0.25 * F.pad(x, (3200, 0))[:, :-3200], T(2, 16000))
i(
    "chorus",
    lambda x: (lambda p: (lambda n, f: x.gather(1, n) * (1 - f) + x.gather(1, n + 1) * f)(p.long(), p - p.floor()))(
        (torch.arange(8000) - 20 - 10 * torch.sin(torch.arange(8000) * 0.001)).clamp(0, 7998).expand(2, -1)
    ),
    T(2, 8000),
)
i(
    "adsr",
    lambda g: torch.minimum(
        torch.minimum(g / 0.1, torch.exp(-(g - 0.1).clamp(min=0) * 2) * 0.6 + 0.4), ((1 - g) / 0.2).clamp(min=0)
    ),
    T(8, 4000, low=0.0, high=1.0),
)
i(
    "fm-synthesis",
    lambda f, n: torch.sin(2 * math.pi * f[:, None] * n + 3 * torch.sin(2 * math.pi * 2 * f[:, None] * n)),
    T(8),
    T(4000),
)
i(
    "additive",
    lambda a, f: (a[:, :, None] * torch.sin(f[:, :, None] * torch.arange(1000) * 0.01)).sum(1),
    T(4, 16),
    T(4, 16),
)
i(
    "spectral-centroid",
    lambda m: (m * torch.linspace(0, 8000, 257)[:, None]).sum(1) / (m.sum(1) + 1e-8),
    T(4, 257, 100, low=0.0, high=1.0),
)
i(
    "spectral-rolloff",
    lambda m: (m.cumsum(1) > 0.85 * m.sum(1, keepdim=True)).int().argmax(1),
    T(4, 257, 100, low=0.0, high=1.0),
)
i("spectral-flux", lambda m: m.diff(dim=2).clamp(min=0).square().sum(1).sqrt(), T(4, 257, 100, low=0.0, high=1.0))
i(
    "chroma",
    lambda m, b: torch.zeros(4, 12, 100).index_add(1, b, m),
    T(4, 257, 100, low=0.0, high=1.0),
    T(257, dtype=i64, low=0, high=11),
)
i("median-harmonic", lambda m: F.pad(m, (4, 4)).unfold(2, 9, 1).median(-1).values, T(2, 65, 60))
i(
    "crossfade",
    lambda a, b: torch.cat(
        (a[:, :-500], a[:, -500:] * torch.linspace(1, 0, 500) + b[:, :500] * torch.linspace(0, 1, 500), b[:, 500:]), 1
    ),
    T(2, 4000),
    T(2, 4000),
)
i("comb", lambda x: sum(x[:, 400 - d : 2400 - d] * 0.7**n for n, d in enumerate((0, 113, 199, 337))), T(4, 2400))
i("agc", lambda x: x / (F.avg_pool1d(x[:, None].square(), 201, 1, 100)[:, 0].sqrt() + 1e-4), T(4, 4000))
i("lms", lambda x, d: _lms(x, d), T(16, 64), T(16, 56))


def _lms(x, d):
    w = torch.zeros(16, 8)
    out = []
    for n in range(32):
        u = x[:, n : n + 8]
        e = d[:, n] - (w * u).sum(1)
        w = w + 0.1 * e[:, None] * u
        out.append(e)
    return torch.stack(out, 1), w


i(
    "crosscorrelate",
    lambda a, b: torch.fft.irfft(torch.fft.rfft(a, 2048) * torch.fft.rfft(b, 2048).conj()).argmax(-1),
    T(8, 1024),
    T(8, 1024),
)
i(
    "gcc-phat",
    lambda a, b: (lambda s: torch.fft.irfft(s / (s.abs() + 1e-8)))(torch.fft.rfft(a) * torch.fft.rfft(b).conj()),
    T(8, 1024),
    T(8, 1024),
)
i(
    "kaiser",
    lambda x: x * torch.special.i0(8.0 * torch.sqrt((1 - torch.linspace(-1, 1, 512) ** 2).clamp(min=0))) / 427.56,
    T(64, 512),
)
i(
    "blackman-harris",
    lambda x, n: x * (0.35875 - 0.48829 * torch.cos(n) + 0.14128 * torch.cos(2 * n) - 0.01168 * torch.cos(3 * n)),
    T(64, 512),
    T(512),
)
i(
    "lagrange-delay",
    lambda x, d: sum(
        x[:, k : 1000 + k] * math.prod([1.0]) * torch.stack([(d - j) / (k - j) for j in range(4) if j != k]).prod(0)
        for k in range(4)
    ),
    T(8, 1003),
    T(1),
)
i(
    "mdct",
    lambda x, c: (x.unfold(1, 128, 64) * torch.sin(math.pi / 128 * (torch.arange(128) + 0.5))) @ c,
    T(4, 4096),
    T(128, 64),
)
i(
    "int16-mix",
    lambda a, b: (a.int() + b.int()).clamp(-32768, 32767).short(),
    T(2, 16000, dtype=torch.int16),
    T(2, 16000, dtype=torch.int16),
)
i(
    "a-law",
    lambda x: (
        lambda a: (
            x.sign()
            * torch.where(a < 1 / 87.6, 87.6 * a, 1 + torch.log(87.6 * a.clamp(min=1e-9)))
            / (1 + math.log(87.6))
        )
    )(x.abs()),
    T(2, 16000, low=-1.0, high=1.0),
)
