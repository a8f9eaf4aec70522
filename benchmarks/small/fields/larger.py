"""What people ask about in forums, at sizes at which the work counts more than the call."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, f32, i8, i64, infer, module, train, u8

# Elements and layouts

infer("bulk/clamp-tensor-bounds", lambda x, a, b: torch.clamp(x, a, b), T(32, 3, 128, 128), T(3, 1, 1), T(1, 128, 128))
infer("bulk/lerp", torch.lerp, *[T(512, 1025)] * 2, T(512, 1))
infer("bulk/addcmul-bf16", lambda a, b, c: torch.addcmul(a, b, c, value=0.3), *[T(1024, 500, dtype=bf16)] * 3)
infer("bulk/hypot-atan2", lambda a, b: (torch.hypot(a, b), torch.atan2(a, b)), *[T(500, 400)] * 2)
infer("bulk/erfinv", lambda x: torch.erfinv(x) * 1.41421356, T(262144, low=-0.99, high=0.99))
infer("bulk/half-gelu-residual", lambda x, y: F.gelu(x) + y, *[T(512, 1024, dtype=f16)] * 2)
infer(
    "bulk/i8-requantize",
    lambda q, s: (q.float() * s).relu().mul(8).round().clamp(-128, 127).to(i8),
    T(1024, 768, dtype=i8),
    T(768),
)
infer(
    "bulk/u8-blend",
    lambda a, b: ((a.to(torch.int16) * 3 + b.to(torch.int16)) >> 2).to(u8),
    *[T(3, 512, 512, dtype=u8)] * 2,
)
infer(
    "bulk/bool-mask-chain",
    lambda x, m: x.masked_fill(m | (x < -1), 0.0) * (~m).float(),
    T(512, 1024),
    T(512, 1024, dtype=torch.bool),
)
infer("bulk/transposed-mul-add", lambda a, b, c: a * b.t() + c, T(700, 900), T(900, 700), T(900))
infer("bulk/permute-copy-bf16", lambda x: x.permute(0, 2, 1, 3).contiguous(), T(8, 128, 12, 64, dtype=bf16))
infer("bulk/nchw-to-nhwc-u8", lambda x: x.permute(0, 2, 3, 1).contiguous(), T(4, 3, 256, 256, dtype=u8))
infer("bulk/stack-last-u8", lambda a, b, c: torch.stack((a, b, c), -1), *[T(512, 512, dtype=u8)] * 3)
infer(
    "bulk/nhwc-to-float",
    lambda x: x.permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.25).contiguous(),
    T(4, 224, 224, 3, dtype=u8),
)
infer("bulk/flip-pad", lambda x: F.pad(x.flip(-1), (4, 4, 4, 4), mode="reflect"), T(16, 3, 128, 128))
infer("bulk/replicate-pad", lambda x: F.pad(x, (2, 1, 3, 0), mode="replicate"), T(8, 16, 64, 64))
infer("bulk/reflect-1d", lambda x: F.pad(x, (200, 200), mode="reflect"), T(16, 16000))
infer("bulk/unfold-frames", lambda x, w: x.unfold(-1, 400, 160) * w, T(8, 16000), T(400))
infer("bulk/channel-shuffle", lambda x: F.channel_shuffle(x, 4) + 1, T(8, 64, 56, 56))
infer("bulk/complex-product", lambda a, b: a * b, *[T(256, 1024, dtype=torch.complex64)] * 2)
infer(
    "bulk/polar-rotary",
    lambda x, f: torch.view_as_real(torch.view_as_complex(x.view(4, 256, 8, 32, 2)) * f[:, None]).flatten(3),
    T(4, 256, 8, 64),
    T(256, 32, dtype=torch.complex64),
)
infer("bulk/sliced-layer", lambda x: x[..., 64:] * x[..., :64].sigmoid(), T(2048, 128, layout="sliced"))

# Reductions and scans

infer("bulk/sum-middle", lambda x: x.sum(1), T(64, 200, 96))
infer("bulk/transposed-sum", lambda x: x.sum(-1), T(1000, 800, layout="transposed"))
infer("bulk/argmax-middle", lambda x: x.argmax(1), T(8, 21, 128, 128))
infer("bulk/std-mean-0", lambda x: torch.std_mean(x, 0), T(3000, 128))
infer("bulk/softmax-dim1-bf16", lambda x: x.softmax(1), T(8, 150, 1024, dtype=bf16))
infer("bulk/logsumexp-0", lambda x: x.logsumexp(0), T(512, 1024))
infer(
    "bulk/amax-quantize",
    lambda x: (x * (127 / x.abs().amax(-1, keepdim=True))).round().to(i8),
    T(512, 1024, dtype=bf16),
)
infer(
    "bulk/mean-pool",
    lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True),
    T(16, 128, 384),
    T(16, 128, low=0, high=1),
)
infer("bulk/mean-cl-bf16", lambda x: x.mean((2, 3)), T(8, 256, 14, 14, dtype=bf16, layout="channels_last"))
infer("bulk/cummax", lambda x: x.cummax(-1), T(256, 1000))
infer("bulk/cummin-0", lambda x: x.cummin(0).values, T(1000, 256))
infer("bulk/cumprod", lambda x: x.cumprod(-1), T(256, 1000, low=0.99, high=1.01))
infer("bulk/logcumsumexp", lambda x: x.logcumsumexp(-1), T(64, 1000))
infer("bulk/cumsum-0", lambda x: x.cumsum(0), T(1000, 256))
infer("bulk/cumsum-bf16", lambda x: x.cumsum(-1), T(128, 1000, dtype=bf16))
infer("bulk/cumsum-i64-mask", lambda m: m.long().cumsum(-1) * m, T(256, 1000, dtype=torch.bool))
infer("bulk/median", lambda x: x.median(-1).values, T(500, 300))
infer("bulk/histc", lambda x: torch.histc(x, 64, -3, 3), T(200000))
infer("bulk/bincount", lambda i: torch.bincount(i, minlength=256), T(200000, dtype=i64, low=0, high=255))
infer(
    "bulk/u8-histogram",
    lambda x: torch.zeros(256, dtype=i64).scatter_add(
        0, x.flatten().long(), torch.ones(1, dtype=i64).expand(x.numel())
    ),
    T(256, 256, dtype=u8),
)
infer("bulk/norms", lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6), T(2000, 200, dtype=f16))

# Indices

infer("bulk/rows-bf16", lambda x, i: x[i], T(20000, 256, dtype=bf16), T(2000, dtype=i64, low=0, high=19999))
infer(
    "bulk/rows-i8-scale",
    lambda x, s, i: x[i].float() * s[i][:, None],
    T(20000, 256, dtype=i8),
    T(20000),
    T(1000, dtype=i64, low=0, high=19999),
)
infer("bulk/gather-last", lambda x, i: x.gather(-1, i), T(500, 1000), T(500, 400, dtype=i64, low=0, high=999))
infer(
    "bulk/masked-scatter",
    lambda x, m, s: x.masked_scatter(m, s),
    T(500, 1000),
    T(500, 1000, dtype=torch.bool),
    T(500000),
)
infer(
    "bulk/index-add",
    lambda x, i: torch.zeros(1000, 64).index_add(0, i, x),
    T(10000, 64),
    T(10000, dtype=i64, low=0, high=999),
)
infer(
    "bulk/segment-amax",
    lambda x, i: torch.full((500, 64), -9.0).scatter_reduce(0, i[:, None].expand(-1, 64), x, "amax"),
    T(5000, 64),
    T(5000, dtype=i64, low=0, high=499),
)
infer(
    "bulk/put-accumulate",
    lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
    T(500, 600),
    *[T(50000, dtype=i64, low=0, high=499)] * 2,
    T(50000),
)
infer(
    "bulk/bag-sum",
    lambda i, w: F.embedding_bag(i, w, mode="sum"),
    T(256, 20, dtype=i64, low=0, high=9999),
    T(10000, 64),
)
infer(
    "bulk/bag-max",
    lambda i, w: F.embedding_bag(i, w, mode="max"),
    T(256, 20, dtype=i64, low=0, high=9999),
    T(10000, 64),
)
train(
    "bulk/bag-mean-training",
    lambda w, i: F.embedding_bag(i, w, mode="mean"),
    T(2000, 64),
    T(256, 20, dtype=i64, low=0, high=1999),
)
train("bulk/embedding-training", lambda w, i: F.embedding(i, w), T(5000, 64), T(64, 50, dtype=i64, low=0, high=4999))
infer("bulk/topk", lambda x: x.topk(10), T(64, 5000))
infer("bulk/sort", lambda x: x.sort(-1), T(64, 1000))
infer("bulk/argsort-i64", lambda x: x.argsort(), T(20000, dtype=i64, low=0, high=63))
infer("bulk/searchsorted", torch.searchsorted, torch.linspace(-2, 2, 1000), T(200, 500))
infer("bulk/one-hot-float", lambda i: F.one_hot(i, 100).float(), T(64, 100, dtype=i64, low=0, high=99))
infer("bulk/repeat-interleave", lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, 3), T(4, 32, 56, 56))
infer(
    "bulk/tril-where",
    lambda x: torch.where(torch.ones(256, 256, dtype=torch.bool).tril(), x, -1e9).softmax(-1),
    T(16, 256, 256),
)

# Windows

infer("bulk/max-bf16", lambda x: F.max_pool2d(x, 3, 2, 1), T(4, 64, 56, 56, dtype=bf16))
infer("bulk/max-bf16-cl", lambda x: F.max_pool2d(x, 3, 2, 1), T(4, 64, 56, 56, dtype=bf16, layout="channels_last"))
infer("bulk/max-indices", lambda x: F.max_pool2d(x, 2, return_indices=True), T(4, 64, 56, 56))
infer("bulk/max-1d", lambda x: F.max_pool1d(x, 3, 2, 1), T(16, 128, 400))
infer("bulk/avg-u", lambda x: F.avg_pool2d(x, 3, 1, 1), T(4, 64, 56, 56))
infer("bulk/adaptive-7", lambda x: F.adaptive_avg_pool2d(x, 7), T(4, 256, 20, 20))
infer("bulk/adaptive-max", lambda x: F.adaptive_max_pool2d(x, 5), T(4, 128, 37, 33))
infer(
    "bulk/grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 16, 64, 64),
    T(2, 64, 64, 2, low=-1, high=1),
)
infer(
    "bulk/bilinear-cl",
    lambda x: F.interpolate(x, size=(65, 65), mode="bilinear"),
    T(2, 64, 40, 40, layout="channels_last"),
)
infer(
    "bulk/bilinear-u8",
    lambda x: F.interpolate(x.float(), size=(224, 224), mode="bilinear").div(255),
    T(2, 3, 256, 200, dtype=u8),
)
infer("bulk/nearest-u8", lambda x: F.interpolate(x, size=(224, 224)), T(2, 3, 300, 300, dtype=u8))
infer("bulk/bicubic", lambda x: F.interpolate(x, size=(128, 128), mode="bicubic"), T(2, 3, 96, 96))
train("bulk/max-training", lambda x: F.max_pool2d(x.relu(), 2), T(4, 32, 56, 56))
train("bulk/avg-training", lambda x: F.avg_pool2d(x, 3, 2, 1).sigmoid(), T(4, 32, 56, 56))
train("bulk/bilinear-training", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), T(2, 32, 28, 28))
train("bulk/nearest-training", lambda x: F.interpolate(x, scale_factor=2), T(2, 32, 28, 28))
infer("bulk/depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=64), T(4, 64, 56, 56), T(64, 1, 3, 3))
infer(
    "bulk/depthwise-bf16",
    lambda x, w: F.conv2d(x, w, padding=1, groups=64),
    T(4, 64, 56, 56, dtype=bf16),
    T(64, 1, 3, 3, dtype=bf16),
)
infer("bulk/conv1d-gelu", lambda x, w: F.gelu(F.conv1d(x, w, stride=2, padding=1)), T(2, 80, 600), T(128, 80, 3))
infer(
    "bulk/conv-bf16",
    lambda x, w: F.conv2d(x, w, padding=1).relu(),
    T(2, 64, 28, 28, dtype=bf16),
    T(64, 64, 3, 3, dtype=bf16),
)
infer(
    "bulk/patch-embed-bf16",
    lambda x, w: F.conv2d(x, w, stride=16).flatten(2).transpose(1, 2),
    T(2, 3, 224, 224, dtype=bf16),
    T(384, 3, 16, 16, dtype=bf16),
)

# Training

train("bulk-training/softmax-bf16", lambda x: x.softmax(-1), T(512, 512, dtype=bf16))
train("bulk-training/softmax-dim1", lambda x: x.softmax(1), T(16, 100, 256))
train("bulk-training/log-softmax-f16", lambda x: x.log_softmax(-1), T(512, 512, dtype=f16))
train("bulk-training/swiglu-bf16", lambda a, b: F.silu(a) * b, *[T(512, 1024, dtype=bf16)] * 2)
train("bulk-training/gelu-bf16", lambda x: F.gelu(x), T(512, 1024, dtype=bf16))
train("bulk-training/cumsum", lambda x: x.cumsum(-1), T(256, 1000))
train("bulk-training/logcumsumexp", lambda x: x.logcumsumexp(-1), T(32, 500))
train(
    "bulk-training/attention",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    *[T(2, 4, 128, 32)] * 3,
)
train(
    "bulk-training/segmentation",
    lambda x, t: F.cross_entropy(x, t),
    T(2, 21, 64, 64),
    T(2, 64, 64, dtype=i64, low=0, high=20),
)
train(
    "bulk-training/lm-loss-bf16",
    lambda x, t: F.cross_entropy(x.float(), t),
    T(128, 5000, dtype=bf16),
    T(128, dtype=i64, low=0, high=4999),
)
train("bulk-training/smooth-l1", lambda x, y: F.smooth_l1_loss(x, y), *[T(512, 1000)] * 2)
train("bulk-training/gather-rows", lambda x, i: x[i].tanh(), T(5000, 64), T(4000, dtype=i64, low=0, high=4999))
train(
    "bulk-training/message-passing",
    lambda x, i, j: torch.zeros_like(x).index_add(0, j, x[i]),
    T(1000, 64),
    *[T(8000, dtype=i64, low=0, high=999)] * 2,
)
train("bulk-training/einsum", lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), *[T(4, 8, 64, 32)] * 2)
train(
    "bulk-training/rope",
    lambda x, c, s: x * c + torch.cat((-x[..., 32:], x[..., :32]), -1) * s,
    T(4, 8, 128, 64),
    T(128, 64),
    T(128, 64),
)
for name, dtype in (("f32", f32), ("bf16", bf16)):
    module(
        f"bulk-training/layer-norm/{name}",
        lambda: nn.LayerNorm(512),
        T(512, 512, dtype=dtype),
        training=True,
        dtype=dtype,
        tolerance=0.06 if dtype is bf16 else None,  # eager adds up in bfloat16
    )
    module(
        f"bulk-training/rms-norm/{name}", lambda: nn.RMSNorm(512), T(512, 512, dtype=dtype), training=True, dtype=dtype
    )
    module(
        f"bulk-training/group-norm/{name}",
        lambda: nn.GroupNorm(8, 64),
        T(4, 64, 28, 28, dtype=dtype),
        training=True,
        dtype=dtype,
    )
    module(
        f"bulk-training/batch-norm/{name}",
        lambda: nn.BatchNorm2d(64),
        T(8, 64, 28, 28, dtype=dtype),
        training=True,
        dtype=dtype,
    )
module(
    "bulk-training/conv-bn-training-cl",
    lambda: nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
    T(4, 16, 40, 40),
    training=True,
    channels_last=True,
)
module(
    "bulk-training/glu-conv1d-training",
    lambda: nn.Sequential(nn.Conv1d(32, 64, 5, padding=2), nn.GLU(1)),
    T(8, 32, 200),
    training=True,
)
module(
    "bulk-training/gru-training", lambda: nn.GRU(32, 64, batch_first=True), T(8, 30, 32), training=True, fullgraph=False
)
module(
    "bulk-training/lstm-bf16",
    lambda: nn.LSTM(64, 64, batch_first=True),
    T(4, 30, 64, dtype=bf16),
    dtype=bf16,
    fullgraph=False,
)
module(
    "bulk-training/encoder-layer-training",
    lambda: nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True),
    T(4, 64, 128),
    training=True,
)
module(
    "bulk-training/encoder-layer-autocast",
    lambda: nn.TransformerEncoderLayer(256, 4, 512, 0.0, batch_first=True).eval(),
    T(2, 128, 256),
    autocast=bf16,
)
