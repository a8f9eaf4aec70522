"""Operators of each kind away from where they are usually tried: in float64 and half precision, on parts, transposed
and expanded tensors, in channels last, over sizes that change, and where all sizes are equal."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/everywhere")


def functions(x: torch.Tensor) -> list[torch.Tensor]:
    """Functions of single numbers between a tenth and one."""
    return [
        x.acos(), (x + 1).acosh(), x.asin(), x.asinh(), x.atan(), x.atanh(), x.sinh(), x.cosh(), x.tan(), x.erf(),
        x.erfc(), x.exp2(), x.expm1(), x.log10(), x.log1p(), x.log2(), x.logit(), x.sigmoid(), x.rsqrt(),
        x.reciprocal(),
        x**1.7, x**-3, 1.3**x, F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.softplus(x), F.elu(x),
        F.selu(x), F.celu(x, 0.7), F.logsigmoid(x), F.tanhshrink(x), F.hardswish(x), F.softsign(x), x.sinc(),
        torch.atan2(x, x + 1), torch.hypot(x, x * 2), torch.logaddexp(x, -x), torch.xlogy(x, x + 1), x.erfinv(),
        torch.special.entr(x), x.lgamma(), x.digamma(), x.frac(), (x * 7) % 1.3, torch.fmod(x * 7, 1.3),
        x.detach() * 7 // 0.3,
        torch.lerp(x, x * 3, 0.3), torch.addcmul(x, x, x, value=0.3), torch.addcdiv(x, x, x + 1, value=0.3),
        x.clamp(0.3, 0.7), torch.deg2rad(x), x / 3, x * 0.1, x + 0.1,
    ]  # fmt: skip


def reductions(x: torch.Tensor) -> list[torch.Tensor]:
    """Reductions, scans and orders over each of two dimensions."""
    return [
        x.sum(0), x.mean(1), x.var(0), x.std(1), x.norm(dim=0), x.norm(1.5, 1), x.logsumexp(0), x.prod(1), x.softmax(0),
        x.log_softmax(1), x.cumsum(0), x.cumprod(1), x.logcumsumexp(0), x.cummax(1).values, x.amax(0), x.argmin(1),
        x.sort(0).values, x.topk(2, 1).values, x.median(0).values, x.kthvalue(2, 1).values,
        *([x.quantile(0.3, 0)] if x.element_size() > 2 else []),
        F.normalize(x, dim=0), x.diff(dim=0), *([torch.cdist(x, x + 1)] if x.element_size() > 2 else []), x.dist(x * 2),
        x.nansum(0), x.aminmax(dim=0).max,
        x @ x.t(), x.t() @ x[:, 0], torch.einsum("ij,kj->ik", x, x), x[:, 0] @ x, torch.outer(x[0], x[1]),
        F.cosine_similarity(x, x.flip(0), 1), F.layer_norm(x, x.shape[1:]), F.rms_norm(x, x.shape[1:], eps=1e-5),
        F.mse_loss(x, x * 2), F.smooth_l1_loss(x, x * 3), F.huber_loss(x, x * 3, delta=0.1),
        F.binary_cross_entropy(x, x.detach()), F.kl_div(x.log(), x.detach().flip(0), reduction="sum"),
        F.cross_entropy(x, torch.arange(x.shape[0], device=x.device) % x.shape[1]),
        F.cosine_embedding_loss(x, x.flip(0), torch.ones_like(x[:, 0])),
        F.triplet_margin_loss(x, x * 2, x.flip(0)), F.gaussian_nll_loss(x, x * 2, x.detach()),
    ]  # fmt: skip


def moves(x: torch.Tensor) -> list[Any]:
    """What takes, places and moves elements of a tensor of two dimensions."""
    rows, columns = x.shape
    index = torch.arange(rows, device=x.device).flip(0)
    places = (index[:, None] + torch.arange(columns, device=x.device)) % rows
    return [
        x[index], x[:, index % columns], x[index[:, None], (index % columns)[None]], x.gather(0, places),
        x.index_select(-1, index % columns), x.take_along_dim(places[:1], 0), x.scatter(0, places, x * 2),
        x.scatter_add(0, places, x), x.index_add(-2, index, x), x.index_copy(0, index, x),
        x.index_fill(-1, index[-2:], 2),
        x.masked_fill(x > 0.5, x.new_tensor(3.0)), x.masked_select(x > 0.5), torch.where(x > 0.5, x, x.flip(0)),
        x.flip(1), x.roll(1, 0), x.rot90(), x.tril(), x.triu(1), x.diagonal(), x.repeat(2, 1),
        x.repeat_interleave(2, 0),
        x.unfold(0, 2, 1), F.pad(x, (1, 0, 2, 1), value=0.5), F.pad(x[None], (1, 1), mode="reflect"), x.reshape(-1),
        x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]),
        torch.cat([x, x * 2], 1), torch.stack([x, x + 1], 1), *x.split(2), *x.chunk(2, 1), *x[:2].unbind(),
        x.t().clone(),
        x.contiguous(), x.expand(2, rows, columns).sum(0), x.take(index), x.narrow(0, 1, 2) * 2, x.diag_embed().sum(),
        F.one_hot(index).to(x.dtype) @ x, x.nonzero().sum(0), x.argsort(1), F.embedding(index, x), x.movedim(0, 1) + 1,
        F.embedding(places[None], x), x.put(index[:2], x[0, :2]), x.masked_scatter(x > 0.5, x.flip(0)), x.bool(),
    ]  # fmt: skip


def images(x: torch.Tensor) -> list[torch.Tensor]:
    """Layers of images with four channels."""
    w = torch.linspace(-1, 1, 8 * 4 * 9, dtype=x.dtype, device=x.device).view(8, 4, 3, 3)
    v = w[:4, 0, 0, 0] + 1.5
    return [
        F.conv2d(x, w, padding=1), F.conv2d(x, w[:4, :2], stride=2, groups=2), F.conv2d(x, w[:4, :1], groups=4),
        F.conv2d(x, w[:, :, :1, :1], v.repeat(2), stride=2), F.conv2d(x, w, dilation=2, padding=(2, 1)),
        F.conv_transpose2d(x, w.view(4, 8, 3, 3), stride=2), F.conv_transpose2d(x, w[:4, :2], groups=2, padding=1),
        F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 1, 1), F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
        F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_max_pool2d(x, 2), F.batch_norm(x, -v, v, v, v, eps=0.1),
        F.batch_norm(x, None, None, v, v, True), F.group_norm(x, 2, v, v), F.instance_norm(x, weight=v),
        F.lp_pool2d(x, 2, 2),
        F.layer_norm(x, x.shape[2:]), F.prelu(x - 0.5, v), F.interpolate(x, scale_factor=2), F.pixel_shuffle(x, 2),
        F.interpolate(x, (5, 3), mode="bilinear"), F.interpolate(x, (3, 5), mode="area"), F.unfold(x, 2, stride=2),
        F.pad(x, (1, 2, 0, 1), mode="replicate"), F.pad(x, (1, 0, 1, 0), mode="circular"), x.softmax(1), x.mean((2, 3)),
        x.sum(1), x.amax((0, 2)), x.var((0, 2, 3)), x.flatten(1) * 2, x.cumsum(2), x.roll(1, 3),
        x.permute(0, 2, 3, 1) @ w[0, :, 0],
        *([F.local_response_norm(x, 2)] if x.element_size() > 2 else []), F.glu(x, 1), F.channel_shuffle(x, 2),
        x.norm(dim=1), F.cosine_similarity(x, x.flip(1), 1),
        F.scaled_dot_product_attention(x, x.flip(2), x * 2), F.cross_entropy(x, x.argmax(1)), x.logsumexp(1),
        x.argmax(1).to(x.dtype),
    ]  # fmt: skip


def positive(trial: Trial, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return trial.tensor(*shape, dtype=dtype, low=0.1, high=1.0)


@case("float64", "training", reference=False)
def functions_in_float64(trial: Trial) -> Any:
    """Functions of single numbers in float64, and their gradients, have its digits: so do constants inside of them."""
    return with_gradients(trial, functions, positive(trial, 11, dtype=torch.float64))


@case("float64", reference=False, cancels=True)
def reductions_in_float64(trial: Trial) -> Any:
    """Reductions, products, orders and losses in float64 have its digits."""
    return trial.run(reductions, positive(trial, 6, 5, dtype=torch.float64))


@case("float16", terms=32)
def reductions_in_float16(trial: Trial) -> Any:
    """Reductions, products, orders and losses in float16 are computed in a type that is wide enough."""
    return trial.run(reductions, positive(trial, 6, 5, dtype=torch.float16))


def _image(trial: Trial, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return positive(trial, 2, 4, 6, 7, dtype=dtype)


@case("float64", reference=False, cancels=True)
def images_in_float64(trial: Trial) -> Any:
    """Layers of images in float64 have its digits."""
    return trial.run(images, _image(trial, torch.float64))


@case("bfloat16", terms=32)
def images_in_bfloat16(trial: Trial) -> Any:
    """Layers of images in bfloat16 are computed in a type that is wide enough."""
    return trial.run(images, _image(trial, torch.bfloat16))


@case(terms=32)
def images_in_channels_last(trial: Trial) -> Any:
    """Layers of images whose channels stand last in memory."""
    return trial.run(images, _image(trial).to(memory_format=torch.channels_last))


@case("float64", "training", reference=False, cancels=True, quick=False)
def gradients_in_float64(trial: Trial) -> Any:
    """Gradients of reductions, products, losses and layers of images in float64 have its digits."""
    flat = with_gradients(trial, reductions, positive(trial, 6, 5, dtype=torch.float64))
    return flat, with_gradients(trial, images, _image(trial, torch.float64))


@case("bfloat16", "training", terms=32, quick=False)
def gradients_in_bfloat16(trial: Trial) -> Any:
    """Gradients of layers of images in bfloat16 are computed in a type that is wide enough."""
    return with_gradients(trial, images, _image(trial, torch.bfloat16))


@case("training", terms=32, quick=False)
def gradients_in_channels_last(trial: Trial) -> Any:
    """Gradients of layers of images whose channels stand last in memory."""
    return with_gradients(trial, images, _image(trial).to(memory_format=torch.channels_last))


@case(terms=32)
def of_parts(trial: Trial) -> Any:
    """Reductions and moves of tensors that are transposed, begin in the middle, skip elements, or repeat a row."""
    whole = positive(trial, 12, 14)
    given = whole[1:7, 2:7].t(), whole[::2, 1::3], whole[3, 3:8].expand(6, 5)

    def f(*given: torch.Tensor) -> list[Any]:
        return [reductions(given[0]), moves(given[1]), reductions(given[2])[:28], moves(given[2])[:26]]

    return trial.run(f, *given)


@case("dynamic_shapes", terms=32)
def over_sizes(trial: Trial) -> Any:
    """Reductions, moves and layers of images over sizes that change."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        index = torch.arange(x.shape[0], device=x.device).flip(0)
        return [
            x.var(0), x.norm(dim=0), x.logsumexp(0), x.prod(1), x.cumsum(0), x.amax(1), x.argmin(1), x.sort(0).values,
            x.topk(2, 1).values, x.median(0).values, F.layer_norm(x, x.shape[1:]), F.mse_loss(x, x * 2), x[index],
            x.t().clone(),
            F.cross_entropy(x, index % x.shape[1]), x.gather(0, index[:, None]), x.scatter_add(0, index[:, None], x),
            x.tril(),
            x.index_add(0, index, x), x.roll(1, 0), x.repeat(2, 1), x.diagonal(), torch.cat([x, x], 1).reshape(-1),
        ]  # fmt: skip

    def g(x: torch.Tensor) -> list[torch.Tensor]:
        v = torch.linspace(0.5, 1.5, 4, device=x.device, dtype=x.dtype)
        w = torch.linspace(-1, 1, 144, device=x.device, dtype=x.dtype).view(4, 4, 3, 3)
        return [
            F.conv2d(x, w, stride=2, padding=1), F.conv2d(x, w[:, :2], v, groups=2), F.conv_transpose2d(x, w, stride=2),
            F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, ceil_mode=True), F.adaptive_avg_pool2d(x, 2),
            F.group_norm(x, 2, v, v),
            F.batch_norm(x, None, None, v, v, True), F.interpolate(x, scale_factor=2), F.pixel_shuffle(x, 2),
            x.softmax(1),
            F.pad(x, (1, 2, 0, 1), mode="replicate"), x.flatten(1), x.mean((2, 3)),
        ]  # fmt: skip

    flat, image = trial.compile(f, dynamic=True), trial.compile(g, dynamic=True)
    return [flat(positive(trial, *size)) for size in ((6, 5), (9, 8), (4, 7))], [
        image(positive(trial, batch, 4, height, width)) for batch, height, width in ((2, 6, 7), (3, 9, 8))
    ]


