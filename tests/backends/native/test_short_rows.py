"""Rows of a few elements, which are written out and computed for a vector of rows at once: values, and the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiers import slow_but
from torch import Tensor
from torch.nn import functional as F

import torchmux

from .conftest import assert_as_exact_as_eager, in_double


def code(compiled: Any) -> str:
    return "".join(g.report.output_code[0] for g in torchmux.report(compiled).graphs)


def same(function: Callable[..., Any], *inputs: Tensor) -> str:
    """Compare with eager, judged by float64; the C++ code."""
    torchmux.reset()
    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=False)
    exact = [in_double(x) for x in inputs]
    assert_as_exact_as_eager(compiled(*inputs), function(*inputs), function(*exact), factor=4.0)
    return code(compiled)


def reduced(x: Tensor) -> list[Tensor]:
    return [
        *(x.softmax(-1), x.log_softmax(-1), x.sum(-1), x.mean(-1, keepdim=True), x.prod(-1), x.amax(-1), x.std(-1)),
        *(x.norm(dim=-1), F.normalize(x, dim=-1), F.layer_norm(x, x.shape[-1:]), x - x.mean(-1, keepdim=True)),
        *((x > 0).any(-1), (x > 0).all(-1), (x > 0).sum(-1), x.argmax(-1), x.argmin(-1, keepdim=True), *x.max(-1)),
    ]


@pytest.mark.parametrize("count", [3, 8])
def test_reductions_of_short_rows(count: int) -> None:
    text = same(reduced, torch.randn(37, count))
    assert f"load_few<{count}>" in text
    assert "fold_sweep" not in text


@pytest.mark.parametrize("count", [2, 5, 6, 12, 16])
def test_rows_of_up_to_a_vector(count: int) -> None:
    assert f"load_few<{count}>" in same(lambda x: (x.softmax(-1), x.argmax(-1)), torch.randn(37, count))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_short_rows_of_other_dtypes(dtype: torch.dtype) -> None:
    def few(x: Tensor) -> list[Tensor]:
        return [x.sum(-1), x.amax(-1), x.argmax(-1), x * x.amax(-1, keepdim=True)]

    assert "load_few<7>" in same(few, torch.randn(3, 19, 7).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_rows_of_half_precision_are_rounded_before_they_are_converted(dtype: torch.dtype) -> None:
    def few(x: Tensor) -> list[Tensor]:
        return [x.sum(-1).float(), x.sum(0).float(), (x * 1.3).amax(0).double(), x.prod(-1).float(), x.sum(-1)]

    torchmux.reset()
    for found in torchmux.compile(few, backend="native", fullgraph=True)(torch.randn(11, 7).to(dtype)):
        assert torch.equal(found, found.to(dtype).to(found.dtype))


def test_short_rows_of_integers() -> None:
    def few(x: Tensor) -> list[Tensor]:
        return [x.sum(-1), x.amax(-1), x.argmin(-1), x.prod(-1), (x > 1).any(-1), x.flip(-1) * 2]

    for dtype in (torch.int64, torch.int32, torch.uint8):
        x = torch.randint(0, 5, (50, 5)).to(dtype)
        compiled = torchmux.compile(few, backend="native", fullgraph=True, dynamic=False)
        for got, expected in zip(compiled(x), few(x), strict=True):
            assert got.dtype is expected.dtype
            assert torch.equal(got, expected)


def test_special_values_in_short_rows() -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, nan, nan], [nan, 5.0, nan], [inf, inf, 1.0], [-inf, 2.0, 2.0], [-0.0, -0.0, -0.0], [0.0, -0.0, 0.0]]
    x = torch.tensor(rows * 7)

    def few(x: Tensor) -> list[Tensor]:
        return [x.argmax(-1), x.argmin(-1), x.amax(-1), x.amin(-1), x.sum(-1), x.softmax(-1), x.prod(-1)]

    compiled = torchmux.compile(few, backend="native", fullgraph=True, dynamic=False)
    for got, expected in zip(compiled(x), few(x), strict=True):
        assert torch.equal(got.nan_to_num(9.0), expected.nan_to_num(9.0))
        if got.is_floating_point():
            assert torch.equal(got.signbit() & ~got.isnan(), expected.signbit() & ~expected.isnan())


def test_short_rows_that_lie_otherwise() -> None:
    def few(x: Tensor) -> list[Tensor]:
        return [x.softmax(-1), x.argmax(-1), x.sum((0, 2))]

    wide = torch.randn(5, 40, 12)
    for x in (wide[..., :3], wide[..., ::4], wide[..., 2:10:2], torch.randn(5, 6, 40).transpose(1, 2)):
        same(few, x)


def test_what_follows_short_rows_is_beside_vectors_of_rows() -> None:
    def looking(eye: Tensor, target: Tensor, up: Tensor) -> Tensor:
        z = F.normalize(eye - target, dim=-1)
        x = F.normalize(torch.linalg.cross(up.expand_as(z), z), dim=-1)
        return torch.stack((x, torch.linalg.cross(z, x), z), -1)

    text = same(looking, torch.randn(70, 3), torch.randn(70, 3), torch.tensor([0.0, 1.0, 0.1]))
    assert "wrapped(" not in text


def test_rows_in_place_of_what_they_are_made_of() -> None:
    def overwrite(x: Tensor) -> Tensor:
        x.sub_(x.mean(-1, keepdim=True))
        return x.amax(-1)

    x = torch.randn(41, 4)
    given, expected = x.clone(), x.clone()
    got = torchmux.compile(overwrite, backend="native", fullgraph=True)(given)
    assert torch.allclose(got, overwrite(expected))
    assert torch.allclose(given, expected)


_THIN = [((100, 3), (3, 3)), ((64, 16), (16, 4)), ((50, 8), (8, 8)), ((3, 3), (3, 200)), ((2, 3, 3), (2, 3, 70))]


@pytest.mark.parametrize("dtype", slow_but([torch.float32, torch.float64], torch.float32))
def test_thin_products_are_loops(dtype: torch.dtype) -> None:
    for left, right in [*_THIN, ((90, 4, 4), (90, 4, 4)), ((8, 30, 3), (8, 3, 3))]:
        text = same(lambda a, b: F.relu(a @ b) + 1, torch.randn(left).to(dtype), torch.randn(right).to(dtype))
        assert " product(" not in text
        same(lambda a, b: a @ b.mT, torch.randn(left).to(dtype), torch.randn(right).mT.contiguous().to(dtype))


def test_products_that_are_not_thin() -> None:
    for left, right in [((100, 3), (3, 32)), ((100, 40), (40, 4)), ((4, 3), (3, 3))]:
        assert "product(" in same(lambda a, b: a @ b, torch.randn(left), torch.randn(right))


def test_mirrored_rows_in_a_frame() -> None:
    def framed(*xs: Tensor) -> list[Tensor]:
        return [F.pad(x.flip(-1), (3, 4, 1, 2))[..., 2:-1] for x in xs]

    types = (torch.float32, torch.int64, torch.uint8, torch.bfloat16)
    given = [(torch.randn(3, 5, n) * 9).to(t) for t in types for n in (2, 15, 40)]
    compiled = torchmux.compile(framed, backend="native", fullgraph=True)
    for got, expected in zip(compiled(*given), framed(*given), strict=True):
        assert torch.equal(got, expected)
    assert "load_some_back(" in code(compiled)


def test_rows_that_lie_apart_are_not_written_out() -> None:
    def turned(x: Tensor, by: Tensor) -> Tensor:
        first, last = x[..., :4], x[..., 4:]
        a, b = first.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.cat((first * by + torch.stack((-b, a), -1).flatten(-2) * (1 - by), last), -1)

    written = same(turned, torch.randn(16, 40, 8), torch.randn(40, 4))
    assert written.count("store(") <= 4  # those of a pair in either half, but not of 16 pairs that share the angle


def test_a_function_of_each_row_alone_is_computed_in_vectors_of_rows() -> None:
    """One number takes as long as a vector of them; what the rows need themselves stays in them."""

    def distances(a: Tensor, b: Tensor) -> list[Tensor]:
        return [torch.acosh(1 + 2 * (a - b).square().sum(-1)), (a * b).logsumexp(-1)]

    def scaled(a: Tensor) -> Tensor:
        return a * a.mean(-1, keepdim=True).exp().log1p()

    assert same(distances, torch.randn(99, 37), torch.randn(99, 37)).count("parallel(") > 1
    assert same(scaled, torch.randn(99, 37)).count("parallel(") == 1
