"""Backward from some of the results: the others count for nothing, not for zeros."""

from __future__ import annotations

import pytest
import torch

import torchmux


def separate(x, y):
    return x.sqrt(), y * 3, (y * 2).detach(), x.argmax()


def shared(x, y):
    both = (x + 1) * y
    return both.sqrt(), both + x, torch.cat([x.sqrt(), y]), y.unbind()[0]


def beside_a_part_of_an_input(x, y):
    return x.sqrt(), y * 3, x[1:], y


def parts_of_one(x, y):
    both = (x + 1).sqrt()
    return both[1:], y.sqrt(), both[:1]


def gradients(function, use, **keywords):
    x, y = torch.tensor([0.0, 4.0], requires_grad=True), torch.tensor([0.0, 2.0], requires_grad=True)
    results = function(x, y)
    torch.autograd.backward([results[p] for p in use], [torch.ones_like(results[p]) for p in use], **keywords)
    return x.grad, y.grad


def same(found, expected):
    if expected is None or found is None:
        return found is expected
    return torch.allclose(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "use"),
    [(separate, (0,)), (separate, (1,)), (separate, (0, 1)), *((shared, (p,)) for p in range(4)), (shared, (1, 3))]
    + [(beside_a_part_of_an_input, use) for use in ((0,), (1,), (2, 1), (3, 0), (2, 3))]
    + [(parts_of_one, use) for use in ((0,), (1,), (0, 2))],
)
def test_a_part_of_the_results(function, use):
    compiled = torchmux.compile(function, backend="aot_eager")
    for chosen in (use, (0, 1), use):
        for keywords in ({}, {"create_graph": True}):
            found, expected = (gradients(f, chosen, **keywords) for f in (compiled, function))
            assert all(map(same, found, expected)), (found, expected)


def test_compiled_code_gets_no_gradient_for_them():
    found, expected = (gradients(f, (1,)) for f in (torchmux.compile(shared, backend="native"), shared))
    assert all(map(same, found, expected)), (found, expected)


def test_each_choice_is_compiled_once():
    torchmux.reset()
    compiled = torchmux.compile(separate, backend="aot_eager")
    counts = []
    for use in ((1,), (1,), (0, 1), (1,), (0, 1), (0,), (0,)):
        gradients(compiled, use)
        (graph,) = torchmux.report(compiled).graphs
        counts.append(len(graph.report.placements))
    assert counts[0] == counts[1] < counts[2] == counts[3] == counts[4] < counts[5] == counts[6]


def test_with_sizes_that_change():
    def f(x, y):
        return x.sqrt().sum(0), (x * y).sum(1)

    compiled = torchmux.compile(f, backend="aot_eager", dynamic=True)
    for rows, used in ((3, 1), (5, 1), (3, 0)):
        found = []
        for function in (compiled, f):
            x, y = torch.zeros(rows, 2, requires_grad=True), torch.ones(rows, 2, requires_grad=True)
            function(x, y)[used].sum().backward()
            found.append((x.grad, y.grad))
        assert all(map(same, *found)), found


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_a_missing_gradient_of_another_layout(backend):
    """The loss and its argument are returned, and only the loss is differentiated; the argument is transposed."""
    linear = torch.nn.Linear(3, 4)

    def program(x, wanted):
        y = linear(x).transpose(1, 2) * 2
        return torch.nn.functional.mse_loss(y, wanted), y

    x, wanted = torch.randn(2, 5, 3), torch.randn(2, 4, 5)
    found = []
    for function in (program, torchmux.compile(program, backend=backend)):
        linear.zero_grad()
        function(x, wanted)[0].backward()
        found.append(linear.weight.grad)
    torch.testing.assert_close(found[1], found[0])
