"""The object model at depth: metaclasses, descriptors that validate, proxies, and the order of base classes."""

import copy
import weakref

import torch

from .corpus import case, tensor


class Meta(type):
    made = 0

    def __call__(cls, *args, **kwargs):
        obj = super().__call__(*args, **kwargs)
        obj.stamped = True
        return obj

    def __len__(cls):
        return 7

    def __contains__(cls, item):
        return item == "in"

    def __getitem__(cls, item):
        return (cls.__name__, item)

    def __iter__(cls):
        return iter((1, 2))

    @property
    def label(cls):
        return cls.__name__.lower()

    def helper(cls, n):
        return n + 1


class Metaed(metaclass=Meta):
    def __init__(self, n=1):
        self.n = n


class Typed:
    """A validating descriptor that knows its name."""

    def __init__(self, kind, default=None):
        self.kind = kind
        self.default = default

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return getattr(obj, self.name, self.default)

    def __set__(self, obj, value):
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.name[1:]} must be {self.kind.__name__}")
        setattr(obj, self.name, value)

    def __delete__(self, obj):
        delattr(obj, self.name)


class Record:
    count = Typed(int, 5)
    name = Typed(str)


class Proxy:
    def __init__(self, target):
        self.__dict__["_target"] = target

    def __getattr__(self, name):
        return getattr(self._target, name)

    def __setattr__(self, name, value):
        setattr(self._target, name, value)

    def __delattr__(self, name):
        delattr(self._target, name)

    def __dir__(self):
        return ["one", "two"]


class A:
    def who(self):
        return ["A"]


class B(A):
    def who(self):
        return ["B", *super().who()]


class C(A):
    def who(self):
        return ["C", *super().who()]


class D(B, C):
    def who(self):
        return ["D", *super().who()]

    def skip(self):
        return super(B, self).who()

    @classmethod
    def named(cls):
        return cls.__name__

    @staticmethod
    def plain(n):
        return n * 2


@case(one_graph=True)
def case_metaclass_makes_instances(x):
    m = Metaed(3)
    return x * m.n, m.stamped


@case()
def case_metaclass_special_methods(x):
    return x * len(Metaed), "in" in Metaed, Metaed["k"], list(Metaed), Metaed.label, Metaed.helper(1), Metaed.made


@case()
def case_validating_descriptor(x):
    r = Record()
    before = r.count
    r.count = 4
    r.name = "n"
    try:
        r.name = 3
    except TypeError as error:
        failed = str(error)
    del r.count
    return x * r.count, before, r.name, failed, isinstance(Record.name, Typed), vars(r)


@case(inputs=lambda: (tensor(), Record()))
def case_descriptor_of_argument(x, r):
    r.count = r.count + 1
    return x * r.count


@case()
def case_proxy_object(x):
    target = Metaed(2)
    p = Proxy(target)
    p.n = 5
    p.extra = x
    del p.stamped
    return p.n * p.extra, vars(target).keys() == {"n", "extra"}, hasattr(p, "stamped"), dir(p)


@case(one_graph=True)
def case_method_resolution(x):
    d = D()
    return x, d.who(), d.skip(), D.named(), d.named(), d.plain(2), D.plain(3), [c.__name__ for c in D.__mro__]


@case()
def case_bound_super(x):
    d = D()
    parent = super(D, d)
    return x, parent.who(), parent.__thisclass__ is D, super(D, D).named() if hasattr(A, "named") else None


@case()
def case_deep_copy_of_objects_and_tensors(x):
    o = Metaed(2)
    o.t = x
    o.again = o
    made = copy.deepcopy(o)
    made.t.add_(1)
    return made.t, o.t, made.again is made


@case()
def case_class_made_by_type(x):
    made = type("Made", (A,), {"n": 3, "twice": lambda self: self.n * 2})
    return x * made().twice(), made.__name__, issubclass(made, A), made().who()


@case()
def case_class_statement_inside(x):
    class Inner(A):
        n = x.shape[0]

        def who(self):
            return [self.n, *super().who()]

    return x, Inner().who(), Inner.n


@case(one_graph=True)
def case_type_of_things(x):
    return (
        x,
        type(x) is torch.Tensor,
        type(3) is int,
        type(A()) is A,
        type(A()).__name__,
        type(A) is type,
        type([]) is list,
    )


@case()
def case_class_attribute_is_changed(x):
    D.counter = getattr(D, "counter", 0) + 1
    y = x * D.counter
    del D.counter
    return y, hasattr(D, "counter")


@case()
def case_weak_references(x):
    m = Metaed(2)
    r = weakref.ref(m)
    return x * r().n, r() is m


@case(one_graph=True)
def case_getattr_with_default(x):
    m = Metaed(2)
    names = [n for n in ("n", "missing", "stamped") if hasattr(m, n)]
    setattr(m, "k" + "ey", 4)
    delattr(m, "n")
    return x * getattr(m, "key"), names, getattr(m, "n", "gone"), vars(m)


@case()
def case_dunder_attributes(x):
    m = Metaed(2)
    return x, m.__class__.__name__, m.__dict__, m.__module__.rpartition(".")[2], A.__doc__, Typed.__doc__, A.__bases__


@case()
def case_object_methods(x):
    a = A()
    return x, a == a, a != A(), hash(a) == hash(a), object() is not object(), a.__eq__(3), A.__eq__(a, a)


@case()
def case_exception_of_descriptor(x):
    r = Record()
    try:
        r.missing  # noqa: B018
    except AttributeError as error:
        return x, str(error)


@case(inputs=lambda: (tensor(), [Metaed(1), Metaed(2)], {"a": Metaed(3)}))
def case_objects_in_containers(x, many, table):
    for m in many:
        m.n += len(table)
    table["b"] = many[0]
    table["a"].peer = many
    return x * sum(m.n for m in [*many, *table.values()]), max(many, key=lambda m: m.n) is many[1]
