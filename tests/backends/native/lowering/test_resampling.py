"""Images in other sizes: elements that are copies of others, or lie between them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

_SIZES = [
    {"size": (7, 33)},
    {"size": (40, 5)},
    {"scale_factor": 1.7},
    {"scale_factor": (0.37, 2.3)},
    {"size": (12, 57)},
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_neighbours_in_any_step(mode: str, layout: torch.memory_format) -> None:
    """The positions are computed in float32, as torch's kernels compute them."""
    images = [torch.randint(0, 256, (2, 3, 12, 19), dtype=torch.uint8), torch.randn(2, 3, 12, 19)]
    images = [image.contiguous(memory_format=layout) for image in images]

    def function(*images: Any) -> Any:
        return [F.interpolate(image, mode=mode, **given) for given in _SIZES for image in images]

    compiled = torchmux.compile(function, backend="native", strict="own")
    for found, expected in zip(compiled(*images), function(*images), strict=True):
        assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("dynamic", [None, True], ids=["known sizes", "symbolic sizes"])
def test_factors_that_sizes_overrule(dynamic: bool | None) -> None:
    """Five elements that become ten are repeated, by torch's kernel for two dimensions, though the factor is 2.18."""

    def function(image: Any, line: Any) -> Any:
        two = (F.interpolate(image, scale_factor=(a, b)) for a, b in ((2.18, 2.18), (1.1, 2.18), (1.7, 1.1)))
        return (
            *two,
            F.interpolate(image, scale_factor=2.18, mode="nearest-exact"),
            F.interpolate(line, scale_factor=2.18),
        )

    compiled = torchmux.compile(function, backend="native", dynamic=dynamic)
    with torch.no_grad():
        for sizes in ((2, 3, 5, 5), (2, 3, 5, 7)):
            image = torch.randn(sizes)
            for found, expected in zip(compiled(image, image[0]), function(image, image[0]), strict=True):
                assert torch.equal(found, expected)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_symbolic_sizes(layout: torch.memory_format) -> None:
    """Distances are computed when the code runs; sizes that turn out equal make an image of its own elements."""

    def function(image: Any, shape: Any) -> Any:
        size = shape.shape[-2:]
        return (
            *(F.interpolate(image, size, mode=mode) for mode in ("nearest", "nearest-exact", "bilinear")),
            F.interpolate(image, size, mode="bilinear", align_corners=True),
            F.interpolate(image, scale_factor=2, mode="bilinear"),
            F.interpolate(image, scale_factor=(0.6, 1.7), mode="nearest"),
            F.pad(image, (1, 3, 2, 1), mode="replicate"),
            F.pad(image, (1, 2, 2, 1), mode="reflect"),
        )

    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for sizes, size in (
        ((2, 3, 12, 19), (7, 33)),
        ((3, 2, 5, 8), (40, 8)),
        ((2, 2, 9, 4), (9, 3)),
        ((2, 2, 9, 4), (2, 2)),
    ):
        image = torch.randn(sizes).contiguous(memory_format=layout)
        image[0, 0, 3, 3], image[1, 1, 0, 0] = float("inf"), float("nan")
        for found, expected in zip(compiled(image, torch.empty(size)), function(image, torch.empty(size)), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)
            assert found.stride() == expected.stride()
    assert not torchmux.report(compiled).library_calls


@pytest.mark.slow
def test_linear_interpolation() -> None:
    """Between two elements in each dimension, rows read from memory in one piece or not; as torch's kernels do it."""
    pixels = torch.randint(0, 256, (2, 12, 19, 3), dtype=torch.uint8)
    image = torch.randn(2, 3, 12, 19)
    image[0, 0, 3, 4], image[1, 1, 0, 0] = float("inf"), float("nan")
    images = [image, image.contiguous(memory_format=torch.channels_last), image[..., 2:].double(), image.bfloat16()]

    def function(line: Any, volume: Any, pixels: Any, *images: Any) -> Any:
        found = [
            F.interpolate(image, mode="bilinear", align_corners=align, **given)
            for image, align, given in itertools.product(images, (False, True), [*_SIZES, {"size": (1, 2)}])
        ]
        return (
            *found,
            F.interpolate(line, scale_factor=2.3, mode="linear") * 2,
            F.interpolate(volume, size=(3, 9, 7), mode="trilinear"),
            *(F.interpolate(pixels.mT / 255 - 0.5, size=size, mode="bilinear") for size in ((14, 11), (3, 2))),
            F.interpolate(images[0].half().relu(), scale_factor=0.4, mode="bilinear", recompute_scale_factor=True),
        )

    given = torch.randn(2, 3, 50), torch.randn(1, 2, 4, 5, 6), pixels.movedim(3, 1).mT, *images
    compiled = torchmux.compile(function, backend="native", strict="own")
    for found, expected in zip(compiled(*given), function(*given), strict=True):
        torch.testing.assert_close(
            found, expected, equal_nan=True, atol=1e-5, rtol=1e-5 if found.itemsize > 2 else 0.02
        )
        assert found.stride() == expected.stride()


def test_gradients_of_nearest_neighbours() -> None:
    """They are gathered, and not scattered by computed indices."""

    def function(x: Any) -> Any:
        return F.interpolate(x, scale_factor=2).square().sum() + F.interpolate(
            x[0], scale_factor=3, mode="nearest-exact"
        )

    found = []
    for run in (function, torchmux.compile(function, backend="native", strict="own")):
        x = torch.linspace(-1, 1, 2 * 3 * 4 * 5).view(2, 3, 4, 5).requires_grad_()
        run(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)
    assert all("check(" not in code for code in torchmux.report(run).graphs[0].report.output_code)


