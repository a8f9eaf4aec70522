"""What users write around their models: losses, metrics, augmentations, detection, sampling, audio, time series."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from small.case import T, bf16, boxes, f16, i8, i32, i64, infer, train, u8

# Losses


def dice(logits, target):
    p = logits.sigmoid().flatten(1)
    t = target.flatten(1)
    return (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


def focal(logits, target, gamma=2.0, alpha=0.25):
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    pt = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * ce * (1 - pt) ** gamma).mean()


def info_nce(a, b, temperature):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = a @ b.t() / temperature
    labels = torch.arange(a.shape[0], device=a.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def supervised_contrastive(z, y):
    z = F.normalize(z, dim=1)
    sim = z @ z.t() / 0.1
    eye = torch.eye(z.shape[0], dtype=torch.bool, device=z.device)
    positive = (y[:, None] == y[None, :]) & ~eye
    logp = sim - sim.masked_fill(eye, float("-inf")).logsumexp(1, keepdim=True)
    return -(logp.masked_fill(~positive, 0).sum(1) / positive.sum(1).clamp(min=1)).mean()


def barlow(a, b):
    a = (a - a.mean(0)) / (a.std(0) + 1e-5)
    b = (b - b.mean(0)) / (b.std(0) + 1e-5)
    c = a.t() @ b / a.shape[0]
    on = (c.diagonal() - 1).pow(2).sum()
    return on + 0.005 * (c.pow(2).sum() - c.diagonal().pow(2).sum())


def ssim(a, b):
    c1, c2 = 0.01**2, 0.03**2
    ma, mb = F.avg_pool2d(a, 7, 1), F.avg_pool2d(b, 7, 1)
    va = F.avg_pool2d(a * a, 7, 1) - ma * ma
    vb = F.avg_pool2d(b * b, 7, 1) - mb * mb
    cov = F.avg_pool2d(a * b, 7, 1) - ma * mb
    return (((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma * ma + mb * mb + c1) * (va + vb + c2))).mean()


def wing(pred, target, w=10.0, eps=2.0):
    d = (pred - target).abs()
    c = w - w * math.log(1 + w / eps)
    return torch.where(d < w, w * torch.log1p(d / eps), d - c).mean()


def quantile_loss(pred, y, q):
    d = y[:, None] - pred
    return torch.maximum(q * d, (q - 1) * d).mean()


def gaussian_nll(mean, logvar, y):
    return 0.5 * (logvar + (y - mean) ** 2 * torch.exp(-logvar)).mean()


def kd(student, teacher, labels):
    t = 4.0
    soft = F.kl_div(F.log_softmax(student / t, 1), F.softmax(teacher / t, 1), reduction="batchmean") * t * t
    return 0.7 * soft + 0.3 * F.cross_entropy(student, labels)


def vae_loss(x, recon, mu, logvar):
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return F.binary_cross_entropy_with_logits(recon, x, reduction="sum") / x.shape[0] + kl


def ppo(logp, old, adv, values, returns):
    ratio = (logp - old).exp()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    policy = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    return policy + 0.5 * (returns - values).pow(2).mean()


def dpo(chosen, rejected, ref_chosen, ref_rejected):
    z = 0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -F.logsigmoid(z).mean(), (z > 0).float().mean()


def token_logps(logits, labels, mask):
    logp = logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return (logp * mask).sum(-1) / mask.sum(-1)


def lovasz(logits, labels):
    signs = 2.0 * labels - 1.0
    errors, order = torch.sort(1.0 - logits * signs, descending=True)
    gt = labels[order]
    inter = gt.sum() - gt.cumsum(0)
    union = gt.sum() + (1 - gt).cumsum(0)
    j = 1.0 - inter / union
    return torch.dot(F.relu(errors), torch.cat((j[:1], j[1:] - j[:-1])))


def total_variation(x):
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()


def gram(x):
    b, c, h, w = x.shape
    f = x.reshape(b, c, h * w)
    return (f @ f.transpose(1, 2) / (c * h * w)).pow(2).sum()


train("kinds/loss/dice-small", dice, T(4, 1, 24, 24), T(4, 1, 24, 24, dtype=torch.bool))
train("kinds/loss/dice", dice, T(8, 1, 128, 128), T(8, 1, 128, 128, dtype=torch.bool))
train("kinds/loss/focal", focal, T(64, 80), (T(64, 80, low=0, high=1, dtype=i64)).make().float())
train("kinds/loss/info-nce", lambda a, b: info_nce(a, b, 0.07), *[T(64, 128)] * 2)
train("kinds/loss/supervised-contrastive", supervised_contrastive, T(96, 64), T(96, dtype=i64, low=0, high=9))
train("kinds/loss/barlow", barlow, *[T(128, 96)] * 2, tolerance=1e-3)
infer("kinds/loss/ssim", ssim, *[T(2, 3, 96, 96, low=0, high=1)] * 2, tolerance=1e-3)
train("kinds/loss/wing", wing, *[T(32, 136)] * 2)
train("kinds/loss/quantiles", quantile_loss, T(256, 9), T(256), T(9, low=0.1, high=0.9))
train("kinds/loss/gaussian-nll", gaussian_nll, *[T(128, 24)] * 3)
train("kinds/loss/distillation", kd, *[T(64, 100)] * 2, T(64, dtype=i64, low=0, high=99))
train("kinds/loss/vae", vae_loss, T(32, 784, low=0, high=1), T(32, 784), *[T(32, 16)] * 2)
train("kinds/loss/ppo", ppo, *[T(2048)] * 5)
infer("kinds/loss/dpo-small", dpo, *[T(16)] * 4)
train(
    "kinds/loss/token-logps",
    token_logps,
    T(4, 64, 2000),
    T(4, 64, dtype=i64, low=0, high=1999),
    T(4, 64, low=0, high=1),
)
infer("kinds/loss/token-logps-bf16", token_logps, T(2, 48, 8000, dtype=bf16), T(2, 48, dtype=i64, low=0, high=7999),
      T(2, 48, dtype=torch.bool))  # fmt: skip
infer("kinds/loss/lovasz", lovasz, T(4096), T(4096, dtype=i64, low=0, high=1))
train("kinds/loss/total-variation", total_variation, T(2, 3, 64, 64))
train("kinds/loss/gram", gram, T(2, 32, 24, 24))
train("kinds/loss/huber-masked", lambda p, t, m: (F.huber_loss(p, t, reduction="none") * m).sum() / m.sum(),
      *[T(16, 300)] * 2, T(16, 300, dtype=torch.bool))  # fmt: skip
train("kinds/loss/label-smoothing-2d", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=255),
      T(2, 21, 33, 33), T(2, 33, 33, dtype=i64, low=0, high=20))  # fmt: skip
train("kinds/loss/triplet-hard", lambda z: F.relu(torch.cdist(z, z).topk(3, largest=False).values[:, 1:].mean(1) + 0.3
      - torch.cdist(z, z).amax(1)).mean(), T(48, 32), tolerance=1e-3)  # fmt: skip
train("kinds/loss/cosine-embedding", lambda a, b, y: F.cosine_embedding_loss(a, b, y), T(64, 256), T(64, 256),
      T(64, dtype=i64, low=0, high=0) )  # fmt: skip
train("kinds/loss/poisson-nll", lambda x, y: F.poisson_nll_loss(x, y), T(100, 40), T(100, 40, low=0, high=6))
train("kinds/loss/bce-pos-weight", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w / 10),
      T(128, 30), T(128, 30, low=0, high=1), torch.arange(1, 31))  # fmt: skip
train("kinds/loss/multi-margin", lambda x, y: F.multi_margin_loss(x, y), T(64, 20), T(64, dtype=i64, low=0, high=19))

# Metrics


def confusion(pred, target):
    n = 10
    return torch.bincount(pred.flatten() * n + target.flatten(), minlength=n * n).reshape(n, n)


def mean_iou(logits, target):
    pred = logits.argmax(1)
    hot_p, hot_t = F.one_hot(pred, 8).bool(), F.one_hot(target, 8).bool()
    inter = (hot_p & hot_t).sum((0, 1, 2))
    union = (hot_p | hot_t).sum((0, 1, 2))
    return (inter / union.clamp(min=1)).mean()


def topk_accuracy(logits, y):
    hit = logits.topk(5, 1).indices == y[:, None]
    return hit[:, :1].float().mean(), hit.any(1).float().mean()


def calibration(logits, y):
    conf, pred = logits.softmax(1).max(1)
    right = (pred == y).float()
    bins = torch.bucketize(conf, torch.linspace(0, 1, 11, device=conf.device)[1:-1])
    n = torch.zeros(10, device=conf.device).index_add_(0, bins, torch.ones_like(conf))
    acc = torch.zeros(10, device=conf.device).index_add_(0, bins, right)
    cs = torch.zeros(10, device=conf.device).index_add_(0, bins, conf)
    return ((acc - cs).abs() / n.clamp(min=1) * n).sum() / conf.numel()


def auc(scores, labels):
    order = scores.argsort(descending=True)
    y = labels[order].float()
    tp, fp = y.cumsum(0), (1 - y).cumsum(0)
    return torch.trapezoid(tp / tp[-1], fp / fp[-1])


def psnr(a, b):
    return 10 * torch.log10(255.0**2 / (a.float() - b.float()).pow(2).mean((1, 2, 3)))


def f1(pred, y):
    tp = (pred & y).sum(0).float()
    return (2 * tp / (pred.sum(0) + y.sum(0)).clamp(min=1)).mean()


infer("kinds/metric/confusion", confusion, *[T(4, 64, 64, dtype=i64, low=0, high=9)] * 2)
infer("kinds/metric/mean-iou", mean_iou, T(2, 8, 48, 48), T(2, 48, 48, dtype=i64, low=0, high=7))
infer("kinds/metric/top5", topk_accuracy, T(128, 1000), T(128, dtype=i64, low=0, high=999))
infer("kinds/metric/calibration", calibration, T(512, 20), T(512, dtype=i64, low=0, high=19))
infer("kinds/metric/auc", auc, T(2000), T(2000, dtype=torch.bool))
infer("kinds/metric/psnr-u8", psnr, *[T(4, 3, 64, 64, dtype=u8)] * 2)
infer("kinds/metric/f1", f1, *[T(500, 14, dtype=torch.bool)] * 2)
infer("kinds/metric/r2", lambda p, y: 1 - ((y - p) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0), *[T(400, 5)] * 2)
infer(
    "kinds/metric/edit-row", lambda d, c: torch.minimum(torch.minimum(d[1:] + 1, d[:-1] + c), d[:-1] + 1), T(65), T(64)
)
infer("kinds/metric/histogram", lambda x: torch.histc(x, 64, -3, 3) / x.numel(), T(20000))
infer(
    "kinds/metric/unit-accuracy",
    lambda x, y: (x.argmax(-1) == y).float().mean(),
    T(32, 10),
    T(32, dtype=i64, low=0, high=9),
)

# Augmentation, preprocessing and postprocessing


def normalize_u8(x, mean, std):
    return (x.permute(0, 3, 1, 2).float() / 255 - mean) / std


def mixup(x, y, lam):
    return lam * x + (1 - lam) * x.flip(0), lam * y + (1 - lam) * y.flip(0)


def cutout(x, cy, cx):
    h = torch.arange(x.shape[2], device=x.device)
    w = torch.arange(x.shape[3], device=x.device)
    my = (h[None] - cy[:, None]).abs() < 8
    mx = (w[None] - cx[:, None]).abs() < 8
    return x.masked_fill((my[:, :, None] & mx[:, None, :])[:, None], 0)


def rgb_to_hsv(x):
    r, g, b = x.unbind(1)
    top, low = x.amax(1), x.amin(1)
    d = top - low
    s = d / torch.where(top == 0, torch.ones_like(top), top)
    safe = torch.where(d == 0, torch.ones_like(d), d)
    h = torch.where(top == r, (g - b) / safe, torch.where(top == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    return torch.stack(((h / 6) % 1, s, top), 1)


def rgb_to_ycbcr(x):
    r, g, b = x[..., 0].float(), x[..., 1].float(), x[..., 2].float()
    y = 0.299 * r + 0.587 * g + 0.114 * b
    out = torch.stack((y, 0.564 * (b - y) + 128, 0.713 * (r - y) + 128), -1)
    return out.round().clamp(0, 255).to(torch.uint8)


def rotate(x, angle):
    c, s = angle.cos(), angle.sin()
    zero = torch.zeros_like(c)
    theta = torch.stack((torch.stack((c, -s, zero), -1), torch.stack((s, c, zero), -1)), -2)
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


def spec_augment(x, t0, f0):
    t = torch.arange(x.shape[-1], device=x.device)
    f = torch.arange(x.shape[-2], device=x.device)
    mt = (t >= t0[:, None]) & (t < t0[:, None] + 20)
    mf = (f >= f0[:, None]) & (f < f0[:, None] + 8)
    return x.masked_fill(mt[:, None, :] | mf[:, :, None], 0.0)


def overlay(image, mask, color):
    shade = image * 0.5 + color[:, None, None] * 0.5
    return torch.where(mask[:, None], shade, image.float()).to(torch.uint8)


def equalize(x):
    hist = torch.zeros(256, dtype=i64, device=x.device).scatter_add_(
        0, x.flatten().long(), torch.ones(x.numel(), dtype=i64, device=x.device)
    )
    cdf = hist.cumsum(0).float()
    table = (cdf - cdf[0]) / (cdf[-1] - cdf[0]).clamp(min=1) * 255
    return table[x.long()].to(torch.uint8)


infer("kinds/image/normalize-u8", normalize_u8, T(8, 64, 64, 3, dtype=u8), T(3, 1, 1), T(3, 1, 1, low=0.5, high=1))
infer("kinds/image/normalize-u8-tiny", normalize_u8, T(1, 28, 28, 3, dtype=u8), T(3, 1, 1), T(3, 1, 1, low=0.5, high=1))
infer("kinds/image/normalize-u8-half", lambda x, m, s: normalize_u8(x, m, s).half(), T(2, 128, 128, 3, dtype=u8),
      T(3, 1, 1),
      T(3, 1, 1, low=0.5, high=1))  # fmt: skip
infer("kinds/image/mixup", mixup, T(16, 3, 32, 32), T(16, 10), 0.3)
infer("kinds/image/cutout", cutout, T(16, 3, 32, 32), *[T(16, dtype=i64, low=0, high=31)] * 2)
infer("kinds/image/hsv", rgb_to_hsv, T(2, 3, 64, 64, low=0, high=1))
infer("kinds/image/hsv-cl", rgb_to_hsv, T(2, 3, 64, 64, low=0, high=1, layout="channels_last"))
infer("kinds/image/ycbcr", rgb_to_ycbcr, T(4, 64, 64, 3, dtype=u8))
infer("kinds/image/rotate", rotate, T(4, 3, 48, 48), T(4))
infer(
    "kinds/image/spec-augment",
    spec_augment,
    T(8, 80, 200),
    T(8, dtype=i64, low=0, high=170),
    T(8, dtype=i64, low=0, high=70),
)
infer("kinds/image/overlay", overlay, T(4, 3, 64, 64, dtype=u8), T(4, 64, 64, dtype=torch.bool), T(3, low=0, high=255))
infer("kinds/image/equalize", equalize, T(96, 96, dtype=u8))
infer(
    "kinds/image/grayscale-contrast", lambda x, f: (x - x.mean((1, 2, 3), keepdim=True)) * f + 0.5, T(8, 3, 48, 48), 1.3
)
infer("kinds/image/gaussian-blur", lambda x, k: F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), k, groups=3), T(4,
      3, 64, 64),
      T(3, 1, 5, 5, low=0, high=0.08))  # fmt: skip
infer(
    "kinds/image/sobel",
    lambda x, k: F.conv2d(x, k, padding=1).pow(2).sum(1, keepdim=True).sqrt(),
    T(4, 1, 64, 64),
    T(2, 1, 3, 3),
)
infer("kinds/image/letterbox", lambda x: F.pad(F.interpolate(x.float(), size=(48, 64), mode="bilinear") / 255,
      (0, 0, 8, 8), value=0.45), T(1, 3, 90, 120, dtype=u8))  # fmt: skip
infer(
    "kinds/image/resize-bf16-nearest",
    lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    T(2, 16, 24, 24, dtype=bf16),
)
infer(
    "kinds/image/bilinear-half",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    T(1, 16, 20, 20, dtype=f16),
)
infer("kinds/image/flip-crop", lambda x: x[:, :, 4:-4, 4:-4].flip(-1) * 2 - 1, T(8, 3, 40, 40))
infer(
    "kinds/image/seg-argmax",
    lambda x: F.interpolate(x, size=(64, 64), mode="bilinear").argmax(1).to(u8),
    T(1, 19, 16, 16),
)
infer(
    "kinds/image/dither",
    lambda x, m: (x / 255 > m.repeat(16, 16)).to(u8) * 255,
    T(64, 64, low=0, high=255),
    T(4, 4, low=0, high=1),
)
infer("kinds/image/erode", lambda m: -F.max_pool2d(-m, 3, 1, 1), T(2, 1, 64, 64, low=0, high=1))
infer(
    "kinds/image/patchify",
    lambda x: x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3),
    T(4, 3, 64, 64),
)
infer("kinds/image/heatmap-peak", lambda h: (h * (F.max_pool2d(h, 3, 1, 1) == h)).flatten(2).topk(10), T(1, 20, 32, 32))
infer(
    "kinds/image/soft-argmax",
    lambda h, g: (h.flatten(2).softmax(-1)[..., None] * g).sum(2),
    T(8, 17, 24, 24),
    T(576, 2),
)

# Detection


def iou(a, b):
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])  # noqa: E731
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def giou_loss(a, b):
    inter = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inter
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    return (1 - inter / union + (hull - union) / hull).mean()


def decode_boxes(anchors, deltas):
    wh = anchors[:, 2:] - anchors[:, :2]
    c = anchors[:, :2] + 0.5 * wh
    nc = deltas[:, :2] * 0.1 * wh + c
    nwh = (deltas[:, 2:] * 0.2).clamp(max=4.13).exp() * wh
    return torch.cat((nc - nwh / 2, nc + nwh / 2), 1).clamp(0, 1)


def anchors(stride, sizes):
    y = (torch.arange(16, device=sizes.device) + 0.5) * stride
    gy, gx = torch.meshgrid(y, y, indexing="ij")
    c = torch.stack((gx, gy), -1).reshape(-1, 1, 2)
    return torch.cat((c - sizes / 2, c + sizes / 2), -1).reshape(-1, 4)


def matrix_nms(b, scores):
    overlap = iou(b, b).triu(1)
    worst = overlap.amax(0)
    decay = torch.exp(-(overlap**2 - worst[:, None] ** 2) * 2).amin(0)
    return scores * decay


def match(a, gt):
    m = iou(a, gt)
    best, which = m.max(1)
    labels = torch.where(best < 0.4, -1, which)
    labels = labels.scatter(0, m.argmax(0), torch.arange(gt.shape[0], device=gt.device))
    return labels, gt[which]


def yolo_decode(x, grid, anchor):
    b, _, h, w = x.shape
    y = x.view(b, 3, 15, h, w).permute(0, 1, 3, 4, 2).sigmoid()
    xy = (y[..., :2] * 2 - 0.5 + grid) * 8
    wh = (y[..., 2:4] * 2) ** 2 * anchor
    return torch.cat((xy, wh, y[..., 4:]), -1).view(b, -1, 15)


def distribution_focal(x, project):
    return x.view(2, 4, 16, -1).transpose(2, 1).softmax(1).mul(project[None, :, None, None]).sum(1)


infer("kinds/detect/iou", iou, boxes(100), boxes(40))
infer("kinds/detect/iou-large", iou, boxes(1000), boxes(300))
infer("kinds/detect/iou-half", lambda a, b: iou(a.half(), b.half()), boxes(128), boxes(64))
train("kinds/detect/giou", giou_loss, boxes(200), boxes(200))
infer("kinds/detect/decode", decode_boxes, boxes(1000), T(1000, 4))
infer("kinds/detect/anchors", anchors, 8.0, T(3, 2, low=8, high=64))
infer("kinds/detect/matrix-nms", matrix_nms, boxes(100), T(100, low=0, high=1), tolerance=1e-3)
infer("kinds/detect/match", match, boxes(300), boxes(12))
infer("kinds/detect/yolo", yolo_decode, T(1, 45, 20, 20), T(1, 1, 20, 20, 2), T(1, 3, 1, 1, 2))
infer("kinds/detect/dfl", distribution_focal, T(2, 64, 400), T(16))
infer("kinds/detect/xywh", lambda b: torch.cat((b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2), 1), T(25, 4))
infer("kinds/detect/score-filter", lambda s: s.max(1).values.topk(50), T(1000, 80, low=0, high=1))
infer("kinds/detect/roi-bilinear", lambda f, g: F.grid_sample(f.expand(8, -1, -1, -1), g, align_corners=True), T(1,
      32, 25, 25),
      T(8, 7, 7, 2, low=-1, high=1))  # fmt: skip
infer("kinds/detect/hungarian-cost", lambda p, b, y, gt: torch.cdist(b, gt, 1) * 5 - p.softmax(-1)[:, y], T(100, 30),
      T(100, 4), T(8, dtype=i64, low=0, high=29), T(8, 4))  # fmt: skip

# Sampling


def top_p(logits):
    s, at = torch.sort(logits, descending=True)
    keep = s.softmax(-1).cumsum(-1) - s.softmax(-1) < 0.9
    return torch.full_like(logits, float("-inf")).scatter(-1, at, s.masked_fill(~keep, float("-inf")))


def repetition(logits, tokens):
    score = logits.gather(1, tokens)
    return logits.scatter(1, tokens, torch.where(score < 0, score * 1.2, score / 1.2))


def top_k_mask(logits):
    return logits.masked_fill(logits < logits.topk(40).values[..., -1:], float("-inf")).softmax(-1)


def min_p(logits):
    p = logits.softmax(-1)
    return logits.masked_fill(p < 0.05 * p.amax(-1, keepdim=True), float("-inf"))


def gumbel_argmax(logits, u):
    return (logits / 0.8 - torch.log(-torch.log(u))).argmax(-1)


def typical(logits):
    lp = logits.log_softmax(-1)
    ent = -(lp.exp() * lp).sum(-1, keepdim=True)
    shift = (-lp - ent).abs()
    at = shift.argsort()
    keep = lp.gather(-1, at).exp().cumsum(-1) < 0.95
    return logits.masked_fill(~keep.gather(-1, at.argsort(-1)), float("-inf"))


def speculative(p, q, draft, u):
    pd = p.gather(-1, draft[..., None]).squeeze(-1)
    qd = q.gather(-1, draft[..., None]).squeeze(-1)
    ok = (u < pd / qd).long().cumprod(-1).sum(-1)
    rest = (p - q).clamp(min=0)
    return ok, rest / rest.sum(-1, keepdim=True)


def beam(scores, logp):
    total = (scores[:, :, None] + logp).flatten(1)
    best, at = total.topk(4)
    return best, at // logp.shape[-1], at % logp.shape[-1]


def inverse_cdf(p, u):
    return torch.searchsorted(p.cumsum(-1), u)


infer("kinds/sample/top-p", top_p, T(2, 4000))
infer("kinds/sample/repetition", repetition, T(2, 8000), T(2, 64, dtype=i64, low=0, high=7999))
infer("kinds/sample/top-k", top_k_mask, T(1, 8000))
infer("kinds/sample/min-p-bf16", min_p, T(4, 4000, dtype=bf16))
infer("kinds/sample/gumbel", gumbel_argmax, T(8, 1000), T(8, 1000, low=0.01, high=0.99))
infer("kinds/sample/typical", typical, T(1, 2000))
infer("kinds/sample/speculative", lambda a, b, d, u: speculative(a.softmax(-1), b.softmax(-1), d, u), *[T(2, 5,
      1000)] * 2,
      T(2, 5, dtype=i64, low=0, high=999), T(2, 5, low=0, high=1))  # fmt: skip
infer("kinds/sample/beam", beam, T(2, 4), T(2, 4, 1000))
infer("kinds/sample/inverse-cdf", inverse_cdf, T(16, 200, low=0, high=0.01), T(16, 8, low=0, high=1))
infer("kinds/sample/greedy", lambda x: x[:, -1, :].argmax(-1, keepdim=True), T(4, 8, 500))
infer(
    "kinds/sample/stop",
    lambda t, done: (torch.where(done, 0, t), done | (t == 2)),
    T(16, dtype=i64),
    T(16, dtype=torch.bool),
)
infer("kinds/sample/entropy-f16", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), T(8, 2000, dtype=f16))

# Audio and time series


def frames(x, window):
    f = x.unfold(-1, 400, 160) * window
    return f - f.mean(-1, keepdim=True)


def log_mel(power, fb):
    m = torch.clamp(fb @ power, min=1e-10).log10()
    return (torch.maximum(m, m.amax((-1, -2), keepdim=True) - 8) + 4) / 4


def mu_law(x):
    y = x.sign() * torch.log1p(255 * x.abs()) / math.log1p(255)
    return ((y + 1) / 2 * 255 + 0.5).to(i64)


def overlap_add(f):
    return F.fold(f.transpose(1, 2), (1, 160 * (f.shape[1] - 1) + 400), (1, 400), stride=(1, 160)).flatten(1)


def deltas(x):
    p = F.pad(x, (2, 2), mode="replicate")
    return (p[..., 3:-1] - p[..., 1:-3] + 2 * (p[..., 4:] - p[..., :-4])) / 10


def rolling(x):
    w = x.unfold(1, 20, 1)
    return (x[:, 19:] - w.mean(-1)) / (w.std(-1) + 1e-6)


def ema(x, a):
    out, h = [], x[:, 0]
    for t in range(x.shape[1]):
        h = a * x[:, t] + (1 - a) * h
        out.append(h)
    return torch.stack(out, 1)


def revin(x):
    m, s = x.mean(1, keepdim=True), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    y = (x - m) / s
    return y * s + m + y.cumsum(1) * 0.01


def decompose(x):
    p = torch.cat((x[:, :1].repeat(1, 12, 1), x, x[:, -1:].repeat(1, 12, 1)), 1)
    trend = F.avg_pool1d(p.transpose(1, 2), 25, 1).transpose(1, 2)
    return x - trend, trend


def autocorrelation(x):
    n = x.shape[-1]
    f = torch.fft.rfft(x, 2 * n)
    return torch.fft.irfft(f * f.conj())[..., :n] / n


infer("kinds/audio/frames", frames, T(2, 8000), T(400))
infer("kinds/audio/log-mel", log_mel, T(2, 201, 150, low=0, high=1), T(80, 201, low=0, high=0.1))
infer("kinds/audio/mu-law", mu_law, T(4, 4000, low=-1, high=1))
infer("kinds/audio/overlap-add", overlap_add, T(2, 40, 400))
infer("kinds/audio/deltas", deltas, T(4, 40, 200))
infer("kinds/audio/spectrum", lambda x, w: torch.fft.rfft(x * w).abs().pow(2), T(60, 400), T(400))
infer(
    "kinds/audio/stft",
    lambda x, w: torch.stft(x, 256, 64, 256, w, return_complex=True).abs().log1p(),
    T(2, 4000),
    T(256),
)
infer("kinds/audio/pcm", lambda x: (x.float() / 32768).clamp(-1, 1).mean(0), T(2, 16000, dtype=torch.int16))
infer("kinds/audio/preemphasis", lambda x: torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1), T(4, 8000))
infer("kinds/audio/griffin-phase", lambda m, c: m * c / (c.abs() + 1e-8), T(129, 60), T(129, 60, dtype=torch.complex64))
infer("kinds/audio/energy-vad", lambda x: (x.unfold(1, 200, 100).pow(2).mean(-1).log() > -1).to(u8), T(2, 8000))
infer("kinds/series/rolling", rolling, T(8, 300))
infer("kinds/series/ema", lambda x: ema(x, 0.3), T(32, 24))
infer("kinds/series/revin", revin, T(16, 96, 7))
train("kinds/series/decompose", decompose, T(8, 96, 7))
infer("kinds/series/autocorrelation", autocorrelation, T(8, 128))
infer("kinds/series/lags", lambda x: torch.stack([x.roll(k, 1) for k in (1, 2, 7)], -1), T(16, 200))
infer("kinds/series/fill-forward", lambda x, m: x.gather(1, (torch.arange(x.shape[1],
      device=x.device) * m).cummax(1).values),
      T(16, 120), T(16, 120, dtype=i64, low=0, high=1))  # fmt: skip
infer("kinds/series/quantize-i8", lambda x: (x / (x.abs().amax(-1, keepdim=True) / 127)).round().to(i8), T(64, 256))
infer("kinds/series/positions", lambda m: (m.to(i32).cumsum(1) - 1).clamp(min=0), T(8, 128, dtype=torch.bool))
