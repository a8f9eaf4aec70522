"""Modules and parameters that the compiled function registers, exchanges and removes."""

import types

import pytest
import torch
from torch import nn

import torchmux

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of


def with_module(make):
    return lambda: (tensor(), make())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0


def twins():
    module = Block()
    module.first, module.second = nn.Linear(4, 4), nn.Linear(4, 4)
    module.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    return module


@feature(inputs=with_module(twins))
def modules_change_places(x, m):
    m.first, m.second = m.second, m.first
    return m.first(x), [name for name, _ in m.named_parameters()]


@feature(inputs=with_module(twins))
def modules_come_and_go(x, m):
    m.layers.append(nn.Sigmoid())
    m.layers[0] = m.first
    x = m.layers[-1](x) + m.layers[0](x)
    m.layers.insert(0, nn.Hardtanh())
    x = x + m.layers[0](x) + m.layers[1:][0](x)
    del m.layers[0]
    m.scale = m.second
    m.linear = None
    m.child = nn.Identity()
    return m.child(x), m.scale(x), [type(c).__name__ for c in m.layers], "scale" in vars(m), m.linear


class Reversed(nn.ModuleList):
    def __getitem__(self, index):
        return super().__getitem__(-1 - index)


@feature(inputs=with_module(lambda: Reversed([nn.Tanh(), nn.ReLU()])))
def module_list_with_its_own_items(x, ms):
    return ms[0](x), ms[1](x)


@feature(inputs=with_module(twins))
def parameters_change_places(x, m):
    m.second.weight, m.first.bias = m.first.weight, m.second.bias
    m.offset = m.first.bias
    return m.second(x) + m.offset, [name for name, _ in m.named_parameters(remove_duplicate=False)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_changes_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_changes_take_no_more_graphs(name):
    check_graphs(__name__, name)


class Scaled(nn.Module):
    """Reads numbers from a table, an object and a submodule."""

    def __init__(self):
        super().__init__()
        self.linear, self.inner = nn.Linear(3, 3), nn.Identity()
        self.config, self.table = types.SimpleNamespace(), {}
        self.put(0.5)

    def put(self, number):
        self.config.scale = self.table["scale"] = self.inner.scale = self.config.p = number

    def forward(self, x):
        x = self.linear(x) * self.config.scale + self.table["scale"]
        x = x / self.inner.scale
        return torch.dropout(x, self.config.p, self.training) if self.drops else x


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("drops", [False, True])
def test_floats_deep_inside_a_module_are_numbers_of_one_graph(backend, drops):
    """What is a constant of an operator, as the share that is dropped, stays one."""
    model = Scaled().eval()
    model.drops = drops
    compiled = torchmux.compile(model, backend=backend)
    x = torch.ones(2, 3)
    with torch.no_grad():
        for number in (0.5, 0.25, 0.75, 0.125):
            model.put(number)
            torch.testing.assert_close(compiled(x), model.forward(x))
    assert drops or torchmux.report(compiled).graph_count == 2
