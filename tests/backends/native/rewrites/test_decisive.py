"""Numbers of half precision of which something decides are rounded on the way as eager rounds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchmux

_DECISIONS = {
    "quantized": lambda x, s: (x * (127 / s)).round().to(torch.int8),
    "floor": lambda x, s: (x * s + 0.1).floor(),
    "to integers": lambda x, s: (x * s * 37 + 0.3).to(torch.int32),
    "converted first": lambda x, s: (x * s * 37 + 0.3).float().round(),
    "compared": lambda x, s: torch.where(x * s + x > s + 0.5, x, s),
    "equal": lambda x, s: x * s + s == x * s,
    "position": lambda x, s: (x * s + s).argmax(-1),
    "of a view": lambda x, s: (x * s + 0.1).transpose(0, 1)[3:].trunc(),
    "beside a number": lambda x, s: (x > 0.1, x <= -0.3, 1.7 - x < s),
    "remainder": lambda x, s: (x * s * 3) % 0.5,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", _DECISIONS)
def test_decided_as_in_eager(name: str, dtype: torch.dtype) -> None:
    function: Any = _DECISIONS[name]
    torch.manual_seed(3)
    x, s = torch.randn(64, 500).to(dtype), (torch.rand(64, 1) * 3 + 0.5).to(dtype)
    found, expected = torchmux.compile(function, backend="native", fullgraph=True)(x, s), function(x, s)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
