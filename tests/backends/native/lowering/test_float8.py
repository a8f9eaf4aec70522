"""Conversions from and to floating-point numbers of 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import torchmux

FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _same(function: Callable[..., Any], *inputs: Tensor, own: bool = True, **options: Any) -> None:
    torchmux.reset()
    copies = [x.clone() for x in inputs]
    compiled = torchmux.compile(function, backend="native", **options)
    for found, expected in zip(compiled(*inputs), function(*copies), strict=True):
        assert found.dtype is expected.dtype
        assert found.stride() == expected.stride()
        same = found.contiguous().view(torch.uint8) == expected.contiguous().view(torch.uint8)
        numbers = found.isnan() & expected.isnan()  # there are many of them
        assert (same.view(*found.shape, -1).all(-1) | numbers).all()
    for x, y in zip(inputs, copies, strict=True):
        assert torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
    assert (not torchmux.report(compiled).fallbacks) == own


def _of_all_bits(dtype: torch.dtype) -> Tensor:
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    return torch.arange(2**16).to(torch.int16).view(dtype)


def test_all_numbers() -> None:
    """Every number of 8 bits in other types, and every number of half precision, and many others, in 8 bits."""
    many = torch.arange(-(2**31), 2**31, 50021).to(torch.int32).view(torch.float32)
    between = torch.cat([_of_all_bits(each).float() for each in FORMATS]) * 1.0625  # ties, and what is near

    def function(small: Tensor, large: Tensor, *given: Tensor) -> list[Tensor]:
        return [x.to(d) for x in (small, large) for d in FLOATS] + [x.to(d) for x in given for d in FORMATS]

    given = (many, between, between.double() * (1 + 2**-40), _of_all_bits(torch.bfloat16), _of_all_bits(torch.float16))
    _same(function, *map(_of_all_bits, FORMATS), *given, torch.arange(-600, 600))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_layouts(dtype: torch.dtype) -> None:
    weight = torch.randn(12, 20).to(dtype)

    def function(w: Tensor, x: Tensor) -> list[Tensor]:
        pairs = w.view(6, 2, 20)[:, None].expand(6, 3, 2, 20)
        return [w.t().float(), w[3:11:2, 5].double(), pairs.bfloat16(), x.t().to(dtype), (x * 4).to(dtype).float() / 4]

    for w in (weight, weight[:, ::2].repeat(1, 2), torch.randn(20, 12).to(dtype).t()):
        _same(function, w, torch.randn(12, 20))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_what_torch_does(dtype: torch.dtype) -> None:
    """Numbers that are moved, that the graph writes, and of symbolic sizes."""
    weight, x = torch.randn(12, 20).to(dtype), torch.randn(12, 20)
    _same(lambda w, x: [w.clone(), w.t().contiguous().float(), x.to(dtype).view(-1)], weight, x, own=False)
    _same(lambda w: [w.float().sum(0), w.t().bfloat16()], weight, own=False, dynamic=True)

    def writing(w: Tensor, x: Tensor) -> list[Tensor]:
        before = w.float() + 1
        w.copy_(x)
        return [before, w.float()]

    torchmux.reset()
    compiled, other = torchmux.compile(writing, backend="native"), weight.clone()
    for found, expected in zip(compiled(weight, x), writing(other, x), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(weight.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [False, True])
def test_weights(freeze: bool) -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(16, 24).to(torch.float8_e4m3fn))

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.linear(x, self.weight.to(x.dtype) * 0.5).relu()

    layer, x = Layer().eval(), torch.randn(3, 24)
    compiled = torchmux.compile(layer, backend="native", options={"freeze": freeze})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))
    assert not torchmux.report(compiled).fallbacks


@pytest.mark.slow
def test_gradients() -> None:
    def function(x: Tensor) -> Tensor:
        return ((x * 4).to(torch.float8_e4m3fn).float() / 4 * x).square().sum()

    x = torch.randn(5, 7, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    compiled = torchmux.compile(function, backend="native")
    compiled(x).backward()
    function(y).backward()
    torch.testing.assert_close(x.grad, y.grad)
