"""``aten.signbit``: zeros and NaN have signs too."""

from __future__ import annotations

from typing import Any

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats(check: Any, dtype: torch.dtype) -> None:
    numbers = torch.tensor([-2, -0.0, 0.0, 2, -torch.inf, torch.inf, torch.nan]).to(dtype)
    numbers = torch.cat([numbers, numbers[-1:].copysign(torch.tensor(-1.0, dtype=dtype))])
    assert "torch's kernels" not in str(check(lambda x: torch.signbit(x), numbers))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_others(check: Any, dtype: torch.dtype) -> None:
    assert "torch's kernels" not in str(check(lambda x: torch.signbit(x), torch.tensor([1, 0, 2]).to(dtype)))
    assert "torch's kernels" not in str(check(lambda x: torch.signbit(-x), torch.tensor([-1, 0, 2])))
