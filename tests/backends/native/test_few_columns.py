"""Reductions over rows of a few columns, of which many are taken at a time: values, and the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import torchmux

from .conftest import assert_as_exact_as_eager, in_double


def same(function: Callable[..., Any], *inputs: Tensor) -> str:
    """Compare with eager, judged by float64; the C++ code."""
    torchmux.reset()
    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=False)
    exact = [in_double(x) for x in inputs]
    assert_as_exact_as_eager(compiled(*inputs), function(*inputs), function(*exact), factor=4.0)
    return "".join(g.report.output_code[0] for g in torchmux.report(compiled).graphs)


def reduced(x: Tensor) -> list[Tensor]:
    return [
        *(x.sum(0), x.mean(0), x.amax(0), x.amin(0), x.std(0), (x > 2.9).any(0), (x > -9).all(0), x.norm(dim=0)),
        *(x.logsumexp(0), x.softmax(0), x - x.mean(0), (x * 0.001 + 1).prod(0), x.argmax(0)),
    ]


def test_rows_of_three() -> None:
    assert "96l*i" in same(reduced, torch.randn(640, 3))
    assert "96l*i" not in same(lambda x: x.amax(0), torch.randn(997, 3))  # which has no divisors


def test_sums_along_columns_are_as_exact_as_those_of_eager() -> None:
    """Added one after the other in float32, a thousand numbers are off by ten times what eager's sums are."""

    def sums(x: Tensor, y: Tensor) -> list[Tensor]:
        parts = y.permute(0, 2, 1, 3).flatten(2).mean(-1)  # one loop, which walks two dimensions
        return [x.sum(0), (x * 2).view(77, 13, 64).sum((0, 1)), x.t().contiguous().view(8, 8, 1001).sum(1), parts]

    inputs = torch.rand(1001, 64), torch.rand(2, 143, 20, 7)
    got = torchmux.compile(sums, backend="native", fullgraph=True, dynamic=False)(*inputs)
    for ours, eager, exact in zip(got, sums(*inputs), sums(*map(in_double, inputs)), strict=True):
        assert float((ours - exact).norm()) < 2 * float((eager - exact).norm())


def test_only_some_of_the_loops_that_are_kept_are_neighbours() -> None:
    images = torch.randn(2, 3, 16, 20).to(memory_format=torch.channels_last)
    text = same(lambda x: (x.mean((2, 3)), x.amax((2, 3)), F.batch_norm(x, None, None, training=True)), images)
    assert "60l" in text


def test_values_of_columns_and_of_two_kept_loops() -> None:
    def few(x: Tensor, w: Tensor) -> list[Tensor]:
        return [(x * w).sum((0, 1)), (x - x.mean((0, 1))).square().sum((0, 1)), x.transpose(0, 2).sum((1, 2))]

    same(few, torch.randn(24, 32, 2, 3), torch.randn(2, 3))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_integers(dtype: torch.dtype) -> None:
    x = torch.randint(0, 200, (32, 40, 3)).to(dtype)

    def few(x: Tensor) -> list[Tensor]:
        return [x.sum((0, 1)), x.amax((0, 1)), x.any(1)]

    torchmux.reset()
    compiled = torchmux.compile(few, backend="native", fullgraph=True, dynamic=False)
    for got, expected in zip(compiled(x), few(x), strict=True):
        assert got.dtype is expected.dtype
        assert torch.equal(got, expected)


def test_special_values() -> None:
    x = torch.randn(512, 4)
    x[100, 0], x[7, 1], x[8, 1], x[300, 2] = float("nan"), float("inf"), -float("inf"), -float("inf")
    same(lambda x: (x.sum(0), x.amax(0), x.amin(0)), x)


@pytest.mark.slow
def test_gradients() -> None:
    x = torch.randn(512, 3, requires_grad=True)
    w = torch.randn(3, requires_grad=True)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return ((x * w - x.mean(0)) ** 2).sum(0).log().sum()

    expected = torch.autograd.grad(loss(x, w), (x, w))
    torchmux.reset()
    compiled = torchmux.compile(loss, backend="native", fullgraph=True)
    for got, wanted in zip(torch.autograd.grad(compiled(x, w), (x, w)), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [pytest.param(torch.bfloat16, marks=pytest.mark.slow), torch.float16], ids=str)
def test_thin_products_in_half_precision_are_loops_and_rounded_once(dtype: torch.dtype) -> None:
    def thin(a: Tensor, b: Tensor, x: Tensor, w: Tensor, bias: Tensor) -> list[Tensor]:
        return [a @ b, (a.softmax(-1) @ b).relu(), x @ w * 2, F.linear(x, w, bias), a.mT @ a]

    shapes = (20, 1, 4), (20, 4, 24), (300, 3), (3, 3), (3,)
    text = same(thin, *(torch.randn(shape).to(dtype) for shape in shapes))
    assert "bmm" not in text and "mm(" not in text


@pytest.mark.parametrize("dtype", [pytest.param(torch.bfloat16, marks=pytest.mark.slow), torch.float16], ids=str)
def test_matrices_times_a_vector_in_half_precision(dtype: torch.dtype) -> None:
    """One column is read as a row, in each layout of the matrices; the library is not called."""

    places = torch.tensor([2, 0, 0])

    def function(a: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
        return [
            a @ v,
            a.mT @ w,
            a[0] @ v[0],
            a[1, :, :5] @ v[1, :5] + 1,
            torch.einsum("bij,bj->bi", a, v[..., 0]),
            a[places] @ v,
        ]

    a, v, w = (torch.randn(sizes, dtype=dtype) for sizes in ((3, 37, 20), (3, 20, 1), (3, 37, 1)))
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    found, expected = compiled(a, v, w), function(a, v, w)
    for x, y, exact in zip(found, expected, function(a.double(), v.double(), w.double()), strict=True):
        assert x.stride() == y.stride()
        torch.testing.assert_close(x.double(), exact, rtol=torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)
    assert not {call.op for call in torchmux.report(compiled).library_calls} - {"aten.mm.default"}  # of 5 elements
