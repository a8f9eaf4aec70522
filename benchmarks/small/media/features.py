"""What is read out of sound and pictures before a model sees them, and what augments them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i32, i64, infer, train, u8


def f(name: str, function: Any, *inputs: Any, **options: Any) -> None:
    infer("feature/" + name, function, *inputs, **options)


# Sound

f("chroma", lambda x, m: F.normalize(m @ x.abs().square(), dim=1, p=float("inf")), T(2, 257, 61), T(12, 257, low=0.0,
  high=1.0))  # fmt: skip
f("cepstrum", lambda x: _dct(torch.log(x + 1e-6))[..., :13], T(3, 99, 40, low=0.0, high=4.0))


def _dct(x: Any) -> Any:
    n = x.shape[-1]
    k = torch.arange(n, dtype=x.dtype)
    return x @ (math.pi / n * (k[:, None] + 0.5) * k).cos()


def yin(x: Any) -> Any:
    frames = x.unfold(-1, 256, 64)
    lagged = torch.stack([(frames[:, :128] - frames[:, k : k + 128]).square().sum(-1) for k in range(1, 60)], -1)
    scaled = lagged * torch.arange(1, 60) / lagged.cumsum(-1).clamp(min=1e-6)
    return scaled.argmin(-1) + 1


f("yin", yin, T(4000))
f("flux", lambda x: F.relu(x[:, 1:] - x[:, :-1]).sum(-1), T(7, 131, 257, low=0.0, high=1.0))
f("rolloff", lambda x: (x.cumsum(-1) < 0.85 * x.sum(-1, keepdim=True)).sum(-1), T(203, 257, low=0.0, high=1.0))
f("flatness", lambda x: x.log().mean(-1).exp() / x.mean(-1), T(203, 257, low=0.01, high=1.0))
f("pcen", lambda x: _pcen(x), T(2, 40, 50, low=0.0, high=1.0))


def _pcen(x: Any) -> Any:
    m, found = x[:, :, 0], []
    for t in range(50):
        m = 0.96 * m + 0.04 * x[:, :, t]
        found.append((x[:, :, t] / (1e-6 + m) ** 0.98 + 2) ** 0.5 - 2**0.5)
    return torch.stack(found, -1)


f("wiener-gain", lambda y, n: y * (1 - (n / y.clamp(min=1e-3)).square()).clamp(min=0.1), T(100, 257, low=0.0, high=1.0),
  T(257, low=0.0, high=0.3))  # fmt: skip
f("stereo-to-mid-side", lambda x: torch.stack((x[0] + x[1], x[0] - x[1])) * 0.5, T(2, 16001))
f("soft-clip", lambda x: torch.tanh(2 * x) / math.tanh(2), T(1, 22051))
f("pcm24", lambda b: _pcm24(b.to(i32)), T(5000, 3, dtype=u8))


def _pcm24(b: Any) -> Any:
    value = b[:, 0] | (b[:, 1] << 8) | (b[:, 2] << 16)
    return torch.where(value >= 1 << 23, value - (1 << 24), value).float() / (1 << 23)


f("a-law-decode", lambda x: _a_law(x.to(i32) ^ 0x55), T(8000, dtype=u8))


def _a_law(x: Any) -> Any:
    exponent, mantissa = (x >> 4) & 7, x & 15
    size = torch.where(exponent > 0, (mantissa * 2 + 33) << (exponent - 1).clamp(min=0), mantissa * 2 + 1)
    return torch.where((x & 128) > 0, size, -size).float() / 4096


f("comb-feedback", lambda x: _comb(x), T(3, 16, 100))


def _comb(x: Any) -> Any:
    y = [x[:, 0]]
    for k in range(1, 16):
        y.append(x[:, k] + 0.7 * y[-1])
    return torch.cat(y, -1)


f("resample-3-2", lambda x, w: F.conv1d(F.pad(x, (8, 8)), w, stride=2).transpose(1, 2).reshape(2, -1), T(2, 1, 4001),
  T(3, 1, 17))  # fmt: skip
f("spectral-gate-bf16", lambda x: torch.where(x > x.mean(-1, keepdim=True) * 1.5, x, x * 0.1),
  T(257, 201, dtype=bf16, low=0.0, high=1.0))  # fmt: skip

# Pictures

k3 = torch.tensor([[1.0, 2, 1], [0, 0, 0], [-1, -2, -1]])


def harris(x: Any) -> Any:
    g = F.conv2d(x, torch.stack((k3, k3.t()))[:, None], padding=1)
    products = torch.stack((g[:, 0] ** 2, g[:, 1] ** 2, g[:, 0] * g[:, 1]), 1)
    a, b, c = F.avg_pool2d(products, 5, 1, 2).unbind(1)
    r = a * b - c * c - 0.05 * (a + b) ** 2
    return (r == F.max_pool2d(r[:, None], 3, 1, 1)[:, 0]) & (r > 0.01)


f("harris", harris, T(1, 1, 121, 97, low=0.0, high=1.0))


def local_patterns(x: Any) -> Any:
    p = F.pad(x.float()[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    code = torch.zeros(x.shape, dtype=u8)
    for n, (i, j) in enumerate([(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]):
        code = code | ((p[i : i + x.shape[0], j : j + x.shape[1]] >= x).to(u8) << n)
    return code


f("local-patterns", local_patterns, T(113, 91, dtype=u8))


def gradients_by_angle(x: Any) -> Any:
    dx, dy = x[:, 1:-1, 2:] - x[:, 1:-1, :-2], x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    size, angle = torch.hypot(dx, dy), torch.atan2(dy, dx) % math.pi
    bins = (angle * (9 / math.pi)).long().clamp(max=8)
    return F.avg_pool2d((F.one_hot(bins, 9) * size[..., None]).permute(0, 3, 1, 2), 8)


f("gradients-by-angle", gradients_by_angle, T(2, 66, 66))


def thin(x: Any) -> Any:
    dx, dy = F.conv2d(x, k3.t()[None, None], padding=1), F.conv2d(x, k3[None, None], padding=1)
    size = torch.hypot(dx, dy)
    flat = dx.abs() > dy.abs()
    before = torch.where(flat, F.pad(size, (1, 0))[..., :-1], F.pad(size, (0, 0, 1, 0))[..., :-1, :])
    after = torch.where(flat, F.pad(size, (0, 1))[..., 1:], F.pad(size, (0, 0, 0, 1))[..., 1:, :])
    return torch.where((size >= before) & (size >= after), size, 0.0)


f("thin-edges", thin, T(1, 1, 101, 103))


def jpeg_blocks(x: Any, table: Any) -> Any:
    n = torch.arange(8.0)
    basis = ((2 * n[None] + 1) * n[:, None] * math.pi / 16).cos() * torch.where(n[:, None] == 0, 0.35355, 0.5)
    blocks = x.view(15, 8, 13, 8).transpose(1, 2) - 128
    return (((basis @ blocks @ basis.t()) / table).round() * table).to(torch.int16)


f("jpeg-blocks", jpeg_blocks, T(120, 104, low=0.0, high=255.0), T(8, 8, low=5.0, high=50.0))
f("gamma-u8", lambda x: ((x / 255.0) ** 0.45 * 255 + 0.5).to(u8), T(3, 71, 73, dtype=u8))
f("white-balance", lambda x: (x.float() * (x.float().mean() / x.float().mean((0, 1)))).clamp(0, 255).to(u8),
  T(79, 83, 3, dtype=u8))  # fmt: skip
f("posterize", lambda x: x & 0xE0, T(79, 83, 3, dtype=u8))
f("solarize", lambda x: torch.where(x < 128, x, 255 - x), T(79, 83, 3, dtype=u8))
f("sepia", lambda x: (x @ torch.tensor([[0.393, 0.349, 0.272], [0.769, 0.686, 0.534], [0.189, 0.168, 0.131]])).clamp(
  max=1), T(101, 103, 3, low=0.0, high=1.0))  # fmt: skip
f("shear", lambda x: F.grid_sample(x, F.affine_grid(torch.tensor([[[1, 0.2, 0], [0, 1, 0.0]]]), [1, 3, 67, 71]),
  mode="nearest"), T(1, 3, 67, 71))  # fmt: skip
f("cut-mix", lambda x, y: torch.cat((x[..., :17], y[..., 17:40], x[..., 40:]), -1), *[T(5, 3, 61, 59)] * 2)
f("gray-world-cl", lambda x: x / x.mean((2, 3), keepdim=True), T(3, 3, 59, 61, layout="channels_last", low=0.1, high=1))
f("warp-by-flow", lambda x, v: _warp(x, v), T(1, 3, 47, 53), T(1, 2, 47, 53))


def _warp(x: Any, v: Any) -> Any:
    y0, x0 = torch.meshgrid(torch.arange(47.0), torch.arange(53.0), indexing="ij")
    at = torch.stack(((x0 + v[:, 0]) / 26 - 1, (y0 + v[:, 1]) / 23 - 1), -1)
    return F.grid_sample(x, at, align_corners=True, padding_mode="border")


train("feature/warp-train", lambda x, v: _warp(x, v).square().mean(), T(1, 3, 47, 53), T(1, 2, 47, 53))
f("census-cost", lambda a, b: _census(a, b), T(41, 67, dtype=u8), T(41, 67, dtype=u8))


def _census(a: Any, b: Any) -> Any:
    codes = [sum(((x[1 + i : 40 + i, 1 + j : 66 + j] > x[1:-1, 1:-1]).int() << (3 * (i + 1) + j + 1))
                 for i in (-1, 0, 1) for j in (-1, 0, 1)) for x in (a, b)]  # fmt: skip
    costs = []
    for d in range(6):
        diff = codes[0][:, d:] ^ codes[1][:, : 65 - d]
        costs.append(F.pad(sum((diff >> k) & 1 for k in range(9)), (d, 0), value=9))
    return torch.stack(costs).argmin(0)


f("distance-to-seeds", lambda p: _nearest(p), T(11, 2, low=0.0, high=60.0))


def _nearest(p: Any) -> Any:
    y, x = torch.arange(59.0), torch.arange(61.0)
    d = (y[None, :, None] - p[:, 0, None, None]) ** 2 + (x[None, None] - p[:, 1, None, None]) ** 2
    return d.amin(0).sqrt(), d.argmin(0)


f("f16-tiles-blended", lambda x, w: F.fold(x * w, (40, 40), (16, 16), stride=8), T(1, 3 * 256, 16, dtype=f16),
  T(1, 768, 1, dtype=f16))  # fmt: skip
f("palette", lambda x, t: t[x.long()].permute(2, 0, 1).float() / 255, T(83, 89, dtype=u8), T(256, 3, dtype=u8))
f("keypoint-offsets", lambda h, o, i: torch.gather(o.flatten(2), 2, i[:, None].expand(-1, 2, -1)) + torch.stack(
  (i % 40, i // 40), 1), T(2, 5, 30, 40), T(2, 2, 30, 40), T(2, 17, dtype=i64, low=0, high=1199))  # fmt: skip
