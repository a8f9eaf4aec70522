"""Collectives in ATen graphs: how many there are, where they start and end, and where their results lie."""

from __future__ import annotations

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux.backends.common import collectives
from torchmux.backends.common.pipeline import aliasing
from torchmux.backends.common.pipeline.partition import Part, partition

functional = torch.ops._c10d_functional


def all_reduce(x, how="sum", group="g"):
    return functional.wait_tensor(functional.all_reduce(x, how, group))


def traced(function, *inputs) -> GraphModule:
    return make_fx(function, tracing_mode="fake")(*inputs)


def count(gm, name):
    return sum(str(node.target).startswith(f"_c10d_functional.{name}") for node in gm.graph.nodes)


x, y, z = (torch.ones(4, 4) * n for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x, y, z: all_reduce(x) + all_reduce(y), 1),
        (lambda x, y, z: all_reduce(x) + all_reduce(y) + all_reduce(z), 1),
        (lambda x, y, z: all_reduce(x, "max") + all_reduce(y, "max"), 2),
        (lambda x, y, z: all_reduce(x) + all_reduce(y, group="h"), 2),
        (lambda x, y, z: all_reduce(x) + all_reduce(y[0]), 2),
        (lambda x, y, z: all_reduce(x) + all_reduce(y.double()), 2),
        (lambda x, y, z: torch.add(all_reduce(x), all_reduce(y), alpha=2), 2),
        (lambda x, y, z: (lambda a, b: (a + b, a))(all_reduce(x), all_reduce(y)), 2),
        (lambda x, y, z: (lambda a: a + a)(all_reduce(x)), 1),
    ],
)
def test_sums_are_added_before_they_are_communicated(function, left):
    gm = traced(function, x, y, z)
    collectives.add_before_summing(gm.graph)
    gm.graph.lint()
    assert count(gm, "all_reduce") == count(gm, "wait_tensor") == left


def backward(a, w, v):
    gradient = a.relu()
    return all_reduce(gradient @ w).sin(), gradient.t() @ v, (gradient @ v).t()


def split(gm):
    return partition(
        gm.graph, lambda node: int(not collectives.communicates(node)), trivial=aliasing.is_view,
        ordered=collectives.starts,
    )  # fmt: skip


def products(part):
    return sum(node.target is torch.ops.aten.mm.default for node in part.nodes)


def test_products_are_computed_before_the_end_is_waited_for():
    gm = traced(backward, x, y, z)
    steps = split(gm).steps
    told = [
        f"part with {products(step)}" if isinstance(step, Part) else str(step.target)
        for step in steps
        if isinstance(step, Part) or collectives.communicates(step)
    ]
    assert told == [
        "part with 1", "_c10d_functional.all_reduce.default", "part with 2", "_c10d_functional.wait_tensor.default",
        "part with 0",
    ]  # fmt: skip


def test_what_is_needed_before_stays_before():
    gm = traced(lambda a, w, v: all_reduce((a @ v).sin() @ w) + a @ v, x, y, z)
    first, *_ = split(gm).parts
    assert products(first) >= 2


def test_collectives_keep_their_order():
    """The second starts after the first, though its argument is there earlier."""
    gm = traced(lambda a, b: (all_reduce(all_reduce(a.sin()).cos()), all_reduce(b)), x, y)
    started = [s for s in split(gm).steps if not isinstance(s, Part) and collectives.starts(s)]
    assert started == [node for node in gm.graph.nodes if collectives.starts(node)]


@pytest.mark.parametrize(
    ("function", "is_in_place"),
    [
        (lambda a: all_reduce(a.sin()), True),
        (lambda a: all_reduce(a.sin().view(2, 8)), True),
        (lambda a: all_reduce(a), False),
        (lambda a: all_reduce(a.view(2, 8)), False),
        (lambda a: (lambda s: (all_reduce(s), s))(a.sin()), False),
        (lambda a: (lambda s: (all_reduce(s), s.view(2, 8).cos()))(a.sin()), False),
        (lambda a: (lambda s: (all_reduce(s), all_reduce(s, "max")))(a.sin()), False),
    ],
)
def test_a_result_that_nobody_else_reads_is_overwritten(function, is_in_place):
    gm = traced(function, x)
    made = [node for part in split(gm).parts for node in part.outputs]
    found = collectives.overwritable(gm.graph, made)
    assert bool(found) == is_in_place


def test_only_contiguous_memory_is_overwritten(monkeypatch):
    called = []
    for name in ("all_reduce", "all_reduce_"):
        monkeypatch.setattr(functional, name, lambda tensor, *_, name=name: called.append(name) or tensor)
    for tensor in (x, x.t()[:, :2]):
        collectives.all_reduce_in_place(tensor, "sum", "g")
    assert called == ["all_reduce_", "all_reduce"]
