"""``map`` and ``scan`` of torch, written out into the graph."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import map as map_over, scan

import torchmux

CALLS = []


def mapped(x, w):
    return map_over(lambda row, by: row.sin() * by + by.sum(), x, w)


def mapped_trees(x, w):
    found = map_over(lambda parts: {"a": parts[0] + parts[1], "b": (parts[0] * 2,)}, (x, x * w))
    return found["a"], found["b"]


def scanned(x, w):
    return scan(lambda carry, row: (carry * w + row, (carry - row).tanh()), x[0] * 0, x)


def scanned_backwards(x, w):
    def step(carry, parts):
        total = carry["total"] + parts[0]
        return {"total": total}, (total * parts[1], parts[1].sum() + w.sum())

    return scan(step, {"total": x[:, 0] * 0}, (x, x * 2), dim=1, reverse=True)


def tells(x, w):
    CALLS.append(1)
    return map_over(lambda row: CALLS.append(2) or row * 2, x) * w


def gives_back(x, w):
    return map_over(lambda row: row, x) * w


def changes_the_carry(x, w):
    return scan(lambda carry, row: (carry.sum(), row * 2), w, x)


def results(function, x, w):
    x, w = (each.clone().requires_grad_() for each in (x, w))
    found = torch.utils._pytree.tree_leaves(function(x, w))
    sum(each.sum() for each in found).backward()
    return [*found, x.grad, w.grad], [(each.shape, each.stride()) for each in found]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", [mapped, mapped_trees, scanned_backwards, scanned])
def test_loops_are_one_graph(function, backend):
    torch.manual_seed(0)
    x, w = torch.randn(3, 4), torch.randn(4)
    compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    expected, layout = results(function, x, w)
    for _ in range(2):
        found, same_layout = results(compiled, x, w)
        assert same_layout == layout
        for a, b in zip(expected, found, strict=True):
            torch.testing.assert_close(b, a)


@pytest.mark.parametrize("function", [tells, gives_back, changes_the_carry])
def test_what_eager_refuses_is_left_to_it(function):
    x, w = torch.randn(3, 4), torch.randn(4)
    compiled = torchmux.compile(function, backend="eager")
    outcomes = []
    for each in (function, compiled):
        try:
            outcomes.append(str(each(x, w)))
        except Exception as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
    assert torchmux.report(compiled).break_count


@pytest.mark.parametrize("function", [mapped, scanned])
def test_the_number_of_steps_is_a_constant(function):
    compiled = torchmux.compile(function, backend="eager")
    for steps in (3, 5, 4, 5):
        x, w = torch.randn(steps, 4), torch.randn(4)
        torch.testing.assert_close(compiled(x, w), function(x, w))
    report = torchmux.report(compiled)
    assert (report.graph_count, report.breaks) == (3, [])
