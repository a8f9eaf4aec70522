"""Words in memory stand in for the check of a model's tensors: whatever changes one of them is noticed."""

import pytest
import torch

import torchmux
from torchmux.frontend.guards import snapshot, tensor_words, write_watch

needs_words = pytest.mark.skipif(not tensor_words.is_available(), reason="no such watches here")


def test_they_work_on_every_supported_torch():
    assert tensor_words.is_available()


@needs_words
@pytest.mark.parametrize("write", tensor_words.WRITES)
def test_every_way_to_write_is_noticed(write):
    assert tensor_words.is_noticed(write)


@needs_words
def test_what_no_guard_asks_changes_nothing():
    weight = torch.nn.Parameter(torch.ones(2, 3))
    watch = write_watch.Watch()
    assert tensor_words.note(watch, weight)
    watch.seal()
    (weight * 2).sum().backward()
    with torch.no_grad():
        weight.add_(weight.grad)
    weight.grad = None
    weight.data = torch.zeros(2, 3)
    assert watch.unchanged()
    weight.requires_grad_(False)
    assert not watch.unchanged()
    assert watch.changed() == {id(weight)}


@needs_words
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(1, 1, 1, 1, 1, 1),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.ones(2).as_subclass(type("Sub", (torch.Tensor,), {})),
    ],
)
def test_other_tensors_are_checked_as_ever(make):
    assert not tensor_words.note(write_watch.Watch(), make())


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3, bias=False) for _ in range(12))
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(x + layer.weight.sum(-1)[:3] * layer.weight.dim())
        return x.double() if layer.weight.requires_grad else x + self.shift.sum() * (x is self.shift)


CHANGES = {
    "dtype": lambda m: setattr(m.layers[3].weight, "data", torch.ones(3, 3, dtype=torch.float64)),
    "shape": lambda m: setattr(m.layers[3].weight, "data", torch.ones(3, 1)),
    "dimensions": lambda m: setattr(m.layers[3].weight, "data", torch.ones(3, 1, 3)[:, 0]),
    "gradients": lambda m: m.requires_grad_(True),
    "to": lambda m: m.double(),
    "replaced": lambda m: setattr(m.layers[5], "weight", torch.nn.Parameter(torch.ones(3, 7))),
    "buffer": lambda m: m.shift.resize_(4).fill_(2.0),
}


@needs_words
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_whose_tensors_change(change, monkeypatch):
    monkeypatch.setattr(snapshot, "_WORTH_IT", 1)
    torch.manual_seed(0)
    model = Model().eval().requires_grad_(False)
    compiled, x = torchmux.compile(model, backend="eager"), torch.randn(3)
    for _ in range(5):
        assert torch.equal(compiled(x), model(x))
    taken = [each for kept in compiled._torchmux_record.snapshots.values() for each in kept.values()]
    assert any(each.watch._behind for each in taken)
    CHANGES[change](model)
    for _ in range(4):
        found, wanted = compiled(x), model(x)
        assert found.dtype == wanted.dtype
        assert found.requires_grad == wanted.requires_grad
        assert torch.equal(found, wanted)


@needs_words
def test_an_argument_that_is_one_of_the_models_tensors():
    model = Model().eval().requires_grad_(False)
    compiled = torchmux.compile(model, backend="eager")
    for _ in range(5):
        compiled(torch.ones(3))
    assert torch.equal(compiled(model.shift), model(model.shift))


@needs_words
def test_a_mode_of_the_thread_is_noticed():
    """What the dispatch keys of a model's tensors mean depends on it."""

    class Constant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(torch.ones(3) for _ in range(12))

        def forward(self, number):
            return sum(self.weights) * number

    model = Constant()
    compiled = torchmux.compile(model, backend="eager")
    for _ in range(5):
        compiled(2)
    with torch.inference_mode():
        assert compiled(2).is_inference()
    assert not compiled(2).is_inference()
