"""Snapshots: guards on a model that are checked at once, by whether anything was written to it.

The cases of the other tests of guards run here again, with a snapshot wherever one can be taken.
"""

import collections
import copy
import dataclasses
import gc
import sys
import types
import weakref

import pytest
import torch

import torchmux
from torchmux.frontend.guards import snapshot, stable_paths, write_watch as watch

from . import test_guards, test_guards_of_modules, test_guards_of_values
from .guarding import Thing, cases_of, check, vector

needs_watches = pytest.mark.skipif(not watch.is_available(), reason="this build of Python keeps its words elsewhere")

_CASES = {
    f"{module.__name__.rpartition('.')[2]}-{name}": case
    for module in (test_guards, test_guards_of_modules, test_guards_of_values)
    for name, case in cases_of(module.__name__).items()
}


@pytest.fixture
def eager_snapshots(monkeypatch):
    """A snapshot after the first full check that passes, however little it would save."""
    monkeypatch.setattr(snapshot, "_FEW", 0)
    monkeypatch.setattr(snapshot, "_MOST_PATIENCE", 0)
    init = snapshot.SnapshotCheck.__init__

    def impatient(self, *args):
        init(self, *args)
        self._patience = 0

    monkeypatch.setattr(snapshot.SnapshotCheck, "__init__", impatient)


def taken(compiled):
    """The snapshots of a compiled callable."""
    return [each for kept in compiled._torchmux_record.snapshots.values() for each in kept.values()]


def uses(compiled):
    return sum(each.uses for each in taken(compiled))


@needs_watches
@pytest.mark.parametrize("attributes", [0, 50])
@pytest.mark.parametrize("write", watch.WRITES)
def test_every_way_to_write_is_noticed(write, attributes):
    assert watch.is_noticed(write, attributes)


def test_watches_work_on_every_supported_python():
    assert watch.is_available()


@needs_watches
def test_a_dictionary_that_is_only_read_is_as_it_was():
    d = {"a": 1}
    seen = watch.Watch()
    seen.contents(d)
    seen.seal()
    assert d["a"] == 1 and "b" not in d and list(d) == ["a"]
    assert seen.unchanged()
    d["a"] = 1.0
    assert not seen.unchanged()


@needs_watches
@pytest.mark.parametrize("name", _CASES)
def test_change_is_noticed(name, eager_snapshots, monkeypatch):
    monkeypatch.setattr(stable_paths.Walk, "_owns", lambda self, obj: isinstance(obj, torch.nn.Module))

    def own(compiled):
        compiled._torchmux_record.root = torch.nn.Module()

    check(_CASES[name], own, calls=4)


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 4.0))
        self.register_buffer("shift", torch.ones(3))
        self.by = 2

    def forward(self, x):
        x = (x * self.weight if self.training else x - self.weight) * self.by + self.shift
        return x + getattr(self, "extra", 0)


class Other(Inner):
    def forward(self, x):
        return x * 100


