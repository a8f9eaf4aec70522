"""What has too little in it for a graph runs in eager; what follows, and what it calls, is captured all the same."""

from __future__ import annotations

import functools
import time

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import torchmux


def much(x):
    return x.sin().cos().tanh().sigmoid().exp().sin().cos().tanh()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = much(self.linear(x))
        if x.sum() > 0:
            x = x * 2
        return much(x)


class Stack(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(count))

    def forward(self, x):
        kept = []
        for number, layer in enumerate(self.layers):
            x = layer(x)
            kept.append(x + number)
        return much(x), kept


def compiled(function):
    return torchmux.compile(function, backend="eager")


def test_layers_that_break_are_captured_once_whatever_their_number():
    model, x = Stack(12).eval(), torch.randn(2, 4)
    made = compiled(model)
    with torch.no_grad():
        (found, kept), (expected, others) = made(x), model(x)
        made(x)
    assert torch.equal(found, expected)
    assert all(map(torch.equal, kept, others))
    report = torchmux.report(made)
    assert report.graph_count == 3  # the two parts of a layer, and what follows the loop
    assert not report.recompiles
    assert any("the surrounding loop runs in eager" in each.reason for each in report.breaks)


def leaves_early(x, limit):
    x, steps = much(x), 0
    for step in range(5):
        steps = step
        if x.sum() > limit:
            break
        x = x + 1
    else:
        steps = -1
    return much(x), steps


def returns_early(x, limit):
    x = much(x)
    for step in range(5):
        if x.sum() > limit:
            return step
        x = x + 1
    return much(x)


def in_contexts(x, limit):
    with torch.no_grad():
        try:
            x = much(x)
            for step in range(5):
                if x.sum() > limit:
                    raise ValueError(step)
                x = x + 1
            return much(x)
        except ValueError as error:
            return error.args
        finally:
            x = None


def two_loops(x, limit):
    made = []
    for _ in range(2):
        for _ in range(2):
            made.append(x.sum().item() > limit)
        x = x + 1
    for each in made:
        x = x + each
    return much(x)


def counts_down(x, limit):
    x = much(x)
    while x.sum() < limit:
        x = x + 1
    return much(x)


@pytest.mark.parametrize("function", [leaves_early, returns_early, in_contexts, two_loops, counts_down])
@pytest.mark.parametrize("limit", [-100.0, 5.0, 100.0])
def test_each_way_out_of_a_loop(function, limit):
    x = torch.linspace(-1, 1, 4)
    made = compiled(function)
    for _ in range(2):
        assert str(made(x, limit)) == str(function(x, limit))
        assert torch.is_grad_enabled()


def test_a_loop_with_much_in_each_pass_is_captured():
    def function(x):
        for _ in range(3):
            x = much(x)
            if x.sum() > 100:
                break
        return x

    x = torch.linspace(-1, 1, 4)
    made = compiled(function)
    assert torch.equal(made(x), function(x))
    assert torchmux.report(made).graph_count >= 2


def test_a_single_layer_that_eager_code_calls_is_no_graph():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(4)

        def forward(self, x):
            for _ in range(2):
                if x.sum() > 100:
                    x = x + 1
            return self.norm(x)

    model, x = Model(), torch.randn(2, 4)
    made = compiled(model)
    assert torch.equal(made(x), model(x))
    report = torchmux.report(made)
    assert report.graph_count == 0
    behind, norm = report.left_to_eager[:2]
    assert "Model.forward (" in behind
    assert "1 operator after a loop that runs in eager" in behind
    assert "LayerNorm.forward (" in norm
    assert "1 operator in a layer that eager code calls" in norm
    assert f"left to eager: {norm}" in str(report)


def bare():
    """Layers and functions of torch, as a user would compile them: (what, its arguments)."""
    functional, linear, x = torch.nn.functional, torch.nn.Linear(4, 4), torch.randn(3, 4)
    return {
        "layer": (torch.nn.LayerNorm(4), (x,)),
        "container": (torch.nn.Sequential(linear), (x,)),
        "function": (functional.softmax, (x, -1)),
        "partial": (functools.partial(functional.layer_norm, normalized_shape=(4,)), (x,)),
        "bound method": (linear.forward, (x,)),
        "plain method": (torch.nn.Linear.forward, (linear, x)),
    }


@pytest.mark.parametrize("name", bare())
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_single_layer_that_was_asked_for_is_a_graph(name, fullgraph):
    what, arguments = bare()[name]
    made = torchmux.compile(what, backend="eager", fullgraph=fullgraph)
    assert torch.equal(made(*arguments), what(*arguments))
    assert torchmux.report(made).graph_count == 1
    assert torchmux.explain(what)(*arguments).graph_count == 1
    assert len(torchmux.export(what)(*arguments).graph_module.graph.nodes) >= 3


