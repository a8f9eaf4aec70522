"""Numbers of half precision that meet a wider type are rounded, whether a kernel stores them or not."""

from __future__ import annotations

import torch

import torchmux


def test_half_precision_is_rounded_before_it_is_promoted() -> None:
    def f(x, y, h, w):
        mean = x.mean(-1, keepdim=True)
        return (x * y) + h, w - (h + h * 3), mean + w, torch.where(w > 0, x * y, w), (x * y).double() + w.double()

    torch.manual_seed(0)
    x, y = torch.randn(2, 4, 8).bfloat16()
    h, w = torch.randn(4, 8).half(), torch.randn(4, 8)
    for got, wanted in zip(torchmux.compile(f, backend="native")(x, y, h, w), f(x, y, h, w), strict=True):
        assert torch.equal(got, wanted)
