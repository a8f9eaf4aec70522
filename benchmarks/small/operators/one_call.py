"""One operator a program, at the sizes that people try: by types, layouts, and forward and backward."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, f32, i8, i32, i64, infer, train, u8

flags = torch.bool
NAMES = {f32: "f32", bf16: "bf16", f16: "f16", u8: "u8", i8: "i8", i32: "i32", i64: "i64"}


def at(*shape, top):
    return T(*shape, dtype=i64, low=0, high=top - 1)


# Choosing and placing

for dtype in (f32, bf16):
    of = NAMES[dtype]
    x = T(256, 512, dtype=dtype)
    infer(f"one/gather/{of}", lambda x, i: x.gather(1, i), x, at(256, 64, top=512))
    infer(f"one/take-along/{of}", lambda x, i: torch.take_along_dim(x, i, 0), x, at(256, 512, top=256))
    infer(f"one/index-select-columns/{of}", lambda x, i: x.index_select(1, i), x, at(300, top=512))
    infer(f"one/index-rows/{of}", lambda x, i: x[i], x, at(128, top=256))
    infer(f"one/masked-scatter/{of}", lambda x, m, s: x.masked_scatter(m, s), x, T(256, 512, dtype=flags), x)
    infer(f"one/masked-fill/{of}", lambda x, m: x.masked_fill(m, float("-inf")), x, T(256, 512, dtype=flags))
    infer(f"one/where/{of}", lambda m, x, y: torch.where(m, x, y), T(256, 512, dtype=flags), x, x)
    infer(f"one/scatter-add/{of}", lambda x, i, s: x.scatter_add(1, i, s), x, at(256, 512, top=512), x)
    infer(f"one/index-add/{of}", lambda x, i, s: x.index_add(0, i, s), x, at(1024, top=256), T(1024, 512, dtype=dtype))
    infer(f"one/index-copy/{of}", lambda x, i, s: x.index_copy(0, i, s), x, torch.randperm(64), T(64, 512, dtype=dtype))
    infer(f"one/roll-rows/{of}", lambda x: x.roll(3, 0), x)
    infer(f"one/roll-columns/{of}", lambda x: x.roll(-5, 1), x)
    infer(f"one/flip/{of}", lambda x: x.flip(-1), x)
    infer(f"one/rot90/{of}", lambda x: torch.rot90(x, 1, (0, 1)), x)
    infer(f"one/tril/{of}", lambda x: x.tril(), x)
    infer(f"one/repeat-interleave/{of}", lambda x: x.repeat_interleave(2, 1), x)
    infer(f"one/repeat/{of}", lambda x: x.repeat(2, 2), x)
    infer(f"one/cat-columns/{of}", lambda x, y: torch.cat((x, y), 1), x, x)
    infer(f"one/stack-last/{of}", lambda x, y: torch.stack((x, y), -1), x, x)
    infer(f"one/pad-constant/{of}", lambda x: F.pad(x, (3, 5, 1, 2), value=1.0), x)
    infer(f"one/pad-reflect/{of}", lambda x: F.pad(x[None], (3, 3, 2, 2), mode="reflect"), x)
    infer(f"one/pad-circular/{of}", lambda x: F.pad(x[None], (4, 4), mode="circular"), x)
    infer(f"one/unfold/{of}", lambda x: x.unfold(1, 16, 8).contiguous(), x)
    infer(f"one/transpose/{of}", lambda x: x.t().contiguous(), x)
    infer(f"one/embedding/{of}", lambda w, i: F.embedding(i, w), T(1000, 64, dtype=dtype), at(32, 50, top=1000))
    infer(
        f"one/bag-sum/{of}",
        lambda w, i: F.embedding_bag(i, w, mode="sum"),
        T(1000, 64, dtype=dtype),
        at(64, 20, top=1000),
    )

# Counting, sorting, searching

infer("one/bincount", lambda i: torch.bincount(i, minlength=64), at(8192, top=64))
infer("one/bincount-small", lambda i: torch.bincount(i, minlength=10), at(256, top=10))
infer("one/bincount-weights", lambda i, w: torch.bincount(i, w, minlength=64), at(8192, top=64), T(8192))
infer("one/histc", lambda x: x.histc(32, -3, 3), T(10000))
infer("one/sort", lambda x: x.sort(-1), T(64, 512))
infer("one/argsort-descending", lambda x: x.argsort(descending=True), T(8, 1000))
infer("one/topk", lambda x: x.topk(8), T(64, 1024))
infer("one/kthvalue", lambda x: x.kthvalue(20, -1), T(64, 256))
infer("one/median", lambda x: x.median(-1), T(64, 255))
infer(
    "one/searchsorted",
    lambda x, y: torch.searchsorted(x.cumsum(0), y),
    T(1000, low=0, high=1),
    T(4096, low=0, high=500),
)
infer("one/bucketize", lambda x, b: torch.bucketize(x, b), T(4096), torch.linspace(-2, 2, 20))
infer("one/unique-mask", lambda x: x[1:] != x[:-1], T(4096, dtype=i64, low=0, high=9))
infer("one/one-hot", lambda i: F.one_hot(i, 100), at(256, top=100))
infer("one/argmax", lambda x: x.argmax(-1), T(64, 1000))
infer("one/argmin-first", lambda x: x.argmin(0), T(256, 256))
infer("one/max-dim", lambda x: x.max(1), T(64, 1000))
infer("one/any-all", lambda m: (m.any(-1), m.all(-1)), T(256, 256, dtype=flags))
infer("one/count-nonzero", lambda m: m.count_nonzero(-1), T(256, 256, dtype=flags))
infer("one/isin", lambda x, y: torch.isin(x, y), at(4096, top=1000), at(16, top=1000))
infer("one/cdist", lambda x, y: torch.cdist(x, y), T(128, 16), T(200, 16))
infer("one/cov", lambda x: torch.cov(x), T(16, 500))
infer("one/corrcoef", lambda x: torch.corrcoef(x), T(16, 500))
infer("one/trapezoid", lambda x: torch.trapezoid(x, dx=0.1), T(64, 500))
infer("one/diff", lambda x: x.diff(dim=-1), T(64, 500))
infer("one/outer", lambda x, y: torch.outer(x, y), T(400), T(300))
infer("one/kron", lambda x, y: torch.kron(x, y), T(16, 16), T(8, 8))
infer("one/cross", lambda x, y: torch.linalg.cross(x, y), T(2000, 3), T(2000, 3))
infer("one/meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), T(100), T(120))
infer("one/logcumsumexp", lambda x: x.logcumsumexp(-1), T(64, 200))
infer("one/cumprod", lambda x: x.cumprod(-1), T(64, 200, low=0.9, high=1.1))
infer("one/cummax", lambda x: x.cummax(-1), T(64, 200))
infer("one/nan-to-num", lambda x: x.nan_to_num(), T(256, 256))
infer("one/lerp", lambda x, y: torch.lerp(x, y, 0.3), T(256, 256), T(256, 256))
infer("one/renorm", lambda x: x.renorm(2, 0, 1.0), T(256, 64))
infer("one/std-mean", lambda x: torch.std_mean(x, -1), T(128, 500))
infer("one/norm-2", lambda x: x.norm(), T(256, 256))
infer("one/quantile", lambda x: x.quantile(0.9, -1), T(32, 256))
infer("one/erfinv", lambda x: x.erfinv(), T(64, 256, low=-0.9, high=0.9))
infer("one/lgamma", lambda x: x.lgamma(), T(64, 256, low=0.5, high=5))
infer("one/digamma", lambda x: x.digamma(), T(64, 256, low=0.5, high=5))
infer("one/logsumexp", lambda x: x.logsumexp(-1), T(128, 500))
infer("one/logit", lambda x: x.logit(1e-4), T(256, 256, low=0, high=1))
infer("one/atan2", lambda x, y: torch.atan2(x, y), T(256, 256), T(256, 256))
infer("one/hypot", lambda x, y: torch.hypot(x, y), T(256, 256), T(256, 256))
infer("one/fmod", lambda x: x.fmod(0.7), T(256, 256))
infer("one/remainder-i64", lambda x: x % 7, T(256, 256, dtype=i64))
infer("one/shift-i32", lambda x: (x >> 3) & 0xF, T(256, 256, dtype=i32))

# Pictures

for layout in ("contiguous", "channels_last"):
    short = "cl" if layout == "channels_last" else "nchw"
    p = T(2, 16, 32, 32, layout=layout)
    infer(f"one/max-pool/{short}", lambda x: F.max_pool2d(x, 2), p)
    infer(f"one/max-pool-3/{short}", lambda x: F.max_pool2d(x, 3, 2, 1), p)
    infer(f"one/avg-pool/{short}", lambda x: F.avg_pool2d(x, 2), p)
    infer(f"one/adaptive-pool/{short}", lambda x: F.adaptive_avg_pool2d(x, 1), p)
    infer(f"one/adaptive-max/{short}", lambda x: F.adaptive_max_pool2d(x, 7), p)
    infer(f"one/nearest/{short}", lambda x: F.interpolate(x, scale_factor=2), p)
    infer(f"one/bilinear/{short}", lambda x: F.interpolate(x, (48, 48), mode="bilinear"), p)
    infer(f"one/bicubic/{short}", lambda x: F.interpolate(x, (48, 48), mode="bicubic"), p)
    infer(
        f"one/grid-sample/{short}",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        p,
        T(2, 32, 32, 2, low=-1, high=1),
    )
    infer(
        f"one/grid-nearest/{short}",
        lambda x, g: F.grid_sample(x, g, "nearest", align_corners=False),
        p,
        T(2, 32, 32, 2, low=-1, high=1),
    )
    infer(f"one/pixel-shuffle/{short}", lambda x: F.pixel_shuffle(x, 2), p)
    infer(f"one/pixel-unshuffle/{short}", lambda x: F.pixel_unshuffle(x, 2), p)
    infer(
        f"one/batch-norm/{short}",
        lambda x, w, b, m, v: F.batch_norm(x, m, v.exp(), w, b),
        p,
        T(16),
        T(16),
        T(16),
        T(16),
    )
    infer(f"one/group-norm/{short}", lambda x, w, b: F.group_norm(x, 4, w, b), p, T(16), T(16))
    infer(f"one/instance-norm/{short}", lambda x: F.instance_norm(x), p)
    infer(f"one/conv-1x1/{short}", lambda x, w: F.conv2d(x, w), p, T(16, 16, 1, 1))
    infer(f"one/conv-depthwise/{short}", lambda x, w: F.conv2d(x, w, padding=1, groups=16), p, T(16, 1, 3, 3))
    infer(f"one/conv-transpose/{short}", lambda x, w: F.conv_transpose2d(x, w, stride=2), p, T(16, 8, 2, 2))
    infer(f"one/unfold-fold/{short}", lambda x: F.unfold(x, 3, padding=1), p)
    infer(f"one/channel-shuffle/{short}", lambda x: F.channel_shuffle(x, 4), p)
    train(f"one/train/max-pool/{short}", lambda x: F.max_pool2d(x, 2), p)
    train(f"one/train/avg-pool/{short}", lambda x: F.avg_pool2d(x, 3, 2, 1), p)
    train(f"one/train/bilinear/{short}", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), p)
    train(
        f"one/train/grid-sample/{short}",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        p,
        T(2, 32, 32, 2, low=-1, high=1),
    )
    train(f"one/train/group-norm/{short}", lambda x, w, b: F.group_norm(x, 4, w, b), p, T(16), T(16))
infer("one/max-pool-1d", lambda x: F.max_pool1d(x, 2), T(4, 16, 256))
infer("one/max-pool-3d", lambda x: F.max_pool3d(x, 2), T(1, 8, 16, 16, 16))
infer("one/avg-pool-1d", lambda x: F.avg_pool1d(x, 3, 1, 1), T(4, 16, 256))
infer("one/conv-1d", lambda x, w: F.conv1d(x, w, padding=2), T(4, 16, 256), T(32, 16, 5))
infer("one/lp-pool", lambda x: F.lp_pool2d(x, 2, 2), T(2, 16, 32, 32, low=0, high=1))

# Forward and backward

train("one/train/gather", lambda x, i: x.gather(1, i), T(256, 512), at(256, 64, top=512))
train("one/train/index", lambda x, i: x[i], T(256, 128), at(512, top=256))
train("one/train/embedding", lambda w, i: F.embedding(i, w), T(1000, 64), at(32, 16, top=1000))
train("one/train/bag-sum", lambda w, i: F.embedding_bag(i, w, mode="sum"), T(1000, 64), at(64, 20, top=1000))
train("one/train/bag-mean", lambda w, i: F.embedding_bag(i, w), T(1000, 64), at(64, 20, top=1000))
train("one/train/mm-small", lambda x, y: x @ y, T(16, 32), T(32, 16))
train("one/train/linear-small", F.linear, T(8, 32), T(64, 32), T(64))
train("one/train/bmm-small", torch.bmm, T(8, 16, 16), T(8, 16, 16))
train("one/train/softmax", lambda x: x.softmax(-1), T(64, 256))
train("one/train/layer-norm", lambda x, w, b: F.layer_norm(x, (256,), w, b), T(64, 256), T(256), T(256))
train("one/train/cumsum", lambda x: x.cumsum(-1), T(64, 256))
train("one/train/sort", lambda x: x.sort(-1)[0], T(64, 256))
train("one/train/max", lambda x: x.max(-1)[0], T(64, 256))
train("one/train/roll", lambda x: x.roll(3, 1), T(64, 256))
train("one/train/pad", lambda x: F.pad(x, (2, 2)), T(64, 256))
train(
    "one/train/masked-scatter", lambda x, m, s: x.masked_scatter(m, s), T(64, 256), T(64, 256, dtype=flags), T(64, 256)
)
train("one/train/attention-short", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *[T(2, 4, 16, 32)] * 3)
train(
    "one/train/attention-causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    *[T(2, 4, 64, 32)] * 3,
)
train(
    "one/train/attention-bf16",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    *[T(2, 4, 64, 32, dtype=bf16)] * 3,
)
train("one/train/gelu", F.gelu, T(64, 256))
train("one/train/prelu", lambda x, w: F.prelu(x, w), T(64, 32, 16), T(32))
train("one/train/glu", lambda x: F.glu(x), T(64, 256))
train("one/train/cosine", lambda x, y: F.cosine_similarity(x, y), T(64, 256), T(64, 256))
train("one/train/normalize", lambda x: F.normalize(x), T(64, 256))
train("one/train/cdist", lambda x, y: torch.cdist(x, y), T(64, 16), T(48, 16))
train("one/train/var", lambda x: x.var(-1), T(64, 256))
train("one/train/logsumexp", lambda x: x.logsumexp(0), T(64, 256))
train("one/train/prod", lambda x: x.prod(-1), T(64, 16))
train("one/train/einsum", lambda x, y: torch.einsum("bic,bjc->bij", x, y), T(4, 16, 32), T(4, 20, 32))
train("one/train/conv-small", lambda x, w, b: F.conv2d(x, w, b, padding=1), T(2, 8, 16, 16), T(8, 8, 3, 3), T(8))
train("one/train/conv-1d", lambda x, w: F.conv1d(x, w, padding=1), T(2, 8, 64), T(16, 8, 3))
train("one/train/cross-entropy", lambda x, y: F.cross_entropy(x, y), T(64, 100), at(64, top=100))
train("one/train/nll", lambda x, y: F.nll_loss(x.log_softmax(-1), y), T(64, 100), at(64, top=100))
train("one/train/bce", lambda x, y: F.binary_cross_entropy_with_logits(x, y), T(64, 100), T(64, 100, low=0, high=1))
train("one/train/smooth-l1", lambda x, y: F.smooth_l1_loss(x, y), T(64, 100), T(64, 100))
train(
    "one/train/kl",
    lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    T(64, 100),
    T(64, 100),
)

# Images of bytes

picture = T(256, 256, 3, dtype=u8)
infer("one/u8/roll-rows", lambda x: x.roll(5, 0), picture)
infer("one/u8/flip-columns", lambda x: x.flip(1), picture)
infer("one/u8/channels-first", lambda x: x.permute(2, 0, 1).contiguous(), picture)
infer("one/u8/to-float", lambda x: x.permute(2, 0, 1).float() / 255, picture)
infer("one/u8/crop", lambda x: x[16:240, 16:240].contiguous(), picture)
infer("one/u8/invert", lambda x: 255 - x, picture)
infer("one/u8/threshold", lambda x: (x > 127).to(u8) * 255, picture)
infer("one/u8/table", lambda x, t: t[x.long()], picture, T(256, dtype=u8))
infer("one/u8/sum", lambda x: x.sum((0, 1)), picture)
infer("one/u8/maximum", lambda x: x.amax(-1), picture)
infer("one/u8/bgr", lambda x: x[..., [2, 1, 0]], picture)
infer("one/u8/pack", lambda x: x[..., 0] | (x[..., 1] << 4), picture)
infer("one/u8/float-to-byte", lambda x: (x * 255).clamp(0, 255).to(u8), T(3, 256, 256, low=0, high=1))
infer("one/i8/dequantize", lambda x, s: x.float() * s[:, None], T(512, 512, dtype=i8), T(512))
infer("one/i8/quantize", lambda x, s: (x / s).round().clamp(-128, 127).to(i8), T(512, 512), T(1, low=0.01, high=0.02))
