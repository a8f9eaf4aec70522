"""What people try first with a compiler: layers, attention, caches, losses, images, sound, graphs; 20 us to 5 ms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, boxes, f16, i8, i64, infer, module, train, u8

# Layers and activations


def rms(x, w):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * w


def swiglu(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def add_norm(x, r, w, b):
    h = x + r
    return F.layer_norm(h, (h.shape[-1],), w, b), h


for name, dtype in (("f32", torch.float32), ("bf16", bf16), ("f16", f16)):
    infer(
        f"tries/swiglu/{name}",
        swiglu,
        T(32, 512, dtype=dtype),
        *[T(1024, 512, dtype=dtype)] * 2,
        T(512, 1024, dtype=dtype),
    )
    infer(
        f"tries/geglu/{name}",
        lambda x: F.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1],
        T(256, 2048, dtype=dtype),
    )
    infer(
        f"tries/rms-residual/{name}",
        lambda x, r, w: (rms(x + r, w), x + r),
        *[T(512, 768, dtype=dtype)] * 2,
        T(768, dtype=dtype),
    )
    infer(f"tries/add-norm/{name}", add_norm, *[T(512, 768, dtype=dtype)] * 2, *[T(768, dtype=dtype)] * 2)
    infer(f"tries/mish-hardswish/{name}", lambda x: F.mish(x) + F.hardswish(x), T(512, 512, dtype=dtype))
    infer(f"tries/softplus-elu/{name}", lambda x: F.softplus(x) - F.elu(x) + F.selu(x), T(256, 512, dtype=dtype))
    infer(f"tries/log-softmax/{name}", lambda x: x.log_softmax(-1), T(64, 8192, dtype=dtype))
    infer(f"tries/softmax-columns/{name}", lambda x: x.softmax(1), T(16, 256, 64, dtype=dtype))
train("tries/swiglu-training", swiglu, T(64, 256), *[T(512, 256)] * 2, T(256, 512))
train("tries/rms-training", lambda x, r, w: rms(x + r, w), *[T(256, 512)] * 2, T(512))
train(
    "tries/gelu-dropoutless-mlp",
    lambda x, a, b, c, d: F.linear(F.gelu(F.linear(x, a, b)), c, d),
    T(64, 128),
    T(512, 128),
    T(512),
    T(128, 512),
    T(128),
)
module(
    "tries/conv-bn-relu-pool",
    lambda: nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    T(4, 16, 32, 32),
)
module(
    "tries/conv-bn-relu-pool-training",
    lambda: nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    T(4, 16, 32, 32),
    training=True,
)
module("tries/squeeze-excite", lambda: SqueezeExcite(64), T(4, 64, 28, 28))
module(
    "tries/squeeze-excite-cl", lambda: SqueezeExcite(64), T(4, 64, 28, 28, layout="channels_last"), channels_last=True
)
module(
    "tries/depthwise-separable",
    lambda: nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU6(), nn.Conv2d(64, 128, 1)),
    T(2, 64, 28, 28),
)
module(
    "tries/conv1d-stack",
    lambda: nn.Sequential(
        nn.Conv1d(32, 64, 5, padding=2), nn.GELU(), nn.Conv1d(64, 64, 3, padding=2, dilation=2), nn.GELU()
    ),
    T(4, 32, 200),
)
module(
    "tries/transposed-conv",
    lambda: nn.Sequential(nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2)),
    T(2, 32, 16, 16),
)
module(
    "tries/upsample-conv",
    lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 8, 3, padding=1), nn.SiLU()),
    T(2, 16, 24, 24),
)
module("tries/lstm-cell", lambda: nn.LSTMCell(64, 128), T(16, 64))
module("tries/gru-cell", lambda: nn.GRUCell(64, 128), T(16, 64))


class SqueezeExcite(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(n, n // 4, 1), nn.Conv2d(n // 4, n, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.b(F.relu(self.a(x.mean((2, 3), keepdim=True)))).sigmoid()


# Attention and caches


def attend(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(mask, float("-inf"))
    return s.softmax(-1) @ v


def alibi(q, k, v, slopes):
    n = q.shape[-2]
    at = torch.arange(n)
    s = q @ k.transpose(-2, -1) / 8 + slopes[:, None, None] * (at[None, :] - at[:, None])
    return s.masked_fill(at[None, :] > at[:, None], float("-inf")).softmax(-1) @ v


def window(q, k, v):
    n = q.shape[-2]
    at = torch.arange(n)
    apart = at[:, None] - at[None, :]
    return attend(q, k, v, (apart < 0) | (apart >= 64))


def grouped(q, k, v):
    b, h, _, d = q.shape
    k = k[:, :, None].expand(-1, -1, h // k.shape[1], -1, -1).reshape(b, h, -1, d)
    v = v[:, :, None].expand(-1, -1, h // v.shape[1], -1, -1).reshape(b, h, -1, d)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def rope_pairs(x, angle):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).flatten(-2).type_as(x)


def qkv_heads(x, w):
    b, n, d = x.shape
    q, k, v = F.linear(x, w).view(b, n, 3, 8, d // 8).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)


def cached_step(q, kc, vc, k, v, at):
    kc.index_copy_(2, at, k)
    vc.index_copy_(2, at, v)
    seen = (torch.arange(kc.shape[2]) <= at)[None]
    return F.scaled_dot_product_attention(q, kc, vc, attn_mask=seen)


heads = [T(2, 8, 128, 64)] * 3
infer("tries/attend", attend, *heads)
infer("tries/attend-bf16", attend, *[T(2, 8, 128, 64, dtype=bf16)] * 3)
infer("tries/attend-mask", attend, *heads, T(2, 1, 1, 128, dtype=torch.bool))
infer("tries/alibi", alibi, *heads, T(8, low=0, high=1))
infer("tries/window", window, *heads)
infer("tries/grouped", grouped, T(1, 16, 128, 64), *[T(1, 4, 128, 64)] * 2)
infer("tries/qkv-heads", qkv_heads, T(2, 64, 256), T(768, 256))
infer("tries/rope", rope, T(2, 8, 256, 64), *[T(256, 64)] * 2)
infer("tries/rope-bf16", rope, T(2, 8, 256, 64, dtype=bf16), *[T(256, 64, dtype=bf16)] * 2)
infer("tries/rope-pairs", rope_pairs, T(2, 8, 256, 64), T(256, 32))
infer(
    "tries/cached-step", cached_step, T(1, 8, 1, 64), *[T(1, 8, 512, 64)] * 2, *[T(1, 8, 1, 64)] * 2, torch.tensor([77])
)
infer(
    "tries/cached-step-bf16",
    cached_step,
    T(1, 8, 1, 64, dtype=bf16),
    *[T(1, 8, 512, 64, dtype=bf16)] * 2,
    *[T(1, 8, 1, 64, dtype=bf16)] * 2,
    torch.tensor([77]),
)
train("tries/attend-training", attend, *[T(2, 4, 64, 32)] * 3)
infer("tries/logit-cap", lambda x: 30.0 * torch.tanh(x / 30.0), T(32, 4096))
infer(
    "tries/pooled-by-mask",
    lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-9),
    T(8, 128, 384),
    T(8, 128, low=0, high=1),
)

# Losses, forward and backward

labels = T(256, dtype=i64, low=0, high=999)
train("tries/cross-entropy", lambda x, y: F.cross_entropy(x, y), T(256, 1000), labels)
train("tries/cross-entropy-smooth", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), T(256, 1000), labels)
train(
    "tries/cross-entropy-ignored",
    lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=3),
    T(4, 64, 500),
    T(4, 64, dtype=i64, low=0, high=9),
)
train(
    "tries/cross-entropy-map",
    lambda x, y: F.cross_entropy(x, y),
    T(2, 21, 64, 64),
    T(2, 64, 64, dtype=i64, low=0, high=20),
)
train(
    "tries/distill",
    lambda s, t: F.kl_div((s / 2).log_softmax(-1), (t.detach() / 2).softmax(-1), reduction="batchmean") * 4,
    *[T(128, 1000)] * 2,
)
train(
    "tries/focal",
    lambda x, y: (
        (1 - (-F.cross_entropy(x, y, reduction="none")).exp()) ** 2 * F.cross_entropy(x, y, reduction="none")
    ).mean(),
    T(256, 100),
    T(256, dtype=i64, low=0, high=99),
)
train(
    "tries/huber-pinball",
    lambda x, y: F.huber_loss(x, y) + torch.maximum(0.9 * (y - x), -0.1 * (y - x)).mean(),
    *[T(4096)] * 2,
)
train("tries/triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), *[T(256, 128)] * 3)
train(
    "tries/cosine-contrast",
    lambda a, b: F.cross_entropy(F.normalize(a) @ F.normalize(b).t() * 20, torch.arange(a.shape[0])),
    *[T(128, 256)] * 2,
)
train(
    "tries/bce-weighted",
    lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w.detach()),
    T(256, 80),
    T(256, 80, low=0, high=1),
    T(80, low=1, high=3),
)
train(
    "tries/soft-dice",
    lambda x, y: 1 - 2 * (x.sigmoid() * y).sum((2, 3)).mean() / (x.sigmoid() + y).sum((2, 3)).mean(),
    T(2, 4, 64, 64),
    T(2, 4, 64, 64, low=0, high=1),
)
train("tries/giou", lambda a, b: giou(a, b).mean(), boxes(512), boxes(512))
train(
    "tries/vae",
    lambda x, m, s: (
        -0.5 * (1 + s - m.pow(2) - s.exp()).sum(-1).mean() + F.mse_loss(x.sigmoid(), m.sum() * 0 + x.detach())
    ),
    T(64, 784),
    *[T(64, 32)] * 2,
)


def giou(a, b):
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
    inner = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    outer = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
    union = area_a + area_b - inner
    return 1 - inner / union + (outer - union) / outer


# Quantization


def per_row(x):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def fake_quantized(x):
    low, high = x.min(), x.max()
    scale = (high - low) / 255
    zero = (-low / scale).round()
    return ((x / scale + zero).round().clamp(0, 255) - zero) * scale


def int4(packed, scale):
    low, high = (packed & 0xF).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8
    w = torch.stack((low, high), -1).flatten(-2)
    return (w.view(w.shape[0], -1, 32) * scale[..., None]).flatten(-2)


infer("tries/quantize-rows", per_row, T(256, 1024))
infer("tries/quantize-rows-bf16", per_row, T(256, 1024, dtype=bf16))
infer("tries/dequantize", lambda q, s: q.float() * s, T(512, 512, dtype=i8), T(512, 1))
infer("tries/fake-quantize", fake_quantized, T(256, 256))
infer("tries/int4-weights", int4, T(256, 256, dtype=u8), T(256, 16))
infer(
    "tries/int8-linear", lambda x, w, s: F.linear(x, w.float() * s[:, None]), T(8, 512), T(1024, 512, dtype=i8), T(1024)
)
infer(
    "tries/int8-linear-bf16",
    lambda x, w, s: F.linear(x, w.to(bf16)) * s,
    T(8, 512, dtype=bf16),
    T(1024, 512, dtype=i8),
    T(1024, dtype=bf16),
)

# Images, boxes, sound


def normalized(x):
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (x.permute(0, 3, 1, 2).float() / 255 - mean[:, None, None]) / std[:, None, None]


def iou(a, b):
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])  # noqa: E731
    inner = (torch.min(a[:, None, 2:], b[None, :, 2:]) - torch.max(a[:, None, :2], b[None, :, :2])).clamp(min=0)
    inner = inner[..., 0] * inner[..., 1]
    return inner / (area(a)[:, None] + area(b)[None] - inner)


def log_mel(x, w, bank):
    spectrum = torch.stft(x, 256, 128, window=w, return_complex=True).abs().square()
    return (bank @ spectrum).clamp(min=1e-10).log10()


def warped(x, theta):
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def jitter(x, b, c, s):
    x = (x * b[:, None, None, None]).clamp(0, 1)
    gray = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    x = (x - gray.mean((2, 3), keepdim=True)) * c[:, None, None, None] + gray.mean((2, 3), keepdim=True)
    return (x * s[:, None, None, None] + gray * (1 - s[:, None, None, None])).clamp(0, 1)


infer("tries/normalize-u8", normalized, T(4, 96, 96, 3, dtype=u8))
infer(
    "tries/resize-u8",
    lambda x: F.interpolate(x.permute(2, 0, 1)[None].float(), (112, 112), mode="bilinear", antialias=True)[0] / 255,
    T(224, 224, 3, dtype=u8),
)
infer("tries/resize-bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic").clamp(0, 1), T(1, 3, 48, 48))
infer(
    "tries/to-u8-image",
    lambda x: (x.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous(),
    T(4, 3, 96, 96),
)
infer("tries/iou", iou, boxes(256), boxes(128))
infer("tries/nms-step", lambda b, s: ((iou(b, b) > 0.5).triu(1) & (s[:, None] > 0)).any(0), boxes(128), T(128))
infer(
    "tries/grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 16, 32, 32),
    T(2, 32, 32, 2, low=-1, high=1),
)
infer("tries/affine-warp", warped, T(4, 3, 64, 64), T(4, 2, 3, low=-1, high=1))
infer(
    "tries/flow-warp",
    lambda x, f: F.grid_sample(x, f.permute(0, 2, 3, 1), mode="nearest", padding_mode="border", align_corners=True),
    T(1, 3, 64, 64),
    T(1, 2, 64, 64, low=-1, high=1),
)
train(
    "tries/grid-sample-training",
    lambda x, g: F.grid_sample(x, g, align_corners=True),
    T(2, 8, 16, 16),
    T(2, 16, 16, 2, low=-1, high=1),
)
infer("tries/adaptive-max", lambda x: F.adaptive_max_pool2d(x, 7).flatten(1).relu(), T(2, 64, 30, 30))
infer("tries/adaptive-average", lambda x: F.adaptive_avg_pool2d(x, (7, 5)).flatten(1), T(2, 64, 30, 31))
infer("tries/jitter", jitter, T(4, 3, 64, 64, low=0, high=1), *[T(4, low=0.5, high=1.5)] * 3)
infer(
    "tries/sobel",
    lambda x: (F.conv2d(x, SOBEL).square() + F.conv2d(x, SOBEL.transpose(2, 3)).square()).sqrt(),
    T(4, 1, 96, 96),
)
infer("tries/morphology", lambda x: F.max_pool2d(x, 3, 1, 1) + F.max_pool2d(-x, 3, 1, 1), T(2, 1, 128, 128))
infer(
    "tries/patches",
    lambda x: x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2),
    T(2, 3, 64, 64),
)
infer(
    "tries/shuffle-pixels",
    lambda x: F.pixel_shuffle(x, 2) + F.pixel_unshuffle(F.pixel_shuffle(x, 4), 2).repeat(1, 1, 1, 1)[:, :1],
    T(2, 16, 24, 24),
)
infer("tries/reflect-blur", lambda x: F.avg_pool2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), 5, 1), T(2, 3, 96, 96))
infer("tries/log-mel", log_mel, T(1, 4096), torch.hann_window(256), T(40, 129, low=0, high=1))
infer("tries/magnitude", lambda x: torch.fft.rfft(x).abs().log1p(), T(64, 512))
infer("tries/pre-emphasis", lambda x: torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1), T(8, 16000))
infer(
    "tries/frames-energy",
    lambda x, w: (x.unfold(-1, 400, 160) * w).square().mean(-1).log(),
    T(4, 16000),
    torch.hann_window(400),
)
infer(
    "tries/mu-law",
    lambda x: ((x.sign() * (255 * x.abs()).log1p() / math.log1p(255) + 1) / 2 * 255 + 0.5).long(),
    T(16000, low=-1, high=1),
)

SOBEL = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])[None, None]
