"""Calls without the hook: nothing of what a call depends on is left out."""

import gc
import traceback
import weakref

import pytest
import torch

import torchmux

X = torch.arange(4.0)


def warm(target, *args, **kwargs):
    compiled = torchmux.compile(target, backend="eager")
    for _ in range(5):
        compiled(*args, **kwargs)
    return compiled


def is_direct(compiled):
    return compiled._torchmux_record.direct is not None


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 2


def plain(x, y=3):
    return x * y


def starred(x, *more, **named):
    return x * len(more) + sum(named.values())


def over_cell():
    scale = 2

    def function(x):
        return x * scale

    def change():
        nonlocal scale
        scale = 3

    return function, change


class Holder:
    by = 2

    def method(self, x):
        return x * self.by


class Open:
    """Whose owner is one of the rest, or has a name besides them."""

    by = 2

    def bare(*values):
        return values[1] * values[0].by * len(values)

    def named(*values, **more):
        return values[1] * values[0].by + sum(more.values())

    def usual(self, *values):
        return values[0] * self.by * len(values)


@pytest.mark.parametrize("name", ["bare", "named", "usual"])
def test_methods_with_stars(name):
    owner, named = Open(), {"a": 3} if name == "named" else {}
    compiled = warm(getattr(owner, name), X, 2, **named)
    assert is_direct(compiled)
    for rest in ((2,), (3,), (), (2, 4), (2,)):
        assert torch.equal(compiled(X, *rest, **named), getattr(owner, name)(X, *rest, **named))
    owner.by = 5
    assert torch.equal(compiled(X, 2, **named), getattr(owner, name)(X, 2, **named))


NETS = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))


def test_functions_without_arguments():
    """Also where a snapshot of many modules stands for the check."""

    def function():
        return NETS(X)

    compiled = warm(function)
    assert is_direct(compiled)
    for _ in range(20):
        assert torch.equal(compiled(), function())
    with torch.no_grad():
        NETS[0].weight.mul_(2)
    assert torch.equal(compiled(), function())
    NETS[1] = torch.nn.Identity()
    assert torch.equal(compiled(), function())


def test_it_is_used():
    function, _ = over_cell()
    assert is_direct(warm(plain, X, 2))
    assert is_direct(warm(starred, X, 1, 2, a=3))
    assert is_direct(warm(function, X))
    assert is_direct(warm(Holder().method, X))
    assert is_direct(warm(Net(), X))


def test_arguments_that_a_call_leaves_out_have_their_defaults():
    def function(x, y=2, z=None):
        return x * y if z is None else x * y + z

    compiled = warm(function, X)
    assert is_direct(compiled)
    for given in ((X,), (X, 3), (X, 2, X), (X,)):
        assert torch.equal(compiled(*given), function(*given))
    assert torch.equal(compiled(X, z=X), function(X, z=X))
    function.__defaults__ = (5, None)
    assert torch.equal(compiled(X), X * 5)
    function.__defaults__ = None
    with pytest.raises(TypeError, match="missing 2 required"):
        compiled(X)


def test_it_is_counted():
    compiled = warm(Net(), X)
    assert is_direct(compiled)
    assert torchmux.report(compiled).runs == 5
    assert torchmux.report(compiled).graphs[0].calls == 5


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((X,), {}), ((X, 4), {}), ((X,), {"y": 5}), ((), {"x": X, "y": 2}), ((X, X), {}), ((X.double(), 2), {})],
)
def test_every_form_of_a_call(args, kwargs):
    compiled = warm(plain, X, 2)
    assert torch.equal(compiled(*args, **kwargs), plain(*args, **kwargs))