class Slower(Thing):
    def method(self, x):
        return x - 1000


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Inner() for _ in range(3)])
        self.kinds = {"a": 1}
        self.settings = Thing(3)
        setattr(self.settings, "it's {0}", 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.settings.method(x) + len(self.kinds) + getattr(self.settings, "it's {0}", 0)


def _direct(table, key, value):
    return lambda net: getattr(net.layers[1], table).__setitem__(key, value())


CHANGES = {
    "flag": lambda net: setattr(net.layers[1], "training", False),
    "flag in the namespace": lambda net: net.layers[1].__dict__.__setitem__("training", False),
    "number": lambda net: setattr(net.layers[1], "by", 3),
    "number of an equal value": lambda net: setattr(net.layers[1], "by", 2.0),
    "parameter": lambda net: setattr(net.layers[1], "weight", torch.nn.Parameter(torch.ones(3))),
    "parameter in the table": _direct("_parameters", "weight", lambda: torch.nn.Parameter(torch.ones(3))),
    "parameter's data": lambda net: setattr(net.layers[1].weight, "data", torch.ones(1)),
    "parameter's dtype": lambda net: setattr(net.layers[1].weight, "data", torch.ones(3, dtype=torch.double)),
    "parameter that an attribute hides": lambda net: net.layers[1].__dict__.__setitem__("weight", torch.zeros(3)),
    "buffer in the table": _direct("_buffers", "shift", lambda: torch.zeros(3)),
    "buffer in place": lambda net: net.layers[1].shift.mul_(4),
    "two parameters become one": lambda net: setattr(net.layers[1], "weight", net.layers[0].weight),
    "submodule": lambda net: net.layers.__setitem__(1, Other()),
    "submodule in the table": lambda net: net.layers._modules.__setitem__("1", Other()),
    "submodule removed": lambda net: net.layers.__delitem__(1),
    "class": lambda net: setattr(net.layers[1], "__class__", Other),
    "namespace": lambda net: setattr(net.layers[1], "__dict__", {**Inner().__dict__, "by": 5}),
    "forward on the instance": lambda net: setattr(net.layers[1], "forward", lambda x: x * 7),
    "hook": lambda net: net.layers[1].register_forward_hook(lambda module, args, output: output * 2),
    "hook in the table": _direct("_forward_hooks", 0, lambda: lambda module, args, output: output * 2),
    "table of hooks": lambda net: setattr(
        net.layers[1], "_forward_pre_hooks", collections.OrderedDict({0: lambda module, args: (args[0] * 2,)})
    ),
    "an attribute of an object": lambda net: setattr(net.settings, "value", 7),
    "an object": lambda net: setattr(net, "settings", Thing(5)),
    "an object's class": lambda net: setattr(net.settings, "__class__", Slower),
    "an attribute that is a dictionary": lambda net: net.kinds.update(b=2),
    "an attribute of no identifier's name": lambda net: setattr(net.settings, "it's {0}", 9),
    "an attribute that was missing": lambda net: setattr(net.layers[1], "extra", 5),
    "a missing attribute in the namespace": lambda net: net.layers[1].__dict__.__setitem__("extra", 5),
    "a parameter that was missing": _direct("_parameters", "extra", lambda: torch.nn.Parameter(torch.ones(3))),
    "a buffer that was missing": lambda net: net.layers[1].register_buffer("extra", torch.ones(3)),
}


@needs_watches
@pytest.mark.parametrize("name", CHANGES)
def test_direct_change_is_noticed(name, eager_snapshots):
    net, eager = Outer(), Outer()
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), eager(vector()))
    assert uses(compiled), "no snapshot was used, so nothing is tested"
    (before,) = taken(compiled)
    assert before.inputs
    for model in (net, eager):
        CHANGES[name](model)
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), eager(vector()))


CODE = {
    "method of a module": lambda put: put(Inner, "forward", lambda self, x: x * 9),
    "method of an object": lambda put: put(Thing, "method", lambda self, x: x * 9),
    "base class": lambda put: put(torch.nn.ModuleList, "__iter__", lambda self: iter([self[0]])),
    "an attribute that was missing": lambda put: put(Inner, "extra", 5, raising=False),
    "the same on a base class": lambda put: put(torch.nn.Module, "extra", 5, raising=False),
    "global": lambda put: put(sys.modules[__name__], "LIMIT", 50),
    "defaults": lambda put: put(helper, "__defaults__", (8,)),
    "code": lambda put: put(helper, "__code__", (lambda x, by=3: x - by).__code__),
}
LIMIT = 2


def helper(x, by=3):
    return x + by


class Uses(Outer):
    def forward(self, x):
        return helper(super().forward(x)) * LIMIT


@needs_watches
@pytest.mark.parametrize("name", CODE)
def test_changed_code_is_noticed(name, eager_snapshots, monkeypatch):
    net, eager = Uses(), Uses()
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), eager(vector()))
    assert uses(compiled), "no snapshot was used, so nothing is tested"
    CODE[name](monkeypatch.setattr)
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), eager(vector()))


@dataclasses.dataclass
class Point:
    a: object
    b: object = 2


class Given(Outer):
    names = {"a": 1}

    def forward(self, *args, **kwargs):
        point = Point(super().forward(args[0]))
        found = [getattr(point, each.name) for each in dataclasses.fields(point)]
        return sum(found) * len(found) + ("b" in self.names) + kwargs["y"]


