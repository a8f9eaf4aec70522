"""Corners of the object model where a shortcut would be seen: lookups, hooks, descriptors, identity, hashes."""

import abc
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import weakref

import torch

from .corpus import case, tensor


class Fallback:
    @property
    def broken(self):
        raise AttributeError("inside")

    def __getattr__(self, name):
        return f"fallback {name}"


@case(inputs=lambda: (tensor(), Fallback()))
def case_property_fails_and_getattr_answers(x, f):
    return x + 1, f.broken, f.other, hasattr(f, "broken"), getattr(f, "broken", "default")


class ModuleWithProperty(torch.nn.Module):
    @property
    def broken(self):
        raise AttributeError("inside")

    def forward(self, x):
        return x + 1


@case(inputs=lambda: (tensor(), ModuleWithProperty()))
def case_property_of_module_fails(x, module):
    try:
        return module(x), module.broken
    except AttributeError as error:
        return x, str(error)


class Root:
    def who(self):
        return ["root"]


class Left(Root):
    def who(self):
        return ["left", *super().who()]


class Right(Root):
    def who(self):
        return ["right", *super().who()]


class Bottom(Left, Right):
    def who(self):
        return ["bottom", *super().who(), *super(Left, self).who()]

    @classmethod
    def made(cls):
        return cls()

    @staticmethod
    def fixed():
        return 3


class Lowest(Bottom):
    @classmethod
    def made(cls):
        return super().made()


@case()
def case_super_chain(x):
    return x + 1, Lowest().who(), type(Lowest.made()).__name__, Bottom.fixed(), super(Left, Bottom()).who()


class Cached:
    table: dict = {}  # noqa: RUF012
    made = 0

    def __init__(self, n):
        type(self).made += 1
        self.table[n] = self
        self.n = n


@case(inputs=lambda: (tensor(), lambda cls=type("Local", (Cached,), {"table": {}, "made": 0}): cls))
def case_class_level_cache(x, get):
    cls = get()
    a, b = cls(1), cls(2)
    return x * cls.table[1].n, cls.made, cls.table[1] is a, sorted(cls.table), b.n


class Getter:
    def __init__(self, value):
        self.value = value

    def __get__(self, owner, cls):
        return self if owner is None else (self.value, owner.n)


class Setter(Getter):
    def __set__(self, owner, value):
        owner.__dict__["set"] = value * 2

    def __delete__(self, owner):
        owner.__dict__.pop("set")


class Described:
    soft = Getter(1)
    hard = Setter(2)

    def __init__(self):
        self.n = 5
        self.__dict__["soft"] = "own"
        self.__dict__["hard"] = "hidden"


@case(inputs=lambda: (tensor(), Described()))
def case_descriptors_take_turns(x, d):
    found = [d.soft, d.hard, type(Described.hard).__name__]
    d.hard = 4
    found.append(dict(vars(d)))
    del d.hard
    return x + d.n, found, vars(d)


@case(inputs=lambda: (tensor(), Described()))
def case_own_attribute_goes_and_comes_back(x, d):
    del d.soft
    first = d.soft
    d.soft = "new"
    return x, first, d.soft, list(vars(d))


class Sized(collections.abc.Sequence):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Registered:
    pass


class Base(abc.ABC):
    @abc.abstractmethod
    def run(self): ...

    @classmethod
    def __subclasshook__(cls, other):
        return True if hasattr(other, "duck") else NotImplemented


class Duck:
    duck = True


Base.register(Registered)


@case(inputs=lambda: (tensor(), Sized(1, 2, 3)))
def case_abstract_base_classes(x, s):
    checks = [
        isinstance(s, collections.abc.Sequence), isinstance(s, collections.abc.Iterable), isinstance([],
        collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping), isinstance(Registered(), Base), isinstance(Duck(), Base),
        isinstance(1, Base),
        isinstance(len, collections.abc.Callable), issubclass(Duck, Base), isinstance(x, collections.abc.Hashable),
        isinstance(iter([]), collections.abc.Iterator), isinstance((i for i in ()), collections.abc.Generator),
    ]  # fmt: skip
    return x * len(s), list(s), 2 in s, s.index(3), list(reversed(s)), s.count(1), checks


@case()
def case_abstract_class_is_not_made(x):
    try:
        Base()
    except TypeError as error:
        return x + 1, str(error)


class Weird:
    def __eq__(self, other):
        return "equal"

    def __lt__(self, other):
        return []

    def __bool__(self):
        return False

    def __len__(self):
        return 3

    __hash__ = None


@case(inputs=lambda: (tensor(), Weird(), Weird()))
def case_comparisons_that_return_anything(x, a, b):
    try:
        hashed = hash(a)
    except TypeError as error:
        hashed = str(error)
    return x + 1, a == b, a != b, a < b, a > b, bool(a), len(a), a in [b], [a] == [b], not a, hashed


class Money(decimal.Decimal):
    pass


