"""What the tests of features share: small programs that are run in eager, compiled, and under torch's own tracer.

A feature is a plain function, called twice on inputs made by ``inputs``; or a generator, the world of a longer program:
it makes its objects, yields ``(function, args)`` for a call that is compiled, gets the result back, changes things and
yields the next call.  Anything else that it yields is only compared.  The world is built anew for each way of running
it, and everything that can be seen afterwards must agree: results, gradients, arguments, random state, modes.
"""

import inspect
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import torchmux

from .snippets.corpus import assert_same, only_tensor

FEATURES: dict = {}
BACKENDS = ("eager", "aot_eager")
# The release whose tracer ours is held against; others make more graphs of some features, and fewer of others.
YARDSTICK = "2.13"


@dataclass(frozen=True)
class Feature:
    name: str
    program: Any
    inputs: Any
    backward: bool
    more: str  # why there are more graphs than torch's own tracer makes
    again: str  # why more is compiled anew than it compiles anew once things have changed
    backends: tuple
    close: float | None  # how far numbers may be from eager's, absolutely and relatively; None: not at all
    exact: tuple  # backends for which ``close`` does not count


def feature(*, inputs=only_tensor, backward=True, more="", again="", backends=BACKENDS, close=None, exact=()):
    """Register a feature under the name of the function."""

    def register(program):
        found = FEATURES.setdefault(program.__module__, {})
        assert program.__name__ not in found, f"two features are named {program.__name__}"
        found[program.__name__] = Feature(
            program.__name__, program, inputs, backward, more, again, backends, close, exact
        )
        return program

    return register


def features_of(module):
    return list(FEATURES.get(module, ()))


def leaf(*shape):
    """A tensor that wants a gradient; its values are the same in every world."""
    return torch.randn(*shape, requires_grad=True)


def _twice(function, inputs):
    arguments = inputs()
    yield function, arguments
    yield function, arguments


def _run(feature, compile_, after_call=lambda: None):
    """Everything that can be seen of one way of running the program."""
    torch.manual_seed(0)
    random.seed(0)
    seen, compiled, sent = [], {}, None
    program = feature.program
    world = program() if inspect.isgeneratorfunction(program) else _twice(program, feature.inputs)
    grad_mode, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        while True:
            try:
                step = world.send(sent)
            except StopIteration:
                break
            sent = None
            if not (isinstance(step, tuple) and len(step) in (2, 3) and callable(step[0])):
                seen.append(step)
                continue
            function, args, *rest = step
            if function not in compiled:
                compiled[function] = compile_(function)
            sent, state = _call(compiled[function], args, rest[0] if rest else {})
            after_call()
            seen.append([sent, state, [_comparable(each) for each in args], rest])
            if feature.backward:
                seen.append(_backward(sent))
        cells = [cell for function in compiled for cell in getattr(function, "__closure__", None) or ()]
        seen.extend(_comparable(cell.cell_contents) for cell in cells)
        return seen
    finally:
        world.close()
        torch.set_grad_enabled(grad_mode)
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)


def _comparable(value):
    """What a world must leave alike, in a form that can be compared."""
    if isinstance(value, torch.optim.Optimizer):
        state = value.state_dict()
        return [list(state["state"].items()), state["param_groups"]]
    if isinstance(value, torch.autocast):
        return None  # it notes for itself what it found when it was entered
    return value.get_state() if isinstance(value, torch.Generator) else value


def _call(function, args, kwargs):
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        result = error.with_traceback(None)
        result.__context__ = None
    state = [torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), random.random()]
    return result, [*state, torch.get_rng_state()]


def _backward(result):
    """Gradients reach whatever the results depend on."""
    total = 0
    for value in pytree.tree_leaves(result):
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            total = total + (torch.view_as_real(value) if value.is_complex() else value).sum()
    if isinstance(total, torch.Tensor):
        try:
            total.backward()
        except RuntimeError:
            return "no backward"
    return "backward"


def check_same(module, name, backend):
    """Compiled does what eager does."""
    found = FEATURES[module][name]
    if backend not in found.backends:
        return
    expected = _run(found, lambda function: function)
    torchmux.reset()
    actual = _run(found, lambda function: torchmux.compile(function, backend=backend))
    is_exact = found.close is None or backend in found.exact
    assert_same(expected, actual, "", {} if is_exact else {"close": found.close})


@dataclass(frozen=True)
class Count:
    """Graphs at the first call, graphs in all, and breaks at the first call."""

    first: int
    last: int
    breaks: list


def dynamo_graphs(found):
    """What torch's own tracer makes of a feature."""
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    count, after, breaks = 0, [], []

    def backend(gm, _):
        nonlocal count
        count += 1
        return gm.forward

    def note():
        if not after:
            breaks.extend(torch._dynamo.utils.counters["graph_break"])
        after.append(count)

    _run(found, lambda function: torch.compile(function, backend=backend), note)
    torch._dynamo.reset()
    return Count(after[0], after[-1], breaks)


def own_graphs(found):
    """What torchmux makes of it."""
    torchmux.reset()
    records, after, breaks = [], [], []

    def compile_(function):
        records.append(torchmux.compile(function, backend="eager"))
        return records[-1]

    def note():
        reports = [torchmux.report(record) for record in records]
        if not after:
            breaks.extend(b.message() for b in reports[0].breaks)
        after.append(sum(report.graph_count for report in reports))

    _run(found, compile_, note)
    return Count(after[0], after[-1], breaks)


def check_graphs(module, name):
    """No more graphs or breaks than torch's own tracer makes, except where the feature says why."""
    if not torch.__version__.startswith(YARDSTICK):
        pytest.skip(f"what the features say was found with torch {YARDSTICK}")
    found = FEATURES[module][name]
    ours, theirs = own_graphs(found), dynamo_graphs(found)
    whole = theirs.first == 1 and not theirs.breaks
    more = (bool(ours.breaks) and (whole or ours.first > theirs.first > 0)) or (not ours.first and theirs.first)
    again = theirs.first and ours.last - ours.first > theirs.last - theirs.first
    text = "\n".join([f"{ours.first} then {ours.last} graphs, torch {theirs.first} then {theirs.last}", *ours.breaks])
    assert bool(more) == bool(found.more), text
    assert bool(again) == bool(found.again), text
