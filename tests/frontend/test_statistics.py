"""Covariances are part of the graph, and have eager's bits; with weights they are torch's, which ask about data."""

from __future__ import annotations

import pytest
import torch

import torchmux

PROGRAMS = {
    "cov": torch.cov,
    "of all": lambda x: torch.cov(x, correction=0),
    "method": lambda x: x.cov(correction=2) + 1,
    "correlation": torch.corrcoef,
    "correlation as a method": lambda x: x.corrcoef().abs().sum() * x,
}
SHAPES = [(4, 30), (1, 9), (7,)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_eager(name: str, dtype: torch.dtype) -> None:
    dynamic = dtype is torch.float32
    compiled = torchmux.compile(PROGRAMS[name], backend="eager", fullgraph=True, dynamic=dynamic)
    for shape in SHAPES:
        x = torch.randn(shape).to(dtype).requires_grad_()
        results = [run(x) for run in (PROGRAMS[name], compiled)]
        gradients = [torch.autograd.grad(r.sum(), x)[0] for r in results]
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def test_what_is_left_to_torch() -> None:
    x, weights = torch.randn(3, 8), torch.tensor([1, 2, 1, 1, 3, 1, 1, 2])
    programs = (
        lambda x: torch.cov(x, fweights=weights),
        lambda x: torch.cov(x, aweights=weights.float()),
        lambda x: torch.cov(torch.complex(x, x)),
        lambda x: torch.cov((x * 9).long()),
        lambda x: torch.corrcoef(torch.complex(x, x.flip(0))),
    )
    for program in programs:
        torch.testing.assert_close(torchmux.compile(program, backend="eager")(x), program(x), rtol=0, atol=0)
        with pytest.raises(torchmux.Unsupported):
            torchmux.compile(program, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("observations", [0, 1])
def test_too_few_observations_are_warned_about(observations: int) -> None:
    with pytest.warns(UserWarning, match="degrees of freedom"):
        torchmux.compile(torch.cov, backend="eager")(torch.randn(3, observations))


@pytest.mark.parametrize("program", [lambda x: torch.cov(x[None, None]), lambda x: torch.corrcoef(x, correction=1)])
def test_errors(program) -> None:
    for run in (program, torchmux.compile(program, backend="eager")):
        with pytest.raises((RuntimeError, TypeError), match="expected input to have two|got an unexpected keyword"):
            run(torch.randn(2, 5))
