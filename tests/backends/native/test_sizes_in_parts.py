"""Symbolic sizes that a program divides: loops over the parts, without divisions, and right for other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native.compiler import Native

_WINDOWS = torch.randn(5, 2, 3, 3)
PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[int, int, int], tuple[int, ...]]]] = {
    "group norm": (lambda x: F.group_norm(x, 4) * 2, lambda a, b, c: (a, 4 * b, c + 1, c + 3)),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2) * 2, lambda a, b, c: (a, 4 * b, c, c + 1)),
    "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 3) + 1, lambda a, b, c: (a, b, 3 * c, 3 * b)),
    "windows": (
        lambda x: x.view(x.shape[0], x.shape[1] // 4, 4, x.shape[2] // 4, 4, 5).transpose(2, 3).reshape(-1, 16, 5),
        lambda a, b, c: (a, 4 * b, 4 * c, 5),
    ),
    "patches": (
        lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3),
        lambda a, b, c: (a, 3, 4 * b + 1, 4 * c + 2),
    ),
    "heads": (lambda x: x.unflatten(2, (8, -1)).transpose(1, 2).contiguous(), lambda a, b, c: (a, b, 8 * c)),
    "places of windows": (
        lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1)), _WINDOWS, stride=2).flatten(2).transpose(1, 2).sigmoid(),
        lambda a, b, c: (a, 2, 2 * b + 3, 2 * b + 3),
    ),
    "places of windows over places": (
        lambda x: F.max_pool2d(F.avg_pool2d(x, 3, 2), 2, 1).flatten(2).softmax(-1),
        lambda a, b, c: (a, c, 2 * b + 5, 2 * c + 5),
    ),
    "blocks": (
        lambda x: (y := x.reshape(-1, 8)) / y.abs().amax(1, keepdim=True),
        lambda a, b, c: (a, 8 * b),
    ),
    "interleaved": (lambda x: torch.stack((x, x * 2, x + 1), -1).flatten(-2), lambda a, b, c: (a, b, c)),
}
SIZES = ((2, 3, 4), (3, 5, 2), (2, 2, 7), (5, 2, 9))


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_of_sizes(name: str) -> None:
    function, sizes = PROGRAMS[name]
    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for each in SIZES:
        x = torch.randn(sizes(*each))
        found = compiled(x)
        torch.testing.assert_close(found, function(x))
        assert found.stride() == function(x).stride()
    report = torchmux.report(compiled)
    assert not report.fallbacks
    text = "".join(t for graph in report.graphs for t in graph.report.output_code)
    assert "gather(" not in text and "floor_" not in text


@pytest.mark.parametrize(
    "settings",
    [
        {"scale_factor": 1.5, "mode": "bilinear"},
        {"scale_factor": 0.5, "mode": "nearest"},
        {"scale_factor": 0.75, "mode": "bilinear", "align_corners": True},
        {"scale_factor": 2.25, "mode": "nearest-exact"},
    ],
    ids=lambda s: f"{s['mode']} {s['scale_factor']}",
)
def test_images_scaled_by_quarters(settings: dict[str, Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **settings)

    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for sizes in ((2, 3, 9, 10), (1, 2, 7, 23), (3, 2, 16, 5), (2, 2, 31, 6)):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), function(x))
    assert not torchmux.report(compiled).fallbacks


def test_what_is_the_same_for_no_elements_is_not_read() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.stack((x, x * 2, x + 1), -1).flatten(-2)

    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for sizes in ((2, 3, 4), (2, 3, 0), (5, 1, 0)):
        assert compiled(torch.randn(sizes)).shape == (*sizes[:-1], 3 * sizes[-1])


@pytest.mark.parametrize("training", [False, True])
def test_a_part_behind_torch_is_given_the_sizes_that_its_inputs_do_not_show(training, monkeypatch) -> None:
    """What it makes is a quotient of the size of the graph's input, as is all that it takes."""
    supports = Native.supports

    def without_erfinv(native: Native, node: torch.fx.Node) -> Any:
        return "torch has it" if node.target is torch.ops.aten.erfinv.default else supports(native, node)

    monkeypatch.setattr(Native, "supports", without_erfinv)
    first, second = torch.nn.Conv2d(2, 3, 3, stride=2, padding=1), torch.nn.Conv2d(3, 3, 3, stride=2)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = second(torch.erfinv(torch.tanh(first(x)) / 2))
        return torch.softmax(y.flatten(2), -1) * y.shape[-1]

    compiled = torchmux.compile(function, backend="native", dynamic=True)
    for height, width in ((18, 20), (19, 23), (33, 27)):
        x = torch.randn(2, 2, height, width, requires_grad=training)
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found, expected)
        if training:
            gradients = (torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected))
            torch.testing.assert_close(*gradients)
    left = [each.op for each in torchmux.report(compiled).fallbacks]
    assert set(left) == {"aten.erfinv.default"}


def test_a_backward_pass_that_sees_only_a_product_of_sizes() -> None:
    """Images as rows: the forward pass saves rows of ``k * k`` pixels, and nothing else tells ``k``."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.flatten(1).tanh() @ w).relu()

    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for count, k in ((8, 6), (5, 9), (2, 3)):
        inputs = torch.randn(count, 2, k, k, requires_grad=True), torch.randn(2 * k * k, 7, requires_grad=True)
        expected = torch.autograd.grad(function(*inputs).sin().sum(), inputs)
        torch.testing.assert_close(torch.autograd.grad(compiled(*inputs).sin().sum(), inputs), expected)
    report = torchmux.report(compiled)
    assert report.graph_count == 1 and not report.fallbacks
