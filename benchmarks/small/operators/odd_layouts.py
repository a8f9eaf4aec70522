"""Operators and pieces on types and layouts that few think of: bytes, flags, halves, parts of rows, channels last."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, f16, f32, i8, i32, i64, infer, module, train, u8

flags = torch.bool

# Layouts.
for layout in ("transposed", "sliced", "strided"):
    infer(f"odd/softmax-{layout}", lambda x: F.softmax(x, -1), T(64, 200, layout=layout))
    infer(f"odd/layer-norm-{layout}", lambda x: F.layer_norm(x, (192,)), T(128, 192, layout=layout))
    infer(f"odd/sum-both-{layout}", lambda x: (x.sum(0), x.sum(1)), T(256, 256, layout=layout))
    infer(f"odd/argmax-{layout}", lambda x: x.argmax(-1), T(128, 300, layout=layout))
    infer(
        f"odd/linear-{layout}",
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        T(48, 96, layout=layout),
        T(64, 96, layout=layout),
        T(64),
    )
    infer(f"odd/cumsum-{layout}", lambda x: x.cumsum(-1), T(64, 256, layout=layout))
    infer(f"odd/sort-{layout}", lambda x: x.sort(-1)[0], T(64, 128, layout=layout))
    infer(
        f"odd/gather-{layout}",
        lambda x, i: x.gather(1, i),
        T(100, 128, layout=layout),
        T(100, 16, dtype=i64, low=0, high=127),
    )
    infer(f"odd/bf16-gelu-{layout}", lambda x: F.gelu(x), T(128, 384, dtype=bf16, layout=layout))
    infer(f"odd/i32-mod-{layout}", lambda x: (x * 7 + 3) % 101, T(128, 384, dtype=i32, layout=layout))
    train(f"odd/log-softmax-{layout}", lambda x: F.log_softmax(x, -1).diagonal().sum(), T(100, 100, layout=layout))
    train(f"odd/product-{layout}", lambda x, y: (x @ y).tanh(), T(64, 80, layout=layout), T(80, 72, layout=layout))
for dtype, name in ((f32, "f32"), (bf16, "bf16"), (f16, "f16")):
    infer(
        f"odd/instance-norm-cl-{name}",
        lambda x: F.instance_norm(x),
        T(4, 16, 28, 28, dtype=dtype, layout="channels_last"),
    )
    infer(
        f"odd/group-norm-cl-{name}",
        lambda x: F.silu(F.group_norm(x, 4)),
        T(4, 32, 20, 20, dtype=dtype, layout="channels_last"),
    )
    infer(
        f"odd/max-pool-cl-{name}",
        lambda x: F.max_pool2d(x, 3, 2, 1),
        T(4, 32, 28, 28, dtype=dtype, layout="channels_last"),
    )
    infer(
        f"odd/avg-pool-cl-{name}", lambda x: F.avg_pool2d(x, 2), T(4, 32, 28, 28, dtype=dtype, layout="channels_last")
    )
    infer(f"odd/pixel-unshuffle-{name}", lambda x: F.pixel_unshuffle(x, 2), T(4, 8, 32, 32, dtype=dtype))
    infer(
        f"odd/channel-mean-cl-{name}", lambda x: x.mean((2, 3)), T(4, 64, 14, 14, dtype=dtype, layout="channels_last")
    )
    infer(
        f"odd/nearest-cl-{name}",
        lambda x: F.interpolate(x, scale_factor=2.0),
        T(2, 16, 24, 24, dtype=dtype, layout="channels_last"),
    )
    infer(
        f"odd/bilinear-cl-{name}",
        lambda x: F.interpolate(x, size=(40, 40), mode="bilinear"),
        T(2, 16, 24, 24, dtype=dtype, layout="channels_last"),
    )
    infer(
        f"odd/cat-channels-{name}",
        lambda x, y: F.leaky_relu(torch.cat((x, y), 1), 0.1),
        T(2, 16, 24, 24, dtype=dtype),
        T(2, 8, 24, 24, dtype=dtype),
    )
    infer(
        f"odd/std-normal-{name}",
        lambda x: (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-3),
        T(64, 300, dtype=dtype),
    )
    infer(f"odd/var-0-{name}", lambda x: x.var(0), T(300, 64, dtype=dtype))
    infer(f"odd/outer-{name}", lambda x, y: torch.outer(x, y).exp().sum(1), T(200, dtype=dtype), T(200, dtype=dtype))
    infer(f"odd/matvec-{name}", lambda w, x: F.silu(w @ x), T(512, 512, dtype=dtype), T(512, dtype=dtype))
    infer(
        f"odd/bmm-small-{name}",
        lambda x, y: torch.bmm(x, y) * 0.5,
        T(64, 8, 16, dtype=dtype),
        T(64, 16, 8, dtype=dtype),
    )
    infer(
        f"odd/einsum-heads-{name}",
        lambda q, k: torch.einsum("bthd,bshd->bhts", q, k),
        T(2, 48, 4, 32, dtype=dtype),
        T(2, 48, 4, 32, dtype=dtype),
    )
    infer(
        f"odd/sdpa-causal-{name}",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        T(2, 4, 64, 32, dtype=dtype),
        T(2, 4, 64, 32, dtype=dtype),
        T(2, 4, 64, 32, dtype=dtype),
    )
    infer(f"odd/topk-{name}", lambda x: x.topk(4, -1), T(64, 256, dtype=dtype))
    infer(
        f"odd/clip-norm-{name}",
        lambda x, y: (lambda n: (x / n.clamp(min=1), y / n.clamp(min=1)))(
            (x.float().square().sum() + y.float().square().sum()).sqrt()
        ),
        T(128, 128, dtype=dtype),
        T(500, dtype=dtype),
    )
    infer(
        f"odd/conv1d-dilated-{name}",
        lambda x, w: F.conv1d(x, w, dilation=4, padding=8),
        T(2, 32, 256, dtype=dtype),
        T(32, 32, 5, dtype=dtype),
    )
    infer(
        f"odd/conv-grouped-{name}",
        lambda x, w: F.conv2d(x, w, padding=1, groups=4),
        T(2, 32, 20, 20, dtype=dtype),
        T(32, 8, 3, 3, dtype=dtype),
    )
    train(
        f"odd/rms-training-{name}",
        lambda x, w: x * torch.rsqrt(x.float().square().mean(-1, True) + 1e-6).to(x.dtype) * w,
        T(64, 256, dtype=dtype),
        T(256, dtype=dtype),
    )
    train(f"odd/glu-training-{name}", lambda x, w: F.glu(x @ w), T(64, 64, dtype=dtype), T(64, 128, dtype=dtype))
    train(
        f"odd/smooth-l1-training-{name}",
        lambda x, y: F.smooth_l1_loss(x, y),
        T(64, 256, dtype=dtype),
        T(64, 256, dtype=dtype),
    )
    train(
        f"odd/conv-gelu-training-{name}",
        lambda x, w: F.gelu(F.conv2d(x, w, padding=1)),
        T(2, 8, 20, 20, dtype=dtype),
        T(16, 8, 3, 3, dtype=dtype),
    )

# Integers and flags.
for dtype, name in ((u8, "u8"), (i8, "i8"), (i32, "i32"), (i64, "i64")):
    infer(f"odd/roll-rows-{name}", lambda x: x.roll(5, 0), T(256, 256, dtype=dtype))
    infer(f"odd/roll-columns-{name}", lambda x: x.roll(-7, 1), T(256, 256, dtype=dtype))
    infer(f"odd/roll-both-{name}", lambda x: torch.roll(x, (3, -9), (0, 1)), T(256, 256, dtype=dtype))
    infer(f"odd/median-filter-{name}", lambda x: x.unfold(1, 3, 1).median(-1)[0], T(64, 256, dtype=dtype))
    infer(f"odd/max-both-{name}", lambda x: (x.amax(1), x.amin(0)), T(200, 200, dtype=dtype))
    infer(
        f"odd/where-clamp-{name}",
        lambda x, y: torch.where(x > y, x, y).clamp(1, 100),
        T(128, 512, dtype=dtype),
        T(128, 512, dtype=dtype),
    )
    infer(f"odd/equal-count-{name}", lambda x: (x == 3).sum(-1), T(128, 512, dtype=dtype, low=0, high=9))
    infer(
        f"odd/masked-scatter-{name}",
        lambda x, m, y: x.masked_scatter(m, y),
        T(4096, dtype=dtype),
        T(4096, dtype=flags),
        T(4096, dtype=dtype),
    )
    infer(f"odd/flip-add-{name}", lambda x: x + x.flip(-1), T(128, 512, dtype=dtype))
    infer(
        f"odd/isin-{name}",
        lambda x, y: torch.isin(x, y),
        T(2000, dtype=dtype, low=0, high=90),
        T(8, dtype=dtype, low=0, high=90),
    )
    infer(f"odd/transpose-{name}", lambda x: x.t().contiguous(), T(256, 300, dtype=dtype))
    infer(
        f"odd/stack-last-{name}", lambda x, y: torch.stack((x, y), -1), T(64, 512, dtype=dtype), T(64, 512, dtype=dtype)
    )
infer("odd/flags-all", lambda m: (m.all(0), m.any(1), m.sum()), T(300, 300, dtype=flags))
infer(
    "odd/flags-logic",
    lambda a, b, c: (a & ~b) | (c ^ a),
    T(64, 1000, dtype=flags),
    T(64, 1000, dtype=flags),
    T(64, 1000, dtype=flags),
)
infer("odd/flags-cumsum", lambda m: m.cumsum(1), T(64, 500, dtype=flags))
infer("odd/flags-product", lambda m, x: m.float() @ x, T(64, 100, dtype=flags), T(100, 32))
infer("odd/flags-pow", lambda m: m**2, T(2000, dtype=flags))
infer("odd/flags-first", lambda m: m.int().argmax(1), T(64, 300, dtype=flags))
infer("odd/flags-triu", lambda m: m.triu() | m.tril(-3), T(200, 200, dtype=flags))
infer("odd/flags-pad", lambda m: F.pad(m, (2, 3), value=True), T(64, 500, dtype=flags))
infer("odd/flags-flip-roll", lambda m: m.flip(0).roll(9, 1), T(200, 200, dtype=flags))
infer("odd/flags-cat-repeat", lambda m: torch.cat((m, m.repeat(1, 2)), 1), T(64, 200, dtype=flags))
infer("odd/i64-to-u8-wrap", lambda x: (x * 31).to(u8), T(8000, dtype=i64))
infer("odd/f32-to-i8-round", lambda x: (x * 12).round().clamp(-128, 127).to(i8), T(8000))
infer("odd/u8-mean", lambda x: x.float().mean((1, 2)), T(16, 64, 64, dtype=u8))
infer(
    "odd/u8-grid-sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    T(2, 3, 32, 32),
    T(2, 24, 24, 2, low=-1.0, high=1.0),
)
infer(
    "odd/grid-sample-nearest-one",
    lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=True),
    T(1, 4, 40, 40),
    T(1, 40, 40, 2, low=-1.2, high=1.2),
)
infer(
    "odd/affine-grid-sample",
    lambda x, t: F.grid_sample(x, F.affine_grid(t, x.shape, False), align_corners=False),
    T(2, 3, 40, 40),
    T(2, 2, 3),
)
infer("odd/bincount", lambda x: torch.bincount(x, minlength=64), T(5000, dtype=i64, low=0, high=63))
infer(
    "odd/bincount-weights", lambda x, w: torch.bincount(x, w, minlength=64), T(5000, dtype=i64, low=0, high=63), T(5000)
)
infer("odd/masked-scatter-f32", lambda x, m, y: x.masked_scatter(m, y), T(64, 256), T(64, 256, dtype=flags), T(64, 256))
infer(
    "odd/embedding-bag-mean",
    lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"),
    T(1000, 64),
    T(600, dtype=i64, low=0, high=999),
    torch.arange(0, 600, 6),
)
infer(
    "odd/embedding-bag-sum",
    lambda w, i: F.embedding_bag(i, w, mode="sum"),
    T(2000, 48),
    T(64, 12, dtype=i64, low=0, high=1999),
)
infer(
    "odd/embedding-bag-weighted",
    lambda w, i, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p),
    T(2000, 48),
    T(64, 12, dtype=i64, low=0, high=1999),
    T(64, 12),
)
module(
    "odd/bag-training",
    lambda: nn.EmbeddingBag(500, 32, mode="sum"),
    T(32, 8, dtype=i64, low=0, high=499),
    training=True,
)
module(
    "odd/bag-classifier",
    lambda: nn.Sequential(nn.EmbeddingBag(500, 32, mode="mean"), nn.Linear(32, 4)),
    T(32, 20, dtype=i64, low=0, high=499),
)
for hidden in (8, 32):
    train(
        f"odd/attention-short-{hidden}",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        T(2, 4, 16, hidden),
        T(2, 4, 16, hidden),
        T(2, 4, 16, hidden),
    )
module("odd/mha-short-training", lambda: _Attention(), T(4, 12, 32), training=True)


class _Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


module("odd/patches-14", lambda: nn.Conv2d(3, 192, 14, 14), T(2, 3, 112, 112))
module("odd/patches-14-tokens", lambda: nn.Sequential(nn.Conv2d(3, 192, 14, 14), nn.Flatten(2)), T(2, 3, 112, 112))
module("odd/patches-8-bf16", lambda: nn.Conv2d(3, 64, 8, 8), T(2, 3, 64, 64, dtype=bf16), dtype=bf16)
module(
    "odd/up-bf16-training",
    lambda: nn.ConvTranspose2d(16, 8, 2, 2),
    T(2, 16, 16, 16, dtype=bf16),
    dtype=bf16,
    training=True,
)
module("odd/up-4-training", lambda: nn.ConvTranspose2d(16, 8, 4, 2, 1), T(2, 16, 16, 16), training=True)
module("odd/gru-cell", lambda: nn.GRUCell(32, 64), T(16, 32))
module("odd/rnn-cell-training", lambda: nn.RNNCell(32, 64), T(16, 32), training=True)
module("odd/prelu-bn-training", lambda: nn.Sequential(nn.BatchNorm1d(64), nn.PReLU()), T(64, 64), training=True)
module("odd/bilinear-layer", lambda: nn.Bilinear(16, 16, 8), T(32, 16), T(32, 16))
module("odd/local-response", lambda: nn.LocalResponseNorm(5), T(2, 16, 20, 20))
module("odd/lp-pool", lambda: nn.LPPool2d(2, 3, 2), T(2, 8, 24, 24))
module(
    "odd/fold-unfold", lambda: nn.Sequential(nn.Unfold(4, stride=2), nn.Fold((20, 20), 4, stride=2)), T(2, 4, 20, 20)
)
module("odd/channel-shuffle-cl", lambda: nn.ChannelShuffle(4), T(2, 32, 20, 20, layout="channels_last"))
module(
    "odd/autocast-mlp-training",
    lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)),
    T(32, 64),
    training=True,
    autocast=bf16,
)
module(
    "odd/autocast-conv-cl",
    lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1)),
    T(2, 3, 40, 40),
    channels_last=True,
    autocast=bf16,
)


def ring(x, value, i):
    x[i] = value
    return x[(i + 1) % 16]


def writing(name, function, make_state, *inputs):
    def build():
        state = make_state()
        return Case(
            function, (*state, *(x.make() if isinstance(x, T) else x for x in inputs)), False, lambda: list(state)
        )

    case(f"odd/{name}", build)


writing("write-column", lambda x, y: x[:, 3].copy_(y), lambda: (torch.zeros(200, 16),), T(200))
writing("add-to-part", lambda x, a, b: x[4:20].addmm_(a, b), lambda: (torch.zeros(32, 24),), T(16, 8), T(8, 24))
writing(
    "scatter-add-in-place",
    lambda x, i, v: x.scatter_add_(0, i, v),
    lambda: (torch.zeros(1000),),
    T(300, dtype=i64, low=0, high=999),
    T(300),
)
writing(
    "cache-i8",
    lambda k, s, x, p: _cache(k, s, x, p),
    lambda: (torch.zeros(4, 128, 32, dtype=i8), torch.zeros(4, 128, 1)),
    T(4, 1, 32),
    torch.tensor([17]),
)
writing(
    "cache-window",
    lambda k, x: k.copy_(torch.cat((k[:, 1:], x), 1)).sum(1),
    lambda: (torch.zeros(4, 64, 32),),
    T(4, 1, 32),
)
writing(
    "running-median",
    lambda x, y: x.roll(1, 0).index_copy(0, torch.tensor([0]), y).median(0)[0],
    lambda: (torch.zeros(9, 400),),
    T(1, 400),
)
writing(
    "flags-set",
    lambda m, i: m.index_fill_(0, i, True).sum(),
    lambda: (torch.zeros(2000, dtype=flags),),
    T(64, dtype=i64, low=0, high=1999),
)
writing("counter", lambda n, x: (n.add_(1), x / n)[1], lambda: (torch.zeros(1),), T(400))
writing("row-by-tensor", ring, lambda: (torch.zeros(16, 400),), T(400), torch.tensor(4))


def _cache(k, s, x, p):
    scale = x.abs().amax(-1, True) / 127
    k.index_copy_(1, p, (x / scale).round().to(i8))
    s.index_copy_(1, p, scale)
    return (k[:, :32].float() * s[:, :32]).sum(1)
