"""Programs of many operators: native compiles all of them, with work in proportion to their number."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from tiers import slow_but

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


def many_outputs(number: int) -> Any:
    """As :func:`parallel`, with far fewer operators for the frontend to follow."""

    def run(x):
        found = []
        for n in range(number // 40):
            found += torch.unbind((x + n).cumsum(0).exp())
        return found

    return run


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


@pytest.mark.parametrize("program", slow_but([chain, fan, parallel], chain, fan))
def test_work_is_in_proportion(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in attempts to fuse, in the characters of the code and in its functions."""
    tried: list[int] = []
    fuse = kernel.fuse
    monkeypatch.setattr(
        "torchmux.backends.native.schedule.schedule.fuse", lambda *given: (tried.append(1), fuse(*given))[1]
    )
    found = []
    for number in (220, 440, 880):
        torchmux.reset()
        tried.clear()
        compiled = torchmux.compile(program(number), backend="native", strict=True)
        with torch.no_grad():
            compiled(torch.randn(8, 8))
        (graph,) = torchmux.report(compiled).graphs
        code, host = graph.report.output_code
        found.append((len(tried) + 8, len(code), len(host) + 800, code.count("NOINLINE static void") + 8))
    for small, large in itertools.pairwise(found):
        assert all(b <= 2.6 * a for a, b in zip(small, large, strict=True)), found


def test_the_largest_function_does_not_grow() -> None:
    """What a compiler needs grows faster than a function: kernels are not inlined, and who calls them is divided."""
    found = []
    for number in (2000, 4000):
        torchmux.reset()
        compiled = torchmux.compile(many_outputs(number), backend="native", strict=True)
        with torch.no_grad():
            compiled(torch.randn(8, 8))
        (graph,) = torchmux.report(compiled).graphs
        code = graph.report.output_code[0]
        assert code.count("static void kernel") == code.count("NOINLINE static void kernel")
        found.append(max(map(len, re.split(r"^}$", code, flags=re.MULTILINE))))
    assert found[1] <= 1.1 * found[0], found


def test_parts_have_all_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, addresses, memory between them, and who is told of a bad index."""
    monkeypatch.setattr("torchmux.backends.native.targets.cpu.module.STEPS_OF_A_PART", 2)

    def program(x, weight, at):
        found = [x @ weight]
        for n in range(6):
            found.append((found[-1].cumsum(0) @ weight + torch.embedding(weight, at) * n).softmax(0))
        return found

    weight, at = torch.randn(5, 5), torch.tensor([0, 3, 4])
    for dynamic in (False, True):
        torchmux.reset()
        compiled = torchmux.compile(program, backend="native", strict=True, dynamic=dynamic)
        for x in (torch.randn(3, 5), torch.randn(3, 5)):
            torch.testing.assert_close(compiled(x, weight, at), program(x, weight, at))
        (graph,) = torchmux.report(compiled).graphs
        code = graph.report.output_code[0]
        assert code.count("static void part") > 4
        with pytest.raises(IndexError):
            compiled(x, weight, at + 1)
