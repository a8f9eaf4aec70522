"""As users write them: images, sound, losses, attention and its caches."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from small.case import Case, T, boxes, case, f16, f32, i8, i32, i64, infer, train, u8

# Images

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def augment(images: Any, flip: Any, mean: Any, std: Any) -> Any:
    x = images.permute(0, 3, 1, 2).float() / 255
    x = torch.where(flip[:, None, None, None], x.flip(-1), x)
    return (x - mean[:, None, None]) / std[:, None, None]


def color_jitter(x: Any, brightness: Any, contrast: Any, saturation: Any) -> Any:
    x = (x * brightness[:, None, None, None]).clamp(0, 1)
    gray = (x * torch.tensor([0.299, 0.587, 0.114], device=x.device)[:, None, None]).sum(1, keepdim=True)
    mean = gray.mean((2, 3), keepdim=True)
    x = ((x - mean) * contrast[:, None, None, None] + mean).clamp(0, 1)
    return ((x - gray) * saturation[:, None, None, None] + gray).clamp(0, 1)


def rgb_to_hsv(x: Any) -> Any:
    high, index = x.max(1)
    low = x.amin(1)
    spread = high - low
    r, g, b = x.unbind(1)
    safe = torch.where(spread == 0, 1.0, spread)
    hue = torch.where(index == 0, (g - b) / safe % 6, torch.where(index == 1, (b - r) / safe + 2, (r - g) / safe + 4))
    return torch.stack((hue / 6, torch.where(high == 0, 0.0, spread / high.clamp_min(1e-6)), high), 1)


def cutmix(x: Any, y: Any, order: Any) -> Any:
    mixed = x.clone()
    mixed[:, :, 20:60, 30:70] = x[order][:, :, 20:60, 30:70]
    return mixed, 0.8 * y + 0.2 * y[order]


infer("image/augment-u8", augment, T(4, 96, 96, 3, dtype=u8), T(4, dtype=torch.bool), MEAN, STD)
infer("image/color-jitter", color_jitter, T(4, 3, 96, 96, low=0, high=1), *[T(4, low=0.5, high=1.5)] * 3)
infer("image/rgb-to-hsv", rgb_to_hsv, T(2, 3, 128, 128, low=0, high=1))
infer("image/cutmix", cutmix, T(4, 3, 96, 96), T(4, 10), torch.tensor([2, 0, 3, 1]))
infer(
    "image/gaussian-blur",
    lambda x, k: F.conv2d(F.pad(x, [2] * 4, "reflect"), k, groups=3),
    T(2, 3, 96, 96),
    T(3, 1, 5, 5),
)
infer("image/random-erase", lambda x, m: x.masked_fill(m, 0.5), T(4, 3, 96, 96), T(4, 1, 96, 96, dtype=torch.bool))
infer(
    "image/center-crop-resize",
    lambda x: F.interpolate(x[..., 16:80, 16:80], (112, 112), mode="bilinear"),
    T(2, 3, 96, 96),
)
infer(
    "image/u8-blend",
    lambda a, b: (a.to(i32) * 3 + b.to(i32)).div(4, rounding_mode="floor").to(u8),
    *[T(256, 768, dtype=u8)] * 2,
)
infer("image/u8-threshold", lambda x: torch.where(x > 127, 255, 0).to(u8), T(512, 512, dtype=u8))
infer("image/posterize", lambda x: (x // 32) * 32, T(3, 256, 256, dtype=u8))
infer("image/roll-mix", lambda x: (x + x.roll((1, 1), (2, 3)) + x.roll(-1, 3)) / 3, T(2, 16, 64, 64))
infer(
    "image/sobel",
    lambda x: (x[:, :, 1:-1, 2:] - x[:, :, 1:-1, :-2]).abs() + (x[:, :, 2:, 1:-1] - x[:, :, :-2, 1:-1]).abs(),
    T(2, 3, 128, 128),
)
infer(
    "image/unshuffle-normalize", lambda x: F.layer_norm(F.pixel_unshuffle(x, 4).flatten(2).mT, (48,)), T(2, 3, 128, 128)
)
infer("image/rotate-quarter", lambda x: torch.rot90(x, 1, (2, 3)) * 0.5, T(2, 3, 128, 128))
infer("image/area-shrink", lambda x: F.adaptive_avg_pool2d(x, 24).clamp(-1, 1), T(2, 8, 96, 96))

# Sound


def frames_energy(x: Any, window: Any) -> Any:
    return (x.unfold(-1, 400, 160) * window).square().mean(-1).clamp_min(1e-10).log10()


def power_spectrum(x: Any, window: Any) -> Any:
    found = torch.fft.rfft(x.unfold(-1, 256, 128) * window)
    return (found.real.square() + found.imag.square() + 1e-6).log()


def mu_law(x: Any) -> Any:
    return ((torch.sign(x) * torch.log1p(255 * x.abs()) / math.log(256.0) + 1) / 2 * 255 + 0.5).to(i64)


infer("sound/frames-energy", frames_energy, T(4, 16000), T(400))
infer("sound/power-spectrum", power_spectrum, T(4, 8000), T(256))
infer(
    "sound/stft-magnitude",
    lambda x, w: torch.stft(x, 256, 128, window=w, return_complex=True).abs(),
    T(2, 8000),
    T(256),
)
infer("sound/mu-law", mu_law, T(4, 16000, low=-1, high=1))
infer("sound/pre-emphasis", lambda x: torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1), T(4, 16000))
infer(
    "sound/mel-dct",
    lambda s, m, d: (s @ m).clamp_min(1e-6).log() @ d,
    T(200, 201, low=0, high=1),
    T(201, 80, low=0, high=1),
    T(80, 13),
)
infer(
    "sound/spec-augment",
    lambda s, t, f: s.masked_fill(t[:, None, :] | f[:, :, None], 0.0),
    T(4, 80, 300),
    T(4, 300, dtype=torch.bool),
    T(4, 80, dtype=torch.bool),
)
infer("sound/pcm", lambda x: x.to(f32) / 32768.0, T(2, 32000, dtype=torch.int16))
infer("sound/fft-filter", lambda x, h: torch.fft.irfft(torch.fft.rfft(x) * h, n=4096), T(8, 4096), T(2049))
infer(
    "sound/delta",
    lambda x: (F.pad(x, (2, 2), "replicate").unfold(-1, 5, 1) * torch.arange(-2.0, 3.0, device=x.device)).sum(-1) / 10,
    T(4, 80, 200),
)

# Losses


def focal(x: Any, y: Any) -> Any:
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    p = torch.sigmoid(x)
    pt = p * y + (1 - p) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * (1 - pt) ** 2 * loss).mean()


def multi_dice(x: Any, y: Any) -> Any:
    p, hot = x.softmax(1), F.one_hot(y, 6).permute(0, 3, 1, 2).to(x.dtype)
    shared, total = (p * hot).sum((0, 2, 3)), (p + hot).sum((0, 2, 3))
    return 1 - ((2 * shared + 1) / (total + 1)).mean()


def info_nce(a: Any, b: Any) -> Any:
    scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() / 0.07
    label = torch.arange(a.shape[0], device=a.device)
    return (F.cross_entropy(scores, label) + F.cross_entropy(scores.t(), label)) / 2


def generalized_iou(a: Any, b: Any) -> Any:
    lt, rb = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])  # noqa: E731
    union = area(a) + area(b) - inter
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    return (1 - inter / union + (hull - union) / hull).mean()


def distill(student: Any, teacher: Any) -> Any:
    return F.kl_div(F.log_softmax(student / 2, -1), F.softmax(teacher / 2, -1), reduction="batchmean") * 4


def supervised_contrast(x: Any, y: Any) -> Any:
    z = F.normalize(x, dim=-1)
    logits = (z @ z.t() / 0.1).masked_fill(torch.eye(len(x), dtype=torch.bool, device=x.device), -1e9)
    same = (y[:, None] == y[None]).float() - torch.eye(len(x), device=x.device)
    return -((logits.log_softmax(1) * same).sum(1) / same.sum(1).clamp_min(1)).mean()


def quantile_loss(x: Any, y: Any) -> Any:
    q = torch.tensor([0.1, 0.5, 0.9], device=x.device)
    error = y[..., None] - x
    return torch.maximum(q * error, (q - 1) * error).mean()


train("losses/focal", lambda x, y: focal(x, y.to(f32)), T(64, 80), T(64, 80, dtype=torch.bool))
train("losses/multi-dice", multi_dice, T(2, 6, 48, 48), T(2, 48, 48, dtype=i64, low=0, high=5))
train("losses/info-nce", info_nce, T(128, 64), T(128, 64))
case(
    "losses/generalized-iou",
    lambda: (lambda a: Case(generalized_iou, (a, boxes(512)), training=True, leaves=[a]))(boxes(512).requires_grad_()),
)
train("losses/distill", distill, T(64, 1000), T(64, 1000))
train("losses/supervised-contrast", supervised_contrast, T(96, 64), T(96, dtype=i64, low=0, high=7))
train("losses/quantile", quantile_loss, T(64, 48, 3), T(64, 48))
train(
    "losses/smoothed-weighted",
    lambda x, y, w: F.cross_entropy(x, y, w.detach(), label_smoothing=0.1),
    T(256, 50),
    T(256, dtype=i64, low=0, high=49),
    T(50, low=0.5, high=2),
)
train(
    "losses/ctc",
    lambda x, y, n, m: F.ctc_loss(x.log_softmax(-1), y, n, m),
    T(40, 8, 30),
    T(8, 12, dtype=i64, low=1, high=29),
    torch.full((8,), 40),
    torch.full((8,), 10),
    fullgraph=False,
)
train(
    "losses/triplet-hard",
    lambda a, p, n: F.relu((a - p).square().sum(-1) - (a[:, None] - n[None]).square().sum(-1).amin(1) + 0.2).mean(),
    *[T(64, 32)] * 3,
)
train(
    "losses/total-variation",
    lambda x: (x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean(),
    T(2, 3, 96, 96),
)
train(
    "losses/policy-ppo",
    lambda new, old, adv: -torch.min((new - old).exp() * adv, (new - old).exp().clamp(0.8, 1.2) * adv).mean(),
    *[T(2048)] * 3,
)
train(
    "losses/vae",
    lambda x, y, mu, lv: F.mse_loss(x, y) - 0.5 * (1 + lv - mu.square() - lv.exp()).mean(),
    T(64, 784),
    T(64, 784),
    T(64, 32),
    T(64, 32),
)

# Attention and caches


def rotate_half(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def complex_rotary(x: Any, angles: Any) -> Any:
    turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def ring_cache(cache: Any, new: Any, at: Any) -> Any:
    cache[:, :, at % cache.shape[2]] = new
    return cache.mean(2)


def quantized_cache(cache: Any, scale: Any, new: Any, at: Any) -> Any:
    s = new.abs().amax(-1, keepdim=True) / 127
    cache.index_copy_(2, at, torch.round(new / s).to(i8))
    scale.index_copy_(2, at, s)
    return cache.to(f32) * scale


def sliding_window(q: Any, k: Any, v: Any) -> Any:
    at = torch.arange(q.shape[-2], device=q.device)
    gap = at[:, None] - at[None]
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill((gap < 0) | (gap > 32), float("-inf"))
    return scores.softmax(-1) @ v


def soft_capped(q: Any, k: Any, v: Any) -> Any:
    return (50 * torch.tanh(q @ k.mT / 50 * 0.125)).softmax(-1) @ v


infer("cache/rotate-half-training-free", rotate_half, T(2, 8, 64, 64), T(64, 64), T(64, 64))
train("cache/rotate-half-training", rotate_half, T(2, 8, 64, 64), T(64, 64), T(64, 64))
infer("cache/complex-rotary", complex_rotary, T(2, 64, 8, 64), T(64, 1, 32))
infer("cache/ring", ring_cache, T(1, 8, 128, 64), T(1, 8, 1, 64), torch.tensor([130]))
infer("cache/int8", quantized_cache, T(1, 8, 128, 64, dtype=i8), T(1, 8, 128, 1), T(1, 8, 1, 64), torch.tensor([5]))
infer("cache/sliding-window", sliding_window, *[T(1, 4, 128, 32)] * 3)
infer("cache/soft-capped", soft_capped, *[T(1, 4, 128, 64)] * 3)
infer(
    "cache/append-f16",
    lambda c, n: torch.cat((c, n), 2).mean(2),
    T(1, 8, 255, 64, dtype=f16),
    T(1, 8, 1, 64, dtype=f16),
)
infer("cache/rolling-window", lambda c, n: torch.cat((c[:, 1:], n), 1), T(8, 128, 64), T(8, 1, 64))
infer(
    "cache/last-token",
    lambda x, n: x[torch.arange(x.shape[0], device=x.device), n - 1] * 2,
    T(8, 128, 256),
    T(8, dtype=i64, low=1, high=128),
)
infer(
    "cache/beam-reorder", lambda c, o: c.index_select(0, o) + 0, T(8, 8, 64, 64), torch.tensor([3, 3, 0, 1, 7, 6, 6, 2])
)
infer(
    "cache/padding-mask",
    lambda n: (torch.arange(128, device=n.device) < n[:, None])[:, None, None].to(f32).sub(1).mul(1e9),
    T(8, dtype=i64, low=1, high=128),
)
