"""Functions that the header computes itself, and those that it calls: errors in units of the last place."""

from __future__ import annotations

import pytest
import torch

NUMBERS = torch.cat(
    [
        torch.linspace(-110, 95, 40001),
        torch.linspace(-5, 5, 40001),
        torch.logspace(-38, 2, 4001),
        -torch.logspace(-38, 2, 4001),
        torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 88.7, 88.8, -103.9, -104.1]),
    ]
)


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
