"""Functions that the header computes itself, and those that it calls: errors in units of the last place."""

from __future__ import annotations

import pytest
import torch

import torchmux

NUMBERS = torch.cat(
    [
        torch.linspace(-110, 95, 40001),
        torch.linspace(-5, 5, 40001),
        torch.logspace(-38, 2, 4001),
        -torch.logspace(-38, 2, 4001),
        torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 88.7, 88.8, -103.9, -104.1]),
    ]
)


def _everywhere() -> torch.Tensor:
    """Some thousand numbers of each binade, of both signs, and what is no number."""
    bits = torch.arange(0, 0x7F800001, 65_521 * 4, dtype=torch.int64)
    near = torch.linspace(-110, 95, 20001), torch.linspace(-1.5, 1.5, 40001), 1 + torch.linspace(-1e-3, 1e-3, 2001)
    return torch.cat([*(b.to(torch.int32).view(torch.float32) for b in (bits, bits - 2**31)), *near, NUMBERS[-11:]])


@pytest.mark.parametrize("name", ["sin", "cos", "log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "tanh", "erf"])
def test_all_binades(capture, name: str) -> None:
    """Errors of at most 1.6 units in the last place, also where a large angle is reduced and results are subnormal."""
    _check_all_binades(capture, name, 1.6)


def test_complementary_error_function(capture) -> None:
    _check_all_binades(capture, "erfc", 4.5)


def _check_all_binades(capture, name: str, most: float) -> None:
    function, numbers = getattr(torch, name), _everywhere()
    captured = capture(lambda x: function(x), numbers)
    got = captured.run(captured.compile("native", strict=True), numbers)
    exact = function(numbers.double())
    rounded = exact.float()
    assert torch.equal(got.isnan(), rounded.isnan())
    known = rounded.isfinite()
    assert torch.equal(got[~known].nan_to_num(), rounded[~known].nan_to_num())
    unit = torch.nextafter(rounded.abs(), torch.tensor(float("inf"))) - rounded.abs()
    errors = (got.double() - exact).abs()[known] / unit.double()[known]
    assert float(errors.max()) <= most
    assert torch.equal(torch.signbit(got[rounded == 0]), torch.signbit(rounded[rounded == 0]))


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "sin", "log1p", "expm1", "rsqrt", "sqrt"])
def test_float32(capture, name: str) -> None:
    function = getattr(torch, name)
    captured = capture(lambda x: function(x), NUMBERS)
    got = captured.run(captured.compile("native", strict=True), NUMBERS)
    exact = function(NUMBERS.double())
    rounded = exact.float()
    assert torch.equal(got.isnan(), rounded.isnan())
    known = rounded.isfinite() & got.isfinite()
    assert torch.equal(got[~known].nan_to_num(), rounded[~known].nan_to_num())
    unit = torch.nextafter(rounded.abs(), torch.tensor(float("inf"))) - rounded.abs()
    errors = (got.double() - exact).abs()[known] / unit.double()[known]
    if name == "sin":  # beyond that, what is left of a large argument decides
        errors = errors[NUMBERS[known].abs() < 100]
    assert float(errors.max()) <= 2.5
    assert torch.equal(torch.signbit(got[rounded == 0]), torch.signbit(rounded[rounded == 0]))


def test_the_sign_of_zero(capture):
    """Of numbers that a program names, and of elements that are computed one at a time."""

    def f(x):
        minus = torch.full((20,), -0.0)
        signs = torch.copysign(x, torch.tensor(-0.0)), torch.atan2(minus, -x), torch.where(x > 9, x, -0.0)
        return *signs, minus * 1, (x[:1] * -0.0).sin(), (x * -0.0).half(), x.double() * -0.0, 1 / (x[:1] * -0.0).tanh()

    x = torch.rand(20) + 1
    captured = capture(f, x)
    for got, wanted in zip(captured.run(captured.compile("native", strict=True), x), f(x), strict=True):
        assert torch.equal(got.signbit(), wanted.signbit())


def test_no_subnormal_results_of_gelu() -> None:
    """What is computed of subnormal numbers takes a processor many times as long, and eager's GELU has none."""
    x = torch.linspace(-16, 0, 5001, requires_grad=True)
    result = torchmux.compile(torch.nn.functional.gelu, backend="native")(x)
    (slope,) = torch.autograd.grad(result.sum(), x)
    for found in (result, slope):
        assert not ((found != 0) & (found.abs() < torch.finfo(torch.float32).tiny)).any()
        assert (found[x > -11] != 0)[:-1].all()