@pytest.mark.parametrize(
    ("args", "kwargs"), [((X, 1), {}), ((X, 1, 2), {"a": 3}), ((X, 2, 2), {"a": 4}), ((), {"x": X}), ((X, 1, 2), {})]
)
def test_every_form_of_a_call_with_stars(args, kwargs):
    compiled = warm(starred, X, 1, 2, a=3)
    assert torch.equal(compiled(*args, **kwargs), starred(*args, **kwargs))


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((X, 1, 2), {}), ((X,), {"z": 1}), ((X, 2), {"x": X})])
def test_errors_of_calls_are_eagers(args, kwargs):
    compiled = warm(plain, X, 2)
    with pytest.raises(TypeError) as wanted:
        plain(*args, **kwargs)
    with pytest.raises(TypeError) as found:
        compiled(*args, **kwargs)
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("is_deep", [False, True])
def test_arguments_that_are_left_out(is_deep):
    class Owner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = NETS if is_deep else torch.nn.Identity()

        def forward(self, x, y=3.0, z=X):
            return self.layers(x) * y + z

    owner = Owner()
    compiled = warm(owner, X)
    before = compiled._torchmux_record.direct
    for args in ((X,), (X, 3.0), (X, 3.0, X), (X,)):
        for _ in range(2):
            assert torch.equal(compiled(*args), owner(*args))
    assert compiled._torchmux_record.direct is before is not None
    assert torch.equal(compiled(X, 2.0), owner(X, 2.0))
    Owner.forward.__defaults__ = (4.0, X + 1)
    for args in ((X,), (X, 3.0)):
        assert torch.equal(compiled(*args), owner(*args))
    Owner.forward.__defaults__ = None
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        compiled(X)


def test_a_cell_that_changes():
    function, change = over_cell()
    compiled = warm(function, X)
    change()
    assert torch.equal(compiled(X), X * 3)


def test_code_that_is_replaced():
    def function(x):
        return x + 1

    compiled = warm(function, X)
    assert is_direct(compiled)
    function.__code__ = (lambda x: x - 1).__code__
    assert torch.equal(compiled(X), X - 1)


def _patched(module):
    class Patched(type(module)):
        def __call__(self, x):
            return super().__call__(x) + 1

    module.__class__ = Patched


CHANGES = {
    "hook": lambda m: m.register_forward_hook(lambda module, args, result: result + 1),
    "pre-hook": lambda m: m.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "own forward": lambda m: setattr(m, "forward", lambda x: x - 1),
    "own call": lambda m: setattr(m, "_call_impl", lambda x: x - 2),
    "class": _patched,
    "training": lambda m: m.eval(),
    "layer": lambda m: setattr(m, "linear", torch.nn.Linear(4, 4)),
    "its own compile": lambda m: m.compile(backend="eager"),
}


class Small(torch.nn.Module):
    """Of which too little is checked for a snapshot."""

    def forward(self, x):
        return x * 2


class Deep(Net):
    """Whose check is that of a snapshot, which notes as well that a call of the module is plain."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))

    def forward(self, x):
        return super().forward(self.layers(x))


def warm_net(cls):
    module = cls().requires_grad_(False)
    compiled = warm(module, X)
    for _ in range(3):
        compiled(X)
    assert is_direct(compiled)
    snapshots = [each for kept in compiled._torchmux_record.snapshots.values() for each in kept.values()]
    assert [snapshot.form is not None for snapshot in snapshots] == ([True] if cls is Deep else [])
    return module, compiled


@pytest.mark.parametrize("cls", [Small, Deep])
@pytest.mark.parametrize("change", CHANGES)
def test_a_module_that_changes(change, cls):
    module, compiled = warm_net(cls)
    CHANGES[change](module)
    for _ in range(4):
        assert torch.equal(compiled(X), module(X))


@pytest.mark.parametrize("cls", [Small, Deep])
def test_a_module_that_is_recorded_by_torch_jit(cls):
    """What records a call gets to see the module's name and the operators."""
    module, compiled = warm_net(cls)
    traced = torch.jit.trace(lambda x: compiled(x), X, check_trace=False)
    assert torch.equal(traced(X + 1), module(X + 1))


@pytest.mark.parametrize("cls", [Small, Deep])
def test_hooks_of_all_modules(cls):
    module, calls = cls(), []
    compiled = warm(module, X)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, args, result: calls.append(type(m)))
    try:
        compiled(X)
    finally:
        handle.remove()
    assert cls in calls


class Stepping(Net):
    def predict_step(self, x):
        return self.linear(x) * 100


def test_other_methods_of_a_module_that_are_compiled():
    """Their calls are not those of the module, which need not be found by the hook."""
    module = Stepping()
    compiled = warm(module, X)
    for _ in range(5):
        assert torch.equal(compiled.predict_step(X), module.predict_step(X))
        assert torch.equal(compiled(X), module(X))


