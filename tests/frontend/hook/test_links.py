"""The rest of a function behind a graph break runs without the hook, and nothing of what it depends on is left out."""

import gc
import threading
import traceback
import weakref

import pytest
import torch

import torchmux

X = torch.arange(4.0)
SCALE = 2


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.factor = 2.0

    def forward(self, x):
        y = self.linear(x)
        torchmux.graph_break()
        return y * self.factor


def broken(x):
    y = x + 1
    torchmux.graph_break()
    return y * SCALE


def warm(target, *args, calls=9):
    compiled = torchmux.compile(target, backend="eager")
    for _ in range(calls):
        compiled(*args)
    return compiled


def linked(target, compiled):
    """How many links of a function have compiled code to go to, one behind the other."""
    states, code, count = compiled._torchmux_session.states, target.__code__, 0
    while code is not None:
        replaces, code = states.get(code).entries[0].kept(), None
        for link in (each for each in replaces.co_consts if type(each) is list):
            count += "unlinked" not in link[0].__qualname__
        for each in replaces.co_consts:
            code = each if type(each) is type(replaces) and states.get(each) is not None else code
    return count


def test_they_are_used():
    def two(x):
        y = x + 1
        torchmux.graph_break()
        y = y * 2
        torchmux.graph_break()
        return y.sin()

    assert linked(broken, warm(broken, X)) == 1
    assert linked(two, warm(two, X)) == 2


def test_a_break_that_changes_what_follows(monkeypatch):
    """In each call anew, and not only between calls."""
    values = iter(range(100))

    @torchmux.disable
    def change():
        value = next(values)
        monkeypatch.setitem(globals(), "SCALE", 2 if value < 9 else value)

    def function(x):
        y = x + 1
        change()
        return y * SCALE

    compiled = torchmux.compile(function, backend="eager", dynamic=False)
    for number in range(20):
        assert torch.equal(compiled(X), (X + 1) * (2 if number < 9 else number))


def _cell():
    scale = 2

    def function(x):
        y = x + 1
        torchmux.graph_break()
        return y * scale

    def change():
        nonlocal scale
        scale = 3

    def empty():
        nonlocal scale
        del scale

    return function, change, empty


def test_a_cell_that_changes():
    function, change, empty = _cell()
    compiled = warm(function, X)
    assert linked(function, compiled) == 1
    change()
    assert torch.equal(compiled(X), (X + 1) * 3)
    empty()
    with pytest.raises(NameError):
        compiled(X)
    change()
    assert torch.equal(compiled(X), (X + 1) * 3)


class Holder:
    by = 2


CHANGES = {
    "global": (lambda x, holder: x * SCALE, lambda holder, patch: patch.setitem(globals(), "SCALE", 5)),
    "attribute": (lambda x, holder: x * holder.by, lambda holder, patch: setattr(holder, "by", 3)),
    "class": (lambda x, holder: x * holder.by, lambda holder, patch: patch.setattr(Holder, "by", 4)),
    "function of torch": (
        lambda x, holder: torch.relu(x),
        lambda holder, patch: patch.setattr(torch, "relu", torch.neg),
    ),
    "method": (lambda x, holder: x.sin(), lambda holder, patch: patch.setattr(torch.Tensor, "sin", torch.Tensor.cos)),
    "default dtype": (
        lambda x, holder: x + torch.ones(4).dtype.itemsize,
        lambda holder, patch: torch.set_default_dtype(torch.float64),
    ),
}


