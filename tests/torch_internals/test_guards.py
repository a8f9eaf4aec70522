"""Guards in C++."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("TensorGuards")
def test_tensor_guards() -> None:
    tensor = torch.ones(2, 3)
    guards = ti.TensorGuards(tensor, dynamic_dims_sizes=[[2, None]], dynamic_dims_strides=[[None, 1]])
    assert guards.check(torch.zeros(2, 4))
    assert not guards.check(torch.zeros(3, 3))
    assert "size mismatch" in guards.check_verbose(torch.zeros(3, 3), tensor_check_names=["x"])


@checks("GlobalStateGuard")
def test_global_state() -> None:
    guard = ti.GlobalStateGuard()
    assert guard.check()
    with torch.no_grad():
        assert not guard.check()


@checks("dispatch_keys")
def test_dispatch_keys() -> None:
    assert ti.dispatch_keys(torch.ones(1)) == ti.dispatch_keys(torch.zeros(3, 4))
    assert ti.dispatch_keys(torch.ones(1)) != ti.dispatch_keys(torch.ones(1, device="meta"))
