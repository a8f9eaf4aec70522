"""Functions of single numbers, and losses, with each of their arguments away from its default."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/functions")


@case("training")
def activations(trial: Trial) -> Any:
    """Slopes, bounds, thresholds and forms of activations are the ones that are asked for."""

    def f(x: torch.Tensor, slopes: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.elu(x, 0.5), F.celu(x, 0.7), F.selu(x), F.leaky_relu(x, 0.3), F.prelu(x, slopes), F.prelu(x, slopes[:1]),
            F.hardtanh(x, -0.5, 0.25), F.threshold(x, 0.2, -3.0), F.softplus(x, 3.0, 2.0), F.hardshrink(x, 0.3),
            F.softshrink(x, 0.3), F.gelu(x, approximate="tanh"), F.glu(x, 1), F.glu(x, -1), F.logsigmoid(x),
            F.softsign(x), F.relu6(x * 5), F.mish(x), F.rrelu(x, 0.2, 0.4, False),
            F.normalize(x, 1.0, 2, 0.5), F.normalize(x * 1e-8, dim=1), F.local_response_norm(x, 3, 0.5, 0.6, 2.0),
            F.softmin(x, 1), F.hardsigmoid(x), F.silu(x),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(2, 4, 6), trial.tensor(4, low=0.1, high=0.6))


@case("training")
def arithmetic(trial: Trial) -> Any:
    """Factors, roundings, bases, bounds and tolerances of arithmetic are the ones that are asked for."""

    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.addcmul(x, y, z, value=-0.5), torch.addcdiv(x, y, z, value=2.5), torch.addcdiv(x, y, z),
            torch.sub(x, y, alpha=3), torch.rsub(x, y, alpha=0.5), torch.add(x, 2, alpha=-1.5), torch.lerp(x, y, z),
            torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.75), x.clamp(min=y - z), x.clamp(y - z, y), x.clamp(max=0.3),
            torch.clip(x, -0.2, 0.4), torch.logit(z / 3, 0.2), torch.logaddexp(x, y), torch.logaddexp2(x, y),
            torch.float_power(x.abs() + 1, 1.5), z**y, 2.5**y, z**-1.5, x**3, torch.hypot(x, y), torch.atan2(x, y),
            torch.copysign(x, y), torch.copysign(x, -0.0), torch.special.xlog1py(x, z), torch.sinc(x),
            torch.ldexp(x, y), torch.dist(x, y, 1.0), torch.polygamma(1, z), torch.mvlgamma(z + 1, 2), torch.i0(x),
            torch.special.entr(z), torch.special.erfcx(x), torch.special.log_ndtr(x), torch.deg2rad(x),
            torch.nan_to_num(x / (x > 0), 0.5, 2.0, -3.0), torch.exp2(x), torch.square(x), torch.frac(x),
        ]  # fmt: skip

    given = trial.tensor(3, 5), trial.tensor(3, 5), trial.tensor(3, 5, low=0.5, high=2.5)
    return with_gradients(trial, f, *given)


@case()
def comparisons(trial: Trial) -> Any:
    """Tolerances, ways to round, and what happens at equal numbers."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        nan = torch.where(x > 1, torch.nan, x)
        return [
            torch.isclose(x, x + 1e-3, rtol=0.0, atol=2e-3), torch.isclose(x, x * 1.01, rtol=0.02, atol=0.0),
            torch.isclose(nan, nan), torch.isclose(nan, nan, equal_nan=True), torch.heaviside(x.round(), y),
            torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x.round(decimals=2),
            (x * 1e3).round(decimals=-2), torch.eq(nan, nan), torch.sign(x.round()), torch.signbit(-x.abs()),
            torch.isin(x.round(), y.round()), torch.isin(x.round(), y.round(), invert=True), torch.fmin(nan, y),
            torch.fmax(nan, y), torch.maximum(nan, y), torch.nextafter(x, y), *torch.frexp(x), torch.isreal(x),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(4, 6), trial.tensor(4, 6))


