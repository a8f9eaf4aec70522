"""Tensors without dimensions, without elements and without a batch, and values that operators refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/smallest")


@case()
def no_dimensions(trial: Trial) -> Any:
    """Reductions, orders, moves, layers and losses of a number have eager's dimensions, mostly none."""

    def f(x: torch.Tensor, y: torch.Tensor, row: torch.Tensor) -> list[Any]:
        zero = torch.zeros((), dtype=torch.int64, device=x.device)
        return [
            x.softmax(0), x.log_softmax(-1), x.cumsum(0), x.cumprod(-1), x.logcumsumexp(0), *x.sort(), *x.sort(0, True),
            *x.topk(1), *x.kthvalue(1), *x.median(0), *x.mode(), *x.cummax(0), *x.cummin(-1), x.argmax(0), x.argmin(),
            x.argsort(), x.sum(0), x.mean(-1), x.amax(0), x.amin(()), x.prod(0), x.logsumexp(0), x.sum((0,), True),
            x.var(correction=0), x.std(0, correction=0), x.norm(), x.norm(1), x.norm(0), x.norm(dim=0), x.any(),
            x.all(0), torch.linalg.vector_norm(-x), x.max(), *x.min(0), *torch.aminmax(x), x.quantile(0.3), x.nansum(),
            x.flip(0), x.roll(1), x.flip(()), x.index_select(0, zero), x.gather(0, zero), x.scatter(0, zero, y),
            x.take(zero), x.index_add(0, zero, y), x.index_fill(0, zero, 3.0), x.index_copy(0, zero, y), x.put(zero, y),
            x.unfold(0, 1, 1), x.expand(()) * 1, x.expand(2), x.repeat(2), x.repeat(()), x.reshape(()) + 0,
            x.reshape(1, 1), x.flatten(), x.ravel(), x.squeeze(), x.squeeze(0) * 1, x.unsqueeze(-1), x[...] * 1,
            x[None], x[()] + 0, x.clone(), x.T * 1, x.masked_fill(x > 0, 2.0), x.where(x > 9, y),
            torch.where(x > 0, x, 1.5), x.permute(()) * 1, torch.stack([x]), torch.stack([x, y]), torch.cat([row[:1]]),
            torch.stack([row]), F.relu(x), F.gelu(x), x.tile(2), F.sigmoid(x), F.dropout(x, 0.5, False), F.softplus(x),
            F.hardtanh(x), x.clamp(y, y + 1), torch.maximum(x, y), F.mse_loss(x, y), F.l1_loss(x, y, reduction="none"),
            F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.cross_entropy(row, zero), F.nll_loss(row, zero + 1),
            F.cross_entropy(row, zero, reduction="none"), row @ row, row.dot(row), row.inner(x),
            torch.outer(row, row[:1]), F.linear(row, row), F.linear(row[:1], x.expand(2, 1)),
            torch.searchsorted(row.sort().values, x), torch.bucketize(x, row.sort().values), F.one_hot(zero, 3),
            x.movedim((), ()), F.embedding(zero, row[:, None]), row[zero], row.index_select(0, zero),
            torch.isin(x, row), torch.atleast_2d(x), torch.broadcast_to(x, (2, 2)),
            torch.broadcast_tensors(x, row)[0] * 1, x.T, torch.einsum("->", x), torch.einsum("i,->i", row, x),
            torch.tensordot(row, row, 1), torch.kron(x, row), x.view(1), x.to(torch.float64), x.bool(),
            x.round().long(), torch.full((), 2.5, device=x.device), x.new_zeros(()), torch.zeros_like(x), x * 2,
            torch.count_nonzero(x), x.nan_to_num(),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(), trial.tensor(), trial.tensor(4))


