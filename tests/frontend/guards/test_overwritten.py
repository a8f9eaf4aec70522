"""What a program replaces without reading it is no reason to compile again."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchmux


def _table(x: torch.Tensor, table: Any) -> torch.Tensor:
    table["name"] = x
    return x + len(table)


def _removed(x: torch.Tensor, table: Any) -> torch.Tensor:
    del table["name"]
    table["name"] = "again"
    return x + 1


def _position(x: torch.Tensor, items: Any) -> torch.Tensor:
    items[1] = x
    items.append("new")
    items[-1] = "newer"
    return x + len(items)


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (_table, lambda i: {"first": 0, "name": f"name {i}", "other": f"other {i}"}),
        (_table, lambda i: collections.OrderedDict(first=0, name=f"name {i}")),
        (_removed, lambda i: {"name": f"name {i}", "other": f"other {i}"}),
        (_position, lambda i: [f"first {i}", f"second {i}", 3]),
    ],
)
def test_it_is_compiled_once(function: Callable, make: Callable[[int], Any]) -> None:
    compiled = torchmux.compile(function, backend="eager")
    for i in range(4):
        given, wanted = make(i), make(i)
        x = torch.ones(2)
        assert torch.equal(compiled(x, given), function(x, wanted))
        assert repr(given) == repr(wanted)
    assert torchmux.report(compiled).graph_count == 1


def test_what_is_read_is_guarded() -> None:
    def read_then_written(x: torch.Tensor, table: dict) -> torch.Tensor:
        y = x * len(table["name"])
        table["name"] = "new"
        return y

    compiled = torchmux.compile(read_then_written, backend="eager")
    assert [compiled(torch.ones(1), {"name": "n" * i}).item() for i in (1, 2, 3)] == [1, 2, 3]


def test_what_stays_is_read_later() -> None:
    """Of a dictionary and a list of which a part was replaced."""

    def read_afterwards(x: torch.Tensor, table: dict, items: list) -> torch.Tensor:
        table["a"], items[0] = 5, 7
        return x * table["b"] + items[1]

    compiled = torchmux.compile(read_afterwards, backend="eager")
    for i in (1, 2, 3):
        assert compiled(torch.ones(1), {"a": 0, "b": i}, [0, i]).item() == 2 * i


class _Registers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.state + x
        del self.state
        self.register_buffer("state", state)
        return state * 2


def test_a_buffer_that_is_registered_anew() -> None:
    """What the trace has removed is not taken to have been absent."""
    model = _Registers()
    compiled = torchmux.compile(model, backend="eager")
    assert [compiled(torch.ones(2))[0].item() for _ in range(4)] == [2, 4, 6, 8]
    assert torchmux.report(compiled).graph_count == 1
