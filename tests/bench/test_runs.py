"""What runs of a program show."""

from __future__ import annotations

import copy

import pytest
import torch

from torchmux.bench.programs import Loaded, NoProgram, Source, load
from torchmux.bench.runs import Runs, loss_of


class Insists(torch.nn.Module):
    """Says float32 wherever a program can, so that a mere ``.double()`` would not be exact."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x).float()
        x = x + torch.arange(8, dtype=torch.float32) / 3
        return self.linear(x.to(torch.float32)) * torch.ones(8)


def test_float64_reaches_all_of_a_program():
    torch.manual_seed(0)
    model, x = Insists().eval(), torch.randn(4, 8)
    found = Runs(Loaded(model, (x,))).exact(0, 0).tensors
    wide = copy.deepcopy(model).double()
    expected = wide.linear(wide.norm(x.double()) + torch.arange(8, dtype=torch.float64) / 3)
    torch.testing.assert_close(found["output"], expected, rtol=1e-14, atol=1e-14)


def test_float64_reaches_what_a_function_holds():
    weight, x = torch.randn(8, 8), torch.randn(4, 8)

    def function(value):
        return (value @ weight).softmax(-1)

    found = Runs(Loaded(function, (x,))).exact(0, 0).tensors
    torch.testing.assert_close(found["output"], (x.double() @ weight.double()).softmax(-1), rtol=1e-14, atol=1e-14)


def test_a_run_leaves_the_module_as_it_was():
    model = Insists().train()
    before = copy.deepcopy(model.state_dict())
    runs = Runs(Loaded(model, (torch.randn(4, 8),), training=True))
    shown = runs.show(model, 0).tensors
    runs.draw(1, 2)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {"output", "gradient of linear.weight", "gradient of norm.bias", "buffer norm.running_mean"} <= set(shown)
    assert not torch.equal(shown["buffer norm.running_mean"], before["norm.running_mean"])


def test_draws_are_the_same_problem_and_other_runs_are_not():
    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    runs = Runs(Loaded(model, (x,)))
    first, again = runs.draw(0, 0).tensors["output"], runs.draw(0, 0).tensors["output"]
    drawn, other = runs.draw(0, 1).tensors["output"], runs.draw(1, 0).tensors["output"]
    assert torch.equal(first, again)
    torch.testing.assert_close(first, drawn)
    assert not torch.equal(first, drawn) and not torch.allclose(first, other)


def test_random_numbers_are_noticed():
    assert Runs(Loaded(lambda x: x + torch.rand(3), (torch.ones(3),))).show(lambda x: x + torch.rand(3), 0).random
    assert not Runs(Loaded(torch.sin, (torch.ones(3),))).show(torch.sin, 0).random


def test_a_loss():
    x = torch.ones(3, requires_grad=True)
    assert loss_of((2 * x).sum()).item() == 6
    assert loss_of((2 * x, torch.ones(2))).item() == 4
    with pytest.raises(ValueError, match="no backward pass"):
        loss_of(torch.ones(3))


def test_a_program_of_the_zoo_is_the_same_each_time():
    pytest.importorskip("transformers")
    source = Source("zoo", ("tiny/bert",), "tiny/bert", batch=5, dtype="bfloat16", training=True)
    one, two = load(source), load(source)
    assert one.kwargs["input_ids"].shape[0] == one.kwargs["labels"].shape[0] == 5
    assert all(torch.equal(one.kwargs[name], two.kwargs[name]) for name in one.kwargs)
    pairs = zip(one.model.parameters(), two.model.parameters(), strict=True)
    assert all(a.dtype is torch.bfloat16 and torch.equal(a, b) for a, b in pairs)
    assert one.model.training and one.training


def test_what_the_zoo_does_not_have():
    with pytest.raises(NoProgram, match="Did you mean 'mlp'"):
        load(Source("zoo", ("mpl",), "mpl"))
