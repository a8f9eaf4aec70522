"""Complex numbers, as pairs of real ones."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from tiers import slow_but
from torch import Tensor

import torchmux


def _numbers(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.complex64)


def _functions(x: Tensor, y: Tensor, w: Tensor) -> list[Tensor]:
    return [
        (x.conj() * y).real + x.imag + x.abs(),
        torch.view_as_real(x * y).flatten(2),
        x / y,
        x / (w + 3),
        1 / y,
        (x * 1j).exp(),
        torch.polar(w, w) * x,
        x.sgn() - (2 - 1j),
        -x + w,
        x**2 + x.square(),
        torch.complex(w, w + 1) - y,
        (x == y) | (x != x),
        x.to(torch.complex128) * w.double(),
    ]


def _moves(x: Tensor, y: Tensor, w: Tensor) -> list[Tensor]:
    return [
        x.permute(2, 0, 1) + 1,
        torch.cat([x, y], 1),
        torch.stack([x, y], -1),
        x.flip(0).roll(2, -1),
        torch.nn.functional.pad(x, (1, 2)).tril(),
        x[..., 1::2] * 2,
        torch.where(w > 0, x, y),
        x.masked_fill(w > 0, 1 + 2j),
        x[:, torch.tensor([0, 3, 2])].imag,
        x.transpose(0, 1).reshape(5, -1) + 1,
        torch.view_as_complex(torch.stack([w, w + 1], -1)) * x,
        x.contiguous().view(w.dtype) + 1,
        w.contiguous()[..., :6].contiguous().view(x.dtype) * 2,
    ]


def _sums(x: Tensor, y: Tensor, w: Tensor) -> list[Tensor]:
    return [x.sum(), x.sum(-1), x.mean(1, keepdim=True), (x * y).sum((0, 2)), (x @ y.mT.conj()).real + 1]


_ALL = list(itertools.product((_functions, _moves, _sums), ("usual", "permuted", "dynamic")))


@pytest.mark.parametrize("which", slow_but(range(len(_ALL)), 1, 5, 7))
def test_operators(check: Any, which: int) -> None:
    function, layout = _ALL[which]
    x = _numbers(5, 7, 3).permute(2, 0, 1) if layout == "permuted" else _numbers(3, 5, 7)
    dynamic = dict.fromkeys(range(3), (0, 1, 2)) if layout == "dynamic" else None
    report = check(function, x, _numbers(3, 5, 7), torch.randn(3, 5, 7), dynamic=dynamic)
    assert "mul" not in report.library_calls


def _special(dtype: torch.dtype) -> Tensor:
    parts = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e38, 1e-40)
    return torch.tensor([complex(a, b) for a, b in itertools.product(parts, parts)], dtype=dtype)


def _same(got: Tensor, expected: Tensor) -> Tensor:
    """Where two numbers are not numbers, or have equal parts with equal signs, or nearly so."""
    got, expected = (torch.view_as_real(t) if t.is_complex() else t for t in (got, expected))
    exact = (got == expected) & (got.signbit() == expected.signbit())
    near = (got - expected).abs() <= 1e-5 * expected.abs().clamp(min=1e-30)
    return exact | (got.isnan() & expected.isnan()) | (near & (expected != 0))


@pytest.mark.parametrize("dtype", slow_but([torch.complex64, torch.complex128], torch.complex64))
def test_special_values(dtype: torch.dtype) -> None:
    """Infinities, zeros and what is no number, in vectors of eager's."""
    numbers = _special(dtype)
    x, y = numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))
    x, y = x[: len(x) // 16 * 16], y[: len(x) // 16 * 16]

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        found = [x * y, x + y, x - y, x * 2, x / 2, 1 / x, y.exp(), x.abs(), x.sgn(), x.angle(), x.square()]
        return [*found, x + x.real, x / x.real, torch.polar(x.real, y.imag)]

    compiled = torchmux.compile(function, backend="native", strict=True)
    for n, (got, expected) in enumerate(zip(compiled(x, y), function(x, y), strict=True)):
        # Eager's kernels disagree on the signs of the zeros that exp has at infinities in both parts.
        assert (_same(got, expected) | ((got == 0) & (expected == 0) & (n == 6)).unsqueeze(-1)).all(), n
    quotients = torchmux.compile(lambda x, y: x / y, backend="native", strict=True)(x, y)
    # Eager's vectors fuse a product with a sum, and so leave something where all cancels here.
    near = (quotients - x / y).abs() <= 1e-5 * (x / y).abs()
    assert (_same(quotients, x / y) | near.unsqueeze(-1)).all()


def test_conjugates_that_torch_only_notes() -> None:
    compiled = torchmux.compile(lambda x: (x * 2, x.conj(), x.conj() + 1), backend="native")
    for x in (_numbers(33), _numbers(33).conj()):
        for got, expected in zip(compiled(x), (x * 2, x.conj(), x.conj() + 1), strict=True):
            assert torch.equal(got, expected)
            assert got.is_conj() == expected.is_conj()


def test_gradients() -> None:
    def loss(x: Tensor, angle: Tensor) -> Tensor:
        turned = torch.view_as_complex(x.reshape(-1, 4, 2)) * torch.polar(torch.ones_like(angle), angle)
        turned = turned * (1 + 2j)
        squares = (turned * turned.conj()).real.sum() + (turned / (turned + 3)).imag.mean()
        return torch.view_as_real(turned).sigmoid().sum() + squares + turned.abs().sum()

    x, angle = torch.randn(6, 8, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    inputs = x.requires_grad_(), angle.requires_grad_()
    compiled = torchmux.compile(loss, backend="native", strict=True)
    expected = torch.autograd.grad(loss(*inputs), inputs)
    torch.testing.assert_close(torch.autograd.grad(compiled(*inputs), inputs), expected)


def test_frequencies_of_transforms(check: Any) -> None:
    def filtered(x: Tensor) -> list[Tensor]:
        away = torch.fft.fftfreq(x.shape[0], 1 / 3) * x + torch.fft.fftfreq(x.shape[0], dtype=torch.float64)
        return [away, torch.fft.rfftfreq(2 * x.shape[0], -2.5) + 1, torch.fft.fftfreq(7), torch.fft.rfftfreq(1)]

    for count in (6, 9):
        report = check(filtered, torch.zeros(count) - 1)
        assert not report.library_calls
