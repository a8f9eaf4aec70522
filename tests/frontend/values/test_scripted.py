"""Functions of ``torch.jit.script``: the Python behind them is traced where TorchScript computes the same."""

from typing import List, Optional, Tuple  # noqa: UP035 - TorchScript knows these

import pytest
import torch

import torchmux


@torch.jit.script
def scaled(x, times: int, by: float = 2.0):
    for i in range(times):
        x = x + i * by
    if torch.jit.is_scripting():
        x = x + 100
    return x, x.sum()


@torch.jit.script
def by_float(x, factor: float):
    return x * factor


@torch.jit.script
def append(items: List[torch.Tensor]):  # noqa: UP006
    items.append(items[0])
    return items


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_scripted_functions_are_part_of_the_graph(backend):
    def program(x, times):
        return scaled(x, times), scaled(x * 2, 1, by=3.0), torch.jit.is_scripting(), scaled is scaled

    compiled = torchmux.compile(program, backend=backend, fullgraph=True)
    for times in (2, 3):
        torch.testing.assert_close(compiled(torch.ones(2), times), program(torch.ones(2), times))


@torch.jit.script
def combined(
    left: Tuple[torch.Tensor, torch.Tensor],  # noqa: UP006
    right: List[torch.Tensor],  # noqa: UP006
    times: Optional[List[int]] = None,  # noqa: UP006, UP045
    mode: str = "sum",
):
    first, second = left
    right.append(first)
    if times is not None:
        times[0] = 7
        second = second * len(times)
    if mode == "sum":
        return first + second, right
    return first - second, right


def test_torchscript_copies_containers():
    def program(x, items, pair, times):
        first, more = combined(pair, items, times)
        second, same = combined([first, x], (x, x), mode="none")
        return first, second, len(items), len(more), more is items, len(same), times, items[0] is more[0]

    compiled = torchmux.compile(program, backend="eager", fullgraph=True)
    for times in (None, [1, 2], [3]):
        x = torch.ones(2)
        given = [(x, [x * 2], (x, x + 1), times and [*times]) for _ in range(2)]
        assert str(compiled(*given[0])) == str(program(*given[1]))


def test_what_torchscript_refuses_is_left_to_it():
    compiled = torchmux.compile(lambda x: combined((x, x, x), [x]), backend="eager")
    with pytest.raises(RuntimeError, match="Expected a value of type"):
        compiled(torch.ones(2))


def test_what_torchscript_converts_is_left_to_it():
    """It makes a float of the number."""

    def program(x):
        items = [x]
        more = append(items)
        return by_float(x, 2).dtype, len(items), len(more)

    compiled = torchmux.compile(program, backend="eager")
    assert compiled(torch.arange(3)) == program(torch.arange(3)) == (torch.float32, 1, 2)
    assert torchmux.report(compiled).breaks


def test_a_traced_function_does_what_it_was_traced_to_do():
    traced = torch.jit.trace(lambda x: x + 1 if x.sum() > 0 else x - 1, (torch.ones(2),))
    compiled = torchmux.compile(lambda x: traced(x * 2), backend="eager")
    assert torch.equal(compiled(-torch.ones(2)), torch.full((2,), -1.0))
