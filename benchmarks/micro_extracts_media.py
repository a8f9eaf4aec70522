"""Pieces of other code: sound, detection, images as bytes, losses, training steps, graphs, symbolic sizes, types."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from micro_case import Case, T, bf16, boxes, case, f16, i8, i32, i64, infer, module, train, u8
from torch import nn

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
case("extract/audio/residual-quantizer", lambda: Case(residual_quantize, (torch.randn(2, 75, 32), [torch.randn(128, 32) for _ in range(4)])))
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
infer("extract/audio/feature-normalize", lambda x, m: (x - (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True)) * m, T(2, 200, 80), T(2, 200, 1, dtype=torch.bool))
infer("extract/audio/ctc-collapse", lambda x: (x.argmax(-1), (F.pad(x.argmax(-1)[:, 1:] != x.argmax(-1)[:, :-1], (1, 0), value=True) & (x.argmax(-1) != 0)).sum(-1)), T(2, 200, 32))

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
    b, c, h, w = x.shape
    x = x.flatten(2).permute(0, 2, 1)
    gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((gx, gy), 2).view(1, -1, 2)
    return torch.cat(((x[..., :2] + grid) * stride, x[..., 2:4].exp() * stride, x[..., 4:].sigmoid()), -1)


def simota(iou, cls, centre):
    cost = cls - 3 * iou.clamp(min=1e-8).log() + 1e5 * ~centre
    k = iou.topk(10, 1).values.sum(1).int().clamp(min=1)
    rank = cost.argsort(1).argsort(1)
    return (rank < k[:, None]) & (cost == cost.min(0, keepdim=True).values)


infer("extract/detect/cost", detr_cost, T(100, 20), T(100, 4, low=0.1, high=0.9), T(12, 4, low=0.1, high=0.9), T(12, dtype=i64, low=0, high=19))
infer("extract/detect/postprocess", postprocess, T(2, 100, 20), T(2, 100, 4, low=0, high=1), T(2, 2, low=100, high=600))
infer("extract/detect/fast-nms", fast_nms, boxes(200), T(200, low=0, high=1))
infer("extract/detect/distribution", distribution_to_distance, T(2, 300, 68), T(17))
train("extract/detect/distribution-training", distribution_to_distance, T(2, 300, 68), T(17))
infer("extract/detect/anchors", lambda x: x + rtdetr_anchors(((20, 20), (10, 10), (5, 5))), T(2, 525, 4))
infer("extract/detect/inverse-sigmoid", inverse_sigmoid, T(2, 100, 4, low=0, high=1), T(2, 100, 4))
infer("extract/detect/heat-peaks", heat_peaks, T(1, 8, 32, 32))
infer("extract/detect/yolox", lambda x: yolox(x, 8.0), T(1, 25, 20, 20))
infer("extract/detect/simota", simota, T(12, 200, low=0, high=1), T(12, 200), T(12, 200, dtype=torch.bool))
train("extract/detect/giou-training", lambda a, b: (1 - torch.diag(giou(corners(a), corners(b)))).sum(), T(100, 4, low=0.1, high=0.9), T(100, 4, low=0.1, high=0.9))

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
infer("extract/bytes/difference", lambda a, b: ((a.to(torch.int16) - b.to(torch.int16)).abs() > 30).sum((1, 2, 3)), bytes_, bytes_)
infer("extract/bytes/normalize-cl-f16", lambda x: ((x.to(f16) / 255 - 0.45) / 0.225).contiguous(memory_format=torch.channels_last), bytes_)
infer("extract/half/unet-skip", lambda a, b: F.silu(torch.cat((F.interpolate(a, scale_factor=2.0), b), 1)), T(1, 32, 16, 16, dtype=f16), T(1, 32, 32, 32, dtype=f16))
infer("extract/half/attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[T(1, 4, 64, 32, dtype=f16)] * 3)
infer("extract/half/layer-norm-linear", lambda x, g, b, w: F.linear(F.layer_norm(x, (128,), g, b), w), T(32, 128, dtype=f16), T(128, dtype=f16), T(128, dtype=f16), T(256, 128, dtype=f16))
infer("extract/half/conv-silu", lambda x, w: F.silu(F.conv2d(x, w, padding=1)), T(1, 16, 32, 32, dtype=f16), T(16, 16, 3, 3, dtype=f16))
infer("extract/half/clip-grad", lambda g: g * (1.0 / (g.float().norm() + 1e-6)).clamp(max=1.0).to(g.dtype), T(256, 256, dtype=f16))
infer("extract/half/cumsum", lambda x: x.cumsum(-1), T(256, 64, dtype=f16))
infer("extract/half/cumsum-bf16", lambda x: x.cumsum(-1), T(512, 16, dtype=bf16))
infer("extract/half/argmax", lambda x: x.argmax(-1), T(64, 1000, dtype=f16))
infer("extract/half/group-norm-cl", lambda x, g, b: F.silu(F.group_norm(x, 8, g, b)), T(1, 64, 16, 16, dtype=bf16, layout="channels_last"), T(64, dtype=bf16), T(64, dtype=bf16))
infer("extract/half/upsample-bilinear", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), T(1, 16, 16, 16, dtype=bf16))
train("extract/half/swiglu-training", lambda x, a, b, c: F.linear(F.silu(F.linear(x, a)) * F.linear(x, b), c), T(32, 64, dtype=bf16), T(128, 64, dtype=bf16), T(128, 64, dtype=bf16), T(64, 128, dtype=bf16))

# Losses


def ctc_like(log_probs, targets):
    return F.ctc_loss(log_probs.log_softmax(-1), targets, torch.tensor([40, 40]), torch.tensor([10, 10]))


def dino(student, teacher, centre):
    target = ((teacher - centre) / 0.04).softmax(-1).detach()
    return -(target * F.log_softmax(student / 0.1, -1)).sum(-1).mean()


def moco(q, k, queue):
    q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
    positive = (q * k).sum(1, keepdim=True)
    logits = torch.cat((positive, q @ queue.detach()), 1) / 0.07
    return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=i64))


def multibox(conf, labels):
    loss = F.cross_entropy(conf.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    positive = labels > 0
    ranked = loss.masked_fill(positive, 0).detach()
    rank = ranked.argsort(1, descending=True).argsort(1)
    negative = rank < 3 * positive.sum(1, keepdim=True)
    return (loss * (positive | negative)).sum() / positive.sum().clamp(min=1)


def varifocal(x, score):
    p = x.sigmoid()
    weight = score * (score > 0) + 0.75 * p.detach().pow(2) * (score <= 0)
    return F.binary_cross_entropy_with_logits(x, score.detach(), weight=weight, reduction="sum")


def ordinal(x, y):
    levels = (y[:, None] > torch.arange(x.shape[1])).float()
    return -(F.logsigmoid(x) * levels + (F.logsigmoid(x) - x) * (1 - levels)).sum(1).mean()


def orpo(chosen, rejected):
    odds = (chosen - rejected) - (torch.log1p(-chosen.exp()) - torch.log1p(-rejected.exp()))
    return -chosen.mean() - 0.1 * F.logsigmoid(odds).mean()


def kto(policy, reference, desirable):
    ratio = policy - reference
    kl = ratio.mean().clamp(min=0).detach()
    return torch.where(desirable, 1 - torch.sigmoid(0.1 * (ratio - kl)), 1 - torch.sigmoid(0.1 * (kl - ratio))).mean()


def scale_invariant(p, t):
    mask = t > 0.1
    d = (p.clamp(min=1e-3).log() - t.clamp(min=1e-3).log()) * mask
    n = mask.sum()
    return torch.sqrt((d.square().sum() / n) - 0.85 * (d.sum() / n).square() + 1e-6)


def lpips_like(a, b):
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    return (a - b).square().mean((1, 2, 3)).sum()


def mixture(x, logits, mean, scale):
    log = -0.5 * ((x[..., None] - mean) / scale.exp()).square() - scale - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log + logits.log_softmax(-1), -1).mean()


def student_t(x, df, loc, scale):
    df, scale = 2 + F.softplus(df), F.softplus(scale)
    y = (x - loc) / scale
    z = scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi) + torch.lgamma(0.5 * df) - torch.lgamma(0.5 * (df + 1))
    return (0.5 * (df + 1) * torch.log1p(y**2 / df) + z).mean()


def negative_binomial(x, total, logits):
    total = F.softplus(total)
    log = total * F.logsigmoid(-logits) + x * F.logsigmoid(logits)
    return -(log - torch.lgamma(total + x) * -1 - torch.lgamma(1.0 + x) - torch.lgamma(total)).mean()


indices = lambda high, *shape: T(*shape, dtype=i64, low=0, high=high)  # noqa: E731
train("extract/loss/ctc", ctc_like, T(40, 2, 20), T(2, 10, dtype=i64, low=1, high=19))
train("extract/loss/dino", dino, T(16, 512), T(16, 512), T(512))
train("extract/loss/moco", moco, T(16, 64), T(16, 64), T(64, 512))
train("extract/loss/multibox", multibox, T(2, 200, 10), indices(9, 2, 200))
train("extract/loss/varifocal", varifocal, T(2, 200, 10), T(2, 200, 10, low=-0.5, high=1.0))
train("extract/loss/ordinal", ordinal, T(128, 9), indices(9, 128))
train("extract/loss/orpo", lambda a, b: orpo(F.logsigmoid(a) - 0.1, F.logsigmoid(b) - 0.1), T(32), T(32))
train("extract/loss/kto", kto, T(32), T(32), T(32, dtype=torch.bool))
train("extract/loss/scale-invariant", scale_invariant, T(2, 48, 64, low=0.1, high=5.0), T(2, 48, 64, low=0.0, high=5.0))
train("extract/loss/lpips", lpips_like, T(2, 32, 16, 16), T(2, 32, 16, 16))
train("extract/loss/mixture-density", mixture, T(256), T(256, 5), T(256, 5), T(256, 5))
train("extract/loss/student-t", student_t, *[T(64, 24)] * 4)
train("extract/loss/negative-binomial", lambda t, l, x: negative_binomial(x.float(), t, l), T(64, 24), T(64, 24), indices(20, 64, 24))
train("extract/loss/kl-balanced-categorical", lambda a, b: torch.distributions.kl_divergence(torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)).mean(), T(16, 32, 32), T(16, 32, 32))
train("extract/loss/normal-log-prob", lambda m, s, x: torch.distributions.Normal(m, s.exp()).log_prob(x).sum(-1).mean(), T(64, 8), T(64, 8), T(64, 8))
train("extract/loss/multilabel-asymmetric", lambda x, y: -(y * F.logsigmoid(x) + (1 - y) * F.logsigmoid((0.05 - x.sigmoid()).clamp(max=0)) * x.sigmoid().pow(4)).sum(), T(16, 80), T(16, 80, low=0.0, high=1.0))
train("extract/loss/margin-ranking", lambda a, b: F.margin_ranking_loss(a, b, torch.ones(256), margin=0.2), T(256), T(256))
train("extract/loss/hinge-embedding", lambda x: F.hinge_embedding_loss(x, torch.ones(64, 16), margin=1.0), T(64, 16))
train("extract/loss/soft-margin", lambda x: F.soft_margin_loss(x, torch.ones(256)), T(256))
train("extract/loss/nll-2d", lambda x, y: F.nll_loss(x.log_softmax(1), y, weight=torch.linspace(0.5, 1, 8), ignore_index=7), T(2, 8, 24, 24), indices(7, 2, 24, 24))

# Steps of training


def stepping(make: Any, loss: Any, optimizer: Any, *inputs: Any, clip: float = 0.0, cast: Any = None) -> Any:
    """A whole step, optimizer inside."""

    def build() -> Case:
        net = make()
        stepper = optimizer(net)
        given = [x.make() for x in inputs]

        def step(*batch: Any) -> Any:
            stepper.zero_grad()
            if cast is None:
                value = loss(net(batch[0]), *batch[1:])
            else:
                with torch.autocast("cpu", cast):
                    value = loss(net(batch[0]), *batch[1:])
            value.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            stepper.step()
            return value.detach()

        return Case(step, tuple(given), training=False, state=lambda: [p.detach() for p in net.parameters()])

    def graded() -> Case:
        made = build()
        inner = made.function

        def call(*batch: Any) -> Any:
            with torch.enable_grad():
                return inner(*batch)

        made.function = call
        return made

    return graded


def groups(net: nn.Module) -> Any:
    decay = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], 1e-3)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 10))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


rows, pictures, classes = T(32, 32), T(4, 3, 24, 24), indices(9, 32)
for name, build in (
    ("groups", stepping(perceptron, F.cross_entropy, groups, rows, classes)),
    ("groups-clipped", stepping(perceptron, F.cross_entropy, groups, rows, classes, clip=1.0)),
    ("autocast-bf16", stepping(perceptron, F.cross_entropy, groups, rows, classes, cast=bf16)),
    ("sgd-nesterov", stepping(perceptron, F.cross_entropy, lambda n: torch.optim.SGD(n.parameters(), 0.1, 0.9, nesterov=True), rows, classes)),
    ("pictures", stepping(convolutional, F.cross_entropy, groups, pictures, indices(9, 4))),
    ("mse-rmsprop", stepping(lambda: nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)), lambda y, t: F.mse_loss(y, t), lambda n: torch.optim.RMSprop(n.parameters()), rows, T(32, 1))),
):
    case(f"extract/step/{name}", build, fullgraph=False, tolerance=2e-2)


def lists(function: Any, count: int, *shapes: tuple[int, ...]) -> Any:
    return lambda: Case(function, tuple([torch.randn(s) for s in shapes] for _ in range(count)))


def foreach_ema(a, b):
    torch._foreach_lerp_(a, b, 0.01)


def total_norm(gs):
    norms = torch._foreach_norm(gs)
    scale = (1.0 / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gs, scale)


def lookahead(fast, slow):
    for f, s in zip(fast, slow, strict=True):
        s.add_(f - s, alpha=0.5)
        f.copy_(s)


def sam_ascent(ps, gs):
    norm = torch.stack([g.norm(p=2) for g in gs]).norm(p=2)
    scale = 0.05 / (norm + 1e-12)
    for p, g in zip(ps, gs, strict=True):
        p.add_(g * scale)


def prodigy(ps, gs, s, p0):
    d = torch.zeros(())
    n = torch.zeros(())
    for p, g, si, q in zip(ps, gs, s, p0, strict=True):
        d = d + torch.dot(g.flatten(), (q - p).flatten())
        si.mul_(0.99).add_(g, alpha=0.01)
        n = n + si.abs().sum()
    return d / n


SHAPES = ((64, 64), (64,), (128, 64), (128,), (10, 128))
case("extract/update/foreach-ema", lists(foreach_ema, 2, *SHAPES))
case("extract/update/total-norm", lists(total_norm, 1, *SHAPES))
case("extract/update/lookahead", lists(lookahead, 2, *SHAPES))
case("extract/update/sam", lists(sam_ascent, 2, *SHAPES))
case("extract/update/prodigy", lists(prodigy, 4, *SHAPES))
case("extract/update/unscale", lists(lambda gs: (torch._foreach_mul(gs, 0.5), torch.stack([g.isfinite().all() for g in gs]).all()), 1, *SHAPES))

# Graphs


def gatv2(x, e, w, a):
    s, t = e
    h = (x @ w).view(-1, 4, 16)
    score = (F.leaky_relu(h[s] + h[t], 0.2) * a).sum(-1)
    most = torch.full((x.shape[0], 4), -1e9).scatter_reduce(0, t[:, None].expand(-1, 4), score, "amax")
    weight = (score - most[t]).exp()
    total = torch.zeros(x.shape[0], 4).index_add(0, t, weight)
    return torch.zeros(x.shape[0], 4, 16).index_add(0, t, h[s] * (weight / total[t].clamp(min=1e-9))[..., None]).flatten(1)


def pna(x, e):
    s, t = e
    m = x[s]
    wide_ = t[:, None].expand_as(m)
    zero = torch.zeros_like(x)
    mean = zero.scatter_reduce(0, wide_, m, "mean", include_self=False)
    most = zero.scatter_reduce(0, wide_, m, "amax", include_self=False)
    least = zero.scatter_reduce(0, wide_, m, "amin", include_self=False)
    square = zero.scatter_reduce(0, wide_, m * m, "mean", include_self=False)
    return torch.cat((mean, most, least, (square - mean * mean).clamp(min=0).sqrt()), -1)


def egnn(x, h, e, w):
    s, t = e
    d = x[s] - x[t]
    m = F.silu(torch.cat((h[s], h[t], d.square().sum(-1, keepdim=True)), -1) @ w)
    moved = x.index_add(0, t, d * torch.tanh(m[:, :1]) / 8)
    return moved, torch.zeros(h.shape[0], m.shape[1]).index_add(0, t, m)


def schnet(d, centres, w):
    return (-10.0 * (d[:, None] - centres).square()).exp() @ w * (0.5 * (torch.cos(d * math.pi / 5) + 1) * (d < 5))[:, None]


edges = T(2, 1024, dtype=i64, low=0, high=127)
infer("extract/graph/gatv2", gatv2, T(128, 32), edges, T(32, 64), T(4, 16))
train("extract/graph/gatv2-training", gatv2, T(128, 32), edges, T(32, 64), T(4, 16))
infer("extract/graph/pna", pna, T(128, 32), edges)
train("extract/graph/pna-training", pna, T(128, 32), edges)
infer("extract/graph/egnn", egnn, T(128, 3), T(128, 16), edges, T(33, 16))
train("extract/graph/egnn-training", lambda x, h, e, w: sum(y.sum() for y in egnn(x, h, e, w)), T(128, 3), T(128, 16), edges, T(33, 16))
infer("extract/graph/schnet", schnet, T(1024, low=0, high=6), T(32), T(32, 64))
infer("extract/graph/bag-offsets", lambda i, o, w: F.embedding_bag(i, w, o), T(600, dtype=i64, low=0, high=499), torch.arange(0, 600, 10), T(500, 64))
infer("extract/graph/bag-offsets-mean", lambda i, o, w: F.embedding_bag(i, w, o, mode="mean"), T(600, dtype=i64, low=0, high=499), torch.arange(0, 600, 10), T(500, 16))
train("extract/graph/bag-offsets-training", lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), T(500, 64), T(600, dtype=i64, low=0, high=499), torch.arange(0, 600, 10))
infer("extract/graph/segment-lengths", lambda x, n: torch.segment_reduce(x, "sum", lengths=n), T(600, 16), torch.full((60,), 10))

# Sizes that are symbols


def windows_of(x):
    b, h, w, c = x.shape
    return x.view(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)


for name, function, *inputs in (
    ("window-partition", windows_of, T(2, 32, 32, 32)),
    ("window-attention", lambda x: (lambda w: (w @ w.transpose(1, 2)).softmax(-1) @ w)(windows_of(x)), T(2, 32, 32, 16)),
    ("adaptive-pool-7", lambda x: F.adaptive_avg_pool2d(x, 7), T(2, 16, 32, 32)),
    ("adaptive-max", lambda x: F.adaptive_max_pool2d(x, (4, 4)), T(2, 16, 32, 32)),
    ("bicubic", lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), T(1, 8, 24, 24)),
    ("rope", lambda x: (lambda a: torch.cat((x * a.cos(), rotate(x) * a.sin()), -1))(torch.arange(x.shape[-2])[:, None] * torch.ones(x.shape[-1])), T(2, 4, 40, 32)),
    ("causal-softmax", lambda s: s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -torch.inf).softmax(-1), T(2, 4, 48, 48)),
    ("layer-norm-gelu", lambda x, g, b: F.gelu(F.layer_norm(x, (64,), g, b)), T(3, 40, 64), T(64), T(64)),
    ("masked-mean", lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True), T(4, 50, 64), T(4, 50, low=0, high=1)),
    ("cat-pad", lambda a, b: F.pad(torch.cat((a, b), 1), (0, 0, 1, 2)), T(2, 20, 64), T(2, 30, 64)),
    ("embedding-positions", lambda i, w, p: F.embedding(i, w) + p[: i.shape[1]], T(2, 40, dtype=i64, low=0, high=99), T(100, 64), T(64, 64)),
    ("unfold-frames", lambda x: x.unfold(-1, 64, 16) * torch.hann_window(64), T(2, 1600)),
    ("top-k", lambda x: x.topk(5, -1), T(8, 300)),
    ("log-softmax-gather", lambda x, i: x.log_softmax(-1).gather(-1, i[..., None])[..., 0], T(4, 20, 100), T(4, 20, dtype=i64, low=0, high=99)),
    ("qkv-split", lambda x, w: F.linear(x, w).view(x.shape[0], x.shape[1], 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0), T(2, 40, 64), T(192, 64)),
    ("group-norm-silu", lambda x: F.silu(F.group_norm(x, 8)), T(2, 32, 16, 16)),
    ("flip-cumsum", lambda x: x.flip(1).cumsum(1).flip(1), T(8, 128)),
    ("roll-windows", lambda x: windows_of(torch.roll(x, (-4, -4), (1, 2))), T(2, 32, 32, 16)),
):
    infer(f"extract/symbolic/{name}", function, *inputs, dynamic=True)


def rotate(x: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


for name, function, *inputs in (
    ("windows", lambda x: windows_of(x).square().mean(), T(2, 32, 32, 16)),
    ("cross-entropy", lambda x, y: F.cross_entropy(x, y), T(40, 100), indices(99, 40)),
    ("gelu-linear", lambda x, w: F.gelu(F.linear(x, w)), T(40, 64), T(128, 64)),
    ("group-norm", lambda x: F.group_norm(x, 8), T(2, 32, 16, 16)),
):
    train(f"extract/symbolic/training/{name}", function, *inputs, dynamic=True)

# Types, and operators that torch's library computes

infer("extract/typed/argmax-i64", lambda x: x.argmax(-1), T(64, 512, dtype=i64))
infer("extract/typed/argmin-i32", lambda x: x.argmin(0), T(128, 256, dtype=i32))
infer("extract/typed/argmax-u8", lambda x: x.argmax(1), T(2, 8, 32, 32, dtype=u8))
infer("extract/typed/roll-i8", lambda x: x.roll(3, -1), T(128, 256, dtype=i8))
infer("extract/typed/roll-bf16", lambda x: x.roll((2, 5), (1, 2)), T(8, 32, 64, dtype=bf16))
infer("extract/typed/roll-u8-rows", lambda x: x.roll(1, 0), T(64, 257, dtype=u8))
infer("extract/typed/erfc", lambda x: torch.erfc(x), T(64, 256))
infer("extract/typed/erfc-f64", lambda x: 0.5 * torch.erfc(-x / math.sqrt(2.0)), T(64, 256, dtype=torch.float64))
infer("extract/typed/masked-scatter", lambda x, m, s: x.masked_scatter(m, s), T(64, 64), T(64, 64, dtype=torch.bool), T(64, 64))
infer("extract/typed/image-tokens", lambda x, m, s: x.masked_scatter(m[..., None].expand_as(x), s), T(2, 64, 64), T(2, 64, dtype=torch.bool), T(128, 64))
infer("extract/typed/bincount", lambda x: torch.bincount(x, minlength=64), T(4096, dtype=i64, low=0, high=63))
infer("extract/typed/histc", lambda x: torch.histc(x, 32, 0, 1), T(4096, low=0, high=1))
infer("extract/typed/logcumsumexp", lambda x: x.logcumsumexp(-1), T(64, 128))
infer("extract/typed/logcumsumexp-columns", lambda x: x.logcumsumexp(0), T(64, 128))
infer("extract/typed/grid-sample", lambda x, g: F.grid_sample(x, g, align_corners=False), T(2, 16, 24, 24), T(2, 24, 24, 2, low=-1, high=1))
infer("extract/typed/grid-sample-border", lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True), T(2, 3, 32, 32), T(2, 32, 32, 2, low=-1, high=1))
infer("extract/typed/grid-sample-nearest", lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=False), T(2, 3, 32, 32), T(2, 32, 32, 2, low=-1, high=1))
infer("extract/typed/grid-sample-3d", lambda x, g: F.grid_sample(x, g, align_corners=True), T(1, 4, 12, 12, 12), T(1, 8, 8, 8, 3, low=-1, high=1))
infer("extract/typed/complex-conv", lambda a, b: (a * b.conj()).sum(-1), T(64, 128, dtype=torch.complex64), T(64, 128, dtype=torch.complex64))
infer("extract/typed/complex-magnitude-phase", lambda x: (x.abs(), x.angle()), T(64, 128, dtype=torch.complex64))
infer("extract/typed/unique-free-counts", lambda x: (x[:, None] == torch.arange(16)).sum(0), T(1000, dtype=i64, low=0, high=15))
infer("extract/typed/i64-compare-sum", lambda a, b: (a == b).float().mean(), T(64, 128, dtype=i64, low=0, high=3), T(64, 128, dtype=i64, low=0, high=3))
infer("extract/typed/f64-matmul-norm", lambda a: torch.linalg.norm(a @ a.t()), T(48, 48, dtype=torch.float64))
infer("extract/typed/i16-audio-mix", lambda a, b: ((a.to(i32) + b.to(i32)) // 2).clamp(-32768, 32767).to(torch.int16), T(2, 4000, dtype=torch.int16), T(2, 4000, dtype=torch.int16))
