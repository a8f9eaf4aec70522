"""Backends of these tests, and measurements that end soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import torchmux
from torchmux.registry import BackendSpec

HERE = Path(__file__).parent


@pytest.fixture
def register(own_catalog, monkeypatch) -> Callable[..., None]:
    """``register("wrong", ...)`` registers functions of ``bench_backends``."""
    monkeypatch.syspath_prepend(str(HERE))

    def register(*names: str) -> None:
        for name in names:
            torchmux.register_backend(
                BackendSpec(name, "", f"bench_backends:{name}", training=True, dtypes=("*",), fingerprint=str)
            )

    return register


@pytest.fixture
def soon(monkeypatch) -> None:
    """What is timed is not looked at."""
    from torchmux.bench import measure

    for name, value in (("FEWEST", 2), ("MOST", 2), ("TURN_S", 0.001), ("PAUSE_S", 0.0)):
        monkeypatch.setattr(measure, name, value)