@case(terms=64)
def of_equal_sizes(trial: Trial) -> Any:
    """Where all dimensions have one size, only arguments tell them apart: channels, rows, classes, keys, weights."""

    def pictures(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.prelu(x - 0.5, v), F.batch_norm(x, v, v * 2, v, v), F.group_norm(x, 2, v, v),
            F.conv2d(x, w, v, padding=1),
            F.batch_norm(x, None, None, v, v, True), F.instance_norm(x, weight=v, bias=v), F.layer_norm(x, (4,), v, v),
            F.conv2d(x, w[:, :1], v, groups=4), F.conv_transpose2d(x, w, v), F.linear(x, w[0, 0], v), x.sum((0, 2)),
            x @ w,
            F.scaled_dot_product_attention(x, w, x * 2), F.scaled_dot_product_attention(x, w, x, x[0, 0]), x.var(1),
            x.amax(2),
            x * v[:, None, None], x.permute(3, 0, 2, 1) + w, x.flip(1), x.diagonal(0, 1, 3),
        ]  # fmt: skip

    def matrices(m: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        classes = torch.arange(4, device=m.device).flip(0)
        return [
            F.prelu(m - 0.5, v), F.linear(m, w, v), m + v, m * v[:, None], m - m.mean(0), m / m.sum(1, keepdim=True),
            m @ w,
            F.cross_entropy(m, classes, v), F.nll_loss(m, classes, v, reduction="none"), m.t() @ w, m.cumsum(0),
            m.cumsum(1),
            m.softmax(0), m.sort(0).values, m[classes], m[:, classes], m.gather(0, classes[:, None].expand(4, 4)),
            m.index_add(1, classes, m), torch.addmm(v, m, m), torch.addr(m, v, v * 2),
            F.embedding(classes.expand(4, 4), m),
            torch.where(v > 0.5, m, m.t()), m.masked_fill((v > 0.5)[:, None], 0.0),
        ]  # fmt: skip

    x, w, v = positive(trial, 4, 4, 4, 4), positive(trial, 4, 4, 4, 4), positive(trial, 4)
    return trial.run(pictures, x, w, v), trial.run(matrices, x[1, 2], w[0, 0], v)
