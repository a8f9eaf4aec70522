"""Layers and functions as the manuals call them, and chains that people benchmark compilers with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from small.case import T, bf16, f16, i64, infer, module, train


class Seq(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(x for x in layers if isinstance(x, nn.Module))
        self.steps = layers

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


def m(name, make, *inputs, **options):
    module("manual/" + name, make, *inputs, **options)


m("conv2d-uneven", lambda: nn.Conv2d(16, 33, (3, 5), stride=(2, 1), padding=(4, 2), dilation=(3, 1)), T(4, 16, 50, 100))
m("conv1d-33", lambda: nn.Conv1d(16, 33, 3, stride=2), T(20, 16, 50))
m("conv3d-uneven", lambda: nn.Conv3d(16, 33, (3, 5, 2), stride=(2, 1, 1), padding=(4, 2, 0)), T(1, 16, 10, 20, 30))
m("conv-transpose2d", lambda: nn.ConvTranspose2d(16, 33, (3, 5), stride=(2, 1), padding=(4, 2)), T(2, 16, 30, 40))
m("conv-transpose1d", lambda: nn.ConvTranspose1d(24, 12, 8, stride=4, padding=2), T(4, 24, 200))
m("unfold", lambda: nn.Unfold((2, 3)), T(8, 5, 30, 40))
m("fold", lambda: nn.Fold((24, 25), (2, 2)), T(4, 12, 552))
m("max-pool2d-uneven", lambda: nn.MaxPool2d((3, 2), stride=(2, 1)), T(8, 16, 50, 32))
m("max-pool3d", lambda: nn.MaxPool3d((3, 2, 2), stride=(2, 1, 2)), T(2, 16, 10, 14, 31))
m("max-unpool", lambda: Seq(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)), T(4, 8, 32, 32))
m("avg-pool1d-5", lambda: nn.AvgPool1d(3, stride=2), T(20, 16, 50))
m("avg-pool3d", lambda: nn.AvgPool3d((3, 2, 2), stride=(2, 1, 2)), T(2, 16, 10, 14, 31))
m("lp-pool", lambda: nn.LPPool2d(1.2, (3, 2), stride=(2, 1)), T(4, 16, 25, 32))
m("fractional", lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), T(4, 16, 33, 31))
m("adaptive-max3d", lambda: nn.AdaptiveMaxPool3d((7, 9, 5)), T(1, 16, 8, 9, 10))
m("adaptive-avg-5-7", lambda: nn.AdaptiveAvgPool2d((5, 7)), T(4, 32, 8, 9))
m("reflect-3d", lambda: nn.ReflectionPad3d(1), T(2, 6, 8, 8, 8))
m("replicate-uneven", lambda: nn.ReplicationPad2d((1, 1, 2, 0)), T(8, 3, 40, 40))
m("zero-pad-uneven", lambda: nn.ZeroPad2d((1, 1, 2, 0)), T(8, 3, 64, 64))
m("circular-3d", lambda: nn.CircularPad3d((3, 3, 6, 6, 1, 1)), T(2, 3, 8, 10, 12))
m("hardtanh", lambda: nn.Hardtanh(-2, 2), T(64, 1000))
m("rrelu", lambda: nn.RReLU(0.1, 0.3).eval(), T(64, 1000))
m("softmin", lambda: nn.Softmin(dim=1), T(200, 300))
m("softmax2d", lambda: nn.Softmax2d(), T(4, 13, 32, 32))
m(
    "adaptive-softmax",
    lambda: nn.AdaptiveLogSoftmaxWithLoss(64, 1000, [50, 200], div_value=2.0),
    T(128, 64),
    T(128, dtype=i64, low=0, high=999),
    fullgraph=False,
)
m("local-response", lambda: nn.LocalResponseNorm(2), T(4, 24, 24, 24))
m("instance-affine", lambda: nn.InstanceNorm2d(100, affine=True), T(4, 100, 15, 20))
m("instance-3d", lambda: nn.InstanceNorm3d(20, affine=True), T(2, 20, 8, 11, 10))
m("group-6-1", lambda: nn.GroupNorm(1, 6), T(20, 6, 10, 10))
m("layer-image", lambda: nn.LayerNorm([5, 10, 10]), T(20, 5, 10, 10))
m("gru-two", lambda: nn.GRU(10, 20, 2), T(5, 3, 10), T(2, 3, 20))
m("rnn-two", lambda: nn.RNN(10, 20, 2), T(5, 3, 10), T(2, 3, 20))
m("lstm-two", lambda: nn.LSTM(10, 20, 2), T(5, 3, 10))
m("lstm-bidirectional", lambda: nn.LSTM(16, 32, 1, batch_first=True, bidirectional=True), T(4, 12, 16))
m("transformer-encoder", lambda: nn.TransformerEncoderLayer(128, 8, 256, batch_first=True).eval(), T(4, 32, 128))
m("transformer-decoder", lambda: nn.TransformerDecoderLayer(128, 8, 256).eval(), T(20, 4, 128), T(10, 4, 128))
m(
    "multihead-mask",
    lambda: nn.MultiheadAttention(64, 4, batch_first=True).eval(),
    T(4, 20, 64),
    T(4, 24, 64),
    T(4, 24, 64),
)
m("bilinear", lambda: nn.Bilinear(20, 30, 40), T(128, 20), T(128, 30))
m("embedding-bag-mean", lambda: nn.EmbeddingBag(1000, 30, mode="mean"), T(64, 10, dtype=i64, low=0, high=999))
m("cosine", lambda: nn.CosineSimilarity(dim=1, eps=1e-6), T(100, 128), T(100, 128))
m("pairwise", lambda: nn.PairwiseDistance(2), T(100, 128), T(100, 128))
m("shuffle", lambda: nn.PixelShuffle(3), T(4, 9, 24, 24))
m("channel-shuffle", lambda: nn.ChannelShuffle(2), T(4, 24, 24, 24))
m("upsample-corners", lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), T(4, 3, 24, 24))
m("upsample-trilinear", lambda: nn.Upsample(scale_factor=2, mode="trilinear"), T(1, 4, 10, 12, 14))
m("upsample-linear", lambda: nn.Upsample(scale_factor=2.5, mode="linear"), T(8, 16, 100))
m("flatten-unflatten", lambda: Seq(nn.Linear(50, 50), nn.Unflatten(1, (2, 5, 5))), T(100, 50))

# Losses as documented.
t = lambda name, f, *i, **o: train("manual/" + name, f, *i, **o)  # noqa: E731
t(
    "ctc",
    lambda x, y: F.ctc_loss(x.log_softmax(2), y, torch.full((8,), 40), torch.full((8,), 12)),
    T(40, 8, 20),
    T(8, 12, dtype=i64, low=1, high=19),
    fullgraph=False,
)
t("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), T(100, 128), T(100, 128), T(100, 128))
t(
    "triplet-cosine",
    lambda a, p, n: F.triplet_margin_with_distance_loss(
        a, p, n, distance_function=lambda x, y: 1 - F.cosine_similarity(x, y)
    ),
    T(100, 128),
    T(100, 128),
    T(100, 128),
    fullgraph=False,
)
t("gaussian", lambda x, y, v: F.gaussian_nll_loss(x, y, v.abs() + 0.1), T(500, 20), T(500, 20), T(500, 1))
t(
    "kl-log",
    lambda x, y: F.kl_div(F.log_softmax(x, 1), F.log_softmax(y, 1), reduction="batchmean", log_target=True),
    T(300, 50),
    T(300, 50),
)
t("soft-labels", lambda x, y: F.cross_entropy(x, y.softmax(1), label_smoothing=0.1), T(300, 50), T(300, 50))
t("multilabel-margin", lambda x, y: F.multilabel_soft_margin_loss(x, y), T(128, 40), T(128, 40, low=0.0, high=1.0))
t("poisson", lambda x, y: F.poisson_nll_loss(x, y.abs(), full=False), T(500, 20), T(500, 20))
t("huber-delta", lambda x, y: F.huber_loss(x, y, delta=0.3), T(500, 40), T(500, 40))
t(
    "nll-2d",
    lambda x, y: F.nll_loss(F.log_softmax(x, 1), y, weight=torch.linspace(0.5, 1.5, 7)),
    T(4, 7, 24, 24),
    T(4, 24, 24, dtype=i64, low=0, high=6),
)
t(
    "bce-pos",
    lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.full((64,), 2.0)),
    T(200, 64),
    T(200, 64),
)


# Small tasks of the kind that benchmarks of generated kernels have.
def k(name, make, *inputs, **options):
    module("task/" + name, make, *inputs, **options)


i = lambda name, f, *x, **o: infer("task/" + name, f, *x, **o)  # noqa: E731
i("diagonal-product", lambda d, b: torch.diag(d) @ b, T(256), T(256, 256))
i("upper-product", lambda a, b: torch.triu(a.triu() @ b.triu()), T(192, 192), T(192, 192))
i("lower-product", lambda a, b: torch.tril(a.tril() @ b.tril()), T(192, 192), T(192, 192))
i("symmetric-product", lambda a, b: (a + a.T) @ (b + b.T), T(192, 192), T(192, 192))
i("tall-skinny", lambda a, b: a @ b, T(2048, 16), T(16, 2048))
i("inner-long", lambda a, b: a @ b, T(32, 8192), T(8192, 32))
i("both-transposed", lambda a, b: a.T @ b.T, T(128, 300), T(200, 128))
i("irregular", lambda a, b: a @ b, T(205, 127), T(127, 311))
i("4d-product", lambda a, b: torch.einsum("bijl,lk->bijk", a, b), T(2, 16, 24, 64), T(64, 96))
i("scalar-matrix", lambda a: a * 3.14, T(700, 500))
i("frobenius", lambda x: x / torch.norm(x, p="fro"), T(8, 16, 40, 40))
i("l1-normalized", lambda x: x / x.abs().sum(1, keepdim=True), T(64, 3000))
i("l2-normalized", lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True), T(64, 3000))
i("rms-channels", lambda x: x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-5), T(4, 64, 32, 32))
i("cumsum-reverse", lambda x: torch.cumsum(x.flip(1), 1).flip(1), T(64, 1000))
i(
    "cumsum-exclusive",
    lambda x: torch.cumsum(torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), 1)[:, :-1], 1),
    T(64, 1000),
)
i("masked-cumsum", lambda x, k: torch.cumsum(x * k, 1), T(64, 1000), T(64, 1000, dtype=torch.bool))
i("min-middle", lambda x: torch.min(x, 1)[0], T(8, 128, 200))
i("argmin-middle", lambda x: torch.argmin(x, 1), T(8, 128, 200))
i("product-columns", lambda x: torch.prod(x, 1), T(8, 64, 200))
i("new-gelu", lambda x: 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0)))), T(200, 300))
i("hinge", lambda x, y: torch.mean(torch.clamp(1 - x * y.sign(), min=0)), T(500, 100), T(500, 100))
k("conv-relu-bias", lambda: Seq(nn.Conv2d(3, 16, 3), F.relu, lambda x: x + 0.5), T(8, 3, 32, 32))
k(
    "transpose-bias-clamp",
    lambda: Seq(
        nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1),
        lambda x: torch.clamp(x - 0.3, 0.0, 1.0) * 2.0,
        lambda x: torch.clamp(x, 0.0, 1.0) / 2.0,
    ),
    T(4, 16, 16, 16),
)
k(
    "conv3d-multi",
    lambda: Seq(nn.Conv3d(3, 16, 3), F.relu, F.leaky_relu, F.gelu, F.sigmoid, lambda x: x + 0.1),
    T(2, 3, 8, 20, 20),
)
k("gemm-scale-bn", lambda: Seq(nn.Linear(128, 64), lambda x: x * 1.5, nn.BatchNorm1d(64)), T(256, 128))
k(
    "conv-min-tanh",
    lambda: Seq(nn.Conv2d(3, 16, 3), lambda x: torch.tanh(torch.tanh(torch.min(x, 1, keepdim=True)[0]))),
    T(8, 3, 32, 32),
)
k(
    "transpose3d-sum-norm-pool-gelu",
    lambda: Seq(
        nn.ConvTranspose3d(8, 16, 3, stride=(2, 2, 2), padding=1, output_padding=1),
        lambda x: x + 0.5,
        nn.LayerNorm(16),
        nn.AvgPool3d(2),
        F.gelu,
    ),
    T(2, 8, 4, 8, 8),
)
k(
    "matmul-swish-group",
    lambda: Seq(nn.Linear(128, 64), lambda x: torch.sigmoid(x) * x, nn.GroupNorm(8, 64)),
    T(256, 128),
)
k(
    "gemm-group-swish-mul-swish",
    lambda: Seq(
        nn.Linear(128, 64),
        nn.GroupNorm(16, 64),
        lambda x: x * torch.sigmoid(x),
        lambda x: x * 1.1,
        lambda x: x * torch.sigmoid(x),
    ),
    T(256, 128),
)
k(
    "conv3d-divide-max-pool-sum",
    lambda: Seq(
        nn.Conv3d(8, 16, 3), lambda x: x / 2.0, nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(1), lambda x: (x + 0.1).sum(1)
    ),
    T(2, 8, 8, 16, 16),
)
k(
    "matmul-sum-max-avg-lse",
    lambda: Seq(
        nn.Linear(200, 100),
        lambda x: x.sum(1, keepdim=True),
        lambda x: torch.max(x, 1, keepdim=True)[0],
        lambda x: torch.logsumexp(torch.logsumexp(x, 1, keepdim=True), 1, keepdim=True),
    ),
    T(256, 200),
)
k(
    "conv-sub-tanh-sub-pool",
    lambda: Seq(nn.Conv2d(3, 16, 3), lambda x: torch.tanh(x - 0.5) - 0.2, nn.AvgPool2d(2)),
    T(8, 3, 32, 32),
)
k("conv-hardswish-relu", lambda: Seq(nn.Conv2d(3, 16, 3), F.hardswish, F.relu), T(8, 3, 32, 32))
k(
    "conv3d-softmax-pool-pool",
    lambda: Seq(nn.Conv3d(3, 16, 3), lambda x: torch.softmax(x, 1), nn.MaxPool3d(2), nn.MaxPool3d(2)),
    T(2, 3, 14, 18, 18),
)
k(
    "conv-hardswish-pool-mish",
    lambda: Seq(nn.Conv2d(3, 16, 3), lambda x: F.hardswish(x - 0.5), nn.MaxPool2d(2), F.mish),
    T(8, 3, 32, 32),
)
k(
    "gemm-residual-avg",
    lambda: Seq(nn.Linear(128, 128), lambda x: x * 2 + x - torch.mean(x, 1, keepdim=True), torch.sigmoid),
    T(256, 128),
)
k(
    "transpose-softmax-bias-sigmoid",
    lambda: Seq(
        nn.ConvTranspose2d(16, 24, 4, stride=2, padding=1, output_padding=1),
        lambda x: torch.sigmoid((torch.softmax(x, 1) + 0.1) * 2.0),
    ),
    T(2, 16, 16, 16),
)
k(
    "conv3d-min-softmax",
    lambda: Seq(nn.Conv3d(3, 16, 3), lambda x: torch.min(x, 2)[0], lambda x: torch.softmax(x, 1)),
    T(2, 3, 12, 20, 20),
)
k("matmul-dropout-softmax", lambda: Seq(nn.Linear(100, 50), nn.Dropout(0.2), lambda x: x.softmax(1)), T(256, 100))
k(
    "gemm-log-sum-exp-leaky-gelu",
    lambda: Seq(
        nn.Linear(256, 128), lambda x: torch.logsumexp(x, 1, keepdim=True), F.leaky_relu, F.leaky_relu, F.gelu, F.gelu
    ),
    T(200, 256),
)
k("conv-instance-divide", lambda: Seq(nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16), lambda x: x / 2.0), T(8, 3, 32, 32))
k(
    "conv-group-scale-pool-clamp",
    lambda: Seq(
        nn.Conv2d(3, 16, 3), nn.GroupNorm(8, 16), lambda x: x * 1.2, nn.MaxPool2d(2), lambda x: torch.clamp(x, 0.0, 1.0)
    ),
    T(8, 3, 32, 32),
)
k("conv3d-mish-tanh", lambda: Seq(nn.Conv3d(3, 16, 3), F.mish, torch.tanh), T(2, 3, 10, 16, 16))
k(
    "gemm-group-min-bias",
    lambda: Seq(
        nn.Linear(128, 64), nn.GroupNorm(8, 64), lambda x: torch.min(x, 1, keepdim=True)[0] + torch.ones(1, 64, 1, 1)
    ),
    T(128, 128),
)
k(
    "transpose-global-lse-sum",
    lambda: Seq(
        nn.ConvTranspose2d(3, 16, 3),
        lambda x: torch.mean(x, (2, 3), keepdim=True),
        lambda x: torch.logsumexp(x + 0.3, 1, keepdim=True).sum((2, 3)) * 10.0,
    ),
    T(8, 3, 32, 32),
)
k(
    "matmul-avg-gelu-scale-max",
    lambda: Seq(
        nn.Linear(192, 192),
        lambda x: F.avg_pool1d(x.unsqueeze(1), 4).squeeze(1),
        F.gelu,
        lambda x: torch.max(x * 2.0, 1)[0],
    ),
    T(128, 192),
)
k(
    "bmm-instance-residual",
    lambda: Seq(
        nn.Linear(64, 64),
        lambda x: F.instance_norm(x.unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1),
        lambda x: (x + 0.3) * x,
    ),
    T(128, 64),
)
k(
    "gemm-sigmoid-sum-lse",
    lambda: Seq(nn.Linear(100, 200), torch.sigmoid, lambda x: torch.logsumexp(torch.sum(x, 1), 0)),
    T(200, 100),
)
k(
    "fused-mlp-f16",
    lambda: Seq(nn.Linear(128, 256), F.gelu, nn.Linear(256, 64), lambda x: x.softmax(-1)),
    T(128, 128, dtype=f16),
    dtype=f16,
)
k(
    "fused-mlp-bf16",
    lambda: Seq(nn.Linear(128, 256), F.silu, nn.Linear(256, 64), nn.LayerNorm(64)),
    T(128, 128, dtype=bf16),
    dtype=bf16,
)
k(
    "shuffle-unit",
    lambda: Seq(
        nn.Conv2d(24, 24, 1, groups=3),
        nn.BatchNorm2d(24),
        F.relu,
        nn.ChannelShuffle(3),
        nn.Conv2d(24, 24, 3, padding=1, groups=24),
        nn.BatchNorm2d(24),
        nn.Conv2d(24, 24, 1, groups=3),
        nn.BatchNorm2d(24),
    ),
    T(4, 24, 28, 28),
)
k(
    "lenet",
    lambda: Seq(
        nn.Conv2d(1, 6, 5),
        F.relu,
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        F.relu,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        F.relu,
        nn.Linear(120, 84),
        F.relu,
        nn.Linear(84, 10),
    ),
    T(16, 1, 28, 28),
)
k(
    "lenet-training",
    lambda: Seq(
        nn.Conv2d(1, 6, 5),
        F.relu,
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        F.relu,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        F.relu,
        nn.Linear(120, 10),
    ),
    T(16, 1, 28, 28),
    training=True,
)
k(
    "unet-double",
    lambda: Seq(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.Softmax(-1),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.Softmax(-1),
    ),
    T(2, 8, 32, 32),
)
k(
    "vgg-block-cl",
    lambda: nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    ),
    T(2, 16, 32, 32, layout="channels_last"),
    channels_last=True,
)
k(
    "conv3d-cl-training",
    lambda: nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2)),
    T(2, 4, 12, 16, 16),
    training=True,
)
k(
    "mingpt-mlp-training",
    lambda: nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 384), nn.GELU(approximate="tanh"), nn.Linear(384, 96)),
    T(4, 48, 96),
    training=True,
)
k(
    "autocast-conv-norm",
    lambda: nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 8, 1)),
    T(2, 8, 32, 32),
    autocast=bf16,
)
k(
    "autocast-lstm-cell",
    lambda: Seq(
        nn.Linear(64, 256),
        lambda x: (lambda i, f, g, o: o.sigmoid() * (f.sigmoid() + i.sigmoid() * g.tanh()).tanh())(*x.chunk(4, 1)),
    ),
    T(64, 64),
    autocast=bf16,
)