@case("training")
def losses(trial: Trial) -> Any:
    """Weights, margins, bounds and reductions of losses are the ones that are asked for."""
    classes = trial.tensor(4, dtype=torch.int64, low=0, high=5)
    several = trial.tensor(4, 5, dtype=torch.int64, low=0, high=2)

    def f(x: torch.Tensor, y: torch.Tensor, variances: torch.Tensor) -> list[torch.Tensor]:
        w = variances.detach()
        p, q = x.sigmoid(), several.to(x.dtype)
        sides = 2 * q[:, 0] - 1
        return [
            F.binary_cross_entropy_with_logits(x, q, pos_weight=w), F.binary_cross_entropy_with_logits(x, q, w),
            F.binary_cross_entropy(p, q, w, reduction="sum"), F.huber_loss(x, y, reduction="sum", delta=0.4),
            F.smooth_l1_loss(x, y, beta=0.3), F.poisson_nll_loss(x, y.abs(), False, True),
            F.poisson_nll_loss(x, y.abs() * 3, True, True),
            F.gaussian_nll_loss(x, y, variances.expand(4, 5), True, 0.9),
            F.kl_div(x, y, reduction="batchmean", log_target=True), F.multi_margin_loss(x, classes, 2, 0.7, w),
            F.cross_entropy(x, classes, w, label_smoothing=0.2), F.nll_loss(x, classes, w, reduction="sum"),
            F.hinge_embedding_loss(x[:, 0], sides, 0.4), F.margin_ranking_loss(x[:, 0], y[:, 0], sides, 0.3),
            F.triplet_margin_loss(x, y, x.flip(0), 0.6, 1.0, swap=True), F.soft_margin_loss(x[:, 0], sides),
            F.cosine_embedding_loss(x, y, sides, 0.1), F.multilabel_soft_margin_loss(x, q, w),
            F.cosine_similarity(x, y, 0, 0.9), F.cosine_similarity(x, y[:1]), F.l1_loss(x, y, reduction="none"),
            F.pairwise_distance(x, y, 1.0, 0.01, True), F.cross_entropy(x, y.softmax(-1), label_smoothing=0.1),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(4, 5), trial.tensor(4, 5), trial.tensor(5, low=0.5, high=1.5))


@case(elementwise=True, signs=False, subnormals=False)
def special_functions(trial: Trial) -> Any:
    """Special functions at poles, far in their tails, and where a product of their parts would overflow."""
    far = trial.given(torch.tensor([
        -60.0, -39.5, -12.25, -9.0, -3.5, -2.0, -0.5, -1e-5, 0.0, 1e-5, 0.3, 0.5, 0.999, 1.0, 2.5, 12.25, 39.5, 60.0,
        200.0, torch.nan, torch.inf, -torch.inf,
    ]))  # fmt: skip
    shares = trial.given(torch.tensor([-1.0, -0.9999, -0.5, 0.0, 1e-6, 0.5, 0.9999, 1.0, 1.5, torch.nan]))

    def f(x: torch.Tensor, p: torch.Tensor) -> list[torch.Tensor]:
        s, y = torch.special, x.flip(0)
        return [
            s.erfcx(x), s.log_ndtr(x), s.ndtr(x), s.entr(x), s.i0e(x), s.i1e(x), torch.i0(x / 3), s.i1(x / 3),
            torch.lgamma(x), torch.digamma(x.abs()), torch.polygamma(2, x.abs()), torch.erfinv(p), s.ndtri(p),
            torch.logit(p, 0.01), s.xlog1py(x, y), s.xlog1py(x * 0, y), torch.xlogy(x, y), torch.heaviside(x, y),
            torch.nextafter(x, y),
            torch.ldexp(p, torch.full_like(p, 3)), torch.isneginf(x), torch.isposinf(x), torch.angle(x), torch.sgn(x),
            s.gammainc(p.abs() + 0.5, p.abs() * 2), s.gammaincc(p.abs() + 0.5, p.abs() * 2), *torch.frexp(x),
            s.bessel_j0(x), s.bessel_j1(x), torch.acosh(x.abs() * 1e20), torch.asinh(x * 1e20),
            s.zeta(p.abs() + 1.5, p.abs() + 0.5),
        ]  # fmt: skip

    return trial.run(f, far, shares)
