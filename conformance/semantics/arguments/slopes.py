"""Gradients of every argument of operators, each apart from the others, where functions bend and where they do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import apart

case = Collection("semantics/slopes")

_Functions = Sequence[Callable[..., torch.Tensor]]


@case("training", signs=False, subnormals=False, around=1.5)
def of_functions(trial: Trial) -> Any:
    """Functions of single numbers on both sides of zero, and with each of their arguments."""
    functions: _Functions = [
        lambda x: x.erf(), lambda x: x.erfc(), lambda x: F.gelu(x), lambda x: F.gelu(x[2:], approximate="tanh"),
        lambda x: F.softplus(x, 2.0, 5.0), lambda x: F.softplus(x * 9), lambda x: F.elu(x, 0.7),
        lambda x: F.celu(x, 1.3), lambda x: F.selu(x), lambda x: F.mish(x), lambda x: F.silu(x), lambda x: x.sinc(),
        lambda x: F.hardswish(x), lambda x: F.hardsigmoid(x), lambda x: F.hardtanh(x, -0.7, 1.9), lambda x: F.relu6(x),
        lambda x: F.leaky_relu(x, 1.5), lambda x: F.leaky_relu(x, -0.3), lambda x: F.softshrink(x, 0.7),
        lambda x: F.hardshrink(x, 1.1), lambda x: F.threshold(x, 0.3, 2.0), lambda x: x**3, lambda x: F.logsigmoid(x),
        lambda x: F.softsign(x), lambda x: x.lgamma(), lambda x: x.digamma(), lambda x: torch.polygamma(2, x),
        lambda x: torch.mvlgamma(x.abs() + 2, 3), lambda x: x.i0(), lambda x: torch.special.i0e(x),
        lambda x: torch.special.i1(x), lambda x: torch.special.i1e(x), lambda x: torch.special.erfcx(x),
        lambda x: torch.special.ndtri(x.sigmoid()), lambda x: torch.special.ndtr(x),
        lambda x: torch.special.log_ndtr(x), lambda x: (x / 5).erfinv(), lambda x: (x / 5).asin(),
        lambda x: (x / 5).acos(), lambda x: (x / 5).atanh(), lambda x: (1.5 + x.square()).acosh(), lambda x: x.asinh(),
        lambda x: torch.special.entr(x.abs()), lambda x: (x / 9 + 0.5).logit(0.2), lambda x: x.nan_to_num(), torch.frac,
        torch.round, torch.trunc, torch.sign, lambda x: 1.3**x, lambda x: x.exp2(), lambda x: x.expm1(), torch.cosh,
        torch.tan, lambda x: x.abs() ** 0.7, lambda x: x**-2, lambda x: F.glu(x.expand(2, 12)[:, :10]),
        lambda x: torch.rsub(x, 2, alpha=3), lambda x: torch.remainder(x, 0.7), lambda x: torch.fmod(x, 0.7),
        lambda x: x.float().double().mul(3).to(x.dtype), lambda x: x.clamp(-1.1, 1.3), lambda x: 2 / x,
        lambda x: torch.special.xlog1py(x, 0.3), lambda x: torch.logaddexp2(x, x.flip(0)), lambda x: x.deg2rad(),
    ]  # fmt: skip
    x = trial.given(torch.tensor([-3.7, -2.6, -1.45, -0.8, -0.35, -0.1, 0.15, 0.4, 0.9, 1.6, 2.7, 4.4]))
    return apart(trial, functions, x)


@case("training", signs=False, draws=1)
def at_kinks(trial: Trial) -> Any:
    """Where a function bends or jumps the slope is eager's; so it is at nan where eager's kernels have one formula."""
    functions: _Functions = [
        F.hardsigmoid, F.hardswish, lambda x: F.softshrink(x, 0.5), lambda x: F.hardshrink(x, 0.5), F.relu, F.relu6,
        lambda x: F.elu(x, 0.5), lambda x: F.celu(x, 0.5), F.selu, lambda x: F.leaky_relu(x, 0.3), F.hardtanh,
        lambda x: F.threshold(x, 0.5, 2.0), torch.abs, lambda x: x.clamp(-0.5, 3), lambda x: x.clamp(min=0),
        lambda x: torch.nan_to_num(x, 0.5, 2.0, -2.0), lambda x: F.l1_loss(x, x.detach(), reduction="none"),
        lambda x: F.smooth_l1_loss(x, x.new_zeros(12), reduction="none", beta=0.5),
        lambda x: torch.copysign(x, x.flip(0)), lambda x: F.huber_loss(x, x.new_zeros(12), reduction="none", delta=0.5),
        lambda x: F.softplus(x, 2.0, 6.0), lambda x: F.smooth_l1_loss(x, x.new_zeros(12), reduction="none", beta=0.0),
        torch.sgn, torch.sinc, lambda x: torch.maximum(x, x.new_zeros(12)),
        lambda x: torch.minimum(x.new_full((12,), 0.5), x), torch.relu, lambda x: torch.fmax(x, x.new_zeros(12)),
        lambda x: torch.fmin(x, x.flip(0)), lambda x: F.rrelu(x, 0.1, 0.3),
        lambda x: F.hinge_embedding_loss(x, torch.ones_like(x).neg(), 0.5, reduction="none"), lambda x: x.frac(),
        lambda x: F.margin_ranking_loss(x, x.new_zeros(12), torch.ones_like(x), 0.5, reduction="none"),
        lambda x: F.prelu(x, x.new_tensor(0.25)), lambda x: torch.special.xlog1py(x, x), lambda x: x.square().sqrt(),
        lambda x: torch.atan2(x, x.new_zeros(12)), lambda x: torch.hypot(x, x.new_zeros(12)), lambda x: x.abs() ** 0.5,
        lambda x: torch.xlogy(x, x.new_ones(12)), lambda x: x.logit(0.25), lambda x: x.masked_fill(x.isnan(), 1.0) * 2,
        lambda x: torch.where(x.isfinite(), x, 0.0) ** 2, torch.asin, torch.acosh, torch.atanh, lambda x: x.cumprod(0),
        lambda x: F.binary_cross_entropy(x.nan_to_num(1, 0, 0).clamp(0, 1), x.new_ones(12), reduction="none"),
        lambda x: x.logaddexp(x), lambda x: F.logsigmoid(x), lambda x: torch.lerp(x, x.flip(0), 0.5), lambda x: x**0,
    ]  # fmt: skip
    at_nan: _Functions = [
        F.relu, torch.abs, lambda x: torch.nan_to_num(x, 0.5, 2.0, -2.0), lambda x: torch.fmax(x, x.new_zeros(3)),
        lambda x: torch.fmin(x.flip(0), x), lambda x: F.hardshrink(x, 0.5),
        lambda x: x.masked_fill(x.isnan(), 1.0) * 2, lambda x: torch.where(x.isfinite(), x, 0.0) ** 2, lambda x: x * x,
    ]  # fmt: skip
    x = torch.tensor([-3.0, -0.5, -0.0, 0.0, 0.5, 1, 3, 6, -1, math.inf, -math.inf, 7])
    found = apart(trial, at_nan, trial.given(torch.tensor([math.nan, 2.0, 0.25])))
    return apart(trial, functions, trial.given(x)), found


@case("training", signs=False, draws=1)
def at_ties(trial: Trial) -> Any:
    """Of equal extremes each gets what it gets in eager; distances and lengths of nothing have the slope of nothing."""
    functions: _Functions = [
        lambda x: x.max(), lambda x: x.min(), lambda x: x.max(1).values, lambda x: x.min(0).values, lambda x: x.amax(),
        lambda x: x.amax((0, 1)), lambda x: x.amin(0), lambda x: x.aminmax(dim=1).max, lambda x: x.median(),
        lambda x: x.median(0).values, lambda x: x.nanmedian(), lambda x: x.mode(1).values, lambda x: x.mode(0).values,
        lambda x: x.kthvalue(2, 0).values, lambda x: x.topk(2, 0).values, lambda x: x.topk(2, 1, False).values,
        lambda x: x.cummax(0).values, lambda x: x.cummin(1).values, lambda x: x.sort(dim=0, stable=True).values,
        lambda x: x.sort(dim=1, stable=True, descending=True).values, lambda x: torch.linalg.vector_norm(x, math.inf),
        lambda x: torch.linalg.vector_norm(x, math.inf, 1), lambda x: torch.linalg.vector_norm(x, -math.inf, 0),
        lambda x: x.norm(1, 1), lambda x: x.norm(0, 1), lambda x: x.norm(3.0), lambda x: x.norm(3.0, 1),
        lambda x: torch.linalg.norm(x - x.detach()), lambda x: torch.linalg.norm(x - x.detach(), dim=1),
        lambda x: torch.dist(x, x), lambda x: torch.linalg.matrix_norm(x - x.detach()),
        lambda x: F.pairwise_distance(x, x.detach()), lambda x: x.prod(1), lambda x: torch.cdist(x, x.detach()),
        lambda x: torch.cdist(x, x[:2].detach(), 1.0), lambda x: x.prod(),
        lambda x: torch.cdist(x, x.detach() + 1, math.inf), lambda x: torch.pdist(x), lambda x: x.cumprod(1),
        lambda x: F.normalize(x, dim=1), lambda x: F.cosine_similarity(x, x.detach(), 1), lambda x: (x - x[:1]).std(0),
        lambda x: F.max_pool2d(x[None, None], 2, 1), lambda x: F.max_pool1d(x[None], 2), lambda x: x.clamp(x, x + 1),
        lambda x: F.adaptive_max_pool2d(x[None, None], 2), lambda x: x.logcumsumexp(0), lambda x: x.renorm(2, 0, 1.5),
        lambda x: F.multi_margin_loss(x, torch.tensor([0, 1, 2])), lambda x: F.triplet_margin_loss(x, x, x),
        lambda x: torch.maximum(x, x.detach()), lambda x: torch.minimum(x.detach(), x), lambda x: torch.fmax(x, x),
        lambda x: torch.quantile(x, 0.5, 0), lambda x: torch.nanquantile(x, 0.25, 1), lambda x: x.var(0, correction=0),
    ]  # fmt: skip
    return apart(trial, functions, trial.given(torch.tensor([[2.0, 0, 2, -1], [0, 0, 0, 0], [2, 2, 1, 2]])))


@case("training", signs=False, cancels=True, terms=12)
def of_both_arguments(trial: Trial) -> Any:
    """Functions of two tensors: each of them has a gradient, in the shape that it had before it was broadcast."""
    few = torch.tensor([0, 2, 1])
    functions: _Functions = [
        lambda x, y: (x.abs() + 0.1) ** y, lambda x, y: torch.remainder(x, y), lambda x, y: torch.fmod(x, y),
        torch.atan2, torch.hypot, lambda x, y: torch.xlogy(x, y.abs()), lambda x, y: torch.special.xlog1py(x, y.abs()),
        torch.logaddexp, torch.logaddexp2, torch.copysign, torch.maximum, torch.fmin, torch.ldexp,
        lambda x, y: torch.lerp(x, x.flip(0), y), lambda x, y: torch.where(x > 0, x, y[:, :1]),
        lambda x, y: torch.where(x > 0, y[0, 0], x), lambda x, y: x.clamp(y, y + 0.5), lambda x, y: x.clamp(max=y[0]),
        lambda x, y: torch.addcmul(x, y, y[0], value=0.3), lambda x, y: torch.addcdiv(x[0], x, y, value=0.7),
        lambda x, y: torch.cdist(x, y, 1.0), lambda x, y: torch.cdist(x, y, 1.5), torch.cdist, torch.dist,
        lambda x, y: torch.cdist(x, y, math.inf), lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
        F.pairwise_distance, F.cosine_similarity, lambda x, y: torch.linalg.cross(x[:, :3], y[:1, :3]), torch.kron,
        lambda x, y: torch.outer(x[0], y[:, 1]), lambda x, y: torch.inner(x, y[1]), lambda x, y: torch.dot(x[0], y[1]),
        lambda x, y: x @ y[0], lambda x, y: x[:, 0] @ y, lambda x, y: x.expand(2, 2, 3, 4) @ y.t(),
        lambda x, y: F.bilinear(x[:, :2], x[:, 2:], y.view(3, 2, 2), y[:, 0]), lambda x, y: F.linear(x[0], y, y[:, 0]),
        lambda x, y: torch.addmv(x[:, 0], x, y[0], beta=0.3, alpha=0.7), lambda x, y: torch.addr(x, y[:, 0], y[0]),
        lambda x, y: torch.baddbmm(x[0, :3], y.view(2, 3, 2), x.view(2, 2, 3), beta=2, alpha=0.5),
        lambda x, y: torch.addbmm(y[:, :3], x[None], y.t()[None]),
        lambda x, y: torch.einsum("ij,kj,k->i", x, y, x[:, 0]), F.mse_loss, F.l1_loss, F.smooth_l1_loss,
        lambda x, y: F.huber_loss(x, y, delta=0.3), lambda x, y: F.kl_div(x, y),
        lambda x, y: F.kl_div(x, y, log_target=True, reduction="batchmean"), lambda x, y: torch.tensordot(x, y, 2),
        lambda x, y: F.binary_cross_entropy_with_logits(x, y), lambda x, y: F.cross_entropy(x, y.softmax(1)),
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), x.detach().abs()), torch.true_divide,
        lambda x, y: F.cross_entropy(x, y.softmax(1), y[0].detach().abs(), label_smoothing=0.2),
        lambda x, y: F.cosine_embedding_loss(x, y, x.new_tensor([1, -1, 1.0]), 0.2), lambda x, y: x / (y * 1e12) * 1e12,
        lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x), 0.3), lambda x, y: F.poisson_nll_loss(x, y.abs()),
        lambda x, y: F.poisson_nll_loss(x.exp(), y.abs(), False, True),
        lambda x, y: F.soft_margin_loss(x, y.detach().sign()),
        lambda x, y: F.gaussian_nll_loss(x, y, (x * y).abs() + 0.1),
        lambda x, y: F.triplet_margin_loss(x, y, y.flip(0)),
        lambda x, y: F.hinge_embedding_loss(x, y.detach().sign(), 0.5), lambda x, y: F.prelu(x, y[0]),
        lambda x, y: F.multilabel_soft_margin_loss(x, y.sigmoid(), y[0].abs()), lambda x, y: F.embedding(few, x) * y,
        lambda x, y: F.embedding_bag(few, x, torch.tensor([0, 2]), mode="sum", per_sample_weights=y[:, 0]),
        lambda x, y: F.layer_norm(x, (4,), y[0], y[1]), lambda x, y: F.rms_norm(x, (4,), y[0], 1e-3),
        lambda x, y: F.scaled_dot_product_attention(x[None], y[None], x[None], y[:, :3]), lambda x, y: x - y[:, :1] * 3,
        lambda x, y: F.cross_entropy(x, few, ignore_index=2, label_smoothing=0.1, reduction="sum"),
        lambda x, y: F.nll_loss(x, few, reduction="none") * y[:, 0], lambda x, y: torch.trapezoid(x, y, dim=0),
        lambda x, y: F.dropout(x, 0.0) * F.alpha_dropout(y, 0.3, False), lambda x, y: torch.rsub(x, y, alpha=2),
        lambda x, y: torch.cumulative_trapezoid(y, x, dim=1),
    ]  # fmt: skip
    return apart(trial, functions, trial.tensor(3, 4), trial.tensor(3, 4))


@case("training", signs=False, terms=20)
def of_reductions(trial: Trial) -> Any:
    """Reductions, scans and orders over each dimension, with each of their arguments."""
    functions: _Functions = [
        lambda x: x.std(0, correction=0), lambda x: x.std(1, correction=2), lambda x: x.var((0, 1)), lambda x: x.std(),
        lambda x: torch.var_mean(x, (0, 1), correction=3)[0], lambda x: torch.std_mean(x, 1, keepdim=True)[0],
        lambda x: x.norm(0.5, 1), lambda x: x.norm(1), lambda x: x.norm(3, 0), lambda x: x.norm(math.inf, 1),
        lambda x: x.norm(-math.inf, 0), lambda x: torch.linalg.vector_norm(x, 2.5, (0, 1), True),
        lambda x: x.sum((0, 1)), lambda x: torch.linalg.vector_norm(x, 0, 1), lambda x: x.logcumsumexp(0),
        lambda x: x.logcumsumexp(1), lambda x: x.logsumexp((0, 1)), lambda x: x.quantile(0.3, 0),
        lambda x: x.quantile(x.new_tensor([0.1, 0.8]), 1), lambda x: x.quantile(0.4, interpolation="midpoint"),
        lambda x: x.nanquantile(0.6, 1, True), lambda x: x.nansum(1), lambda x: x.nanmean(0), lambda x: x.diff(2),
        lambda x: x.diff(dim=0, prepend=x[:1] * 2), lambda x: x.diff(n=2, dim=0), lambda x: x.renorm(1, 0, 0.7),
        lambda x: x.renorm(2, 1, 0.5), lambda x: torch.trapezoid(x, dim=0), lambda x: torch.trapezoid(x, dx=0.3),
        lambda x: torch.cumulative_trapezoid(x, dim=0), lambda x: x.cumsum(0), lambda x: torch.gradient(x, dim=0)[0],
        lambda x: torch.gradient(x, spacing=0.5, edge_order=2, dim=1)[0], lambda x: x.sum(1, dtype=torch.float64),
        lambda x: x.mean((0, 1), dtype=torch.float64), lambda x: x.prod(0), lambda x: x.cumprod(0), lambda x: x.prod(),
        lambda x: x.sort(0).values, lambda x: x.sort(1, True).values, lambda x: x.topk(2, 0).values,
        lambda x: x.topk(3, 1, False, False).values.sum(1), lambda x: x.kthvalue(2, 0).values, lambda x: x.median(),
        lambda x: x.median(0).values, lambda x: x.mode(1).values, lambda x: x.cummax(0).values,
        lambda x: x.cummin(1).values, lambda x: x.max(0).values, lambda x: x.min(), lambda x: x.msort(),
        lambda x: x.trace(), lambda x: x.softmax(0), lambda x: x.log_softmax(0, dtype=torch.float64),
        lambda x: F.softmin(x, 1), lambda x: F.normalize(x, 3.0, 0), lambda x: F.local_response_norm(x[None, :, :], 2),
        lambda x: x.count_nonzero() * x, lambda x: F.layer_norm(x, (4, 5)), lambda x: F.instance_norm(x[None]),
        lambda x: F.group_norm(x[None], 2), lambda x: F.lp_pool1d(x[None], 3.0, 2), lambda x: x.mean(0, True),
        lambda x: x.amin((0, 1), True), lambda x: x.sum(),
        lambda x: torch.logdet(x[:, :4] @ x[:, :4].t() + 3 * torch.eye(4).to(x)), lambda x: x.argsort(0) * x,
    ]  # fmt: skip
    return apart(trial, functions, trial.tensor(4, 5))


@case("training", signs=False, terms=12)
def of_moves(trial: Trial) -> Any:
    """What is taken, repeated, overlapped, placed, added or left out sends back what it got, from each reader."""
    rows, places = torch.tensor([2, 0, 2]), torch.tensor([[0, 1, 0, 2], [2, 1, 1, 0], [0, 0, 2, 2]])
    mask = torch.tensor([[True, False, True, True], [False, True, False, False], [True, True, False, True]])
    functions: list[Callable[..., torch.Tensor]] = [
        lambda x, y: x.repeat(2, 1, 3), lambda x, y: x.tile(3), lambda x, y: x.repeat_interleave(2, 1),
        lambda x, y: x.repeat_interleave(rows, 0), lambda x, y: x.unfold(1, 3, 1), lambda x, y: x.unfold(0, 2, 1),
        lambda x, y: x.as_strided((3, 3), (2, 1)), lambda x, y: (x * 1).as_strided((4, 3), (2, 1), 1),
        lambda x, y: x.take(places), lambda x, y: x.gather(0, places), lambda x, y: x.gather(1, places[:, :2]),
        lambda x, y: x.take_along_dim(places[:1], 0), lambda x, y: x.index_select(1, rows), lambda x, y: x[rows, 1:],
        lambda x, y: x[:, rows], lambda x, y: x[rows[:, None], places[:, :2]], lambda x, y: x[mask],
        lambda x, y: x[None, ..., 1], lambda x, y: x.scatter(0, places[:2, :3], y[:2, :3]),
        lambda x, y: x.scatter(1, places[:, 1:3], 0.5), lambda x, y: x.scatter_add(0, places, y),
        lambda x, y: x.index_add(0, rows, y, alpha=0.3), lambda x, y: x.index_copy(1, rows[:2], y[:, :2]),
        lambda x, y: x.index_fill(0, rows, 0.5), lambda x, y: x.index_fill(0, rows[:1], y[0, 0]),
        lambda x, y: x.index_put((rows,), y, True), lambda x, y: x.index_put((rows[:2], rows[1:]), y[0, 0], True),
        lambda x, y: x.masked_scatter(mask, y), lambda x, y: x.masked_fill(mask, y[0, 0]),
        lambda x, y: x.put(rows, y[0, :3], True), lambda x, y: x.rot90(-1), lambda x, y: x.put(rows[:2] + 3, y[0, :2]),
        lambda x, y: torch.block_diag(x, y[:2]), lambda x, y: x.tril(-1), lambda x, y: torch.cartesian_prod(x[0], y[1]),
        lambda x, y: torch.meshgrid(x[0], y[0], indexing="xy")[1], lambda x, y: x.flip(0, 1),
        lambda x, y: x.roll((1, -2), (0, 1)), lambda x, y: x.triu(1), lambda x, y: x.diagonal(1),
        lambda x, y: x.diag_embed(1), lambda x, y: torch.cat([x, y[:1], x]), lambda x, y: torch.stack([x, y, x], -1),
        lambda x, y: torch.as_strided_scatter(x, y[0], (4,), (2,), 1),
        lambda x, y: torch.diagonal_scatter(x, y[0, :3], 1), lambda x, y: F.pad(x[None], (2, 1), "reflect"),
        lambda x, y: F.pad(x[None], (2, 1), "replicate"), lambda x, y: F.pad(x[None], (2, 3), "circular"),
        lambda x, y: F.pad(x, (-1, 2, 1, -1), value=0.3), lambda x, y: F.pixel_shuffle(x.reshape(1, 4, 3, 1), 2),
        lambda x, y: x.expand(2, 3, 4), lambda x, y: x.movedim(0, 1),
        lambda x, y: F.pixel_unshuffle(x.reshape(1, 1, 2, 6), 2), lambda x, y: F.channel_shuffle(x.reshape(1, 4, 3), 2),
        lambda x, y: F.fold(x.reshape(1, 4, 3), (2, 4), 2), lambda x, y: F.unfold(x[None, None], 2),
        lambda x, y: x.msort(), lambda x, y: F.embedding(places, x, scale_grad_by_freq=True),
        lambda x, y: F.embedding(places, x, padding_idx=2), lambda x, y: F.embedding_bag(places, x, mode="max"),
        lambda x, y: F.embedding_bag(places, x, mode="mean", padding_idx=0),
        lambda x, y: F.interpolate(x[None], 9, mode="linear"),
        lambda x, y: F.interpolate(x[None, None], (5, 3), mode="bicubic"),
        lambda x, y: F.interpolate(x[None, None], (2, 3), mode="area"), lambda x, y: F.interpolate(x[None], 7),
        lambda x, y: F.interpolate(x[None, None], (2, 2), mode="bilinear", antialias=True),
        lambda x, y: x.split([1, 2])[1],
        lambda x, y: F.interpolate(x[None, None], (5, 6), mode="bilinear", align_corners=True),
        lambda x, y: x.view(-1)[::5], lambda x, y: F.interpolate(x[None, None], (5, 6), mode="nearest-exact"),
        lambda x, y: torch.select_scatter(x, y[0], 0, 1),
        lambda x, y: F.interpolate(x[None, None], (7, 3), mode="bicubic", antialias=True),
        lambda x, y: x.where(mask, y[:, :1]),
    ]  # fmt: skip

    def reduced(reduce: str, itself: bool) -> Callable[..., torch.Tensor]:
        return lambda x, y: x.scatter_reduce(0, places, y, reduce, include_self=itself)

    def by_rows(reduce: str) -> Callable[..., torch.Tensor]:
        return lambda x, y: x.index_reduce(0, rows, y, reduce)

    functions += [reduced(each, itself) for each in ("sum", "prod", "mean", "amax", "amin") for itself in (True, False)]
    functions += [by_rows(each) for each in ("prod", "mean", "amax")]
    return apart(trial, functions, trial.tensor(3, 4), trial.tensor(3, 4))


@case("training", signs=False, cancels=True, terms=9)
def of_matrices(trial: Trial) -> Any:
    """What is solved, decomposed and inverted: matrices that are well apart from those that have no inverse."""
    functions: _Functions = [
        torch.linalg.solve, lambda a, b: torch.linalg.solve(a, b, left=False), lambda a, b: torch.linalg.inv(a),
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), lambda a, b: torch.linalg.qr(a)[1].abs(),
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, unitriangular=True), lambda a, b: a.logdet(),
        lambda a, b: torch.linalg.pinv(a[:, :2]), lambda a, b: torch.linalg.det(a),
        lambda a, b: torch.linalg.slogdet(a)[1], lambda a, b: torch.linalg.eigvalsh(a + a.mT),
        lambda a, b: torch.linalg.svdvals(a + b), lambda a, b: a.matrix_exp(),
        lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a @ a.mT)),
        lambda a, b: torch.linalg.cholesky(a @ a.mT), lambda a, b: torch.linalg.multi_dot((b, a, b)),
        lambda a, b: torch.linalg.matrix_power(a, 3), torch.linalg.vecdot,
        lambda a, b: torch.linalg.matrix_power(a, -2), lambda a, b: torch.linalg.matrix_norm(a, "nuc"), torch.matmul,
        lambda a, b: torch.linalg.matrix_norm(a + b, 2), lambda a, b: torch.linalg.matrix_norm(a, 1), torch.mul,
        lambda a, b: torch.linalg.matrix_norm(a + b, -2), lambda a, b: torch.linalg.norm(a, math.inf),
        lambda a, b: torch.linalg.cond(a), lambda a, b: torch.linalg.householder_product(b, b[0] / 9),
        lambda a, b: torch.linalg.lu_factor(a)[0], lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b),
        lambda a, b: torch.kron(a, b), lambda a, b: torch.linalg.tensorsolve(a, b[0]),
        lambda a, b: torch.linalg.vander(b[0]), lambda a, b: torch.baddbmm(b[None], a[None], b[None], beta=0.3),
        lambda a, b: torch.linalg.inv_ex(a).inverse, lambda a, b: torch.linalg.lstsq(a, b).solution,
    ]  # fmt: skip
    a = trial.tensor(3, 3) + trial.given(torch.diag(torch.tensor([4.0, -5.0, 6.0])))
    return apart(trial, functions, a, trial.tensor(3, 3))


@case("training", signs=False, terms=12)
def of_spectra(trial: Trial) -> Any:
    """Fourier transforms, parts of complex numbers, their quotients, and where a complex number is zero."""
    functions: _Functions = [
        lambda x, y: torch.fft.rfft(x).abs(), lambda x, y: torch.fft.irfft(torch.complex(x, y), 5),
        lambda x, y: torch.fft.fft(torch.complex(x, y), 7, 0).abs(), lambda x, y: torch.fft.ifft(x, norm="ortho").real,
        lambda x, y: torch.fft.rfft2(x).imag, lambda x, y: torch.fft.fft2(torch.complex(x, y)).real,
        lambda x, y: torch.fft.rfftn(x, norm="forward").abs(), lambda x, y: torch.fft.fftn(x).imag, lambda x, y: x * 1,
        lambda x, y: torch.fft.irfftn(torch.complex(x, y), (3, 7)), lambda x, y: torch.fft.hfft(torch.complex(x, y)),
        lambda x, y: torch.fft.ihfft(x).imag, lambda x, y: torch.fft.irfft2(torch.complex(x, y)),
        lambda x, y: torch.stft(x.reshape(1, 12), 4, 2, window=y[0], return_complex=True).abs(),
        lambda x, y: torch.fft.fftshift(x, 1) * y, lambda x, y: torch.complex(x, y).angle(),
        lambda x, y: torch.complex(x - x.detach(), y - y.detach()).abs(), lambda x, y: torch.polar(x, y).real,
        lambda x, y: (torch.complex(x, y) / torch.complex(y, x + 2)).imag,
        lambda x, y: (torch.complex(x, y) ** 2.5).real, lambda x, y: torch.complex(x, y).conj().imag,
        lambda x, y: torch.complex(x, y).sgn().real, lambda x, y: (torch.complex(x, y) @ torch.complex(y, x).mH).abs(),
        lambda x, y: torch.view_as_real(torch.complex(x, y)), lambda x, y: (x / torch.complex(y, x)).real,
        lambda x, y: torch.complex(x, y).prod(1).abs(), lambda x, y: (1j * x).imag * y,
        lambda x, y: torch.complex(x, y).cumprod(0).imag, lambda x, y: torch.complex(x, y).sum(0).abs(),
        lambda x, y: torch.complex(x - x.detach(), y).sgn().imag, lambda x, y: torch.complex(x, y).exp().real,
        lambda x, y: torch.complex(x, y).log().imag, lambda x, y: torch.complex(x, y).norm(),
        lambda x, y: torch.complex(x, y).tanh().imag, lambda x, y: torch.complex(x, y).reciprocal().real,
        lambda x, y: x.sgn() * y, lambda x, y: torch.complex(x, y).mul(2 - 1j).imag,
        lambda x, y: torch.where(x > 0, torch.complex(x, y), torch.complex(y, x)).real,
    ]  # fmt: skip
    return apart(trial, functions, trial.tensor(3, 4), trial.tensor(3, 4))
