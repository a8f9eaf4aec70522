"""What is compiled goes when what it was compiled for goes, though classes and functions live on."""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import pytest
import torch
from torch import nn

import torchmux
from torchmux.frontend.capture.captured import Captured, CodeState
from torchmux.frontend.guards.check import CompiledGuards
from torchmux.frontend.hook.session import Session

KINDS = (Captured, CodeState, CompiledGuards, Session, torch.fx.GraphModule, torch.fx.Node, torch.Tensor)


def alive():
    gc.collect()
    gc.collect()
    return Counter(kind.__name__ for each in gc.get_objects() for kind in KINDS if issubclass(type(each), kind))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        torchmux.graph_break()
        return y.relu()


def scale(x):
    y = x + 1
    torchmux.graph_break()
    return y * 2


def module(backend):
    torchmux.compile(Net(), backend=backend)(torch.ones(2, 4)).sum().backward()


def function(backend):
    def local(x):
        y = x + 1
        torchmux.graph_break()
        return y * 3

    torchmux.compile(local, backend=backend)(torch.ones(2))


def explained(backend):
    torchmux.explain(scale, backend=backend)(torch.ones(2))


def exported(backend):
    torchmux.export(lambda x: x + 1)(torch.ones(2))


def forced(backend):
    with torchmux.set_stance("default", force_backend=backend):
        module("eager")


def failing(backend):
    def broken(gm, example_inputs):
        raise OSError

    with pytest.raises(torchmux.CompilationFailed):
        torchmux.compile(Net(), backend=broken)(torch.ones(2, 4))


@pytest.mark.parametrize("use", [module, function, explained, exported, forced, failing])
def test_nothing_is_left(use):
    for _ in range(2):
        use("eager")
    before = alive()
    for _ in range(5):
        use("eager")
    after = alive()
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]} == {}


def test_two_hundred_rounds():
    def memory():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def round_():
        layer = nn.Linear(64, 64)
        torchmux.compile(layer, backend="eager")(torch.ones(2, 64))

    for _ in range(20):
        round_()
    before, memory_before = alive(), memory()
    for _ in range(200):
        round_()
    after = alive()
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]} == {}
    assert memory() - memory_before < 40 * 2**20  # two hundred such layers alone would take 3 MB, their graphs more


def test_compiled_code_of_a_class_does_not_pile_up():
    """The entries of instances that are gone are not looked at any more."""
    calls = []

    def backend(gm, example_inputs):
        calls.append(gm)
        return gm.forward

    kept = torchmux.compile(nn.Linear(4, 4), backend=backend, fullgraph=True)
    kept(torch.ones(2, 4))
    for size in range(5, 17):
        torchmux.compile(nn.Linear(4, size), backend=backend, fullgraph=True)(torch.ones(2, 4))
    gc.collect()
    kept(torch.ones(2, 4))
    assert len(calls) == 13


def test_reset_lets_go_of_graphs():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(weakref.ref(gm))
        return lambda *args: gm.forward(*args)

    compiled = torchmux.compile(Net(), backend=backend)
    compiled(torch.ones(2, 4))
    del compiled
    torchmux.reset()
    gc.collect()
    assert [reference() for reference in graphs] == [None] * len(graphs)


@pytest.mark.parametrize("ends", ["captured", "again for a number", "at a break", "in eager"])
def test_a_trace_keeps_nothing_until_the_garbage_collector_runs(ends):
    """Whoever asks a weak reference sees what eager sees, and memory is free when the program lets go of it."""

    class Box:
        by = 2

    def make(box):
        reference = weakref.ref(box)

        def function(x):
            y = x * reference().by
            if ends == "at a break":
                print(end="")
            if ends == "in eager":
                try:
                    raise ValueError
                except ValueError:
                    print(end="")
            return y + 1

        return torchmux.compile(function, backend="eager"), reference

    gc.collect()
    gc.disable()
    try:
        box = Box()
        compiled, reference = make(box)
        compiled(torch.ones(2))
        if ends == "again for a number":
            box.by = 3
            compiled(torch.ones(2))
        del box
        assert reference() is None
    finally:
        gc.enable()


class Factor:
    def __init__(self, number):
        self.number = number


def breaks_in_a_row(x, factor):
    y = x * factor.number
    torchmux.graph_break()
    z = y.sum().item()
    torchmux.graph_break()
    return y * z


def breaks_in_a_loop(x, factor):
    for _ in range(3):
        x = x + factor.number
        torchmux.graph_break()
    return x


@pytest.mark.parametrize("function", [breaks_in_a_row, breaks_in_a_loop])
def test_attempts_that_started_again_keep_no_argument(function):
    compiled = torchmux.compile(function, backend="eager")
    gc.disable()
    try:
        for number in (1, 2, 3):
            factor = Factor(number)
            gone = weakref.ref(factor)
            compiled(torch.ones(2), factor)
            del factor
            assert gone() is None
    finally:
        gc.enable()


def test_the_exception_that_the_program_handles_keeps_its_traceback():
    def function(x):
        try:
            raise ValueError("the program's")
        except ValueError as error:
            return inner(x), error.__traceback__ is not None

    def inner(x):
        y = x + 1
        torchmux.graph_break()
        return y * 2

    compiled = torchmux.compile(function, backend="eager")
    assert compiled(torch.ones(2))[1]
