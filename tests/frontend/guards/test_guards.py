"""Guards of names, functions, objects and classes: what is changed after compiling is noticed."""

import builtins
import functools
import math
import sys

import pytest
import torch

from .guarding import (
    Other,
    Slotted,
    Thing,
    case,
    cases_of,
    check,
    put,
    scaled,
    times_three,
    times_two,
    vector,
)

NUMBER = 2
TABLE = {"a": 1.0}
ITEMS = [1, 2]
TENSOR = torch.ones(3)
CALLEE = torch.sin
MODULE = sys.modules[__name__]


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


@case
def builtin_is_replaced():
    yield lambda x: x * divmod(7, 2)[0], (vector(),)
    put(builtins, "divmod", lambda a, b: (7, 7))
    yield (vector(),)


@pytest.mark.parametrize("name", cases_of(__name__))
def test_change_is_noticed(name):
    check(cases_of(__name__)[name])
