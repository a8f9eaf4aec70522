"""Arguments that are no tensors, in pairs: each pair of values of two arguments is in some call of each operator.

A covering design makes the calls, and eager says which of them there are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from ...pairs import SEED, Row, covering
from .windows import with_gradients

case = Collection("semantics/attributes")

_KERNELS = {"2": (2, 2, 2), "3": (3, 3, 3), "mixed": (3, 1, 2)}


def _rows(factors: Mapping[str, Sequence[str]], allowed: Callable[[Row], bool]) -> list[Row]:
    return covering(factors, allowed, SEED)


@functools.cache
def _pools() -> list[Row]:
    """One-dimensional to three-dimensional pools of every kind; padding is at most half a window."""
    factors = {
        "kind": ("max", "places", "avg", "uncounted", "lp"), "dims": ("1", "2", "3"), "kernel": tuple(_KERNELS),
        "stride": ("", "1", "3"), "padding": ("", "1"), "dilation": ("", "2"), "ceil": ("", "ceil"),
    }  # fmt: skip

    def allowed(row: Row) -> bool:
        if row["dilation"] and row["kind"] not in ("max", "places"):
            return False
        if row["kind"] == "lp":
            return not row["padding"] and row["dims"] != "3" and row["kernel"] != "mixed"
        return not (row["padding"] and row["kernel"] == "mixed")

    return _rows(factors, allowed)


def _pool(row: Row, x: torch.Tensor) -> list[torch.Tensor]:
    dims = int(row["dims"])
    kernel, stride = _KERNELS[row["kernel"]][:dims], int(row["stride"]) if row["stride"] else None
    padding, ceil = int(row["padding"] or 0), bool(row["ceil"])
    if row["kind"] == "lp":
        lp = (F.lp_pool1d, F.lp_pool2d)[dims - 1]
        return [lp(x.abs(), 3.0, kernel if dims > 1 else kernel[0], stride, ceil)]
    if row["kind"] in ("max", "places"):
        pool: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
        found = pool(
            x - 10, kernel, stride, padding, int(row["dilation"] or 1), ceil, return_indices=row["kind"] == "places"
        )
        return list(found) if row["kind"] == "places" else [found]
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    return [average(x, kernel, stride, padding, ceil, row["kind"] == "avg")]


def _of_dims(rows: Sequence[Row], dims: str) -> list[Row]:
    return [row for row in rows if row["dims"] == dims]


@case("training")
def pools(trial: Trial) -> Any:
    """Windows, steps, padding, dilation and rounding up, in pairs, of sequences, images and volumes."""
    inputs = [trial.tensor(2, 3, 11), trial.tensor(2, 2, 8, 9), trial.tensor(1, 2, 6, 7, 5)]
    rows = _pools()

    def f(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [r for n, x in enumerate(inputs, 1) for row in _of_dims(rows, str(n)) for r in _pool(row, x)]

    return with_gradients(trial, f, *inputs)


@functools.cache
def _convolutions() -> list[Row]:
    factors = {
        "dims": ("1", "2", "3"), "kernel": ("2", "3", "mixed"), "stride": ("1", "2", "5"),
        "padding": ("0", "2", "same", "valid"), "dilation": ("1", "2"), "groups": ("1", "2", "each"),
        "bias": ("", "bias"), "batch": ("", "batch"), "way": ("", "transposed"), "rest": ("", "rest"),
    }  # fmt: skip

    def allowed(row: Row) -> bool:
        if row["padding"] == "same" and row["stride"] != "1":
            return False
        if not row["way"]:
            return not row["rest"]
        return row["padding"] in ("0", "2") and not (row["rest"] and row["stride"] == "1")

    return _rows(factors, allowed)


def _convolution(row: Row, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    dims, groups = int(row["dims"]), {"1": 1, "2": 2, "each": 4}[row["groups"]]
    size = _KERNELS[row["kernel"]][:dims]
    count = 4 * (4 // groups) * torch.Size(size).numel() * 2
    padding: Any = int(row["padding"]) if row["padding"].isdigit() else row["padding"]
    x = x if row["batch"] else x[0]
    if row["way"]:
        outs = 4 // groups
        w = weight[: 4 * outs * torch.Size(size).numel()].view(4, outs, *size)
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
        return transposed(x, w, bias[:4] if row["bias"] else None, int(row["stride"]), padding,
                          int(bool(row["rest"])), groups, int(row["dilation"]))  # fmt: skip
    w = weight[:count].view(8, 4 // groups, *size)
    convolution = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    return convolution(x, w, bias if row["bias"] else None, int(row["stride"]), padding, int(row["dilation"]), groups)


@case("training")
def convolutions(trial: Trial) -> Any:
    """Windows, steps, padding, dilation, groups, in both directions, with and without a bias or a batch, in pairs."""
    inputs = [trial.tensor(2, 4, 12), trial.tensor(2, 4, 7, 6), trial.tensor(1, 4, 5, 6, 5)]
    rows = _convolutions()

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        *inputs, weight, bias = given
        calls = [(row, x) for n, x in enumerate(inputs, 1) for row in _of_dims(rows, str(n))]
        return [_convolution(row, x, weight, bias) for row, x in calls]

    return with_gradients(trial, f, *inputs, trial.tensor(8 * 4 * 27), trial.tensor(8))


def _resized(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """One dimension smaller and one larger, by sizes and by factors, with each way to place corners."""
    dims = x.dim() - 2
    size, factors = (4, 11, 3)[:dims], (0.6, 1.7, 2.0)[:dims]
    for mode in ("nearest", "nearest-exact", "area", ("linear", "bilinear", "trilinear")[dims - 1]):
        yield F.interpolate(x, size, mode=mode)
        yield F.interpolate(x, scale_factor=factors, mode=mode)
        yield F.interpolate(x, scale_factor=0.7, mode=mode, recompute_scale_factor=True)
        if mode.endswith("linear"):
            yield F.interpolate(x, size, mode=mode, align_corners=True)
            yield F.interpolate(x, (1,) * dims, mode=mode, align_corners=True)
    if dims == 2:
        yield F.interpolate(x, size, mode="bilinear", antialias=True)
        yield F.pixel_unshuffle(x[..., :6, :9], 3)


@case("training", terms=8)
def sizes(trial: Trial) -> Any:
    """What is resized in each mode, smaller in one dimension and larger in another."""
    return with_gradients(
        trial, lambda *xs: [r for x in xs for r in _resized(x)],
        trial.tensor(1, 2, 9), trial.tensor(1, 2, 7, 9), trial.tensor(1, 1, 5, 6, 4),
    )  # fmt: skip


_SETS: tuple[Any, ...] = (0, -1, (0, 2), (-1, 1), (0, 1, 2))


@case("training", terms=60)
def dimensions(trial: Trial) -> Any:
    """Reductions over each set of dimensions, which stay or go."""
    x, b = trial.tensor(3, 4, 5), trial.tensor(3, 4, 5, dtype=torch.bool)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for number, dims in enumerate(_SETS):
            for keep in (False, True):
                found += [
                    x.sum(dims, keepdim=keep), x.mean(dims, keepdim=keep), x.amax(dims, keepdim=keep),
                    x.amin(dims, keepdim=keep), x.logsumexp(dims, keepdim=keep),
                    x.var(dims, correction=number % 3, keepdim=keep),
                    torch.linalg.vector_norm(x, (2, 1, 3, 0, float("inf"))[number], dims, keepdim=keep),
                ]  # fmt: skip
        return found

    def g(b: torch.Tensor) -> list[torch.Tensor]:
        each = [(dims, keep) for dims in _SETS for keep in (False, True)]
        found = [r for dims, keep in each for r in (b.any(dims, keepdim=keep), b.all(dims, keepdim=keep))]
        return found + [b.count_nonzero(dims) for dims in _SETS]

    return with_gradients(trial, f, x), trial.run(g, b)


@case("training")
def losses(trial: Trial) -> Any:
    """Losses with each argument, reduced in each way."""
    x, y, w = trial.tensor(6, 5), trial.tensor(6, 5), trial.tensor(6, 5, low=0.5, high=1.5)
    labels = torch.arange(6, device=trial.device) % 5

    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        found, known = [], w.detach()
        squares: Any = F.mse_loss  # whose stub has no weights
        for how in ("none", "mean", "sum"):
            found += [
                F.binary_cross_entropy_with_logits(x, y.sigmoid(), known, reduction=how, pos_weight=known[0]),
                F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), known, reduction=how),
                F.gaussian_nll_loss(x, y, w, full=how != "mean", reduction=how),
                F.poisson_nll_loss(x, w, log_input=how == "mean", full=True, reduction=how),
                squares(x, y, reduction=how, weight=known), F.huber_loss(x, y, reduction=how, delta=0.7),
                F.smooth_l1_loss(x, y, reduction=how, beta=0.4), F.kl_div(x, y, reduction=how, log_target=True),
                F.soft_margin_loss(x, y.detach().sign(), reduction=how),
                F.cross_entropy(x, labels, known[0], ignore_index=2, reduction=how, label_smoothing=0.2),
                F.cross_entropy(x, y.softmax(1), known[0], reduction=how, label_smoothing=0.1),
                F.nll_loss(x, labels, known[0], ignore_index=1, reduction=how),
                F.triplet_margin_loss(x, y, w, p=1.0, swap=True, reduction=how),
                F.cosine_embedding_loss(x, y, labels.sign() * 2 - 1, 0.1, reduction=how),
                F.margin_ranking_loss(x, y, known.sign(), 0.3, reduction=how),
            ]  # fmt: skip
        return found

    return with_gradients(trial, f, x, y, w)


@case("training")
def labels_of_sequences(trial: Trial) -> Any:
    """The loss of an alignment with each blank, and of targets that do not fit."""
    x = trial.tensor(5, 3, 4)
    targets, whole = torch.tensor([[1, 2], [1, 1], [2, 1]]), torch.tensor([5, 3, 2])
    lengths = torch.tensor([2, 2, 2])

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        given = x.log_softmax(2)
        return [
            F.ctc_loss(given, targets, whole, lengths, blank=0, reduction="none", zero_infinity=True),
            F.ctc_loss(given, targets, whole, lengths, blank=3, reduction="sum", zero_infinity=True),
            F.ctc_loss(given[:, :1], targets[:1], whole[:1], lengths[:1], blank=3),
        ]

    return with_gradients(trial, f, x)


@case("training")
def normalized(trial: Trial) -> Any:
    """Norms over each number of dimensions, with each subset of their parameters, and with large terms below."""
    x, w, b = trial.tensor(4, 6, 3, 2), trial.tensor(6, 3, 2), trial.tensor(6, 3, 2)

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for shape, one, two in ((x.shape[1:], w, b), (x.shape[2:], w[0], b[0]), (x.shape[3:], w[0, 0], b[0, 0])):
            for eps in (1e-5, 0.1):
                found += [
                    F.layer_norm(x, shape, one, None, eps), F.layer_norm(x, shape, None, two, eps),
                    F.layer_norm(x, shape, one, two, eps), F.rms_norm(x, shape, one, eps), F.rms_norm(x, shape),
                ]  # fmt: skip
        one, two = w[:, 0, 0], b[:, 0, 0]
        for given, groups in ((x, 3), (x[:, :, 0, 0], 2), (x[..., 0], 6), (x[..., None], 1)):
            found += [
                F.group_norm(given, groups, one, two), F.batch_norm(given, None, None, one, two, True, 0.1, 0.01)
            ]  # fmt: skip
        mean, var = torch.zeros(6, dtype=x.dtype, device=x.device), torch.ones(6, dtype=x.dtype, device=x.device)
        found += [F.batch_norm(x, mean, var, one, None, True, momentum=1.0), mean * 1, var * 1]
        found += [F.batch_norm(x, mean, var, None, two, False), F.local_response_norm(x, 4, 0.3, 0.6, 2.0)]
        return [*found, F.cosine_similarity(x, w, 0, 0.5), F.normalize(x, 1.0, 2, 3.0), F.softmin(x, 0)]

    return with_gradients(trial, f, x, w, b)


@case("training")
def transforms(trial: Trial) -> Any:
    """Fourier transforms of each length, trimmed and padded, over each dimension, with each norm."""
    x = trial.tensor(5, 7, 6)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for dim in (0, 1, -1):
            for n, norm in ((None, "ortho"), (4, "forward"), (9, "backward")):
                there = (torch.fft.fft(x, n, dim, norm), torch.fft.rfft(x, n, dim, norm))
                z = torch.complex(x, x * 2)
                found += [*map(torch.view_as_real, there), torch.fft.irfft(z, n, dim, norm)]
                found.append(torch.fft.hfft(z, n, dim, norm))
        return found

    return with_gradients(trial, f, x)


@case(reference=False)
def numbers_first(trial: Trial) -> Any:
    """What numbers that are no tensors do on either side, with tensors of each type."""
    typed = [torch.int64, torch.uint8, torch.float32, torch.float16, torch.bool]
    inputs = [trial.tensor(7, dtype=t, low=1, high=9) if t != torch.bool else trial.tensor(7, dtype=t) for t in typed]

    def f(*inputs: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for x in inputs:
            for number in (3, 2.5, True):
                found += [number + x, x + number, number * x, x * number]
                if x.dtype != torch.bool and number is not True:
                    found += [number - x, x - number, torch.remainder(number, x), x % number, number // x]
                found += [number / x, x == number, x < number, torch.where(x > 1, x, number)]
                found.append(torch.where(x > 1, number, x))
            found += [torch.add(x, inputs[4], alpha=1), torch.maximum(x, inputs[0])]
        whole, small = inputs[0], inputs[1]
        found += [torch.sub(whole, small, alpha=2), torch.add(whole, whole, alpha=-3)]
        found.append(torch.rsub(whole, small, alpha=2))
        found += [(-2) ** (whole % 4), 2**small, torch.gcd(whole - 5, whole * 0), torch.lcm(whole - 5, whole)]
        return found

    return trial.run(f, *inputs)


@case()
def converted(trial: Trial) -> Any:
    """Numbers of each kind in each dtype that eager defines for them: rounded, cut, and counted around."""
    big = torch.tensor([0, 1, -1, 127, 255, 2047, 2049, 4099, 65519, 16777217, -33554435], device=trial.device)
    real = trial.given(torch.tensor([0.0, -0.0, 0.5, 0.99, 1.5, 2.5, 126.7, 3.0625, 100.49]))
    wholes = (torch.int8, torch.int16, torch.int32, torch.int64)
    dtypes = (*wholes, torch.float16, torch.bfloat16, torch.float32, torch.bool)

    def f(big: torch.Tensor, real: torch.Tensor) -> list[torch.Tensor]:
        found = [big.to(d) for d in (*dtypes, torch.uint8)] + [real.to(d) for d in (*dtypes, torch.uint8)]
        found += [(-real).to(d) for d in dtypes] + [big.to(torch.bool) + big, big.sum(dtype=torch.int8)]
        halves = [real.to(d) for d in (torch.float16, torch.bfloat16)]
        for h in halves:
            found += [h.round(decimals=1), h.round(), h.to(torch.int16), h.trunc(), h % 2]
        return found

    return trial.run(f, big, real)


@case("training")
def ends_of_arguments(trial: Trial) -> Any:
    """Corrections as large as the sample, slopes below zero, bounds above zero, and parts beyond the end."""
    x, v = trial.tensor(3, 5), trial.tensor(4)
    batch = trial.tensor(2, 4, 3)

    def f(x: torch.Tensor, v: torch.Tensor, batch: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.elu(x, -0.5), F.celu(x, -0.7), F.hardtanh(x, 0.25, 1.5), F.leaky_relu(x, -0.3), F.leaky_relu(x, 2.0),
            x.std(1, correction=4), *torch.tensor_split(x, (1, 4, 9), 1), v @ batch, batch.transpose(1, 2) @ v,
            torch.addmm(v[:3], x[:, :4], batch[0], beta=0.5, alpha=2), x.gather(1, x.detach()[:2, :3].argsort(1)),
            x.topk(2, 0, largest=False).values, torch.special.gammainc(x.abs().detach() + 1, x.abs() + 0.5),
            F.softplus(x, 2.0, 0.5), F.threshold(x, 0.1, -0.2), x.double().log_softmax(0), F.glu(x[:, :4], 1),
            F.l1_loss(x.double(), x.flip(0).double() * 2), F.hardshrink(x, 0.3), F.softshrink(x, 0.3),
        ]  # fmt: skip

    return with_gradients(trial, f, x, v, batch)


@case()
def integers_in_matrices(trial: Trial) -> Any:
    """Products and sums of integers with factors, triangles of bools, and counts with weights."""
    a, b = trial.tensor(3, 4, dtype=torch.int64), trial.tensor(4, 2, dtype=torch.int64)
    mask, places = trial.tensor(4, 4, dtype=torch.bool), torch.tensor([1, 3, 1, 0], device=trial.device)
    weights, lost = trial.tensor(4), trial.given(torch.tensor([-float("inf"), -float("inf"), 0.5, -1.0]))

    def f(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor, lost: torch.Tensor) -> Any:
        return [
            torch.addmm(a[:, :2], a, b, beta=2, alpha=3), torch.addmv(a[:, 0], a, b[:, 1], alpha=2), a @ b,
            torch.addr(a[:, :2], a[:, 0], b[0], beta=-1, alpha=2), mask.tril(-1), mask.triu(1), mask.tril(2),
            torch.bincount(places, weights, minlength=7), lost.logcumsumexp(0), a.prod(0),
            torch.cov(weights * mask, fweights=places), operator.matmul(a, b).prod(0), a.gather(0, places[None] % 3),
            lost.cummax(0), lost.logsumexp(0), torch.count_nonzero(a, (0, 1)), a.to(torch.int8).prod(1),
        ]  # fmt: skip

    return trial.run(f, a, b, mask, weights, lost)


@case("training")
def values_at_once(trial: Trial) -> Any:
    """What needs three values at once: rounding up, steps and one dimension; one row; a prime length at the end."""
    row, image, x = trial.tensor(2, 3, 11), trial.tensor(2, 3, 1, 9), trial.tensor(3, 4, 7)
    places = torch.tensor([[[6, 0, 3], [1, 1, 5]], [[2, 4, 0], [0, 6, 6]]], device=trial.device)

    def f(row: torch.Tensor, image: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        kernel = row[:2, :3, :3]
        return [
            F.max_pool1d(row - 9, 2, 3, 1, ceil_mode=True), F.avg_pool1d(row, 4, 3, 2, True, True),
            F.max_pool2d(image, (1, 3), (1, 2), (0, 1)), F.avg_pool2d(image, (1, 2), 1, 0, True),
            F.conv2d(image, kernel[:, :, None], stride=(3, 2), padding=(1, 2)), F.conv1d(image[0, :, 0], kernel),
            x.gather(2, places), x.gather(1, places % 4), x.scatter_add(2, places, x[:2, :2, :3]),
            torch.view_as_real(torch.fft.rfft(x)), torch.fft.ifft(x, 5).real, torch.fft.irfft(torch.complex(x, x), 11),
            x.var((0, 1), correction=11), F.interpolate(row, 5, mode="nearest-exact"), x.roll((9, -2), (0, 2)),
        ]  # fmt: skip

    return with_gradients(trial, f, row, image, x)


@case()
def complex_with_real(trial: Trial) -> Any:
    """Complex numbers, tensors or not, beside real ones, and on both sides of a cut."""
    x, z = trial.tensor(5), trial.tensor(5, dtype=torch.complex64)

    def f(x: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        cut = torch.complex(-x.abs(), x * 0)
        found = [x * 2j, x + (1 - 2j), (3 + 1j) - x, z * x, x - z, z / 2, z * 1j, cut.sqrt(), torch.polar(x.abs(), x)]
        return [
            *map(torch.view_as_real, found),
            z.abs(),
            (z * 0).angle(),
            cut.angle(),
            torch.view_as_real(z.conj() * x),
        ]

    return trial.run(f, x, z)
