"""Other systems are refused, and other versions of torch are warned of, when something is to be compiled."""

from __future__ import annotations

import importlib.metadata
import platform
import warnings

import pytest

import torchmux
from torchmux import support


@pytest.fixture(autouse=True)
def anew():
    support.check.cache_clear()
    yield
    support.check.cache_clear()


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_another_system(system, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: system)
    assert torchmux.list_backends() is not None  # looking is no problem
    with pytest.raises(RuntimeError, match="compiles on Linux only"):
        torchmux.compile(lambda x: x + 1, backend="eager")


def test_another_torch(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.1.0" if name == "torch" else real(name))
    with pytest.warns(UserWarning, match="torch 3.1.0 is installed, but torchmux was tested with torch"):
        torchmux.compile(lambda x: x + 1, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torchmux.compile(lambda x: x + 2, backend="eager")  # once is enough


def test_this_torch():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        support.check()
