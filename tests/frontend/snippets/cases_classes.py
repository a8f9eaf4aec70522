"""Classes and objects: properties, descriptors, slots, attribute hooks, inheritance, operators, dataclasses, enums."""

import collections
import dataclasses
import enum

import torch

from .corpus import case, tensor


class Plain:
    kind = "plain"

    def __init__(self, x, n=1):
        self.x = x
        self.n = n

    def scaled(self):
        return self.x * self.n

    @property
    def doubled(self):
        return self.x * 2

    @doubled.setter
    def doubled(self, value):
        self.x = value / 2

    @classmethod
    def of(cls, x):
        return cls(x, n=5)

    @staticmethod
    def helper(x):
        return x + 1

    def __call__(self, t):
        return t + self.x


def plain_inputs():
    return tensor(), Plain(torch.ones(4), 3)


@case(one_graph=True)
def case_object_made_inside(x):
    p = Plain(x, 2)
    p.n += 1
    return p.scaled(), p.kind, p


@case(one_graph=True, inputs=plain_inputs)
def case_object_is_read(x, p):
    return x * p.n + p.x, p.scaled(), p(x)


@case(one_graph=True, inputs=plain_inputs)
def case_object_is_changed(x, p):
    p.x = x + p.x
    p.n += 1
    p.new = [p.n]
    return p.scaled()


@case(one_graph=False, inputs=plain_inputs)
def case_attribute_is_deleted(x, p):
    del p.n
    return x + hasattr(p, "n"), hasattr(p, "x")


@case(one_graph=True, inputs=plain_inputs)
def case_property(x, p):
    p.doubled = x
    return p.doubled, p.x


@case(one_graph=True, inputs=plain_inputs)
def case_class_and_static_methods(x, p):
    return Plain.of(x).scaled(), p.of(x).n, Plain.helper(x), p.helper(x)


@case(one_graph=False, inputs=plain_inputs)
def case_missing_attribute(x, p):
    return x + p.nothing


@case(one_graph=True, inputs=plain_inputs)
def case_getattr_setattr(x, p):
    setattr(p, "a" + "b", x * 2)
    return getattr(p, "ab"), getattr(p, "zz", None), vars(p).keys() >= {"x", "ab"}  # noqa: B009


@case(one_graph=True, inputs=plain_inputs)
def case_object_dict(x, p):
    p.__dict__["extra"] = x
    return p.extra + 1, sorted(p.__dict__)


@case(one_graph=True, inputs=plain_inputs)
def case_is_and_isinstance(x, p):
    q = p
    return (
        x + (q is p),
        isinstance(p, Plain),
        isinstance(x, (int, torch.Tensor)),
        type(p) is Plain,
        issubclass(bool, int),
    )


class Base:
    def __init__(self, x):
        self.x = x

    def forward(self):
        return self.x + 1

    def name(self):
        return "base"


class Left(Base):
    def forward(self):
        return super().forward() * 2

    def name(self):
        return "left " + super().name()


class Right(Base):
    def forward(self):
        return super().forward() * 3

    def name(self):
        return "right " + super().name()


class Diamond(Left, Right):
    def __init__(self, x):
        super().__init__(x)
        self.ready = True


@case(one_graph=True)
def case_super(x):
    return Left(x).forward(), Left(x).name()


@case(one_graph=True)
def case_diamond(x):
    d = Diamond(x)
    return d.forward(), d.name(), [c.__name__ for c in Diamond.__mro__], super(Left, d).name()


class Vector:
    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return Vector(self.x + (other.x if isinstance(other, Vector) else other))

    def __radd__(self, other):
        return Vector(other + self.x)

    def __iadd__(self, other):
        self.x = self.x + other
        return self

    def __mul__(self, other):
        return Vector(self.x * other) if isinstance(other, int) else NotImplemented

    def __neg__(self):
        return Vector(-self.x)

    def __matmul__(self, other):
        return self.x @ other.x.t()

    def __getitem__(self, index):
        return self.x[index]

    def __setitem__(self, index, value):
        self.x = torch.cat([self.x, value]) if index == "end" else self.x

    def __len__(self):
        return self.x.size(0)

    def __contains__(self, item):
        return item == "x"

    def __bool__(self):
        return False

    def __eq__(self, other):
        return isinstance(other, Vector) and self.x.shape == other.x.shape

    def __lt__(self, other):
        return len(self) < len(other)

    __hash__ = None