GIVEN = {
    "key": lambda patch: patch.setitem(Given.names, "b", 1),
    "builtin that a global hides": lambda patch: patch.setattr(
        sys.modules[__name__], "sum", lambda items: items[0] * 5, raising=False
    ),
    "slot of a field": lambda patch: patch.setattr(Point.__dataclass_fields__["b"], "name", "a"),
    "parameter": lambda patch: None,
}


@needs_watches
@pytest.mark.parametrize("name", GIVEN)
def test_arguments_in_tuples_and_dictionaries_are_loaded_beside_a_snapshot(name, eager_snapshots, monkeypatch):
    net, eager = Given(), Given()
    compiled = torchmux.compile(net, backend="eager")
    for number in range(4):
        x, y = vector() * number, vector() + number
        torch.testing.assert_close(compiled(x, y=y), eager(x, y=y))
    assert uses(compiled), "no snapshot was used, so nothing is tested"
    assert taken(compiled)[0].inputs
    GIVEN[name](monkeypatch)
    for model in (net, eager):
        model.layers[0].weight = torch.nn.Parameter(torch.ones(3))
    for number in range(4):
        x, y = vector() - number, vector() * number
        torch.testing.assert_close(compiled(x, y=y), eager(x, y=y))


@needs_watches
def test_two_modules_that_share_compiled_code_in_turns(eager_snapshots):
    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Inner(), Inner()
            torch.nn.init.zeros_(self.b.weight)

        @torch.compiler.disable
        def broken(self):
            pass

        def forward(self, x):
            self.broken()
            return self.a(x), self.b(x)

    net = Pair()
    compiled, eager = torchmux.compile(net, backend="eager"), copy.deepcopy(net)
    for _ in range(6):
        torch.testing.assert_close(compiled(vector()), eager(vector()))


@needs_watches
def test_modules_of_a_class_have_a_snapshot_each(eager_snapshots):
    class Breaks(Inner):
        @torch.compiler.disable
        def broken(self):
            pass

        def forward(self, x):
            self.broken()
            return super().forward(x)

    net = torch.nn.Sequential(Breaks(), Breaks(), Breaks())
    compiled, eager = torchmux.compile(net, backend="eager"), copy.deepcopy(net)

    def agree():
        torch.testing.assert_close(compiled(vector()), eager(vector()))

    for _ in range(6):
        agree()
    about = [each for each in taken(compiled) if {root() for root in each._roots.values()} & {*net}]
    used = [each.uses for each in about]
    agree()
    assert len(about) >= 2 and all(each.uses > before for each, before in zip(about, used, strict=True))
    del about
    for change in (lambda layers: layers[1].weight.data.add_(1), lambda layers: setattr(layers[2], "by", 7)):
        for layers in (net, eager):
            change(layers)
        agree()
        agree()
    gone = weakref.ref(net[1])
    for layers in (net, eager):
        layers[1] = copy.deepcopy(layers[2])
    agree()
    agree()
    assert gone() is None, "nothing is left of a module that was replaced"


@needs_watches
def test_a_module_that_counts_its_calls(eager_snapshots):
    class Counts(Outer):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * self.calls

    net, eager = Counts(), Counts()
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(30):
        torch.testing.assert_close(compiled(vector()), eager(vector()))
    assert uses(compiled) > 10, "what always changes is left out of the snapshot"
    for model in (net, eager):
        model.layers[2].by = 7
    torch.testing.assert_close(compiled(vector()), eager(vector()))
    for model in (net, eager):
        model._modules = {**model._modules, "layers": torch.nn.ModuleList([Inner()])}
    torch.testing.assert_close(compiled(vector()), eager(vector()))


class Runner:
    def __init__(self, model):
        self.model = model

    def step(self, x):
        return self.model(x)


def _of_an_argument(net):
    compiled = torchmux.compile(lambda net, x: net(x), backend="eager")
    return compiled, lambda x: compiled(net, x)


def _of_a_cell(net):
    compiled = torchmux.compile(lambda x: net(x), backend="eager")
    return compiled, compiled


def _of_an_attribute(net):
    compiled = torchmux.compile(Runner(net).step, backend="eager")
    return compiled, compiled


