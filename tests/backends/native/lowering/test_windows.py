"""Pooling, unfolding and resampling over generated windows, with their gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiers import slow_but
from torch import Tensor

import torchmux

SIZES = (2, 3, 14, 23)


def _settings(seed: int) -> dict[str, Any]:
    """Windows that torch takes."""
    chosen = random.Random(seed)
    size = [chosen.choice((1, 2, 3, 4)) for _ in range(2)]
    return {
        "kernel_size": size,
        "stride": [chosen.choice((1, 2, 3)) for _ in range(2)],
        "padding": [chosen.randint(0, k // 2) for k in size],
        "ceil_mode": chosen.random() < 0.4,
    }


def _image(seed: int) -> Tensor:
    image = torch.randn(SIZES)
    return image.to(memory_format=torch.channels_last) if seed % 3 == 0 else image


def _pooled(settings: dict[str, Any], seed: int) -> Callable[[Tensor], list[Tensor]]:
    def function(image: Tensor) -> list[Tensor]:
        values, places = F.max_pool2d(image, **settings, dilation=1 + seed % 2, return_indices=True)
        averages = F.avg_pool2d(image * 2, **settings, count_include_pad=seed % 2 == 0)
        given = F.avg_pool2d(image, **settings, divisor_override=3)
        return [values, places, F.relu(F.max_pool2d(image + 1, **settings)), averages + 1, given]

    return function


@pytest.mark.parametrize("seed", slow_but(range(60), *range(3)))
def test_pooling(check: Any, seed: int) -> None:
    image = _image(seed)
    image[0, 0, 3, 4] = image[0, 0, 3, 5] = float("nan")
    image[1, 1] = float("-inf")
    check(_pooled(_settings(seed), seed), image)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_pooling_of_symbolic_sizes(layout: torch.memory_format) -> None:
    """The same code for images of all sizes: windows of one, of as many as the image is wide, and over borders."""

    def function(image: Tensor) -> list[Tensor]:
        return [
            *F.max_pool2d(image, (2, 3), 2, 1, return_indices=True),
            F.max_pool2d(image, 2),
            F.avg_pool2d(image, (3, 1), 1, (1, 0), count_include_pad=False),
            F.avg_pool2d(image, 2, 1, 1),
            F.max_pool2d(image, 2, ceil_mode=True),
        ]

    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for sizes in ((2, 3, 20, 33), (3, 2, 5, 4), (2, 5, 3, 2)):
        image = torch.randn(sizes).contiguous(memory_format=layout)
        image[0, 0, 1, 1] = float("nan")
        image[1, 1] = float("-inf")
        for found, expected in zip(compiled(image), function(image), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)
            assert found.stride() == expected.stride()
    assert {c.node for c in torchmux.report(compiled).library_calls} == {"max_pool2d_with_indices_2"}


def _gradients(function: Callable[[Tensor], list[Tensor]], image: Tensor) -> Tensor:
    image = image.detach().clone().requires_grad_()
    total = sum((out * torch.linspace(0, 1, out.numel()).view(out.shape)).sum() for out in function(image))
    assert isinstance(total, Tensor)
    total.backward()
    assert image.grad is not None
    return image.grad


@pytest.mark.parametrize("seed", slow_but(range(40), *range(3)))
def test_gradients_of_pooling(seed: int) -> None:
    pooled = _pooled(_settings(seed), seed)

    def function(image: Tensor) -> list[Tensor]:
        values, _, *others = pooled(image * image)
        return [values, *others]

    image = _image(seed)
    got, eager = _gradients(torchmux.compile(function, backend="native"), image), _gradients(function, image)
    torch.testing.assert_close(got, eager)
    assert got.stride() == eager.stride()


def test_other_ranks_and_adaptive_windows(check: Any) -> None:
    def function(image: Tensor, volume: Tensor) -> list[Tensor]:
        three, three_at = F.max_pool3d(volume, 2, return_indices=True)
        two, two_at = F.adaptive_max_pool2d(image[..., :14], 7, return_indices=True)
        return [
            three, three_at, two, two_at,
            F.max_pool1d(image[0], 3, 2, 1), F.avg_pool1d(image[0], 4, 2, 1), F.avg_pool2d(image[..., :14], (14, 7)),
            F.avg_pool3d(volume, 3, 2, 1),
            F.adaptive_avg_pool2d(image[..., :14], 7), F.adaptive_avg_pool2d(image, 5),
            F.adaptive_avg_pool3d(volume, (2, 2, 4)),
        ]  # fmt: skip

    check(function, torch.randn(SIZES), torch.randn(1, 2, 6, 8, 16))


def _moved(image: Tensor) -> list[Tensor]:
    columns = F.unfold(image * 2, 3, padding=1)
    return [
        columns, F.unfold(image, (3, 2), dilation=2, stride=2), F.fold(columns + 1, SIZES[-2:], 3, padding=1),
        *(F.interpolate(image * 2, scale_factor=s) for s in (2, 3)),
        F.interpolate(image, (14, 46), mode="nearest-exact"),
        F.pixel_shuffle(image.repeat(1, 4, 1, 1), 2), F.pixel_unshuffle(image[..., :22] + 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
def test_unfolding_and_resampling(check: Any, last: bool) -> None:
    check(_moved, _image(0 if last else 1))


def test_gradients_of_unfolding_and_resampling() -> None:
    image = _image(1)
    torch.testing.assert_close(_gradients(torchmux.compile(_moved, backend="native"), image), _gradients(_moved, image))


def test_adaptive_windows_that_differ() -> None:
    """Longer and shorter windows, some of which share elements; and more windows than elements."""

    def pooled(line: Tensor, *images: Tensor) -> list[Tensor]:
        sizes = (7, (5, 3), (25, 2), (18, 19))
        found = [F.adaptive_avg_pool2d(image.relu(), size) for image in images for size in sizes]
        return [*found, F.adaptive_avg_pool1d(line, 7), F.adaptive_avg_pool3d(images[0][None], (2, 5, 4))]

    image = torch.randn(2, 3, 18, 19)
    image[0, 0, 3, 4], image[1, 1, 0, 0] = float("inf"), float("nan")
    images = image, image.contiguous(memory_format=torch.channels_last), image.double()[:, :, :, 2:], image.bfloat16()
    compiled = torchmux.compile(pooled, backend="native", strict="own")
    line = torch.randn(2, 3, 30)
    for found, expected in zip(compiled(line, *images), pooled(line, *images), strict=True):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found.stride() == expected.stride()


def test_windows_of_symbolic_batches(check: Any) -> None:
    check(
        lambda image: F.max_pool2d(image, 3, 2, 1) + F.avg_pool2d(image, 3, 2, 1), torch.randn(SIZES), dynamic={0: (0,)}
    )


def test_folding(check: Any) -> None:
    """Windows that begin at whole steps of the image and others, with and without gaps."""
    settings = (
        ((1, 12 * 32), (1, 64), (1, 32), (0, 0), 1), ((8, 12), (4, 4), (2, 2), (2, 2), 1),
        ((9, 13), (3, 3), (2, 2), (1, 1), 1), ((10, 11), (5, 3), (3, 2), (2, 1), 1),
        ((1, 500), (1, 100), (1, 40), (0, 30), 1), ((1, 350), (1, 30), (1, 40), (0, 7), 1),
        ((8, 8), (2, 2), (3, 3), (0, 0), 1), ((9, 9), (3, 3), (1, 2), (1, 1), 2),
    )  # fmt: skip
    for size, kernel, stride, padding, dilation in settings:
        counts = [
            (n + 2 * p - dilation * (k - 1) - 1) // s + 1
            for n, k, s, p in zip(size, kernel, stride, padding, strict=True)
        ]
        columns = torch.randn(2, 3 * kernel[0] * kernel[1], counts[0] * counts[1])

        def folded(x: Tensor) -> Tensor:
            return F.fold(x * 2, size, kernel, dilation, padding, stride) + 1  # noqa: B023 (called at once)

        assert "col2im" not in str(check(folded, columns).library_calls)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_negative_zeros_that_are_folded_become_zeros(stride: int, dilation: int) -> None:
    """Eager adds windows to an image of zeros."""
    extent = 4 if dilation == 1 else 5
    counts = ((extent - dilation - 1) // stride + 1) ** 2
    columns = torch.full((1, 8, counts), -0.0)

    def folded(x: Tensor) -> Tensor:
        return F.fold(x, (extent, extent), (2, 2), dilation, 0, stride)

    assert not folded(columns).signbit().any()
    assert not torchmux.compile(folded, backend="native")(columns).signbit().any()


@pytest.mark.parametrize("pad", [(-1, 2, 0, 1), (2, -1, 1, -1), (-1, -1, 3, 3), (-2, 1, 0, 0)])
def test_a_circular_pad_that_cuts_off(pad):
    """What it cuts off does not come back on the other side."""
    x = torch.randn(1, 2, 5, 5)
    compiled = torchmux.compile(lambda x: torch.nn.functional.pad(x, pad, mode="circular"), backend="native")
    assert torch.equal(compiled(x), torch.nn.functional.pad(x, pad, mode="circular"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "dtype", slow_but([torch.float32, torch.float64, torch.bfloat16], torch.float32, torch.bfloat16)
)
@pytest.mark.parametrize(
    ("sizes", "dim", "size", "step"),
    [((3, 50), 1, 8, 3), ((3, 50), -1, 8, 10), ((2, 40, 5), 1, 6, 4), ((2, 800), 1, 400, 160), ((17, 4), 0, 5, 1),
     ((50,), 0, 7, 2), ((2, 8, 9, 10), 2, 3, 2)],
)  # fmt: skip
def test_gradients_of_overlapping_windows(
    dtype: torch.dtype, sizes: tuple[int, ...], dim: int, size: int, step: int
) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x * 1.5).unfold(dim, size, step) * weight

    torchmux.reset()
    x, weight = torch.randn(sizes, dtype=dtype, requires_grad=True), torch.randn(size, dtype=dtype)
    y = x.detach().clone().requires_grad_()
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    expected = function(y, weight)
    gradient = torch.randn_like(expected)
    expected.backward(gradient)
    compiled(x, weight).backward(gradient)
    units = 40 if dtype is torch.bfloat16 else 8
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=units * torch.finfo(dtype).eps)
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.stride() == y.grad.stride()
    assert not torchmux.report(compiled).library_calls


LARGE: dict[str, Callable[[Tensor], Tensor]] = {
    "largest": lambda x: F.max_pool2d(x, 15, 1, 7),
    "dilated": lambda x: F.max_pool2d(x, (7, 3), 1, (3, 1), dilation=2),
    "rounded up": lambda x: F.max_pool2d(x, 5, 3, 2, ceil_mode=True),
    "in three dimensions": lambda x: F.max_pool3d(x[None], (3, 5, 5), 1, (1, 2, 2)),
    "averages without padding": lambda x: F.avg_pool2d(x, 9, 1, 4, count_include_pad=False),
    "averages, rounded up": lambda x: F.avg_pool2d(x, (7, 5), 3, (3, 1), ceil_mode=True),
    "another divisor": lambda x: F.avg_pool2d(x, 6, 2, divisor_override=7),
}


@pytest.mark.parametrize("which", LARGE)
@pytest.mark.sampled(2)
def test_large_windows(check: Any, which: str) -> None:
    """One dimension after the other, in both layouts; torch is not called."""
    for dtype, layout in ((torch.float32, torch.contiguous_format), (torch.bfloat16, torch.channels_last)):
        image = torch.randn(2, 4, 23, 30).to(dtype).to(memory_format=layout)
        image[0, 0, 3, 4], image[0, 1, 3, 4], image[1, 1] = float("nan"), float("inf"), float("-inf")
        assert not check(LARGE[which], image).library_calls


def _long(seed: int) -> tuple[int, dict[str, Any]]:
    """A length, and windows of more elements than are written out, which may leave elements out or share them."""
    chosen = random.Random(seed)
    size = chosen.choice((33, 40, 64, 65, 100, 129))
    step = chosen.choice((1, 3, size // 2, size - 1, size, size + 5))
    settings = {"kernel_size": size, "stride": step, "padding": chosen.choice((0, 1, size // 2))}
    return chosen.randint(size, 500), {**settings, "ceil_mode": chosen.random() < 0.4}


@pytest.mark.parametrize("seed", slow_but(range(40), 1))
def test_long_windows(check: Any, seed: int) -> None:
    length, settings = _long(seed)

    def function(row: Tensor, image: Tensor, half: Tensor) -> list[Tensor]:
        tall = {name: (v, 1 if name != "padding" else 0) for name, v in settings.items() if name != "ceil_mode"}
        return [
            *(pool(x, **settings) for x in (row, half) for pool in (F.max_pool1d, F.avg_pool1d)),
            F.avg_pool1d(row, **settings, count_include_pad=False),
            F.max_pool2d(image, **tall),
            F.avg_pool2d(image, **tall),
        ]

    row, image = torch.randn(2, 3, length), torch.randn(1, 2, length, 5)
    row[0, 1, length // 3] = float("nan")
    row[1, 2, : length // 2] = float("-inf")
    if seed % 2:
        image = image.contiguous(memory_format=torch.channels_last)
    check(function, row, image, torch.randn(2, length).bfloat16())


@pytest.mark.slow
def test_long_windows_are_own_code() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [F.max_pool1d(x, 50, 7, 20), F.max_pool1d(x, 50, 50)]

    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    compiled(torch.randn(2, 3, 400))
    report = torchmux.report(compiled)
    assert not report.library_calls and not report.fallbacks
