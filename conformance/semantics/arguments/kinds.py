"""Operators of each kind beside what they are usually given: functions of integers, layers, losses and moves of numbers
that are none, extremes far from where a reduction begins, gradients in each type, complex numbers, five dimensions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/kinds")

_INF, _NAN = float("inf"), float("nan")

_OF_ANY = (
    torch.exp, torch.exp2, torch.expm1, torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh, torch.tanh, torch.atan,
    torch.asinh, torch.sigmoid, torch.erf, torch.erfc, torch.sinc, torch.deg2rad, torch.special.entr,
)  # fmt: skip
_OF_POSITIVE = (
    torch.log, torch.log2, torch.log10, torch.log1p, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.lgamma,
    torch.digamma, torch.acosh,
)  # fmt: skip


@case("int32", "uint8", elementwise=True, reference=False)
def functions_of_integers(trial: Trial) -> Any:
    """Functions of integers and bools are those of the same numbers in the default type."""
    few = trial.given(torch.tensor([0, 1, -1, 2, -3, 5, 9]))
    many = trial.given(torch.tensor([1, 2, 3, 7, 40, 1000, 2**31 + 7, 2**40 + 1]))
    small, bytes_ = few.to(torch.int32), trial.given(torch.tensor([1, 2, 3, 100, 128, 200, 255], dtype=torch.uint8))
    bools = trial.given(torch.tensor([True, False, True]))

    def f(few: torch.Tensor, many: torch.Tensor, small: torch.Tensor, bytes_: torch.Tensor, bools: torch.Tensor) -> Any:
        found = [function(x) for x in (few, small, bools) for function in _OF_ANY]
        found += [function(x) for x in (many, bytes_) for function in _OF_POSITIVE]
        return [
            *found, bytes_.erf(), (bytes_ // 8).exp(), bytes_.sigmoid(), torch.atan2(few, small), torch.xlogy(many, 3),
            torch.xlogy(few.abs(), few.abs() + 1), torch.hypot(few.float(), small), few / 3, bools / 2, many**0.5,
        ]  # fmt: skip

    return trial.run(f, few, many, small, bytes_, bools)


def _with(x: torch.Tensor, *numbers: float) -> list[torch.Tensor]:
    """The tensor with each of the numbers in turn in the place of its sixth element."""
    return [x.flatten().index_fill(0, torch.tensor([5], device=x.device), n).view(x.shape) for n in numbers]


@case(terms=64)
def layers_of_what_is_no_number(trial: Trial) -> Any:
    """One element that is nan or infinite reaches what depends on it, and nothing else."""
    row, image, matrix = trial.tensor(2, 3, 8), trial.tensor(1, 4, 5, 5), trial.tensor(4, 6)
    kernel, kernels, weight = trial.tensor(3, 3, 3), trial.tensor(4, 4, 3, 3), trial.tensor(5, 6)
    scale, grid = trial.tensor(4, low=0.5, high=2.0), trial.tensor(1, 3, 3, 2, low=-0.9, high=0.9)

    def f(
        row: torch.Tensor, image: torch.Tensor, matrix: torch.Tensor, kernel: torch.Tensor, kernels: torch.Tensor,
        weight: torch.Tensor, scale: torch.Tensor, grid: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        return [
            F.conv1d(row, kernel, padding=1), F.conv2d(image, kernels), F.conv2d(image, kernels, stride=2, padding=1),
            F.conv_transpose2d(image, kernels, stride=2), F.conv3d(image[None], kernels[:, None, :2]),
            F.linear(matrix, weight, weight[:, 0]), torch.bmm(row, row.mT), torch.einsum("ij,kj->ik", matrix, weight),
            torch.baddbmm(row[:, :, :3], row, row.mT), torch.addmm(weight[:4, :4], matrix, matrix.mT),
            F.batch_norm(image, scale, scale, scale, scale), F.group_norm(image, 2, scale, scale),
            # Eager's kernel on a GPU also makes nan of what is divided by an infinite root.
            F.instance_norm(row), F.rms_norm(matrix.clamp(max=9), (6,)), F.layer_norm(matrix, (6,)),
            F.avg_pool1d(row, 3, 1, 1), F.avg_pool2d(image, 2, 1), F.adaptive_avg_pool2d(image, (2, 3)),
            F.interpolate(image, scale_factor=2), F.interpolate(image, (3, 8), mode="bilinear"), F.glu(matrix, 0),
            F.grid_sample(image, grid, align_corners=False), F.prelu(matrix, scale[:1]), F.unfold(image, 2),
        ]  # fmt: skip

    compiled, found = trial.compile(f), []
    given = zip(*(_with(x, _NAN, _INF) for x in (row, image, matrix)), strict=True)
    for numbers in given:
        found.append(compiled(*numbers, kernel, kernels, weight, scale, grid))
    return found


@case(terms=64)
def losses_of_what_is_no_number(trial: Trial) -> Any:
    """Losses of nan are nan, those of what a mask of minus infinity leaves are not, and what is dropped is nan if it
    was infinite."""
    x, y = trial.tensor(4, 5), trial.tensor(4, 5, low=0.1, high=0.9)
    classes = trial.given(torch.tensor([1, 3, 4, 2]))

    def f(x: torch.Tensor, y: torch.Tensor, classes: torch.Tensor) -> list[torch.Tensor]:
        found = [F.cross_entropy(x, classes), F.cross_entropy(x, classes, y[0], label_smoothing=0.1)]
        for how in ("none", "mean", "sum"):
            found += [
                F.mse_loss(x, y, reduction=how), F.l1_loss(x, y, reduction=how), F.huber_loss(x, y, reduction=how),
                F.smooth_l1_loss(x, y, reduction=how, beta=0.5), F.kl_div(x, y, reduction=how),
                F.binary_cross_entropy_with_logits(x, y, reduction=how), F.cross_entropy(x, classes, reduction=how),
                F.nll_loss(x, classes, reduction=how), F.soft_margin_loss(x, y.round() * 2 - 1, reduction=how),
            ]  # fmt: skip
        return [*found, F.dropout(x, 0.5), F.dropout(x, 0.4, training=False), x.log_softmax(1)]

    compiled = trial.compile(f)
    return [compiled(each, y, classes) for each in _with(x, _NAN, _INF, -_INF)]


def _moves(x: torch.Tensor, rows: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    """What selects, places, turns and cuts elements."""
    ones = torch.ones_like(x)
    return [
        F.embedding(rows, x), x.gather(0, places), x.index_select(1, rows), x.take(places), x[rows], x[:, rows],
        x.take_along_dim(places, 0), ones.scatter(0, places, x), ones.scatter_add(0, places, x),
        ones[:3].index_add(0, rows % 3, x[:3]), ones.index_copy(0, rows, x[1:]), x.index_fill(1, rows, 2.0),
        x.index_put((rows,), ones[:3]), x.roll(1, 0), x.roll((1, 2), (0, 1)), x.flip(0), x.flip(1), x.rot90(),
        x.tril(), x.triu(), x.tril(-1), x.triu(2), x.diagonal(), x.diagonal(1), x.diag_embed(), torch.diag(x[:, 0]),
        x.repeat(2, 1), x.repeat_interleave(2, 1), torch.cat([x, ones], 1), torch.stack([ones, x], 1),
        F.pad(x, (1, 2)), F.pad(x, (-1, 1, 1, 0)), torch.where(mask, x, ones), torch.where(mask, ones, x),
        x.masked_fill(mask, 0.5), x.masked_scatter(mask, ones), x.expand(2, 4, 5).clone(),
        x.unfold(1, 2, 1).clone(),
        *x.split(2, 0), *x.chunk(2, 1), x.t().contiguous(), x.reshape(2, 10).t().clone(), x.scatter(1, places, 0.5),
        ones.slice_scatter(x[:, :2], 1, 2, 4), ones.select_scatter(x[0], 0, 2), ones.diagonal_scatter(x.diagonal()),
    ]  # fmt: skip


def _moved(trial: Trial, *numbers: float) -> Any:
    """The moves of tensors of which one element is each of the numbers."""
    x, rows = trial.tensor(4, 5), trial.given(torch.tensor([2, 0, 3]))
    places = trial.given(torch.tensor([[3, 0, 1, 2, 2], [1, 1, 0, 3, 0]]))
    mask = trial.given(torch.tensor([[True, False, True, False, True]]))
    compiled = trial.compile(_moves)
    return [compiled(each, rows, places, mask) for each in _with(x, *numbers)]


@case()
def moves_of_what_is_no_number(trial: Trial) -> Any:
    """What selects, places, turns and cuts elements multiplies none of them: nan and infinity are alone."""
    return _moved(trial, _NAN, _INF)


@case()
def moves_of_minus_zero(trial: Trial) -> Any:
    """What selects, places, turns and cuts elements adds nothing to them: minus zero keeps its sign."""
    return _moved(trial, -0.0)


@case()
def extremes_of_one_side(trial: Trial) -> Any:
    """Extremes of numbers that are all negative, or all positive, in rows, columns and windows beside vectors.
    Lanes without an element count for nothing."""
    sizes = (17, 47)
    low = [trial.tensor(3, n, low=-260.0, high=-200.0) for n in sizes]
    image = trial.tensor(1, 2, 7, 9, low=-260.0, high=-200.0)

    def f(image: torch.Tensor, *rows: torch.Tensor) -> list[torch.Tensor]:
        found = [
            F.max_pool2d(image, 2), F.max_pool2d(image, 3, 2, 1), F.max_pool2d(image, 3, 2, ceil_mode=True),
            F.adaptive_max_pool2d(image, (3, 4)), F.max_pool1d(image[0], 4, 3, 2), image.amax((2, 3)),
            -F.max_pool2d(image, 2),
        ]  # fmt: skip
        for x in rows:
            turned = x.t() + 1
            for y, dim in ((x, 1), (turned, 0), (x.flatten(), 0)):
                found += [
                    y.amax(dim), (-y).amin(dim), y.argmax(dim), (-y).argmin(dim), y.logsumexp(dim), y.softmax(dim),
                    y.log_softmax(dim), y.cummax(dim).values, (-y).cummin(dim).values, y.max(dim).values,
                    (-y).min(dim).values, y.topk(2, dim).values, y.aminmax(dim=dim).max, (y / 100).prod(dim),
                ]  # fmt: skip
            found += [x.max(), (-x).min(), x.amax(), x.argmax(), (-x).argmin(), turned.max(), x.logsumexp((0, 1))]
            found += [(x < 0).all(1), (x > 0).any(1), (x < 0).all(), (x > 0).any(), x.norm(-_INF, 1), x.norm(_INF, 1)]
        return found

    return trial.run(f, image, *low)


def _kinds(x: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
    """An operator of each kind that has a gradient of its own."""
    rows = torch.tensor([2, 0, 2, 1], device=x.device)
    places = torch.tensor([[1, 0, 2, 1, 3]], device=x.device)
    kernel, scale = image[:1, :, :2, :2] * 0.5, x[0, :4]
    return [
        x.prod(1), x.amax(0), x.logsumexp(1), x.softmax(0), x.log_softmax(1), x.cumsum(1), x.cumprod(0), x.var(0),
        x.std(1), x.norm(dim=1), x.mean(0), x.sum(1), x @ x.mT, F.linear(x, x, x[:, 0]), torch.bmm(x[None], x.mT[None]),
        torch.einsum("ij,kj->ki", x, x), torch.addmm(x[:, :4], x, x.mT), F.layer_norm(x, (5,), x[0], x[1]),
        F.rms_norm(x, (5,), x[1], 1e-3), F.group_norm(image, 2, scale, scale), F.instance_norm(image),
        F.batch_norm(image, None, None, scale, scale, True), F.conv2d(image, kernel), F.conv1d(x[:, None], kernel[0,
        :1, :1]),
        F.conv_transpose2d(image, kernel.transpose(0, 1)), F.max_pool2d(image, 2), F.avg_pool2d(image, 3, 1, 1),
        F.adaptive_avg_pool2d(image, 3), F.interpolate(image, (7, 3), mode="bilinear"), F.pixel_shuffle(image, 2),
        F.pad(image, (1, 1, 0, 2), mode="replicate"), x[rows], x.index_select(1, rows), x.gather(0, places),
        x.take(rows),
        F.embedding(rows, x), x.scatter(0, places, x[:1]), x.scatter_add(0, places, x[:1] * 2), x.index_add(0, rows, x),
        x.sort(1).values, x.topk(2, 0).values, x.flip(0), x.roll(1, 1), torch.cat([x, x * 2], 1), x.repeat(2, 1),
        torch.stack([x, x + 1]), torch.where(x > 0.5, x, x * 3), x.masked_fill(x > 0.7, 0.5), x.tril(), x.expand(2, 4,
        5),
        F.mse_loss(x, x.detach() * 2), F.l1_loss(x, x.detach() * 2), F.smooth_l1_loss(x, x.detach() * 3, beta=0.3),
        F.cross_entropy(x, rows), F.kl_div(x, x.detach()), F.binary_cross_entropy_with_logits(x, x.detach()),
        F.nll_loss(x, rows), F.scaled_dot_product_attention(x[None], x[None], x[None]),
    ]  # fmt: skip


@case("float64", "training", reference=False, cancels=True)
def gradients_of_doubles(trial: Trial) -> Any:
    """The gradient of each kind of operator has the digits of float64."""
    given = [trial.tensor(*shape, dtype=torch.float64, low=0.1, high=1.0) for shape in ((4, 5), (2, 4, 6, 4))]
    return with_gradients(trial, _kinds, *given)


@case("bfloat16", "training", terms=64)
def gradients_of_bfloat16(trial: Trial) -> Any:
    """The gradient of each kind of operator in bfloat16."""
    given = [trial.tensor(*shape, dtype=torch.bfloat16, low=0.1, high=1.0) for shape in ((4, 5), (2, 4, 6, 4))]
    return with_gradients(trial, _kinds, *given)


@case("float16", "training", terms=64)
def gradients_of_float16(trial: Trial) -> Any:
    """The gradient of each kind of operator in float16."""
    given = [trial.tensor(*shape, dtype=torch.float16, low=0.1, high=1.0) for shape in ((4, 5), (2, 4, 6, 4))]
    return with_gradients(trial, _kinds, *given)


@case("bfloat16", "training")
def functions_of_bfloat16(trial: Trial) -> Any:
    """Functions of bfloat16, and their gradients."""
    x = trial.tensor(40, dtype=torch.bfloat16, low=0.1, high=2.0)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        y = x - 0.7
        return [
            x.exp(), x.log(), x.sqrt(), x.rsqrt(), y.sin(), y.cos(), y.tanh(), y.sigmoid(), F.gelu(y),
            F.gelu(y, approximate="tanh"), F.silu(y), F.softplus(y), F.mish(y), F.elu(y), F.selu(y), F.logsigmoid(y),
            y.relu(), F.leaky_relu(y), F.hardswish(y), -x, x**3, x**1.5, 2**x, x / y.exp(), 1 / x, x - y * 2, y.abs(),
            torch.where(y > 0, x, y), y.clamp(-0.3, 0.4), y.erf(), x.expm1(), x.log1p(), torch.atan2(y, x), y.square(),
            torch.lerp(x, y, 0.3), torch.addcmul(x, x, y, value=0.5), torch.maximum(x, y * 2), x.reciprocal(),
        ]  # fmt: skip

    return with_gradients(trial, f, x)


@case("bfloat16", "float16", terms=64)
def layers_in_half_precision(trial: Trial) -> Any:
    """Products, layers and losses in half precision that others do not have."""

    def f(x: torch.Tensor, image: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> list[torch.Tensor]:
        w, volume = image[:, :3, :3, :3], image[:, :2, :4, :4].unsqueeze(1)
        return [
            torch.bmm(image[:, 0], image[:, 1].mT), torch.baddbmm(image[:, 2, :, :6], image[:, 0], image[:, 1].mT),
            torch.einsum("bcij,bckj->bik", image, image), torch.addmm(x[:, :4], x, x.mT), torch.addmv(x[:, 0], x, x[1]),
            F.linear(x, x, x[:, 0]), torch.outer(x[0], x[1]), F.conv1d(x[None], x[:, :4, None]), F.conv3d(volume,
            volume),
            F.conv_transpose2d(image[:, :2], w, stride=2), F.conv2d(image[:, :3], w, padding=1), x.logcumsumexp(1),
            F.mse_loss(x, x.flip(0)), F.l1_loss(x, x.flip(0)), F.smooth_l1_loss(x, x.flip(0)), F.nll_loss(x, rows),
            F.huber_loss(x, x.flip(0), delta=0.3), F.kl_div(x, x.flip(0).abs()), F.cross_entropy(x, rows),
            F.binary_cross_entropy_with_logits(x, x.flip(0).sigmoid()), F.cosine_similarity(x, x.flip(0), 0),
            F.embedding_bag(places, x), F.embedding_bag(places, x, mode="sum"), F.embedding(places, x), x.index_add(0,
            rows, x),
            F.grid_sample(image, image[..., :2].tanh(), align_corners=False), x[rows].sum(0), x.prod(0),
            F.interpolate(image, (5, 9), mode="bilinear"), F.adaptive_avg_pool2d(image, 4), F.normalize(x), F.glu(x.mT),
        ]  # fmt: skip

    rows, places = trial.given(torch.tensor([2, 0, 3, 1])), trial.given(torch.tensor([[1, 3], [0, 0], [2, 1]]))
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        x, image = trial.tensor(4, 5, dtype=dtype), trial.tensor(2, 3, 6, 7, dtype=dtype)
        found.append(trial.run(f, x, image, rows, places))
    return found


@case(terms=8192)
def of_many_elements(trial: Trial) -> Any:
    """Operators of thousands of elements, which several threads or blocks share."""
    x, image = trial.tensor(83, 97), trial.tensor(1, 3, 41, 43)
    rows, classes = torch.arange(83).flip(0) * 5 % 83, torch.arange(83) * 7 % 97
    rows, classes = rows.to(trial.device), classes.to(trial.device)

    def f(x: torch.Tensor, image: torch.Tensor, rows: torch.Tensor, classes: torch.Tensor) -> list[torch.Tensor]:
        y, positive = x.flip(0), x.abs() + 0.5
        places = (rows[:, None] + torch.arange(97, device=x.device)) % 83
        return [
            x.std(), x.std(0), x.var(1), *torch.var_mean(x, 0), x.min(), x.amin(0), x.argmin(), x.argmax(0), x.max(),
            x.max(1).values, x.cummin(0).values, x.logcumsumexp(0), x.cumsum(0), x.kthvalue(40, 0).values, x.median(),
            x.quantile(0.3, 0), x.sort(0).values, x.argsort(1), x.topk(9, 0).values, (x * 0.1 + 1).prod(0), x.norm(),
            x.norm(dim=0), x.logsumexp(0), x.softmax(0), x.scatter(0, places, y), x.scatter_add(0, places, y),
            x.index_add(0, rows, y), x.index_put((rows,), y), x[rows], x.gather(0, places), x.masked_scatter(x > 0, y),
            x.roll(5, 0), x.repeat(1, 2), x.tril(), x.flip(1), torch.stack([x, y], 1), F.mse_loss(x, y), F.l1_loss(x,
            y),
            F.smooth_l1_loss(x, y), F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.nll_loss(x, classes),
            F.kl_div(x, y.sigmoid()), F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), F.cross_entropy(x, classes),
            torch.addmm(x[:, :83], x, y.mT, alpha=0.1), torch.einsum("ij,ij->j", x, y), x @ y.mT, F.layer_norm(x,
            (97,)),
            F.rms_norm(x, (97,)), F.mish(x), F.softplus(x), F.gelu(x), torch.hypot(x, y), torch.atan2(x, y),
            positive**x,
            positive.log(), positive.sqrt(), torch.fmod(x, 0.7), torch.remainder(x, 0.7), torch.maximum(x, y), x - y,
            x / positive, F.interpolate(image, scale_factor=1.6, mode="bilinear"), F.avg_pool2d(image, 3, 2, 1),
            F.max_pool2d(image, 3, 2, 1), F.conv1d(x[None], x[:8, :83, None]), F.group_norm(image, 3),
            x.t().contiguous(),
            F.unfold(image, 3), F.batch_norm(image, None, None, training=True), x.any(0), (x > -4).all(), x.sum(0),
        ]  # fmt: skip

    return trial.run(f, x, image, rows, classes)


@case("complex64", "complex128")
def complex_numbers(trial: Trial) -> Any:
    """Sums, products, functions and moves of complex numbers in both precisions."""
    single, wide = (
        torch.complex(trial.tensor(4, 5, dtype=dtype), trial.tensor(4, 5, dtype=dtype))
        for dtype in (torch.float32, torch.float64)
    )
    rows = trial.given(torch.tensor([2, 0, 3]))

    def f(x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        y = x.flip(0)
        return [
            x - y, torch.sub(x, y, alpha=2), x - 1.5, 2 - x, x / y, x * y, x.reciprocal(), x.exp(), x.log(), x.sqrt(),
            x.sin(), x.cos(), x.tanh(), x.sigmoid(), x**2, x**0.5, x.square(), -x, x.abs(), x.angle(), x.conj() * y,
            x.cumsum(1), x.cumprod(0), x.sum(0), x.mean(1), x.prod(1), x.norm(), x.var(0), F.linear(x, y),
            x @ y.mT, torch.einsum("ij,kj->ik", x, y), torch.bmm(x[None], y.mT[None]), torch.outer(x[0], y[1]),
            torch.dot(x[0], y[1]), torch.vdot(x[0], y[1]), torch.addmm(x[:, :4], x, y.mT, beta=0.5),
            torch.addcmul(x, x, y, value=2), torch.lerp(x, y, 0.25), torch.where(x.real > 0, x, y),
            x.index_select(0, rows), x[rows], x.take(rows), x.t().contiguous(), x.expand(2, 4, 5).clone(),
            x.repeat(2, 1), x.tril(), x.diagonal(), x.roll(1, 0), x.masked_fill(x.real > 0, 1.5), x == y, x.view(-1),
            torch.stack([x, y], 1), torch.cat([x, y]), x.real, x.imag, torch.view_as_real(x) * 2, x.sgn(), x.isfinite(),
        ]  # fmt: skip

    compiled = trial.compile(f)
    return compiled(single, rows), compiled(wide, rows)


@case(terms=32)
def of_five_dimensions(trial: Trial) -> Any:
    """Reductions, scans, orders and moves of tensors with five dimensions, as they lie and turned."""
    given = trial.tensor(2, 3, 2, 3, 4)

    def f(given: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for x in (given, given.permute(4, 1, 3, 0, 2)):
            found += [
                x.sum(), x.sum(2), x.sum((0, 2, 4)), x.mean((1, 3)), x.mean(-1, True), x.amax((2, 3, 4)), x.amin(0),
                x.prod(1), x.var((0, 1)), x.norm(dim=3), x.cumsum(2), x.cumprod(1), x.softmax(1), x.log_softmax(-2),
                x.logsumexp((1, 4)), x.argmax(2), x.max(1).values,
                x.sort(dim=3, stable=True).values, x.topk(1, 2).values,
                x.median(1).values, (x > 1).any(1), (x > -3).all((2, 3)), x.flip(1, 3), x.roll(1, 2),
                x.transpose(1, 3) + 1,
                F.pad(x, (1, 0, 0, 1, 1, 1)), torch.cat([x, x], 3), torch.stack([x, x], 2), x @ x.mT,
                x.diagonal(0, 1, 3).clone(),
                F.layer_norm(x, x.shape[3:]), x.gather(1, x.argmax(1, keepdim=True)), torch.maximum(x, x.mean(2, True)),
                x // 0.5, x.repeat(1, 2, 1, 1, 2), x.unfold(2, 2, 1).sum(-1), x.reshape(6, -1) * 2, x.count_nonzero(1),
            ]  # fmt: skip
        return found

    return trial.run(f, given)
