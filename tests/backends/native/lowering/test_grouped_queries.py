"""Matrices that are repeated for a product are read where they lie, once for all that they are multiplied with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchmux

Repeat = Callable[[torch.Tensor, int], torch.Tensor]


def _expanded(x: torch.Tensor, n: int) -> torch.Tensor:
    b, h, s, d = x.shape
    return x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, repeat: Repeat) -> torch.Tensor:
    n = q.shape[1] // k.shape[1]
    return (q @ repeat(k, n).mT * 0.2).softmax(-1) @ repeat(v, n)


REPEATS: dict[str, Repeat] = {"expand": _expanded, "interleave": lambda x, n: x.repeat_interleave(n, 1)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("way", "dynamic"), [("expand", True), ("interleave", False)])
def test_attention_of_groups(way: str, dtype: torch.dtype, dynamic: bool) -> None:
    repeat = REPEATS[way]

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return _attend(q, k, v, repeat)

    torchmux.reset()
    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=dynamic)
    for batch, heads, groups, rows in ((1, 8, 2, 1), (2, 6, 3, 3), (1, 4, 1, 2), (2, 4, 4, 1)):
        q = torch.randn(batch, heads, rows, 32, dtype=dtype)
        k, v = (torch.randn(batch, groups, 40, 32, dtype=dtype) for _ in range(2))
        exact = _attend(q.double(), k.double(), v.double(), repeat)
        eager = (function(q, k, v).double() - exact).abs().max()
        assert (compiled(q, k, v).double() - exact).abs().max() <= 2 * eager + 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("repeat", REPEATS.values(), ids=REPEATS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_keys_of_groups_are_not_copied(repeat: Repeat, dynamic: bool) -> None:
    def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q @ repeat(k, 4).mT

    compiled = torchmux.compile(scores, backend="native", fullgraph=True, dynamic=dynamic)
    q, k = torch.randn(2, 12, 1, 32), torch.randn(2, 3, 50, 32)
    torch.testing.assert_close(compiled(q, k), scores(q, k))
    (graph,) = torchmux.report(compiled).graphs
    (code,) = (text for text in graph.report.output_code if "kernels.h" in text)
    assert "product(" in code
    assert "kernel0" not in code  # nothing is copied before the product


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "bfloat16"])
def test_what_is_repeated_may_be_a_view_or_computed(layout: str) -> None:
    q, k = torch.randn(12, 5, 16), torch.randn(4, 24, 16)
    if layout == "transposed":
        k = torch.randn(4, 16, 24).mT
    elif layout == "sliced":
        k, q = torch.randn(4, 24, 40)[:, :, 8:24], torch.randn(5, 12, 16).transpose(0, 1)
    elif layout == "bfloat16":
        k = k.bfloat16()

    def function(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k = k.float()
        repeated = k.repeat_interleave(3, 0)
        tiled = k.repeat(3, 1, 1)  # the same matrices are not side by side
        return q @ repeated.mT, q @ (repeated * 2 + 1).mT, repeated @ q.mT, q @ tiled.mT

    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    for found, expected in zip(compiled(q, k), function(q, k), strict=True):
        torch.testing.assert_close(found, expected)


def test_keys_that_a_tensor_points_at() -> None:
    # Where these keys begin is in a tensor, so only a kernel can read them (Falcon picks its one key like this).
    def scores(q: torch.Tensor, fused: torch.Tensor) -> torch.Tensor:
        return q @ fused[..., [-2], :].transpose(1, 2).expand(2, 4, 12, 8).mT

    q, fused = torch.randn(2, 4, 12, 8), torch.randn(2, 12, 6, 8)
    compiled = torchmux.compile(scores, backend="native", fullgraph=True)
    torch.testing.assert_close(compiled(q, fused), scores(q, fused))
    (graph,) = torchmux.report(compiled).graphs
    assert graph.report.fallbacks == []
