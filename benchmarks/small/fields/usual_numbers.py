"""Pictures, signals, physics, losses and updates as people write them, in odd sizes and layouts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import Case, T, bf16, case, f16, i8, i64, infer, train, u8


def _use(name, function, *inputs, **options):
    infer(f"usual/{name}", function, *inputs, **options)


def _both(name, function, *inputs, **options):
    _use(name, function, *inputs, **options)
    train(f"usual/{name}/train", function, *inputs, **options)


# Pictures


def _sample(image, at):
    x, y = at[..., 0], at[..., 1]
    left, top = x.floor().clamp(0, image.shape[2] - 2), y.floor().clamp(0, image.shape[1] - 2)
    u, v = x - left, y - top
    flat, first = image.flatten(1), (top * image.shape[2] + left).long()
    one, two, three, four = (flat[:, first + d] for d in (0, 1, image.shape[2], image.shape[2] + 1))
    return (one * (1 - u) + two * u) * (1 - v) + (three * (1 - u) + four * u) * v


def _prepare(x):
    x = x.flip(2)[:, 3:-4, 2:-3].permute(0, 3, 1, 2).float() / 255
    mean, deviation = torch.tensor([0.48, 0.45, 0.4]), torch.tensor([0.23, 0.22, 0.22])
    return (x - mean[:, None, None]) / deviation[:, None, None]


def _resize_bytes(x):
    y = F.interpolate(x.permute(0, 3, 1, 2).flip(-1).float(), size=(37, 41), mode="bilinear", antialias=False)
    return y.round().clamp(0, 255).to(torch.uint8)


def _jitter(x, brightness, contrast):
    y = x.float() / 255 * brightness
    gray = (y * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    return ((y - gray) * contrast + gray).clamp(0, 1)


def _to_hsv(x):
    r, g, b = x.unbind(1)
    top, low = x.amax(1), x.amin(1)
    spread = (top - low).clamp(min=1e-6)
    hue = torch.where(top == r, (g - b) / spread % 6, torch.where(top == g, (b - r) / spread + 2, (r - g) / spread + 4))
    return torch.stack((hue / 6, spread / top.clamp(min=1e-6), top), 1)


def _cutout(x, at):
    rows, columns = torch.arange(x.shape[2]), torch.arange(x.shape[3])
    hit = ((rows - at[:, :1]).abs() < 6)[:, :, None] & ((columns - at[:, 1:]).abs() < 6)[:, None]
    return x.masked_fill(hit[:, None], 0.5)


def _sobel(x):
    across = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    found = F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), torch.stack((across, across.T))[:, None])
    return found.square().sum(1).sqrt()


_both("bilinear-by-hand", _sample, T(7, 33, 39), T(300, 2, low=0, high=30))
_use("bytes-to-input", _prepare, T(3, 61, 67, 3, dtype=u8))
_use("bytes-resized", _resize_bytes, T(2, 61, 67, 3, dtype=u8), tolerance=5e-3)
_use("color-jitter", _jitter, T(5, 3, 45, 51, dtype=u8), T(5, 1, 1, 1, low=0.5, high=1.5),
     T(5, 1, 1, 1, low=0.5, high=1.5))  # fmt: skip
_use("to-hsv", _to_hsv, T(3, 3, 47, 53, low=0, high=1))
_use("to-hsv-cl", _to_hsv, T(3, 3, 47, 53, low=0, high=1, layout="channels_last"))
_use("cutout", _cutout, T(5, 3, 37, 37), T(5, 2, dtype=i64, low=0, high=36))
_use("sobel", _sobel, T(3, 1, 61, 67))
_use("mixup", lambda x, w: torch.lerp(x, x.flip(0), w), T(6, 3, 35, 35), T(6, 1, 1, 1, low=0, high=1))
_use("patches-sliced", lambda x: x.unfold(2, 7, 7).unfold(3, 7, 7).permute(0, 2, 3, 1, 4, 5).flatten(3).mean(-1),
     T(3, 5, 49, 49, layout="sliced"))  # fmt: skip


# Signals


def _band(x):
    found = torch.fft.rfft(x)
    at = torch.fft.rfftfreq(x.shape[-1])
    return torch.fft.irfft(found * torch.exp(-((at - 0.1) / 0.05).square()), n=x.shape[-1])


def _haar(x):
    for _ in range(3):
        low, high = (x[..., ::2] + x[..., 1::2]) / math.sqrt(2), (x[..., ::2] - x[..., 1::2]) / math.sqrt(2)
        x = torch.where(high.abs() < 0.3, low, low + 0.5 * high)
    return x


def _lifting(x):
    even, odd = x[:, ::2], x[:, 1::2]
    high = odd - (even + even.roll(-1, 1)) / 2
    return even + (high + high.roll(1, 1)) / 4, high


def _mel(x, bank):
    part = torch.stft(x, 256, 64, window=torch.hann_window(256), return_complex=True)
    return torch.log((bank @ part.abs().square()).clamp(min=1e-5))


def _envelope(x):
    state, found = x[:, 0].abs(), []
    for t in range(24):
        now = x[:, t].abs()
        state = torch.where(now > state, 0.6 * state + 0.4 * now, 0.95 * state)
        found.append(state)
    return torch.stack(found, 1)


_both("band-filter", _band, T(5, 1000))
_use("haar", _haar, T(9, 1000))
_both("lifting", _lifting, T(9, 998))
_use("log-mel", _mel, T(2, 3000), T(40, 129, low=0, high=1), tolerance=1e-3)
_use("envelope", _envelope, T(50, 24))
_use("mu-law", lambda x: ((x.sign() * torch.log1p(255 * x.abs()) / math.log(256) + 1) / 2 * 255 + 0.5).to(i64),
     T(3, 5001, low=-1, high=1))  # fmt: skip
_use("zero-crossings", lambda x: (x[:, 1:].sign() != x[:, :-1].sign()).float().unfold(1, 100, 50).mean(-1), T(4, 3001))
_use("moving-median", lambda x: x.unfold(1, 5, 1).median(-1).values, T(4, 1003))


# Physics and filters


def _kalman(mean, cov, seen, move, noise):
    mean, cov = (move @ mean[..., None])[..., 0], move @ cov @ move.mT + 0.01 * torch.eye(4)
    total = cov[:, :2, :2] + noise
    a, b, c, d = total[:, 0, 0], total[:, 0, 1], total[:, 1, 0], total[:, 1, 1]
    turned = torch.stack((d, -b, -c, a), -1).view(-1, 2, 2) / (a * d - b * c)[:, None, None]
    gain = cov[:, :, :2] @ turned
    mean = mean + (gain @ (seen - mean[:, :2])[..., None])[..., 0]
    return mean, cov - gain @ cov[:, :2]


def _runge_kutta(x, w):
    def slope(x):
        return torch.tanh(x @ w) - 0.1 * x

    for _ in range(3):
        one = slope(x)
        two = slope(x + 0.05 * one)
        three = slope(x + 0.05 * two)
        x = x + 0.1 / 6 * (one + 2 * two + 2 * three + slope(x + 0.1 * three))
    return x


def _lorenz(x):
    for _ in range(8):
        a, b, c = x.unbind(-1)
        x = x + 0.01 * torch.stack((10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c), -1)
    return x


def _heat(x):
    for _ in range(4):
        around = x[:, 2:, 1:-1] + x[:, :-2, 1:-1] + x[:, 1:-1, 2:] + x[:, 1:-1, :-2]
        x = F.pad(x[:, 1:-1, 1:-1] + 0.2 * (around - 4 * x[:, 1:-1, 1:-1]), (1, 1, 1, 1))
    return x


def _shallow_water(h, u, v):
    def along(x, dim):
        return (x.roll(-1, dim) - x.roll(1, dim)) / 2

    u, v = u - 0.1 * along(h, 0), v - 0.1 * along(h, 1)
    return h - 0.1 * (along(h * u, 0) + along(h * v, 1)), u, v


def _n_body(x, mass):
    away = x - x[:, None]
    near = (away.square().sum(-1) + 1e-3).rsqrt()
    return (away * (near**3 * mass)[..., None]).sum(1)


_use("kalman", _kalman, T(101, 4), T(101, 4, 4), T(101, 2), T(4, 4), T(2, 2), tolerance=1e-2)
_both("runge-kutta", _runge_kutta, T(33, 21), T(21, 21))
_both("lorenz", _lorenz, T(501, 3))
_both("heat", _heat, T(3, 51, 47))
_use("shallow-water", _shallow_water, *[T(75, 93)] * 3)
_use("n-body", _n_body, T(97, 3), T(97, low=0, high=1))


# Numbers in few bits


def _quantized(x):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
    return (x / scale).round().clamp(-128, 127).to(i8), scale


def _blocks(x):
    part = x.view(x.shape[0], -1, 16)
    low = part.amin(-1, keepdim=True)
    scale = (part.amax(-1, keepdim=True) - low).clamp(min=1e-5) / 15
    at = ((part - low) / scale).round().to(u8).flatten(1)
    return at[:, ::2] | at[:, 1::2] << 4, scale, low


def _codebook(x, codes):
    away = x.square().sum(-1, keepdim=True) - 2 * x @ codes.mT + codes.square().sum(-1)
    found = codes[away.argmin(-1)]
    return x + (found - x).detach(), (found.detach() - x).square().mean() + (found - x.detach()).square().mean()


def _fake_quantized(x, scale):
    return x + ((x / scale).round().clamp(-8, 7) * scale - x).detach()


_use("quantize-rows", _quantized, T(45, 333), tolerance=1e-2)
_use("quantize-rows-transposed", _quantized, T(45, 333, layout="transposed"), tolerance=1e-2)
_use("pack-nibbles", _blocks, T(45, 320), tolerance=1e-2)
_use("dequantize", lambda q, scale: (q.float() - 3) * scale, T(45, 333, dtype=i8), T(45, 1))
_both("codebook", _codebook, T(130, 24), T(65, 24))
_both("fake-quantize", _fake_quantized, T(77, 55), T(77, 1, low=0.1, high=1))


# Losses


def _contrastive(a, b):
    scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT / 0.07
    at = torch.arange(len(a))
    return (F.cross_entropy(scores, at) + F.cross_entropy(scores.mT, at)) / 2


def _supervised(x, y):
    x = F.normalize(x, dim=-1)
    scores = (x @ x.mT / 0.1).fill_diagonal_(-1e9).log_softmax(-1)
    same = (y[:, None] == y).float().fill_diagonal_(0)
    return -((scores * same).sum(1) / same.sum(1).clamp(min=1)).mean()


def _vicreg(a, b):
    def spread(x):
        return F.relu(1 - (x.var(0) + 1e-4).sqrt()).mean()

    def shared(x):
        x = x - x.mean(0)
        cov = x.mT @ x / (len(x) - 1)
        return (cov.square().sum() - cov.diagonal().square().sum()) / x.shape[1]

    return 25 * F.mse_loss(a, b) + 25 * (spread(a) + spread(b)) + shared(a) + shared(b)


def _focal_dice(x, y):
    p = x.sigmoid()
    focal = (F.binary_cross_entropy_with_logits(x, y, reduction="none") * (p - y).abs().square()).mean()
    return focal + 1 - ((2 * (p * y).sum((1, 2)) + 1) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)).mean()


def _policy(new, old, gain, values, returns):
    ratio = (new - old).exp()
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() + 0.5 * (values - returns).square().mean()


def _distilled(student, teacher):
    return F.kl_div((student / 2).log_softmax(-1), (teacher.detach() / 2).log_softmax(-1), log_target=True,
                    reduction="batchmean") * 4  # fmt: skip


_both("contrastive", _contrastive, T(51, 72), T(51, 72), tolerance=1e-3)
_both("supervised-contrastive", _supervised, T(51, 72), T(51, dtype=i64, low=0, high=6), tolerance=1e-3)
_both("vicreg", _vicreg, T(51, 72), T(51, 72), tolerance=1e-3)
_both("focal-dice", _focal_dice, T(3, 45, 45), T(3, 45, 45, low=0, high=1))
_both("policy", _policy, *[T(333)] * 5)
_both("distilled-f16", _distilled, T(27, 505, dtype=f16), T(27, 505, dtype=f16), tolerance=2e-2)


# Updates


def _updating(name, update, count, *shape, dtype=torch.float32):
    def build():
        given = [[torch.randn(*shape).to(dtype) for _ in range(6)] for _ in range(count)]
        return Case(update, tuple(given), state=lambda: [x for each in given for x in each])

    case(f"usual/{name}", build)


def _ema(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        a.mul_(0.999).add_(b, alpha=0.001)


def _clip(gradients):
    norm = torch.stack([g.float().square().sum() for g in gradients]).sum().sqrt()
    for g in gradients:
        g.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0).to(g.dtype))
    return norm


def _lion(weights, gradients, moments):
    for w, g, m in zip(weights, gradients, moments, strict=True):
        w.mul_(0.999).sub_((0.9 * m + 0.1 * g).sign(), alpha=1e-3)
        m.mul_(0.99).add_(g, alpha=0.01)


def _adafactor(weights, gradients, rows, columns):
    for w, g, r, c in zip(weights, gradients, rows, columns, strict=True):
        square = g.square() + 1e-30
        r[:, :1].lerp_(square.mean(1, keepdim=True), 0.1)
        c[:1].lerp_(square.mean(0, keepdim=True), 0.1)
        w.sub_(1e-3 * g * (r[:, :1].abs() / r[:, :1].abs().mean() + 1e-3).rsqrt() * (c[:1].abs() + 1e-3).rsqrt())


def _muon(weights, gradients):
    for w, g in zip(weights, gradients, strict=True):
        x = g / (g.norm() + 1e-7)
        for _ in range(3):
            a = x @ x.mT
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        w.sub_(x, alpha=0.02)


_updating("ema", _ema, 2, 67, 45)
_updating("ema-bf16", _ema, 2, 67, 45, dtype=bf16)
_updating("clip", _clip, 1, 67, 45)
_updating("clip-bf16", _clip, 1, 67, 45, dtype=bf16)
_updating("lion", _lion, 3, 67, 45)
_updating("adafactor", _adafactor, 4, 67, 45)
_updating("muon", _muon, 2, 31, 45)
