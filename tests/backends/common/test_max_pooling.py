"""The gradient of max pooling from the sizes of the images and offsets in windows, on a CPU in place of a GPU."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

import torchmux
from torchmux.backends.common import max_pooling
from torchmux.backends.common.pipeline import aot

_SETTINGS = [
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)},
    {"kernel_size": 2},
    {"kernel_size": (16, 16), "stride": 3, "ceil_mode": True},
    {"kernel_size": (5, 4), "stride": (7, 6), "padding": (2, 2), "dilation": (2, 3), "ceil_mode": True},
]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the forward graphs compiled from here on save, as on a GPU."""
    found: list[Any] = []

    def noting(split: Any) -> Any:
        def split_and_note(joint: GraphModule, *args: Any, num_fwd_outputs: int, **more: Any) -> Any:
            forward, backward = split(joint, *args, num_fwd_outputs=num_fwd_outputs, **more)
            found.extend(node.meta["val"] for node in forward.graph.output_node().args[0][num_fwd_outputs:])
            return forward, backward

        return split_and_note

    torchmux.reset()
    usual = max_pooling.offsets_saved
    monkeypatch.setattr(max_pooling, "_DEVICE", "cpu")
    monkeypatch.setattr(aot, "offsets_saved", lambda split: noting(usual(split)))
    return found


@pytest.mark.parametrize(
    ("settings", "layout"), zip(_SETTINGS, itertools.cycle([torch.channels_last, torch.contiguous_format, None]))
)
def test_gradients_are_those_of_eager(saved: list[Any], settings: dict[str, Any], layout: Any) -> None:
    """Also where elements are equal, infinite or not a number; what is saved of each window takes a byte."""

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x * 1.5, **settings) * 2

    x = torch.randint(-3, 4, (2, 3, 37, 41)).float()
    x[0, 0, :9], x[1, 1, 20:, 5] = -torch.inf, torch.nan
    x = x[0].clone() if layout is None else x.to(memory_format=layout)  # one image, or several
    ours, theirs = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    expected = pooled(theirs)
    got = torchmux.compile(pooled, backend="native")(ours)
    slope = torch.randn_like(expected)
    expected.backward(slope)
    got.backward(slope)
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)
    assert ours.grad.stride() == theirs.grad.stride()
    assert [t.dtype for t in saved] == [torch.uint8]


@pytest.mark.parametrize("other", ["places", "large"])
def test_places_of_another_origin_stay(saved: list[Any], other: str) -> None:
    """The program's own places, and windows of more than 256 elements."""
    aten = torch.ops.aten
    x, slope = torch.randn(1, 2, 20, 20), torch.randn(1, 2, 10, 10)
    settings = ([17, 17], [3, 3]) if other == "large" else ([2, 2], [2, 2])

    def handed_back(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, places = aten.max_pool2d_with_indices(x, *settings)
        if other == "places":
            places = places.flip(-1)
        given = slope[..., : y.shape[-2], : y.shape[-1]].contiguous()
        return aten.max_pool2d_with_indices_backward(given, x, *settings, [0, 0], [1, 1], False, places), y

    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected, got = handed_back(theirs), torchmux.compile(handed_back, backend="native")(ours)
    torch.testing.assert_close(got, expected)
    assert other == "places" or torch.uint8 not in [t.dtype for t in saved]
