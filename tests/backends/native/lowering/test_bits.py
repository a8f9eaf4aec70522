"""``view(dtype)``: memory seen as another dtype."""

from __future__ import annotations

import pytest
import torch
from tiers import slow_but
from torch import Tensor

import torchmux

_DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
)  # fmt: skip


@pytest.mark.parametrize("source", slow_but(_DTYPES, torch.float64, torch.bfloat16, torch.uint8))
def test_of_inputs_and_of_what_is_computed(source: torch.dtype) -> None:
    def function(x: Tensor) -> list[Tensor]:
        computed = x * 2
        found = [x.view(dtype).clone() for dtype in _DTYPES] + [computed.view(dtype) for dtype in _DTYPES]
        return [*found, *(x.t().view(dtype).clone() for dtype in _DTYPES if dtype.itemsize == source.itemsize)]

    x = torch.randint(0, 127, (3, 10 * 8), dtype=torch.uint8).view(source)
    compiled = torchmux.compile(function, backend="native")
    for got, expected in zip(compiled(x), function(x), strict=True):
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert "fallback" not in str(torchmux.report(compiled))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_dynamic_sizes(dtype: torch.dtype) -> None:
    compiled = torchmux.compile(lambda x: (x.view(dtype) ^ 3, x[1:, 1:-1] - x[:-1, 2:]), backend="native", dynamic=True)
    for sizes in ((4, 6), (5, 8), (2, 2), (1, 4)):
        x = torch.randint(0, 9, sizes, dtype=torch.int32)
        for got, expected in zip(compiled(x), (x.view(dtype) ^ 3, x[1:, 1:-1] - x[:-1, 2:]), strict=True):
            assert torch.equal(got, expected)
            assert got.stride() == expected.stride()
    assert "fallback" not in str(torchmux.report(compiled))


def test_exponents_of_floats() -> None:
    x = torch.tensor([1.5, -2.0, 0.0, -0.0, float("inf"), 1e-40, 3e38, 7.0])
    compiled = torchmux.compile(lambda x: ((x.view(torch.int32) >> 23) & 255) - 127, backend="native", strict=True)
    assert compiled(x).tolist() == [0, 1, -127, -127, 128, -127, 127, 2]
