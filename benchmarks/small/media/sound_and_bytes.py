"""Pieces of code about sound, detection, images as bytes and half precision on the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, boxes, case, f16, i32, i64, infer, module, train, u8

# Sound


def mel(x, window, bank):
    spectrum = torch.stft(x, 256, 80, 256, window=window, return_complex=True, center=True)
    power = spectrum[..., :-1].abs() ** 2
    log = torch.clamp(bank @ power, min=1e-10).log10()
    return (torch.maximum(log, log.amax((-2, -1), keepdim=True) - 8.0) + 4.0) / 4.0


def fbank(x, window, bank):
    frames = x.unfold(-1, 200, 80)
    frames = frames - frames.mean(-1, keepdim=True)
    previous = F.pad(frames[None], (1, 0), mode="replicate")[0, ..., :-1]
    frames = (frames - 0.97 * previous) * window
    power = torch.fft.rfft(F.pad(frames, (0, 56))).abs().square()
    return (power @ bank).clamp(min=1.1921e-07).log()


def istft(real, imaginary, window):
    return torch.istft(torch.complex(real, imaginary), 128, 32, 128, window)


def rms_frames(x):
    return x.unfold(-1, 256, 64).square().mean(-1).add(1e-10).sqrt().log10() * 20


def snake_beta(x, alpha, beta):
    return x + (1.0 / (beta.exp()[None, :, None] + 1e-9)) * torch.sin(x * alpha.exp()[None, :, None]).pow(2)


def flow_spline(x, widths, heights):
    w = widths.softmax(-1) * 0.9 + 0.01
    h = heights.softmax(-1) * 0.9 + 0.01
    cw = F.pad(w.cumsum(-1), (1, 0)) * 2 - 1
    ch = F.pad(h.cumsum(-1), (1, 0)) * 2 - 1
    at = (x[..., None] >= cw[..., :-1]).sum(-1, keepdim=True) - 1
    at = at.clamp(0, w.shape[-1] - 1)
    left, low = cw.gather(-1, at)[..., 0], ch.gather(-1, at)[..., 0]
    return low + (x - left) / w.gather(-1, at)[..., 0] * h.gather(-1, at)[..., 0]


def length_regulate(x, durations):
    ends = durations.cumsum(-1)
    frames = torch.arange(96)
    at = (frames[None, :, None] >= ends[:, None, :]).sum(-1).clamp(max=x.shape[1] - 1)
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[2]))


def residual_quantize(x, books):
    rest, total, codes = x, torch.zeros_like(x), []
    for book in books:
        distance = -(rest.square().sum(-1, keepdim=True) - 2 * rest @ book.t() + book.square().sum(-1))
        code = distance.argmax(-1)
        found = F.embedding(code, book)
        rest, total = rest - found, total + found
        codes.append(code)
    return total, torch.stack(codes)


def finite_scalar(z, levels):
    half = (levels - 1) * 0.5 * 1.001
    bounded = torch.tanh(z) * half
    rounded = bounded + (bounded.round() - bounded).detach()
    return rounded / (levels // 2)


class HifiBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Conv1d(32, 32, 3, padding=d, dilation=d) for d in (1, 3, 5))
        self.second = nn.ModuleList(nn.Conv1d(32, 32, 3, padding=1) for _ in range(3))

    def forward(self, x):
        for a, b in zip(self.first, self.second, strict=True):
            x = x + b(F.leaky_relu(a(F.leaky_relu(x, 0.1)), 0.1))
        return x


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = nn.ModuleList(nn.Conv1d(32, 64, 5, padding=2) for _ in range(3))
        self.out = nn.ModuleList(nn.Conv1d(32, 64, 1) for _ in range(3))

    def forward(self, x, mask):
        total = torch.zeros_like(x)
        for a, b in zip(self.into, self.out, strict=True):
            t, s = a(x).chunk(2, 1)
            residual, skip = b(torch.tanh(t) * torch.sigmoid(s)).chunk(2, 1)
            x, total = (x + residual) * mask, total + skip
        return total * mask


class CausalUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(32, 16, 8, stride=4)

    def forward(self, x):
        return F.elu(self.conv(x)[..., :-4])


class ConformerConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first = nn.LayerNorm(64), nn.Conv1d(64, 128, 1, bias=False)
        self.depthwise, self.bn = nn.Conv1d(64, 64, 15, padding=7, groups=64, bias=False), nn.BatchNorm1d(64)
        self.second = nn.Conv1d(64, 64, 1, bias=False)

    def forward(self, x):
        y = F.glu(self.first(self.norm(x).transpose(1, 2)), dim=1)
        return x + self.second(F.silu(self.bn(self.depthwise(y)))).transpose(1, 2)


infer("extract/audio/mel", mel, T(1, 8000), T(256), T(40, 129))
infer("extract/audio/fbank", fbank, T(8000), T(200), T(129, 40))
infer("extract/audio/istft", istft, T(1, 65, 60), T(1, 65, 60), T(128, low=0.5, high=1))
infer("extract/audio/rms", rms_frames, T(2, 8000))
infer("extract/audio/snake-beta", snake_beta, T(2, 64, 512), T(64), T(64))
train("extract/audio/snake-beta-training", snake_beta, T(2, 64, 512), T(64), T(64))
infer("extract/audio/spline", flow_spline, T(2, 200, low=-1, high=1), T(2, 200, 10), T(2, 200, 10))
train("extract/audio/spline-training", flow_spline, T(2, 200, low=-1.0, high=1.0), T(2, 200, 10), T(2, 200, 10))
infer("extract/audio/length-regulator", length_regulate, T(2, 24, 64), T(2, 24, dtype=i64, low=1, high=6))
case(
    "extract/audio/residual-quantizer",
    lambda: Case(residual_quantize, (torch.randn(2, 75, 32), [torch.randn(128, 32) for _ in range(4)])),
)
train("extract/audio/finite-scalar-training", finite_scalar, T(2, 100, 4), torch.tensor([8, 5, 5, 5]))
for name, make, inputs in (
    ("hifigan", HifiBlock, (T(1, 32, 256),)),
    ("wavenet", WaveNet, (T(1, 32, 128), T(1, 1, 128, low=0, high=1))),
    ("causal-upsample", CausalUp, (T(1, 32, 128),)),
    ("conformer-conv", ConformerConv, (T(2, 64, 64),)),
):
    module(f"extract/audio/{name}", make, *inputs)
    module(f"extract/audio/{name}-training", make, *inputs, training=True)
infer("extract/audio/encodec-pad", lambda x: F.pad(x, (5, 3), mode="reflect")[..., ::2], T(1, 32, 400))
infer(
    "extract/audio/feature-normalize",
    lambda x, m: (x - (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True)) * m,
    T(2, 200, 80),
    T(2, 200, 1, dtype=torch.bool),
)
infer(
    "extract/audio/ctc-collapse",
    lambda x: (
        x.argmax(-1),
        (F.pad(x.argmax(-1)[:, 1:] != x.argmax(-1)[:, :-1], (1, 0), value=True) & (x.argmax(-1) != 0)).sum(-1),
    ),
    T(2, 200, 32),
)

# Detection


def corners(x):
    cx, cy, w, h = x.unbind(-1)
    return torch.stack((cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h), -1)


def giou(a, b):
    top, bottom = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (bottom - top).clamp(min=0).prod(-1)
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])  # noqa: E731
    union = area(a)[:, None] + area(b) - inter
    hull = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).clamp(min=0).prod(-1)
    return inter / union - (hull - union) / hull


def detr_cost(logits, found, targets, labels):
    p = logits.sigmoid()
    negative = 0.75 * p**2 * -(1 - p + 1e-8).log()
    positive = 0.25 * (1 - p) ** 2 * -(p + 1e-8).log()
    cost = positive[:, labels] - negative[:, labels]
    return 5 * torch.cdist(found, targets, p=1) + 2 * cost - 2 * giou(corners(found), corners(targets))


def postprocess(logits, found, size):
    p = logits.sigmoid()
    scores, index = torch.topk(p.view(p.shape[0], -1), 50, dim=1)
    at = torch.div(index, p.shape[2], rounding_mode="floor")
    chosen = corners(found).gather(1, at[..., None].repeat(1, 1, 4))
    return scores, index % p.shape[2], chosen * size.repeat(1, 2)[:, None]


def fast_nms(b, scores):
    order = scores.argsort(descending=True)
    b = b[order]
    top, bottom = torch.maximum(b[:, None, :2], b[None, :, :2]), torch.minimum(b[:, None, 2:], b[None, :, 2:])
    inter = (bottom - top).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    overlap = (inter / (area[:, None] + area[None] - inter)).triu(1)
    return order, overlap.amax(0) <= 0.5


def distribution_to_distance(x, project):
    b, n, _ = x.shape
    return x.view(b, n, 4, 17).softmax(-1).matmul(project)


def rtdetr_anchors(sizes):
    out = []
    for level, (h, w) in enumerate(sizes):
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        xy = (torch.stack((x, y), -1) + 0.5) / torch.tensor([w, h])
        out.append(torch.cat((xy, torch.full_like(xy, 0.05 * 2.0**level)), -1).reshape(-1, 4))
    a = torch.cat(out)
    valid = ((a > 0.01) & (a < 0.99)).all(-1, keepdim=True)
    return torch.where(valid, torch.log(a / (1 - a)), torch.finfo(torch.float32).max)


def inverse_sigmoid(x, delta):
    x = x.clamp(0, 1)
    return (delta + (x.clamp(min=1e-5) / (1 - x).clamp(min=1e-5)).log()).sigmoid()


def heat_peaks(h):
    kept = F.max_pool2d(h, 3, 1, 1)
    scores, index = (h * (kept == h)).flatten(2).topk(10)
    return scores, index // h.shape[-1], index % h.shape[-1]


def yolox(x, stride: float):
    _b, _c, h, w = x.shape
    x = x.flatten(2).permute(0, 2, 1)
    gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((gx, gy), 2).view(1, -1, 2)
    return torch.cat(((x[..., :2] + grid) * stride, x[..., 2:4].exp() * stride, x[..., 4:].sigmoid()), -1)


def simota(iou, cls, centre):
    cost = cls - 3 * iou.clamp(min=1e-8).log() + 1e5 * ~centre
    k = iou.topk(10, 1).values.sum(1).int().clamp(min=1)
    rank = cost.argsort(1).argsort(1)
    return (rank < k[:, None]) & (cost == cost.min(0, keepdim=True).values)


infer(
    "extract/detect/cost",
    detr_cost,
    T(100, 20),
    T(100, 4, low=0.1, high=0.9),
    T(12, 4, low=0.1, high=0.9),
    T(12, dtype=i64, low=0, high=19),
)
infer("extract/detect/postprocess", postprocess, T(2, 100, 20), T(2, 100, 4, low=0, high=1), T(2, 2, low=100, high=600))
infer("extract/detect/fast-nms", fast_nms, boxes(200), T(200, low=0, high=1))
infer("extract/detect/distribution", distribution_to_distance, T(2, 300, 68), T(17))
train("extract/detect/distribution-training", distribution_to_distance, T(2, 300, 68), T(17))
infer("extract/detect/anchors", lambda x: x + rtdetr_anchors(((20, 20), (10, 10), (5, 5))), T(2, 525, 4))
infer("extract/detect/inverse-sigmoid", inverse_sigmoid, T(2, 100, 4, low=0, high=1), T(2, 100, 4))
infer("extract/detect/heat-peaks", heat_peaks, T(1, 8, 32, 32))
infer("extract/detect/yolox", lambda x: yolox(x, 8.0), T(1, 25, 20, 20))
infer("extract/detect/simota", simota, T(12, 200, low=0, high=1), T(12, 200), T(12, 200, dtype=torch.bool))
train(
    "extract/detect/giou-training",
    lambda a, b: (1 - torch.diag(giou(corners(a), corners(b)))).sum(),
    T(100, 4, low=0.1, high=0.9),
    T(100, 4, low=0.1, high=0.9),
)

# Images as bytes, and half precision on the CPU


def blur_u8(x):
    k = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0])
    k = (k[:, None] * k / 256).expand(3, 1, 5, 5)
    return F.conv2d(F.pad(x.float(), (2, 2, 2, 2), mode="reflect"), k, groups=3).round().to(u8)


def grid_mask(x):
    h, w = x.shape[-2:]
    on = (torch.arange(h)[:, None] % 16 < 8) & (torch.arange(w)[None] % 16 < 8)
    return x * ~on


def brightness(x, f: float):
    return (x.float() * f).clamp(0, 255).to(u8)


def saturation(x, f: float):
    gray = (0.2989 * x[..., 0, :, :] + 0.587 * x[..., 1, :, :] + 0.114 * x[..., 2, :, :]).to(u8)[..., None, :, :]
    return (f * x.float() + (1 - f) * gray.float()).clamp(0, 255).to(u8)


def tiles(x):
    c, h, w = x.shape
    x = x.view(c, h // 32, 32, w // 32, 32).permute(1, 3, 0, 2, 4).reshape(-1, c, 32, 32)
    return (x.float() / 255 - 0.5) / 0.5


def qwen_patches(x):
    x = x.reshape(2, 2, 3, 4, 2, 8, 4, 2, 8)
    return x.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(2 * 64, 3 * 2 * 64)


def palette(x, colors):
    return colors[x.long()].permute(0, 3, 1, 2)


def rle_counts(mask):
    flat = mask.permute(0, 2, 1).flatten(1)
    change = flat[:, 1:] ^ flat[:, :-1]
    return change.sum(1), F.pad(change, (1, 0)).cumsum(1)


bytes_ = T(2, 3, 64, 64, dtype=u8)
infer("extract/bytes/gaussian-blur", blur_u8, bytes_)
infer("extract/bytes/grid-mask", grid_mask, bytes_)
infer("extract/bytes/brightness", lambda x: brightness(x, 1.3), bytes_)
infer("extract/bytes/saturation", lambda x: saturation(x, 1.4), bytes_)
infer("extract/bytes/tiles", tiles, T(3, 96, 96, dtype=u8))
infer("extract/bytes/qwen-patches", qwen_patches, T(4, 3, 64, 64))
infer("extract/bytes/palette", palette, T(2, 64, 64, dtype=u8), T(256, 3, dtype=u8))
infer("extract/bytes/rle", rle_counts, T(4, 32, 32, dtype=torch.bool))
infer("extract/bytes/max-pool", lambda x: F.max_pool2d(x.to(i32).float(), 2).to(u8), bytes_)
infer("extract/bytes/lut", lambda x, t: t[x.long()], bytes_, T(256, dtype=u8))
infer(
    "extract/bytes/difference",
    lambda a, b: ((a.to(torch.int16) - b.to(torch.int16)).abs() > 30).sum((1, 2, 3)),
    bytes_,
    bytes_,
)
infer(
    "extract/bytes/normalize-cl-f16",
    lambda x: ((x.to(f16) / 255 - 0.45) / 0.225).contiguous(memory_format=torch.channels_last),
    bytes_,
)
infer(
    "extract/half/unet-skip",
    lambda a, b: F.silu(torch.cat((F.interpolate(a, scale_factor=2.0), b), 1)),
    T(1, 32, 16, 16, dtype=f16),
    T(1, 32, 32, 32, dtype=f16),
)
infer(
    "extract/half/attention",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    *[T(1, 4, 64, 32, dtype=f16)] * 3,
)
infer(
    "extract/half/layer-norm-linear",
    lambda x, g, b, w: F.linear(F.layer_norm(x, (128,), g, b), w),
    T(32, 128, dtype=f16),
    T(128, dtype=f16),
    T(128, dtype=f16),
    T(256, 128, dtype=f16),
)
infer(
    "extract/half/conv-silu",
    lambda x, w: F.silu(F.conv2d(x, w, padding=1)),
    T(1, 16, 32, 32, dtype=f16),
    T(16, 16, 3, 3, dtype=f16),
)
infer(
    "extract/half/clip-grad",
    lambda g: g * (1.0 / (g.float().norm() + 1e-6)).clamp(max=1.0).to(g.dtype),
    T(256, 256, dtype=f16),
)
infer("extract/half/cumsum", lambda x: x.cumsum(-1), T(256, 64, dtype=f16))
infer("extract/half/cumsum-bf16", lambda x: x.cumsum(-1), T(512, 16, dtype=bf16))
infer("extract/half/argmax", lambda x: x.argmax(-1), T(64, 1000, dtype=f16))
infer(
    "extract/half/group-norm-cl",
    lambda x, g, b: F.silu(F.group_norm(x, 8, g, b)),
    T(1, 64, 16, 16, dtype=bf16, layout="channels_last"),
    T(64, dtype=bf16),
    T(64, dtype=bf16),
)
infer(
    "extract/half/upsample-bilinear",
    lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    T(1, 16, 16, 16, dtype=bf16),
)
train(
    "extract/half/swiglu-training",
    lambda x, a, b, c: F.linear(F.silu(F.linear(x, a)) * F.linear(x, b), c),
    T(32, 64, dtype=bf16),
    T(128, 64, dtype=bf16),
    T(128, 64, dtype=bf16),
    T(64, 128, dtype=bf16),
)
