"""What a compiler may take for the same and what not: identities of real numbers that computed numbers do not have."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from ..special import NUMBERS

case = Collection("semantics/identities")


def _given(trial: Trial) -> torch.Tensor:
    return trial.given(torch.tensor(NUMBERS))


@case(elementwise=True)
def nothing_and_one(trial: Trial) -> Any:
    """A number plus nothing, times one or nothing, less itself, by itself: nan, infinities and signs remain."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        zero, one = torch.zeros_like(x), torch.ones_like(x)
        return [
            x * 0, 0 * x, x * zero, x - x, x / x, 0 / x, zero / x, x + 0.0, x + -0.0, x - 0.0, 0.0 - x, x + zero,
            zero - x, x * 1, x / 1, one * x, x * -1, x.neg().neg(), -x, x**1, x**0, zero**x, 1.0**x, x.pow(zero),
            x // 1,
            x % 1, x.fmod(-1.0), torch.addcmul(x, x, zero), torch.lerp(x, x, 0.5), x * (x > 0), (x > 0) * x + 0,
            x + x * 0, torch.where(x == x, x, zero), torch.where(x > 0, x, x), x.nan_to_num(0.0) * 0,
        ]  # fmt: skip

    return trial.run(f, _given(trial))


@case(elementwise=True, signs=False)
def orders(trial: Trial) -> Any:
    """The opposite of less is not greater or equal; extremes of equals, bounds in the wrong order, nan as a bound."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        nan = torch.full_like(x, math.nan)
        return [
            ~(x < y), ~(x >= y), ~(x == y), (x < y) | (x >= y), (x > y) ^ (x < y), x == x, x != x, x < math.nan,
            torch.maximum(x, x), torch.minimum(x, x), torch.maximum(x, nan), torch.fmax(x, nan), x.clamp(2, -2),
            x.clamp(min=1).clamp(max=-1), x.clamp(y, -y), x.clamp(min=nan), x.clamp(-math.inf, math.inf), x.relu() == x,
            torch.minimum(torch.maximum(x, y), y), x.clamp(max=0).abs(), -torch.maximum(-x, -y), x.sign() * x.abs(),
            torch.where(x < y, y, x), torch.where(~(x < y), y, x), (x - y) > 0, (x - y).abs() == (y - x).abs(),
            torch.copysign(x, y).signbit(), x.isnan().logical_not() & (x.abs() != math.inf), x.clamp_min(-0.0),
        ]  # fmt: skip

    x = _given(trial)
    return trial.run(f, x, torch.where(torch.arange(len(x), device=x.device) % 3 == 0, x, x.roll(5)))


@case(elementwise=True, signs=False, subnormals=False, reference=False)
def steps_that_do_not_cancel(trial: Trial) -> Any:
    """Steps that cancel for real numbers overflow, underflow or round on the way, each in its turn."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x * 1e30 * 1e-30, x * 1e30 * 1e30, x / 1e30 / 1e30 * 1e38, (x + 1e8) - 1e8, (x * 3) / 3, 1 - (1 - x),
            x + 1e20 - 1e20, x / 2.5e-39, x / 1e-10 / 1e35, x.square().sqrt(), x.abs().sqrt().square(), (x - 1) + 1,
            (x + x.flip(0)) - x.flip(0), 1 / (1 / x), (x * x.flip(0)) / x, x * 0.5 + x * 0.5,
        ]  # fmt: skip

    return trial.run(f, _given(trial))


@case(elementwise=True, reference=False)
def conversions_in_turn(trial: Trial) -> Any:
    """A conversion to a narrower type and back is none that may be left out; rounding twice is not rounding once."""
    x = trial.given(torch.tensor([0.1, 1.0009765, 65519.9, 70000.0, -1e-8, 3.3, 300.7, -2.5, 127.9, 16777217.0, 1e-45]))

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        small = x.clamp(-100, 100)
        return [
            x.half().float(), x.bfloat16().float(), x.double().float() == x, x.half().double(), x.bfloat16().half(),
            small.int().float(), small.to(torch.int8).float(), small.long() == small, x.bool().float(), x.half() + 0,
            (x.half() * 3).float(), (x.half().float() * 3).half(), (x.bfloat16() + x.bfloat16()).float(),
            small.to(torch.int32).to(torch.int8).to(torch.int32), (x.double() * 3).float(), x.half().bfloat16().float(),
        ]  # fmt: skip

    return trial.run(f, x)


