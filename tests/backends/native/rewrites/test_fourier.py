"""Gradients of Fourier transforms of real numbers are transforms to real numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torchmux

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "even": lambda x: torch.fft.rfft(x).abs(),
    "odd": lambda x: torch.view_as_real(torch.fft.rfft(x[..., :11], norm="ortho")),
    "images": lambda x: torch.view_as_real(torch.fft.rfft2(x, norm="forward") * (1 + 2j)),
    "columns": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0) * 2j, n=5, dim=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradient(name: str) -> None:
    program = PROGRAMS[name]
    torch.manual_seed(0)
    x = torch.randn(5, 6, 12)
    given = torch.randn_like(program(x))
    gradients = []
    compiled = torchmux.compile(lambda x: program(x), backend="native")
    for function, dtype in ((compiled, torch.float32), (program, torch.float32), (program, torch.float64)):
        leaf = x.to(dtype).requires_grad_()
        gradients += torch.autograd.grad(function(leaf), leaf, given.to(dtype))
    mine, eager, exact = gradients
    assert mine.stride() == eager.stride()
    assert (mine - exact).abs().max() <= 2 * (eager - exact).abs().max() + 4e-7 * exact.abs().max()
    (graph,) = torchmux.report(compiled).graphs
    code = "".join(graph.report.output_code)
    assert "fft_c2r" in code and "fft_c2c(" not in code


def test_what_is_refused_beside_it_goes_to_torch() -> None:
    """The transform reads what native refuses, and so do the operators that take the place of its gradient."""

    def program(x: Tensor) -> Tensor:
        return ((torch.fft.rfft(x) + 3) ** 2.5).abs()

    compiled = torchmux.compile(program, backend="native")
    torch.manual_seed(0)
    x = torch.randn(5, 12)
    mine, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(mine).sum().backward()
    program(eager).sum().backward()
    torch.testing.assert_close(mine.grad, eager.grad)
    assert "powers of complex numbers" in str(torchmux.report(compiled).fallbacks)
