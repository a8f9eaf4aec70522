"""What is computed in loops of a few points, in pieces, or backwards: beside eager, in values, dtypes and strides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiers import slow_but
from torch.nn import functional as F

import torchmux


def same(function: Any, *inputs: Any, error: float = 2e-6, **options: Any) -> None:
    """Compare all results of ``function`` under the backend with eager's."""
    expected = function(*inputs)
    found = torchmux.compile(function, backend="native", fullgraph=True, options=options)(*inputs)
    for n, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride()), n
        assert torch.allclose(x.double(), y.double(), rtol=error, atol=error, equal_nan=True), n


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    return (torch.randn(shape) * 40).to(dtype)


def test_mirrored_images_and_rows() -> None:
    def images(*xs: Any) -> Any:
        return [x.permute(0, 3, 1, 2).float() * 2 + x.flip(2).permute(0, 3, 1, 2) for x in xs]

    sizes = ((2, 5, 37, 3), (1, 4, 16, 4), (2, 3, 50, 2), (1, 2, 3, 3))
    same(images, *(torch.randint(0, 256, s, dtype=torch.uint8) for s in sizes), *(numbers(*s) for s in sizes))

    def rows(*xs: Any) -> Any:
        return [x.flip(-1) for x in xs] + [x[..., ::2].flip(-1) for x in xs]

    types = (torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.float64)
    same(rows, *(numbers(3, n, dtype=t) for t in types for n in (5, 74)))


def test_numbers_beside_positions() -> None:
    wide = torch.tensor(
        [[-(2**40), -1, 0, 3, 16], [17, 36, 37, 2**31 - 1, 2**31], [2**32, 2**32 + 3, 2**62, -(2**63), 5]]
    )

    def compared(x: Any) -> Any:
        at = torch.arange(37)
        pairs = [(at, x[..., None]), (x[..., None], at)]
        found = [f(a, b) for a, b in pairs for f in (torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne)]
        marked = [f(a, b).to(t) for a, b in pairs for f in (torch.lt, torch.eq) for t in (torch.float32, torch.half)]
        return [*found, *marked, (x[..., None] == at).float().sum(1), (at < x[..., None]).long()]

    same(compared, wide)


