"""``options={"guard_filter_fn": ...}``, also with the filters that torch has."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchmux

FACTOR = 2.0


def scaled(x):
    return x * FACTOR


def filtered(function, keep):
    return torchmux.compile(function, backend="eager", options={"guard_filter_fn": keep})


def test_entries_have_torchs_fields():
    seen = []

    def keep(entries):
        seen.extend(entries)
        return [True] * len(entries)

    net = nn.Sequential(nn.Linear(2, 2))
    filtered(lambda x: net(x) * FACTOR, keep)(torch.ones(1, 2))
    kinds = {entry.guard_type for entry in seen}
    assert {"TENSOR_MATCH", "GLOBAL_STATE", "SHAPE_ENV", "EQUALS_MATCH"} <= kinds
    (x,) = [entry for entry in seen if entry.name == "x"]
    assert x.guard_type == "TENSOR_MATCH"
    assert torch.equal(x.value, torch.ones(1, 2))
    assert not x.is_global
    assert any(entry.is_global and "FACTOR" in entry.name and entry.value == 2.0 for entry in seen)
    assert any(entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in seen)


def test_kept_guards_hold():
    compiled = filtered(scaled, lambda entries: [True] * len(entries))
    check(compiled, recompiles=True)


def test_skip_guard_on_globals():
    check(filtered(scaled, torch.compiler.skip_guard_on_globals_unsafe), recompiles=False)


@pytest.mark.parametrize("keep", [torch.compiler.keep_tensor_guards_unsafe, torch.compiler.skip_all_guards_unsafe])
def test_skip_more(keep):
    check(filtered(scaled, keep), recompiles=False)


def check(compiled, recompiles):
    global FACTOR
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 2)
    FACTOR = 3.0
    try:
        assert torch.equal(compiled(x), x * (3 if recompiles else 2))
    finally:
        FACTOR = 2.0


def test_tensor_guards_stay_with_keep_tensor_guards():
    compiled = filtered(lambda x: x * x.shape[0], torch.compiler.keep_tensor_guards_unsafe)
    for n in (2, 3, 4):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), float(n)))


def test_skip_guards_on_modules():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    compiled = filtered(net, torch.compiler.skip_guard_on_all_nn_modules_unsafe)
    net.eval()
    x = torch.ones(1, 2)
    expected = compiled(x)
    net.train()
    assert torch.equal(compiled(x), expected)  # what the user promised not to change


def test_wrong_filters():
    with pytest.raises(torchmux.InvalidOption, match="must be a function of the list of guards"):
        filtered(scaled, 3)
    with pytest.raises(torchmux.InvalidOption, match="returned 1 values for"):
        filtered(scaled, lambda entries: [True])(torch.ones(2))


def test_the_backend_does_not_see_the_option():
    def backend(gm, example_inputs, *, options):
        assert options == {"level": 2}
        return gm.forward

    compiled = torchmux.compile(scaled, backend=backend, options={"level": 2, "guard_filter_fn": all_of})
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def all_of(entries):
    return [True for _ in entries]
