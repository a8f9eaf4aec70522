"""Equal models share one library, and dropped models free theirs."""

from __future__ import annotations

import gc

import pytest
import torch

import torchmux
from tests.reliability import growth
from tests.tiers import slow_but
from torchmux.backends.native.targets.cpu import build, libraries
from torchmux.config import config


def test_equal_models_share_one_library(tmp_path):
    with config.patch(cache_dir=tmp_path), torch.no_grad():
        before, kept = growth.mappings(), []
        for _ in range(30):
            kept.append(torchmux.compile(growth.model(1), backend="native", strict=True))
            kept[-1](torch.ones(3, 8))
        assert growth.mappings() - before < 30


def test_a_library_is_unloaded_with_its_last_function():
    content = build.compile_source('extern "C" int answer() { return 42; }')
    first, second = libraries.load(content), libraries.load(content)
    assert first is second
    mapped = growth.mappings()
    answer = first["answer"]
    del first, second
    gc.collect()
    assert growth.mappings() == mapped
    assert answer() == 42
    del answer
    gc.collect()
    assert growth.mappings() < mapped


@pytest.mark.parametrize("models", slow_but([200, 5000], 200))
def test_dropped_models_cost_little(models, tmp_path, monkeypatch):
    if models == 200:
        monkeypatch.setattr(growth, "KINDS", 4)
    with config.patch(cache_dir=tmp_path):
        found = growth.run(models)
    assert found["bytes"] < 20_000, found
    assert found["mappings"] < 0.5, found
