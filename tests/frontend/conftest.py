"""Every frontend test starts without compiled code: equal ``compile()`` calls share it."""

import pytest

import torchmux


@pytest.fixture(autouse=True)
def fresh():
    torchmux.reset()
