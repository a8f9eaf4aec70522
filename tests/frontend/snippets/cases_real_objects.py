"""The object model at depth: metaclasses, hooks of classes, descriptors, attribute hooks, operators, inheritance."""

import abc
import collections.abc
import copy
import itertools
import operator
import typing
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch

from .corpus import case, tensor

T = TypeVar("T")
REGISTRY = {}
SEEN = []


class Singleton(type):
    def __call__(cls, *args, **kwargs):
        if "instance" not in cls.__dict__:
            cls.instance = super().__call__(*args, **kwargs)
        return cls.instance


class Plugin:
    plugins = {}

    def __init_subclass__(cls, /, key=None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.key = key
        Plugin.plugins[key] = cls

    def run(self, x):
        return x


class Doubler(Plugin, key="double"):
    def run(self, x):
        return super().run(x) * 2


class Tripler(Plugin, key="triple"):
    def run(self, x):
        return super().run(x) * 3


class NonData:
    def __get__(self, obj, owner=None):
        return ("class", owner.__name__) if obj is None else ("instance", obj.n)


class UsesNonData:
    n = 3
    value = NonData()


class Recording:
    """__getattribute__ sees every lookup."""

    def __init__(self):
        object.__setattr__(self, "seen", [])
        self.n = 2

    def __getattribute__(self, name):
        if not name.startswith("_") and name != "seen":
            object.__getattribute__(self, "seen").append(name)
        return super().__getattribute__(name)


class AttrDict(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __missing__(self, key):
        return f"missing {key}"


class Vector:
    def __init__(self, *parts):
        self.parts = parts

    def __add__(self, other):
        return Vector(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def __radd__(self, other):
        return self if other == 0 else NotImplemented

    def __iadd__(self, other):
        self.parts = tuple(p + other for p in self.parts)
        return self

    def __mul__(self, k):
        return Vector(*(p * k for p in self.parts)) if isinstance(k, int) else NotImplemented

    __rmul__ = __mul__

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.parts, other.parts, strict=True))

    def __neg__(self):
        return Vector(*(-p for p in self.parts))

    def __abs__(self):
        return max(self.parts)

    def __pow__(self, k, mod=None):
        return ("pow", k, mod)

    def __divmod__(self, k):
        return ("divmod", k)

    def __rtruediv__(self, k):
        return ("rtruediv", k)

    def __lshift__(self, k):
        return ("lshift", k)

    def __invert__(self):
        return "inverted"

    def __eq__(self, other):
        return isinstance(other, Vector) and self.parts == other.parts

    def __hash__(self):
        return hash(self.parts)

    def __bool__(self):
        return any(self.parts)

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, i):
        return Vector(*self.parts[i]) if isinstance(i, slice) else self.parts[i]

    def __iter__(self):
        return iter(self.parts)

    def __reversed__(self):
        return iter(self.parts[::-1])

    def __contains__(self, p):
        return p in self.parts

    def __int__(self):
        return int(self.parts[0])

    def __float__(self):
        return float(self.parts[0])

    def __index__(self):
        return self.parts[0]

    def __round__(self, n=None):
        return ("round", n)

    def __repr__(self):
        return f"Vector{self.parts}"

    def __format__(self, spec):
        return f"<{spec or 'plain'}>"

    def __call__(self, x):
        return x * self.parts[0]


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    @property
    @abc.abstractmethod
    def sides(self): ...

    def both(self):
        return self.area() * self.sides


class Square(Shape):
    sides = 4

    def area(self):
        return 2


@runtime_checkable
class HasRun(Protocol):
    def run(self, x): ...


class Box(Generic[T]):
    def __init__(self, item: T):
        self.item = item

    def get(self) -> T:
        return self.item


