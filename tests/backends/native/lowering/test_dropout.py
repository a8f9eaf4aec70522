"""Dropout: eager's random numbers, and eager's values."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchmux

CASES = [(torch.float32, layout) for layout in ("contiguous", "permuted", "gaps")]
CASES += [(dtype, "contiguous") for dtype in (torch.float64, torch.bfloat16, torch.float16)]


@pytest.mark.parametrize("dtype, layout", CASES)
def test_numbers_and_values_are_eagers(dtype: torch.dtype, layout: str) -> None:
    x = torch.randn(6, 10, 33, dtype=dtype)
    x = {"contiguous": x, "permuted": x.permute(2, 0, 1), "gaps": x[:, :, ::2]}[layout]
    x[0, 0, :3] = torch.tensor([float("inf"), float("nan"), -0.0])
    for p in (0.1, 0.15, 1.0):
        torchmux.reset()

        def function(x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x, p, True)  # noqa: B023

        compiled = torchmux.compile(function, backend="native", fullgraph=True)
        found = []
        for each in (function, compiled):
            given = x.detach().clone().requires_grad_()
            torch.manual_seed(3)
            made = each(given)
            made.backward(torch.linspace(-2, 2, x.numel(), dtype=dtype).view(x.shape))
            found.append((made.detach(), given.grad, torch.rand(3)))
        for a, b in zip(*found, strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
            numbers = ~a.isnan()
            assert torch.equal(a.signbit() & numbers, b.signbit() & numbers)


def test_only_the_mask_is_torchs() -> None:
    compiled = torchmux.compile(lambda x, y: F.dropout(x, 0.2, True) * 2 + y, backend="native", fullgraph=True)
    x = torch.randn(40, 50, requires_grad=True)
    compiled(x, x).sum().backward()
    assert {call.library for call in torchmux.report(compiled).library_calls} == {"aten.bernoulli_.float"}


def test_rectifiers_that_could_be_random(check) -> None:
    """Without training their slope is known: nothing is drawn, and torch is not called."""
    x = torch.randn(4, 5)
    x[0, 0] = float("nan")
    before = torch.get_rng_state()
    assert not check(lambda x: F.rrelu(x, 0.1, 0.5), x).library_calls
    assert torch.equal(torch.get_rng_state(), before)
    gradients = []
    for f in (F.rrelu, torchmux.compile(F.rrelu, backend="native", strict=True)):
        leaf = x.t().clone().requires_grad_()
        f(leaf, 0.1, 0.5).backward(torch.ones(5, 4))
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, equal_nan=True, rtol=0, atol=0)
