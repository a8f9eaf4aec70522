"""What a graph on a GPU makes on the CPU: made on the GPU where nobody can tell.  Fake tensors stand for the GPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchmux.backends.common.moving import make_where_used

GPU = torch.device("cuda:0")


def on_cpu(function: Callable[..., Any]) -> set[str]:
    """Which operators make tensors on the CPU afterwards."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x = torch.empty(4, 4, device=GPU)
        gm = make_fx(function)(x)
    for lift in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.lift_fresh_copy.default):
        lift.args[0].meta = dict(lift.meta)  # as the numbers of a graph are when they are folded
        lift.replace_all_uses_with(lift.args[0])
        gm.graph.erase_node(lift)
    make_where_used(gm.graph)
    gm.graph.lint()
    with mode:  # what the graph computes can be computed there
        torch.fx.Interpreter(gm).run(torch.empty(4, 4, device=GPU))
    return {n.target.overloadpacket.__name__ for n in gm.graph.nodes if _is_on_cpu(n)}


def _is_on_cpu(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.Tensor) and value.device.type == "cpu"


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * (1 / 10000 ** (torch.arange(0, 8, 2).float() / 8)).to(x.device)


MOVED: dict[str, Callable[..., Any]] = {
    "mask": lambda x: x.masked_fill(torch.tril(torch.ones(4, 4)).bool().to(x.device), 0),
    "frequencies": scaled,
    "index": lambda x: torch.ops.aten.index.Tensor(x, [torch.arange(3)]),
    "number": lambda x: x * torch.full((), 2.0),
    "a number of the program's": lambda x: x + (torch.arange(4) * torch.tensor(3.0)).to(x.device),
    "page-locked": lambda x: x + torch.zeros(4, pin_memory=True).to(x.device, non_blocking=True),
    "joined": lambda x: x + torch.cat([torch.zeros(1), torch.ones(3)]).to(x),
}
LEFT: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "returned": (lambda x: (lambda m: (x + m.to(x.device), m))(torch.zeros(4)), {"zeros"}),
    "random": (lambda x: x + torch.rand(4).to(x.device), {"rand"}),
    "made from random": (lambda x: x + (torch.ones(4) * torch.rand(4)).to(x.device), {"ones", "rand", "mul"}),
    "one of two is returned": (
        lambda x: (lambda a, b: (x + (a + b).to(x.device), a * 2))(torch.ones(4), torch.zeros(4)),
        {"ones", "zeros", "add", "mul"},
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_it_is_made_where_it_is_used(name: str) -> None:
    assert not on_cpu(MOVED[name])


@pytest.mark.parametrize("name", LEFT)
def test_it_stays_on_the_cpu(name: str) -> None:
    function, left = LEFT[name]
    assert on_cpu(function) == left


def test_sizes_of_a_call() -> None:
    """What has as many elements as an input says is made where it is used, too."""
    graph = torch.fx.Graph()
    with FakeTensorMode():
        values = [6, torch.empty(6, device=GPU), torch.empty(6), torch.empty(6, device=GPU), torch.empty(6, device=GPU)]
    count, x = graph.placeholder("count"), graph.placeholder("x")
    made = graph.call_function(torch.ops.aten.arange.default, (count,), {"dtype": torch.float32})
    copied = graph.call_function(torch.ops.aten._to_copy.default, (made,), {"device": GPU})
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (x, copied)),))
    for node, value in zip(graph.nodes, values, strict=False):
        node.meta["val"] = value
    make_where_used(graph)
    assert made.kwargs["device"] == GPU
    assert made.meta["val"].device == GPU


def test_graphs_on_the_cpu_stay_as_they_are() -> None:
    gm = make_fx(lambda x: x + torch.arange(4))(torch.ones(4))
    before = gm.code
    make_where_used(gm.graph)
    gm.recompile()
    assert gm.code == before