class Seq(collections.abc.Sequence):
    def __init__(self, *items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


class Map(collections.abc.MutableMapping):
    def __init__(self, **data):
        self.data = dict(data)

    def __getitem__(self, k):
        return self.data[k]

    def __setitem__(self, k, v):
        self.data[k] = v

    def __delitem__(self, k):
        del self.data[k]

    def __iter__(self):
        return iter(self.data)

    def __len__(self):
        return len(self.data)


class Copied:
    def __init__(self, n, items):
        self.n = n
        self.items = items

    def __copy__(self):
        return Copied(self.n + 1, self.items)


class DeepCopied:
    def __init__(self, items):
        self.items = items

    def __deepcopy__(self, memo):
        return DeepCopied(copy.deepcopy(self.items, memo))


class Immutable(tuple):
    __slots__ = ()

    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    @property
    def first(self):
        return self[0]


class Temperature(float):
    def __new__(cls, value):
        return super().__new__(cls, value * 2)

    def shifted(self):
        return self + 1


class Private:
    def __init__(self):
        self.__hidden = 3

    def reveal(self):
        return self.__hidden


class WithDel:
    def __init__(self):
        self.n = 1

    @property
    def value(self):
        return self.n

    @value.setter
    def value(self, value):
        SEEN.append(("set", value))
        self.n = value

    @value.deleter
    def value(self):
        SEEN.append("deleted")
        self.n = None


@case()
def case_registered_subclasses(x):
    for key in ("double", "triple"):
        x = Plugin.plugins[key]().run(x)
    return x, Doubler.key, sorted(Plugin.plugins), [c.__name__ for c in Plugin.__subclasses__()][:2]


@case(one_graph=True)
def case_non_data_descriptor(x):
    u = UsesNonData()
    first = u.value
    u.__dict__["value"] = "own"
    return x, first, u.value, UsesNonData.value


@case()
def case_every_lookup_is_seen(x):
    r = Recording()
    y = x * r.n
    r.n = 3
    return y * r.n, r.seen


@case()
def case_attribute_dictionary(x):
    d = AttrDict(a=1)
    d.b = x
    d["c"] = d.a + 1
    return d.b * d.c, d["none"], d.get("none"), hasattr(d, "zzz"), list(d)


@case(inputs=lambda: (tensor(), AttrDict(width=2)))
def case_attribute_dictionary_argument(x, d):
    d.depth = d.width + 1
    return x * d.depth, d


@case(one_graph=True)
def case_vector_arithmetic(x):
    v, w = Vector(1, 2), Vector(3, 4)
    u = v + w
    u += 1
    return x * (v @ w), u.parts, (2 * v).parts, (v * 2).parts, (-v).parts, abs(w), sum([v, w]).parts


@case()
def case_rarer_operators(x):
    v = Vector(1, 2)
    return x, v**2, pow(v, 2, 3), divmod(v, 2), 1 / v, v << 3, ~v, round(v), round(v, 1), int(v), float(v), [5, 6][v]


@case()
def case_operators_are_refused(x):
    errors = []
    for act in (lambda: Vector(1) * "a", lambda: "a" + Vector(1), lambda: Vector(1) - 1, lambda: Vector(1) < 1):
        try:
            act()
        except TypeError as error:
            errors.append(str(error))
    return x, errors


@case(one_graph=True)
def case_vector_as_container(x):
    v = Vector(3, 0, 5)
    a, *b = v
    return x * len(v), v[1:].parts, list(v), list(reversed(v)), 5 in v, bool(Vector(0)), a, b, v(x)


@case()
def case_text_of_vector(x):
    v = Vector(1)
    return x, f"{v}", f"{v:wide}", format(v, "w"), str(v), repr(v), f"{v!r:>12}", "%s" % v, "{:z}".format(v)


@case()
def case_vector_as_key(x):
    table = {Vector(1, 2): "a"}
    table[Vector(1, 2)] = "b"
    return x, table[Vector(1, 2)], len(table), Vector(1) == Vector(1), Vector(1) != Vector(2), Vector(3) in {Vector(3)}


@case(one_graph=True)
def case_abstract_class_is_implemented(x):
    s = Square()
    return x * s.both(), isinstance(s, Shape), issubclass(Square, Shape)


@case()
def case_protocol_is_checked(x):
    return x, isinstance(Doubler(), HasRun), isinstance(3, HasRun)


@case()
def case_generic_class(x):
    b = Box[int](3)
    return x * b.get(), isinstance(b, Box), Box[int].__origin__ is Box


@case()
def case_sequence_mixin(x):
    s = Seq(3, 1, 3)
    return x * s.count(3), s.index(1), list(reversed(s)), 1 in s, list(s), isinstance(s, collections.abc.Sequence)


@case()
def case_mapping_mixin(x):
    m = Map(a=1)
    m["b"] = 2
    m.update(c=3)
    popped = m.pop("a")
    return (
        x * m.setdefault("d", 4),
        popped,
        list(m.items()),
        m.get("z", 0),
        dict(m),
        "b" in m,
        m == {"b": 2, "c": 3, "d": 4},
    )


@case(one_graph=True)
def case_abstract_checks_of_builtins(x):
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized

    values = ([], {}, "s", 3, x, (1,), {1}, len)
    kinds = (Mapping, Sequence, Iterable, Hashable, Sized, Callable)
    return x, [[isinstance(v, k) for k in kinds] for v in values]


@case()
def case_typing_checks(x):
    return (
        x,
        isinstance([], typing.List) if False else isinstance([], list),
        typing.get_origin(list[int]),
        typing.get_args(dict[str, int]),
    )


@case(one_graph=True)
def case_union_checks(x):
    return (
        x,
        isinstance(3, int | str),
        isinstance(None, int | None),
        issubclass(bool, int | str),
        isinstance(x, (torch.Tensor, type(None))),
    )


@case()
def case_copies_by_protocol(x):
    c = copy.copy(Copied(1, [x]))
    d = copy.deepcopy(DeepCopied([[1]]))
    return c.n * c.items[0], d.items


@case()
def case_deep_copy_of_nested(x):
    a = {"k": [1, (2, [3])], "s": {4}}
    b = copy.deepcopy(a)
    b["k"][1][1].append(5)
    shared = [[]] * 2
    deep = copy.deepcopy(shared)
    return x, a, b, deep[0] is deep[1], deep[0] is shared[0], copy.copy(a)["k"] is a["k"]


@case(one_graph=True)
def case_tuple_subclass(x):
    p = Immutable(1, x)
    return p.first * p[1], len(p), isinstance(p, tuple), p[0]


@case()
def case_float_subclass(x):
    t = Temperature(1.5)
    return x * t, t.shifted(), t + 1, isinstance(t, float), t > 2


@case(one_graph=True)
def case_private_names(x):
    p = Private()
    return x * p.reveal(), sorted(vars(p)), hasattr(p, "__hidden")


@case(changes=("SEEN",))
def case_property_with_deleter(x):
    w = WithDel()
    w.value = 4
    y = x * w.value
    del w.value
    return y, w.n, SEEN


class Position:
    def __init__(self, place):
        self.place = place

    def __index__(self):
        return self.place


class Multiplies(Position):
    def __rmul__(self, other):
        return ("multiplied", other)


@case(one_graph=True, inputs=lambda: (tensor(), Position(1)))
def case_objects_as_integers(x, one):
    two, items = Position(2), [1, 2, 3]
    grown = [0]
    grown *= two
    try:
        repeated = [5] * two
    except TypeError:
        repeated = None
    return (
        x + items[one],
        (items[one:], items[: Position(-1)], (4, 5)[one], "abc"[two], "abc"[one:], range(5)[two]),
        (repeated, two * (1, 2), "ab" * two, grown, [1] * Multiplies(3)),
        (operator.index(two), range(two), list(range(one, Position(7), two))),
    )


class Hinted:
    def __length_hint__(self):
        return 3


@case(one_graph=True, inputs=lambda: (tensor(), Position(2)))
def case_objects_that_are_no_iterators(x, two):
    said = []
    for default in ((), (5,)):
        try:
            next(two, *default)
        except TypeError as error:
            said.append(str(error))
    try:
        (each for each in ()).throw(StopIteration)
    except RuntimeError as error:
        said.append(str(error))
    except StopIteration:
        said.append("stopped")
    hints = operator.length_hint(two), operator.length_hint(two, 7), operator.length_hint(Hinted())
    return x + 1, said, hints, operator.length_hint([1]), list(itertools.islice("abcd", two))