@case(signs=False)
def one_of_each(trial: Trial) -> Any:
    """Dimensions of one element: what is reduced, spread, moved or traced there has eager's numbers and strides."""

    def f(x: torch.Tensor, row: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.var(0), x.std(1), x.var(0, correction=0), x.softmax(0), x.trace(), x.diagonal(), x.diag(),
            row.t().diagonal(), row.sum(0), row.cumsum(0), row.argmax(0), row.median(0).values, row.sort(0).values,
            row.norm(dim=0), row.diff(dim=0), row.prod(0), row.flip(0), row.roll(1, 0), row.unfold(0, 1, 1),
            row.repeat(3, 1), row.tril(), row.triu(1), row.t() @ row, row @ row.t(), x @ x, x @ row, torch.kron(x, row),
            torch.linalg.inv(x), torch.linalg.det(x), torch.linalg.cholesky(x * x), torch.stack([row[0]]),
            torch.cat([row]), row.chunk(3)[0], row.split(1)[0], row.unbind(0)[0], row.logsumexp(0),
            row.expand(3, 4) + x, row.squeeze(), x.squeeze(), row.permute(1, 0) + 1, F.layer_norm(x, (1,)),
            F.normalize(x, dim=1), F.group_norm(image, 1), F.layer_norm(image, image.shape[1:]), F.max_pool2d(image, 1),
            F.avg_pool2d(image[..., :1], 1), F.conv2d(image[..., :1, :1], image[..., :1, :1]),
            F.interpolate(image[..., :1, :1], (2, 3)), F.pixel_shuffle(image, 1),
            F.interpolate(image[..., :1, :1], (2, 3), mode="bilinear", align_corners=True),
            F.adaptive_avg_pool2d(image, 1), F.scaled_dot_product_attention(row[None], row[None], row[None]),
            F.cross_entropy(row, row.argmax(1)), torch.cdist(row, row), F.cross_entropy(x, x.argmax(1)),
            F.embedding(row.argmax(0), row), row.topk(1, 0).values, F.pad(x, (1, 0)), x.mode().values,
            row.quantile(0.2, 0), F.cosine_similarity(row, row * 2, 0), row.std(0, correction=0),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(1, 1, low=0.5, high=2.0), trial.tensor(1, 4), trial.tensor(1, 1, 2, 3))


@case(signs=False)
def no_elements(trial: Trial) -> Any:
    """What is reduced over no elements is what the operator begins with; what has none keeps its shape."""

    def f(x: torch.Tensor, rows: torch.Tensor, bias: torch.Tensor, image: torch.Tensor) -> list[Any]:
        none, words = x.argmax(1), torch.zeros(0, dtype=torch.int64, device=x.device)
        wide = rows.t()
        return [
            x.all(), x.any(), x.prod(), x.sum(), x.mean(), x.norm(), x.norm(1), x.var(), x.std(), x.median(),
            x.nansum(), x.logsumexp(0), x.logsumexp((0, 1)), x.prod(0), x.mean(0), x.var(0), x.std(0), x.norm(dim=0),
            x.any(0), x.all(0), x.count_nonzero(), x.count_nonzero(0), x.nansum(0), x.nanmean(0),
            x.sum(0, dtype=torch.float64), x.amax(1), none, torch.linalg.vector_norm(x, 3),
            torch.linalg.vector_norm(x, 1, 0), x.cumsum(0), x.softmax(1), x.log_softmax(0), *x.sort(1), *x.topk(0, 1),
            x.flip(0), x.roll(1, 1), x.t() @ x, wide.t() @ wide, rows @ rows.t(), x @ x.t(),
            torch.addmm(bias[:3], rows, rows.t(), beta=0.5),
            torch.baddbmm(bias.expand(2, 3, 4), rows.expand(2, 3, 0), x.expand(2, 0, 4)),
            torch.bmm(rows.expand(2, 3, 0), rows.t().expand(2, 0, 3)), torch.einsum("ij,kj->ik", rows, rows),
            torch.dot(words, words), F.linear(rows, wide[:, :0].t().reshape(0, 0)),
            F.linear(rows, x.reshape(4, 0), bias), F.linear(x, bias.expand(2, 4)), torch.outer(words, words + 1),
            torch.outer(bias, x.reshape(-1)), torch.kron(x, bias[None]), F.mse_loss(x, x),
            F.l1_loss(x, x, reduction="sum"), torch.mv(rows, x.reshape(-1)), F.cross_entropy(x, none),
            F.nll_loss(x, none, reduction="sum"), F.cross_entropy(x, none, reduction="none"), F.smooth_l1_loss(x, x),
            F.layer_norm(x, (4,), bias, bias), F.batch_norm(image, bias[:2], bias[:2].abs()), F.group_norm(image, 1),
            F.relu(image), F.pad(x, (0, 0, 1, 2), value=0.5), F.conv2d(image, bias.expand(3, 2, 2, 4)),
            F.max_pool2d(image, 2), F.avg_pool2d(image, 2), F.adaptive_avg_pool2d(image, 2),
            F.pad(rows, (1, 1), value=2.0), F.conv1d(image[:, :, 0], bias.expand(1, 2, 4)),
            F.embedding(words, bias[:, None]), bias[words], bias[:0, None], bias.index_select(0, words),
            x.gather(0, words.view(0, 1)), bias.scatter(0, words, 2.0), bias.index_add(0, words, x.view(-1)),
            bias.index_fill(0, words, 1.0), bias.index_copy(0, words, x.view(-1)), bias.index_put((words,), x.view(-1)),
            bias.take(words), bias.repeat_interleave(0),
            F.scaled_dot_product_attention(bias.expand(1, 3, 4), x[None], x[None]),
            F.scaled_dot_product_attention(x[None], bias.expand(1, 3, 4), bias.expand(1, 3, 4)),
            torch.cat([x, bias[None]]), torch.cat([words, none]), torch.stack([x, x]), x.expand(2, 0, 4),
            x.repeat(2, 2), x.unfold(1, 2, 1), x.diagonal(), x.tril(), torch.where(x > 0, x, 1.0),
            x.masked_fill(x > 0, 1.0), x.clamp(0, 1), x.view(0, 2, 2), x.reshape(-1), x.unbind(1)[0], x.chunk(2, 1)[1],
            torch.searchsorted(bias.sort().values, x.view(-1)), torch.bucketize(bias, x.view(-1)),
            torch.cdist(x, bias[None]), torch.cdist(rows, rows), torch.arange(3, 3, device=x.device),
            torch.linspace(0, 1, 0, device=x.device), torch.eye(0, 3, device=x.device), F.one_hot(words, 3),
            x.bool().any(), x.diff(dim=0),
            F.embedding_bag(words, bias[:, None], torch.zeros(2, dtype=torch.int64, device=x.device)),
            torch.block_diag(x, bias[None]), F.normalize(x), torch.histc(x, 3, 0, 1), x.cummax(1).values,
            x.logcumsumexp(0), torch.trapezoid(x, dim=0), x.isnan(),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(0, 4), trial.tensor(3, 0), trial.tensor(4), trial.tensor(0, 2, 6, 5))


