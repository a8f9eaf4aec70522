"""Images, boxes and sound before and after a model, as pipelines of others compute them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i64, infer, train, u8

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
picture = T(224, 224, 3, dtype=u8)
batch = T(2, 3, 128, 128, dtype=u8)


def imagenet(x):
    x = x.permute(2, 0, 1).float().div(255)
    return (x - torch.tensor(IMAGENET_MEAN)[:, None, None]) / torch.tensor(IMAGENET_STD)[:, None, None]


def letterbox(x):
    x = F.interpolate(x[None].float(), (96, 128), mode="bilinear", align_corners=False)
    return F.pad(x, (0, 0, 16, 16), value=114.0) / 255


def gray(x):
    r, g, b = x.float().unbind(-1)
    return (0.299 * r + 0.587 * g + 0.114 * b).round().to(u8)


def hsv(x):
    most, least = x.amax(-3), x.amin(-3)
    spread = most - least
    r, g, b = x.unbind(-3)
    safe = torch.where(spread == 0, torch.ones_like(spread), spread)
    hue = torch.where(most == r, (g - b) / safe % 6, torch.where(most == g, (b - r) / safe + 2, (r - g) / safe + 4))
    return torch.stack((hue / 6, spread / most.clamp(min=1e-6), most), -3)


def yuv(x):
    m = torch.tensor([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.1]])
    return torch.einsum("ij,bjhw->bihw", m, x)


def jitter(x, a):
    x = (x * a[0]).clamp(0, 1)
    mean = x.mean((1, 2, 3), keepdim=True)
    return ((x - mean) * a[1] + mean).clamp(0, 1)


def blur(x):
    at = torch.arange(-2, 3, dtype=x.dtype)
    k = torch.exp(-at.square() / 2)
    k = k / k.sum()
    c = x.shape[1]
    x = F.conv2d(x, k.view(1, 1, 1, 5).expand(c, 1, 1, 5), padding=(0, 2), groups=c)
    return F.conv2d(x, k.view(1, 1, 5, 1).expand(c, 1, 5, 1), padding=(2, 0), groups=c)


def sobel(x):
    k = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    g = F.conv2d(x, torch.stack((k, k.t()))[:, None], padding=1)
    return g.square().sum(1, keepdim=True).add(1e-8).sqrt()


def equalized(x, counts):
    table = counts.cumsum(0)
    table = ((table - table[0]) * 255 // (table[-1] - table[0]).clamp(min=1)).to(u8)
    return table[x.long()]


def mixup(x, y, order, w):
    return x * w + x[order] * (1 - w), y * w + y[order] * (1 - w)


def cutout(x, at):
    rows = torch.arange(x.shape[-2])[None, :, None]
    columns = torch.arange(x.shape[-1])[None, None]
    top, left = at[:, 0, None, None], at[:, 1, None, None]
    inside = (rows >= top) & (rows < top + 32) & (columns >= left) & (columns < left + 32)
    return x.masked_fill(inside[:, None], 0.0)


def patches(x):
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 16, 16, w // 16, 16).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 16 * 16 * c)


def unpatch(x):
    return x.reshape(2, 8, 8, 16, 16, 3).permute(0, 5, 1, 3, 2, 4).reshape(2, 3, 128, 128)


def psnr(x, y):
    return -10 * (x.float() / 255 - y.float() / 255).square().mean((1, 2, 3)).log10()


def overlay(x, m):
    color = torch.tensor([255.0, 0, 0])[:, None, None]
    return torch.where(m, x.float() * 0.6 + color * 0.4, x.float()).to(u8)


def miou(p, t):
    p = p.argmax(1)
    hot_p, hot_t = F.one_hot(p, 21).flatten(1, 2), F.one_hot(t, 21).flatten(1, 2)
    both = (hot_p & hot_t).sum(1).float()
    return (both / ((hot_p | hot_t).sum(1).float() + 1e-6)).mean()


infer("ready/imagenet", imagenet, picture)
infer("ready/imagenet-batch", lambda x: (x.float() / 255 - 0.5) / 0.25, batch)
infer("ready/imagenet-f16", lambda x: ((x.to(f16) / 255) - 0.5) / 0.25, batch)
infer("ready/imagenet-channels-last", lambda x: x.permute(0, 3, 1, 2).float() / 127.5 - 1, T(2, 128, 128, 3, dtype=u8))
infer("ready/letterbox", letterbox, T(3, 192, 256, dtype=u8))
infer("ready/gray", gray, picture)
infer("ready/hsv", hsv, T(2, 3, 96, 96, low=0, high=1))
infer("ready/yuv", yuv, T(2, 3, 96, 96))
infer("ready/jitter", jitter, T(4, 3, 64, 64, low=0, high=1), T(2, low=0.5, high=1.5))
infer("ready/blur", blur, T(2, 3, 96, 96))
infer("ready/sobel", sobel, T(2, 1, 96, 96))
infer("ready/equalize", equalized, T(128, 128, dtype=u8), T(256, dtype=i64, low=0, high=100))
infer("ready/mixup", mixup, T(8, 3, 48, 48), T(8, 10), torch.randperm(8), T(1, low=0, high=1))
infer("ready/cutout", cutout, T(8, 3, 64, 64), T(8, 2, dtype=i64, low=0, high=32))
infer("ready/patches", patches, T(2, 3, 128, 128))
infer("ready/patches-bf16", patches, T(2, 3, 128, 128, dtype=bf16))
infer("ready/unpatch", unpatch, T(2, 64, 768))
infer("ready/psnr", psnr, batch, batch)
infer("ready/overlay", overlay, T(3, 128, 128, dtype=u8), T(128, 128, dtype=torch.bool))
infer("ready/miou", miou, T(1, 21, 48, 48), T(1, 48, 48, dtype=i64, low=0, high=20))
infer("ready/mean-std", lambda x: torch.std_mean(x.float(), (0, 1)), picture)
infer(
    "ready/to-bytes",
    lambda x: ((x * 0.5 + 0.5).clamp(0, 1) * 255).round().to(u8).permute(0, 2, 3, 1).contiguous(),
    T(2, 3, 128, 128),
)
infer("ready/gamma", lambda x: ((x.float() / 255) ** 2.2 * 255).to(u8), picture)
infer("ready/resize-half-bytes", lambda x: x.view(112, 2, 112, 2, 3).float().mean((1, 3)).to(u8), picture)
infer("ready/center-crop-flip", lambda x: x[..., 16:112, 16:112].flip(-1), batch)
infer("ready/pyramid", lambda x: [F.avg_pool2d(x, k) for k in (2, 4, 8)], T(1, 8, 64, 64))
infer("ready/integral-image", lambda x: x.cumsum(-1).cumsum(-2), T(2, 96, 96))
infer("ready/dilate", lambda x: F.max_pool2d(x, 3, 1, 1) - x, T(2, 1, 128, 128))
infer(
    "ready/local-maxima",
    lambda x: torch.where(F.max_pool2d(x, 5, 1, 2) == x, x, 0.0).flatten(1).topk(20),
    T(2, 1, 64, 64),
)

# Boxes


def iou(a, b):
    area_a, area_b = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1]), (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    return both / (area_a[:, None] + area_b - both)


def fast_nms(b, s):
    s, order = s.sort(descending=True)
    b = b[order]
    return torch.where(iou(b, b).triu(1).amax(0) < 0.5, s, 0.0), b


def soft_nms_step(b, s):
    best = s.argmax()
    overlap = iou(b[best][None], b)[0]
    return s * torch.exp(-overlap.square() / 0.5)


def decoded(p, anchors):
    center = anchors[:, :2] + p[..., :2] * 0.1 * anchors[:, 2:]
    size = anchors[:, 2:] * torch.exp((p[..., 2:] * 0.2).clamp(max=4))
    return torch.cat((center - size / 2, center + size / 2), -1)


def yolo(x):
    b, _, h, w = x.shape
    x = x.view(b, 3, 9, h, w).permute(0, 1, 3, 4, 2)
    grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)
    xy = (x[..., :2].sigmoid() * 2 - 0.5 + grid) * 8
    wh = (x[..., 2:4].sigmoid() * 2) ** 2 * 16
    return torch.cat((xy, wh, x[..., 4:].sigmoid()), -1).view(b, -1, 9)


def giou_loss(a, b):
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    union = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - both
    around = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1)
    return (1 - both / union + (around - union) / around).mean()


def focal(x, y):
    p = x.sigmoid()
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    at = p * y + (1 - p) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * (1 - at) ** 2 * loss).mean()


infer("box/iou", iou, T(200, 4, low=0, high=1), T(150, 4, low=0, high=1))
infer("box/fast-nms", fast_nms, T(200, 4, low=0, high=1), T(200))
infer("box/soft-nms-step", soft_nms_step, T(500, 4, low=0, high=1), T(500, low=0, high=1))
infer("box/decode", decoded, T(2, 2000, 4), T(2000, 4, low=0.1, high=1))
infer("box/yolo", yolo, T(2, 27, 20, 20))
infer("box/xyxy-to-xywh", lambda b: torch.cat(((b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]), 1), T(2000, 4))
infer(
    "box/clip", lambda b: torch.stack((b[:, 0::2].clamp(0, 640), b[:, 1::2].clamp(0, 480)), 2).view(-1, 4), T(2000, 4)
)
infer("box/keep-best", lambda s: s.sigmoid().flatten(1).topk(100), T(2, 500, 20))
infer(
    "box/of-masks",
    lambda m: (m.any(1).float().argmax(-1), m.any(2).float().argmax(-1)),
    T(10, 96, 96, dtype=torch.bool),
)
train("box/train/giou", giou_loss, T(500, 4, low=0, high=1), T(500, 4, low=1, high=2))
train("box/train/focal", focal, T(4, 500, 10), T(4, 500, 10, low=0, high=1))

# Sound


def log_mel(x, window, bank):
    frames = x.unfold(-1, 400, 160) * window
    power = torch.fft.rfft(frames, 512).abs().square()
    return (power @ bank).clamp(min=1e-10).log10()


def mfcc(m):
    n = torch.arange(40.0)
    dct = torch.cos(math.pi / 40 * (n + 0.5) * n[:13, None])
    return m @ dct.t()


def mu_law(x):
    x = torch.sign(x) * torch.log1p(255 * x.abs().clamp(max=1)) / math.log1p(255)
    return ((x + 1) / 2 * 255 + 0.5).long()


def deltas(x):
    padded = F.pad(x, (2, 2), mode="replicate")
    k = torch.arange(-2.0, 3.0).expand(x.shape[1], 1, -1)
    return F.conv1d(padded, k, groups=x.shape[1]) / 10


def pre_emphasis(x):
    return torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1)


def overlap_add(f):
    return F.fold(f.transpose(1, 2), (1, 160 * 49 + 400), (1, 400), stride=(1, 160))[:, 0, 0]


infer("voice/log-mel", log_mel, T(2, 8000), T(400), T(257, 40, low=0, high=1), tolerance=1e-3)
infer("voice/mfcc", mfcc, T(2, 200, 40))
infer("voice/mu-law", mu_law, T(2, 16000), tolerance=1e-2)
infer("voice/deltas", deltas, T(2, 40, 200))
infer("voice/pre-emphasis", pre_emphasis, T(4, 16000))
infer("voice/overlap-add", overlap_add, T(2, 50, 400))
infer("voice/cmvn", lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5), T(4, 200, 40))
infer(
    "voice/db",
    lambda x: torch.maximum(d := 10 * x.clamp(min=1e-10).log10(), d.amax((1, 2), keepdim=True) - 80),
    T(4, 80, 200, low=0, high=1),
)
infer(
    "voice/spec-augment",
    lambda x, m: x.masked_fill(
        (torch.arange(200) >= m[:, :1])[:, None] & (torch.arange(200) < m[:, :1] + 20)[:, None], 0.0
    ),
    T(4, 80, 200),
    T(4, 1, dtype=i64, low=0, high=180),
)
infer("voice/int16", lambda x: (x.clamp(-1, 1) * 32767).to(torch.int16), T(2, 16000))
infer("voice/from-int16", lambda x: x.float() / 32768, T(2, 16000, dtype=torch.int16))
infer("voice/stereo-to-mono", lambda x: x.mean(0), T(2, 32000))
infer("voice/envelope", lambda x: x.abs().unfold(-1, 256, 128).amax(-1), T(2, 16000))
infer("voice/zero-crossings", lambda x: (x[:, 1:].sign() != x[:, :-1].sign()).view(2, -1).float().mean(-1), T(2, 16000))
infer(
    "voice/ctc-greedy",
    lambda x: ((i := x.argmax(-1)) * (i != F.pad(i, (1, 0), value=-1)[:, :-1]), x.amax(-1).sum(-1)),
    T(4, 100, 64),
)
