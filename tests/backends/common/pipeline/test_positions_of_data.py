"""Positions that a program reads from a tensor: compiled code checks them, as eager does."""

from __future__ import annotations

import pytest
import torch

import torchmux

BACKENDS = ("eager", "aot_eager", "native")


def row(x, i):
    return x[i.item()] + 1


def column(x, i):
    return x.select(1, i.item()) * 2


def scattered(x, i):
    return torch.select_scatter(x, x[0], 0, i.item())


def of_a_storage(x, i):
    return (x * 1).as_strided((2,), (1,), i.item()) * 2


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [row, column, scattered, of_a_storage])
def test_what_lies_outside_is_refused(function, backend, trains):
    with torchmux.config.patch(capture_scalar_outputs=True):
        compiled = torchmux.compile(function, backend=backend, fullgraph=True)
        for at in (1, 2, 0, -1, 3, -3, 7, -4, 1000):
            x = torch.arange(9.0).reshape(3, 3).requires_grad_(trains)
            try:
                expected = function(x, torch.tensor(at))
            except (IndexError, RuntimeError):
                with pytest.raises((IndexError, RuntimeError)):
                    compiled(x, torch.tensor(at))
            else:
                assert torch.equal(compiled(x, torch.tensor(at)), expected)
