"""Programs of many operators: native compiles all of them, with work in proportion to their number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import torchmux
from torchmux.backends.native.schedule import kernel


def chain(number: int) -> Any:
    def run(x):
        for n in range(number):
            x = x + 1.0 if n % 2 else x * 0.999
        return x

    return run


def parallel(number: int) -> Any:
    return lambda x: [x[n % 8] * (n + 1.5) for n in range(number)]


def fan(number: int) -> Any:
    def run(x):
        shared = torch.sin(x)
        total = x
        for n in range(number // 2):
            total = total + shared * (n + 0.5)
        return total

    return run


def tower(number: int) -> Any:
    def run(x):
        for _ in range(number // 4):
            x = torch.tanh(x - x.mean(-1, keepdim=True)) + 0.5
        return x

    return run


def views(number: int) -> Any:
    def run(x):
        for _ in range(number // 2):
            x = x.mT + 1.0
        return x

    return run


CASES = [(chain, 500), (fan, 500), (tower, 200), (views, 300), (parallel, 200)]
LARGE = [(chain, 2000), (fan, 3000), (tower, 2000), (parallel, 5000)]


@pytest.mark.parametrize(
    ("program", "number"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in LARGE)]
)
def test_native_compiles_all(program: Any, number: int) -> None:
    torchmux.reset()
    function = program(number)
    compiled = torchmux.compile(function, backend="native", strict=True)
    x = torch.randn(8, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-3, atol=1e-4)
    placed = [p for graph in torchmux.report(compiled).graphs for p in graph.report.placements]
    assert {p.placed_on for p in placed} == {"native"}


@pytest.mark.parametrize("program", [chain, fan])
def test_work_is_in_proportion(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in attempts to fuse, and in the characters of the code."""
    tried: list[int] = []
    fuse = kernel.fuse
    monkeypatch.setattr(
        "torchmux.backends.native.schedule.schedule.fuse", lambda *given: (tried.append(1), fuse(*given))[1]
    )
    found = []
    for number in (200, 400, 800):
        torchmux.reset()
        tried.clear()
        compiled = torchmux.compile(program(number), backend="native", strict=True)
        with torch.no_grad():
            compiled(torch.randn(8, 8))
        (graph,) = torchmux.report(compiled).graphs
        found.append((len(tried) + 8, len(graph.report.output_code[0])))
    for small, large in itertools.pairwise(found):
        assert all(b <= 2.6 * a for a, b in zip(small, large, strict=True)), found
