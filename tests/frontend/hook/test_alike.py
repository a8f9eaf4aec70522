"""Code that one compile() call has made of a module serves the others for copies of it."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

import torchmux
from torchmux.frontend.capture.captured import CodeState


class Layer(nn.Module):
    def __init__(self, factor=1):
        super().__init__()
        self.linear, self.factor = nn.Linear(4, 4), factor

    def forward(self, x):
        return self.linear(x) * self.factor


class Breaking(Layer):
    def forward(self, x):
        x = self.linear(x)
        print("between the graphs")
        return x.relu()


class Backend:
    def __init__(self):
        self.graphs = []

    def __call__(self, gm, _):
        self.graphs.append(gm)
        return gm.forward


@pytest.fixture
def backend():
    return Backend()


def check(models, backend, shape=(2, 4), **arguments):
    x = torch.randn(shape)
    for model in models:
        assert torch.equal(torchmux.compile(model, backend=backend, **arguments)(x), model(x))


@pytest.mark.parametrize(("kind", "count"), [(Layer, 1), (Breaking, 2)])
def test_copies_of_a_module_are_compiled_once(kind, count, backend):
    models = [copy.deepcopy(kind()) for _ in range(4)]
    for model in models:
        nn.init.normal_(model.linear.weight)
    check(models, backend)
    check(reversed(models), backend)
    assert len(backend.graphs) == count


def test_what_differs_is_compiled_for_itself(backend):
    models = [Layer(1), Layer(2), Layer(2)]
    models[2].linear.requires_grad_(False)
    check(models, backend)
    assert len(backend.graphs) == 3


def test_a_copy_that_changes_leaves_the_others_alone(backend):
    models = [Layer(), Layer(), Layer()]
    check(models, backend)
    models[0].linear = nn.Identity()
    models[1].register_forward_hook(lambda module, args, result: result + 1)
    check(models, backend)
    assert len(backend.graphs) == 3


def test_sizes_are_seen_for_all_copies(backend):
    models = [Layer() for _ in range(4)]
    for n in range(2, 6):
        check(models, backend, shape=(n, 4))
    assert len(backend.graphs) == 2


def test_other_settings_share_nothing(backend):
    models = [Layer(), Layer()]
    check(models[:1], backend)
    check(models[1:], backend, dynamic=False)
    assert len(backend.graphs) == 2
    check([Layer()], backend, isolate_recompiles=True)
    assert len(backend.graphs) == 3


def test_a_report_has_what_runs(backend):
    models = [Breaking(), Breaking()]
    check(models[:1], backend)
    second = torchmux.compile(models[1], backend=backend)
    second(torch.ones(2, 4))
    report = torchmux.report(second)
    assert (report.graph_count, len(report.breaks), len(backend.graphs)) == (2, 1, 2)


def test_code_outlives_the_module_that_it_was_made_for(backend):
    x = torch.ones(2, 4)
    for _ in range(3):
        model = Layer()
        assert torch.equal(torchmux.compile(model, backend=backend)(x), model(x))
    assert len(backend.graphs) <= 3


def test_code_that_depends_on_weights_is_not_shared(caplog):
    layers = [Layer(), Layer()]
    compiled = [torchmux.compile(each, backend="native", options={"freeze": True}) for each in layers]
    x = torch.ones(2, 4)
    with torch.no_grad():
        for each, layer in [*zip(compiled, layers, strict=True)] * 2:
            torch.testing.assert_close(each(x), layer(x))
    assert "parameters that were treated as constants changed" not in caplog.text


class Scale(nn.Module):
    def forward(self, x, k):
        return x * k


def test_nothing_is_taken_over_from_what_was_forgotten():
    """Also of a module that is gone, if something still holds what is remembered, such as a cycle."""

    def graphs():
        compiled = torchmux.compile(Scale(), backend="eager")
        for number in (2.0, 3.0):
            compiled(torch.ones(2), number)
        return torchmux.report(compiled).graph_count

    assert graphs() == 2  # of one number, and of any
    held = [each for each in gc.get_objects() if isinstance(each, CodeState)]
    assert held
    gc.collect()
    torchmux.reset()
    assert graphs() == 2
