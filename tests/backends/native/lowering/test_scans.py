"""Running sums and extremes, along rows and across them, forwards and backwards."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

import torchmux


def _values(dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(9, 133) * 3
    if dtype.is_floating_point:
        x.view(-1)[[0, 2, 300, 700]] = -math.inf
        x.view(-1)[[40, 47, 900]] = math.nan
        x.view(-1)[600] = math.inf
    return x.abs().to(dtype) if dtype is torch.uint8 else x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
def test_extremes_so_far(dtype: torch.dtype) -> None:
    """A nan stays, and the position is that of the last extreme; of rows with positions torch's kernel is called."""

    def function(x: Any) -> Any:
        backwards = x.flip(-1).cummin(-1).values.flip(-1)
        return x.cummax(0), x.cummin(0), x.cummax(-1).values, backwards, x.view(-1).cummax(0), x.cummin(-1)

    x = _values(dtype)
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0, equal_nan=True)
    calls = torchmux.report(compiled).library_calls
    assert [call.node for call in calls] == ["cummin_2"]


@pytest.mark.parametrize("target", ["triton"], indirect=True)
def test_extremes_so_far_of_lanes(check) -> None:
    def function(x: Any) -> Any:
        most, least = x.cummax(0), x.cummin(0)
        return most[0], most[1], least[0], least[1], x.flip(-1).cummax(-1)[0]

    for dtype in (torch.float32, torch.bfloat16, torch.uint8):
        check(function, _values(dtype)[:, :37])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64], ids=str)
def test_sums_in_vectors(dtype: torch.dtype) -> None:
    def function(x: Any) -> Any:
        return x.cumsum(-1), x.view(-1).cumsum(0), x.flip(-1).cumsum(-1), (x[:, :5] > 0).cumsum(-1), x.cumprod(0)

    x = torch.randn(9, 133).mul(3).to(dtype)
    compiled = torchmux.compile(function, backend="native", strict="own")
    torch.testing.assert_close(compiled(x), function(x), **({"rtol": 2e-2, "atol": 1} if dtype.itemsize == 2 else {}))
    code = torchmux.report(compiled).graphs[0].report.output_code[0]
    assert len(re.findall(r"auto all = running\(", code)) >= 2  # alone, or rounded to half precision
