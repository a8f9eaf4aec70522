"""Functions of ``torch.jit.script``: the Python behind them is traced where TorchScript computes the same."""

from typing import List  # noqa: UP035 - TorchScript knows this one

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


def test_what_torchscript_converts_is_left_to_it():
    """It makes a float of the number, and copies the list."""

    def program(x):
        items = [x]
        more = append(items)
        return by_float(x, 2).dtype, len(items), len(more)

    compiled = torchmux.compile(program, backend="eager")
    assert compiled(torch.arange(3)) == program(torch.arange(3)) == (torch.float32, 1, 2)
    assert torchmux.report(compiled).breaks
