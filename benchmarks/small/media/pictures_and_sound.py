"""Pictures, sound, boxes and waves, as torchvision, torchaudio and kornia treat them, in several types and layouts."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, bf16, boxes, f16, i64, infer, train, u8

# Pictures


def normalize(x: Any) -> Any:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return x.float().div(255).sub(mean[:, None, None]).div(std[:, None, None])


infer("media/to-tensor-normalize", normalize, T(3, 64, 64, dtype=u8))
infer("media/resize-normalize", lambda x: normalize(F.interpolate(x.float(), (48, 48))), T(1, 3, 64, 64, dtype=u8))
infer(
    "media/resize-antialias",
    lambda x: F.interpolate(x, (32, 32), mode="bilinear", antialias=True).clamp(0, 1),
    T(2, 3, 80, 80, low=0, high=1),
)
infer("media/invert-u8", lambda x: 255 - x, T(3, 96, 96, dtype=u8))
infer("media/posterize", lambda x: x & (256 - 2**4), T(3, 96, 96, dtype=u8))
infer("media/solarize", lambda x: torch.where(x >= 128, 255 - x, x), T(3, 96, 96, dtype=u8))
infer(
    "media/autocontrast",
    lambda x: (
        ((x - x.amin((-2, -1), keepdim=True)) / (x.amax((-2, -1), keepdim=True) - x.amin((-2, -1), keepdim=True)))
        .nan_to_num()
        .clamp(0, 1)
    ),
    T(4, 3, 48, 48, low=0, high=1),
)


def sharpen(x: Any) -> Any:
    kernel = torch.ones(3, 3)
    kernel[1, 1] = 5
    kernel = (kernel / kernel.sum()).expand(3, 1, 3, 3)
    blurred = F.conv2d(x, kernel, groups=3)
    out = x.clone()
    out[..., 1:-1, 1:-1] = blurred
    return (x * 1.5 - 0.5 * out).clamp(0, 1)


infer("media/sharpness", sharpen, T(2, 3, 48, 48, low=0, high=1))


def hue(x: Any) -> Any:
    r, g, b = x.unbind(-3)
    top, low = x.max(-3).values, x.min(-3).values
    same = top == low
    span = top - low
    s = span / torch.where(same, 1.0, top)
    d = torch.where(same, 1.0, span)
    rc, gc, bc = (top - r) / d, (top - g) / d, (top - b) / d
    h = (
        ((top == r) * (bc - gc))
        + (((top == g) & (top != r)) * (2 + rc - bc))
        + ((top != g) & (top != r)) * (4 + gc - rc)
    )
    h = torch.fmod(h / 6 + 1.1, 1)
    i = torch.floor(h * 6)
    f = h * 6 - i
    p, q, t = (top * (1 - s)), (top * (1 - s * f)), (top * (1 - s * (1 - f)))
    i = i.to(torch.int32) % 6
    mask = i.unsqueeze(-3) == torch.arange(6).view(-1, 1, 1)
    table = torch.stack(
        (
            torch.stack((top, q, p, p, t, top), -3),
            torch.stack((t, top, top, q, p, p), -3),
            torch.stack((p, p, t, top, top, q), -3),
        ),
        -4,
    )
    return torch.einsum("...ijk,...xijk->...xjk", mask.to(x.dtype), table)


infer("media/adjust-hue", hue, T(3, 48, 48, low=0, high=1))


def affine_grid(theta: Any, x: Any) -> Any:
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


infer("media/affine-warp", affine_grid, T(2, 2, 3), T(2, 3, 32, 32))
infer(
    "media/warp-nearest",
    lambda x, g: F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=True),
    T(1, 3, 48, 48),
    T(1, 48, 48, 2, low=-1.1, high=1.1),
)
train("media/warp-training", lambda x, g: F.grid_sample(x, g, align_corners=False), T(1, 8, 24, 24), T(1, 24, 24, 2))


def flow_warp(x: Any, flow: Any) -> Any:
    y, z = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    grid = torch.stack((z, y), -1) + flow.permute(0, 2, 3, 1)
    grid = 2 * grid / 31 - 1
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=True)


infer("media/flow-warp", flow_warp, T(1, 16, 32, 32), T(1, 2, 32, 32))


def gaussian_separable(x: Any) -> Any:
    at = torch.arange(7, dtype=torch.float32) - 3
    k = torch.exp(-at.square() / 2)
    k = k / k.sum()
    x = F.pad(x, (3, 3, 3, 3), mode="reflect")
    x = F.conv2d(x, k.view(1, 1, 1, 7).expand(3, 1, 1, 7), groups=3)
    return F.conv2d(x, k.view(1, 1, 7, 1).expand(3, 1, 7, 1), groups=3)


infer("media/gaussian-reflect", gaussian_separable, T(2, 3, 48, 48))
infer("media/median-3", lambda x: F.unfold(x, 3, padding=1).view(3, 9, 32, 32).median(1).values, T(3, 1, 32, 32))
infer("media/dilate-erode", lambda x: -F.max_pool2d(-F.max_pool2d(x, 3, 1, 1), 3, 1, 1), T(2, 1, 64, 64))


def harris(x: Any) -> Any:
    k = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
    dx, dy = F.conv2d(x, k[None, None], padding=1), F.conv2d(x, k.t()[None, None], padding=1)
    xx, yy, xy = (F.avg_pool2d(v, 3, 1, 1) for v in (dx * dx, dy * dy, dx * dy))
    r = xx * yy - xy * xy - 0.04 * (xx + yy).square()
    return r * (r == F.max_pool2d(r, 5, 1, 2))


infer("media/harris", harris, T(1, 1, 64, 64))


def lab(x: Any) -> Any:
    x = torch.where(x > 0.04045, ((x + 0.055) / 1.055).pow(2.4), x / 12.92)
    r, g, b = x[:, 0], x[:, 1], x[:, 2]
    x = 0.412453 * r + 0.357580 * g + 0.180423 * b
    y = 0.212671 * r + 0.715160 * g + 0.072169 * b
    z = 0.019334 * r + 0.119193 * g + 0.950227 * b
    v = torch.stack((x / 0.95047, y, z / 1.08883), 1)
    v = torch.where(v > 0.008856, v.clamp(min=0.008856).pow(1 / 3), 7.787 * v + 4 / 29)
    return torch.stack((116 * v[:, 1] - 16, 500 * (v[:, 0] - v[:, 1]), 200 * (v[:, 1] - v[:, 2])), 1)


infer("media/rgb-to-lab", lab, T(2, 3, 48, 48, low=0, high=1))
infer("media/stack-frames", lambda *x: torch.stack(x).permute(1, 0, 2, 3).float() / 255, *[T(3, 32, 32, dtype=u8)] * 4)
infer(
    "media/five-crop", lambda x: torch.stack((x[..., :24, :24], x[..., -24:, -24:], x[..., 8:32, 8:32])), T(3, 40, 40)
)
infer("media/rot90", lambda x: x.rot90(1, (-2, -1)) * 0.5, T(2, 3, 48, 48))
infer("media/rot90-u8", lambda x: x.rot90(3, (-2, -1)).contiguous(), T(3, 64, 64, dtype=u8))
infer(
    "media/gamma-f16",
    lambda x: (x.clamp(0, 1) ** 2.2 * 255).round().to(u8),
    T(3, 64, 64, dtype=f16),
    tolerance=4e-3,  # powers of half precision differ by a unit from eager's, which may be a step of 255
)
infer("media/nhwc-u8-from-float", lambda x: (x.permute(0, 2, 3, 1) * 255).clamp(0, 255).to(u8), T(2, 3, 48, 48))
infer("media/video-mean", lambda x: x.float().mean((1, 3, 4)), T(2, 8, 3, 24, 24, dtype=u8))
infer(
    "media/vae-decode-image",
    lambda x: ((x / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).float() * 255).round().to(u8),
    T(1, 3, 64, 64, dtype=bf16),
)


def dct(x: Any) -> Any:
    n = torch.arange(8, dtype=torch.float32)
    m = torch.cos(math.pi / 8 * (n[None] + 0.5) * n[:, None])
    blocks = x.unfold(-2, 8, 8).unfold(-2, 8, 8)
    return m @ blocks @ m.t()


infer("media/jpeg-dct", dct, T(1, 64, 64))


def haar(x: Any) -> Any:
    a, b, c, d = x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]
    return torch.cat(((a + b + c + d) / 2, (a + b - c - d) / 2, (a - b + c - d) / 2, (a - b - c + d) / 2), 1)


infer("media/haar", haar, T(2, 3, 48, 48))
infer("media/haar-bf16", haar, T(2, 3, 48, 48, dtype=bf16))
train("media/haar-training", haar, T(2, 3, 48, 48))


def inverse_haar(x: Any) -> Any:
    a, b, c, d = x.chunk(4, 1)
    out = x.new_zeros(2, 3, 48, 48)
    out[..., ::2, ::2], out[..., ::2, 1::2] = (a + b + c + d) / 2, (a + b - c - d) / 2
    out[..., 1::2, ::2], out[..., 1::2, 1::2] = (a - b + c - d) / 2, (a - b - c + d) / 2
    return out


infer("media/inverse-haar", inverse_haar, T(2, 12, 24, 24))


def lifting(x: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    odd = odd - (even + F.pad(even[..., 1:], (0, 1))) * 0.5
    return even + (odd + F.pad(odd[..., :-1], (1, 0))) * 0.25, odd


infer("media/lifting-5-3", lifting, T(4, 1024))


# Boxes


def iou(a: Any, b: Any) -> Any:
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    wh = (high - low).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area_a[:, None] + area_b - inter)


def greedy_nms(b: Any, s: Any) -> Any:
    order = s.argsort(descending=True)
    over = iou(b[order], b[order]) > 0.5
    keep = torch.ones(16, dtype=torch.bool)
    for i in range(16):
        keep = keep & ~(over[i] & keep[i] & (torch.arange(16) > i))
    return order, keep


infer("media/nms-loop", greedy_nms, boxes(16), T(16, low=0, high=1))


def distance_iou(a: Any, b: Any) -> Any:
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    union = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - inter + 1e-7
    wide = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).square().sum(-1)
    centers = ((a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]) / 2).square().sum(-1)
    return (1 - inter / union + centers / (wide + 1e-7)).mean()


infer("media/diou", distance_iou, boxes(128), boxes(128))
train("media/diou-training", distance_iou, boxes(128), boxes(128))
infer(
    "media/masks-to-boxes",
    lambda m: (
        torch.where(m.any(1), torch.arange(32), 99).amin(1),
        torch.where(m.any(1), torch.arange(32), -1).amax(1),
        m.sum((1, 2)),
    ),
    T(16, 32, 32, dtype=torch.bool),
)
infer(
    "media/clip-boxes",
    lambda b: torch.stack((b[..., 0::2].clamp(0, 1.2), b[..., 1::2].clamp(0, 1.1)), -1).reshape(-1, 4),
    boxes(200),
)


def encode(reference: Any, proposal: Any) -> Any:
    w, h = proposal[:, 2] - proposal[:, 0], proposal[:, 3] - proposal[:, 1]
    rw, rh = reference[:, 2] - reference[:, 0], reference[:, 3] - reference[:, 1]
    dx = 10 * (reference[:, 0] + 0.5 * rw - proposal[:, 0] - 0.5 * w) / w
    dy = 10 * (reference[:, 1] + 0.5 * rh - proposal[:, 1] - 0.5 * h) / h
    return torch.stack((dx, dy, 5 * torch.log(rw / w), 5 * torch.log(rh / h)), 1)


infer("media/encode-boxes", encode, boxes(500), boxes(500))


def paste_masks(m: Any, b: Any) -> Any:
    x0, y0, x1, y1 = b.split(1, 1)
    y = (torch.arange(32.0) + 0.5 - y0) / (y1 - y0) * 2 - 1
    x = (torch.arange(32.0) + 0.5 - x0) / (x1 - x0) * 2 - 1
    grid = torch.stack((x[:, None, :].expand(-1, 32, 32), y[:, :, None].expand(-1, 32, 32)), 3)
    return F.grid_sample(m[:, None], grid, align_corners=False)[:, 0] > 0.5


infer("media/paste-masks", paste_masks, T(8, 14, 14, low=0, high=1), boxes(8))
infer(
    "media/fpn-merge",
    lambda a, b: a + F.interpolate(b, scale_factor=2.0, mode="nearest"),
    T(1, 32, 32, 32),
    T(1, 32, 16, 16),
)
infer("media/panoptic-argmax", lambda m, c: (c[:, None, None] * m.sigmoid()).argmax(0), T(20, 32, 32), T(20))
infer("media/mask-iou", lambda a, b: (a.float() @ b.float().t()) / 256, *[T(16, 256, dtype=torch.bool)] * 2)


# Sound


def power_to_db(x: Any) -> Any:
    db = 10 * torch.log10(x.clamp(min=1e-10))
    return torch.max(db, db.amax((-2, -1), keepdim=True) - 80)


infer("media/power-to-db", power_to_db, T(2, 80, 100, low=0, high=4))


def whisper_features(x: Any, window: Any, mel: Any) -> Any:
    power = torch.stft(x, 64, 32, window=window, return_complex=True)[..., :-1].abs() ** 2
    log = (mel @ power).clamp(min=1e-10).log10()
    return (torch.maximum(log, log.max() - 8.0) + 4) / 4


infer("media/whisper-features", whisper_features, T(1600), T(64, low=0, high=1), T(20, 33, low=0, high=1))


def wav2vec_normalize(x: Any, lengths: Any) -> Any:
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]
    mean = (x * mask).sum(1, keepdim=True) / lengths[:, None]
    var = ((x - mean).square() * mask).sum(1, keepdim=True) / lengths[:, None]
    return torch.where(mask, (x - mean) / torch.sqrt(var + 1e-7), 0.0)


infer("media/wave-normalize", wav2vec_normalize, T(4, 2000), T(4, dtype=i64, low=500, high=2000))


def biquad_block(x: Any) -> Any:
    out = []
    y1 = y2 = torch.zeros_like(x[0])
    for i in range(2, 18):
        y = 0.1 * x[i] + 0.2 * x[i - 1] + 0.1 * x[i - 2] + 0.5 * y1 - 0.2 * y2
        out.append(y)
        y1, y2 = y, y1
    return torch.stack(out)


infer("media/biquad", biquad_block, T(18, 64))
infer(
    "media/fft-convolve",
    lambda x, h: torch.fft.irfft(torch.fft.rfft(x, 1024) * torch.fft.rfft(h, 1024), 1024)[..., :768],
    T(4, 512),
    T(257),
)
infer("media/spectral-flatness", lambda x: torch.fft.rfft(x).abs().add(1e-6).log().mean(-1).exp(), T(16, 256))
infer("media/phase-difference", lambda x: torch.fft.rfft(x).angle().diff(dim=0), T(16, 256))
infer("media/fftshift", lambda x: torch.fft.fftshift(torch.fft.fft2(x).abs().log1p()), T(64, 64))


def resample_linear(x: Any) -> Any:
    at = torch.arange(600, dtype=torch.float32) * (999 / 599)
    low = at.floor().long().clamp(max=998)
    w = at - low
    return x[:, low] * (1 - w) + x[:, low + 1] * w


infer("media/resample-linear", resample_linear, T(4, 1000))
infer(
    "media/mu-law-decode",
    lambda x: ((x.float() / 255 * 2 - 1).abs() * math.log1p(255.0)).expm1() / 255,
    T(8000, dtype=u8),
)


def pitch_autocorrelation(x: Any) -> Any:
    frames = x.unfold(-1, 64, 32)
    spectrum = torch.fft.rfft(frames, 128)
    r = torch.fft.irfft(spectrum * spectrum.conj())[..., :64]
    return (r / r[..., :1].clamp(min=1e-6))[..., 8:].max(-1)


infer("media/pitch", pitch_autocorrelation, T(1, 1600))
infer("media/goertzel", lambda x, c: (x.unfold(0, 32, 16) @ c).square().sum(-1), T(2000), T(32, 2))
infer("media/loudness-gate", lambda x: torch.where(x.square().mean(-1, keepdim=True) > 0.9, x, 0.0), T(64, 400))
infer("media/stereo-to-mono-i16", lambda x: x.float().mean(0) / 32768, T(2, 8000, dtype=torch.int16))
infer(
    "media/time-mask",
    lambda x, a, b: x.masked_fill((torch.arange(100) >= a) & (torch.arange(100) < b), 0.0),
    T(2, 80, 100),
    torch.tensor(20),
    torch.tensor(40),
)


def vocoder_snake(x: Any, a: Any) -> Any:
    return x + (a + 1e-9).reciprocal() * torch.sin(x * a).pow(2)


infer("media/snake", vocoder_snake, T(1, 32, 512), T(1, 32, 1, low=0.5, high=1))
train("media/snake-training", vocoder_snake, T(1, 32, 512), T(1, 32, 1, low=0.5, high=1))
