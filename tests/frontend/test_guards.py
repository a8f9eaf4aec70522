"""Everything a capture took for granted is checked: change it after compiling, and the next call does what eager does.

Each case is a generator. It yields the function and its arguments, which are captured; then it changes something and
yields the arguments of the next call, and so on. Compiled and eager must agree at every step.
"""

import contextlib
import copy
import enum
import functools
import math
import sys

import pytest
import torch

import torchmux

from .snippets.corpus import assert_same

CASES = {}

NUMBER = 2
TABLE = {"a": 1.0}
ITEMS = [1, 2]
TENSOR = torch.ones(3)
CALLEE = torch.sin


def scaled(x, by=2, *, plus=1):
    return x * by + plus


def times_two(x):
    return x * 2


def times_three(x):
    return x * 3


class Thing:
    limit = 5

    def __init__(self, value=1):
        self.value = value

    def method(self, x):
        return x + self.value

    @property
    def double(self):
        return self.value * 2

    @staticmethod
    def static(x):
        return x - 1

    @classmethod
    def on_class(cls, x):
        return x + cls.limit


class Other(Thing):
    def method(self, x):
        return x - self.value


class Slotted:
    __slots__ = ("maybe", "value")

    def __init__(self, value):
        self.value = value


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Net(torch.nn.Module):
    factor = 3

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.note = "plus"
        self.sizes = [1, 2]
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        x = self.inner(x) * self.scale * self.factor + sum(self.sizes)
        return x + 1 if self.note == "plus" else x - 1


def case(function):
    CASES[function.__name__] = function
    return function


def vector():
    return torch.arange(3.0) - 1


def network():
    torch.manual_seed(0)
    return Net().eval()


def put(namespace, name, value):
    """Change a global or an attribute; undone after the case."""
    UNDO.append((namespace, name, namespace.__dict__.get(name, UNDO)))
    setattr(namespace, name, value)


UNDO = []
MODULE = sys.modules[__name__]


@pytest.fixture(autouse=True)
def _put_back():
    torchmux.reset()
    yield
    while UNDO:
        namespace, name, value = UNDO.pop()
        if value is UNDO:
            delattr(namespace, name)
        else:
            setattr(namespace, name, value)
    torchmux.reset()


# --- names --------------------------------------------------------------------------------------------------------


@case
def global_number():
    yield lambda x: x * NUMBER, (vector(),)
    put(MODULE, "NUMBER", 3)
    yield (vector(),)


@case
def global_type():
    yield lambda x: (x * NUMBER, type(NUMBER)), (vector(),)
    put(MODULE, "NUMBER", 2.0)
    yield (vector(),)


@case
def global_function():
    def call(x):
        return times_two(x)

    yield call, (vector(),)
    put(MODULE, "times_two", times_three)
    yield (vector(),)


@case
def global_function_gets_other_code():
    def local(x):
        return x * 2

    put(MODULE, "CALLEE", local)
    yield lambda x: CALLEE(x), (vector(),)
    local.__code__ = times_three.__code__
    yield (vector(),)


@case
def global_operator():
    yield lambda x: CALLEE(x), (vector(),)
    put(MODULE, "CALLEE", torch.cos)
    yield (vector(),)


@case
def global_dictionary():
    yield lambda x: x * TABLE["a"], (vector(),)
    put(MODULE, "TABLE", {"a": 4.0})
    yield (vector(),)
    TABLE["a"] = 5.0
    yield (vector(),)


@case
def global_list():
    yield lambda x: x * len(ITEMS) + ITEMS[-1], (vector(),)
    put(MODULE, "ITEMS", [1, 2, 3])
    yield (vector(),)
    ITEMS[-1] = 7
    yield (vector(),)


@case
def global_tensor():
    yield lambda x: x + TENSOR, (vector(),)
    put(MODULE, "TENSOR", torch.full((3,), 9.0))
    yield (vector(),)
    put(MODULE, "TENSOR", torch.full((1,), 9.0, dtype=torch.float64))
    yield (vector(),)


@case
def builtin_is_hidden_by_a_global():
    yield lambda x: x * max(1, 2), (vector(),)
    put(MODULE, "max", min)
    yield (vector(),)


@case
def global_in_another_module():
    yield lambda x: x * math.pi, (vector(),)
    put(math, "pi", 3)
    yield (vector(),)


