"""Corners of classes that derive from Python's own, of modules with state, of special methods and of protocols."""

import abc
import collections
import collections.abc
import typing

import torch

from .corpus import case, tensor


class Stateful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.cache = {}
        self.history = []
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.count += 1
        self.history.append(self.calls)
        key = tuple(x.shape)
        if key not in self.cache:
            self.cache[key] = x * 2
        return self.cache[key] + self.calls + self.count


@case(inputs=lambda: (tensor(), Stateful()))
def case_stateful_module(x, module):
    return module(x) + module(x[:2]).sum() + module(x)


class Ordered(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.move_to_end(key, last=False)


class Defaulting(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


@case(inputs=lambda: (tensor(), Ordered(a=1), Defaulting(a=1)))
def case_dictionary_subclasses(x, o, d):
    o["b"] = x
    o["a"] = 5
    return x * d["new"], list(o), d, d.get("other"), "new" in d, dict(o)["a"], isinstance(o, dict)


class Loud(list):
    def append(self, item):
        super().append(("loud", item))

    def __getitem__(self, index):
        return ("item", super().__getitem__(index))

    def __len__(self):
        return 100


@case(inputs=lambda: (tensor(), Loud([1, 2])))
def case_list_subclass_is_loud(x, items):
    items.append(3)
    items.extend([4])
    return (
        x + 1,
        len(items),
        items[0],
        list(items),
        [*items],
        items == [1, 2, ("loud", 3), 4],
        bool(items),
        items.index(4),
    )


class LongTuple(tuple):
    __slots__ = ()

    def __len__(self):
        return 9


class UpString(str):
    __slots__ = ()

    def upper(self):
        return "up"


@case(inputs=lambda: (tensor(), LongTuple((1, 2)), UpString("ab")))
def case_tuple_and_string_subclasses(x, t, s):
    return x + len(t), t[0], tuple(t), s.upper(), s + "c", s == "ab", len(s), f"{s}", t == (1, 2), {s: 1}["ab"]


class Attributes(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Strict(dict):
    __getattr__ = dict.__getitem__
    fetch = dict.get
    count = dict.__len__


class Pushes(list):
    push = list.append
    __lshift__ = list.append
    __call__ = list.__getitem__
    __eq__ = list.__ne__
    __hash__ = None


@case(one_graph=True, inputs=lambda: (tensor(), Attributes(scale=2)))
def case_special_methods_that_are_other_methods_of_c(x, settings):
    settings.result = x * settings.scale
    other = Attributes(settings, more=1)
    other.less = 5
    del other.scale
    return settings, other, other.missing, vars(settings), "result" in settings


@case(one_graph=True)
def case_methods_of_c_under_other_names(x):
    strict, pushes = Strict(a=x), Pushes([x])
    try:
        strict.missing  # noqa: B018
    except KeyError as error:
        caught = repr(error)
    pushes.push(2)
    pushes << 3  # noqa: B018
    return strict.a, strict.fetch("b", 4), strict.count(), caught, pushes(1), list(pushes), pushes == [1]


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 1)

    def __set__(self, instance, value):
        setattr(instance, self.name, value)

    def __delete__(self, instance):
        delattr(instance, self.name)


class Measured:
    size = Positive()


@case(one_graph=True)
def case_descriptor_that_deletes(x):
    measured = Measured()
    measured.size = 3
    y = x * measured.size
    del measured.size
    return y, measured.size, vars(measured)


@case(one_graph=True)
def case_what_metaclasses_have_and_classes_have_not(x):
    found = (
        hasattr(Measured, "__abstractmethods__"),
        getattr(int, "__abstractmethods__", 3),
        hasattr(abc.ABC, "register"),
    )
    return x + 1, found, hasattr(abc.ABC, "__abstractmethods__")


@typing.runtime_checkable
class Applies(typing.Protocol):
    factor: int

    def apply(self, x): ...


class AppliesByClass:
    factor = 1

    def apply(self, x):
        return x * 2


class HasFactor:
    factor = 1


class AppliesByItself(HasFactor):
    def __init__(self, apply):
        self.apply = apply


class Asks:
    factor = 3

    def __getattr__(self, name):
        return name


APPLIES, HAS_FACTOR = AppliesByClass(), HasFactor()


@case(one_graph=True, inputs=lambda: (tensor(), AppliesByItself(torch.sin), AppliesByItself(None)))
def case_members_of_a_protocol(x, given, without):
    objects = [APPLIES, HAS_FACTOR, given, without]
    found = [isinstance(each, Applies) for each in objects]
    return [each.apply(x) if isinstance(each, Applies) else None for each in objects], found


@case(inputs=lambda: (tensor(), Asks()))
def case_members_of_a_protocol_that_are_asked_for(x, asks):
    made = AppliesByItself(torch.cos)
    return x + 1, isinstance(asks, Applies), isinstance(x, Applies), isinstance(3, Applies), isinstance(made, Applies)
