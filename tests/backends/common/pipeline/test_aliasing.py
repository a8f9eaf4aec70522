"""Views that the graph returns leave it in the order of the results."""

from __future__ import annotations

import torch
from torch.fx import Graph

from torchmux.backends.common.pipeline.aliasing import split_off_output_views


def test_copies_of_views_come_in_the_order_of_the_results():
    """Whatever the addresses of the nodes are: keys of caches depend on the order."""
    graph = Graph()
    x = graph.placeholder("x")
    views = [graph.call_function(torch.ops.aten.select.int, (x, 0, n)) for n in range(30)]
    graph.output(tuple(reversed(views)))
    copies = split_off_output_views(graph)
    assert [node.args[2] for node in graph.nodes if node in copies] == list(reversed(range(30)))
