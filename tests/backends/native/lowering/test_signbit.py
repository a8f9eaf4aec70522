"""``aten.signbit``: zeros and NaN have signs too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

from ..conftest import both_targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats(check: Any, dtype: torch.dtype) -> None:
    numbers = torch.tensor([-2, -0.0, 0.0, 2, -torch.inf, torch.inf, torch.nan]).to(dtype)
    numbers = torch.cat([numbers, numbers[-1:].copysign(torch.tensor(-1.0, dtype=dtype))])
    assert "torch's kernels" not in str(check(lambda x: torch.signbit(x), numbers))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_others(check: Any, dtype: torch.dtype) -> None:
    assert "torch's kernels" not in str(check(lambda x: torch.signbit(x), torch.tensor([1, 0, 2]).to(dtype)))
    assert "torch's kernels" not in str(check(lambda x: torch.signbit(-x), torch.tensor([-1, 0, 2])))


@both_targets
def test_zeros_keep_their_signs(check: Any) -> None:
    """What is written as -0.0 in the program, and what the opposite of zero is."""
    numbers = torch.tensor([-2, -0.0, 0.0, 2, torch.inf])

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        signed = -x, x + -0.0, torch.copysign(x, -0.0), torch.full_like(x, -0.0), torch.where(x > 1, x, -0.0)
        return tuple(torch.signbit(y) for y in signed)

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        check(f, numbers.to(dtype))


@both_targets
def test_sums_begin_with_a_positive_zero(check: Any) -> None:
    """A sum of negative zeros, also of one alone, is a positive one; a product or an extremum of one is what it is."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = x[0, 0]
        sums = x.sum(0), x.mean(0), x.sum(1), one.sum(), one.mean(), x.nansum(0), x.cumsum(0), one.cumsum(0), x.trace()
        pooled = F.avg_pool1d(x, 1), F.adaptive_avg_pool1d(x, 2), F.adaptive_avg_pool1d(x, 3)
        others = x.prod(0), x.amax(0), x.amin(0), x.cumprod(0)
        return tuple(torch.signbit(y) for y in (*sums, *pooled, *others))

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        check(f, torch.full((1, 4), -0.0, dtype=dtype))


def test_what_a_sum_leaves_as_it_is_is_rounded_nowhere_or_everywhere(check: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        return mean.sum(1) - mean.select(1, 0)

    x = (torch.randn(8, 17, 16) * 3).bfloat16()
    check(f, x)
    assert not torchmux.compile(f, backend="native")(x).any()
