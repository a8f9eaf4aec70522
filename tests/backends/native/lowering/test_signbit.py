"""``aten.signbit``: zeros and NaN have signs too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