@case
def torch_function_is_replaced():
    yield lambda x: torch.nn.functional.relu(x), (vector(),)
    put(torch.nn.functional, "relu", torch.abs)
    yield (vector(),)


@case
def closure_cell():
    number = 2

    def change(value):
        nonlocal number
        number = value

    yield lambda x: x * number, (vector(),)
    change(3)
    yield (vector(),)
    change(torch.ones(3))
    yield (vector(),)


@case
def closure_cell_of_callee():
    number = 2

    def change(value):
        nonlocal number
        number = value

    def callee(x):
        return x * number

    put(MODULE, "CALLEE", callee)
    yield lambda x: CALLEE(x), (vector(),)
    change(3)
    yield (vector(),)


@case
def cell_becomes_empty():
    number = 2

    def drop():
        nonlocal number
        del number

    def read(x):
        try:
            return x * number
        except NameError:
            return x - 1

    yield read, (vector(),)
    drop()
    yield (vector(),)


# --- functions ----------------------------------------------------------------------------------------------------


@case
def defaults():
    def local(x, by=2):
        return x * by

    yield lambda x: local(x), (vector(),)
    local.__defaults__ = (3,)
    yield (vector(),)


@case
def keyword_defaults():
    def local(x, *, by=2):
        return x * by

    yield lambda x: local(x), (vector(),)
    local.__kwdefaults__ = {"by": 3}
    yield (vector(),)
    local.__kwdefaults__["by"] = 4
    yield (vector(),)


@case
def mutable_default():
    def local(x, items=[1]):  # noqa: B006
        return x * len(items)

    yield lambda x: local(x), (vector(),)
    local.__defaults__[0].append(2)
    yield (vector(),)


@case
def function_argument():
    yield lambda x, f: f(x), (vector(), times_two)
    yield vector(), times_three
    yield vector(), torch.sin
    yield vector(), torch.nn.ReLU()


@case
def closures_of_one_code():
    def make(by):
        return lambda x: x * by

    yield lambda x, f: f(x), (vector(), make(2))
    yield vector(), make(3)


@case
def which_closure_it_is():
    def make():
        return lambda x: x

    first, second = make(), make()
    yield lambda x, f: x + 1 if f is first else x - 1, (vector(), first)
    yield vector(), second


@case
def closure_as_a_key():
    def make():
        return lambda x: x

    first, second = make(), make()
    table = {first: 1, second: 2}
    yield lambda x, f: x * table[f], (vector(), first)
    yield vector(), second


@case
def partial_argument():
    yield lambda x, f: f(x), (vector(), functools.partial(scaled, by=2))
    yield vector(), functools.partial(scaled, by=3)
    yield vector(), functools.partial(scaled, plus=4)
    yield vector(), functools.partial(torch.add, torch.ones(3))


@case
def method_argument():
    yield lambda x, f: f(x), (vector(), Thing(1).method)
    yield vector(), Thing(2).method
    yield vector(), Other(2).method


@case
def function_attribute():
    def local(x):
        return x

    local.by = 2
    yield lambda x: local(x) * local.by, (vector(),)
    local.by = 3
    yield (vector(),)


@case
def function_attribute_appears():
    def local(x):
        return x

    yield lambda x: local(x) * getattr(local, "by", 2), (vector(),)
    local.by = 3
    yield (vector(),)


# --- objects and classes ------------------------------------------------------------------------------------------


@case
def attribute():
    thing = Thing(1)
    yield lambda x: x + thing.value, (vector(),)
    thing.value = 2
    yield (vector(),)
    thing.value = 2.0
    yield (vector(),)
    thing.value = torch.ones(3)
    yield (vector(),)


@case
def attribute_appears():
    thing = Thing(1)
    yield lambda x: x + 1 if hasattr(thing, "extra") else x - 1, (vector(),)
    thing.extra = None
    yield (vector(),)
    del thing.extra
    yield (vector(),)


@case
def attribute_appears_on_the_class():
    thing = Thing(1)
    yield lambda x: x + 1 if hasattr(thing, "extra") else x - 1, (vector(),)
    put(Thing, "extra", None)
    yield (vector(),)


@case
def slot_appears():
    thing = Slotted(1)
    yield lambda x: x + 1 if hasattr(thing, "maybe") else x - thing.value, (vector(),)
    thing.maybe = 1
    yield (vector(),)


@case
def instance_hides_class_attribute():
    thing = Thing(1)
    yield lambda x: x + thing.limit, (vector(),)
    thing.limit = 7
    yield (vector(),)