def test_a_comprehension_that_breaks_is_left_to_eager():
    def function(x):
        positive = [row for row in x if row.sum() > 0]
        return much(torch.stack([row * 2 for row in positive])), len(positive)

    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [3.0, -1.0]])
    made = compiled(function)
    for _ in range(2):
        (found, count), (expected, other) = made(x), function(x)
        assert torch.equal(found, expected)
        assert count == other == 2
    report = torchmux.report(made)
    assert report.graph_count <= 2  # two where comprehensions are part of their function, from CPython 3.12 on
    assert report.graphs[-1].graph.graph.find_nodes(op="call_method", target="sin")
    assert any("the surrounding loop runs in eager" in each.reason for each in report.breaks)


def test_what_a_comprehension_in_eager_calls_is_captured():
    def function(x):
        return [much(row) if row.sum() > 0 else much(row + 1) for row in x]

    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    made = compiled(function)
    assert all(map(torch.equal, made(x), function(x)))
    report = torchmux.report(made)
    assert report.graph_count >= 1
    assert any(entry.graph.graph.find_nodes(op="call_method", target="sin") for entry in report.graphs)


def test_what_a_graph_does_not_look_at_is_not_guarded():
    def function(x, other):
        x = x * 2
        torchmux.graph_break()
        return x + other.sum()

    made = compiled(function)
    for size in (2, 3, 4, 5):
        made(torch.ones(2), torch.ones(size))
    first = [each for each in torchmux.report(made).recompiles if "other" in each]
    assert len(first) == 1  # in the second part, where the size becomes a symbol


def test_loops_of_which_each_pass_needs_a_graph_of_its_own():
    def function(x, numbers):
        for number in numbers:
            x = much(x) if number % 2 else much(x * number)
            if x.sum() > 100:
                break
        return x

    x = torch.linspace(-1, 1, 4)
    made = compiled(function)
    numbers = list(range(12))
    assert torch.equal(made(x, numbers), function(x, numbers))
    assert torchmux.report(made).graph_count <= 4


def test_a_cell_that_a_function_shares_with_the_resumed_frame():
    def function(x, scale):
        def scaled():
            return x * scale

        y = x + 1
        torchmux.graph_break()
        return y + scaled()

    made, x = compiled(function), torch.ones(3)
    for _ in range(3):
        assert torch.equal(made(x, 4), function(x, 4))
    assert torchmux.report(made).graph_count == 2
    assert not torchmux.report(made).recompiles


def test_a_function_of_no_tensors_that_breaks_at_once_runs_in_eager_as_a_whole():
    """A context manager that takes the time: in two parts, each would cost more than all that it does."""

    class Timer:
        seconds = 0.0

        def __enter__(self):
            self.began = time.perf_counter()
            return self

        def __exit__(self, *_):
            self.seconds = time.perf_counter() - self.began

    def run(x):
        for _ in range(3):
            with timer:
                x = x + 1
        return x

    timer = Timer()
    compiled = torchmux.compile(run, backend="eager")
    for _ in range(4):
        timer.seconds = 0.0
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 3)
        assert timer.seconds > 0
    report = torchmux.report(compiled)
    assert [each.resume for each in report.calls if "Timer" in each.function] == [0, 0]
    assert any("no tensors" in words for words in report.left_to_eager)


def test_one_that_may_compute_much_goes_on_after_the_break():
    class State:
        value = torch.ones(2)

        def step(self):
            print(end="")
            return self.value.sin().cos().tan().exp().abs() * 2 + 1

    state = State()
    compiled = torchmux.compile(lambda x: [x + 1, *[state.step() for _ in range(2)]][1], backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), state.step())
    assert any(each.function.endswith("step") and each.compiled for each in torchmux.report(compiled).calls)


@pytest.mark.parametrize("options", [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}])
def test_a_generator_that_waits_behind_a_break_is_read_in_eager(options):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    averages = [AveragedModel(model, **options) for _ in range(2)]
    made = compiled(lambda: averages[0].update_parameters(model))
    for step in range(3):
        with torch.no_grad():
            model[0].weight.fill_(step)
        made()
        averages[1].update_parameters(model)
    for ours, expected in zip(averages[0].parameters(), averages[1].parameters(), strict=True):
        assert torch.equal(ours, expected)
    report = torchmux.report(made)
    assert "before a graph break that a generator outlives" in "".join(report.left_to_eager)
    assert {each.function for each in report.graphs}.isdisjoint({"AveragedModel.update_parameters"})
