"""A model that is compiled once for each backend, and its file."""

from __future__ import annotations

import pytest
import torch

import torchmux


class Net(torch.nn.Module):
    """Two layers, a buffer, results in a structure, and an argument that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)
        self.last = torch.nn.Linear(16, 4)
        self.register_buffer("shift", torch.arange(4.0))
        self.factor = 2

    def forward(self, x, scale=1.0, *, named=None):
        y = self.last(torch.relu(self.inner(x))) * self.factor * scale + self.shift
        return {"y": y, "sizes": (x.shape[0], "rows"), "total": y.sum(), "named": named}


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def saved(net, tmp_path):
    """A function that compiles and saves ``net``, and returns the path and the compiled module."""
    torchmux.reset()  # numbers that changed in another test would be symbols here

    def save(backend="native", calls=None, key=None, **settings):
        compiled = torchmux.compile(net, backend=backend, **settings)
        with torch.no_grad():
            for call in calls or [(torch.ones(3, 8),)]:
                compiled(*call)
        path = tmp_path / "net.tmx"
        torchmux.save(compiled, path, key=key)
        return path, compiled

    return save
