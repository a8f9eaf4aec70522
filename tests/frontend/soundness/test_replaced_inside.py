"""Functions of torch that stay whole in the graph call others, which a program may replace.

Each function is called before, during and after each replacement of something that its code names.
"""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.functional as F
from tiers import slow_but

import torchmux

X = torch.linspace(-2, 2, 12).reshape(1, 3, 4)

CALLS = {
    "relu": lambda x: F.relu(x),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "leaky_relu": lambda x: F.leaky_relu(x),
    "hardtanh": lambda x: F.hardtanh(x),
    "elu": lambda x: F.elu(x),
    "silu": lambda x: F.silu(x),
    "mse_loss": lambda x: F.mse_loss(x, x + 1),
    "cross_entropy": lambda x: F.cross_entropy(x[0], torch.tensor([0, 1, 2])),
    "normalize": lambda x: F.normalize(x),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
    "norm": lambda x: torch.norm(x),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
    "group_norm": lambda x: F.group_norm(x, 3),
}


def _replacements(name):
    """Places of functions that the code of ``name`` names: module or class, and name."""
    function = getattr(F, name, None) or getattr(torch, name)
    for owner in (torch, F, F.torch._C._nn, torch.Tensor):
        for inner in function.__code__.co_names:
            old = vars(owner).get(inner) if isinstance(owner, types.ModuleType) else getattr(owner, inner, None)
            if isinstance(old, (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType)):
                yield owner, inner


PLACES = [(name, *place) for name in CALLS for place in _replacements(name)]


def _tripled(old):
    def replacement(*args, **kwargs):
        found = old(*args, **kwargs)
        return found * 3 if isinstance(found, torch.Tensor) and found.is_floating_point() else found

    return replacement


@pytest.mark.parametrize("backend", slow_but(["eager", "aot_eager", "native"], "eager", "aot_eager"))
def test_replaced_inside(backend, monkeypatch):
    different = []
    for name, owner, inner in PLACES:
        if inner in ("has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function"):
            continue
        torchmux.reset()
        call = CALLS[name]
        compiled = torchmux.compile(call, backend=backend)
        found, expected = [compiled(X)], [call(X)]
        with monkeypatch.context() as patch:
            patch.setattr(owner, inner, _tripled(getattr(owner, inner)))
            found.append(compiled(X))
            expected.append(call(X))
        found.append(compiled(X))
        expected.append(call(X))
        if not all(torch.allclose(*pair, atol=1e-6) for pair in zip(found, expected, strict=True)):
            different.append((name, owner.__name__, inner))
    assert different == []


def test_there_are_some():
    assert len(PLACES) > 40
