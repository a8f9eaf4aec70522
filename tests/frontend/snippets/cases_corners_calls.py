"""Corners of calls, scopes and the library: caches, cells around breaks, named tuples, imports, iterators that
stop early."""

import collections
import dataclasses
import functools
import importlib
import itertools
import math
import operator
import os
import re
import types
import typing

import torch
from torch import nn

from .corpus import case, tensor


def make_cached():
    @functools.lru_cache(maxsize=None)
    def table(n):
        return [n]

    return table


@case(inputs=lambda: (tensor(), lambda f=make_cached(): f))
def case_cached_list_is_one_object(x, get):
    table = get()
    table(2).append(len(table(2)))
    return x * table(2)[-1], table(2) is table(2), table(2), table(3)


def make_cached_tensor():
    @functools.cache
    def buffer():
        return torch.zeros(4)

    return buffer


@case(inputs=lambda: (tensor(), lambda f=make_cached_tensor(): f))
def case_cached_tensor_is_one_object(x, get):
    buffer = get()
    buffer().add_(1)
    return x + buffer(), buffer() is buffer()


def make_counting():
    log = []

    @functools.lru_cache(maxsize=1)
    def square(n):
        log.append(n)
        return n * n

    return square, log


@case(inputs=lambda: (tensor(), lambda pair=make_counting(): pair))
def case_cache_is_filled_and_evicted(x, get):
    square, log = get()
    return x * square(2) * square(2) * square(3), list(log)


class WithCachedProperty:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def made(self):
        self.calls += 1
        return [self.calls]


@case(inputs=lambda: (tensor(), WithCachedProperty()))
def case_cached_property_is_kept(x, w):
    w.made.append(5)
    return x + w.calls, w.made is w.made, vars(w)


@case()
def case_cell_outlives_a_break(x):
    n = 1

    def up():
        nonlocal n
        n += 1
        return x * n

    a = up()
    print(end="")
    n += 10
    b = up()
    print(end="")
    x = x + 100
    return a, b, up(), n, up.__closure__[0].cell_contents


@case()
def case_returned_closures_share_after_break(x):
    items = []

    def push(v):
        items.append(v)
        return len(items)

    push(x)
    print(end="")
    push(2)
    return push, items, (lambda: items)() is items


class Parent:
    def run(self, x):
        return [x + 1]


class Child(Parent):
    def run(self, x):
        def inner():
            return super(Child, self).run(x)

        return [*super().run(x), *inner(), *[super(__class__, self).run(i)[0] for i in (1, 2)], __class__.__name__]


@case(inputs=lambda: (tensor(), Child()))
def case_super_in_inner_scopes(x, c):
    return c.run(x)


def takes_keywords(x, /, a, *args, b=2, **kwargs):
    kwargs["added"] = len(args)
    return x * a, args, b, kwargs


@case(inputs=lambda: (tensor(), {"c": 3, "a": 1}, (5, 6)))
def case_keywords_are_copied(x, options, rest):
    first = takes_keywords(x, **options)
    second = takes_keywords(x, *rest, 7, b=0, x="keyword")
    return first, second, options, rest


@case()
def case_calls_that_fail(x):
    messages = []
    for call in (
        lambda: takes_keywords(),
        lambda: takes_keywords(x),
        lambda: takes_keywords(x, 1, a=2),
        lambda: takes_keywords(x, **{"a": 1}, **{"a": 2}),
        lambda: (lambda: 0)(1),
        lambda: (lambda *, k: 0)(1),
        lambda: (lambda *, k: 0)(),
        lambda: (lambda p, /: 0)(p=1),
        lambda: (None or 5)(),
        lambda: len(),
        lambda: [].append(),
        lambda: int("a"),
    ):
        try:
            call()
        except (TypeError, ValueError) as error:
            messages.append(type(error).__name__)
    return x + len(messages), messages


class Record(typing.NamedTuple):
    a: int
    b: list = []  # noqa: RUF012

    @property
    def double(self):
        return self.a * 2

    def moved(self, by):
        return self._replace(a=self.a + by)


Simple = collections.namedtuple("Simple", "p q", defaults=[0])  # noqa: PYI024


@case(inputs=lambda: (tensor(), Record(3, [1])))
def case_named_tuples_have_methods(x, r):
    a, b = r
    s = Simple(x)
    return (
        x * r.double, r.moved(2), a, b is r.b, s._fields, s._asdict()["q"], Record(1).b is Record(2).b, r == (3,
        [1]), r[0],
        isinstance(r, tuple), Simple._make([1, 2]), s._replace(q=5).q, len(r), Record(a=1, b=2) < Record(2, 0),
        hash(Simple(1, 2)) == hash((1, 2)),
    )  # fmt: skip


