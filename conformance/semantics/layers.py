"""The layers that models are made of, in their variants, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/layers")


def _with_gradients(trial: Trial, function: Callable[..., Sequence[torch.Tensor]], *given: torch.Tensor) -> Any:
    """Results without gradients, results with them, and the gradients of all inputs."""
    compiled = trial.compile(function)
    with torch.no_grad():
        plain = compiled(*given)
    inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in given]
    results = compiled(*inputs)
    loss = sum((torch.linspace(0.5, 1.5, r.numel()).to(r).view(r.shape) * r).sum() for r in results)
    loss.backward()
    return plain, [r.detach() for r in results], [x.grad for x in inputs]


@case("training")
def convolutions(trial: Trial) -> Any:
    """Strides, dilation, groups, padding and transposed convolutions, in one to three dimensions."""
    x1, x2, x3 = trial.tensor(2, 4, 11), trial.tensor(2, 4, 9, 8), trial.tensor(1, 2, 5, 4, 5)
    w1, w2, w3, wt = (
        trial.tensor(6, 4, 3),
        trial.tensor(6, 2, 3, 2),
        trial.tensor(3, 2, 2, 2, 2),
        trial.tensor(4, 3, 3, 3),
    )

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        x1, x2, x3, w1, w2, w3, wt, bias = given
        return [
            F.conv1d(x1, w1, bias, stride=2, padding=1, dilation=2),
            F.conv2d(x2, w2, bias, stride=(1, 2), padding=(2, 0), groups=2),
            F.conv3d(x3, w3, padding=1),
            F.conv_transpose2d(x2, wt, stride=2, padding=1, output_padding=1),
            F.conv2d(x2, wt[:, :1].contiguous(), groups=4, padding=1),
        ]

    return _with_gradients(trial, f, x1, x2, x3, w1, w2, w3, wt, trial.tensor(6))


@case("training")
def pooling(trial: Trial) -> Any:
    """Maxima and means over windows, with padding, rounding up, and to given sizes."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, ceil_mode=True),
            F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, (2, 3)), F.max_pool1d(x[0], 2),
        ]  # fmt: skip

    return _with_gradients(trial, f, trial.tensor(2, 3, 7, 9))


@case("training")
def norms(trial: Trial) -> Any:
    """Norms over layers, groups, instances, batches and by roots of mean squares."""

    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.layer_norm(x, (5,), weight[:5], bias[:5]), F.group_norm(x, 2, weight[:6], bias[:6], 1e-3),
            F.instance_norm(x), F.rms_norm(x, (5,), weight[:5]), F.batch_norm(x, None, None, weight, bias, True),
            F.normalize(x, dim=1), F.layer_norm(x, (6, 5)),
        ]  # fmt: skip

    return _with_gradients(trial, f, trial.tensor(4, 6, 5), trial.tensor(6), trial.tensor(6))


@case("training", terms=14)
def activations(trial: Trial) -> Any:
    """Activations and softmax over each dimension."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.softplus(x), F.elu(x), F.leaky_relu(x), F.mish(x),
            x.softmax(0), x.softmax(1), x.softmax(-1), x.log_softmax(1), F.hardswish(x), F.glu(x, 1), F.logsigmoid(x),
        ]  # fmt: skip

    return _with_gradients(trial, f, trial.tensor(3, 4, 9) * 3)


@case("training")
def losses(trial: Trial) -> Any:
    """Losses with weights, ignored classes, smoothing, and every reduction."""
    classes = torch.tensor([1, 0, 4, 2, -100, 3], device=trial.device)

    def f(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.cross_entropy(x, classes), F.cross_entropy(x, classes, weight.abs().detach()),
            F.cross_entropy(x, classes, reduction="none"), F.nll_loss(x.log_softmax(1), classes, reduction="sum"),
            F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.cross_entropy(x, classes, label_smoothing=0.1),
            F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), (weight * x).mean(),
        ]  # fmt: skip

    return _with_gradients(trial, f, trial.tensor(6, 5), trial.tensor(6, 5), trial.tensor(5))


@case("training")
def attention(trial: Trial) -> Any:
    """Attention with masks of both kinds, causal, with a scale, and with fewer heads for keys."""
    q, k, v = trial.tensor(2, 4, 5, 8), trial.tensor(2, 4, 7, 8), trial.tensor(2, 4, 7, 8)
    keep = torch.ones(5, 7, dtype=torch.bool, device=trial.device).tril(2)

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        attend = F.scaled_dot_product_attention
        return [
            attend(q, k, v), attend(q, k, v, attn_mask=keep), attend(q, k, v, attn_mask=bias),
            attend(q, k, v, scale=0.3),
            attend(q, q, q, is_causal=True), attend(q, k[:, :2], v[:, :2], enable_gqa=True),
        ]  # fmt: skip

    return _with_gradients(trial, f, q, k, v, trial.tensor(5, 7))


@case("training")
def embeddings(trial: Trial) -> Any:
    """Embeddings, with a word for padding, and sums over bags of words."""
    words = torch.tensor([[1, 2, 2], [0, 9, 1]], device=trial.device)

    def f(table: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.embedding(words, table),
            F.embedding(words, table, padding_idx=0),
            F.embedding_bag(words, table, mode="sum"),
        ]

    return _with_gradients(trial, f, trial.tensor(10, 4))


@case("training")
def resizing(trial: Trial) -> Any:
    """Padding of each kind, and images of other sizes."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.pad(x, (1, 2, 0, 1)), F.pad(x, (1, 2, 1, 1), mode="reflect"), F.pad(x, (2, 1, 1, 1), mode="replicate"),
            F.pad(x, (-1, 1)), F.pad(x, (1, 1, 1, 1), mode="circular"), F.interpolate(x, scale_factor=2),
            F.interpolate(x, (7, 3), mode="bilinear"), F.interpolate(x, (6, 9), mode="bilinear", align_corners=True),
            F.pixel_shuffle(torch.cat([x, x], 1), 2), F.interpolate(x, (3, 9), mode="nearest-exact"),
        ]  # fmt: skip

    return _with_gradients(trial, f, trial.tensor(2, 2, 5, 6))