@case(inputs=lambda: (tensor(), decimal.Decimal("1.5"), decimal.Decimal("1.50"), decimal.Decimal(0)))
def case_numbers_from_the_library(x, a, b, zero):
    return x + 1, a == b, a is b, bool(zero), a + b, {a: 1}.get(b), a > 1, str(a), float(a), a != zero


@case(inputs=lambda: (tensor(), fractions.Fraction(1, 2), datetime.timedelta(0), datetime.timedelta(1)))
def case_fractions_and_times(x, half, none, day):
    return x * float(half), half == 0.5, bool(none), bool(day), day > none, day == day + none, half + 1


@case(inputs=lambda: (tensor(), lambda arrays=(torch.ones(3).numpy(), torch.ones(3).double().numpy()): arrays))
def case_arrays_are_not_guessed(x, get):
    a, b = get()
    try:
        total = a + 1
    except TypeError:
        total = "refused"
    return x + 1, list(total), (a == b).tolist(), a.sum().item(), len(a)


class Plain:
    def __init__(self, value=0):
        self.value = value


class Equal(Plain):
    def __eq__(self, other):
        return isinstance(other, Equal) and self.value == other.value

    def __hash__(self):
        return hash(self.value)


@case(inputs=lambda: (tensor(), Equal(1), Equal(1), Equal(2)))
def case_equal_objects_are_one_key(x, a, b, c):
    table = {a: "a"}
    table[b] = "b"
    table[c] = "c"
    return x + 1, len(table), list(table.values()), next(iter(table)) is a, a in {b}, b in [a], {a, b, c} == {a, c}


@case(inputs=lambda: (tensor(), {Equal(1): "one", Equal(2): "two"}, Equal(2), Equal(3)))
def case_equal_object_finds_entry(x, table, two, three):
    return x + 1, table[two], table.get(three), two in table, three in table


@case(inputs=lambda: (tensor(), torch.ones(2), torch.ones(2)))
def case_tensors_as_keys(x, a, b):
    table = {a: 1, b: 2}
    table[a] = 3
    return x * table[b], table[a], len(table), a in table, x in table, list(table.values()), {a, b, a} == {b, a}


@case(inputs=lambda: (tensor(), *[{}] * 2, {}))
def case_identity_of_dictionaries(x, a, b, c):
    a["k"] = x
    return x + 1, a is b, a is c, b, c, a == b


@case()
def case_identity_of_operators_results(x):
    y = x + 1
    return (
        y,
        y.contiguous() is y,
        y.to(torch.float32) is y,
        y.detach() is y,
        y.view(3, 4) is y,
        y[:] is y,
        x.float() is x,
        +y is y,
    )


class Counting:
    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        calls = object.__getattribute__(self, "calls")
        if name != "calls":
            calls.append(name)
        return object.__getattribute__(self, name)

    def method(self):
        return len(self.calls)


@case(inputs=lambda: (tensor(), lambda c=Counting(): c))
def case_lookups_are_counted(x, get):
    c = get()
    n = c.method()
    return x * n, list(c.calls), hasattr(c, "none"), c.method() if c else None


class Deleting:
    def __init__(self):
        self.a, self.b, self.c = 1, 2, 3

    def __delattr__(self, name):
        object.__delattr__(self, name)
        self.last = name


@case(inputs=lambda: (tensor(), Deleting()))
def case_order_of_attributes(x, d):
    del d.a
    d.a = 10
    d.b = 20
    return x + d.a, list(vars(d)), vars(d)


@case(inputs=lambda: (tensor(), Plain(), Plain()))
def case_instance_dictionaries(x, a, b):
    a.__dict__["new"] = x + 1
    b.__dict__.update(a.__dict__, more=2)
    a.__dict__.setdefault("value", 9)
    found = b.__dict__.pop("value"), sorted(b.__dict__), "new" in b.__dict__, len(a.__dict__)
    return found, vars(b).get("nothing"), b.new is a.new


class Singleton:
    _made = None

    def __new__(cls):
        if cls._made is None:
            cls._made = super().__new__(cls)
            cls._made.count = 0
        cls._made.count += 1
        return cls._made


@case(inputs=lambda: (tensor(), lambda cls=type("OneOnly", (Singleton,), {"_made": None}): cls))
def case_singleton(x, get):
    cls = get()
    a, b = cls(), cls()
    return x + a.count, a is b


