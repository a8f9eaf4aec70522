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


def test_inputs_are_read_as_they_lie_in_memory() -> None:
    def words(b: Tensor, h: Tensor) -> list[Tensor]:
        return [
            b.view(torch.int32) ^ 5,
            b[:, 8:24].view(torch.int64) + 1,
            h.view(torch.int16) >> 10,
            h[1:].view(torch.uint8),
        ]

    b, h = torch.randint(0, 256, (6, 40), dtype=torch.uint8), torch.randn(5, 9).half()
    compiled = torchmux.compile(words, backend="native", strict=True)
    for got, expected in zip(compiled(b, h), words(b, h), strict=True):
        assert got.dtype is expected.dtype
        assert torch.equal(got, expected)
    cpp = torchmux.report(compiled).graphs[0].report.output_code[0]
    assert "(i32*)in" in cpp
    assert "<<" not in cpp


def test_inputs_seen_otherwise_that_are_written_or_given_to_torch() -> None:
    def written(x: Tensor) -> Tensor:
        bits = x.view(torch.int32) + 1
        x.mul_(2)
        return bits ^ x.view(torch.int32)

    def sorted_bits(x: Tensor) -> list[Tensor]:
        return [*x[2:].view(torch.int32).sort(), x.view(torch.int16).clone()]

    x = torch.randn(8, 6)
    given, expected = x.clone(), x.clone()
    assert torch.equal(torchmux.compile(written, backend="native")(given), written(expected))
    assert torch.equal(given, expected)
    for got, right in zip(torchmux.compile(sorted_bits, backend="native")(x), sorted_bits(x), strict=True):
        assert torch.equal(got, right)