@case
def instance_hides_method():
    thing = Thing(1)
    yield lambda x: thing.method(x), (vector(),)
    thing.method = times_two
    yield (vector(),)


@case
def class_attribute():
    yield lambda x: x + Thing.limit, (vector(),)
    put(Thing, "limit", 7)
    yield (vector(),)


@case
def class_attribute_through_instance():
    thing = Thing(1)
    yield lambda x: x + thing.limit, (vector(),)
    put(Thing, "limit", 7)
    yield (vector(),)


@case
def method_replaced():
    thing = Thing(1)
    yield lambda x: thing.method(x), (vector(),)
    put(Thing, "method", lambda self, x: x * 10)
    yield (vector(),)


@case
def method_appears_in_between():
    thing = Other(1)
    yield lambda x: thing.static(x), (vector(),)
    put(Other, "static", staticmethod(times_three))
    yield (vector(),)


@case
def method_reached_by_super_replaced():
    class Derived(Thing):
        def method(self, x):
            return super().method(x) * 2

    thing = Derived(1)
    yield lambda x: thing.method(x), (vector(),)
    put(Thing, "method", lambda self, x: x * 10)
    yield (vector(),)


@case
def property_replaced():
    thing = Thing(1)
    yield lambda x: x * thing.double, (vector(),)
    put(Thing, "double", property(lambda self: 9))
    yield (vector(),)


@case
def static_and_class_methods_replaced():
    yield lambda x: Thing.static(x) + Thing.on_class(x), (vector(),)
    put(Thing, "static", staticmethod(times_two))
    yield (vector(),)
    put(Thing, "on_class", classmethod(lambda cls, x: x))
    yield (vector(),)


@case
def special_method_appears():
    class Local:
        pass

    thing = Local()
    yield lambda x: x + 1 if thing else x - 1, (vector(),)
    Local.__bool__ = lambda self: False
    yield (vector(),)


@case
def getattr_hook_appears():
    class Local:
        pass

    thing = Local()
    yield lambda x: x + getattr(thing, "any", 1), (vector(),)
    Local.__getattr__ = lambda self, name: 5
    yield (vector(),)


@case
def setattr_hook_appears():
    class Local:
        pass

    thing = Local()

    def store(x):
        thing.seen = 1
        return x + thing.seen

    yield store, (vector(),)
    Local.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value + 1)
    yield (vector(),)


@case
def constructor_replaced():
    yield lambda x: x + Thing(2).value, (vector(),)
    put(Thing, "__init__", lambda self, value: setattr(self, "value", value + 5))
    yield (vector(),)


@case
def type_of_object():
    yield lambda x, thing: thing.method(x), (vector(), Thing(1))
    yield vector(), Other(1)


@case
def class_of_object_assigned():
    thing = Thing(1)
    yield lambda x: thing.method(x), (vector(),)
    thing.__class__ = Other
    yield (vector(),)


@case
def subclass_is_no_base():
    yield lambda x, thing: x + 1 if type(thing) is Thing else x - 1, (vector(), Thing(1))
    yield vector(), Other(1)


@case
def object_is_replaced():
    yield lambda x, a, b: x + 1 if a is b else x - 1, (vector(), *[Thing(1)] * 2)
    yield vector(), Thing(1), Thing(1)
    yield vector(), *[Thing(1)] * 2


@case
def attributes_are_listed():
    thing = Thing(1)
    yield lambda x: x * len(vars(thing)), (vector(),)
    thing.more = 1
    yield (vector(),)


@case
def base_classes_change():
    class First:
        def method(self, x):
            return x + 1

    class Second:
        def method(self, x):
            return x - 1

    class Derived(First):
        pass

    thing = Derived()
    yield lambda x: thing.method(x), (vector(),)
    Derived.__bases__ = (Second,)
    yield (vector(),)


# --- modules ------------------------------------------------------------------------------------------------------


@case
def module_attribute():
    net = network()
    yield net, (vector(),)
    net.note = "minus"
    yield (vector(),)
    net.sizes.append(5)
    yield (vector(),)
    net.factor = 7
    yield (vector(),)


@case
def module_class_attribute():
    net = network()
    yield net, (vector(),)
    put(Net, "factor", 7)
    yield (vector(),)