def _of_a_global(net):
    names = {"net": net}
    exec("def f(x): return net(x)", names)
    compiled = torchmux.compile(names["f"], backend="eager")
    return compiled, compiled


def _of_a_global_object(net):
    names = {"runner": Runner(net)}
    exec("def f(x): return runner.step(x)", names)
    compiled = torchmux.compile(names["f"], backend="eager")
    return compiled, compiled


WAYS = (_of_an_argument, _of_a_cell, _of_an_attribute, _of_a_global, _of_a_global_object)


_IN_TURNS = [(WAYS[number % len(WAYS)], name) for number, name in enumerate(CHANGES)]
_ALL_OTHERS = [(way, name) for way in WAYS for name in CHANGES if (way, name) not in _IN_TURNS]


@needs_watches
@pytest.mark.parametrize(
    ("way", "name"), [*_IN_TURNS, *(pytest.param(*each, marks=pytest.mark.slow) for each in _ALL_OTHERS)]
)
def test_direct_change_of_a_model_that_is_not_the_owners(way, name, eager_snapshots):
    net, eager = Outer(), Outer()
    compiled, call = way(net)
    for _ in range(4):
        torch.testing.assert_close(call(vector()), eager(vector()))
    assert uses(compiled), "no snapshot was used, so nothing is tested"
    (before,) = taken(compiled)
    assert before.inputs
    for model in (net, eager):
        CHANGES[name](model)
    for _ in range(4):
        torch.testing.assert_close(call(vector()), eager(vector()))


@needs_watches
def test_another_model_in_the_place_of_that_of_the_snapshot(eager_snapshots):
    nets = [Outer() for _ in range(3)]
    for number, net in enumerate(nets):
        net.layers[1].weight.data.fill_(number)
    names = {"net": nets[0]}
    exec("def f(given, x): return net(x) + 2 * given(x)", names)
    compiled = torchmux.compile(names["f"], backend="eager")
    for _ in range(4):
        torch.testing.assert_close(compiled(nets[1], vector()), names["f"](nets[1], vector()))
    assert uses(compiled)
    for one, other in ((0, 2), (2, 1), (1, 1), (0, 1), (0, 0)) * 2:
        names["net"] = nets[one]
        torch.testing.assert_close(compiled(nets[other], vector()), names["f"](nets[other], vector()))


@needs_watches
@pytest.mark.parametrize("way", [_of_an_argument, _of_a_global, _of_a_global_object])
def test_a_model_that_is_not_the_owners_may_go(way, eager_snapshots):
    net = Outer()
    gone = [weakref.ref(x) for x in (net, net.layers[0], net.layers[0].weight)]
    compiled, call = way(net)
    for _ in range(4):
        call(vector())
    assert uses(compiled) and len(taken(compiled)) == 1
    names = getattr(compiled._torchmux_original, "__globals__", {})
    for name in ("net", "runner"):
        if way is not _of_an_argument:
            names.pop(name, None)
    del net, call
    assert [ref() for ref in gone] == [None, None, None], "only reference counts are needed"
    assert not taken(compiled)


@needs_watches
def test_parts_that_lead_back_to_a_model_are_not_kept(eager_snapshots):
    net = Outer()
    net.layers[2].above = [net]
    _, call = _of_an_argument(net)
    for _ in range(4):
        call(vector())
    gone = weakref.ref(net)
    del net, call
    gc.collect()
    assert gone() is None


@needs_watches
@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_of_all_modules_are_noticed(kind, eager_snapshots, monkeypatch):
    net = Outer()
    compiled = torchmux.compile(lambda x: net(x) + 1, backend="eager")
    for _ in range(4):
        compiled(vector())
    assert uses(compiled)
    hook = (lambda m, args, result: result * 2) if kind == "forward" else (lambda m, args: (args[0] * 2,))
    handle = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")(hook)
    try:
        for _ in range(4):
            torch.testing.assert_close(compiled(vector()), net(vector()) + 1)
    finally:
        handle.remove()
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), net(vector()) + 1)
    with monkeypatch.context() as patch:  # not a hook in the table, but another table
        patch.setattr(torch.nn.modules.module, f"_global_{kind}_hooks", {0: hook})
        torch.testing.assert_close(compiled(vector()), net(vector()) + 1)
    torch.testing.assert_close(compiled(vector()), net(vector()) + 1)


