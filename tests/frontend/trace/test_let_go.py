"""Compiled code keeps no argument of the program's alive, as eager keeps none."""

import gc
import weakref

import pytest
import torch

import torchmux


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_arguments_of_the_first_call_are_not_kept(backend, requires_grad):
    compiled = torchmux.compile(lambda x, y: (x * 2 + y, x is y), backend=backend)
    arguments = [torch.ones(2, requires_grad=requires_grad), torch.ones(3, 2)]
    results = compiled(*arguments)
    alive = [weakref.ref(argument) for argument in arguments]
    del arguments, results
    assert [reference() for reference in alive] == [None, None]


class Closes:
    def __del__(self):
        pass


def _breaks_as_a_whole(x, y):
    Closes()
    return x * 2 + y


def _breaks_at_a_number(x, y):
    return x.sum().item() + y


@pytest.mark.parametrize("function", [_breaks_as_a_whole, _breaks_at_a_number])
def test_arguments_of_frames_that_break_are_not_kept(function):
    inner = torchmux.compile(function, backend="eager")
    arguments = [torch.ones(2), torch.ones(3, 2)]
    gc.disable()
    try:
        torchmux.compile(lambda x, y: (x + 1, inner(x, y)), backend="eager")(*arguments)
        alive = [weakref.ref(argument) for argument in arguments]
        del arguments
        assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_weights_can_be_swapped(backend):
    """torch refuses to swap tensors to which weak references lead."""
    layer = torch.nn.Linear(2, 2)
    compiled = torchmux.compile(layer, backend=backend)
    for value in (1.0, 2.0):
        compiled(torch.ones(1, 2))
        torch.utils.swap_tensors(layer.weight, torch.nn.Parameter(torch.full((2, 2), value)))
        assert torch.equal(compiled(torch.ones(1, 2)), layer(torch.ones(1, 2)))


def test_what_a_weak_dictionary_held_is_gone():
    held = weakref.WeakValueDictionary()
    kept = [torch.ones(2)]
    held["a"] = kept[0]
    compiled = torchmux.compile(lambda x: (x + 1, held["a"] is kept[0]), backend="eager")
    assert compiled(torch.zeros(1))[1] is True
    kept[0] = torch.ones(3)
    with pytest.raises(KeyError):
        compiled(torch.zeros(1))
