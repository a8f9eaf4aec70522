"""What people ask about in forums and measure in torch's own benchmarks: odd shapes, mixed types, strange layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i8, i32, i64, infer, module, train, u8

# Broadcasting and mixed types

infer("forum/outer-add", lambda a, b: a[:, None] + b[None, :], T(257), T(131))
infer("forum/row-column-scale", lambda x, r, c: x * r[:, None] / c, T(129, 65), T(129), T(65, low=0.5, high=1.5))
infer("forum/half-times-float", lambda x, y: x * y + 1, T(64, 129, dtype=f16), T(64, 129))
infer("forum/int8-plus-float", lambda q, s: q * s, T(128, 384, dtype=i8), T(384))
infer("forum/u8-average", lambda a, b: ((a.to(i32) + b.to(i32) + 1) // 2).to(u8), *[T(64, 200, dtype=u8)] * 2)
infer("forum/bool-count", lambda a, b: ((a > 0) & ~(b > 0)).sum(-1), *[T(96, 333)] * 2)
infer("forum/any-all", lambda m: (m.any(0), m.all(1), m.sum()), T(200, 77, dtype=torch.bool))
infer("forum/xor-popcount", lambda a, b: sum(((a ^ b) >> i) & 1 for i in range(8)).sum(-1), *[T(64, 64, dtype=u8)] * 2)
infer("forum/lerp-tensor", torch.lerp, *[T(33, 1025)] * 2, T(33, 1))
infer("forum/addcmul-bf16", lambda a, b, c: torch.addcmul(a, b, c, value=0.3), *[T(64, 500, dtype=bf16)] * 3)
infer("forum/sign-log", lambda x: x.sign() * x.abs().log1p(), T(77, 301, layout="transposed"))
infer("forum/nan-to-num", lambda x: torch.nan_to_num(x / x.relu()), T(40, 1000))
infer("forum/hypot-atan2", lambda a, b: (torch.hypot(a, b), torch.atan2(a, b)), *[T(50, 200)] * 2)
infer("forum/fmod-remainder", lambda a, b: (torch.fmod(a, b), torch.remainder(a, b)), T(64, 128), T(128))
infer("forum/logaddexp", torch.logaddexp, T(64, 300), T(300))
infer("forum/erfinv", lambda x: torch.erfinv(x) * 1.41421356, T(8192, low=-0.99, high=0.99))
infer(
    "forum/i64-mod-hash", lambda x: (x * 2654435761 + 97) % 1000003 % 4096, T(64, 128, dtype=i64, low=0, high=1 << 30)
)
infer("forum/clamp-tensor-bounds", lambda x, a, b: torch.clamp(x, a, b), T(32, 3, 40, 40), T(3, 1, 1), T(1, 40, 40))
infer("forum/sinc-window", lambda x, w: torch.sinc(x) * w, T(16, 401), T(401))
infer("forum/copysign-frexp", lambda x, y: torch.copysign(x.abs().sqrt(), y), *[T(90, 90, layout="sliced")] * 2)

# Reductions along strange dimensions

infer("fold/middle-max", lambda x: x.amax(1), T(32, 65, 48))
infer("fold/middle-argmax", lambda x: x.argmax(1), T(32, 21, 300))
infer("fold/first-and-last", lambda x: x.sum((0, 2)), T(40, 65, 33))
infer("fold/std-mean", lambda x: torch.std_mean(x, 0), T(301, 70))
infer("fold/norm-columns", lambda x: x / x.norm(dim=0, keepdim=True), T(257, 129))
infer("fold/p3-norm", lambda x: torch.linalg.vector_norm(x, 3, dim=-1), T(64, 200))
infer("fold/median", lambda x: x.median(-1).values, T(64, 33))
infer("fold/kth", lambda x: x.kthvalue(5, -1).values, T(64, 50))
infer("fold/mode-free-count", lambda x: (x[:, :, None] == x[:, None, :]).sum(-1), T(16, 64, dtype=i64, low=0, high=9))
infer("fold/logsumexp-0", lambda x: x.logsumexp(0), T(200, 150))
infer("fold/i8-sum", lambda x: x.sum(-1), T(128, 500, dtype=i8))
infer("fold/bf16-mean-1", lambda x: x.mean(1), T(16, 77, 128, dtype=bf16))
infer("fold/f16-var", lambda x: x.var(-1, unbiased=False), T(128, 384, dtype=f16))
infer("fold/aminmax", lambda x: x.aminmax(dim=-1), T(100, 333))
infer("fold/nanmean", lambda x: x.where(x > -1, float("nan")).nanmean(-1), T(80, 260))
infer("fold/prod-short", lambda x: x.prod(-1), T(4096, 3))
infer("fold/count-nonzero", lambda x: torch.count_nonzero(x.relu(), dim=0), T(300, 90))
infer("fold/transposed-sum", lambda x: x.sum(-1), T(300, 200, layout="transposed"))
infer("fold/cl-var", lambda x: x.var((2, 3)), T(4, 48, 14, 14, layout="channels_last"))
infer("fold/whole-bf16", lambda x: x.float().square().sum().sqrt(), T(300, 301, dtype=bf16))
infer("fold/cumprod", lambda x: x.cumprod(-1), T(64, 100, low=0.9, high=1.1))
infer("fold/cummax-0", lambda x: x.cummax(0), T(200, 64))
infer("fold/cummin-last", lambda x: x.cummin(-1).values, T(64, 200))
infer("fold/logcumsumexp", lambda x: x.logcumsumexp(-1), T(64, 128))
infer("fold/diff-trapz", lambda y, x: torch.trapezoid(y, x), T(64, 257), T(257))
infer("fold/i32-cumsum", lambda x: x.cumsum(1), T(50, 300, dtype=i32))

# Pooling and convolutions

infer("window/max-1d", lambda x: F.max_pool1d(x, 3, 2, 1), T(8, 64, 101))
infer("window/max-ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), T(2, 32, 28, 28))
infer("window/max-indices", lambda x: F.max_pool2d(x, 2, return_indices=True), T(2, 16, 32, 32))
infer("window/max-bf16-cl", lambda x: F.max_pool2d(x, 3, 2, 1), T(2, 64, 28, 28, dtype=bf16, layout="channels_last"))
infer("window/max-dilated", lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), T(2, 16, 24, 24))
infer("window/avg-exclude", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), T(2, 32, 28, 28))
infer("window/avg-3d", lambda x: F.avg_pool3d(x, 2), T(1, 8, 12, 16, 16))
infer("window/lp", lambda x: F.lp_pool2d(x, 2, 2), T(2, 16, 28, 28))
infer("window/adaptive-max", lambda x: F.adaptive_max_pool2d(x, 5), T(2, 32, 17, 19))
infer("window/adaptive-avg-7", lambda x: F.adaptive_avg_pool2d(x, 7), T(2, 32, 20, 20))
infer("window/adaptive-avg-1d", lambda x: F.adaptive_avg_pool1d(x, 10), T(8, 64, 50))
train("window/max-1d-training", lambda x: F.max_pool1d(x.relu(), 2), T(8, 64, 100))
train("window/avg-training", lambda x: F.avg_pool2d(x, 2).sigmoid(), T(4, 16, 28, 28))
train("window/adaptive-training", lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), T(8, 64, 7, 7))
train("window/upsample-training", lambda x: F.interpolate(x, scale_factor=2), T(2, 16, 14, 14))
infer(
    "window/conv-bf16",
    lambda x, w: F.conv2d(x, w, padding=1).relu(),
    T(1, 16, 28, 28, dtype=bf16),
    T(32, 16, 3, 3, dtype=bf16),
)
infer("window/depthwise-5", lambda x, w: F.conv2d(x, w, padding=2, groups=32), T(1, 32, 28, 28), T(32, 1, 5, 5))
infer("window/transposed", lambda x, w: F.conv_transpose2d(x, w, stride=2).tanh(), T(1, 16, 14, 14), T(16, 8, 4, 4))
infer("window/dilated-1d", lambda x, w: F.conv1d(x, w, padding=4, dilation=4).tanh(), T(4, 32, 128), T(32, 32, 3))
infer("window/conv-3d", lambda x, w: F.conv3d(x, w, padding=1), T(1, 4, 8, 16, 16), T(8, 4, 3, 3, 3))
infer("window/unfold", lambda x: F.unfold(x, 3, padding=1), T(2, 8, 20, 20))
infer("window/local-response", lambda x: F.local_response_norm(x, 5), T(2, 32, 14, 14))
infer(
    "window/grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(1, 8, 24, 24),
    T(1, 20, 20, 2, low=-1, high=1),
)
infer("window/affine-grid", lambda t: F.affine_grid(t, [4, 3, 24, 24], align_corners=False), T(4, 2, 3))
infer("window/nearest-u8", lambda x: F.interpolate(x, size=(50, 37)), T(1, 3, 32, 32, dtype=u8))
infer(
    "window/bilinear-cl",
    lambda x: F.interpolate(x, size=(33, 33), mode="bilinear"),
    T(1, 32, 20, 20, layout="channels_last"),
)
infer("window/area", lambda x: F.interpolate(x, size=(9, 9), mode="area"), T(2, 16, 30, 30))
infer("window/replicate-pad", lambda x: F.pad(x, (2, 1, 3, 0), mode="replicate"), T(2, 8, 30, 30))
infer("window/negative-pad", lambda x: F.pad(x, (-2, 3, 1, -1), value=0.5), T(2, 8, 40, 40))
infer("window/circular-1d", lambda x: F.pad(x, (5, 5), mode="circular"), T(4, 16, 100))
infer("window/pixel-unshuffle", lambda x: F.pixel_unshuffle(x, 2), T(2, 8, 40, 40))
infer("window/channel-shuffle", lambda x: F.channel_shuffle(x, 4) + 1, T(2, 32, 14, 14))

# Layers, inference and training

module(
    "layer-of/conv-bn-relu-cl",
    lambda: nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
    T(2, 8, 28, 28),
    channels_last=True,
)
module(
    "layer-of/conv-bn-relu-training",
    lambda: nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
    T(4, 8, 20, 20),
    training=True,
)
module("layer-of/bn1d-training", lambda: nn.BatchNorm1d(64), T(128, 64), training=True)
module(
    "layer-of/group-norm-bf16",
    lambda: nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU()),
    T(2, 64, 16, 16, dtype=bf16),
    dtype=bf16,
)
module("layer-of/instance-training", lambda: nn.InstanceNorm2d(16, affine=True), T(4, 16, 20, 20), training=True)
module(
    "layer-of/layer-norm-training-bf16", lambda: nn.LayerNorm(256), T(64, 256, dtype=bf16), training=True, dtype=bf16
)
module("layer-of/rms-f16", lambda: nn.RMSNorm(512), T(4, 16, 512, dtype=f16), dtype=f16)
module(
    "layer-of/mlp-autocast",
    lambda: nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)),
    T(16, 256),
    autocast=bf16,
)
module(
    "layer-of/mlp-autocast-training",
    lambda: nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)),
    T(32, 128),
    autocast=bf16,
    training=True,
    tolerance=3e-2,
)
module("layer-of/bilinear", lambda: nn.Bilinear(20, 30, 40), T(64, 20), T(64, 30))
module("layer-of/embedding-bag-mean", lambda: nn.EmbeddingBag(1000, 64), T(32, 10, dtype=i64, low=0, high=999))
module(
    "layer-of/embedding-training", lambda: nn.Embedding(500, 64), T(16, 20, dtype=i64, low=0, high=499), training=True
)
module("layer-of/gru-cell-training", lambda: nn.GRUCell(32, 48), T(16, 32), T(16, 48), training=True)
module("layer-of/lstm-sequence", lambda: nn.LSTM(32, 48, batch_first=True), T(4, 12, 32), fullgraph=False)
module("layer-of/transformer-layer", lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), T(2, 20, 64))
module(
    "layer-of/transformer-layer-training",
    lambda: nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True),
    T(2, 20, 64),
    training=True,
)
module("layer-of/mha", lambda: nn.MultiheadAttention(64, 4, batch_first=True), *[T(2, 20, 64)] * 3)
module("layer-of/glu-conv", lambda: nn.Sequential(nn.Conv1d(32, 64, 5, padding=2), nn.GLU(1)), T(4, 32, 60))
module("layer-of/prelu-cl", lambda: nn.PReLU(32), T(2, 32, 20, 20, layout="channels_last"))
module("layer-of/weight-norm-free", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(64, 96)), T(16, 64))
