"""Dataclasses, named tuples, enumerations and typed records, as configurations and outputs of real models use them."""

import collections
import dataclasses
import enum
import typing
from dataclasses import KW_ONLY, InitVar, asdict, astuple, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypedDict

import torch

from .corpus import case, tensor


@dataclass
class Config:
    width: int = 4
    names: list = field(default_factory=list)
    table: dict = field(default_factory=lambda: {"a": 1})
    scale: float = field(default=0.5, repr=False, compare=False)
    kind: ClassVar[str] = "config"


@dataclass
class Deep(Config):
    depth: int = 2
    inner: Config = field(default_factory=Config)


@dataclass
class Derived:
    a: int
    b: InitVar[int] = 3
    c: int = field(init=False)
    log: list = field(default_factory=list, compare=False)

    def __post_init__(self, b):
        self.c = self.a + b
        self.log.append("made")


@dataclass(kw_only=True)
class Named:
    first: Any
    second: int = 2


@dataclass
class Mixed:
    a: int
    _: KW_ONLY
    b: int = 5
    c: str = "c"


@dataclass(frozen=True, slots=True)
class Fixed:
    a: int
    b: tuple = ()


@dataclass(slots=True)
class Slots:
    t: torch.Tensor
    n: int = 0


@dataclass(order=True, unsafe_hash=True)
class Ordered:
    key: int
    name: str = "x"


@dataclass(eq=False)
class ByIdentity:
    a: int


@dataclass(repr=False)
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    extra: tuple | None = None

    def to_tuple(self):
        return tuple(getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None)

    def __getitem__(self, key):
        return self.to_tuple()[key] if isinstance(key, int) else getattr(self, key)


@dataclass
class Child(Output):
    def __post_init__(self):
        if self.extra is None:
            self.extra = ("none",)


@dataclass
class Computed:
    base: int

    @property
    def twice(self):
        return self.base * 2

    @classmethod
    def of(cls, value):
        return cls(value)

    def with_base(self, value):
        return replace(self, base=value)


@case(one_graph=True)
def case_default_factories_make_new_objects(x):
    a, b = Config(), Config(3)
    a.names.append("n")
    a.table["b"] = 2
    return x * a.width + b.width, a, b, a == b, a.names is b.names, Config.kind


@case(one_graph=True)
def case_dataclass_inheritance(x):
    d = Deep(depth=3, inner=Config(2))
    d.inner.names.append(d.depth)
    return x * d.inner.width, d, isinstance(d, Config)


@case()
def case_dataclass_repr_and_compare(x):
    a, b = Config(scale=1.0), Config(scale=2.0)
    return x + 1, repr(a), a == b, a != Config(1), str(Named(first=1))


@case(one_graph=True)
def case_post_init_and_init_var(x):
    d = Derived(2), Derived(1, 5), Derived(1, b=7)
    return x * d[1].c, [e.c for e in d], [e.log for e in d]


@case()
def case_keyword_only_fields(x):
    a, b = Named(first=x), Mixed(1, b=2)
    errors = []
    for make in (lambda: Named(x), lambda: Mixed(1, 2), lambda: Mixed()):
        try:
            make()
        except TypeError as error:
            errors.append(str(error))
    return a.first + b.b, b, errors


@case()
def case_slots_and_frozen_fields(x):
    f, s = Fixed(1, (2, 3)), Slots(x)
    s.n += f.a
    try:
        f.a = 2
    except (AttributeError, TypeError) as error:
        failed = type(error).__name__
    return s.t * s.n, s, f, failed, hash(f) == hash(Fixed(1, (2, 3))), {f: 1}[Fixed(1, (2, 3))]


@case(one_graph=True)
def case_ordering_of_dataclasses(x):
    many = [Ordered(3), Ordered(1, "b"), Ordered(1, "a")]
    return x, sorted(many), max(many), Ordered(1) < Ordered(2), Ordered(1) >= Ordered(1)


