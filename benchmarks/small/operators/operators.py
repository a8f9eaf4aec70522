"""A few operators: classes of operators by dtypes, layouts, and training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from small.case import T, bf16, f16, f32, i8, i32, i64, infer, train, u8

NAMES = {f32: "f32", bf16: "bf16", f16: "f16", i8: "i8", u8: "u8", i32: "i32", i64: "i64", torch.bool: "bool"}
FLOATS = (f32, bf16, f16)
LAYOUTS = ("contiguous", "transposed", "sliced", "strided")

# Element by element

for dtype in FLOATS:
    name = NAMES[dtype]
    infer(f"pointwise/gelu-chain/{name}", lambda x, y: F.gelu(x * 1.5 + y) * y, *[T(256, 1024, dtype=dtype)] * 2)
    infer(f"pointwise/silu-gate/{name}", lambda x: F.silu(x[:, :1024]) * x[:, 1024:], T(128, 2048, dtype=dtype))
    infer(f"pointwise/transcendental/{name}", lambda x: torch.sin(x) * torch.exp(-x.abs()), T(128, 1024, dtype=dtype))
    infer(
        f"pointwise/clamp-where/{name}",
        lambda x, y: torch.where(x > y, x.clamp(-1, 1), y * 0.5),
        *[T(512, 512, dtype=dtype)] * 2,
    )
    train(f"pointwise/gelu-training/{name}", lambda x, y: F.gelu(x * y + x), *[T(128, 1024, dtype=dtype)] * 2)
    train(f"pointwise/swish-glu-training/{name}", lambda x, y: F.silu(x) * y, *[T(128, 1024, dtype=dtype)] * 2)
for layout in LAYOUTS:
    infer(
        f"pointwise/add-mul/{layout}",
        lambda x, y: (x + y) * x - y,
        T(512, 768, layout=layout),
        T(512, 768),
    )
    infer(
        f"pointwise/half-add/{layout}",
        lambda x, y: (x + y).relu(),
        T(512, 768, dtype=bf16, layout=layout),
        T(512, 768, dtype=bf16),
    )
infer(
    "pointwise/channels-last-bias",
    lambda x, b: (x + b[:, None, None]).relu(),
    T(4, 64, 56, 56, layout="channels_last"),
    T(64),
)
infer("pointwise/mixed-layouts", lambda x, y: x * y + 1, T(4, 64, 56, 56, layout="channels_last"), T(4, 64, 56, 56))
infer("pointwise/broadcast-outer", lambda x, y: torch.exp(-((x[:, None] - y[None, :]) ** 2)), T(512), T(1024))
infer("pointwise/small", lambda x: x * 2 + 1, T(16, 16))
infer("pointwise/scalar-chain", lambda x: ((x * 2 + 1) / 3 - 0.5).abs().sqrt(), T(64, 64))
infer("pointwise/ten-small", lambda *xs: [x * 2 + 1 for x in xs], *[T(32, 32)] * 10)
infer("pointwise/erf-erfinv", lambda x: torch.erf(x) + torch.erfinv(x * 0.99), T(64, 1024, low=-1, high=1))
infer("pointwise/pow", lambda x: x.abs().pow(2.2) + x.pow(3), T(128, 512))
infer("pointwise/atan2-hypot", lambda x, y: torch.atan2(y, x) + torch.hypot(x, y), *[T(128, 512)] * 2)
infer(
    "pointwise/lerp-addcmul", lambda a, b, c: torch.lerp(torch.addcmul(a, b, c, value=0.5), b, 0.3), *[T(256, 1024)] * 3
)
infer("pointwise/nan-to-num", lambda x: torch.nan_to_num(x / x.floor(), nan=0.0), T(256, 1024))
infer("pointwise/softplus-mish", lambda x: F.mish(x) + F.softplus(x), T(128, 1024))
infer(
    "pointwise/quantize-dequantize",
    lambda x: (torch.clamp(torch.round(x / 0.05) + 128, 0, 255) - 128) * 0.05,
    T(512, 1024),
)
infer("pointwise/sigmoid-threshold", lambda x: (torch.sigmoid(x) > 0.5).to(f32), T(512, 512))
infer(
    "pointwise/complex-rotary-real",
    lambda x, c, s: torch.cat((x[..., :32] * c - x[..., 32:] * s, x[..., 32:] * c + x[..., :32] * s), -1),
    T(8, 12, 128, 64),
    T(128, 32),
    T(128, 32),
)

# Integers and conversions

for dtype in (i8, u8, i32, i64):
    name = NAMES[dtype]
    infer(f"integer/add-mul/{name}", lambda x, y: x * 3 + y, *[T(512, 512, dtype=dtype)] * 2)
    infer(f"integer/compare-where/{name}", lambda x, y: torch.where(x > y, x, y), *[T(512, 512, dtype=dtype)] * 2)
    infer(f"integer/to-float/{name}", lambda x: x.to(f32) * (1 / 255.0), T(512, 1024, dtype=dtype))
    infer(
        f"integer/floor-divide/{name}",
        lambda x, y: x // y,
        T(256, 512, dtype=dtype),
        T(256, 512, dtype=dtype, low=1, high=100),
    )
    infer(f"integer/remainder/{name}", lambda x: x % 7, T(256, 512, dtype=dtype))
    infer(f"integer/clamp/{name}", lambda x: x.clamp(3, 100), T(512, 1024, dtype=dtype))
    infer(f"integer/sum/{name}", lambda x: x.sum(), T(512, 1024, dtype=dtype))
    infer(f"integer/max-rows/{name}", lambda x: x.amax(-1), T(512, 1024, dtype=dtype))
for dtype in (u8, i32, i64):
    infer(f"integer/shifts/{NAMES[dtype]}", lambda x: (x >> 4) & 15 | ((x << 2) & 63), T(512, 512, dtype=dtype))
infer(
    "integer/unpack-int4",
    lambda x: torch.stack(((x & 15).to(i8) - 8, (x >> 4).to(i8) - 8), -1).flatten(-2).to(f32),
    T(512, 512, dtype=u8),
)
infer(
    "integer/bits", lambda x: ((x[:, None] >> torch.arange(8)) & 1).to(torch.bool), T(32768, dtype=i64, low=0, high=255)
)
infer("integer/hash", lambda x: ((x * 2654435761) ^ (x >> 16)) % 65536, T(128, 1024, dtype=i64))
infer("integer/divmod-index", lambda x: (x // 14, x % 14), T(65536, dtype=i64, low=0, high=10000))
infer("integer/bool-logic", lambda x, y: (x & ~y) | (y ^ x), *[T(1024, 1024, dtype=torch.bool)] * 2)
infer("integer/popcount-mask", lambda x: (x > 0).sum(-1), T(512, 1024))
for source, target in (
    (f32, bf16),
    (bf16, f32),
    (f32, f16),
    (f16, f32),
    (f32, i8),
    (f32, i64),
    (i64, f32),
    (u8, bf16),
    (bf16, f16),
    (f32, torch.bool),
):
    infer(
        f"convert/{NAMES[source]}-to-{NAMES[target]}",
        lambda x, target=target: x.to(target),
        T(512, 1024, dtype=source, low=0, high=100),
    )
infer("convert/view-dtype-f32-i32", lambda x: (x.view(i32) & 0x7FFFFFFF).view(f32), T(512, 1024))
infer("convert/view-dtype-i32-u8", lambda x: x.view(u8).to(f32), T(256, 256, dtype=i32))
infer(
    "convert/image-normalize",
    lambda x, m, s: ((x.to(f32) / 255.0) - m[:, None, None]) / s[:, None, None],
    T(4, 3, 224, 224, dtype=u8),
    T(3),
    T(3, low=1, high=2),
)
infer(
    "convert/image-hwc-to-chw",
    lambda x: x.permute(0, 3, 1, 2).to(f32).div(255).contiguous(),
    T(2, 224, 224, 3, dtype=u8),
)

# Transposes and copies

infer("transpose/add", lambda a, b: a + b.t(), *[T(1024, 1024)] * 2)
infer("transpose/copy", lambda a: a.t().contiguous(), T(1024, 1024))
infer("transpose/copy-bf16", lambda a: a.t().contiguous(), T(1024, 1024, dtype=bf16))
infer("transpose/nchw-to-nhwc", lambda x: x.permute(0, 2, 3, 1).contiguous(), T(4, 64, 56, 56))
infer("transpose/heads", lambda x: x.view(4, 128, 12, 64).transpose(1, 2).contiguous(), T(4, 128, 768))
infer("transpose/pixel-shuffle", lambda x: F.pixel_shuffle(x, 2) * 2, T(2, 64, 64, 64))
infer(
    "transpose/patches",
    lambda x: x.view(4, 3, 14, 16, 14, 16).permute(0, 2, 4, 1, 3, 5).reshape(4, 196, 768),
    T(4, 3, 224, 224),
)
infer(
    "transpose/window-partition",
    lambda x: x.view(4, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96),
    T(4, 56, 56, 96),
)
infer("copy/roll", lambda x: torch.roll(x, (3, 3), (1, 2)), T(4, 56, 56, 96))
infer("copy/flip", lambda x: x.flip(-1) * 2, T(512, 1024))
infer("copy/repeat-interleave", lambda x: x.repeat_interleave(4, dim=1), T(4, 8, 128, 64))
infer("copy/expand-kv", lambda x: x[:, :, None].expand(4, 8, 4, 128, 64).reshape(4, 32, 128, 64), T(4, 8, 128, 64))

# Joining and taking apart

infer("join/cat-rows", lambda *x: torch.cat(x, 0), *[T(256, 512)] * 3)
infer("join/cat-columns", lambda *x: torch.cat(x, 1), *[T(512, 256)] * 3)
infer("join/cat-relu-bf16", lambda *x: torch.cat(x, -1).relu(), *[T(512, 256, dtype=bf16)] * 3)
infer("join/stack", lambda *x: torch.stack(x, -1), *[T(256, 512)] * 4)
infer("join/split-gate", lambda x: (lambda a, b, c: a * b.sigmoid() + c)(*x.chunk(3, -1)), T(256, 1536))
infer("join/densenet", lambda *x: torch.cat(x, 1).relu(), T(2, 64, 28, 28), T(2, 32, 28, 28), T(2, 32, 28, 28))
infer("join/cat-channels-last", lambda *x: torch.cat(x, 1) * 2, *[T(2, 32, 56, 56, layout="channels_last")] * 2)
infer("join/unbind-sum", lambda x: sum(x.unbind(1)), T(256, 8, 256))
train("join/cat-training", lambda *x: torch.cat(x, -1).tanh(), *[T(256, 256)] * 3)

# Reductions

for dtype in FLOATS:
    name = NAMES[dtype]
    infer(f"reduce/sum-all/{name}", lambda x: x.sum(), T(1024, 1024, dtype=dtype))
    infer(f"reduce/mean-rows/{name}", lambda x: x.mean(-1), T(1024, 1024, dtype=dtype))
    infer(f"reduce/sum-columns/{name}", lambda x: x.sum(0), T(1024, 1024, dtype=dtype))
    infer(f"reduce/amax-middle/{name}", lambda x: x.amax(1), T(32, 64, 512, dtype=dtype))
infer("reduce/sum-middle", lambda x: x.sum(1), T(32, 64, 512))
infer("reduce/mean-pool", lambda x: x.mean((2, 3)), T(8, 256, 14, 14))
infer("reduce/mean-pool-channels-last", lambda x: x.mean((2, 3)), T(8, 256, 14, 14, layout="channels_last"))
infer("reduce/argmax-rows", lambda x: x.argmax(-1), T(128, 4096))
infer("reduce/argmax-columns", lambda x: x.argmax(0), T(512, 512))
infer("reduce/argmax-all", lambda x: x.argmax(), T(512, 1024))
infer("reduce/max-with-indices", lambda x: x.max(-1), T(256, 2048))
infer("reduce/var-std", lambda x: (x.var(-1), x.std(-1)), T(256, 1024))
infer("reduce/var-columns", lambda x: x.var(0), T(1024, 512))
infer("reduce/var-mean-all", lambda x: torch.var_mean(x), T(512, 1024))
infer("reduce/norm-rows", lambda x: x / x.norm(dim=-1, keepdim=True), T(512, 1024))
infer("reduce/norm-all", lambda x: torch.linalg.vector_norm(x), T(1024, 1024))
infer("reduce/norm-l1-columns", lambda x: x.norm(p=1, dim=0), T(1024, 512))
infer("reduce/any-all", lambda x: ((x > 3).any(-1), (x > -5).all(-1)), T(512, 1024))
infer("reduce/any-all-whole", lambda x: torch.isfinite(x).all(), T(1024, 1024))
infer("reduce/logsumexp", lambda x: torch.logsumexp(x, -1), T(256, 2048))
infer("reduce/logsumexp-columns", lambda x: torch.logsumexp(x, 0), T(1024, 256))
infer("reduce/prod", lambda x: x.prod(-1), T(2048, 64, low=0.5, high=1.5))
infer("reduce/min-max", lambda x: (x.min(), x.max()), T(1024, 1024))
infer("reduce/aminmax-channels", lambda x: torch.aminmax(x, dim=0), T(1024, 512))
infer("reduce/cosine-similarity", lambda x, y: F.cosine_similarity(x, y), *[T(512, 768)] * 2)
infer("reduce/short-rows", lambda x: x.sum(-1), T(65536, 8))
infer("reduce/transposed-rows", lambda x: x.sum(-1), T(1024, 1024, layout="transposed"))
infer("reduce/moments-3d", lambda x: (x - x.mean((0, 2), keepdim=True)) / x.std((0, 2), keepdim=True), T(16, 64, 256))
infer("reduce/pairwise-distance", lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), T(128, 64), T(128, 64))
infer("reduce/median-free-trim", lambda x: (x * (x.abs() < 2)).sum(-1) / (x.abs() < 2).sum(-1), T(512, 1024))
train("reduce/logsumexp-training", lambda x: torch.logsumexp(x, -1), T(256, 1024))
train("reduce/std-training", lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), T(256, 1024))
train("reduce/amax-training", lambda x: x.amax(-1), T(256, 1024))
train("reduce/norm-training", lambda x: F.normalize(x, dim=-1), T(512, 512))

# Softmax and scans

for dtype in FLOATS:
    name = NAMES[dtype]
    infer(f"softmax/rows/{name}", lambda x: torch.softmax(x, -1), T(512, 512, dtype=dtype))
    infer(f"softmax/first-dim/{name}", lambda x: torch.softmax(x, 0), T(512, 512, dtype=dtype))
    train(f"softmax/training/{name}", lambda x: torch.softmax(x, -1), T(256, 512, dtype=dtype))
infer("softmax/channels", lambda x: torch.softmax(x, 1), T(4, 21, 64, 64))
infer("softmax/log-channels", lambda x: F.log_softmax(x, 1), T(4, 21, 64, 64))
infer(
    "softmax/masked",
    lambda x, m: torch.softmax(x.masked_fill(m, -math.inf), -1),
    T(8, 128, 128),
    T(128, 128, dtype=torch.bool),
)
infer("softmax/temperature-argmax", lambda x: torch.softmax(x / 0.7, -1).max(-1), T(64, 4096))
infer(
    "softmax/gumbel-hard",
    lambda x, u: F.one_hot(torch.softmax(x - torch.log(-torch.log(u)), -1).argmax(-1), 32),
    T(2048, 32),
    T(2048, 32, low=0.01, high=0.99),
)
infer("scan/cumsum-rows", lambda x: x.cumsum(-1), T(256, 1024))
infer("scan/cumsum-columns", lambda x: x.cumsum(0), T(1024, 256))
infer("scan/cumsum-int", lambda x: (x > 0).cumsum(-1), T(128, 1024))
infer("scan/cumprod", lambda x: x.cumprod(-1), T(256, 512, low=0.9, high=1.1))
infer("scan/cummax", lambda x: x.cummax(-1)[0], T(256, 512))
infer("scan/logcumsumexp", lambda x: torch.logcumsumexp(x, -1), T(128, 512))
infer("scan/diff", lambda x: torch.diff(x, dim=-1), T(512, 1024))
train("scan/cumsum-training", lambda x: x.cumsum(-1).tanh(), T(256, 512))

# Norms

for dtype in FLOATS:
    name = NAMES[dtype]
    infer(
        f"norm/layer/{name}",
        lambda x, w, b: F.layer_norm(x, (768,), w, b),
        T(256, 768, dtype=dtype),
        T(768, dtype=dtype),
        T(768, dtype=dtype),
    )
    infer(
        f"norm/rms/{name}",
        lambda x, w: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w,
        T(256, 1024, dtype=dtype),
        T(1024, dtype=dtype),
    )
    train(
        f"norm/layer-training/{name}",
        lambda x, w, b: F.layer_norm(x, (768,), w, b),
        T(256, 768, dtype=dtype),
        T(768, dtype=dtype),
        T(768, dtype=dtype),
        tolerance=2e-4 if dtype is f32 else 0.06,  # eager adds up gradients of weights in half precision
    )
infer("norm/add-layer", lambda x, y, w, b: F.layer_norm(x + y, (768,), w, b), T(256, 768), T(256, 768), T(768), T(768))
infer("norm/group", lambda x, w, b: F.group_norm(x, 32, w, b), T(2, 128, 32, 32), T(128), T(128))
infer(
    "norm/group-silu-channels-last",
    lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)),
    T(2, 128, 32, 32, layout="channels_last"),
    T(128),
    T(128),
)
infer("norm/instance", lambda x: F.instance_norm(x), T(4, 32, 56, 56))
infer(
    "norm/batch-inference",
    lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b).relu(),
    T(4, 64, 56, 56),
    T(64),
    T(64, low=0.5, high=2),
    T(64),
    T(64),
)
infer("norm/l2-scale", lambda x, g: F.normalize(x, dim=1) * g, T(512, 512), T(512))
train(
    "norm/rms-training", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, T(256, 1024), T(1024)
)
train("norm/group-training", lambda x, w, b: F.group_norm(x, 16, w, b), T(2, 64, 28, 28), T(64), T(64))
train(
    "norm/batch-training",
    lambda x, w, b: F.batch_norm(x, None, None, w, b, True).relu(),
    T(8, 64, 28, 28),
    T(64),
    T(64),
)

# Reading and writing by index

infer("gather/take-along", lambda x, i: torch.gather(x, 1, i), T(512, 1024), T(512, 128, dtype=i64, low=0, high=1023))
infer("gather/first-dim", lambda x, i: torch.gather(x, 0, i), T(512, 256), T(512, 256, dtype=i64, low=0, high=511))
infer("gather/rows", lambda x, i: x[i], T(4096, 256), T(1024, dtype=i64, low=0, high=4095))
infer("gather/rows-i32", lambda x, i: x[i] * 2, T(4096, 256), T(1024, dtype=i32, low=0, high=4095))
infer("gather/columns", lambda x, i: x[:, i], T(512, 1024), T(256, dtype=i64, low=0, high=1023))
infer(
    "gather/pairs",
    lambda x, i, j: x[i, j],
    T(1024, 1024),
    T(65536, dtype=i64, low=0, high=1023),
    T(65536, dtype=i64, low=0, high=1023),
)
infer(
    "gather/index-select-bf16",
    lambda x, i: torch.index_select(x, 0, i),
    T(4096, 256, dtype=bf16),
    T(1024, dtype=i64, low=0, high=4095),
)
infer(
    "gather/relative-bias",
    lambda t, i: t[i].permute(2, 0, 1).contiguous(),
    T(961, 16),
    T(196, 196, dtype=i64, low=0, high=960),
)
infer(
    "gather/log-probabilities",
    lambda x, i: F.log_softmax(x, -1).gather(-1, i[:, None])[:, 0],
    T(128, 4096),
    T(128, dtype=i64, low=0, high=4095),
)
infer("gather/embedding", lambda i, w: F.embedding(i, w) * 27.7, T(8, 128, dtype=i64, low=0, high=29999), T(30000, 256))
infer(
    "gather/embedding-sum-norm",
    lambda i, w, p, g, b: F.layer_norm(F.embedding(i, w) + p, (768,), g, b),
    T(2, 128, dtype=i64, low=0, high=4999),
    T(5000, 768),
    T(128, 768),
    T(768),
    T(768),
)
infer(
    "gather/embedding-bag-sum",
    lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"),
    T(4096, dtype=i64, low=0, high=9999),
    T(10000, 64),
    torch.arange(0, 4096, 16),
)
infer(
    "gather/embedding-bag-mean",
    lambda i, w: F.embedding_bag(i, w, mode="mean"),
    T(256, 16, dtype=i64, low=0, high=9999),
    T(10000, 64),
)
train(
    "gather/embedding-training",
    lambda i, w: F.embedding(i, w).tanh(),
    T(8, 64, dtype=i64, low=0, high=1999),
    T(2000, 128),
)
train(
    "gather/embedding-bag-training",
    lambda i, w: F.embedding_bag(i, w, mode="sum"),
    T(256, 16, dtype=i64, low=0, high=1999),
    T(2000, 64),
)
train("gather/index-training", lambda x, i: x[i] * 2, T(2048, 128), T(1024, dtype=i64, low=0, high=2047))
train(
    "gather/take-along-training",
    lambda x, i: torch.gather(x, 1, i),
    T(256, 1024),
    T(256, 64, dtype=i64, low=0, high=1023),
)
infer("index/one-hot", lambda i: F.one_hot(i, 128).to(f32), T(2048, dtype=i64, low=0, high=127))
infer(
    "index/one-hot-product", lambda i, w: F.one_hot(i, 64).to(f32) @ w, T(1024, dtype=i64, low=0, high=63), T(64, 128)
)
infer("index/searchsorted", lambda s, x: torch.searchsorted(s, x), torch.linspace(-3, 3, 1024), T(65536))
infer("index/bucketize", lambda x, s: torch.bucketize(x, s), T(256, 512), torch.linspace(-2, 2, 33))
infer(
    "index/scatter",
    lambda x, i, v: x.scatter(1, i, v),
    T(512, 512),
    T(512, 64, dtype=i64, low=0, high=511),
    T(512, 64),
    tolerance=10.0,
)
infer(
    "index/scatter-add",
    lambda x, i, v: x.scatter_add(0, i, v),
    T(512, 128),
    T(2048, 128, dtype=i64, low=0, high=511),
    T(2048, 128),
)
infer(
    "index/scatter-reduce-amax",
    lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
    T(512, 64),
    T(2048, 64, dtype=i64, low=0, high=511),
    T(2048, 64),
)
infer(
    "index/scatter-reduce-mean",
    lambda x, i, v: x.scatter_reduce(0, i, v, "mean"),
    T(512, 64),
    T(2048, 64, dtype=i64, low=0, high=511),
    T(2048, 64),
)
infer(
    "index/index-add",
    lambda x, i, v: x.index_add(0, i, v),
    T(512, 128),
    T(2048, dtype=i64, low=0, high=511),
    T(2048, 128),
)
infer(
    "index/index-put-accumulate",
    lambda x, i, v: x.index_put((i,), v, accumulate=True),
    T(512, 128),
    T(2048, dtype=i64, low=0, high=511),
    T(2048, 128),
)
infer("index/index-fill", lambda x, i: x.index_fill(1, i, 0.0), T(512, 512), T(64, dtype=i64, low=0, high=511))
infer(
    "index/masked-scatter",
    lambda x, m, v: x.masked_scatter(m, v),
    T(512, 256),
    T(512, 256, dtype=torch.bool),
    T(512, 256),
)
infer("index/masked-fill", lambda x, m: x.masked_fill(m, 0.0), T(512, 512), T(512, 512, dtype=torch.bool))
infer("index/tril-mask", lambda x: torch.tril(x) + torch.triu(x, 1) * 2, T(512, 512))
infer(
    "index/histogram-scatter",
    lambda i: torch.zeros(256).scatter_add(0, i, torch.ones(65536)),
    T(65536, dtype=i64, low=0, high=255),
)
infer(
    "index/bincount", lambda i: torch.bincount(i, minlength=256), T(65536, dtype=i64, low=0, high=255), fullgraph=False
)
infer("index/slice-assign", lambda x, y: x.slice_scatter(y, 1, 16, 80), T(512, 256), T(512, 64))
infer("index/select-assign", lambda x, y: x.select_scatter(y, 1, 3), T(512, 256), T(512))
infer("index/diagonal", lambda x: x.diagonal(0, -2, -1).sum(-1), T(64, 128, 128))

# Order

infer("sort/rows", lambda x: x.sort(-1), T(64, 1024))
infer("sort/short-rows", lambda x: x.sort(-1).values, T(4096, 16))
infer("sort/argsort-columns", lambda x: x.argsort(0), T(512, 64), tolerance=10.0)
infer("sort/topk-8-of-64", lambda x: x.topk(8, -1), T(1024, 64))
infer("sort/topk-2-of-8", lambda x: x.topk(2, -1), T(4096, 8))
infer("sort/topk-50-of-vocabulary", lambda x: x.topk(50, -1), T(4, 32000))
infer("sort/kthvalue", lambda x: x.kthvalue(8, -1)[0], T(256, 256))
infer("sort/median", lambda x: x.median(-1)[0], T(256, 256))
infer("sort/quantile", lambda x: torch.quantile(x, 0.9, -1), T(256, 256))
infer("sort/max-pool-topk-mask", lambda x: x >= x.topk(16, -1).values[:, -1:], T(512, 256))

# Pooling, padding, interpolation

for layout in ("contiguous", "channels_last"):
    image = T(2, 64, 56, 56, layout=layout)
    infer(f"pool/max-relu/{layout}", lambda x: F.max_pool2d(x.relu(), 3, 2, 1), image)
    infer(f"pool/average/{layout}", lambda x: F.avg_pool2d(x, 2) * 2, image)
    infer(f"pool/adaptive/{layout}", lambda x: F.adaptive_avg_pool2d(x, 7), image)
    infer(f"interpolate/nearest/{layout}", lambda x: F.interpolate(x, scale_factor=2), T(2, 32, 32, 32, layout=layout))
    infer(
        f"interpolate/bilinear/{layout}",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        T(2, 16, 32, 32, layout=layout),
    )
    train(f"pool/max-training/{layout}", lambda x: F.max_pool2d(x, 2), T(2, 32, 56, 56, layout=layout))
    train(f"pool/average-training/{layout}", lambda x: F.avg_pool2d(x, 3, 2, 1), T(2, 32, 56, 56, layout=layout))
infer("pool/max-1d", lambda x: F.max_pool1d(x, 3, 2), T(8, 64, 512))
infer("interpolate/bicubic", lambda x: F.interpolate(x, size=(48, 48), mode="bicubic"), T(2, 8, 32, 32))
infer(
    "interpolate/grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 8, 64, 64),
    T(2, 64, 64, 2, low=-1, high=1),
)
train("interpolate/bilinear-training", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), T(2, 16, 24, 24))
infer("pad/reflect-unfold", lambda x: F.unfold(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3), T(2, 16, 32, 32))
infer("pad/reflect", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect") * 2, T(4, 32, 56, 56))
infer("pad/replicate", lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), T(4, 32, 56, 56))
infer("pad/constant", lambda x: F.pad(x, (2, 2, 2, 2), value=1.0).relu(), T(4, 32, 56, 56))
infer("pad/circular", lambda x: F.pad(x, (2, 2, 2, 2), mode="circular"), T(4, 32, 56, 56))
infer("pad/unfold-frames", lambda x: x.unfold(-1, 400, 160) * torch.hann_window(400), T(4, 16000))
infer("pad/fold", lambda x: F.fold(x, (32, 32), 2, stride=2), T(2, 64, 256))
train("pad/reflect-training", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect").sin(), T(2, 32, 28, 28))

# Losses

CLASSES: Any = T(256, dtype=i64, low=0, high=999)
for dtype in (f32, bf16):
    name = NAMES[dtype]
    train(f"loss/cross-entropy/{name}", lambda x, t: F.cross_entropy(x, t), T(256, 1000, dtype=dtype), CLASSES)
    train(f"loss/mse/{name}", lambda x, y: F.mse_loss(x, y), *[T(256, 1024, dtype=dtype)] * 2)
train(
    "loss/cross-entropy-vocabulary",
    lambda x, t: F.cross_entropy(x, t),
    T(64, 32000),
    T(64, dtype=i64, low=0, high=31999),
)
train("loss/cross-entropy-smoothed", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), T(256, 1000), CLASSES)
train("loss/cross-entropy-ignored", lambda x, t: F.cross_entropy(x, t, ignore_index=0), T(256, 1000), CLASSES)
train(
    "loss/cross-entropy-images",
    lambda x, t: F.cross_entropy(x, t),
    T(2, 21, 64, 64),
    T(2, 64, 64, dtype=i64, low=0, high=20),
)
train("loss/soft-targets", lambda x, t: F.cross_entropy(x, t.softmax(-1)), T(128, 1000), T(128, 1000))
train(
    "loss/bce-logits",
    lambda x, t: F.binary_cross_entropy_with_logits(x, t.detach()),
    T(256, 512),
    T(256, 512, low=0, high=1),
)
train("loss/smooth-l1", lambda x, t: F.smooth_l1_loss(x, t), *[T(256, 512)] * 2)
train("loss/huber-mean-rows", lambda x, t: F.huber_loss(x, t, reduction="none").mean(-1).sum(), *[T(256, 512)] * 2)
train(
    "loss/kl-divergence",
    lambda x, t: F.kl_div(F.log_softmax(x, -1), F.softmax(t, -1), reduction="batchmean"),
    *[T(128, 1000)] * 2,
)
train(
    "loss/contrastive",
    lambda x, y: F.cross_entropy(F.normalize(x) @ F.normalize(y).t() / 0.07, torch.arange(128)),
    *[T(128, 256)] * 2,
)
train(
    "loss/focal",
    lambda x, t: (
        (1 - torch.sigmoid(x)) ** 2 * F.binary_cross_entropy_with_logits(x, (t > 0).to(f32), reduction="none")
    ).mean(),
    *[T(256, 512)] * 2,
)
train(
    "loss/dice",
    lambda x, t: 1 - 2 * (x.sigmoid() * (t > 0)).sum() / (x.sigmoid().sum() + (t > 0).sum()),
    *[T(4, 128, 128)] * 2,
)
train("loss/triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), *[T(256, 256)] * 3)
train("loss/gaussian-nll", lambda m, v, t: F.gaussian_nll_loss(m, t, v.exp()), *[T(256, 256)] * 3)
