"""Frozen graphs: folded constants, packed weights, convolutions that take along what follows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchmux
from torchmux.backends.native import choosing, packing
from torchmux.config import config
from torchmux.registry import GraphReport

from .conftest import assert_as_exact_as_eager, in_double


@pytest.fixture
def frozen(tmp_path):
    """``frozen(model, x)`` compiles, compares with eager and float64, and returns the report."""

    def run(model: nn.Module, x: torch.Tensor) -> GraphReport:
        model = model.eval()
        with config.patch(cache_dir=tmp_path), torch.no_grad():
            compiled = torchmux.compile(model, backend="native", options={"freeze": True}, strict=True)
            assert_as_exact_as_eager(compiled(x), model(x), in_double(model)(x.double()))
        return torchmux.report(compiled).graphs[0].report

    return run


class Residual(nn.Module):
    """Convolutions with batch norms and a sum, as in residual networks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2)
        )
        self.one = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.norm, self.last = nn.BatchNorm2d(8, affine=False), nn.Linear(8, 3)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.relu(x + self.norm(self.one(x)))
        return self.last(x.mean((2, 3))) + x[:, :3, 0, 0]


def test_convolutions_take_their_surroundings_along(frozen) -> None:
    graph = frozen(Residual(), torch.randn(2, 3, 30, 34))
    cpp, python = graph.output_code
    assert python.count("_convolution_pointwise.default(") == 2
    assert python.count("_convolution_pointwise.binary(") == 1
    assert "'relu'" in python
    assert "aten._native_batch_norm" not in cpp
    assert "m_sqrt" not in cpp


class Dense(nn.Module):
    """A frozen scale that is folded, and a product whose columns are no whole number of tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.scale = nn.Linear(200, 50), nn.Linear(50, 10), nn.Parameter(torch.randn(50))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x) * (self.scale.exp() + 1)))


@pytest.mark.parametrize("kind", [packing.BY_MKL, packing.BY_TILES])
def test_packed_products(kind, monkeypatch, frozen) -> None:
    monkeypatch.setattr(packing.Matrices, "fastest", lambda self, pack, weight: kind)
    graph = frozen(Dense(), torch.randn(19, 200))
    assert graph.output_code[0].count(" packed_product(") == 2
    assert "m_exp" not in graph.output_code[0]
    few = frozen(Dense(), torch.randn(3, 200))
    assert "packed_product(" not in few.output_code[0]


def test_the_faster_product_is_kept(monkeypatch, frozen) -> None:
    monkeypatch.setattr(choosing, "_decided", {})
    frozen(Dense(), torch.randn(16, 200))
    decided = dict(choosing._decided)
    assert len(decided) == 2
    monkeypatch.setattr(choosing, "_decided", {})
    monkeypatch.setattr(choosing, "_measured", None)
    frozen(Dense(), torch.randn(16, 200))
    assert choosing._decided == decided


def test_code_is_shared_by_models_with_other_weights(frozen) -> None:
    """Values of parameters are not in the code, not even those of a single element."""

    class Scaled(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.randn(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.factor * (self.factor + 1)

    x = torch.randn(2, 3, 30, 34)
    assert frozen(Scaled(), x).cache_hits == 0
    assert frozen(Scaled(), x).cache_hits == 1


def test_training_is_not_frozen(tmp_path) -> None:
    model = Dense()
    with config.patch(cache_dir=tmp_path):
        compiled = torchmux.compile(model, backend="native", options={"freeze": True}, strict=True)
        for _ in range(2):
            got, wanted = compiled(torch.ones(9, 200)), model(torch.ones(9, 200))
            torch.testing.assert_close(got, wanted)
            got.sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad


def test_parameters_that_change_are_seen(caplog) -> None:
    model, other, x = Residual().eval(), Residual().eval(), torch.randn(2, 3, 30, 34)
    compiled = torchmux.compile(model, backend="native", options={"freeze": True}, strict=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))
        assert "constants" not in caplog.text
        model.load_state_dict(other.state_dict())
        for _ in range(2):
            torch.testing.assert_close(compiled(x), other(x))
        assert caplog.text.count("taken anew") == 1
        model.last.weight.data = torch.zeros(3, 8)
        torch.testing.assert_close(compiled(x), model(x))
        assert caplog.text.count("taken anew") == 2
    assert torchmux.report(compiled).graph_count == 1
    assert torchmux.report(compiled).graphs[0].report.output_code
