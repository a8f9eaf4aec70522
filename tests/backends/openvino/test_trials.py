"""What single operators are tried on before OpenVINO runs them."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

pytest.importorskip("openvino")

from torchmux.backends.openvino import trial


def _asked(f, *shapes):
    """The numbers that each input of the one operator of ``f`` has in its questions, first by first."""
    graph = torch.fx.symbolic_trace(f).graph
    mode = FakeTensorMode()
    inputs = graph.find_nodes(op="placeholder")
    for node, shape in zip(inputs, shapes, strict=True):
        node.meta["val"] = mode.from_tensor(torch.empty(shape))
    (node,) = (each for each in graph.nodes if each.op == "call_function")
    with mode:
        node.meta["val"] = node.target(*(each.meta["val"] for each in node.all_input_nodes), *node.args[len(inputs) :])
    gm = trial.alone(node)
    asked = [given for given, *_ in trial._questions(gm, node)]
    return [set(torch.cat([given[at].flatten() for given in asked]).tolist()) for at in range(len(inputs))]


@pytest.mark.parametrize("shape", [(1,), (2, 2), (3, 7)])
def test_a_small_tensor_meets_every_special_number(shape):
    (numbers,) = _asked(lambda x: torch.ops.aten.exp.default(x), shape)
    special = set(torch.tensor(trial._SPECIAL).tolist()) | {float("inf"), float("-inf"), 20.0, 90.0}
    assert special <= numbers
    assert len(numbers) > len(trial._SPECIAL) + 4, "no other number"


def test_pairs_of_single_numbers_differ():
    first, second = _asked(lambda x, y: torch.ops.aten.mul.Tensor(x, y), (1,), (1,))
    assert min(len(first), len(second)) > 12