@case
def training_flag():
    net = network()
    yield lambda x: net.drop(x) * net.training, (vector(),)
    net.train()
    net.drop.eval()
    yield (vector(),)
    net.drop.p = 0.0
    net.drop.train()
    yield (vector(),)


@case
def batch_norm_changes_mode():
    norm = torch.nn.BatchNorm1d(3).eval()
    yield norm, (torch.ones(2, 3),)
    norm.train()
    yield (torch.arange(6.0).reshape(2, 3),)
    norm.eval()
    yield (torch.ones(2, 3),)


@case
def submodule_replaced():
    net = network()
    yield net, (vector(),)
    net.inner = torch.nn.Identity()
    yield (vector(),)
    net.layers[1] = torch.nn.Tanh()
    yield (vector(),)
    net.layers[1] = torch.nn.ReLU()
    net.layers.append(torch.nn.Sigmoid())
    yield (vector(),)
    del net.layers[0]
    yield (vector(),)


@case
def submodule_becomes_none():
    net = network()
    yield lambda x: x + 1 if net.inner is None else net.inner(x), (vector(),)
    net.inner = None
    yield (vector(),)


@case
def submodule_of_same_class_replaced():
    net = network()
    yield net, (vector(),)
    net.inner = torch.nn.Linear(3, 3, bias=False)
    yield (vector(),)


@case
def forward_replaced():
    net = network()
    yield lambda x: net(x), (vector(),)
    net.forward = times_two
    yield (vector(),)
    del net.forward
    put(Net, "forward", lambda self, x: x * 11)
    yield (vector(),)


@case
def hooks_are_added():
    net = network()
    yield lambda x: net(x), (vector(),)
    handle = net.register_forward_hook(lambda module, args, output: output * 2)
    yield (vector(),)
    handle.remove()
    yield (vector(),)
    net.inner.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    yield (vector(),)


@case
def hook_is_added_to_the_root():
    net = network()
    yield net, (vector(),)
    net.register_forward_hook(lambda module, args, output: output * 2)
    yield (vector(),)


@case
def global_hooks_are_added():
    net = network()
    yield lambda x: net(x), (vector(),)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)
    try:
        yield (vector(),)
    finally:
        handle.remove()
    yield (vector(),)


@case
def parameter_is_replaced():
    net = network()
    yield net, (vector(),)
    net.inner.weight = torch.nn.Parameter(torch.ones(3, 3))
    yield (vector(),)
    net.inner.bias = None
    yield (vector(),)


@case
def parameter_data_changes():
    net = network()
    yield net, (vector(),)
    with torch.no_grad():
        net.inner.weight.fill_(2)
    yield (vector(),)
    net.inner.weight.data = torch.ones(3, 3)
    yield (vector(),)


@case
def parameter_is_frozen():
    net = network()
    yield net, (vector(),)
    net.requires_grad_(False)
    yield (vector(),)
    net.inner.bias.requires_grad_(True)
    yield (vector(),)


@case
def parameter_dtype():
    net = network()
    yield net, (vector(),)
    net.double()
    yield (vector().double(),)


@case
def parameters_become_tied():
    net = network()
    yield net, (vector(),)
    net.layers[0].weight = net.inner.weight
    yield (vector(),)


@case
def buffer_is_replaced():
    net = network()
    yield net, (vector(),)
    net.scale = torch.full((1,), 5.0)
    yield (vector(),)
    net.scale.fill_(6)
    yield (vector(),)


@case
def module_attribute_appears():
    net = network()
    yield lambda x: x + 1 if hasattr(net, "extra") else x - 1, (vector(),)
    net.extra = 1
    yield (vector(),)
    del net.extra
    net.register_buffer("extra", torch.ones(1))
    yield (vector(),)


@case
def module_attribute_appears_on_the_class():
    net = network()
    yield lambda x: x + 1 if hasattr(net, "extra") else x - 1, (vector(),)
    put(Net, "extra", 1)
    yield (vector(),)


@case
def registered_name_moves_to_another_table():
    net = network()
    yield lambda x: x + net.scale, (vector(),)
    del net.scale
    net.scale = torch.nn.Parameter(torch.ones(3))
    yield (vector(),)


@case
def submodule_is_reordered():
    net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    yield net, (vector(),)
    net[0], net[1] = net[1], net[0]
    yield (vector(),)


