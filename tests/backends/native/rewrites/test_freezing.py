"""Frozen graphs: folded constants, packed weights, convolutions that take along what follows."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import torchmux
from torchmux.backends.native.targets.cpu import choosing, packing, selection
from torchmux.config import config
from torchmux.registry import GraphReport

from ..conftest import assert_as_exact_as_eager, in_double


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


class Wide(nn.Module):
    """Blocks of 32 and 64 channels, with steps and borders; a bias whose numbers lie apart."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 5, 2, (2, 1))
        self.one = nn.ModuleList([nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.Conv2d(32, 32, 1)])
        self.two = nn.ModuleList([nn.Conv2d(32, 32, (1, 3), padding=(0, 1)), nn.Conv2d(32, 32, 3, padding=1)])
        self.aside = nn.Conv2d(32, 64, 1, 2)
        self.last = nn.ModuleList([nn.Conv2d(32, 64, 3, 2, 1), nn.Conv2d(64, 64, 1)])
        self.first.bias = nn.Parameter(torch.randn(64)[::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.relu(self.one[1](torch.relu(self.one[0](x))) + x)
        y = torch.relu(x + self.two[1](self.two[0](x)))
        return torch.relu(self.last[1](self.last[0](y)) + self.aside(y)) + x.mean()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("images, size", [(1, 22), (3, 17)])
def test_own_convolutions(own: bool, images: int, size: int, monkeypatch, frozen) -> None:
    monkeypatch.setattr(selection, "is_own_faster", lambda shape: own)
    cpp, python = frozen(Wide(), torch.randn(images, 3, size, size + 5)).output_code
    assert cpp.count("  convolution<") == 8 * own
    assert len(re.findall(r"_convolution_pointwise_?\.\w+\(", python)) == 8 * (not own)
    # Sums are written over what they add where nothing else reads that: not over x, of which there is a mean.
    in_place = re.findall(r"convolution<.*?>\((b\d+), \1 |_pointwise_.binary\(", cpp if own else python)
    assert len(in_place) == 2


@pytest.mark.parametrize("own", [True, False])
def test_what_a_loop_reads_is_not_overwritten(own: bool, monkeypatch, frozen) -> None:
    """The loop, which needs both, runs when the sum is there."""

    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.one(x)
            twice = a * 2
            return torch.tanh(self.two(x) + a) * twice

    monkeypatch.setattr(selection, "is_own_faster", lambda shape: own)
    frozen(Read(), torch.randn(1, 32, 9, 9))


def test_a_sum_waits_for_who_reads_what_it_overwrites(monkeypatch, frozen) -> None:
    """Calls run as late as they can, and code of our own as early."""

    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.one(x)
            aside = self.two(a)
            return torch.cat([aside, self.three(x) + a])

    monkeypatch.setattr(selection, "is_own_faster", lambda shape: shape.adds)
    cpp, python = frozen(Aside(), torch.randn(1, 32, 9, 9)).output_code
    assert "convolution<" in cpp
    assert python.count("_pointwise.default(") == 2


def test_the_faster_convolution_is_kept(monkeypatch, frozen) -> None:
    monkeypatch.setattr(choosing, "_decided", {})
    model = nn.Conv2d(32, 64, 3, padding=1)
    frozen(model, torch.randn(1, 32, 12, 12))
    decided = dict(choosing._decided)
    assert len(decided) == 1
    monkeypatch.setattr(choosing, "_decided", {})
    monkeypatch.setattr(choosing, "_measured", None)
    frozen(nn.Conv2d(32, 64, 3, padding=1), torch.randn(1, 32, 12, 12) * 2)
    frozen(nn.Conv2d(32, 33, 3), torch.randn(1, 32, 12, 12))  # not whole vectors: the library's
    assert choosing._decided.items() <= decided.items()


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
        assert caplog.text.count("recompiling with their new values") == 1
        model.last.weight.data = torch.zeros(3, 8)
        torch.testing.assert_close(compiled(x), model(x))
        assert caplog.text.count("recompiling with their new values") == 2
    assert torchmux.report(compiled).graph_count == 1
    assert torchmux.report(compiled).graphs[0].report.output_code
