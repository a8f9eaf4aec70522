"""Every test of a model starts without compiled code."""

import pytest

import torchmux

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def fresh():
    """No code compiled for another test is found."""
    torchmux.reset()
    yield
    torchmux.reset()