@case
def module_dictionary():
    table = torch.nn.ModuleDict({"a": torch.nn.ReLU()})
    yield lambda x: sum(m(x) for m in table.values()), (vector(),)
    table["b"] = torch.nn.Tanh()
    yield (vector(),)
    del table["a"]
    yield (vector(),)


# --- containers ---------------------------------------------------------------------------------------------------


@case
def list_argument():
    yield lambda x, items: x * len(items) + items[0], (vector(), [1, 2])
    yield vector(), [1, 2, 3]
    yield vector(), [2, 2]
    yield vector(), (2, 2)
    yield vector(), [torch.ones(3), 2]


@case
def empty_list():
    yield lambda x, items: x + 1 if items else x - 1, (vector(), [])
    yield vector(), [0]


@case
def list_iteration():
    yield lambda x, items: [x * i for i in items], (vector(), [1, 2])
    yield vector(), [2, 1]
    yield vector(), [1]


@case
def dictionary_argument():
    yield lambda x, table: x * table["a"], (vector(), {"a": 1})
    yield vector(), {"a": 2}
    yield vector(), {"a": 2, "b": 1}
    yield vector(), {"a": torch.ones(3)}


@case
def dictionary_keys():
    yield lambda x, table: [x * len(k) for k in table], (vector(), {"a": 1, "bb": 1})
    yield vector(), {"bb": 1, "a": 1}
    yield vector(), {"a": 1}


@case
def dictionary_key_type():
    yield lambda x, table: [x if k is True else x * 2 for k in table], (vector(), {1: 0})
    yield vector(), {True: 0}
    yield vector(), {1.0: 0}


@case
def dictionary_key_appears():
    yield lambda x, table: x + table.get("b", 1) + ("c" in table), (vector(), {"a": 1})
    yield vector(), {"b": 5}
    yield vector(), {"c": 5}


@case
def dictionary_is_empty():
    yield lambda x, table: x + 1 if table else x - 1, (vector(), {})
    yield vector(), {"a": 1}


@case
def dictionary_class():
    class Loud(dict):
        def __getitem__(self, key):
            return 100

    yield lambda x, table: x * table["a"], (vector(), {"a": 1})
    yield vector(), Loud(a=1)


@case
def set_argument():
    yield lambda x, names: x + len(names) if "a" in names else x, (vector(), {"a"})
    yield vector(), {"a", "b"}
    yield vector(), {"b"}


@case
def order_of_a_set():
    grown = set(range(100))
    for i in range(100):
        if i not in (9, 16):
            grown.discard(i)
    yield lambda x, names: [x * n for n in names], (vector(), {16, 9})
    yield vector(), grown
    yield vector(), {16, 9}


@case
def nested_argument():
    yield lambda x, tree: x * tree["a"][0]["b"], (vector(), {"a": [{"b": 1}]})
    yield vector(), {"a": [{"b": 2}]}


@case
def two_lists_become_one():
    def append(x, a, b):
        a.append(1)
        return x * len(b)

    yield append, (vector(), [1], [1])
    shared = [1]
    yield vector(), shared, shared


@case
def two_dictionaries_become_one():
    def store(x, a, b):
        a["k"] = 5
        return x * b["k"]

    yield store, (vector(), {"k": 1}, {"k": 1})
    shared = {"k": 1}
    yield vector(), shared, shared


@case
def two_objects_become_one():
    def store(x, a, b):
        a.value = 5
        return x * b.value

    yield store, (vector(), Thing(1), Thing(1))
    shared = Thing(1)
    yield vector(), shared, shared


@case
def nested_list_becomes_the_outer_one():
    def append(x, a, b):
        a.append(1)
        return x * len(b[0])

    yield append, (vector(), [1], [[1]])
    shared = [1]
    yield vector(), shared, [shared]


@case
def identity_of_lists():
    shared = [1]
    yield lambda x, a, b: x + 1 if a is b else x - 1, (vector(), [1], [1])
    yield vector(), shared, shared


@case
def keyword_arguments():
    yield lambda x, **kwargs: [x * len(k) * v for k, v in kwargs.items()], (vector(),), {"a": 1}
    yield (vector(),), {"bb": 1}
    yield (vector(),), {"bb": 1, "a": 1}


# --- numbers and strings ------------------------------------------------------------------------------------------


@case
def numbers():
    yield lambda x, n: (x + n, n), (vector(), 1)
    for n in (True, 1.0, 0, 0.0, -0.0, float("nan"), float("inf"), 2**70, 1j, False):
        yield vector(), n