@needs_watches
def test_a_snapshot_of_functions_alone(eager_snapshots):
    """Nothing of the program's is where its paths begin: only a global, a function, and what that is made of."""
    scope = {"torch": torch}
    lines = "def inner(x, by=2.0):\n    return x * by\ndef outer(x):\n    return inner(torch.relu(x)) + 1\n"
    exec(lines, scope)
    compiled = torchmux.compile(scope["outer"], backend="eager")
    changes = [
        lambda: setattr(scope["inner"], "__defaults__", (3.0,)),
        lambda: setattr(scope["inner"], "__code__", (lambda x, by: x - by).__code__),
        lambda: scope.update(inner=lambda x: x * 7),
        lambda: scope.update(torch=types.SimpleNamespace(relu=torch.tanh)),
        lambda: scope.update(other=1),
    ]
    for change in (lambda: None, *changes):
        change()
        for _ in range(5):
            torch.testing.assert_close(compiled(vector()), scope["outer"](vector()))
    assert uses(compiled)


@needs_watches
def test_a_snapshot_goes_with_the_callable(eager_snapshots):
    net = Outer()
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(4):
        compiled(vector())
    assert uses(compiled)
    gone = [weakref.ref(x) for x in (net.layers[0], net.layers[0].weight, taken(compiled)[0])]
    del net, compiled
    gc.collect()
    assert [ref() for ref in gone] == [None, None, None]


ORDERED = {
    "another key": lambda hooks: (hooks.popitem(), hooks.update(b=2)),
    "one more key": lambda hooks: hooks.update(b=2),
    "no key": lambda hooks: hooks.clear(),
    "another value": lambda hooks: hooks.update(a=5),
    "moved": lambda hooks: (hooks.update(b=2), hooks.move_to_end("a")),
}


class Ordered(torch.nn.Module):
    def __init__(self, *keys):
        super().__init__()
        self.table = collections.OrderedDict.fromkeys(keys, 1)

    def forward(self, x):
        for key, by in self.table.items():
            x = x * 2 + by if key == "a" else x - 7 * by
        return x


@needs_watches
@pytest.mark.parametrize("keys", [(), ("a",), ("a", "c")])
@pytest.mark.parametrize("name", ORDERED)
def test_keys_of_an_ordered_dictionary(name, keys, eager_snapshots):
    net, eager = Ordered(*keys), Ordered(*keys)
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(4):
        assert torch.equal(compiled(vector()), eager(vector()))
    assert uses(compiled)
    for change in (ORDERED[name], lambda table: table.move_to_end(next(iter(table), None)) if table else None):
        for model in (net, eager):
            try:
                change(model.table)
            except KeyError:
                model.table["a"] = 3
        for _ in range(3):
            assert torch.equal(compiled(vector()), eager(vector()))


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mine = {"n": 1}

    def forward(self, x, one, other):
        one["n"] = 5
        return x * other["n"] + self.mine["n"]


@needs_watches
@pytest.mark.parametrize("which", [("mine", "c"), ("b", "b"), ("mine", "mine"), ("b", "mine")])
def test_objects_of_a_call_that_become_one(which, eager_snapshots):
    """Those that the call brings are compared with each other, and with those that the model has."""
    net = Pair()
    compiled = torchmux.compile(net, backend="eager")
    objects = {"mine": net.mine, "b": {"n": 1}, "c": {"n": 1}}  # guards on values do not tell them apart

    def call(run, *names):
        one, other = (objects[name] for name in names)
        result = run(vector(), one, other)
        one["n"] = 1
        return result

    for _ in range(6):
        call(compiled, "b", "c")
    assert uses(compiled)
    assert torch.equal(call(compiled, *which), call(net, *which))


def test_calls_by_position_use_the_snapshot(eager_snapshots):
    net = Outer()
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(20):
        compiled(vector())
    (seen,) = taken(compiled)
    before = uses(compiled)
    assert compiled._torchmux_record.direct is not None and seen.names == ("self", "x")
    compiled(vector())
    assert uses(compiled) == before + 1
    net.settings.value = 7
    assert torch.equal(compiled(vector()), net(vector()))
