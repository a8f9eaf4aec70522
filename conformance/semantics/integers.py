"""Integers of every width, at their limits and beyond what floating point can hold."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/integers")

WIDTHS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def _numbers(trial: Trial, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of some numbers, the limits of the dtype among them."""
    info = torch.iinfo(dtype)
    some = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100]
    some += [-1, -2, -3, -7, -100] if info.min else []
    x = torch.tensor(some, dtype=dtype, device=trial.device)
    a, b = torch.meshgrid(x, x, indexing="ij")
    return a.reshape(-1), b.reshape(-1)


def _arithmetic(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    some = torch.where(b == 0, torch.ones_like(b), b)
    some = torch.where(some == -1, torch.full_like(b, 3), some)  # the smallest number has no opposite
    shift = (b & 3).abs()
    return (
        a + b, a - b, a * b, a + 1, a * 3, -a, a.abs(), a // some, a % some, torch.div(a, some, rounding_mode="trunc"),
        torch.fmod(a, some), a << shift, a >> shift, a & b, a | b, a ^ b, ~a, a.square(), torch.sign(a),
    )  # fmt: skip


def _orders(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.maximum(a, b), torch.minimum(a, b), a.clamp(1, 5), a < b, a <= b, a == b, a != b, a > 2, a.max(), a.min(),
        a.amax(0), a.sort(stable=True).values, torch.where(a > b, a, b), a.bool(), a.view(-1, 5).argmax(1),
    )  # fmt: skip


def _sums(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = a.view(-1, 5)
    return (
        a.sum(), rows.sum(0), rows.sum(1), rows.cumsum(1), rows.prod(1), a.sum(dtype=a.dtype), rows.any(1), rows.all(0),
        a.float() * 0.5, a.double(), a.float(), a / 2, a * 0.5, torch.cat([a, b]), rows.t().flip(0), rows[:, ::2],
    )  # fmt: skip


def _conversions(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(a.to(dtype) for dtype in (*WIDTHS, torch.bool))


def _wraps_around(trial: Trial, dtype: torch.dtype) -> Any:
    a, b = _numbers(trial, dtype)
    size = len(a) // 5 * 5
    return trial.run(
        lambda a, b: (_arithmetic(a, b), _orders(a, b), _sums(a, b), _conversions(a, b)), a[:size], b[:size]
    )


@case(reference=False)
def int8(trial: Trial) -> Any:
    """Arithmetic, orders, sums and conversions of int8 wrap around as in eager."""
    return _wraps_around(trial, torch.int8)


@case(reference=False)
def int16(trial: Trial) -> Any:
    """Arithmetic, orders, sums and conversions of int16 wrap around as in eager."""
    return _wraps_around(trial, torch.int16)


@case(reference=False)
def int32(trial: Trial) -> Any:
    """Arithmetic, orders, sums and conversions of int32 wrap around as in eager."""
    return _wraps_around(trial, torch.int32)


@case(reference=False)
def int64(trial: Trial) -> Any:
    """Arithmetic, orders, sums and conversions of int64 wrap around as in eager."""
    return _wraps_around(trial, torch.int64)


@case(reference=False)
def uint8(trial: Trial) -> Any:
    """Arithmetic, orders, sums and conversions of uint8 wrap around as in eager."""
    return _wraps_around(trial, torch.uint8)


@case(reference=False)
def beyond_floating_point(trial: Trial) -> Any:
    """Integers that no float holds keep their last digits: in arithmetic, orders, sums, indices and constants."""
    x = torch.tensor([2**53 + 1, 2**53, -(2**53) - 1, 2**62 + 3, 2**31 + 1, 2**24 + 1], device=trial.device)
    narrow = torch.tensor([2**24 + 1, 2**24, -(2**24) - 1, 2**30 + 1], dtype=torch.int32, device=trial.device)

    def f(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + 1, x.max(), x.sum(), x.sort().values, x == 2**53, x > 2**53, x * 3, x // 2, x % 10, x + (2**53 + 1),
            n + 1, n.max(), n.sum(), n == 2**24, n // 3, n * 2, n.long() * n, torch.maximum(n, n.flip(0)),
            x.clamp(max=2**53 + 1), x.cumsum(0), x + -(2**63), x - (2**63 - 1), x == -(2**63), x.clamp(-(2**63), 5),
            torch.where(x > 0, -(2**63), 2**63 - 1), torch.full_like(x, -(2**63)), x ^ (2**63 - 1),
        )  # fmt: skip

    return trial.run(f, x, narrow)


@case(reference=False)
def shifts_by_any_count(trial: Trial) -> Any:
    """Shifts by as many bits as a number has, or more, leave nothing of it but its sign."""
    counts = torch.tensor([0, 1, 6, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100], device=trial.device)
    given = [torch.tensor([[1], [-1], [77], [torch.iinfo(t).min]], device=trial.device).to(t) for t in WIDTHS]

    def f(given: list[torch.Tensor], counts: torch.Tensor) -> list[torch.Tensor]:
        shifts = [counts.to(n.dtype) for n in given]
        found = [r for n, c in zip(given, shifts, strict=True) for r in (n << c, n >> c)]
        return [*found, given[2] << 31, given[2] >> 31, given[3] >> 63, given[3] << 62, given[0] >> 7]

    return trial.run(f, given, counts)


@case(reference=False)
def quotients_that_are_whole(trial: Trial) -> Any:
    """Division and remainder by negative numbers, where nothing remains and where something does."""
    given = [torch.arange(-12, 13, device=trial.device).to(t) for t in WIDTHS[:4]]

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for n in given:
            m = torch.where(n == 0, 5, n).flip(0).roll(3)
            found += [
                n // -3,
                n % -3,
                n // m,
                n % m,
                torch.fmod(n, -4),
                torch.div(n, m, rounding_mode="trunc"),
                -n // 2,
            ]
            found += [n // -1, torch.remainder(n, 4), torch.floor_divide(n, -5), n.float() // m, n.float() % -3]
        return found

    return trial.run(f, given)


@case(reference=False)
def from_floating_point(trial: Trial) -> Any:
    """Conversions of floats to integers drop the fraction, towards zero."""
    x = trial.given(torch.tensor([0.5, -0.5, 1.5, -1.5, 2.5, -2.9, 99.999, -99.999, 0.0, -0.0, 127.0, 126.7]))
    return trial.run(
        lambda x: (x.int(), x.long(), x.to(torch.int8), x.short(), x.abs().byte(), x.bool(), x.double().int()), x
    )


@case("bool", reference=False)
def bools(trial: Trial) -> Any:
    """Bools count as one and zero, and stay bools where eager keeps them."""
    a, b = trial.tensor(67, dtype=torch.bool), trial.tensor(67, dtype=torch.bool)

    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            a + b, a * b, a & b, a | b, a ^ b, ~a, a.sum(), a.any(), a.all(), a.cumsum(0), a.float().mean(), a == b,
            a.long() - b.long(), a.max(), torch.where(a, 1, 2), a.prod(), a.to(torch.uint8), a > b,
        )  # fmt: skip

    return trial.run(f, a, b)


@case("complex64")
def complex_arithmetic(trial: Trial) -> Any:
    """Complex numbers are multiplied, divided, conjugated and summed as such, or refused."""
    x, y = trial.tensor(33, dtype=torch.complex64), trial.tensor(33, dtype=torch.complex64)
    x, y = torch.complex(x.real, trial.tensor(33).to(x.real)), torch.complex(y.real, trial.tensor(33).to(y.real))

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * y, x / y, x.conj() * y, x.abs(), x.angle(), x.sum(), x.real + y.imag, torch.exp(x), x + 1, x.conj()

    return trial.run(f, x, y)


@case(reference=False)
def products_of_matrices(trial: Trial) -> Any:
    """Products of matrices of large integers are exact, and wrap around at the limits of their type."""
    given = [
        trial.tensor(5, 7, dtype=t, low=-high, high=high)
        for t, high in ((torch.int64, 1 << 40), (torch.int32, 1 << 28), (torch.int16, 1 << 14), (torch.int8, 1 << 6))
    ]

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        return [r for x in given for r in (x @ x.t(), x @ x[0], torch.bmm(x[None], x.t()[None]))]

    return trial.run(f, given)


@case()
def wide_integers_to_floats(trial: Trial) -> Any:
    """A conversion rounds once: 64 bits become a float32 without being a float64 on the way."""
    ties = [(1 << n) + (1 << n - 24) + more for n in (54, 57, 60, 62) for more in (-1, 0, 1)]
    x = torch.tensor([*ties, *(-n for n in ties), (1 << 63) - 1, -(1 << 63), 16777217], device=trial.device)
    return trial.run(lambda x: (x.float(), x.double(), x.to(torch.float32) * 2), x)


@case("complex64", elementwise=True, signs=False)
def complex_extremes(trial: Trial) -> Any:
    """Absolute values, quotients and roots of large and small complex numbers do not overflow on the way, and lie on
    eager's side of the cut."""
    parts = torch.tensor([1e25, -1e25, 1e-25, 3.0, -2.0, 0.5, 1e10])
    real, imaginary = torch.meshgrid(parts, parts, indexing="ij")
    x = trial.given(torch.complex(real, imaginary).flatten())
    return trial.run(
        lambda x: (x.abs(), x.sqrt(), (x / (3 + 4j)).abs(), x.angle(), torch.view_as_real(x.sgn()), x / x.flip(0)), x
    )


@case("bool", reference=False)
def beside_numbers(trial: Trial) -> Any:
    """Integers beside fractions, negative numbers, powers of two and numbers that their type does not hold; orders of
    their limits; bits beside bools; 256 of them that are true."""
    limits = [(t, torch.iinfo(t)) for t in WIDTHS]
    rows = [([i.min, 3, 2, i.max, 5], [-7 if i.min else 7, 2, 0, 1, 2]) for _, i in limits]
    given = [torch.tensor(numbers, dtype=t) for numbers, (t, _) in zip(rows, limits, strict=True)]
    flags = torch.zeros(3, 512, dtype=torch.bool)
    flags[0, ::2] = flags[1] = True

    def f(given: list[torch.Tensor], flags: torch.Tensor) -> list[Any]:
        found: list[Any] = [flags.any(1), flags.sum(1), flags.all(1), flags.any(), flags.any(0), flags.count_nonzero(1)]
        for n in given:
            found += [
                n > 2.5, n >= 2.5, n < 2.5, n <= -0.5, n == 2.5, n != 2.0, n > -1, n == -1, n < 300, n == 300,
                n >= -200,
                torch.div(n, 2, rounding_mode="trunc"), torch.fmod(n, 4), n // 4, n % 8, torch.div(n, 8), n / 3,
                n.argmin(1), n.argmax(1), n.amin(1), n.sort(dim=1, descending=True, stable=True),
                n.sort(dim=1, stable=True),
                n.argsort(dim=1, descending=True, stable=True), n[:1].topk(2).values, n.topk(2, largest=False).values,
                n.min(1),
                n.kthvalue(2, 1).values, n & flags[:2, :5], n | flags[:2, :5], n ^ flags[:2, :5], n * flags[:2, :5],
                1 << (n & 3),
                100 >> (n & 3), n + 0.5, n * 0.1, n.clamp(0.5, 2.5), n.unique(), n[1].clamp(min=0).bincount(),
            ]  # fmt: skip
        return found

    return trial.run(f, [n.to(trial.device) for n in given], flags.to(trial.device))