def test_shuffled_channels() -> None:
    def function(x: Any) -> Any:
        return F.channel_shuffle(x, 3), F.channel_shuffle(x[0].flatten(1)[None], 2) + 1

    x = torch.randn(2, 12, 5, 7)
    compiled = torchmux.compile(function, backend="native", strict="own")
    for found, expected in zip(compiled(x), function(x), strict=True):
        assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8])
def test_interleaved_by_vectors(dtype: torch.dtype) -> None:
    def function(x: Any, y: Any) -> Any:
        z = torch.stack((x, y, -x), -1)
        # The same again, read from memory and taken apart; bytes are not widened for it.
        apart = [x.view(5, -1, 2)[..., 0] + x.view(5, -1, 2)[..., 1], x.view(-1, 5)[:, 1] - x.view(-1, 5)[:, 4]]
        return (
            torch.stack((x, y), -1),
            z,
            torch.stack((x, x + y), -1).flatten(-2),
            torch.stack((y, x, y, y), -1),
            *apart,
        )

    x, y = torch.randint(-9, 9, (5, 70)).to(dtype), torch.randint(-9, 9, (5, 70)).to(dtype)
    compiled = torchmux.compile(function, backend="native", strict="own")
    for found, expected in zip(compiled(x, y), function(x, y), strict=True):
        assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert torchmux.report(compiled).graphs[0].report.output_code[0].count("store_few<") >= 2


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_borders_of_own_elements(layout: torch.memory_format, mode: str) -> None:
    """Written in pieces; what torch refuses is refused, and images may be computed or flipped before."""

    def function(x: Any) -> Any:
        return (
            F.pad(x, (2, 1, 3, 0), mode=mode),
            F.pad(x.flip(-1), (4, 4, 4, 4), mode=mode),
            F.pad(x.exp() * 2, (0, 5, 1, 1), mode=mode),
            F.pad(x[0], (3, 3), mode=mode),
            F.pad(x[None], (1, 2, 0, 3, 1, 1), mode=mode),
        )

    x = torch.randn(2, 3, 9, 11).contiguous(memory_format=layout)
    compiled = torchmux.compile(function, backend="native", strict="own")
    for found, expected in zip(compiled(x), function(x), strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()

    def too_wide(x: Any) -> Any:
        return F.pad(x, (20, 0, 0, 0), mode=mode)

    if mode == "reflect":
        with pytest.raises(RuntimeError, match="Padding size should be less than"):
            torchmux.compile(too_wide, backend="native")(x)
    else:
        torch.testing.assert_close(torchmux.compile(too_wide, backend="native")(x), too_wide(x))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_gradients_of_reflected_borders(layout: torch.memory_format, dtype: torch.dtype) -> None:
    def function(x: Any) -> Any:
        whole = F.pad(x, (2, 1, 3, 0), mode="reflect"), F.pad(x, (10, 10, 8, 8), mode="reflect")
        parts = F.pad(x[0], (12, 0), mode="reflect"), F.pad(x[..., :2].sin(), (1, 1, 0, 1), mode="reflect")
        return (*whole, *parts, F.pad(x[None], (1, 0, 0, 2, 1, 2), mode="reflect"))

    def function_of_parts(x: Any) -> Any:
        return function(x[:, :, :, :13])

    x = torch.randn(2, 3, 9, 16, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    compiled = torchmux.compile(function_of_parts, backend="native", strict="own")
    weights = [torch.randn_like(y) for y in function_of_parts(x)]
    weights[1][0, 0, 3, 3] = float("inf")
    found, expected = (torch.autograd.grad(run(x), x, weights)[0] for run in (compiled, function_of_parts))
    bounds = {"rtol": 2e-2, "atol": 0.1} if dtype is torch.bfloat16 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(found, expected, **bounds)
    assert found.isinf().equal(expected.isinf())


def test_gradients_of_large_windows() -> None:
    """Of more elements than are asked each which of a window they are."""

    def function(x: Any) -> Any:
        return F.max_pool2d(x, 3), F.max_pool2d(x, (1, 8)), F.adaptive_max_pool2d(x, 2), F.max_pool2d(x, 2)

    x = torch.randn(2, 3, 18, 24, requires_grad=True)
    compiled = torchmux.compile(function, backend="native", strict=True)
    weights = [torch.randn_like(y) for y in function(x)]
    found, expected = (torch.autograd.grad(run(x), x, weights)[0] for run in (compiled, function))
    torch.testing.assert_close(found, expected)


AROUND = [
    *(
        {"size": (13, 5), "mode": mode, "align_corners": align}
        for mode in ("bilinear", "bicubic")
        for align in (False, True)
    ),
    {"scale_factor": (1.3, 2.6), "mode": "bicubic"},
    {"scale_factor": 2, "mode": "bilinear"},
    {"size": (9, 11), "mode": "bicubic"},
]


@pytest.mark.parametrize("target", ["triton"], indirect=True)
@pytest.mark.parametrize("dynamic", [None, True])
def test_elements_from_all_around(check: Any, target: str, dynamic: bool | None) -> None:
    """On a GPU, an element is computed at once from those around it, and what follows is fused with it."""

    def function(image: Any) -> Any:
        nearest = F.interpolate(image, size=(13, 5), mode="nearest-exact")
        chosen = [given for given in AROUND if dynamic is None or "size" in given]
        return (nearest, *(F.relu(F.interpolate(image, **given)) for given in chosen))

    image = torch.randn(2, 3, 9, 11).contiguous(memory_format=torch.channels_last)
    report = check(function, image, dynamic=dynamic and {0: (0, 2, 3)}, strict="own")
    assert report.output_code[1].count("launch(") <= len(AROUND) + 1
