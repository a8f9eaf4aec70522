"""Single layers and losses in training, of the sizes that models give them: forward and backward with all gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from small.case import Case, T, bf16, case, i64, under_autocast


def _layer(
    name: str,
    make: Callable[[], nn.Module],
    *inputs: T,
    dtype: torch.dtype = torch.float32,
    autocast: bool = False,
    tolerance: float | None = None,
) -> None:
    """A layer that is trained, with the gradients of its inputs as well as of its parameters."""

    def build() -> Case:
        made = make().to(dtype).train()
        given = [x.make() for x in inputs]
        for x in given:
            x.requires_grad_(x.is_floating_point())
        leaves = [*made.parameters(), *(x for x in given if x.requires_grad)]
        function = under_autocast(made, bf16) if autocast else made
        return Case(function, tuple(given), True, lambda: list(made.buffers()), leaves)

    case(f"trained/{name}", build, tolerance=tolerance)


class _Attends(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class _First(nn.Module):
    """The first result of a recurrent layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


_layer("linear", lambda: nn.Linear(256, 512), T(64, 256))
_layer("linear-tokens", lambda: nn.Linear(384, 384), T(4, 61, 384))
_layer("linear-wide", lambda: nn.Linear(768, 3072), T(128, 768))
_layer("linear-bf16", lambda: nn.Linear(256, 512), T(64, 256, dtype=bf16), dtype=bf16)
_layer("linear-autocast", lambda: nn.Linear(256, 512), T(64, 256), autocast=True)
_layer("linear-one", lambda: nn.Linear(300, 1), T(512, 300))
_layer("linear-relu", lambda: nn.Sequential(nn.Linear(256, 512), nn.ReLU()), T(64, 256))
_layer("linear-prime", lambda: nn.Linear(127, 211), T(97, 127))
_layer("bilinear", lambda: nn.Bilinear(32, 24, 16), T(64, 32), T(64, 24))
_layer("conv1d", lambda: nn.Conv1d(32, 64, 5, padding=2), T(8, 32, 400))
_layer("conv1d-dilated", lambda: nn.Conv1d(32, 32, 3, dilation=4, padding=4), T(4, 32, 1000))
_layer("conv1d-depthwise", lambda: nn.Conv1d(64, 64, 7, padding=3, groups=64), T(4, 64, 300))
_layer("conv1d-strided", lambda: nn.Conv1d(1, 64, 10, 5), T(2, 1, 8000))
_layer("conv1d-bf16", lambda: nn.Conv1d(32, 64, 5, padding=2), T(8, 32, 400, dtype=bf16), dtype=bf16)
_layer("conv2d", lambda: nn.Conv2d(32, 64, 3, padding=1), T(4, 32, 28, 28))
_layer("conv2d-prime", lambda: nn.Conv2d(13, 29, 3, 2, 1), T(3, 13, 41, 37))
_layer("conv2d-depthwise", lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64), T(4, 64, 28, 28))
_layer("conv2d-depthwise-7", lambda: nn.Conv2d(48, 48, 7, padding=3, groups=48), T(2, 48, 28, 28))
_layer("conv2d-pointwise", lambda: nn.Conv2d(64, 128, 1), T(4, 64, 28, 28))
_layer("conv2d-patches", lambda: nn.Conv2d(3, 192, 16, 16), T(4, 3, 96, 96))
_layer("conv2d-bf16", lambda: nn.Conv2d(32, 64, 3, padding=1), T(4, 32, 28, 28, dtype=bf16), dtype=bf16)
_layer("conv2d-autocast", lambda: nn.Conv2d(32, 64, 3, padding=1), T(4, 32, 28, 28), autocast=True)
_layer("conv2d-transposed", lambda: nn.ConvTranspose2d(32, 16, 4, 2, 1), T(4, 32, 14, 14))
_layer("conv3d", lambda: nn.Conv3d(8, 16, 3, padding=1), T(2, 8, 8, 16, 16))
_layer("layer-norm", lambda: nn.LayerNorm(768), T(128, 768))
_layer("layer-norm-small", lambda: nn.LayerNorm(64), T(32, 50, 64))
_layer("layer-norm-bf16", lambda: nn.LayerNorm(768), T(128, 768, dtype=bf16), dtype=bf16)
_layer("layer-norm-autocast", lambda: nn.LayerNorm(768), T(128, 768, dtype=bf16), autocast=True, tolerance=5e-2)
_layer("layer-norm-images", lambda: nn.LayerNorm((16, 14, 14)), T(8, 16, 14, 14))
_layer("rms-norm", lambda: nn.RMSNorm(768), T(128, 768))
_layer("rms-norm-small", lambda: nn.RMSNorm(96), T(8, 50, 96))
_layer("rms-norm-bf16", lambda: nn.RMSNorm(768), T(128, 768, dtype=bf16), dtype=bf16)
_layer("group-norm", lambda: nn.GroupNorm(8, 64), T(4, 64, 28, 28))
_layer("group-norm-prime", lambda: nn.GroupNorm(3, 33), T(3, 33, 13, 11))
_layer("group-norm-bf16", lambda: nn.GroupNorm(8, 64), T(4, 64, 28, 28, dtype=bf16), dtype=bf16)
_layer("instance-norm", lambda: nn.InstanceNorm2d(32, affine=True), T(4, 32, 28, 28))
_layer("batch-norm", lambda: nn.BatchNorm2d(64), T(8, 64, 28, 28))
_layer("batch-norm-1d", lambda: nn.BatchNorm1d(256), T(128, 256))
_layer("batch-norm-series", lambda: nn.BatchNorm1d(64), T(16, 64, 200))
_layer("batch-norm-cl", lambda: nn.BatchNorm2d(64), T(8, 64, 28, 28, layout="channels_last"))
_layer("batch-norm-3d", lambda: nn.BatchNorm3d(16), T(2, 16, 8, 16, 16))
_layer("embedding", lambda: nn.Embedding(5000, 128), T(16, 64, dtype=i64, low=0, high=4999))
_layer("embedding-padded", lambda: nn.Embedding(1000, 64, padding_idx=0), T(32, 50, dtype=i64, low=0, high=999))
_layer("embedding-bf16", lambda: nn.Embedding(5000, 128), T(16, 64, dtype=i64, low=0, high=4999), dtype=bf16)
_layer("embedding-bag", lambda: nn.EmbeddingBag(5000, 64, mode="sum"), T(64, 20, dtype=i64, low=0, high=4999))
_layer("attention", lambda: _Attends(128, 4, batch_first=True), T(4, 50, 128))
_layer("attention-first", lambda: _Attends(256, 8), T(100, 2, 256))
_layer("attention-bf16", lambda: _Attends(128, 4, batch_first=True), T(4, 50, 128, dtype=bf16), dtype=bf16)
_layer("encoder", lambda: nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True), T(4, 50, 128))
_layer("encoder-autocast", lambda: nn.TransformerEncoderLayer(128, 4, 256, 0.0), T(50, 4, 128), autocast=True)
_layer("lstm", lambda: _First(nn.LSTM(64, 128, batch_first=True)), T(16, 30, 64))
_layer("lstm-bidirectional", lambda: _First(nn.LSTM(64, 64, bidirectional=True)), T(30, 16, 64))
_layer("lstm-2", lambda: _First(nn.LSTM(32, 64, 2, batch_first=True)), T(8, 24, 32))
_layer("gru", lambda: _First(nn.GRU(64, 128, batch_first=True)), T(16, 30, 64))
_layer("gru-2", lambda: _First(nn.GRU(32, 64, 2)), T(24, 8, 32))
_layer("rnn", lambda: _First(nn.RNN(64, 128)), T(30, 16, 64))
_layer("lstm-bf16", lambda: _First(nn.LSTM(64, 128, batch_first=True)), T(16, 30, 64, dtype=bf16), dtype=bf16)
_layer("gelu", nn.GELU, T(128, 3072))
_layer("silu-bf16", nn.SiLU, T(128, 3072, dtype=bf16))
_layer("prelu", lambda: nn.PReLU(64), T(4, 64, 28, 28))
_layer("glu", nn.GLU, T(128, 1024))
_layer("softmax", lambda: nn.Softmax(-1), T(8, 64, 64))
_layer("max-pool", lambda: nn.MaxPool2d(3, 2, 1), T(4, 32, 56, 56))
_layer("average-pool", lambda: nn.AvgPool2d(2), T(4, 32, 56, 56))
_layer("adaptive-pool", lambda: nn.AdaptiveAvgPool2d(1), T(8, 256, 14, 14))
_layer("upsample", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), T(2, 32, 28, 28))
_layer("upsample-nearest", lambda: nn.Upsample(scale_factor=2), T(2, 32, 28, 28))
_layer("pixel-shuffle", lambda: nn.PixelShuffle(2), T(2, 64, 28, 28))
_layer("reflection", lambda: nn.ReflectionPad2d(3), T(2, 32, 28, 28))
_layer("unfold", lambda: nn.Unfold(3, padding=1), T(2, 16, 28, 28))


