"""The programs of ``micro.py`` as users write them: pipelines, steps of training and of decoding, geometry, signals."""

from __future__ import annotations

import math
from typing import Any

import torch
from micro_case import Case, T, bf16, case, f16, f32, i8, i32, i64, infer, module, train, u8
from torch import nn
from torch.nn import functional as F

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


def boxes(count: int) -> Any:
    corner = torch.rand(count, 2)
    return torch.cat((corner, corner + torch.rand(count, 2) + 0.1), 1)


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

# Graphs, points and boxes


def message(x: Any, edges: Any, w: Any) -> Any:
    source, target = edges
    sent = F.relu(x[source] @ w + x[target])
    return torch.zeros_like(x).index_add_(0, target, sent)


def edge_softmax(score: Any, target: Any) -> Any:
    most = torch.full((256,), -1e30, device=score.device).scatter_reduce(0, target, score, "amax")
    e = (score - most[target]).exp()
    return e / torch.zeros(256, device=score.device).scatter_add(0, target, e)[target]


def suppressed(found: Any, scores: Any) -> Any:
    order = scores.argsort(descending=True)
    b = found[order]
    lt, rb = torch.max(b[:, None, :2], b[None, :, :2]), torch.min(b[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    return (inter / (area[:, None] + area - inter) > 0.5).triu(1).any(0)


EDGES = torch.randint(0, 256, (2, 2048))
infer("graphs/message", message, T(256, 64), EDGES, T(64, 64))
train("graphs/message-training", message, T(256, 64), EDGES, T(64, 64))
infer("graphs/edge-softmax", edge_softmax, T(2048), EDGES[1])
train("graphs/edge-softmax-training", edge_softmax, T(2048), EDGES[1])
infer(
    "graphs/segment-mean",
    lambda x, s: torch.zeros(32, 64).scatter_reduce(0, s[:, None].expand(-1, 64), x, "mean", include_self=False),
    T(1024, 64),
    T(1024, dtype=i64, low=0, high=31),
)
infer(
    "graphs/degree-norm",
    lambda e: (d := torch.zeros(256).scatter_add(0, e[1], torch.ones(2048)).clamp_min(1).rsqrt())[e[0]] * d[e[1]],
    EDGES,
)
infer("graphs/knn", lambda x: torch.cdist(x, x).topk(8, largest=False)[1], T(256, 3))
infer(
    "graphs/pairwise-squares",
    lambda x, y: (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.t()).clamp_min(0).sqrt(),
    T(256, 32),
    T(256, 32),
)
infer(
    "graphs/knn-features",
    lambda x, i: torch.cat((x[i] - x[:, None], x[:, None].expand(-1, 8, -1)), -1).amax(1),
    T(512, 32),
    T(512, 8, dtype=i64, low=0, high=511),
)
infer("graphs/nms-mask", suppressed, boxes(128), T(128))
infer(
    "graphs/chamfer",
    lambda a, b: (d := (a[:, None] - b[None]).square().sum(-1)).amin(1).mean() + d.amin(0).mean(),
    T(256, 3),
    T(256, 3),
)
infer(
    "graphs/quaternion",
    lambda q, v: v + 2 * torch.linalg.cross(q[:, :3], torch.linalg.cross(q[:, :3], v) + q[:, 3:] * v),
    T(4096, 4),
    T(4096, 3),
)
infer(
    "graphs/positional-fourier",
    lambda x: torch.cat([f(x * 2**k) for k in range(6) for f in (torch.sin, torch.cos)], -1),
    T(2048, 3),
)

# Steps of training


def step(name: str, update: Any, *inputs: Any) -> None:
    infer(f"step/{name}", update, *inputs)


def lion(p: Any, g: Any, m: Any) -> Any:
    p.mul_(1 - 1e-4).add_(torch.sign(m * 0.9 + g * 0.1), alpha=-1e-3)
    m.lerp_(g, 0.01)


def adafactor(p: Any, g: Any, row: Any, column: Any) -> Any:
    square = g.square() + 1e-30
    row.mul_(0.99).add_(square.mean(-1), alpha=0.01)
    column.mul_(0.99).add_(square.mean(-2), alpha=0.01)
    update = g * (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
    p.sub_(1e-2 * update / torch.clamp(update.square().mean().sqrt(), min=1.0))


def clip_all(*gs: Any) -> Any:
    total = torch.stack([g.norm() for g in gs]).norm()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    for g in gs:
        g.mul_(scale)
    return total


def newton_schulz(g: Any) -> Any:
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


step("lion", lion, *[T(256, 512)] * 3)
step("adafactor", adafactor, T(256, 512), T(256, 512), T(256, low=0, high=1), T(512, low=0, high=1))
step("clip-all", clip_all, *[T(64, 64)] * 8)
step("muon", newton_schulz, T(64, 128))
step("ema-bf16", lambda e, p: e.lerp_(p.to(f32), 0.01), T(256, 512), T(256, 512, dtype=bf16))
step(
    "factorization",
    lambda u, v, i, j, r: ((u[i] * v[j]).sum(1) - r).square().mean(),
    T(1000, 32),
    T(800, 32),
    T(512, dtype=i64, low=0, high=799),
    T(512, dtype=i64, low=0, high=799),
    T(512),
)
train(
    "step/factorization-training",
    lambda u, v, i, j, r: ((u[i] * v[j]).sum(1) - r).square().mean(),
    T(1000, 32),
    T(800, 32),
    T(512, dtype=i64, low=0, high=799),
    T(512, dtype=i64, low=0, high=799),
    T(512),
)
train(
    "step/weight-norm",
    lambda x, v, g: x @ (v * (g / v.norm(dim=1, keepdim=True))).t(),
    T(64, 256),
    T(128, 256),
    T(128, 1),
)
train("step/straight-through", lambda x: x + (torch.round(x * 8) / 8 - x).detach(), T(256, 512))
train(
    "step/gradient-penalty",
    lambda x, w: (torch.tanh(x @ w).square().sum(1).sqrt() - 1).square().mean(),
    T(128, 64),
    T(64, 64),
)
train("step/mixup", lambda x, p: x * p[:, None] + x.flip(0) * (1 - p[:, None]), T(128, 512), T(128, low=0, high=1))

# Layers


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(32, 64, 3, padding=1), nn.GroupNorm(4, 64)

    def forward(self, x: Any) -> Any:
        return F.glu(self.norm(self.conv(x)), 1)


def squeeze_excite() -> nn.Module:
    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Linear(64, 16), nn.Linear(16, 64)

        def forward(self, x: Any) -> Any:
            return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))[:, :, None, None]

    return Squeeze()


def moe(x: Any, gate: Any, w: Any) -> Any:
    weight, chosen = (x @ gate).softmax(-1).topk(2)
    outputs = torch.einsum("td,edh->teh", x, w)
    return (outputs.gather(1, chosen[..., None].expand(-1, -1, w.shape[-1])) * weight[..., None]).sum(1)


module("layer/gated-conv1d", Gated, T(4, 32, 128))
module("layer/gated-conv1d-training", Gated, T(4, 32, 128), training=True)
module("layer/squeeze-excite", squeeze_excite, T(2, 64, 32, 32))
module("layer/squeeze-excite-training", squeeze_excite, T(2, 64, 32, 32), training=True)
module(
    "layer/conv3d",
    lambda: nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2)),
    T(1, 4, 8, 32, 32),
)
module(
    "layer/depthwise-separable",
    lambda: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.SiLU(), nn.Conv2d(32, 64, 1)),
    T(2, 32, 32, 32),
)
module(
    "layer/upsample-conv",
    lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, padding=1), nn.LeakyReLU(0.1)),
    T(1, 16, 32, 32),
)
module("layer/instance-norm-training", lambda: nn.InstanceNorm2d(16, affine=True), T(4, 16, 32, 32), training=True)
module("layer/gru-sequence", lambda: nn.GRU(32, 64, batch_first=True), T(4, 12, 32))
module("layer/bag-max", lambda: nn.EmbeddingBag(1000, 64, mode="max"), T(64, 16, dtype=i64, low=0, high=999))
module(
    "layer/dropout-mlp-training",
    lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 8)),
    T(64, 64),
    training=True,
    random=True,
)
module("layer/prelu-training", lambda: nn.Sequential(nn.Linear(64, 64), nn.PReLU(64)), T(64, 64), training=True)
module("layer/local-response", lambda: nn.LocalResponseNorm(5), T(2, 32, 24, 24))
module("layer/channel-attention-pool", lambda: nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Hardswish()), T(2, 32, 48, 48))
module("layer/lp-pool", lambda: nn.LPPool2d(2, 2), T(2, 16, 48, 48, low=0.1, high=1))
module(
    "layer/layer-scale-training",
    lambda: nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128), nn.Tanh()),
    T(4, 32, 128),
    training=True,
)
infer("layer/moe-top-2", moe, T(64, 64), T(64, 8), T(8, 64, 64))
train("layer/moe-top-2-training", moe, T(64, 64), T(64, 8), T(8, 64, 64))
infer(
    "layer/einsum-mix", lambda x, a, b: torch.einsum("bij,jk,bkl->bil", x, a, b), T(8, 32, 48), T(48, 24), T(8, 24, 40)
)
infer("layer/tensor-product", lambda x, y: torch.einsum("bi,bj->bij", x, y).flatten(1), T(64, 32), T(64, 48))
infer(
    "layer/scale-norm-bf16",
    lambda x, g: x * g / x.float().norm(dim=-1, keepdim=True).clamp_min(1e-5).to(bf16),
    T(128, 512, dtype=bf16),
    T(512, dtype=bf16),
)
infer(
    "layer/group-rms",
    lambda x, g: (
        (x.view(64, 8, 64) * (x.view(64, 8, 64).square().mean(-1, keepdim=True) + 1e-6).rsqrt()).flatten(1) * g
    ),
    T(64, 512),
    T(512),
)

