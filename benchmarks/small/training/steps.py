"""What people ask about in forums, continued: indices, losses, steps of training, decoding, sampling, graphs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, f32, i8, i32, i64, infer, module, train, u8

# Indexing and writes

infer("pick/rows-bf16", lambda x, i: x[i], T(1000, 96, dtype=bf16), T(128, dtype=i64, low=0, high=999))
infer("pick/columns", lambda x, i: x[:, i], T(64, 300), T(100, dtype=i64, low=0, high=299))
infer("pick/pairs", lambda x, i, j: x[i, j], T(200, 200), *[T(3000, dtype=i64, low=0, high=199)] * 2)
infer("pick/mask-fill-row", lambda x, m: x.masked_fill(m[:, None], -1), T(300, 70), T(300, dtype=torch.bool))
infer("pick/where-scalar", lambda x: torch.where(x > 0, x, 0.1 * x), T(100, 333, dtype=f16))
infer("pick/take", lambda x, i: torch.take(x, i), T(50, 60), T(40, 50, dtype=i64, low=0, high=2999))
infer("pick/gather-0", lambda x, i: x.gather(0, i), T(100, 128), T(50, 128, dtype=i64, low=0, high=99))
infer("pick/narrow-flip", lambda x: x.narrow(1, 3, 90).flip(0, 1), T(64, 100))
infer("pick/roll-2", lambda x: x.roll((3, -5), (0, 1)), T(100, 130))
infer("pick/rot90", lambda x: x.rot90(1, (2, 3)).contiguous(), T(2, 3, 50, 50))
infer("pick/tril-add", lambda x: x.tril() + x.triu(1).mT, T(4, 60, 60))
infer("pick/diagonal", lambda x: x.diagonal(dim1=1, dim2=2) * 2, T(32, 40, 40))
infer("pick/diag-embed", lambda x: torch.diag_embed(x), T(16, 40))
infer("pick/kron", torch.kron, T(12, 10), T(9, 11))
infer("pick/cartesian", lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2), T(70), T(50))
infer("pick/repeat-interleave", lambda x: x.repeat_interleave(3, 1), T(40, 60, 8))
infer("pick/tile-u8", lambda x: x.tile(2, 3), T(40, 50, dtype=u8))
infer("pick/split-cat", lambda x: torch.cat([p * k for k, p in enumerate(x.split(7, 1))], 1), T(64, 100))
infer("pick/stack-last", lambda a, b, c: torch.stack((a, b, c), -1), *[T(64, 100, dtype=u8)] * 3)
infer(
    "pick/scatter-add",
    lambda x, i: torch.zeros(50, 64).index_add(0, i, x),
    T(300, 64),
    T(300, dtype=i64, low=0, high=49),
)
infer(
    "pick/scatter-last", lambda x, i, v: x.scatter(1, i, v), T(64, 100), T(64, 10, dtype=i64, low=0, high=99), T(64, 10)
)
infer(
    "pick/segment-max",
    lambda x, i: torch.full((40, 32), -9.0).scatter_reduce(0, i[:, None].expand(-1, 32), x, "amax"),
    T(400, 32),
    T(400, dtype=i64, low=0, high=39),
)
infer(
    "pick/bincount-weights",
    lambda i, w: torch.zeros(64).scatter_add(0, i, w),
    T(5000, dtype=i64, low=0, high=63),
    T(5000),
)
infer("pick/histc", lambda x: torch.histc(x, 40, -3, 3), T(10000))
infer("pick/one-hot", lambda i: F.one_hot(i, 20).float(), T(16, 50, dtype=i64, low=0, high=19))
infer("pick/searchsorted", torch.searchsorted, torch.linspace(-2, 2, 100), T(40, 50))
infer("pick/topk-mask", lambda x: x.masked_fill(x < x.topk(10).values[..., -1:], -1e9), T(16, 300))
infer("pick/argsort", lambda x: x.argsort(-1, descending=True), T(32, 100))
infer("pick/unsorted-rank", lambda x: x.argsort(-1).argsort(-1), T(32, 64))
infer("pick/nonzero-free-first", lambda x: (x > 1).to(u8).argmax(-1), T(100, 200))
infer("pick/masked-scatter", lambda x, m, s: x.masked_scatter(m, s), T(64, 100), T(64, 100, dtype=torch.bool), T(6400))
infer(
    "pick/put-accumulate",
    lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
    T(50, 60),
    *[T(500, dtype=i64, low=0, high=49)] * 2,
    T(500),
)
infer("pick/view-i32", lambda x: (x.view(i32) >> 23) & 255, T(64, 200))

# Losses

for dtype in (f32, bf16):
    train(f"cost/smooth-l1/{str(dtype)[6:]}", lambda x, y: F.smooth_l1_loss(x, y), *[T(64, 100, dtype=dtype)] * 2)
train(
    "cost/cross-entropy-smoothing",
    lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    T(64, 100),
    T(64, dtype=i64, low=0, high=99),
)
train(
    "cost/cross-entropy-ignore-bf16",
    lambda x, t: F.cross_entropy(x.float(), t, ignore_index=0),
    T(64, 200, dtype=bf16),
    T(64, dtype=i64, low=0, high=199),
)
train("cost/kl", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), *[T(32, 100)] * 2)
train("cost/cosine", lambda a, b: (1 - F.cosine_similarity(a, b)).mean(), *[T(64, 128)] * 2)
train("cost/triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), *[T(32, 64)] * 3)
train(
    "cost/info-nce",
    lambda a, b: F.cross_entropy(F.normalize(a) @ F.normalize(b).t() / 0.07, torch.arange(32)),
    *[T(32, 64)] * 2,
)
train(
    "cost/focal",
    lambda x, y: ((1 - torch.exp(-F.binary_cross_entropy_with_logits(x, y, reduction="none"))) ** 2).mean(),
    T(32, 100),
    T(32, 100, low=0, high=1),
)
train("cost/huber-mask", lambda x, y: (F.huber_loss(x, y, reduction="none") * (y > 0)).sum() / 100, *[T(32, 100)] * 2)
train("cost/segmentation", lambda x, t: F.cross_entropy(x, t), T(2, 8, 24, 24), T(2, 24, 24, dtype=i64, low=0, high=7))
train(
    "cost/iou",
    lambda a, b: (1 - (torch.min(a, b).prod(-1) / torch.max(a, b).prod(-1))).mean(),
    *[T(200, 2, low=0.1, high=1)] * 2,
)
train(
    "cost/ppo",
    lambda new, o, a: -torch.min((new - o).exp() * a, (new - o).exp().clamp(0.8, 1.2) * a).mean(),
    *[T(512)] * 3,
)
train("cost/vae", lambda m, v: -0.5 * (1 + v - m * m - v.exp()).sum(-1).mean(), *[T(64, 32)] * 2)
train("cost/tv", lambda x: x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean(), T(2, 3, 32, 32))

# Small pieces, forward and backward

train("piece/softmax-f16", lambda x: x.softmax(-1), T(64, 128, dtype=f16))
train("piece/softmax-dim1", lambda x: x.softmax(1), T(8, 20, 64))
train("piece/log-softmax-bf16", lambda x: x.log_softmax(-1), T(64, 128, dtype=bf16))
train("piece/gelu-tanh-bf16", lambda x: F.gelu(x, approximate="tanh"), T(64, 512, dtype=bf16))
train("piece/geglu", lambda x: x[..., :128] * F.gelu(x[..., 128:]), T(32, 256))
train("piece/swiglu-bf16", lambda a, b: F.silu(a) * b, *[T(32, 256, dtype=bf16)] * 2)
train(
    "piece/attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[T(1, 4, 32, 16)] * 3
)
train("piece/einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), T(8, 20, 30), T(8, 30, 25))
train("piece/max-gather", lambda x: x.max(-1).values.sum(), T(100, 64))
train("piece/cumsum", lambda x: x.cumsum(-1), T(32, 128))
train("piece/pad-slice", lambda x: F.pad(x, (1, 1))[:, 2:] * 2, T(32, 128))
train("piece/index-rows", lambda x, i: x[i].tanh(), T(200, 32), T(100, dtype=i64, low=0, high=199))
train("piece/where", lambda x, y: torch.where(x > y, x * 2, y), *[T(64, 100)] * 2)
train("piece/norm-clip", lambda x: x * (1.0 / (x.norm() + 1e-6)).clamp(max=1.0), T(64, 64))
train(
    "piece/rope",
    lambda x, c, s: x * c + torch.cat((-x[..., 16:], x[..., :16]), -1) * s,
    T(2, 4, 16, 32),
    T(16, 32),
    T(16, 32),
)
train(
    "piece/channel-gate-cl",
    lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    T(2, 32, 14, 14, layout="channels_last"),
)
train("piece/bilinear-up", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), T(1, 16, 14, 14))
train(
    "piece/edge-softmax",
    lambda s, i: (s - s.max()).exp() / torch.zeros(50).index_add(0, i, (s - s.max()).exp())[i],
    T(400),
    T(400, dtype=i64, low=0, high=49),
)
train(
    "piece/message-passing",
    lambda x, i, j: torch.zeros_like(x).index_add(0, j, x[i]),
    T(100, 32),
    *[T(500, dtype=i64, low=0, high=99)] * 2,
)

# Decoding, caches, quantization, sampling

infer(
    "token/rms-rope-bf16",
    lambda x, w, c, s: (lambda n: n * c + torch.cat((-n[..., 32:], n[..., :32]), -1) * s)(
        x * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt().to(bf16) * w
    ),
    T(1, 8, 1, 64, dtype=bf16),
    *[T(64, dtype=bf16)] * 3,
)
infer(
    "token/kv-append",
    lambda k, n, p: k.index_copy_(2, p, n).sum(),
    T(1, 4, 128, 32),
    T(1, 4, 1, 32),
    torch.tensor([77]),
)
infer(
    "token/kv-slice-bf16", lambda k, n: k[:, :, 5:6].copy_(n), T(1, 8, 256, 64, dtype=bf16), T(1, 8, 1, 64, dtype=bf16)
)
infer(
    "token/gqa-decode",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    T(1, 8, 1, 32),
    *[T(1, 2, 100, 32)] * 2,
)
infer(
    "token/masked-decode",
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
    T(1, 8, 1, 32, dtype=bf16),
    *[T(1, 8, 128, 32, dtype=bf16)] * 2,
    T(1, 1, 1, 128, dtype=torch.bool),
)
infer("token/gemv-f16", lambda x, w: x @ w.t(), T(1, 512, dtype=f16), T(1024, 512, dtype=f16))
infer("token/gemv-int8", lambda x, w, s: (x @ w.to(f32).t()) * s, T(1, 512), T(512, 512, dtype=i8), T(512))
infer(
    "token/int4-unpack",
    lambda w, s: torch.stack((w & 15, w >> 4), -1).flatten(-2).sub(8).float() * s,
    T(128, 64, dtype=u8),
    T(128, 1),
)
infer(
    "token/quantize-rows",
    lambda x: (lambda s: ((x / s).round().clamp(-128, 127).to(i8), s))(x.abs().amax(-1, keepdim=True) / 127),
    T(32, 512),
)
infer(
    "token/quantize-bf16", lambda x, s, z: ((x / s).round() + z).clamp(0, 255).to(u8), T(64, 512, dtype=bf16), 0.1, 128
)
infer(
    "token/penalty",
    lambda x, t: x.scatter(1, t, (lambda g: torch.where(g > 0, g / 1.2, g * 1.2))(x.gather(1, t))),
    T(2, 2000),
    T(2, 30, dtype=i64, low=0, high=1999),
)
infer(
    "token/top-p",
    lambda x: (lambda s: s.values.masked_fill(s.values.softmax(-1).cumsum(-1) > 0.9, -math.inf))(
        x.sort(-1, descending=True)
    ),
    T(2, 1000),
)
infer(
    "token/min-p",
    lambda x: (lambda p: x.masked_fill(p < 0.05 * p.amax(-1, keepdim=True), -math.inf))(x.softmax(-1)),
    T(2, 4000),
)
infer("token/gumbel", lambda x: (x - torch.rand_like(x).log().neg().log()).argmax(-1), T(8, 1000), random=True)
infer("token/multinomial", lambda x: torch.multinomial(x.softmax(-1), 1), T(4, 1000), random=True)
infer("token/dropout", lambda x: F.dropout(x, 0.1) + x, T(64, 512), random=True)
infer("token/causal-mask", lambda n: torch.full((n, n), -math.inf).triu(1), 100)
infer(
    "token/sinusoid",
    lambda p: torch.cat(
        (
            (p[:, None] * torch.exp(torch.arange(32) * -0.3)).sin(),
            (p[:, None] * torch.exp(torch.arange(32) * -0.3)).cos(),
        ),
        -1,
    ),
    T(50),
)
infer(
    "token/alibi",
    lambda s: s + torch.arange(64) * torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None],
    T(2, 4, 64, 64),
)
infer(
    "token/router",
    lambda x, w: (lambda t: (t.values / t.values.sum(-1, keepdim=True), t.indices))((x @ w).softmax(-1).topk(2)),
    T(64, 64),
    T(64, 8),
)
infer(
    "token/bert-mask",
    lambda m: (1.0 - m[:, None, None, :].float()) * torch.finfo(f32).min,
    T(8, 100, dtype=i64, low=0, high=1),
)
infer(
    "token/speech-frames",
    lambda x, w: torch.stft(x, 256, 64, window=w, return_complex=True).abs().square(),
    T(2, 4000),
    T(256),
)

# Steps


def optimizer_step(make: Any) -> Any:
    def build() -> Case:
        layers = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
        parameters = list(layers.parameters())
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer = make(parameters)

        def step() -> None:
            optimizer.step()

        return Case(step, (), state=lambda: [p.detach() for p in parameters])

    return build


for name, make in {
    "sgd-momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adamw-amsgrad": lambda p: torch.optim.AdamW(p, 1e-3, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-3),
    "lion-free-radam": lambda p: torch.optim.RAdam(p, 1e-3),
}.items():
    case(f"step-of/{name}", optimizer_step(make), fullgraph=False)


def ema(averages: list[Any], parameters: list[Any]) -> None:
    torch._foreach_lerp_(averages, parameters, 0.01)


case(
    "step-of/ema", lambda: Case(ema, ([torch.randn(64, 64) for _ in range(6)], [torch.randn(64, 64) for _ in range(6)]))
)


def clip(gradients: list[Any]) -> None:
    total = torch.stack([g.norm() for g in gradients]).norm()
    torch._foreach_mul_(gradients, (1.0 / (total + 1e-6)).clamp(max=1.0))


case("step-of/clip", lambda: Case(clip, ([torch.randn(50, 60) for _ in range(6)],)))
module(
    "step-of/cnn",
    lambda: nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 13 * 13, 10), nn.LogSoftmax(-1)
    ),
    T(8, 1, 28, 28),
    training=True,
)
module(
    "step-of/autoencoder",
    lambda: nn.Sequential(nn.Linear(100, 32), nn.Sigmoid(), nn.Linear(32, 100), nn.Sigmoid()),
    T(32, 100),
    training=True,
)
module(
    "step-of/mlp-bf16",
    lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 16)),
    T(32, 64, dtype=bf16),
    training=True,
    dtype=bf16,
)