class Mode(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = A | B


class Named(str, enum.Enum):
    ONE = "one"
    TWO = "two"
    UNO = "one"


@case(inputs=lambda: (tensor(), Mode.A, Named.ONE))
def case_flags_and_aliases(x, mode, named):
    both = mode | Mode.B
    return (
        x * both.value, both is Mode.C, Mode.B in both, bool(mode & Mode.B), ~mode, named == "one", named is Named.UNO,
        f"{named.value}", [m.name for m in Named], Named("two"), {named: 1}["one"], len(Named), isinstance(named, str),
        named.upper(), list(Named.__members__),
    )  # fmt: skip


@case(inputs=lambda: (tensor(), Plain(), Plain()))
def case_bound_methods_and_partials(x, a, b):
    first = functools.partial(getattr, a)
    return (
        x + first("value"),
        a.__init__ == a.__init__,
        a.__init__ == b.__init__,
        a.__class__ is b.__class__,
        Plain.__init__ is type(b).__init__,
    )


class WithCall:
    def __init__(self, n):
        self.n = n

    def __call__(self, x, *, times=1):
        return x * self.n * times


@case(inputs=lambda: (tensor(), WithCall(2)))
def case_instance_call_is_looked_up_on_the_class(x, c):
    c.__call__ = lambda x: x * 100
    return c(x), c(x, times=3), c.__call__(x), callable(c)


@case(inputs=lambda: (tensor(), Plain()))
def case_special_methods_on_instances_do_not_count(x, p):
    p.__len__ = lambda: 3
    p.__bool__ = lambda: False
    p.__iter__ = lambda: iter([1])
    try:
        return x + 1, bool(p), len(p)
    except TypeError as error:
        return x + 2, str(error)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


@case(inputs=lambda: (tensor(), Slots()))
def case_slot_is_unset(x, s):
    try:
        s.b  # noqa: B018
    except AttributeError as error:
        message = str(error)
    s.b = x + s.a
    del s.a
    return s.b, hasattr(s, "a"), message


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = 0
    tags: list = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self):
        self.y += 1


@case()
def case_dataclass_protocols(x):
    a, b = Point(1), Point(1, 5)
    a.tags.append("t")
    return (
        x * a.y,
        a < b,
        a == Point(1),
        repr(a),
        dataclasses.replace(b, x=2),
        dataclasses.astuple(a),
        b.tags is a.tags,
        sorted([b, a]) == [a, b],
    )


class MetaCounter(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.by_meta = True
        return made

    def __len__(cls):
        return 7

    def __contains__(cls, item):
        return item == "inside"

    def __getattr__(cls, name):
        return f"meta {name}"


class WithMeta(metaclass=MetaCounter):
    def __init__(self, n):
        self.n = n


@case()
def case_metaclass_protocols(x):
    m = WithMeta(2)
    return (
        x * m.n,
        m.by_meta,
        len(WithMeta),
        "inside" in WithMeta,
        "out" in WithMeta,
        WithMeta.anything,
        hasattr(m, "anything"),
    )


class Iterating:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


@case(inputs=lambda: (tensor(), Iterating(4)))
def case_iterator_object(x, it):
    first = iter(it) is it
    second = next(it)
    total = [x * i for i in it]
    return total, first, second, it.n, list(it), next(it, "end")


class IndexLike:
    def __index__(self):
        return 2


class FloatLike:
    def __float__(self):
        return 2.5


@case(inputs=lambda: (tensor(), IndexLike(), FloatLike()))
def case_conversions(x, i, f):
    return x + float(f), [1, 2, 3][i], list(range(i)), int(i), "abc"[i], hex(i), round(f.__float__()), x[i]


class Arithmetic:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return NotImplemented if isinstance(other, str) else ("add", self.n, other)

    def __radd__(self, other):
        return ("radd", self.n, other)

    def __iadd__(self, other):
        self.n += other
        return self

    def __matmul__(self, other):
        return "matmul"

    def __neg__(self):
        return "neg"

    def __divmod__(self, other):
        return "divmod"

    def __pow__(self, other, modulus=None):
        return ("pow", other, modulus)

    def __rsub__(self, other):
        return "rsub"

    def __abs__(self):
        return "abs"


class Stronger(Arithmetic):
    def __radd__(self, other):
        return "stronger"


@case(inputs=lambda: (tensor(), Arithmetic(1), Stronger(2)))
def case_arithmetic_protocols(x, a, s):
    b = a
    b += 5
    results = [a + 1, 1 + a, a + s, s + a, a @ 2, -a, divmod(a, 1), pow(a, 2, 3), a**2, 5 - a, abs(a), b is a, a.n]
    try:
        a + "text"
    except TypeError as error:
        results.append(str(error))
    return x + a.n, [r if not isinstance(r, tuple) else r[:2] for r in results], sum([1, 2], start=0)


@case(inputs=lambda: (tensor(), Plain()))
def case_weak_reference(x, p):
    ref = weakref.ref(p)
    return x + 1, ref() is p


class SlotsAndDict:
    __slots__ = ("__dict__", "a")


class MoreSlots(SlotsAndDict):
    __slots__ = ("b",)


@case()
def case_slots_lie_beside_the_dictionary(x):
    one, other = MoreSlots(), MoreSlots()
    one.a, one.c = x + 1, 2
    other.__dict__.update(a=3, b=4)
    other.b = 5
    del other.b
    return x * 2, list(vars(one)), one, other, hasattr(other, "a"), hasattr(other, "b"), vars(other)["b"]


@case(inputs=lambda: (tensor(), MoreSlots()))
def case_slots_and_entries_of_one_name(x, thing):
    thing.a = x + 1
    thing.__dict__["a"] = 5
    thing.__dict__["b"] = 6
    return x * 2, thing.a, thing.__dict__["a"], hasattr(thing, "b"), len(vars(thing))
