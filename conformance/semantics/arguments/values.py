"""Numbers at which functions are exact, numbers that a short formula loses, and arguments of every dtype and order."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/values")


@case(draws=1, signs=False)
def at_exact_points(trial: Trial) -> Any:
    """Powers of two and ten, their logarithms, squares and their roots are exact where eager's are."""

    def f(n: torch.Tensor, ten: torch.Tensor) -> list[torch.Tensor]:
        two = torch.exp2(n)
        return [
            two, two.log2(), (n * 0).exp(), (n * 0 + 1).log(), (n * n).sqrt(), 2**n, two.reciprocal(),
            two.rsqrt() * two, two.pow(2), two.pow(-1), two.sqrt(), (n * 0).cos(), (n * 0).expm1(), torch.ldexp(n, n),
            ten.log10(), torch.hypot(3 * two, 4 * two), torch.float_power(n, 3), n.pow(3), 10 ** n.clamp(0, 9),
            torch.pow(n, n.clamp(0, 5)), torch.special.xlog1py(n * 0, n), (n * 0).sigmoid(), torch.logaddexp2(n, n) - n,
            (n / 8).round(decimals=1), n / 3 * 3, (n * 1000 + 150).round(decimals=-2), torch.sinc(n),
            torch.atan2(n * 0, n), torch.fmod(n, 0.5), n % 0.25, n // 0.5,
        ]  # fmt: skip

    ten = torch.tensor([10.0**n for n in range(11)])  # all of them are float32
    return trial.run(f, trial.given(torch.arange(-40.0, 41.0)), trial.given(ten))