@pytest.mark.parametrize("cls", [Small, Deep])
def test_a_method_that_its_class_replaces(cls, monkeypatch):
    _, compiled = warm_net(cls)
    monkeypatch.setattr(cls, "forward", lambda self, x: x * 100)
    assert torch.equal(compiled(X), X * 100)


def test_reset():
    compiled = warm(plain, X, 2)
    torchmux.reset()
    assert torch.equal(compiled(X, 2), X * 2)
    assert torchmux.report(compiled).graph_count == 2


def test_below_a_frame_that_another_frontend_captures():
    compiled = warm(plain, X, 2)
    outer = torch.compile(lambda x: compiled(x + 1, 2) + 1, backend="eager")
    for _ in range(3):
        assert torch.equal(outer(X), (X + 1) * 2 + 1)


def test_the_hook_around_it_stays():
    inner = warm(plain, X, 2)

    def after(x):
        return x.relu() + 1

    def function(x):
        y = inner(x, 2)
        print(end="")
        return after(y)

    compiled = torchmux.compile(function, backend="eager")
    for _ in range(5):
        assert torch.equal(compiled(X), (X * 2).relu() + 1)
    assert all(not each.eager for each in torchmux.report(compiled).calls)


def test_an_error_of_an_operator_is_where_it_is_in_eager():
    def function(x, index):
        y = x * 2
        return y.index_select(0, index)

    compiled = warm(function, X, torch.tensor([1]))
    assert is_direct(compiled)
    frames = []
    for run in (compiled, function):
        with pytest.raises(IndexError) as caught:
            run(X, torch.tensor([9]))
        frames.append([(e.name, e.line) for e in traceback.extract_tb(caught.value.__traceback__)][1:])
    assert frames[0] == frames[1]


def test_nothing_is_kept():
    def made():
        def function(x):
            return x * 2 if box else x

        box = []
        box.append(function)
        compiled = torchmux.compile(function, backend="eager")
        box.append(compiled)
        for _ in range(5):
            compiled(X)
        assert is_direct(compiled)
        return weakref.ref(function), weakref.ref(compiled)

    references = made()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_the_profile_names_the_graph():
    compiled = warm(plain, X, 2)
    with torch.profiler.profile() as profile:
        compiled(X, 2)
    assert any("torchmux" in event.name for event in profile.events())


SIGNATURES = (
    "", "x", "x, y=2", "*rest", "**named", "x, *rest", "x, **named", "*rest, **named", "x, y=3, *rest, **named",
    "x, /, y=1", "*, w=2", "x, *, w=2",
)  # fmt: skip


@pytest.mark.parametrize("is_method", [False, True], ids=["function", "method"])
@pytest.mark.parametrize("signature", SIGNATURES)
def test_every_signature(signature, is_method):
    """With a snapshot, which many modules have, and a cell that changes in between."""
    names = [part.split("=")[0].strip() for part in signature.split(",") if part.strip() not in ("", "*", "/")]
    terms = {"*rest": "len(rest)", "**named": "sum(named.values())"}
    total = " + ".join(["X * cell", *(terms.get(name, name) for name in names)])
    text = f"def made(cell):\n    def function({signature}):\n        return NETS({total})\n"
    if is_method:
        owned = f"self, {signature}" if signature else "self"
        text = f"def made(cell):\n    class Owner:\n        def function({owned}):\n            return NETS({total})\n"
    text += "    def change():\n        nonlocal cell\n        cell += 1\n"
    text += f"    return {'Owner().function' if is_method else 'function'}, change\n"
    scope = {"X": X, "NETS": NETS}
    exec(text, scope)
    plain, change = scope["made"](3.0)
    first = ((1.0,) if "x" in names else (), {"w": 4} if "w" in names else {})
    calls = [first, *([((1.0, 2, 3), {})] if "*rest" in names else []), *([((1.0, 2), {})] if "y" in names else [])]
    calls += [(args, {**kwargs, "z": 2.0}) for args, kwargs in calls] if "**named" in names else []
    compiled = torchmux.compile(plain, backend="eager")
    for args, kwargs in [first] * 7 + calls * 3 + [first] * 2:
        assert torch.equal(compiled(*args, **kwargs), plain(*args, **kwargs))
    change()
    for args, kwargs in calls:
        assert torch.equal(compiled(*args, **kwargs), plain(*args, **kwargs))
