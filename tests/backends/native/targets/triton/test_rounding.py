"""Functions that are some units of float32 off: only where half precision hides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

from .test_kernels import kernels

X = torch.randn(40, 300)

HIDDEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "silu": F.silu,
    "softmax": lambda x: x.softmax(-1),
    "norm": lambda x: F.layer_norm(x, (300,)),
    "division": lambda x: x / (x.abs() + 1),
    "masked": lambda x: torch.where(x > 0, x.exp(), x),
    "two results": lambda x: (x.exp(), x.sigmoid() * 2),
}
SEEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "float32": lambda x: F.silu(x.float()),
    "one result in float32": lambda x: (F.silu(x), x.float().exp()),
    "rounded to integers": lambda x: (x.float() / x.float().abs().amax()).round().to(x.dtype),
    "integers": lambda x: (x.float().exp()).int(),
    "deciding": lambda x: torch.where(x.float().exp() > 0.5, x, 0),
    "root near zero": lambda x: (1 - x.float() / x.float()).sqrt().to(x.dtype),
    "logarithm near zero": lambda x: torch.log(1 - x.float().softmax(-1)).to(x.dtype),
    "deciding by a sum": lambda x: torch.where(x.float().exp().sum(-1, keepdim=True) > 9, x, 0),
}


def _kernels(function: Callable[[torch.Tensor], Any], dtype: torch.dtype) -> list[Any]:
    def as_tuple(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        got = function(x)
        return got if isinstance(got, tuple) else (got,)

    return kernels(as_tuple, (X.to(dtype),), dynamic=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", HIDDEN)
def test_half_precision_hides_units(name: str, dtype: torch.dtype) -> None:
    found = _kernels(HIDDEN[name], dtype)
    assert found
    for kernel in found:
        assert kernel.is_rough
        words = ("m.exp(", "fn.sqrt(") if name == "norm" else ("m.exp(", "fn.div(")  # a mean is exact
        assert not any(word in kernel.source for word in words)


@pytest.mark.parametrize("name", SEEN)
def test_what_shows_them_is_exact(name: str) -> None:
    exact = [kernel for kernel in _kernels(SEEN[name], torch.bfloat16) if not kernel.is_rough]
    assert exact
    assert any(word in kernel.source for kernel in exact for word in ("m.exp(", "fn.div("))


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("target", ["triton"], indirect=True)
@pytest.mark.usefixtures("target")
def test_as_exact_as_half_precision(name: str) -> None:
    """Beside what eager computes in float64."""
    x = X.bfloat16()
    got = torchmux.compile(HIDDEN[name], backend="native")(x)
    exact = HIDDEN[name](x.double())
    for one, other in zip(*[v if isinstance(v, tuple) else (v,) for v in (got, exact)], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2**-8, atol=1e-30)
