"""A text made of a number that names another thing in each call ends the graph, and is not compiled each time."""

from __future__ import annotations

import pytest
import torch

import torchmux


def _item(x, n, table):
    return x * 2 + table[f"k{n}"]


def _attribute(x, n, table):
    return x * 2 + getattr(table["box"], "k" + str(n))


def _written(x, n, table):
    table["log"]["loss/" + str(n)] = x.sum()
    return x * 2


def _compared(x, n, table):
    return x * 2 if f"{n}" in table else x * 3


@pytest.mark.parametrize("program", [_item, _attribute, _written, _compared], ids=lambda f: f.__name__[1:])
def test_many_names(program):
    def table():
        box = type("Box", (), {f"k{n}": torch.full((3,), float(n)) for n in range(12)})()
        return {**{f"k{n}": torch.full((3,), -float(n)) for n in range(12)}, "box": box, "log": {}, "4": 0}

    ours, theirs = table(), table()
    compiled = torchmux.compile(program, backend="eager")
    for n in range(12):
        assert torch.equal(compiled(torch.ones(3), n, ours), program(torch.ones(3), n, theirs))
    assert list(ours["log"]) == list(theirs["log"])
    report = torchmux.report(compiled)
    assert len(report.graphs) <= 6 and any("text" in str(each) for each in report.breaks)


def test_few_names_and_whole_graphs():
    table = {f"k{n}": torch.full((3,), float(n)) for n in range(5)}
    few = torchmux.compile(_item, backend="eager")
    whole = torchmux.compile(_item, backend="eager", fullgraph=True)
    for n in (0, 1, 2, 3, 1, 2):
        few(torch.ones(3), n, table)
    for n in range(5):
        assert torch.equal(whole(torch.ones(3), n, table), torch.full((3,), 2.0 + n))
    assert not torchmux.report(few).breaks
