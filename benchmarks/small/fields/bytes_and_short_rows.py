"""Pictures of bytes whose channels lie side by side, short rows, transforms, and steps of training around them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i64, infer, module, train, u8


def _use(name, function, *inputs, **options):
    infer(f"short/{name}", function, *inputs, **options)


def _learn(name, function, *inputs, **options):
    train(f"short/{name}/train", function, *inputs, **options)


def _both(name, function, *inputs, **options):
    _use(name, function, *inputs, **options)
    _learn(name, function, *inputs, **options)


# Pictures of bytes

_PICTURES = T(2, 90, 110, 3, dtype=u8)


def _planes(x):
    return x.permute(0, 3, 1, 2)


def _resized(x, size):
    return F.interpolate(_planes(x).float() / 255, size=size, mode="bilinear")


def _cropped(x, mean, scale):
    part = _planes(x[:, 11:81, 7:97].flip(2)).float() / 255
    return F.interpolate((part - mean[:, None, None]) / scale[:, None, None], size=(64, 64), mode="bilinear")


def _by_hand(x, ys, xs):
    top, left = ys.floor().long(), xs.floor().long()
    y, z = (ys - top)[:, None, None], (xs - left)[:, None]
    rows = x.float()
    above, below = rows[:, top], rows[:, top + 1]
    above, below = (r[:, :, left] * (1 - z) + r[:, :, left + 1] * z for r in (above, below))
    return above * (1 - y) + below * y


def _over(a, b):
    share = a[..., 3:].float() / 255
    return (a[..., :3].float() * share + b.float() * (1 - share)).round().to(u8)


def _moved(x, flow):
    height, width = flow.shape[1:3]
    across = (torch.arange(width) + flow[..., 0]) / (width - 1) * 2 - 1
    down = (torch.arange(height)[:, None] + flow[..., 1]) / (height - 1) * 2 - 1
    return F.grid_sample(_planes(x).float(), torch.stack((across, down), -1), align_corners=True)


_use("resize-down", lambda x: _resized(x, (40, 40)), _PICTURES)
_use("resize-up", lambda x: _resized(x, (150, 160)), _PICTURES)
_use("resize-tiny", lambda x: _resized(x, (17, 19)), _PICTURES)
_use("resize-half", lambda x: F.interpolate(_planes(x).half(), size=(60, 73), mode="bilinear") / 255, _PICTURES)
_use("resize-bytes", lambda x: (_resized(x, (60, 73)) * 255).round().clamp(0, 255).to(u8), _PICTURES, tolerance=1e-2)
_use("resize-few-channels", lambda x: F.interpolate(x.relu(), scale_factor=2, mode="bilinear", align_corners=True),
     T(2, 4, 35, 37, layout="channels_last"))  # fmt: skip
_use("crop-flip-resize", _cropped, _PICTURES, T(3, low=0.4, high=0.5), T(3, low=0.2, high=0.3))
_use("letterbox", lambda x: F.pad(_resized(x, (60, 73)), (3, 4, 10, 10), value=0.447), _PICTURES)
_use("bilinear-by-hand", _by_hand, _PICTURES, T(50, low=0, high=88), T(61, low=0, high=108))
_use("nearest", lambda x: F.interpolate(_planes(x).float() / 255, size=(128, 141), mode="nearest"), _PICTURES)
_use("over", _over, T(120, 130, 4, dtype=u8), T(120, 130, 3, dtype=u8))
_use("palette", lambda p, at: p[at.int()], T(21, 3, dtype=u8), T(3, 70, 80, dtype=u8, low=0, high=20))
_use("palette-planes", lambda p, at: p[at.long()].float().div(255).permute(2, 0, 1),
     T(256, 3, dtype=u8), T(120, 130, dtype=u8))  # fmt: skip
_use("moved", _moved, _PICTURES, T(2, 90, 110, 2))
_use("quarter-turn", lambda x: torch.rot90(x, 1, (1, 2)).float() / 255, _PICTURES)
_use("other-order", lambda x, m: _planes(x[..., [2, 1, 0]]).float() - m[:, None, None], _PICTURES, T(3))
_use("tiles", lambda x: x[:, :88, :104].unflatten(1, (11, 8)).unflatten(3, (13, 8)).float().mean((2, 4)), _PICTURES)
_use("equal-parts", lambda x: F.adaptive_avg_pool2d(_planes(x).float() / 255, (14, 13)), _PICTURES)
_use("channel-statistics", lambda x: torch.std_mean(x.float() / 255, (0, 1, 2)), _PICTURES)
_use("poster", lambda x: torch.where(x >= 128, 255 - x, x & 0xE0).flip(-1), _PICTURES)
_use("frames", lambda x: (x[1:].float() - x[:-1].float()).abs().mean(-1) > 25, T(6, 50, 60, 3, dtype=u8))


# Short rows


def _route(x):
    best, _ = x.topk(2, -1)
    return best.softmax(-1)


def _straight(x):
    chances = x.softmax(-1)
    return F.one_hot(x.argmax(-1), x.shape[-1]) - chances.detach() + chances


for _n, _c in ((3000, 2), (1000, 5), (256, 10)):
    _both(f"softmax-{_n}-{_c}", lambda x: x.softmax(-1), T(_n, _c))
    _both(f"log-softmax-{_n}-{_c}", lambda x: x.log_softmax(-1), T(_n, _c))
_both("softmax-pixels", lambda x: x.softmax(-1), T(2, 70, 80, 3))
_both("unit-pixels", lambda x: F.normalize(x, dim=-1), T(2, 70, 80, 3))
_both("classes", F.cross_entropy, T(501, 10), T(501, dtype=i64, low=0, high=9))
_both("classes-bf16", F.cross_entropy, T(501, 10, dtype=bf16), T(501, dtype=i64, low=0, high=9))
_both("mixture-f16", lambda x, e: torch.einsum("nk,nkd->nd", x.softmax(-1), e),
      T(301, 4, dtype=f16), T(301, 4, 24, dtype=f16))  # fmt: skip
_both("eight-heads", lambda x: x.unflatten(-1, (8, 6)).softmax(-1).flatten(-2), T(301, 48))
_both("norm-6", lambda x, w, b: F.gelu(F.layer_norm(x, (6,), w, b)), T(2001, 6), T(6), T(6))
_both("layer-norm-3", lambda x, w, b: F.layer_norm(x, (3,), w, b), T(9000, 3), T(3), T(3))
_both("sums-3", lambda x: x.sum(-1), T(9000, 3))
_both("straight-through", _straight, T(777, 5))
_both("entropy", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1).mean(), T(999, 7))
_both("sort-4", lambda x: x.sort(-1).values, T(501, 4))
_both("median-5", lambda x: x.median(-1).values, T(501, 5))
_both("route", _route, T(501, 8))
_both("gated", lambda x: F.glu(x, -1), T(101, 66))
_both("gated-4", lambda x: F.glu(x, -1), T(4000, 8))
_both("groups-of-4", lambda x: F.group_norm(x, 2), T(500, 4, 8))
_both("running-5", lambda x: x.cumsum(-1).tanh(), T(2001, 5))


# Transforms


def _spectra(a, b):
    total = 0
    for size in (64, 128):
        window = torch.hann_window(size)
        of = (torch.stft(x, size, size // 4, window=window, return_complex=True) for x in (a, b))
        a_, b_ = (each.abs().clamp(min=1e-5) for each in of)
        total = total + (a_ - b_).norm() / b_.norm() + (a_.log() - b_.log()).abs().mean()
    return total


def _few_waves(x, w):
    known = torch.fft.rfft2(x)
    made = torch.zeros(x.shape[0], w.shape[1], x.shape[2], x.shape[3] // 2 + 1, dtype=known.dtype)
    made[..., :6, :6] = torch.einsum("bixy,ioxy->boxy", known[..., :6, :6], torch.view_as_complex(w))
    return torch.fft.irfft2(made, s=x.shape[-2:])


_learn("spectra", _spectra, T(2, 1000), T(2, 1000), tolerance=5e-3)
_both("few-waves", _few_waves, T(2, 5, 24, 24), T(5, 7, 6, 6, 2), tolerance=2e-3)
_both("long-convolution",
      lambda u, k: torch.fft.irfft(torch.fft.rfft(u, n=256) * torch.fft.rfft(k, n=256), n=256)[..., :128],
      T(3, 8, 128), T(8, 128), tolerance=1e-3)  # fmt: skip


# Steps


def _decayed(p, e):
    return e.mul_(0.999).add_(p, alpha=0.001)


def _rays(x, depth, color):
    apart = F.pad(depth[:, 1:] - depth[:, :-1], (0, 1), value=1e3)
    opaque = 1 - torch.exp(-F.relu(x) * apart)
    weight = opaque * F.pad((1 - opaque + 1e-10).cumprod(-1)[:, :-1], (1, 0), value=1.0)
    return (weight[..., None] * color.sigmoid()).sum(1), (weight * depth).sum(1)


def _products_of_bytes(x, w, scale):
    own = x.abs().amax(-1, True) / 127
    return torch._int_mm((x / own).round().to(i8), w).float() * own * scale


class _Classified(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.recurrent, self.out = kind(19, 40, batch_first=True), nn.Linear(40, 7)

    def forward(self, x):
        return self.out(self.recurrent(x)[0][:, -1])


for _kind in (nn.LSTM, nn.GRU, nn.RNN):
    _name = _kind.__name__.lower()
    module(f"short/classified-{_name}", lambda _kind=_kind: _Classified(_kind), T(9, 13, 19))
    module(f"short/classified-{_name}/train", lambda _kind=_kind: _Classified(_kind), T(9, 13, 19), training=True)
_use("decayed", _decayed, T(64, 33), T(64, 33))
_both("rays", _rays, T(40, 24), T(40, 24, low=1, high=2), T(40, 24, 3))
_use("products-of-bytes", _products_of_bytes, T(33, 64), T(64, 96, dtype=i8), T(96), tolerance=1e-2)
_use("log-steps", lambda x: x.sign() * torch.exp2(torch.round(torch.log2(x.abs().clamp(min=1e-8)))), T(91, 77))
_both("smallest-loss", lambda x: torch.logsumexp(x * math.pi, 1) / math.pi, T(301, 13))
