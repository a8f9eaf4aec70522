"""Convolutions choose the order of dimensions in memory that suits them."""

from __future__ import annotations

import ctypes
import platform
import re

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native.targets.cpu import build, libraries, packing


def network(x, first, second, third):
    y = F.max_pool2d(F.relu(F.conv2d(x, first, stride=2)), 2)
    z = F.relu(F.conv2d(y, second) * 2)
    return F.conv2d(z + y, third, padding=1)


def test_images_of_few_channels_lie_channels_last(check) -> None:
    weights = torch.randn(16, 3, 3, 3), torch.randn(16, 16, 1, 1), torch.randn(20, 16, 3, 3)
    report = check(network, torch.randn(2, 3, 33, 41), *weights)
    code, python = report.output_code
    assert re.search(r"fit\(\w+, \(5120, 1, 320, 16, \)\)", python)  # of the first convolution: 16 channels of 16 by 20
    assert re.search(r"product\(.*, b\d+, 16l, false, in\d+, 16l, true, 160l, 16l, 16l,", code)  # pixels, as pooled


def test_heavy_weights_keep_the_usual_order(check) -> None:
    weights = torch.randn(64, 3, 3, 3), torch.randn(64, 64, 1, 1), torch.randn(64, 64, 3, 3)
    python = check(network, torch.randn(1, 3, 15, 15), *weights).output_code[1]
    assert re.search(r"fit\(\w+, \(3136, 1, 448, 64, \)\)", python)
    assert re.search(r"fit\(\w+, \(576, 9, 3, 1, \)\)", python)


def test_windows_of_channels_last_read_weights_of_neighbouring_channels(check) -> None:
    """The channels that a vector has are read at once, for each place in the window."""

    def function(x, weight):
        b, c = x.shape[0], x.shape[2]
        return F.conv2d(x.transpose(1, 2).view(b, c, 8, 8), weight, padding=1, groups=c).flatten(2).transpose(1, 2)

    code = check(function, torch.randn(2, 64, 48), torch.randn(48, 1, 3, 3)).output_code[0]
    assert "load_few<9>" not in code
    assert re.search(r"load\(p\d \+ \(384l \+ i\d\), m\)", code)


def test_images_that_are_returned_lie_as_in_eager(check) -> None:
    def one(x, first):
        return F.conv2d(x, first) + 1

    def several(x, first, second):
        y = F.conv2d(x, first)
        z = F.conv2d(y, second)
        return y, z, (z * 2).relu()

    x, first, second = torch.randn(1, 3, 9, 9), torch.randn(16, 3, 3, 3), torch.randn(16, 16, 3, 3)
    check(one, x, first)
    check(several, x, first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sizes, kernel, stride, padding, groups",
    [
        ((2, 1, 14, 19), (2, 1, 3, 3), 1, 1, 1),
        ((1, 2, 9, 12), (7, 2, 3, 4), 2, (2, 0), 1),
        ((2, 4, 8, 9), (6, 2, 2, 3), 1, 0, 2),  # groups of channels, each with several results
        ((2, 3, 8, 9), (6, 1, 3, 3), (2, 1), 1, 3),
        ((2, 2, 40), (5, 2, 7), 1, 3, 1),
    ],
)
def test_small_windows_are_loops(sizes, kernel, stride, padding, groups, dtype, check) -> None:
    x, weight, bias = torch.randn(sizes).to(dtype), torch.randn(kernel).to(dtype), torch.randn(kernel[0]).to(dtype)
    convolution = F.conv2d if len(sizes) == 4 else F.conv1d

    def function(x, weight, bias):
        return convolution(x, weight, bias, stride, padding, 1, groups).relu(), convolution(x, weight, groups=groups)

    assert not check(function, x, weight, bias).library_calls


def test_what_is_small_is_not_turned(check) -> None:
    """The library is slow with few pixels of few channels that are neighbours, unless some are left out."""

    def function(x, weight):
        return F.conv2d(x, weight, padding=1), F.conv2d(x, weight, stride=2)

    def last(count):
        return check(
            lambda x, w: F.conv2d(x, w, padding=1) + 1, torch.randn(1, 3, count, count), torch.randn(8, 3, 3, 3)
        )

    channels_last = r"fit\(\w+, \(\d+, 1, \d+, 8, \)\)"
    assert not re.search(channels_last, last(32).output_code[1])
    assert re.search(channels_last, last(72).output_code[1])
    check(function, torch.randn(1, 3, 20, 20), torch.randn(8, 3, 3, 3))


SOURCE = """
#include "kernels.h"
#include "convolution.h"
extern "C" void convolve(f32* out, const f32* x, const f32* weight, const f32* bias, i64 relu) {
  convolution<tile_pixels(%(pixels)dl)>(
    out, out, %(count)d, %(height)d, %(width)d, %(n)d, {x, %(rows)d, %(columns)d, %(channels)d},
    {%(ky)d, %(kx)d, %(sy)d, %(sx)d, %(py)d, %(px)d}, weight, bias, relu);
}
"""