@case(one_graph=False)
def case_operators_of_class(x):
    v = Vector(x)
    w = v + v + 1
    w += 2
    return (1 + v).x, w.x, (v * 3).x, (-v).x, v @ w


@case(one_graph=False)
def case_operator_not_implemented(x):
    return Vector(x) * "a"


@case(one_graph=True)
def case_container_protocol_of_class(x):
    v = Vector(x)
    v["end"] = x[:1]
    return v[0], len(v), "x" in v, "y" in v, (v or "false"), v == Vector(x), v < Vector(x), v != v


class Slotted:
    __slots__ = ("n", "x")

    def __init__(self, x):
        self.x = x


@case(one_graph=True, inputs=lambda: (tensor(), Slotted(torch.ones(4))))
def case_slots(x, s):
    s.n = 3
    s.x = s.x + x
    return s.x * s.n, hasattr(Slotted(x), "n")


@case(one_graph=False)
def case_slots_refuse(x):
    s = Slotted(x)
    s.other = 1
    return s


class Dynamic:
    def __init__(self):
        self.known = 1
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("times_"):
            return int(name[6:])
        raise AttributeError(name)


@case(one_graph=True, inputs=lambda: (tensor(), Dynamic()))
def case_getattr_hook(x, d):
    return x * d.times_3 + d.known, hasattr(d, "nothing")


class Recording:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        object.__setattr__(self, "last", name)


@case(one_graph=True, inputs=lambda: (tensor(), Recording()))
def case_setattr_hook(x, r):
    r.a = x + 1
    r.b = 2
    return r.a * r.b, r.last


class Watching:
    def __init__(self):
        self.value = 5

    def __getattribute__(self, name):
        if name == "magic":
            return 42
        return super().__getattribute__(name)


@case(one_graph=True, inputs=lambda: (tensor(), Watching()))
def case_getattribute_hook(x, w):
    return x + w.magic + w.value


class Clamped:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 0)

    def __set__(self, instance, value):
        setattr(instance, self.name, min(value, 10))


class Described:
    level = Clamped()

    def __init__(self, level):
        self.level = level


@case(one_graph=True, inputs=lambda: (tensor(), Described(3)))
def case_descriptor(x, d):
    before = d.level
    d.level = 50
    return x * d.level, before


class Once:
    """A descriptor without __set__: the instance's own attribute hides it."""

    def __get__(self, instance, owner=None):
        return "from the class"


class Hiding:
    value = Once()


@case(one_graph=True)
def case_descriptor_is_hidden(x):
    h = Hiding()
    before = h.value
    h.__dict__["value"] = "own"
    return x, before, h.value


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.total = self.a * self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    name: str = "f"


@dataclasses.dataclass(order=True)
class Ordered:
    rank: int


@case(one_graph=True)
def case_dataclass(x):
    p = Pair(x)
    p.c.append(1)
    return p, p.total, Pair(x, b=3).total


@case(one_graph=True, inputs=lambda: (tensor(), Pair(torch.ones(4), 3)))
def case_dataclass_argument(x, p):
    p.b += 1
    return x * p.b + p.a


@case(one_graph=True)
def case_frozen_dataclass(x):
    f = Frozen(3)
    try:
        f.n = 4
    except dataclasses.FrozenInstanceError as error:
        return x + f.n, str(error), f == Frozen(3), {f: 1}[Frozen(3)]


class Hashed:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number


@case(one_graph=True)
def case_hashes_of_any_size(x):
    return x + 1, {Hashed(number): 1 for number in (-(2**63), -2921005737306434134, 0, 2**61 - 1, 2**63 - 1)} != {}


@case(one_graph=False)
def case_ordered_dataclass(x):
    return x, Ordered(1) < Ordered(2), max([Ordered(3), Ordered(5)]).rank


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def shifted(self):
        return self.value + 10


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@case(one_graph=True)
def case_enum(x):
    c = Color(2)
    return x + c.value, c.name, c is Color.BLUE, Color["RED"], c.shifted, [m.name for m in Color]