@case("training")
def no_elements_that_learn(trial: Trial) -> Any:
    """A batch of no examples gives gradients of zeros, in the shapes of the parameters."""
    x, weight, bias = (t.requires_grad_() for t in (trial.tensor(0, 4), trial.tensor(3, 4), trial.tensor(3)))

    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(F.linear(x, weight, bias), (3,), bias, bias)
        return y.softmax(1).sum() + torch.cat([y, weight[:, :3]]).prod(1).sum() + (x.sum(0) * weight).sum()

    result = trial.run(f, x, weight, bias)
    result.backward()
    return result.detach(), x.grad, weight.grad, bias.grad


@case("training")
def no_batch(trial: Trial) -> Any:
    """Layers of images, volumes and rows without a batch, and attention of any number of dimensions."""
    image, row, volume = trial.tensor(4, 6, 5), trial.tensor(4, 9), trial.tensor(2, 4, 5, 6)
    kernel = trial.tensor(4, 2, 3, 3)

    def f(image: torch.Tensor, row: torch.Tensor, volume: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        q = row.view(2, 2, 1, 3, 3)
        return [
            F.conv2d(image, w, groups=2), F.conv2d(image, w, w[:, 0, 0, 0], 2, 1, groups=2),
            F.conv1d(row, w[..., 0], groups=2), F.conv3d(volume, w[:, :, None]), F.conv_transpose2d(image, w, stride=2),
            F.conv_transpose1d(row, w[..., 0]), F.conv_transpose3d(volume, w.view(2, 2, 2, 3, 3)),
            F.max_pool2d(image, 2), F.avg_pool2d(image, 3, 1, 1), F.max_pool1d(row, 2), F.avg_pool1d(row, 3, 2),
            F.max_pool3d(volume, 2), F.avg_pool3d(volume, 2, 1), F.adaptive_avg_pool2d(image, (3, 2)),
            F.adaptive_max_pool2d(image, 2), F.adaptive_avg_pool1d(row, 4), F.adaptive_max_pool1d(row, 2),
            F.adaptive_avg_pool3d(volume, 2), F.lp_pool2d(image, 2.0, 2), F.unfold(image, 2),
            F.fold(image.view(8, 15), (4, 6), 2).sum(0), F.pad(image, (1, 1), "reflect"),
            F.pad(image, (1, 2, 0, 1), "replicate"), F.pad(row, (2, 2), "circular"),
            F.pad(volume, (1, 1, 0, 1, 1, 0), "replicate"), F.pixel_shuffle(image, 2),
            F.scaled_dot_product_attention(row, row * 2, row), F.instance_norm(row[None]), F.glu(row, 0),
            F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q[0], q[0], q[0], is_causal=True),
            F.scaled_dot_product_attention(row[None], row[None, :3], row[None, :3], row[:, :3]),
            F.bilinear(row[0, :4], row[1, :4], w.view(2, 4, 9)[..., :4]), F.multi_margin_loss(row[0], torch.tensor(2)),
            F.cross_entropy(row[0], torch.tensor(3)), F.cosine_similarity(row[0], row[1], 0),
            F.pairwise_distance(row[0], row[1]), F.multilabel_margin_loss(row[0, :3], torch.tensor([2, -1, 0])),
            F.embedding_bag(torch.tensor([0, 3]), row, torch.tensor([0])), F.group_norm(volume[0, :, :2, 0], 2),
            F.batch_norm(row, None, None, training=True), F.batch_norm(volume[None], None, None, training=True),
            F.group_norm(volume[None], 2), F.instance_norm(volume[None]), F.local_response_norm(row[None], 2),
            F.channel_shuffle(image[None], 2)[0],
        ]  # fmt: skip

    return with_gradients(trial, f, image, row, volume, kernel)