@dataclasses.dataclass(slots=True, kw_only=True)
class Packed:
    a: int = 1
    b: list = dataclasses.field(default_factory=list)
    c: dataclasses.InitVar[int] = 5
    d: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, c):
        self.d = c * 2


@case(inputs=lambda: (tensor(), Packed(a=4)))
def case_dataclass_with_slots(x, p):
    q = Packed(b=[1], c=1)
    p.b.append(x)
    p.a += q.d
    return x * p.a, q, p == q, q == Packed(b=[1], c=1), dataclasses.asdict(q), [f.name for f in dataclasses.fields(p)]


@case()
def case_map_stops_at_stop_iteration(x):
    def f(n):
        if n == 2:
            raise StopIteration
        return n

    out = []
    for n in map(f, range(5)):
        out.append(n)
    return (
        x + len(out),
        out,
        list(map(f, [0, 1, 2, 3])),
        [*zip(map(f, range(4)), "abcd")],
        dict(zip("ab", map(f, [1, 2]))),
        tuple(filter(lambda n: n != 1, range(3))),
    )


@case()
def case_late_evaluation(x):
    log = []

    def note(v):
        log.append(v)
        return v

    g = (note(i) * k for i in note([1, 2]) for k in [note("k")])
    log.append("made")
    k = 5
    first = next(g)
    return x + len(first), log, list(g), k, any(note(v) for v in [0, 3, 4]), log[-1], all(note(v) for v in [0, 9])


@case()
def case_lists_and_themselves(x):
    a = [1, 2]
    a.extend(a)
    a += a[:1]
    b = [a, a]
    b[0][0] = x
    c = a * 2
    a[1:3] = a
    d = {"a": 1}
    d.update(d)
    return a, b[1] is a, len(c), d, a.count(2), [1, 2] * -1, a[::-1][:2]


@case()
def case_sorting(x):
    pairs = [(2, "b"), (1, "z"), (2, "a"), (1, "a")]
    words = ["b", "A", "c"]
    words.sort(key=str.lower, reverse=True)
    calls = []

    def key(p):
        calls.append(p)
        return p[0]

    try:
        sorted([1, "a"])
    except TypeError as error:
        message = str(error)
    return (
        x + 1,
        sorted(pairs),
        sorted(pairs, key=key),
        sorted(pairs, key=operator.itemgetter(0), reverse=True),
    )
    words, calls == pairs, message, min(pairs, key=lambda p: p[1]), max([], default=3)


@case()
def case_imports_inside(x):
    import math as m
    from collections import OrderedDict as Ordered
    from os.path import join

    module = importlib.import_module("math")
    try:
        import surely_not_there  # noqa: F401
    except ImportError as error:
        name = error.name
    return x * m.floor(2.5), Ordered(a=1), join("a", "b"), module is math, name


@case()
def case_library_helpers(x):
    pattern = re.compile("a+")
    counter = collections.Counter("abca")
    chained = collections.ChainMap({"a": 1}, {"b": 2})
    return (
        x + 1, functools.reduce(operator.mul, [1, 2, 3]), counter["a"], counter.most_common(1), chained["b"],
        list(chained),
        math.gcd(4, 6), math.isclose(0.1 + 0.2, 0.3), round(2.5), round(-1.55, 1), divmod(-7, 3), int("ff", 16),
        bool(pattern.match("aab")),
        "a-b".partition("-"), "x".join(map(str, [1, 2])), list(itertools.pairwise([1, 2, 3])),
        types.SimpleNamespace(a=1).a, ord("a"), chr(98),
        os.path.basename("a/b"), str(None), repr("'"), ascii("é"), "%d %s %.2f" % (1, "a", 0.5),
        "{:>5}|{!r}".format(1, "b"), f"{3:04d}{x.dim()}",  # noqa: UP031, UP032
        sum([[1], [2]], []), list(enumerate("ab", 1)), dict(a=1, **{"b": 2}), hash("a") == hash("a"),
        callable(len), isinstance(True, int),
    )  # fmt: skip


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(4))
        self.plain = torch.ones(4)

    def forward(self, x):
        self.scale = self.scale + 1
        self.plain = self.plain + self.scale
        self.latest = x.sum()
        return x * self.scale + self.plain