@case
def signed_zero():
    yield lambda x, n: (x * n, math.copysign(1, n)), (vector(), 0.0)
    yield vector(), -0.0


@case
def signed_zero_of_complex_numbers():
    yield lambda x, n: (x + 1, n), (vector(), complex(0.0, 0.0))
    yield vector(), complex(-0.0, 0.0)
    yield vector(), complex(0.0, float("nan"))


@case
def strings():
    yield lambda x, s: (x * len(s), s), (vector(), "a")
    yield vector(), "bb"
    yield vector(), "{x}"
    yield vector(), b"a"


@case
def long_strings():
    yield lambda x, s: (x + 1 if s.endswith("a") else x, s), (vector(), "a" * 100)
    yield vector(), "a" * 99 + "b"


@case
def none():
    yield lambda x, other: x * 2 if other is None else x + other, (vector(), None)
    yield vector(), 0
    yield vector(), torch.ones(3)
    yield vector(), None


@case
def enum_member():
    yield lambda x, c: x * c.value, (vector(), Color.RED)
    yield vector(), Color.BLUE


@case
def dtype_argument():
    yield lambda x, t: x.to(t), (vector(), torch.float64)
    yield vector(), torch.int32


@case
def slice_argument():
    yield lambda x, s: x[s], (vector(), slice(0, 2))
    yield vector(), slice(0, 1)
    yield vector(), slice(None, None, 2)
    yield vector(), 1


@case
def class_argument():
    yield lambda x, cls: x + cls(2).value, (vector(), Thing)
    yield vector(), Other
    yield vector(), lambda v: Thing(v + 1)


# --- tensors ------------------------------------------------------------------------------------------------------


@case
def shape():
    yield lambda x: x.reshape(-1) * x.dim() + x.shape[0], (torch.ones(2, 3),)
    yield (torch.ones(3, 2),)
    yield (torch.ones(4, 5),)
    yield (torch.ones(6),)
    yield (torch.ones(1, 6),)
    yield (torch.ones(0, 6),)


@case
def stride():
    yield lambda x: (x + 1, x.is_contiguous(), x.stride()), (torch.ones(3, 3),)
    yield (torch.ones(3, 3).t(),)
    yield (torch.ones(3, 6)[:, ::2],)


@case
def storage_offset():
    base = torch.arange(8.0)
    yield lambda x: x + x.storage_offset(), (base[:4],)
    yield (base[4:],)


@case
def dtype():
    yield lambda x: (x + 1, x.dtype), (torch.ones(3),)
    yield (torch.ones(3, dtype=torch.float64),)
    yield (torch.ones(3, dtype=torch.int64),)


@case
def device():
    yield lambda x: (x + 1, x.device.type), (torch.ones(3),)
    yield (torch.ones(3, device="meta"),)


@case
def requires_grad():
    yield lambda x: (x * 2, x.requires_grad), (torch.ones(3),)
    yield (torch.ones(3, requires_grad=True),)


@case
def is_leaf():
    leaf = torch.ones(3, requires_grad=True)
    yield lambda x: (x * 2, x.is_leaf), (leaf,)
    yield (leaf * 1,)


@case
def grad():
    x = torch.ones(3, requires_grad=True)
    yield lambda t: t.detach() + 1 if t.grad is None else t.detach() + t.grad, (x,)
    x.sum().backward()
    yield (x,)


@case
def class_of_tensor():
    yield (
        lambda x: (x.detach() * 2, type(x) is torch.Tensor, isinstance(x, torch.nn.Parameter)),
        (torch.ones(3, requires_grad=True),),
    )
    yield (torch.nn.Parameter(torch.ones(3)),)


@case
def tensor_becomes_something_else():
    yield lambda x: x * 2, (torch.ones(3),)
    yield (3,)
    yield ([3],)
    yield ("a",)


@case
def two_tensors_become_one():
    def change(a, b):
        a.add_(1)
        return b * 2, a is b

    yield change, (torch.ones(3), torch.ones(3))
    shared = torch.ones(3)
    yield shared, shared
    yield torch.ones(3), torch.ones(3)


@case
def one_tensor_becomes_two():
    def change(a, b):
        a.add_(1)
        return b * 2, a is b

    shared = torch.ones(3)
    yield change, (shared, shared)
    yield torch.ones(3), torch.ones(3)