@case(reference=False)
def integers_at_their_limits(trial: Trial) -> Any:
    """The next integer is not always larger, an absolute value not always positive, and twice by two not always one."""
    limits = {t: torch.iinfo(t) for t in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)}
    given = [torch.tensor([i.min, i.min + 1, 0, 1, i.max // 2 + 1, i.max - 1, i.max, 5], dtype=t)
             for t, i in limits.items()]  # fmt: skip

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for n in given:
            m = n.flip(0)
            found += [
                n + 1 > n, n - 1 < n, n.abs() < 0, n.neg().neg() == n, (n * 2) // 2, (n << 1) >> 1, n * 3 == n + n + n,
                n - m > 0, n > m, (n + m) // 2, (n - m).abs(), n * n, torch.where(n + 1 > n, n, m), n // 1, n % 1,
                n * 0, n - n, n ^ n, n & n, n | 0, n & -1 if n.dtype is not torch.uint8 else n & 255, -n, 0 - n,
                n.bool().to(n.dtype), n.sign() * n.abs(), n.clamp(1, -1), n.float().to(n.dtype) if n.element_size() < 4
                else n + 0, n / n.new_full((), 2), n.long() + n, (n > 0) + n, n.double() / 3,
            ]  # fmt: skip
        return found

    return trial.run(f, [n.to(trial.device) for n in given])


@case(reference=False)
def divisions_by_nothing(trial: Trial) -> Any:
    """Integers divided by zero raise eager's exception, floats do not; nothing ends the process."""
    n, zero = torch.tensor([3, -4], device=trial.device), torch.tensor([2, 0], device=trial.device)
    found: list[Any] = []
    for function in (lambda n, z: n // z, lambda n, z: n % z, lambda n, z: torch.div(n, z, rounding_mode="trunc"),
                     lambda n, z: n.fmod(z), lambda n, z: n / z, lambda n, z: n.double() // z,
                     lambda n, z: n.int() // z.int(), lambda n, z: n.float() % z):  # fmt: skip
        try:
            found.append(trial.run(function, n, zero))
        except (RuntimeError, ZeroDivisionError) as error:
            found.append(type(error).__name__)
    return found


@case(terms=96)
def layers_in_turn(trial: Trial) -> Any:
    """Layers that compilers join: what pads before a window, norms before products, parts of parts, orders of orders,
    what is joined, selected, scaled or turned before it is multiplied, summed or made to shares."""
    index = torch.tensor([3, 0, 3, 1], device=trial.device)

    def f(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        mean, spread = v.detach(), v.detach().abs() + 0.5
        normed, far = F.batch_norm(x, mean, spread, v, v), m * 40
        row = m.relu()
        return [
            F.conv2d(F.pad(x, (1, 0, 2, 1), value=0.5), w), F.conv2d(F.pad(x, (1, -1, -1, 1)), w, padding=1),
            F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), w),
            F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 2), F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2),
            F.avg_pool2d(F.pad(x, (-1, 1)), 3, 1, 1),
            F.max_pool2d(F.max_pool2d(x, 3, 1, 1), 2), F.conv2d(normed, w, padding=1),
            F.batch_norm(F.conv2d(x, w, v[:4]), mean, spread, v, v),
            F.linear(F.batch_norm(m, mean, spread, v, v), m), F.conv2d(F.conv2d(x, w, padding=1), w),
            F.linear(F.linear(m, m, v), m, v), (m @ m) @ m,
            (far.exp() * 1e30).log(), (far * 1e3).log1p().expm1(), m.abs().log().exp(), (m * 3).softmax(1),
            (m / 0.3).log_softmax(0), m.softmax(1).sum(1),
            torch.cat([m, m * 2], 1) @ torch.cat([m, m]), F.linear(torch.stack([m, m + 1]), m), m[index].sum(0),
            m.index_select(1, index).mean(0), m[index] @ m,
            F.one_hot(index).to(m.dtype) @ m, m.flip(0).cumsum(0).flip(0), row.cumsum(1),
            m.cumsum(1)[:, 2] - m.cumsum(1)[:, 0], row.sort(1).values, row.topk(2).values,
            x[:, ::2][:, 1:], x[:, -3:][:, :-1], x[..., 1:][..., ::2], x[:, 1:-1].flip(1)[:, 1:], m.t().t() @ m,
            x.permute(3, 0, 1, 2).permute(1, 3, 2, 0) + 1,
            x.transpose(1, 3).reshape(2, -1) * 2, x.view(8, 25).softmax(1), x.flatten(2).mean(2), m.repeat(2, 3).sum(0),
            m.expand(5, 4, 4).sum(0), m.clamp(0, 1).clamp(0.5, 2),
            m.clamp(-1, 0.2).clamp(0.3, 1), m.mean(0).mean(), m.sum(0).mean(),
            F.interpolate(x, scale_factor=2)[:, :, ::2], F.conv2d(F.interpolate(x, scale_factor=2), w),
            F.adaptive_avg_pool2d(x, 1).flatten(1) @ m, (m @ m.t()).softmax(1) @ m, m.sin().var(0),
            (m > 0).to(m.dtype).sum(1) * m[0], torch.cat([m[:2], m[2:]]) + m, F.dropout(m, 0.0) @ m,
            torch.cat(m.split(1)[::-1]), m.unsqueeze(0).expand(3, 4, 4).reshape(12, 4) @ m, m.neg().neg(),
            m.neg().abs(), m.t().contiguous().view(2, 8) * 2, m.half().float().sum(1) * m.detach()[0],
        ]  # fmt: skip

    def places(m: torch.Tensor) -> list[torch.Tensor]:
        near = torch.tensor(
            [[0.0, 1e-9, 30.0, 30.0], [90.0, -90.0, 100.0, 100.0 + 1e-5], [1.0, 1.0, 1.0, 1.0]],
            device=m.device,
            dtype=m.dtype,
        )
        return [
            near.softmax(1).argmax(1),
            near.sigmoid().argmax(1),
            near.tanh().argmin(1),
            (m > 0).sum(1).argmax(),
            m.relu().argmax(1),
            m.relu().argmin(0),
        ]

    given = trial.tensor(2, 4, 5, 5), trial.tensor(4, 4, 3, 3), trial.tensor(4, 4), trial.tensor(4)
    return trial.run(f, *given), trial.run(places, given[2])