@case(one_graph=True, inputs=lambda: (tensor(), Color.RED, Level.HIGH))
def case_enum_argument(x, color, level):
    if color is Color.RED and level > Level.LOW:
        return x * level, {Color.RED: "r"}[color]
    return x


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.stamped = True
        return made

    @property
    def title(cls):
        return cls.__name__.lower()


class Stamped(metaclass=Meta):
    def __init__(self, n):
        self.n = n


@case(one_graph=False)
def case_metaclass(x):
    s = Stamped(3)
    return x * s.n, s.stamped, Stamped.title


class Registry:
    count = 0

    def __init_subclass__(cls, tag="", **kwargs):
        super().__init_subclass__(**kwargs)
        cls.tag = tag


class Tagged(Registry, tag="t"):
    pass


@case(one_graph=True)
def case_class_attributes(x):
    t = Tagged()
    t.count += 1
    return x, t.count, Registry.count, Tagged.tag


class Interned:
    table = None

    def __new__(cls, n):
        made = super().__new__(cls)
        made.n = n * 2
        return made

    def __init__(self, n):
        self.given = n


@case(one_graph=True)
def case_new(x):
    i = Interned(3)
    return x + i.n, i


@case(one_graph=False)
def case_class_body_runs(x):
    class Local:
        n = x.dim()
        values = [n * 2]

        def get(self):
            return x * self.n

    return Local().get(), Local.values


@case(one_graph=True, inputs=lambda: (tensor(), Plain))
def case_class_argument(x, cls):
    return cls(x, 4).scaled(), cls.__name__, cls.kind


@case(one_graph=True)
def case_bound_methods_are_equal(x):
    p = Plain(x)
    method = p.scaled
    return method(), method == p.scaled, method.__self__ is p, method.__func__ is Plain.scaled


def linked():
    a, b = Plain(torch.ones(4)), Plain(torch.zeros(4))
    a.other, b.other = b, a
    return tensor(), a


@case(one_graph=True, inputs=linked)
def case_cycle_of_objects(x, a):
    a.other.x = a.x + x
    return a.other.other is a, a.other.scaled()


@case(one_graph=False)
def case_object_with_hash(x):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n

        def __eq__(self, other):
            return self.n == other.n

    return x * {Key(1): 5}[Key(1)], len({Key(1), Key(1), Key(2)})


@case(one_graph=False)
def case_str_and_format_of_object(x):
    class Named:
        def __str__(self):
            return "named"

        def __format__(self, spec):
            return f"<{spec}>"

    return x, str(Named()), f"{Named():wide}", f"{Named()!s}"


@case(one_graph=False, inputs=plain_inputs)
def case_object_changed_then_break(x, p):
    p.x = x * 2
    print(end="")
    p.n = 7
    return p.scaled()


class Appended:
    """A number to Python, for it has ``__radd__``: it is asked ahead of what a list would do."""

    def __init__(self, answer):
        self.answer = answer

    def __radd__(self, other):
        return self.answer if self.answer is NotImplemented else [*other, self.answer]

    def __rmul__(self, other):
        return (self.answer, len(other))

    def __iter__(self):
        return iter("ab")


@case(one_graph=True)
def case_reflected_operators_ahead_of_sequences(x):
    first = same = [1]
    first += Appended(2)
    second = other = [1]
    second += Appended(NotImplemented)
    third = collections.deque([1])
    third += Appended(3)
    fourth = [x]
    fourth *= Appended(4)
    return x * len(first), first, same, second is other, second, third, fourth


@case(one_graph=True)
def case_reflected_operator_of_tensor(x):
    y = x
    y += Appended(2)
    return x, len(y)


class Flags(enum.IntFlag):
    A = 1
    B = 2


@case(one_graph=True, inputs=lambda: (tensor(), Flags.A))
def case_combinations_of_flags_as_numbers(x, flag):
    return x * (flag & Flags.B), x + (flag | Flags.B), x - flag