def _own_convolution(x, addend, weight, bias, stride, padding, relu):
    """By ``convolution.h``, written over what is added."""
    n, channels, ky, kx = weight.shape
    count, _, height, width = addend.shape
    values = {"pixels": count * height * width, "count": count, "height": height, "width": width, "n": n}
    values |= {"rows": x.shape[2], "columns": x.shape[3], "channels": channels, "ky": ky, "kx": kx}
    values |= {"sy": stride[0], "sx": stride[1], "py": padding[0], "px": padding[1]}
    library = libraries.load(build.compile_source(SOURCE % values))
    library.convolve.argtypes = (*(ctypes.c_void_p,) * 4, ctypes.c_int64)
    packed = packing.weight_by(library, weight)
    x, out = (t.contiguous(memory_format=torch.channels_last).clone() for t in (x, addend))
    at = bias.data_ptr() if bias is not None else None
    library.convolve(out.data_ptr(), x.data_ptr(), packed.data_ptr(), at, relu)
    return out


@pytest.mark.parametrize("march", ["native", "haswell", "x86-64-v2"])
@pytest.mark.parametrize(
    "sizes, kernel, stride, padding, bias, relu",
    [
        ((1, 3, 15, 19), (32, 3, 7, 7), (2, 2), (3, 3), True, True),  # all rows of a window at once
        ((2, 40, 5, 9), (64, 40, 3, 3), (1, 1), (1, 1), False, True),  # tiles across rows and images
        ((1, 130, 4, 7), (96, 130, 2, 5), (3, 1), (0, 4), True, False),  # parts of a row, more border than image
        ((3, 700, 3, 3), (32, 700, 1, 1), (1, 1), (0, 0), False, False),  # windows that lie in the image
        ((1, 512, 5, 4), (64, 512, 1, 1), (2, 1), (0, 0), True, True),
    ],
)
def test_own_convolutions_on_each_width_of_vectors(
    march, sizes, kernel, stride, padding, bias, relu, monkeypatch
) -> None:
    if platform.machine() != "x86_64" and march != "native":
        pytest.skip("needs an x86-64 processor")
    if march == "haswell" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("needs AVX2")
    flags = [f"-march={march}" if flag.startswith("-march") else flag for flag in build.FLAGS]
    monkeypatch.setattr(build, "FLAGS", flags)
    x, weight, shift = torch.randn(sizes), torch.randn(kernel), torch.randn(kernel[0]) if bias else None
    exact = F.conv2d(x.double(), weight.double(), shift.double() if bias else None, stride, padding)
    addend = torch.randn(exact.shape)
    addend[0, 3, 0, 1] = float("nan")
    exact = exact + addend
    found = _own_convolution(x, addend, weight, shift, stride, padding, relu)
    expected = exact.relu() if relu else exact
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("sizes", [(2, 3, 1, 5), (1, 3, 4, 5), (2, 1, 4, 1)])
def test_strides_of_images_of_one_channel(sizes) -> None:
    """They are eager's where a dimension has one element, too, whose stride no element depends on."""
    weight = torch.randn(1, sizes[1], 1, 1)

    def function(x):
        made = F.conv2d(x, weight)
        return made, made.relu() + 1, F.silu(made) * 2, torch.einsum("nchw,dc->ndhw", x, weight[:, :, 0, 0])

    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    x = torch.randn(sizes).to(memory_format=torch.channels_last)
    for found, expected in zip(compiled(x), function(x), strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("groups", [1, 6])
def test_one_number_for_all_dimensions(groups: int, capture) -> None:
    """A graph may have a stride, a padding or a dilation of one number."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution(x, w, None, [2], [1], [1], False, [0], groups) + 1

    x, w = torch.randn(2, 6, 9, 9), torch.randn(6, 6 // groups, 3, 3)
    (found,) = capture(function, x, w).compile("native")(x, w)
    torch.testing.assert_close(found, function(x, w), rtol=1e-4, atol=1e-4)


def test_transposed_convolutions_in_channels_last(check) -> None:
    """The library gets images in channels last, and the result has eager's strides; large weights stay as they are."""

    def f(x, first, second, bias):
        large = F.conv_transpose2d(F.relu(x), first, bias, 2, 1, 1, dilation=2)
        return large, F.conv_transpose2d(large * 2, second, None, 2).mean((2, 3))

    check(f, torch.randn(2, 6, 9, 8), torch.randn(6, 8, 3, 3), torch.randn(8, 5, 2, 2), torch.randn(8))
    check(f, torch.randn(1, 6, 2, 2), torch.randn(6, 8, 3, 3), torch.randn(8, 5, 2, 2), torch.randn(8))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_windows_of_single_channels(transposed: bool, dynamic: bool, capture) -> None:
    """The library computes them from images in channels last, and they lie as eager's."""

    def function(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        settings = [6], [2, 2], [2, 2], [1, 1], transposed, [0, 0], 6, [True, True, True]
        found = torch.ops.aten.convolution_backward(grad * 2, x, w, *settings)
        return found[0], found[1], found[2]

    x, w = torch.randn(2, 6, 9, 7), torch.randn(6, 1, 5, 5)
    grad = torch.randn_like(torch.convolution(x, w, None, [2, 2], [2, 2], [1, 1], transposed, [0, 0], 6))
    if not transposed:  # what comes from rows of pixels, as in ConvNeXt
        grad = grad.to(memory_format=torch.channels_last)
    captured = capture(function, grad, x, w, dynamic={0: (0,), 1: (0,)} if dynamic else None)
    compiled = captured.compile("native")
    for found, expected in zip(captured.run(compiled, grad, x, w), function(grad, x, w), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert found.stride() == expected.stride()
    if not dynamic:
        assert re.search(r"b\d+ = fit\(b\d+, \(378, 1, 42, 6, \)\)", compiled.report.output_code[1])
