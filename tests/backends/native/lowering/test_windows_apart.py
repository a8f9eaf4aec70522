"""Convolutions whose windows do not overlap are products of matrices."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native.targets.cpu import computed

LAYOUTS = (torch.contiguous_format, torch.channels_last)


def one(x, weight, bias, stride=1, transposed=False, output_padding=0):
    rank = weight.dim() - 2
    lists = [stride] * rank, [0] * rank, [1] * rank, transposed, [output_padding] * rank, 1
    return torch.ops.aten.convolution(x, weight, bias, *lists)


CASES = [
    ((2, 3, 12, 8), (20, 3, 4, 4), 4, False, 0),
    ((1, 3, 13, 9), (20, 3, 4, 4), 4, False, 0),  # pixels behind the last window
    ((2, 3, 13, 9), (5, 3, 2, 3), 4, False, 0),  # pixels between windows
    ((3, 18, 5, 7), (24, 18, 1, 1), 1, False, 0),
    ((2, 18, 5, 7), (24, 18, 1, 1), 2, False, 0),
    ((2, 1, 40), (8, 1, 10), 10, False, 0),
    ((1, 2, 4, 6, 9), (4, 2, 2, 3, 3), 3, False, 0),
    ((2, 6, 5, 3), (6, 4, 2, 2), 2, True, 0),
    ((1, 6, 5, 3), (6, 4, 2, 2), 3, True, 2),
    ((1, 6, 5), (6, 4, 3), 3, True, 0),
    ((5, 40, 4, 4), (9, 40, 4, 4), 4, False, 0),  # of many images, each no more than a window
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("sizes, kernel, stride, transposed, output_padding", CASES)
def test_windows_that_do_not_overlap(sizes, kernel, stride, transposed, output_padding, training, check) -> None:
    channels = kernel[1] if transposed else kernel[0]
    for layout in LAYOUTS if len(sizes) == 4 else LAYOUTS[:1]:
        x, weight = torch.randn(sizes).to(memory_format=layout), torch.randn(kernel)
        x, weight, bias = (t.requires_grad_(training) for t in (x, weight, torch.randn(channels)))

        def function(x, weight, bias):
            made = one(x * 2, weight, bias, stride, transposed, output_padding)
            plain = one(x, weight, None, stride, transposed, output_padding)
            return made, plain.flatten(2).transpose(1, 2).relu()

        report = check(function, x, weight, bias)
        assert not any("aten.convolution" in call.library for call in report.library_calls)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_precision_is_rounded_once(layout, training, check) -> None:
    x = torch.randn(2, 3, 24, 24, dtype=torch.bfloat16).to(memory_format=layout).requires_grad_(training)
    weight = torch.randn(64, 3, 8, 8, dtype=torch.bfloat16).requires_grad_(training)
    bias = torch.randn(64, dtype=torch.bfloat16).requires_grad_(training)
    report = check(lambda x, weight, bias: one(x, weight, bias, 8).flatten(2).transpose(1, 2), x, weight, bias)
    if computed.has_units(torch.bfloat16):
        assert not any("convolution" in call.library for call in report.library_calls)


def test_windows_that_overlap_are_the_librarys(check) -> None:
    x, weight = torch.randn(1, 3, 12, 12), torch.randn(20, 3, 4, 4)
    for stride, padding in ((3, 0), (4, 1)):
        report = check(lambda x, w: F.conv2d(x, w, stride=stride, padding=padding), x, weight)  # noqa: B023
        assert [call.library for call in report.library_calls] == ["aten.convolution.default"]


def test_gradients_lie_as_eagers(check) -> None:
    """Whatever the layout of images, that of a weight is its own."""
    x = torch.randn(2, 6, 5, 5).to(memory_format=torch.channels_last)
    for layout in LAYOUTS:
        weight = torch.randn(4, 6, 1, 1).to(memory_format=layout).requires_grad_()
        check(lambda x, w: one(x, w, None), x, weight)


def code_of(function, *inputs) -> str:
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    assert torch.allclose(compiled(*inputs), function(*inputs), atol=1e-5)
    return "".join(g.report.output_code[0] for g in torchmux.report(compiled).graphs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_of_one_element_are_a_product_and_nothing_else(layout) -> None:
    """Loops would read an image again for each channel of the result, and a product lies as the result does."""
    x = torch.randn(2, 16, 9, 7).to(memory_format=layout)
    code = code_of(lambda x, w: one(x, w, None), x, torch.randn(12, 16, 1, 1))
    assert "product(" in code
    assert "kernel0" not in code


def test_copies_that_walk_differently_stay_two() -> None:
    """Together, they would walk as few elements at a time as either allows."""

    def apart(x):
        parts = x.view(2, 4, 16, 2, 16, 2)
        return parts.permute(0, 1, 3, 5, 2, 4).contiguous(), parts.permute(0, 2, 4, 1, 3, 5).contiguous()

    x = torch.randn(2, 4, 32, 32)
    compiled = torchmux.compile(apart, backend="native", fullgraph=True)
    assert all(map(torch.equal, compiled(x), apart(x)))
    assert torchmux.report(compiled).graphs[0].report.output_code[0].count("static void kernel") == 2
