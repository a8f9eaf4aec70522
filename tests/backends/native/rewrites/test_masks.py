"""Masks that a program makes of nothing: they are dropped where torch's fused attention computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.native import compiler
from torchmux.backends.native.rewrites import masks


def everything(q: torch.Tensor) -> torch.Tensor:
    return torch.arange(6)[None, None, None, :] >= torch.zeros(6, dtype=torch.int64)[None, None, :, None]


def causal(q: torch.Tensor) -> torch.Tensor:
    at = torch.arange(6)
    return (at[None, :] <= at[:, None]).expand(2, 1, 6, 6)


def added(q: torch.Tensor) -> torch.Tensor:
    return torch.zeros(6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).tril().logical_not(), float("-inf"))


def window(q: torch.Tensor) -> torch.Tensor:
    at = torch.arange(6)
    return (at[None, :] <= at[:, None]) & (at[None, :] > at[:, None] - 3)


def slope(q: torch.Tensor) -> torch.Tensor:
    return (torch.arange(6.0) * -0.5).expand(6, 6)


def given(q: torch.Tensor) -> torch.Tensor:
    return q[:, :, :, :6] > 0


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        (everything, "nothing"),
        (causal, "causal"),
        (added, "causal"),
        (window, "mask"),
        (slope, "mask"),
        (given, "mask"),
    ],
)
def test_what_is_left_of_a_mask(mask: Any, left: str, monkeypatch) -> None:
    seen = []
    original = masks.simplified

    def spy(gm):
        made = original(gm)
        seen.extend(n for n in made.graph.nodes if n.target is F.scaled_dot_product_attention)
        return made

    monkeypatch.setattr(compiler, "_is_on_gpu", lambda gm: True)
    monkeypatch.setattr(masks, "simplified", spy)

    def program(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask(q))

    q = torch.randn(2, 3, 6, 8)
    torch.testing.assert_close(torchmux.compile(program, backend="native", strict=True)(q), program(q))
    (attention,) = seen
    has = attention.kwargs.get("attn_mask") is not None
    assert (has, bool(attention.kwargs.get("is_causal"))) == (left == "mask", left == "causal")