class _Loss(nn.Module):
    def __init__(self, of: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.of = of

    def forward(self, *inputs):
        return self.of(*inputs)


def _loss(name: str, of: Callable[..., torch.Tensor], *inputs: T, **options: bool) -> None:
    _layer(f"loss/{name}", lambda: _Loss(of), *inputs, **options)


_CLASSES = T(128, dtype=i64, low=0, high=99)
_loss("cross-entropy", F.cross_entropy, T(128, 100), _CLASSES)
_loss("cross-entropy-tokens", lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten()), T(4, 64, 5000),
      T(4, 64, dtype=i64, low=0, high=4999))  # fmt: skip
_loss("cross-entropy-bf16", F.cross_entropy, T(128, 5000, dtype=bf16), T(128, dtype=i64, low=0, high=4999))
_loss("cross-entropy-smooth", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), T(128, 1000),
      T(128, dtype=i64, low=0, high=999))  # fmt: skip
_loss("cross-entropy-pixels", F.cross_entropy, T(2, 21, 64, 64), T(2, 64, 64, dtype=i64, low=0, high=20))
_loss("nll", lambda x, y: F.nll_loss(x.log_softmax(1), y), T(128, 100), _CLASSES)
_loss("squares", F.mse_loss, T(64, 1000), T(64, 1000))
_loss("absolute", F.l1_loss, T(64, 1000), T(64, 1000))
_loss("huber", F.smooth_l1_loss, T(64, 1000), T(64, 1000))
_loss("binary", F.binary_cross_entropy_with_logits, T(256, 80), T(256, 80, low=0, high=1))
_loss("divergence", lambda p, q: F.kl_div(p.log_softmax(-1), q.softmax(-1), reduction="batchmean"), T(64, 500),
      T(64, 500))  # fmt: skip
_loss("cosine", lambda a, b: 1 - F.cosine_similarity(a, b).mean(), T(128, 256), T(128, 256))
_loss("triplet", F.triplet_margin_loss, T(128, 256), T(128, 256), T(128, 256))
_loss("contrastive", lambda a, b: F.cross_entropy(F.normalize(a) @ F.normalize(b).t() / 0.07, torch.arange(128)),
      T(128, 256), T(128, 256))  # fmt: skip
_loss("gaussian", lambda m, y, v: F.gaussian_nll_loss(m, y, v.exp()), T(256, 20), T(256, 20), T(256, 20))
_loss("margin", lambda x, y: F.multi_margin_loss(x, y), T(128, 100), _CLASSES)
_loss("dice", lambda x, y: 1 - (2 * (x.sigmoid() * y).sum((1, 2)) + 1).div((x.sigmoid() + y).sum((1, 2)) + 1).mean(),
      T(4, 128, 128), T(4, 128, 128, low=0, high=1))  # fmt: skip