@case(one_graph=True)
def case_identity_of_dataclasses(x):
    a, b = ByIdentity(1), ByIdentity(1)
    return x, a == b, a == a, a != b


@case(one_graph=True)
def case_replace_changes_a_copy(x):
    a = Config(2, ["n"])
    b = replace(a, width=a.width * 2)
    c = Computed.of(3).with_base(4)
    return x * b.width, a, b, b.names is a.names, c.twice


@case()
def case_replace_with_init_var(x):
    try:
        return x, replace(Derived(1), a=3)
    except ValueError as error:
        return x, str(error), replace(Derived(1), a=3, b=1)


@case(one_graph=True)
def case_fields_are_walked(x):
    total = x
    for f in fields(Config):
        if f.name in ("width", "scale"):
            total = total * f.default
    names = [f.name for f in fields(Deep(1))]
    return total, names, is_dataclass(Config), is_dataclass(Config()), is_dataclass(3)


@case(one_graph=True)
def case_asdict_copies_deeply(x):
    d = Deep(1, ["n"], {"k": [1, 2]}, inner=Config(7))
    as_dict = asdict(d)
    as_dict["names"].append("m")
    return x * as_dict["inner"]["width"], as_dict, d


@case(one_graph=True)
def case_astuple_of_dataclass(x):
    return x + 1, astuple(Config(2, [1])), astuple(Ordered(4))


@case(one_graph=True)
def case_asdict_of_scalars(x):
    o = Ordered(4, "n")
    return x * asdict(o)["key"], dict(**asdict(o)), vars(o) == asdict(o)


@case(one_graph=True)
def case_output_class(x):
    out = Output(logits=x * 2)
    child = Child(loss=x.sum())
    return out[0], out["logits"] + 1, len(out.to_tuple()), child.extra, child.to_tuple()[0]


@case(one_graph=True)
def case_output_is_returned(x):
    return Output(loss=x.sum(), logits=x, extra=(x + 1, None))


@case(inputs=lambda: (tensor(), Config(3, ["a"]), Slots(tensor(), 2), Fixed(2)), one_graph=True)
def case_dataclass_arguments(x, config, slots, fixed):
    config.width += 1
    slots.t = slots.t + x
    slots.n += fixed.a
    return x * config.width, config.names, replace(fixed, a=5)


@case(inputs=lambda: (tensor(), Config(3, ["a"])), one_graph=True)
def case_dataclass_argument_fields(x, config):
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    return x * values["width"], values, asdict(config)


@case()
def case_make_dataclass(x):
    made = dataclasses.make_dataclass("Made", ["a", ("b", int, 3)])
    return x * made(1).b


class Typed(NamedTuple):
    a: torch.Tensor
    b: int = 3

    @property
    def both(self):
        return self.a * self.b

    def shifted(self, by):
        return self._replace(a=self.a + by)


class Movie(TypedDict, total=False):
    name: str
    year: int


Plain = collections.namedtuple("Plain", ["x", "y"], defaults=[1])


@case(one_graph=True)
def case_typed_named_tuple(x):
    t = Typed(x)
    a, b = t.shifted(2)
    return t.both, a * b, t._fields, t[1], t.b, len(t)


@case()
def case_named_tuple_helpers(x):
    p = Plain(2)
    return x * p.y, p._asdict(), Plain._make([1, 2]), p._replace(y=4), repr(p), Plain._field_defaults, p == (2, 1)


@case(one_graph=True)
def case_typed_dictionary(x):
    m = Movie(name="a", year=3)
    m["year"] += 1
    return x * m["year"], m


class Base(enum.Enum):
    @property
    def short(self):
        return self.name[0]

    @classmethod
    def of(cls, value):
        return next(member for member in cls if member.value == value)


