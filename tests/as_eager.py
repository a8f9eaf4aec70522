"""What tests of several backends share: a small network, and a backend held against eager in all that callers see."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """Two layers with a norm and an activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.two(F.gelu(F.layer_norm(self.one(x), (16,), self.norm.weight, self.norm.bias)))


class Held:
    """``Held(capture, backend)(function, *args)`` compiles strictly, compares with eager, and returns the report."""

    def __init__(self, capture: Any, backend: str) -> None:
        self.capture, self.backend = capture, backend

    def __call__(self, function: Any, *args: Any, exact: bool = False, dynamic: Any = None, options: Any = None) -> Any:
        captured = self.capture(function, *args, dynamic=dynamic)
        compiled = captured.compile(self.backend, strict=True, options=options)
        with torch.no_grad():
            got, wanted = captured.run(compiled, *args), function(*args)
        self.same(got, wanted, exact=exact)
        return compiled.report

    def refused(self, function: Any, *args: Any) -> str:
        """The only reason why eager runs all of ``function``."""
        captured = self.capture(function, *args)
        compiled = captured.compile(self.backend)
        assert torch.equal(captured.run(compiled, *args), function(*args))
        assert compiled.report.share == 0.0
        (reason,) = {p.reason for p in compiled.report.fallbacks}
        return reason

    @staticmethod
    def same(got: Any, wanted: Any, *, exact: bool = False) -> None:
        """Dtypes, shapes, strides and numbers are equal, the numbers up to rounding."""
        pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
        for a, b in pairs:
            assert a.dtype is b.dtype
            assert a.shape == b.shape
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)