@case(inputs=lambda: (tensor(), Buffered()))
def case_buffers_are_replaced(x, module):
    return (
        module(x),
        module(x),
        module.scale is module._buffers["scale"],
        "latest" in module.__dict__,
    )
    list(module.state_dict())


@case(inputs=lambda: (tensor(), Buffered()))
def case_buffer_of_wrong_type(x, module):
    try:
        module.scale = 5
    except TypeError as error:
        return x + 1, str(error)


@case(inputs=lambda: (tensor(), Buffered()))
def case_module_attributes_of_all_kinds(x, module):
    module.extra = nn.ReLU()
    module.weight = nn.Parameter(torch.ones(4))
    module.none = None
    del module.plain
    module.scale = None
    return (
        x * module.weight,
        [name for name, _ in module.named_modules()],
        list(module._parameters),
        module.scale,
    )
    hasattr(module, "plain")


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Identity()})
        self.list = nn.ModuleList([nn.Tanh(), nn.ReLU()])
        self.weights = nn.ParameterDict({"w": nn.Parameter(torch.ones(4))})

    def forward(self, x, which="a"):
        for name, block in self.blocks.items():
            x = block(x) if name == which else x + 1
        for index, layer in enumerate(self.list):
            x = layer(x) * index
        return x * self.weights["w"] + len(self.list) + ("b" in self.blocks) + len(list(self.children()))


def nested():
    torch.manual_seed(0)
    return Nested()


@case(inputs=lambda: (tensor(), nested()))
def case_containers_of_modules(x, module):
    return (
        module(x),
        module(x, which="b"),
        module.list[-1] is module.list[1],
    )
    [type(m).__name__ for m in module.list[:1]], module.get_submodule("blocks.a") is module.blocks["a"]


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()
        self.log = []
        self.inner.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True)
        self.inner.register_forward_hook(lambda m, args, output: self.log.append(len(self.log)))
        self.inner.register_forward_hook(lambda m, args, kwargs, output: output + 1, with_kwargs=True)

    def forward(self, x):
        return self.inner(x)


@case(inputs=lambda: (tensor(), lambda m=Hooked(): m))
def case_hooks_of_all_kinds(x, get):
    module = get()
    return module(x), list(module.log), module(x)


@case(inputs=lambda: (tensor(), types.SimpleNamespace(a=1, b=[2])))
def case_namespace_object(x, ns):
    ns.c = x * ns.a
    ns.b.append(3)
    del ns.a
    return ns, vars(ns) is ns.__dict__, sorted(vars(ns))


@case(inputs=lambda: (tensor(), {"f": [torch.sin, torch.Tensor.abs, nn.ReLU(), len, str.upper]}))
def case_callables_in_containers(x, table):
    sin, abs_, relu, length, upper = table["f"]
    return (
        sin(x),
        abs_(x),
        relu(x),
        length(x),
        upper("a"),
        [f.__name__ for f in (sin, length)],
    )
    {sin: 1}[torch.sin], torch.sin is sin


@case()
def case_defaults_are_evaluated_once(x):
    def outer():
        made = []

        def inner(v, kept=made):
            kept.append(v)
            return kept

        return inner

    first, second = outer(), outer()
    first(1), first(2), second(3)
    return x + len(first(4)), first.__defaults__, second(5), first.__name__, first.__qualname__


@case()
def case_assertions_and_messages(x):
    try:
        assert x.shape[0] == 2, f"rows: {x.shape[0]}"
    except AssertionError as error:
        return x + 1, error.args


class Resource:
    opened = 0

    def __enter__(self):
        self.opened += 1
        return self

    def __exit__(self, *args):
        self.opened -= 1


@case(inputs=lambda: (tensor(), Resource()))
def case_returns_and_loops_in_with(x, r):
    def early(n):
        with r as inner:
            for i in range(n):
                if i == 2:
                    return x * inner.opened
            return "all"

    return early(1), early(5), r.opened, Resource.opened


@case(inputs=lambda: (tensor(), [tensor()]))
def case_comprehension_variables(x, items):
    row = "outer"
    sums = [row.sum() for row in items[0]]
    nested = [[i * j for j in range(i)] for i in range(3)]
    table = {k: v for k, v in zip("ab", [x, row])}
    return sums, row, nested, table, {i % 2 for i in range(5)}, [y for y in items if (y is not x)][0] is items[0]
