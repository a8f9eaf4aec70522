"""Rows that begin anew where they end, short reductions, writes that lie apart, and exponentials of what is masked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

SIZES = (3, 16, 17, 40, 129)


def rolled(x: Any) -> Any:
    return x.roll(2, -1), x.roll((-5, 1), (1, 0)), x.roll(7), x.roll(1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.float64])
def test_rolled(check: Any, dtype: torch.dtype) -> None:
    for size in SIZES:
        report = check(rolled, torch.randint(0, 2, (2, size)).to(dtype))
        assert not report.library_calls


@pytest.mark.parametrize("size", SIZES)
def test_rolled_within_arithmetic(check: Any, size: int) -> None:
    check(lambda x: (x + x.roll((1, 1), (0, 1)) * x.roll(-1, 1)) / 3, torch.randn(4, size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_circular_padding(check: Any, dtype: torch.dtype) -> None:
    def program(x: Any, y: Any) -> Any:
        return (
            F.pad(x, (2, 3, 1, 2), "circular") * 2,
            F.pad(y, (5, 0), "circular"),
            F.pad(y.exp(), (20, 20), "circular"),
        )

    report = check(program, torch.randn(2, 3, 6, 21).to(dtype), torch.randn(2, 3, 20).to(dtype))
    assert not report.library_calls


def test_repeated(check: Any) -> None:
    check(lambda x: x.repeat(2, 3) + 1, torch.randn(2, 19))


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 12])
def test_short_reductions(check: Any, length: int) -> None:
    def program(x: Any) -> Any:
        return (
            x.sum(-1),
            x.amax(-1),
            x.prod(-1),
            x.argmin(-1),
            x.var(-1, unbiased=False),
            x.softmax(-1),
            (x > 0).any(-1),
        )

    check(program, torch.randn(70, length))


def test_windows(check: Any) -> None:
    check(lambda x: (x.unfold(-1, 5, 1) * torch.arange(-2.0, 3.0)).sum(-1) / 10, torch.randn(3, 60))


def test_writes_that_lie_apart(check: Any) -> None:
    def program(x: Any, at: Any, y: Any) -> Any:
        return x.index_fill(1, at, 0.5), x.index_copy(1, at, y), x.index_add(1, at, y)

    check(program, torch.randn(33, 20), torch.tensor([3, 0, 3, 19]), torch.randn(33, 4))


def test_masked_exponentials_vanish(check: Any) -> None:
    low = torch.tensor([0.0, -87.0, -88.5, -103.0, -103.9, -104.0, -1e4, float("-inf"), float("nan"), float("inf")])
    check(lambda x: x.exp(), low.repeat(5))
    mask = torch.rand(9, 33) > 0.5
    check(lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1), torch.randn(9, 33), mask.logical_and(mask.any(0)))


def test_lanes(check: Any) -> None:
    x = torch.randn(6, 100)
    x[0, 3] = float("nan")
    x[1] = 0.0
    x[2, 50] = -float("inf")
    check(lambda x: (x.amax(1), x.amin(1), x.prod(1), x.sum(1), x.mean(1)), x)