def _of_numbers(x: torch.Tensor, p: torch.Tensor, few: torch.Tensor) -> list[torch.Tensor]:
    """Functions of numbers of both signs, of positive ones, and of some below one half, in one step each."""
    return [
        F.silu(x), F.mish(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.elu(x, 0.75), F.celu(x, 1.25), F.selu(x),
        F.softplus(x, 2.0, 5.0), F.logsigmoid(x), F.softsign(x), F.hardswish(x), F.hardsigmoid(x),
        F.softshrink(x, 0.25), F.leaky_relu(x, 0.25), F.glu(torch.stack([x, x.flip(0)]), 0), x.sinh(), x.cosh(),
        x.tan(), x.atan(), x.asinh(), p.acosh(), few.atanh(), few.asin(), few.acos(), x.erf(), x.erfc(), x.expm1(),
        p.log1p(), p.log2(), p.log10(), p.rsqrt(), p.reciprocal(), x.exp2(), x.sigmoid(), few.abs().logit(), x.tanh(),
        p**1.75, x**3, 1.25**x, p**x, torch.addcdiv(x, x, p, value=0.25), torch.addcmul(x, x, p, value=0.25),
        x.square(), torch.lerp(x, p, 0.25), torch.atan2(x, p), torch.hypot(x, p), torch.logaddexp(x, p),
        torch.xlogy(p, p), x.sinc(), p.digamma(), p.lgamma(), few.erfinv(), x.frac(), x % 1.25, torch.fmod(x, 1.25),
        x // 0.25, x / 3, x * 0.125, torch.add(x, p, alpha=0.25), torch.sub(x, 1.5, alpha=0.75),
        torch.rsub(x, p, alpha=0.25), torch.special.entr(p), torch.nextafter(x, p) if x.element_size() > 2 else x,
        torch.copysign(x, -p), x.nan_to_num(), torch.deg2rad(x), x.clamp(-0.25, 0.75), torch.relu(x),
        F.hardtanh(x, -0.25, 0.875), F.threshold(x, 0.25, 0.1), x.exp(), x + 0.125,
    ]  # fmt: skip


def _spread(trial: Trial, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    x = trial.tensor(203, dtype=dtype, low=-4.3, high=4.3)
    return x, trial.tensor(203, dtype=dtype, low=0.05, high=4.3), trial.tensor(203, dtype=dtype, low=-0.5, high=0.5)


@case("bfloat16")
def functions_in_bfloat16(trial: Trial) -> Any:
    """Functions of bfloat16 are computed in float32 and rounded once, whatever their steps are."""
    return trial.run(_of_numbers, *_spread(trial, torch.bfloat16))


@case("float16")
def functions_in_float16(trial: Trial) -> Any:
    """Functions of float16 are computed in float32 and rounded once, whatever their steps are."""
    return trial.run(_of_numbers, *_spread(trial, torch.float16))


@case(elementwise=True)
def functions_on_both_sides(trial: Trial) -> Any:
    """Functions of float32 keep their digits below zero and above one, not only between."""
    return trial.run(_of_numbers, *_spread(trial, torch.float32))


@case(signs=False)
def far_from_zero(trial: Trial) -> Any:
    """Angles of thousands of turns, roots and lengths of what has no square, and what almost overflows."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        large = x * 1e19
        return [
            (x * 1e3).sin(), (x * 1e4).cos(), (x * 1e5).sin(), (x * 1e6).cos(), (x * 1e7).sin(), (x * 1e4).tan(),
            (x * 1e7).tan(), large.norm(), large.norm(dim=0), torch.linalg.vector_norm(large, 3), large.norm(1),
            torch.hypot(large, large * 2), (x.sign() * 85 + x).exp(), (x.abs() + 80).sinh(),
            torch.cdist(large[None], large.flip(0)[None], 1.0), large.std(), F.normalize(large * 1e-3, dim=0),
            F.layer_norm(large * 1e-3, x.shape), F.softmax(large, 0), (x.abs() + 80).cosh(),
            torch.logaddexp(large, large * 2), large.logsumexp(0), F.silu(large), F.softplus(large), F.gelu(large),
            x.mul(1e30).atan(), F.logsigmoid(large), (large * 1e15).asinh(), (large.abs() * 1e15).acosh(), large.tanh(),
            large.erf(), (x * 1e10).floor(), (x * 1e12).round(), (x * 1e10).ceil(), (x * 3e9).trunc(), (x * 1e10) % 7.0,
            torch.fmod(large, 3.0), (x * 1e10) // 3.0, F.mish(large), x.abs().mul(1e36).sqrt(),
            x.abs().mul(1e-36).sqrt(), (x * 1e-30).sin(), (x * 1e-20).tanh(), (x * 1e-20).sigmoid(),
            (x * 1e-25).asinh(), (x * 1e-20).expm1(), (x * 1e-20).log1p(), (x * 1e-20).atan(), (x * 1e-20).erf(),
            (x * 1e-20).sinh(), (x * 1e-20).tan(), (x * 1e-20).asin(), F.gelu(x * 1e-20), F.elu(x * 1e-20),
            F.softsign(large), F.tanhshrink(large), torch.atan2(x * 1e-30, x), torch.atan2(large, x),
            (x * 1e-20).atanh(),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(37))


@case(signs=False)
def rarely_finite(trial: Trial) -> Any:
    """What is not finite in half precision, in orders, in lengths and in functions that have a value there."""
    inf, nan = math.inf, math.nan

    def f(x: torch.Tensor, y: torch.Tensor) -> list[Any]:
        found = [
            torch.heaviside(x, y), torch.nextafter(x, x), torch.nextafter(x, y), torch.nextafter(y * 0, x), x.median(),
            x.nanmedian(), x.view(2, 4).median(1).values, *x.topk(3, largest=False), *x.view(2, 4).topk(2, 1, False),
            x.argsort(descending=True, stable=True), x.cummin(0).values, x.logcumsumexp(0), x[1:7:5].logsumexp((0,)),
            (y * 99).view(2, 4).logsumexp((0, 1)), torch.where(x.isnan(), y, x.abs()).view(2, 4).logsumexp((0, 1)),
            y.digamma(), (y - 0.5).lgamma(), x.digamma(), x.erfinv(), torch.cdist(x.view(4, 2), y.view(4, 2)),
            torch.dist(x, y), F.pairwise_distance(x.view(4, 2), y.view(4, 2)), x.norm(), x.count_nonzero(),
            torch.where(x.isfinite(), x, y), torch.isin(x, y), torch.searchsorted(y.sort().values, x), x.sinc(),
            x.pow(0.5), x.pow(-0.5), x.pow(2), x**-2.0, 2**x, x.exp2(), x.log2(), x.log10(), x.hypot(y), x.copysign(y),
            x.frac(), x.logit(0.1), y.logit(), F.leaky_relu(x, 1.5), F.leaky_relu(x, -0.5),
            F.prelu(x, x.new_tensor(2.0)), F.elu(x), F.selu(x), F.softplus(x), F.mish(x), F.silu(x), x.tan(),
            F.logsigmoid(x), F.tanhshrink(x), F.softshrink(x), F.hardshrink(x), F.hardtanh(x), F.relu6(x),
            F.threshold(x, 0.1, 7.0), F.softsign(x), x.round(), torch.lerp(x, y, 0.5), torch.addcdiv(x, x, y),
            x.remainder(y), torch.fmod(y, x), y % x, y // x, x // y, torch.div(x, y, rounding_mode="trunc"), x.sign(),
            x.signbit(), x.ldexp(y.int()), torch.frexp(x).mantissa, x.trunc(), x.asinh(), x.atanh(), x.acosh(), x.i0(),
            torch.special.i1e(x), x.lgamma(),
        ]  # fmt: skip
        for dtype in (torch.float16, torch.bfloat16):
            half = x.to(dtype)
            found += [
                half.nan_to_num(), half.nan_to_num(1.0, 2.0), half.clamp(-1, 1), half.amax(), half.sort().values,
                half.cummax(0).values, half.relu(), half.sigmoid(), half.argmax(), half.sign(),
                torch.maximum(half, y.to(dtype)), half.exp(), half.isinf(), half.softmax(0), half == half,
            ]  # fmt: skip
        return found

    x = trial.given(torch.tensor([nan, inf, -inf, -0.0, 0.0, 1.0, -2.5, 0.5]))
    return trial.run(f, x, trial.given(torch.tensor([1.0, 0.5, -0.5, 2.0, -1.5, 0.25, -3.2, -7.9])))


@case(reference=False)
def places_of_each_kind(trial: Trial) -> Any:
    """Indices in int32 and uint8, masks, True and False, places counted from the end, repeats of nothing."""

    def f(x: torch.Tensor, i: torch.Tensor, short: torch.Tensor, whole: torch.Tensor, mask: torch.Tensor) -> list[Any]:
        repeats, one, deep, found = (i % 3)[:, None].expand(3, 2).reshape(-1)[:4], i[0] + 3, x.expand(2, 4, 5), []
        for t in (x, whole):
            found += [
                t[short], t[short, short], t[True], t[False], t[None, True], t[i, 1:], t[..., i],
                t[i[:, None], i[None]], t[i[:, None], short], t[[0, -1]], t[-1, ::2], t[1:-1], t.index_select(0, one),
                t.index_select(-2, i % 4), t.gather(-2, i.abs()[:, None] % 4), t.gather(0, i.abs()[None, :2] % 4),
                t.take_along_dim(i.abs()[:, None] % 4, -2), t.take(i), t.take(-i - 1),
                t.index_put((mask,), t.new_tensor(3), True), t.index_put((i,), t.new_tensor(3), True),
                t.index_put((i, i), t[0, :3], True), t.index_put((short,), t[0]), t.index_add(0, i % 4, t[:3], alpha=2),
                t.index_add(1, i % 4, t[:, :3]), t.scatter(0, i[None] % 4, 16777217),
                t.scatter(1, i[:, None] % 4, t[1:] * 2), t.scatter_add(0, (i % 4)[None], t[:2]),
                t.scatter(0, (i % 4)[None], t[1:], reduce="multiply"),
                t.masked_fill(mask, t.new_tensor(2).double().to(t.dtype)),
                t.masked_fill(mask, torch.tensor(3.0 if t.is_floating_point() else 3)), t.put(i, t[0, :3], True),
                t.masked_scatter(mask[:, :1], t.flip(0)), t.tril(7), t.triu(-7), t.tril(-4), t.triu(5), t.tril(2),
                t[:3, :3].diag_embed(0, 0, 2), t[0].diag_embed(-1, 1, 0),
                t.repeat_interleave(repeats, 0, output_size=4), t.repeat_interleave(2),
                torch.cross(t[:3, :3], t[1:, 2:]), torch.linalg.cross(t[:, :3], t[:, 2:]),
                torch.cat([deep[..., 0], t[:2, :4]], -2), torch.cat([t, t], -1), torch.stack([t, t * 2], -2),
                torch.stack([t, t], -3), t.diff(n=2, prepend=t[:, :1]), t.diff(dim=0, append=t[:1], n=2), t.flip(0, 1),
                t.roll(3), t.roll((1, 2), (1, 0)), torch.cross(t[1:], t[:3], dim=0), t.rot90(3), t.unfold(-2, 2, 2),
                t.movedim(-1, 0), torch.tensor_split(t, (1, 3), -1)[1], t.swapaxes(-1, -2) * 1, t.narrow(-1, -2, 2),
                torch.broadcast_to(t[0], (2, 5)), t.expand(2, -1, -1), t.count_nonzero(0), t.argmax(), t.t().argmax(),
                t[:, ::2].argmin(), t.t().amax((1, 0)), deep.amax((2, 0)),
            ]  # fmt: skip
        octets = whole.byte()
        found += [
            mask.diff(), mask.sort(1, True).values, mask.sort(dim=1, descending=True, stable=True).indices,
            mask.cumsum(0), octets.sort(1).values, (whole * 99).byte().sort(dim=1, stable=True).indices, octets.amax(0),
            whole.short().sort(0, True).values, x.kthvalue(2, 0, True).values, x.quantile(x.new_tensor([0.2, 0.9]), 1),
            octets.sum(0), octets.prod(1), F.embedding(short.abs(), x), x.amin((1, 0)), octets // 3, octets - 7,
            octets > 250, octets >> 1,
        ]  # fmt: skip
        return found

    x, mask = trial.tensor(4, 5), trial.tensor(4, 5, dtype=torch.bool)
    places = torch.tensor([-1, 0, 2], device=trial.device)
    return trial.run(f, x, places, places.int(), trial.tensor(4, 5, dtype=torch.int64), mask)


@case(terms=9000, cancels=True)
def long_rows(trial: Trial) -> Any:
    """Rows of several thousand numbers, and columns as long, are reduced to their end."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for t, d in ((x, 1), (y, 0)):
            found += [
                t.softmax(d), t.log_softmax(d), t.logsumexp(d), t.var(d), t.norm(dim=d), t.amax(d), t.argmax(d),
                t.sum(d), t.mean(d), t.prod(d), t.sort(dim=d, stable=True).values, t.topk(9, d).values,
                t.median(d).values, F.normalize(t, dim=d), t.cummax(d).values, t.argmin(d), (t > 3).any(d),
                (t > -3).all(d), t.flip(d), ]  # fmt: skip
        found += [F.layer_norm(x, x.shape[1:]), F.rms_norm(x, x.shape[1:]), F.group_norm(x[None], 3), x @ x.t()]
        return [*found, F.cross_entropy(x, x.argmin(1))]

    return trial.run(f, trial.tensor(3, 8209, low=-2.0, high=2.0), trial.tensor(4099, 5, low=-2.0, high=2.0))
