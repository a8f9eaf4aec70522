"""``explain`` answers with torch's fields, and says where each operator runs."""

from __future__ import annotations

import dataclasses

import torch
from torch._dynamo.backends.debugging import ExplainOutput

import torchmux


def program(x):
    y = x * 2
    torchmux.graph_break()
    return y.sin() + 1


def test_the_fields_are_torchs_and_the_placements():
    explanation = torchmux.explain(program)(torch.ones(2))
    theirs = {field.name for field in dataclasses.fields(ExplainOutput)}
    ours = {field.name for field in dataclasses.fields(explanation)}
    assert ours == theirs | {"placements", "report"}
    assert explanation.graph_count == len(explanation.graphs) == len(explanation.ops_per_graph) == 2
    assert explanation.graph_break_count == len(explanation.break_reasons) == 1
    assert explanation.op_count == 3
    assert "x is a float32 tensor of 2 on cpu" in explanation.out_guards
    assert [placement.placed_on for placement in explanation.placements] == ["eager"] * 3
    assert explanation.placements[0].where == f"{__file__}:{program.__code__.co_firstlineno + 1}"
    assert "2 graphs, 1 graph break, 3 operators" in str(explanation)


def test_it_agrees_with_torch_on_the_numbers():
    torch._dynamo.reset()

    def plain(x):
        y = x * 2
        print("between")
        return y.sin() + 1

    theirs = torch._dynamo.explain(plain)(torch.ones(2))
    ours = torchmux.explain(plain)(torch.ones(2))
    for field in ("graph_count", "graph_break_count"):  # operators that are methods torch does not count
        assert getattr(ours, field) == getattr(theirs, field), field


def test_an_exception_of_the_program_is_its_own():
    def raises(x):
        raise KeyError("mine")

    try:
        torchmux.explain(raises)(torch.ones(2))
    except KeyError as error:
        assert error.args == ("mine",)
    else:
        raise AssertionError("nothing was raised")