def _refused(trial: Trial, programs: list[tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]]) -> Any:
    """What each program returns or raises for values that it takes, for others, and for the first ones again."""
    found = []
    for program, right, wrong in programs:
        compiled = trial.compile(program)
        for given in (right, wrong, right):
            try:
                found.append(compiled(*given))
            except (RuntimeError, IndexError, ValueError, ZeroDivisionError) as error:
                found.append(type(error).__name__)
    return found


@case(reference=False)
def refused_places(trial: Trial) -> Any:
    """Places that do not exist raise eager's exception in each operator that reads or writes them."""
    trial.stops_devices()
    x, at = trial.tensor(4, 3), torch.tensor([0, 3, 1], device=trial.device)
    deep, below, many = at + 1, at - 5, at[None] % 3
    return _refused(
        trial,
        [
            (lambda x, i: x.scatter_add(0, i[None], x[:1]), (x, at), (x, deep)),
            (lambda x, i: x.scatter_reduce(0, i[None], x[:1], "amax"), (x, at), (x, below)),
            (lambda x, i: x.index_add(0, i, x[:3]), (x, at), (x, deep)),
            (lambda x, i: x.index_fill(0, i, 1.0), (x, at), (x, deep)),
            (lambda x, i: x.index_reduce(0, i, x[:3], "mean"), (x, at), (x, deep)),
            (lambda x, i: x.put(i * 3, x[0]), (x, at), (x, deep)),
            (lambda x, i: x.take_along_dim(i[None], 0), (x, at), (x, deep)),
            (lambda x, i: F.one_hot(i, 5), (x, at), (x, at - 1)),
            (lambda x, i: F.multi_margin_loss(x, torch.cat([i, i[:1]])), (x, at % 3), (x, at)),
            (lambda x, i: F.multilabel_margin_loss(x[:1], i), (x, many), (x, many + 1)),
            (lambda x, i: F.embedding_bag(i, x, i[:1] * 0), (x, at), (x, deep)),
            (lambda x, i: F.max_unpool2d(x[None, None, :1], i[None, None, None], (1, 2)), (x, at), (x, deep)),
        ],
    ), x


@case(reference=False)
def refused_values(trial: Trial) -> Any:
    """Values that an operator does not take raise eager's exception, and those that it does take do not."""
    trial.stops_devices()
    x, whole = trial.tensor(3, 3), torch.tensor([1, 2, 3], device=trial.device)
    good, flags = x @ x.t() + 3 * torch.eye(3, device=x.device), x > x.amin()
    nothing = whole * 0
    return _refused(
        trial,
        [
            (lambda a: torch.linalg.cholesky(a), (good,), (-good,)),
            (lambda a: torch.linalg.inv(a), (good,), (good * 0,)),
            (lambda a: torch.linalg.solve(a, a[0]), (good,), (good * 0,)),
            (lambda a: torch.linalg.eigvalsh(a), (good,), (good / 0 * 0,)),
            (lambda n: n // n.flip(0), (whole,), (nothing,)),
            (lambda n: n % n.flip(0), (whole,), (nothing,)),
            (lambda n: torch.fmod(n, n.flip(0)), (whole,), (nothing,)),
            (lambda n: torch.div(n, n.flip(0), rounding_mode="trunc"), (whole,), (nothing,)),
            (lambda x, q: x.quantile(q), (x, x.new_tensor(0.5)), (x, x.new_tensor(1.5))),
            (lambda x, m: torch.zeros_like(x).masked_scatter(m, x[:1]), (x, ~flags), (x, flags)),
            (lambda p: F.binary_cross_entropy(p, p.detach() * 0), (x.sigmoid(),), (x.sigmoid() + 1,)),
            (lambda p: torch.bernoulli(p), (x.sigmoid(),), (x.sigmoid() + 1,)),
            (lambda p: torch.multinomial(p, 2), (x.sigmoid(),), (x.sigmoid() * 0,)),
            (lambda x: torch.histc(x, 3, 0, 0), (x,), (x / 0,)),
            (lambda p: torch.normal(x, p), (x.abs(),), (-x.abs() - 1,)),
            (lambda p: torch.poisson(p), (x.abs(),), (-x.abs() - 1,)),
        ],
    ), x
