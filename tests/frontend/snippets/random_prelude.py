"""What the random programs of ``random_programs`` find as globals: classes, helpers, and state that they change."""

import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import typing

import torch
import torch.nn.functional as F

import torchmux

__all__ = ["F", "bisect", "collections", "copy", "functools", "heapq", "itertools", "math", "operator", "torchmux"]

LOG = []
COUNTER = 3
STATE = {"n": 2, "m": 5}
FUEL = 60
GLOBAL_TENSOR = torch.tensor([1.0, 0.0, -1.0, 2.0])
Stack = contextlib.ExitStack


class Oops(Exception):
    pass


class Worse(Oops, ValueError):
    pass


class Exhausted(Exception):
    pass


def burn():
    """Ends loops over containers that grow while they are walked."""
    global FUEL
    FUEL -= 1
    if FUEL < 0:
        raise Exhausted("no fuel is left")


class Manager:
    def __init__(self, name, swallows=()):
        self.name = name
        self.swallows = swallows

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self.name

    def close(self):
        LOG.append("closed")

    def __exit__(self, kind, error, traceback):
        LOG.append(("exit", self.name, kind and kind.__name__))
        return kind is not None and issubclass(kind, self.swallows)


@contextlib.contextmanager
def region(name):
    LOG.append(("in", name))
    try:
        yield name * 2
    except KeyError as error:
        LOG.append(("key", error.args))
    finally:
        LOG.append(("out", name))


def numbers(n):
    for i in range(n % 5):
        yield i * 2
    return n


def polite(n):
    try:
        received = yield n
        while received is not None:
            received = yield received + n
    finally:
        LOG.append("polite")


class Thing:
    kind = "thing"

    def __init__(self, n, t):
        self.n = n
        self.t = t
        self.items = [n, 1]

    def __repr__(self):
        return f"{type(self).__name__}({self.n}, {self.items})"

    @property
    def double(self):
        return self.n * 2

    @double.setter
    def double(self, value):
        if value > 30:
            raise ValueError(f"{value} is too much")
        self.n = value // 2

    def bump(self, by=1):
        self.n = (self.n + by) % 17
        return self.n

    def scaled(self, k):
        return self.t * k

    def __call__(self, a, *rest, k=1):
        return self.n + a + len(rest) * k

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]

    def __setitem__(self, index, value):
        self.items[index] = value

    def __contains__(self, value):
        return value == self.n or value in self.items

    def __lt__(self, other):
        return self.n < (other.n if isinstance(other, Thing) else other)

    def __add__(self, other):
        if isinstance(other, Thing):
            return type(self)(self.n + other.n, self.t + other.t)
        return NotImplemented

    @staticmethod
    def helper(a, b=2):
        return a * b

    @classmethod
    def made(cls, n):
        return cls(n, torch.ones(4) * n)


class Child(Thing):
    kind = "child"

    def __init__(self, n, t, extra=0):
        super().__init__(n, t)
        self.extra = extra

    def bump(self, by=2):
        self.extra += 1
        return super().bump(by) + self.extra

    def __getattr__(self, name):
        if name.startswith("magic"):
            return len(name)
        raise AttributeError(f"no {name} here")


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

    def flipped(self):
        return dataclasses.replace(self, x=self.y, y=self.x)


@dataclasses.dataclass(frozen=True, order=True)
class Fixed:
    a: int
    b: str = "b"


Pair = collections.namedtuple("Pair", "a b")


class Color(enum.IntEnum):
    RED = 1
    GREEN = 2


def opaque(value):
    LOG.append("opaque")
    return value


opaque = torchmux.disable(opaque)


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        LOG.append(function.__name__)
        return function(*args, **kwargs)

    return wrapper


class Registry:
    kinds: typing.ClassVar = {"a": Thing, "b": Thing.made, "child": Child}
    last = 0


class Both:
    """An object that other operands meet on either side."""

    def __init__(self, value):
        self.value = value

    @property
    def total(self):
        return self.value + COUNTER

    def __eq__(self, other):
        return isinstance(other, Both) and self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __bool__(self):
        return self.value % 2 == 0

    def __mul__(self, other):
        return other * self.value

    def __radd__(self, other):
        return other + self.value

    def __matmul__(self, other):
        return self.value * 2 + other if other else NotImplemented

    def __pos__(self):
        LOG.append("pos")
        return self.value

    def __str__(self):
        return f"<{self.value}>"


class Lazy:
    name = "lazy"

    def __init__(self, value):
        self._value = value

    @property
    def value(self):
        LOG.append("read")
        return self._value

    @value.setter
    def value(self, value):
        if value < 0:
            raise ValueError("negative")
        self._value = value

    @value.deleter
    def value(self):
        self._value = 0

    @functools.cached_property
    def cached(self):
        LOG.append("cached")
        return self._value + 1

    @functools.cached_property
    def tensor(self):
        return torch.ones(4) * self._value

    def __iter__(self):
        for i in range(self._value % 4):
            LOG.append(i)
            yield i


@typing.runtime_checkable
class HasBump(typing.Protocol):
    def bump(self, by): ...


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -1.0, 0.5, 2.0]))
        self.register_buffer("buffer", torch.zeros(4))
        self.inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.0))
        self.calls = 0
        self.scale = 2

    def forward(self, t):
        self.calls += 1
        self.buffer.add_(1)
        t = self.inner(t) * self.weight
        return t * self.scale if self.training else t + self.buffer

    def named_sizes(self):
        return {name: parameter.numel() for name, parameter in self.named_parameters()}


LAYER = Layer()
CHANGED = ("LOG", "COUNTER", "STATE", "FUEL", "GLOBAL_TENSOR", "LAYER")


@functools.singledispatch
def describe(value):
    return len(str(value))


@describe.register
def _(value: int):
    return value * 2


@describe.register
def _(value: torch.Tensor):
    return value + 1


@functools.lru_cache(maxsize=100)
def cached_square(n):
    return n * n


def inspect_count(function):
    return len(inspect.signature(function).parameters)


def recursive(n):
    return n + recursive(n - 1) if n > 0 else 0


def zipped(*lists):
    return sum(a * b for a, b in zip(*lists, strict=False))


def global_counter(by):
    global COUNTER
    COUNTER += by
    LOG.append(COUNTER)
    return COUNTER