class Mode(Base):
    FAST = "fast"
    SLOW = "slow"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Bits(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


class Text(str, enum.Enum):
    RELU = "relu"
    TANH = "tanh"


class Rich(enum.Enum):
    ONE = (1, "one")
    TWO = (2, "two")

    def __init__(self, number, word):
        self.number = number
        self.word = word


@case(one_graph=True)
def case_enumeration_members(x):
    if Mode("fast") is Mode.FAST and Mode["SLOW"] == Mode.SLOW:
        x = x + 1
    return x, Mode.FAST.name, Mode.SLOW.value, Mode.FAST.short


@case()
def case_enumeration_is_walked(x):
    return x * len(Mode), [m.value for m in Mode], Mode.of("slow") is Mode.SLOW, Mode.FAST in Mode, list(Level)


@case(one_graph=True)
def case_integer_enumeration(x):
    return x * Level.HIGH, Level.LOW + 1, Level.LOW < Level.HIGH, Level(10) is Level.HIGH, sorted(Level)[0].name


@case()
def case_flags_combine(x):
    both = Bits.A | Bits.B
    return x, both is Bits.AB, Bits.A in both, both & Bits.A, ~Bits.A, bool(Bits(0))


@case(one_graph=True)
def case_string_enumeration(x):
    activation = {Text.RELU: torch.relu, Text.TANH: torch.tanh}[Text("tanh")]
    return activation(x), Text.RELU == "relu", Text.RELU.upper(), {"relu": 1}[Text.RELU]


@case(one_graph=True)
def case_enumeration_with_attributes(x):
    return x * Rich.TWO.number, Rich.ONE.word, [m.number for m in Rich]


@case()
def case_bad_enumeration_value(x):
    try:
        Mode("none")
    except ValueError as error:
        return x, str(error)


@case(inputs=lambda: (tensor(), Mode.FAST, Level.HIGH, Text.RELU), one_graph=True)
def case_enumeration_arguments(x, mode, level, text):
    table = {Mode.FAST: 2, Mode.SLOW: 3}
    match mode:
        case Mode.FAST:
            x = x * table[mode]
        case _:
            x = x - 1
    return x * level, getattr(torch, text.value)(x), mode


@case()
def case_simple_namespace(x):
    import types

    n = types.SimpleNamespace(a=1, b=x)
    n.c = n.a + 1
    return n.b * n.c, vars(n)["a"], n.a


@case()
def case_type_hints_of_a_class(x):
    return x, sorted(typing.get_type_hints(Config)), Config.__annotations__["width"]


@case(inputs=lambda: (tensor(), 2, 10))
def case_integer_enumeration_and_arguments(x, n, m):
    return x * m, m == Level.HIGH, m != Level(m), n + Level.LOW, n < Level.HIGH, Level.HIGH == n, m in (Level.HIGH,)


class Vector(NamedTuple):
    x: torch.Tensor
    y: float = 1.5

    @property
    def norm(self):
        return (self.x**2).sum() + self.y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __getitem__(self, index):
        return ("own", tuple.__getitem__(self, index))


@case(one_graph=True, inputs=lambda: (tensor(), Vector(tensor(), 2.0)))
def case_named_tuple_with_operators(x, given):
    made = Vector(x) + given._replace(x=x)
    first, second = made
    return first, second, made.norm, given.norm, made[1], made._asdict(), isinstance(made, tuple), len(made)


@dataclass
class Tree:
    name: str
    parts: list = field(default_factory=list)


@dataclass
class Link:
    next: Any = None


@case(one_graph=True, inputs=lambda: (tensor(), [Tree("a", [Tree("b")]), Tree("c")]))
def case_texts_of_dataclasses(x, trees):
    link = Link()
    link.next = link
    return x + 1, [str(tree) for tree in trees], f"{trees[0]!r}", repr(link), str({"tree": (trees[1], "text", 2.0)})


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | WRITE


@case(one_graph=True, inputs=lambda: (tensor(), Access.BOTH))
def case_members_of_flags(x, access):
    return x * len(access), [each.name for each in access], [*(access & ~Access.READ)], list(Access(0))
