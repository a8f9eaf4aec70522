"""Every optimizer of torch with every combination of its options: trained parameters and state are those of eager.

A program is an optimizer, options, an implementation, and what is compiled.  ``eager`` gives the same bits; what a
compiler computes is close.  The number of graphs does not grow with the steps.
"""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
from torch import nn

import torchmux
from torchmux.frontend.handlers import optim
from torchmux.frontend.polyfills import optim_

STEPS = 7  # RAdam takes another way from its sixth step on

DECAYS = ({"weight_decay": 0.1}, {"maximize": True}, {"maximize": True, "weight_decay": 0.1})
OPTIONS = {
    "Adam": (*DECAYS, {"amsgrad": True}, {"lr": torch.tensor(0.01)}, {"differentiable": True}),
    "AdamW": (*DECAYS, {"amsgrad": True}, {"betas": (0.5, 0.9)}),
    "NAdam": (*DECAYS, {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"momentum_decay": 0.1}),
    "RAdam": (*DECAYS, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "Adamax": DECAYS,
    "Adagrad": (*DECAYS, {"lr_decay": 0.1}, {"initial_accumulator_value": 0.1}),
    "ASGD": (*DECAYS, {"t0": 2.0}),
    "SGD": (*DECAYS, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.1}),
    "RMSprop": (*DECAYS, {"momentum": 0.9}, {"centered": True}),
    "Rprop": ({"maximize": True},),
    "Adadelta": (*DECAYS, {"rho": 0.5}),
    "Adafactor": DECAYS[:2],
}
WAYS = ({}, {"foreach": True}, {"foreach": False}, {"capturable": True})
FUSED = {"Adam", "AdamW", "SGD", "Adagrad"}
WITHOUT_CAPTURABLE = {"Adagrad", "SGD", "Adafactor"}
BRANCHES = {
    "RAdam",
    "ASGD",
    "Adafactor",
}  # in lists, they ask for the count of steps: each update has graphs of its own


def programs(name):
    for options, way in itertools.product(({}, *OPTIONS[name]), (*WAYS, {"fused": True})):
        if ("fused" in way and name not in FUSED) or ("capturable" in way and name in WITHOUT_CAPTURABLE):
            continue
        if name == "Adafactor" and "fused" in way:
            continue
        yield {**options, **way}


def train(name, options, whole, compile_):
    """Everything that can be seen of some steps, or the error; and what was compiled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    function = None
    try:
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)

        def step():
            optimizer.step()

        def whole_step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = compile_(whole_step if whole else step)
        seen = []
        for number in range(STEPS):
            x = torch.randn(2, 4)
            if whole:
                seen.append(function(x))
            else:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                if number == 3:
                    model[0].bias.grad = None
                function()
            seen.extend(p.detach().clone() for p in model.parameters())
        for state in optimizer.state.values():
            seen.extend(value for value in state.values() if isinstance(value, torch.Tensor))
        return seen, function
    except Exception as error:
        return (type(error), str(error)), function


def check(name, options, whole, backend):
    expected, _ = train(name, options, whole, lambda function: function)
    torchmux.reset()
    found, compiled = train(name, options, whole, lambda function: torchmux.compile(function, backend=backend))
    program = (name, options, "whole" if whole else "step", backend)
    if isinstance(expected, tuple):
        assert found == expected, program
        return
    assert isinstance(found, list), (program, found)
    for mine, theirs in zip(found, expected, strict=True):
        if backend == "eager":
            assert torch.equal(mine, theirs), program
        else:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, msg=str(program))
    graphs = torchmux.report(compiled).graph_count
    # one graph, another for the step without a gradient, and forward and backward
    many = name in BRANCHES and (name == "Adafactor" or options.get("foreach") or "lr" in options)
    assert graphs <= (40 if many else 6), (program, graphs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_as_in_eager(name):
    for options in (*list(programs(name))[:5], OPTIONS[name][0]):
        check(name, options, False, "eager")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_training_is_as_in_eager(name):
    check(name, {}, True, "eager")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["native", "aot_eager"])
@pytest.mark.parametrize("name", OPTIONS)
def test_compiled_steps_are_close(name, backend):
    check(name, {}, False, backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_program(name, backend):
    for options, whole in itertools.product(programs(name), (False, True)):
        check(name, options, whole, backend)


def test_capturable_is_refused_where_eager_refuses_it():
    expected, _ = train("Adam", {"capturable": True}, False, lambda function: function)
    assert expected[0] is AssertionError


def test_foreach_of_adamax():
    found, _ = train("Adamax", {"foreach": True}, False, lambda f: torchmux.compile(f, backend="eager", fullgraph=True))
    assert isinstance(found, list), found


def test_a_step_stays_one_graph():
    """A count that grows with each call compiles nothing anew."""
    for name in ("Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "ASGD"):
        torchmux.reset()
        model = nn.Linear(2, 2)
        optimizer = getattr(torch.optim, name)(model.parameters())
        compiled = torchmux.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)  # noqa: B023
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            compiled()
        assert torchmux.report(compiled).graph_count == 1, name


@pytest.mark.parametrize("name", ["asgd", "radam"])
def test_steps_of_another_torch_are_traced_as_they_are(name):
    """What stands for a step of torch's is used only where it gives its bits."""
    module = sys.modules[f"torch.optim.{name}"]
    function, written = getattr(module, f"_single_tensor_{name}"), getattr(optim_, f"single_tensor_{name}")
    assert optim.agree(function, written)

    def other(params, *lists, **options):
        function(params, *lists, **options)
        params[0].mul_(1 + 2**-20)

    def refusing(params, *lists, lr, another):
        raise AssertionError("never called")

    other.__name__ = refusing.__name__ = function.__name__
    assert not optim.agree(other, written)
    assert not optim.agree(refusing, written)
