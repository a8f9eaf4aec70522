"""The partitioner: no cycles, every node once, the same results, few parts, fast."""

from __future__ import annotations

import operator
import random
import time

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.fx import Graph, GraphModule, Node

from torchmux.backends.common.pipeline.assemble import assemble, extract, inputs_of
from torchmux.backends.common.pipeline.partition import Part, Partition, partition


def split_two(x):
    return x + 1, x * 2


def random_graph(seed: int, size: int) -> Graph:
    chance = random.Random(seed)
    graph = Graph()
    values = [graph.placeholder(f"x{i}") for i in range(3)]
    for _ in range(size):
        kind = chance.random()
        if kind < 0.15:
            pair = graph.call_function(split_two, (chance.choice(values),))
            values += [graph.call_function(operator.getitem, (pair, i)) for i in range(2)]
        elif kind < 0.3:
            values.append(graph.call_method("view", (chance.choice(values), 2, 2)))
        else:
            recent = values[-8:] if chance.random() < 0.7 else values
            values.append(graph.call_function(torch.maximum, (chance.choice(recent), chance.choice(values))))
    graph.output(tuple(chance.sample(values, min(4, len(values)))))
    graph.eliminate_dead_code()
    return graph


def is_view(node: Node) -> bool:
    return node.op == "call_method"


def split(graph: Graph, refused: set[Node], ordered: set[Node] = frozenset()) -> Partition:
    return partition(graph, lambda n: n not in refused, trivial=is_view, ordered=lambda n: n in ordered)


def test_views_at_the_end() -> None:
    """Torch makes them where a compiler could only copy."""
    graph = Graph()
    value = graph.call_function(torch.maximum, (graph.placeholder("x"), graph.placeholder("y")))
    view = graph.call_method("view", (value, 4))
    graph.output((view,))
    given = {"trivial": is_view, "ordered": lambda n: False}
    assert [s.nodes if isinstance(s, Part) else s for s in partition(graph, lambda n: 1, **given).steps] == [
        [value],
        view,
    ]
    (part,) = partition(graph, lambda n: 1, copied=lambda n: False, **given).steps
    assert part.nodes == [value, view]


def flat(result: Partition) -> list[Node]:
    return [n for s in result.steps for n in (s.nodes if isinstance(s, Part) else [s])]


def run(graph: Graph, result: Partition, inputs: list[torch.Tensor]):
    gm = GraphModule({}, graph)
    compiled = {id(p): extract(p, gm).forward for p in result.parts}
    return assemble(gm, result, compiled)(*inputs)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 60), share=st.floats(0, 1))
def test_any_graph_is_split_right(seed: int, size: int, share: float) -> None:
    graph = random_graph(seed, size)
    chance = random.Random(seed + 1)
    calls = [n for n in graph.nodes if n.op.startswith("call_")]
    refused = {n for n in calls if n.target is not operator.getitem and chance.random() < share}
    ordered = {n for n in refused if chance.random() < 0.5}
    result = split(graph, refused, ordered)

    order = flat(result)
    assert sorted(order, key=hash) == sorted(calls, key=hash), "every node exactly once"
    at = {n: i for i, n in enumerate(order)}
    for step in result.steps:  # a step only needs what came before it: no cycle
        taken = inputs_of(step) if isinstance(step, Part) else step.all_input_nodes
        first = at[step.nodes[0]] if isinstance(step, Part) else at[step]
        assert all(at[v] < first for v in taken if v in at)
    assert [n for n in order if n in ordered] == [n for n in calls if n in ordered]
    for part in result.parts:
        assert not refused & set(part.nodes)
        assert not all(is_view(n) for n in part.nodes)

    inputs = [torch.randn(2, 2) for _ in range(3)]
    expected = GraphModule({}, graph)(*inputs)
    for got, wanted in zip(run(graph, result, inputs), expected, strict=True):
        assert torch.equal(got, wanted)


def test_a_diamond_around_a_refused_node_is_two_parts() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.sin, (x,))
    refused = graph.call_function(torch.cos, (a,))
    side = graph.call_function(torch.exp, (a,))
    joined = graph.call_function(torch.add, (refused, side))
    graph.output((joined,))
    result = split(graph, {refused})
    assert [p.nodes for p in result.parts] == [[a], [side, joined]] or [p.nodes for p in result.parts] == [
        [a, side],
        [joined],
    ]
    assert result.crossings <= 2


def test_a_node_is_moved_to_the_part_that_uses_it() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.sin, (x,))
    refused = graph.call_function(torch.cos, (a,))
    early = graph.call_function(torch.exp, (y,))  # could run first, but only the last part needs it
    graph.output((graph.call_function(torch.add, (refused, early)),))
    result = split(graph, {refused})
    assert result.crossings == 1  # only what the refused node reads
    assert early in result.parts[1].nodes


def test_unconnected_nodes_share_a_part() -> None:
    graph = Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(4)]
    graph.output(tuple(graph.call_function(torch.sin, (x,)) for x in inputs))
    assert len(split(graph, set()).parts) == 1


def test_views_at_the_end_of_a_part_are_left_to_torch() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    computed = graph.call_function(torch.sin, (x,))
    shown = graph.call_method("view", (computed, 2, 2))
    again = graph.call_method("view", (shown, 2, 2))
    graph.output((again,))
    result = split(graph, set())
    assert [p.nodes for p in result.parts] == [[computed]]
    assert result.steps[1:] == [shown, again]


@pytest.mark.parametrize("every", [10, 3])
def test_four_thousand_nodes_take_less_than_two_seconds(every: int) -> None:
    graph = Graph()
    values = [graph.placeholder("x")]
    chance = random.Random(3)
    for _ in range(4000):
        values.append(graph.call_function(torch.maximum, (values[-1], chance.choice(values))))
    graph.output((values[-1],))
    calls = [n for n in graph.nodes if n.op == "call_function"]
    refused = set(calls[::every])
    start = time.perf_counter()
    result = split(graph, refused)
    assert time.perf_counter() - start < 2
    assert len(result.parts) - len(refused) in (0, -1)  # nothing may follow the last one