# Choices, selections and numbers


def beam(scores: Any, logits: Any) -> Any:
    total = scores[:, :, None] + logits.log_softmax(-1)
    best, at = total.flatten(1).topk(4)
    return best, at // logits.shape[-1], at % logits.shape[-1]


def nucleus(logits: Any) -> Any:
    p, at = logits.softmax(-1).sort(descending=True)
    drop = p.cumsum(-1) - p > 0.9
    return torch.full_like(logits, float("-inf")).scatter(1, at, p.masked_fill(drop, 0).log())


def per_channel_int8(x: Any) -> Any:
    scale = x.abs().amax(1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(i8), scale


infer("choose/beam", beam, T(4, 4), T(4, 4, 1000))
infer("choose/nucleus", nucleus, T(4, 2000))
infer(
    "choose/masked-mean",
    lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp_min(1),
    T(8, 64, 256),
    T(8, 64, dtype=torch.bool),
)
infer("choose/boolean-assign", lambda x: torch.where(x.isnan() | (x > 2), torch.zeros(()), x).cumsum(-1), T(64, 1024))
infer(
    "choose/assign-mask", lambda x, m: x.clone().masked_fill_(m, -1).add_(1), T(256, 512), T(256, 512, dtype=torch.bool)
)
infer(
    "choose/masked-scatter-rows",
    lambda x, m, s: x.masked_scatter(m[..., None], s),
    T(4, 128, 64),
    T(4, 128, dtype=torch.bool),
    T(512, 64),
)
infer("choose/one-hot-sum", lambda y: F.one_hot(y, 64).float().mean(1), T(64, 32, dtype=i64, low=0, high=63))
infer("choose/per-channel-int8", per_channel_int8, T(256, 1024))
infer(
    "choose/dequantize-zero-point",
    lambda q, s, z: (q.to(f32) - z.to(f32)) * s,
    T(256, 1024, dtype=u8),
    T(256, 1),
    T(256, 1, dtype=u8),
)
infer(
    "choose/fake-quantize",
    lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, -128, 127),
    T(64, 512),
    T(64, low=0.01, high=0.1),
    torch.zeros(64, dtype=i32),
)
infer("choose/sort-gather", lambda x, y: y.gather(1, x.argsort(1)), T(64, 128), T(64, 128))
infer("choose/rank", lambda x: x.argsort(-1).argsort(-1).float() / 127, T(64, 128))
infer("choose/nth-largest-mask", lambda x: x * (x >= x.topk(8)[0][..., -1:]), T(128, 256))
infer("choose/running-max", lambda x: x - x.cummax(-1)[0], T(64, 512))
infer("choose/segments", lambda x: (x[:, 1:] != x[:, :-1]).cumsum(1), T(64, 512, dtype=i64, low=0, high=3))
infer(
    "choose/discounted",
    lambda r: (r * 0.99 ** torch.arange(256, device=r.device)).flip(-1).cumsum(-1).flip(-1),
    T(32, 256),
)
infer("choose/moving-average", lambda x: F.avg_pool1d(x, 5, 1, 2), T(16, 8, 512))
infer("choose/polynomial", lambda x: sum(c * x**k for k, c in enumerate((0.5, -1.0, 0.25, 0.125))), T(256, 512))
infer(
    "choose/complex-magnitude", lambda a, b: (torch.complex(a, b) * torch.complex(b, a)).abs(), T(128, 512), T(128, 512)
)
infer("choose/float-bits", lambda x: (x.view(i32) >> 23 & 255) - 127, T(256, 512))
infer("choose/interleave", lambda a, b: torch.stack((a, b), -1).flatten(-2) * 2, T(256, 256), T(256, 256))
infer("choose/f16-clamp-scale", lambda x: (x.float() * 3).clamp(-60000, 60000).half(), T(256, 512, dtype=f16))
infer("choose/strided-sum", lambda x: x[:, ::2] + x[:, 1::2], T(256, 1024))
infer("choose/covariance", lambda x: (x - x.mean(0)).t() @ (x - x.mean(0)) / 255, T(256, 64))
infer("choose/corr", lambda x: torch.corrcoef(x), T(64, 256))
infer("choose/batch-diagonal", lambda x: torch.diag_embed(x) + x[:, None], T(64, 48))
infer("choose/tril-gather", lambda x: x[:, torch.tril_indices(32, 32)[0], torch.tril_indices(32, 32)[1]], T(32, 32, 32))
infer(
    "choose/select-write",
    lambda x, y: x.index_fill(1, torch.tensor([1, 5]), 0.0).select_scatter(y, 1, 3),
    T(64, 32, 64),
    T(64, 64),
)
infer("choose/log-add", lambda a, b: torch.logaddexp(a, b), T(256, 512), T(256, 512))
infer("choose/int-mean", lambda x: x.float().mean(0).round().to(u8), T(16, 3, 64, 64, dtype=u8))