@case
def two_tensors_become_views_of_one():
    def change(a, b):
        a.add_(1)
        return b * 2

    yield change, (torch.ones(3), torch.ones(3))
    base = torch.ones(4)
    yield base[:3], base[1:]


@case
def tensor_attribute():
    marked = torch.ones(3)
    yield lambda x: x * getattr(x, "by", 1), (torch.ones(3),)
    marked.by = 5
    yield (marked,)


@case
def conjugate():
    x = torch.ones(3, dtype=torch.complex64) * 1j
    yield lambda t: torch.view_as_real(t.resolve_conj()) + t.is_conj(), (x,)
    yield (x.conj(),)


@case
def inference_tensor():
    yield lambda x: (x * 2, x.is_inference()), (torch.ones(3),)
    with torch.inference_mode():
        made = torch.ones(3)
    yield (made,)


# --- torch's global state -----------------------------------------------------------------------------------------


@case
def grad_mode():
    x = torch.ones(3, requires_grad=True)
    yield lambda t: (t * 2, torch.is_grad_enabled()), (x,)
    with torch.no_grad():
        yield (x,)
    with torch.inference_mode():
        yield (torch.ones(3),)
    yield (x,)


@case
def inference_mode_without_tensors():
    yield lambda n: (torch.ones(n), torch.is_inference_mode_enabled()), (3,)
    with torch.inference_mode():
        yield (3,)


@case
def autocast():
    a = torch.ones(3, 3)
    yield lambda t: (t @ t, torch.is_autocast_enabled("cpu")), (a,)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield (a,)
        with torch.autocast("cpu", enabled=False):
            yield (a,)
    with torch.autocast("cpu", dtype=torch.float16):
        yield (a,)


@case
def default_dtype():
    yield lambda x: (torch.ones(2), torch.tensor(1.5), x.int() / 2), (vector(),)
    torch.set_default_dtype(torch.float64)
    try:
        yield (vector(),)
    finally:
        torch.set_default_dtype(torch.float32)


@case
def default_device():
    yield lambda x: (torch.ones(2).device.type, x + 1), (vector(),)
    with torch.device("meta"):
        yield (torch.ones(3, device="cpu"),)


@case
def deterministic_flag():
    yield lambda x: (x + 1, torch.are_deterministic_algorithms_enabled()), (vector(),)
    torch.use_deterministic_algorithms(True)
    try:
        yield (vector(),)
    finally:
        torch.use_deterministic_algorithms(False)


@case
def matmul_precision():
    yield lambda x: (x + 1, torch.get_float32_matmul_precision()), (vector(),)
    torch.set_float32_matmul_precision("high")
    try:
        yield (vector(),)
    finally:
        torch.set_float32_matmul_precision("highest")


@case
def torch_function_mode():
    class Doubles(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.Tensor.add else result

    yield lambda x: x.add(1), (vector(),)
    with Doubles():
        yield (vector(),)


@case
def exception_of_the_caller():
    yield lambda x: x + 1 if sys.exc_info()[1] is None else x - 1, (vector(),)
    try:
        raise KeyError
    except KeyError:
        yield (vector(),)


def _arguments(step):
    if isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], tuple) and isinstance(step[1], dict):
        return step
    return step, {}


def _copy(arguments):
    """Both runs may change what they are given.  What cannot be copied, a result of autograd, nobody changes here."""
    try:
        return copy.deepcopy(arguments)
    except RuntimeError:
        return arguments


def _run(function, arguments):
    args, kwargs = arguments
    torch.manual_seed(0)
    try:
        return ["returned", function(*args, **kwargs), args, kwargs]
    except Exception as error:
        return ["raised", error.with_traceback(None), args, kwargs]


@pytest.mark.parametrize("name", CASES)
def test_change_is_noticed(name):
    steps = CASES[name]()
    with contextlib.closing(steps):
        function, *first = next(steps)
        compiled = torchmux.compile(function, backend="eager")
        arguments = _arguments(tuple(first) if len(first) == 2 else first[0])
        _compare(function, compiled, arguments)
        report = torchmux.report(compiled)
        assert report.graph_count == 1, "the first call is not captured, so nothing is guarded"
        assert not report.breaks, report.breaks[0].message()
        for step in steps:
            _compare(function, compiled, _arguments(step))


def _compare(function, compiled, arguments):
    for _ in range(2):
        assert_same(_run(function, _copy(arguments)), _run(compiled, _copy(arguments)))