def test_arithmetic_of_positions() -> None:
    def moved(x: Any) -> Any:
        at = torch.arange(x.shape[1])
        turned = [x[:, (at + k) % x.shape[1]] for k in (1, 5)]
        return [*turned, x[:, at - 1], x[:, at // 2], x[:, (at * 3) % 7], (at - 9) // 4, (at - 9) % 4, at * 2**40 + at]

    def turned(x: Any) -> Any:  # rows that are walked beside a vector
        return [x[:, (torch.arange(3) + k) % 3] * x for k in (1, 2)]

    same(moved, numbers(4, 19))
    same(turned, numbers(64, 3))


def test_conversions_of_conversions() -> None:
    def converted(x: Any, u: Any, s: Any) -> Any:
        return [
            *((x > 0).long().float(), (x > 0).int().to(torch.uint8), u.long().to(torch.int8), u.int().half()),
            *(s.int().to(torch.uint8).float(), s.long().double(), s.to(torch.uint8).long(), (s.long() * 3).float()),
        ]

    same(converted, numbers(5, 33), torch.randint(0, 256, (5, 33), dtype=torch.uint8), numbers(5, 33, dtype=torch.int8))


def test_parts_are_assigned_from_rows_that_data_choose() -> None:
    def mixed(x: Any, order: Any) -> Any:
        inside, edge, none = x.clone(), x.clone(), x.clone()
        inside[:, :, 2:5, 3:20] = x[order][:, :, 2:5, 3:20]
        edge[1:3, :, :4] = x[order][1:3, :, 4:8]
        none[:, :, 3:3] = x[order][:, :, 3:3]
        return inside, edge, none

    x = numbers(4, 3, 8, 24)
    same(mixed, x, torch.tensor([2, 0, 3, -1]))
    compiled = torchmux.compile(mixed, backend="native", fullgraph=True)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([2, 0, 4, 1]))


def test_running_sums_of_some_rows_at_a_time() -> None:
    def summed(*xs: Any) -> Any:
        return [x.cumsum(-1) for x in xs] + [(x * 0.01).exp().cumprod(-1) for x in xs] + [x.cumsum(0) for x in xs]

    same(
        summed, *(numbers(n, 21) for n in (1, 3, 4, 7)), numbers(2, 5, 9), numbers(3, 6, 7).transpose(0, 1), error=1e-5
    )
    same(lambda x: [x.cumsum(-1), (x > 0).cumsum(-1)], numbers(6, 11, dtype=torch.int64))


def test_functions_of_short_rows() -> None:
    def weighted(s: Any, c: Any) -> Any:
        w = (1 - torch.exp(-s)) * torch.exp(s - s.cumsum(-1))
        return (w[..., None] * c).sum(-2), c.logsumexp(-1), c / c.square().sum(-1, keepdim=True).exp().log1p()

    same(weighted, torch.rand(70, 9), torch.randn(70, 9, 3), error=1e-5)


_FILTERS = [
    ((2, 6, 40), (6, 1, 4), {}),
    ((2, 6, 40), (6, 1, 3), {"padding": 2, "stride": 2, "dilation": 2}),
    ((2, 3, 20, 23), (3, 1, 5, 5), {"padding": (1, 2)}),
    ((1, 1, 12, 9), (1, 1, 3, 3), {"padding": 1}),
    ((2, 4, 5, 6, 7), (4, 1, 2, 2, 2), {"stride": 2}),
    ((2, 8, 9, 9), (8, 1, 6, 6), {}),  # a library's
]


@pytest.mark.parametrize("dtype", slow_but([torch.float32, torch.bfloat16], torch.float32))
def test_windows_of_one_channel(dtype: torch.dtype) -> None:
    def filtered(*given: Any) -> Any:
        found = []
        for (x, w, b), (_, _, settings) in zip(given, _FILTERS, strict=True):
            call = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
            found += [call(x, w, b, groups=x.shape[1], **settings), F.relu(call(x, w, groups=x.shape[1], **settings))]
        return found

    given = [
        (torch.randn(x, dtype=dtype), torch.randn(w, dtype=dtype), torch.randn(w[0], dtype=dtype))
        for x, w, _ in _FILTERS
    ]
    error = 1e-5 if dtype is torch.float32 else 6e-2
    same(filtered, *given, error=error)
    last = torch.channels_last
    same(
        filtered,
        *((x.to(memory_format=last) if x.dim() == 4 and len(w) > 1 else x, w, b) for x, w, b in given),
        error=error,
    )
    library = torchmux.compile(filtered, backend="native", options={"matmul": "library"})
    library(*given)
    assert len(torchmux.report(library).library_calls) > len(_FILTERS)


def test_windows_of_one_channel_have_gradients() -> None:
    x, w = torch.randn(2, 6, 18, requires_grad=True), torch.randn(6, 1, 4, requires_grad=True)

    def loss(x: Any, w: Any) -> Any:
        return F.silu(F.conv1d(x, w, padding=3, groups=6)).square().sum()

    expected = torch.autograd.grad(loss(x, w), (x, w))
    found = torch.autograd.grad(torchmux.compile(loss, backend="native")(x, w), (x, w))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_many_small_products() -> None:
    def products(*pairs: Any) -> Any:
        return [p @ q for p, q in pairs] + [q.mT @ p.mT for p, q in pairs] + [p @ p.mT for p, _ in pairs]

    sizes = ((3, 3, 3), (4, 8, 2), (1, 5, 1), (8, 1, 8), (9, 8, 8), (7, 7, 16))
    same(products, *((torch.randn(33, m, k), torch.randn(33, k, n)) for m, k, n in sizes), error=1e-5)


def test_rows_that_are_summed_or_change_their_width() -> None:
    special = torch.tensor([0.0, -0.0, 1e-45, 1e38, float("inf"), -float("inf"), float("nan"), 1 / 3, -7.25])

    def widths(x: Any, wide: Any) -> Any:
        return [x.double() + 1, x.double() * wide, (wide * 3).float(), wide.float()]

    def sums(x: Any, cancelling: Any) -> Any:
        return [x.sum(-1), (x * 2).mean(-1), (x.double() * 2).float().sum(-1), cancelling.sum(-1)]

    for n in (9, 16, 37):
        x, wide = torch.randn(3, n), torch.randn(3, n, dtype=torch.float64) * 1e30
        x[0, :9], wide[1, :9] = special, special.double() * (1 + 1e-12)
        same(widths, x, wide, error=0)
        cancelling = torch.zeros(3, 16)  # in float32, the ones between would be lost
        cancelling[:, 0], cancelling[:, 8], cancelling[:, 4:7] = 2.0**30, -(2.0**30), 1.0
        same(sums, torch.randn(4, n), cancelling)
