"""Numbers that differ from call to call become part of a graph: none may be compiled in as it was in the first call."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import torchmux

X = torch.linspace(-3, 3, 48).view(8, 6)
Y = X.abs() + 0.5

FUNCTIONS = {
    "norm": lambda n: torch.linalg.vector_norm(X, n, dim=-1),
    "power": lambda n: (Y**n, n**X),
    "weights": lambda n: (torch.add(X, Y, alpha=n), torch.addcmul(X, X, Y, value=n), torch.rsub(X, Y, alpha=n)),
    "bounds": lambda n: (X.clamp(-abs(n), abs(n)), X.clamp_min(n), F.hardtanh(X, -5, n)),
    "filling": lambda n: (torch.full((3,), n), torch.full_like(X, n), X.masked_fill(X > 0, n)),
    "padding": lambda n: F.pad(X, (1, 0), value=n),
    "shapes_of_curves": lambda n: (F.leaky_relu(X, n), F.elu(X, n), F.threshold(X, n, 1.0)),
    "comparison": lambda n: (n < X, torch.where(n > X, X, n)),
}  # fmt: skip


BACKENDS = [
    pytest.param(row.name, marks=pytest.mark.skipif(not row.available, reason=row.reason or "unavailable"))
    for row in torchmux.backends()
    if row.name in ("native", "onnxrt", "openvino", "tvm")
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numbers", [(3, 4, -2, 7), (2.5, 3.5, -0.75, 4.0)], ids=["integers", "floats"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_that_changes(backend, function, numbers) -> None:
    compiled = torchmux.compile(function, backend=backend)
    for number in numbers:
        torch.testing.assert_close(compiled(number), function(number), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_variance_without_degrees_of_freedom(backend) -> None:
    compiled = torchmux.compile(lambda n: X.var(-1, correction=n), backend=backend)
    for number in (1, 2, 3, 7):
        found = compiled(number)
        assert found.isinf().all() if number == 7 else torch.allclose(found, X.var(-1, correction=number)), found
    assert math.isinf(float(compiled(6)[0]))