@pytest.mark.parametrize("when", ["between calls", "in the break"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes(change, when, monkeypatch):
    rest, apply = CHANGES[change]
    holder, calls = Holder(), 0

    @torchmux.disable
    def between():
        if calls == 9 and when == "in the break":
            apply(holder, monkeypatch)

    def function(x):
        y = x + 1
        between()
        return rest(y, holder)

    compiled = torchmux.compile(function, backend="eager")
    before = torch.get_default_dtype()
    try:
        for calls in range(12):
            if calls == 9 and when == "between calls":
                apply(holder, monkeypatch)
            assert torch.equal(compiled(X), rest(X + 1, holder)), calls
    finally:
        torch.set_default_dtype(before)


def test_modes_that_the_break_switches():
    states = iter([*[True] * 9, False, False, True])

    @torchmux.disable
    def switch():
        torch.set_grad_enabled(next(states))

    def function(x):
        y = x * 2
        switch()
        return y * 3

    compiled, x = torchmux.compile(function, backend="eager"), X.clone().requires_grad_()
    found = []
    for _ in range(12):
        with torch.enable_grad():
            found.append(compiled(x).requires_grad)
    assert found == [True] * 9 + [False, False, True]


def test_tensors_that_change():
    for calls in range(3):
        compiled = warm(broken, X)
        for x in (X, X.double(), X[:3], X.reshape(2, 2), X, X.clone().requires_grad_(), X[::2])[calls:]:
            found = compiled(x)
            assert torch.equal(found, broken(x))
            assert found.requires_grad == x.requires_grad


def test_sizes_that_alternate():
    """The rest has code for each, which is asked in turn."""
    compiled = torchmux.compile(broken, backend="eager", dynamic=False)
    for number in range(200):
        x = torch.ones(2 + number % 3)
        assert torch.equal(compiled(x), broken(x))
    assert torchmux.report(compiled).graph_count == 6


CHANGES_OF_MODULES = (
    lambda net: setattr(net[0], "factor", 3.0),
    lambda net: setattr(net[0], "linear", torch.nn.Linear(4, 4)),
    lambda net: net[0].linear.register_forward_hook(lambda module, args, result: result + 1),
    lambda net: net.eval(),
    lambda net: setattr(net[0], "linear", torch.nn.Identity()),
)


@pytest.mark.parametrize("layers", [1, 8])
def test_modules(layers):
    """Also with as many guards as are checked by a snapshot."""
    net = torch.nn.Sequential(*(Layer() for _ in range(layers)))
    compiled = warm(net, X, calls=40)
    for change in CHANGES_OF_MODULES:
        assert torch.equal(compiled(X), net(X))
        change(net)
        for _ in range(3):
            assert torch.equal(compiled(X), net(X))


def test_calls_are_counted():
    compiled = warm(broken, X)
    assert [graph.calls for graph in torchmux.report(compiled).graphs] == [9, 9]


def test_copies_of_a_module_are_counted_apart():
    first, second = Layer(), Layer()
    compiled = [torchmux.compile(each, backend="eager") for each in (first, second)]
    for _ in range(9):
        for each, original in zip(compiled, (first, second), strict=True):
            assert torch.equal(each(X), original(X))
    for each in compiled:
        assert [graph.calls for graph in torchmux.report(each).graphs] == [9, 9]


def test_reset_in_the_break():
    calls = 0

    @torchmux.disable
    def sometimes():
        nonlocal calls
        calls += 1
        if calls in (9, 10):
            torchmux.reset()

    def function(x):
        y = x + 1
        sometimes()
        return y * 2

    compiled = warm(function, X, calls=12)
    assert torchmux.report(compiled).graph_count > 2
    assert torch.equal(compiled(X), function(X))


def test_a_forced_backend():
    compiled = warm(broken, X)
    with torchmux.set_stance("default", force_backend="aot_eager"):
        for _ in range(9):
            assert torch.equal(compiled(X), broken(X))
    assert torch.equal(compiled(X), broken(X))
    assert [graph.calls for graph in torchmux.report(compiled).graphs] == [10, 10, 9, 9]


def test_errors_have_eagers_traceback():
    def function(x, y):
        y = y + 1
        torchmux.graph_break()
        y = y * 2
        torchmux.graph_break()
        return x @ y

    compiled = warm(function, X, X)
    lines = []
    for call in (compiled, function):
        with pytest.raises(RuntimeError) as error:
            call(X, torch.ones(3))
        lines.append([each.line for each in traceback.extract_tb(error.value.__traceback__)][1:])
    assert lines[0] == lines[1]


def test_functions_that_it_calls_are_captured():
    def inner(x):
        y = x * 2
        torchmux.graph_break()
        return y + 1

    def function(x):
        torchmux.graph_break()
        return inner(inner(x).relu()).sin()

    compiled = warm(function, X)
    assert torch.equal(compiled(X), function(X))
    assert sorted(graph.calls for graph in torchmux.report(compiled).graphs) == [10, 10, 20, 20]


def test_what_was_compiled_goes():
    def over(weight):
        def local(x):
            y = x + 1
            torchmux.graph_break()
            return y * weight

        return local

    weight = X + 1
    local = over(weight)
    compiled = warm(local, X)
    assert linked(local, compiled) == 1
    seen = [weakref.ref(each) for each in (local, weight)]
    del local, weight, compiled
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_arguments_do_not_live_longer_than_in_eager():
    alive = []

    @torchmux.disable
    def look(ref):
        gc.collect()
        alive.append(ref() is not None)

    def function(x):
        y = x * 2
        ref = weakref.ref(y)
        torchmux.graph_break()
        y = y + 1
        torchmux.graph_break()
        look(ref)
        return y

    warm(function, X, calls=9)
    assert alive[-1] is False


def test_threads():
    compiled, wrong = warm(broken, X), []

    def run(number):
        x = torch.full((4,), float(number))
        wrong.extend(number for _ in range(200) if not torch.equal(compiled(x), broken(x)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