@case("training")
def products(trial: Trial) -> Any:
    """Products of vectors, matrices, batches and by formulas."""

    def f(a: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [
            a @ b, a.transpose(1, 2) @ a, a[0] @ v, v @ b[0], torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2.0),
            torch.addmm(a[0, :, :3], a[0], b[0][:, :3]), torch.einsum("bij,bjk->bik", a, b), torch.outer(v, v),
            torch.einsum("bij,j->i", a, v), v.dot(v).reshape(1), F.linear(a, b[0].t(), b[0][0]),
            torch.kron(a[0], v[:2, None]),
        ]  # fmt: skip

    return _with_gradients(trial, f, trial.tensor(2, 3, 4), trial.tensor(2, 4, 5), trial.tensor(4))


@case("training")
def recurrent(trial: Trial) -> Any:
    """A recurrent layer over a few steps."""
    torch.manual_seed(0)
    cell = trial.module(torch.nn.GRUCell(4, 6))
    x = trial.tensor(3, 2, 4, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(2, 6)
        for step in x:
            state = cell(step, state)
        return state

    y = trial.run(f, x)
    y.square().sum().backward()
    return y, x.grad, [p.grad for p in cell.parameters()]


@case(terms=192)
def operands_left_out(trial: Trial) -> Any:
    """Norms with a bias and no weight, or a weight and no bias, of rows, sequences, images and volumes; layers with
    more dimensions than usual."""

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        row, sequence, image, volume = x[:, :, 0, 0, 0], x[..., 0, 0], x[..., 0], x
        mean, spread = b.detach(), w.detach().abs() + 0.5
        attend, deep = F.scaled_dot_product_attention, x.transpose(1, 4)
        mask = x.detach()[:, :1, :3, :3, 0] > 0
        found = [
            F.layer_norm(row, (4,), None, b), F.layer_norm(row, (4,), w), F.linear(x.transpose(1, 4), w.expand(3, 4)),
            attend(deep, deep * 2, deep[..., :2]), attend(image, image, image[..., :2], mask | ~mask.any(-1, True)),
            F.embedding(torch.arange(3, device=x.device).view(1, 3, 1), x[0, :, :, 0, 0]), F.group_norm(row, 2),
            F.group_norm(row, 4, w, b),
            F.conv1d(sequence, w.expand(2, 4)[..., None]), F.conv3d(volume, w.view(1, 4, 1, 1, 1), b[:1]),
            image.softmax(1),
            F.max_pool3d(volume, 2, 1), F.prelu(sequence, w), F.prelu(row, b), F.prelu(volume, w),
            F.normalize(volume, dim=1),
        ]  # fmt: skip
        for given in (row, volume):
            found += [F.batch_norm(given, mean, spread, None, b), F.group_norm(given, 2, None, b.detach())]
        for given in (sequence, image):
            found += [F.batch_norm(given, None, None, None, b, True), F.batch_norm(given, mean, spread, w)]
        return [*found, F.instance_norm(sequence, weight=w, bias=b), F.group_norm(image, 2, w)]

    return trial.run(f, trial.tensor(3, 4, 3, 3, 4), trial.tensor(4, low=0.5, high=1.5), trial.tensor(4))
