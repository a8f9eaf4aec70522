# ruff: noqa: E501 - a line is a program
"""Worlds: programs whose state changes between two calls of a compiled function.

A world has a text that sets it up, questions (expressions that a compiled function evaluates), and changes (statements
that run between two calls).  Every question is combined with every change of its world, so that no author has to guess
which change affects which answer.  ``undo`` restores whatever outlives the world.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """The questions and changes of one subject; ``undo`` restores what outlives the world."""

    name: str
    text: str
    questions: tuple[str, ...]
    changes: tuple[str, ...]
    undo: str = ""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines() if line.strip())


WORLDS: list[World] = []


def world(name: str, text: str, questions: str, changes: str, undo: str = "") -> None:
    WORLDS.append(World(name, text, _lines(questions), _lines(changes), undo))


# --- objects as keys -------------------------------------------------------------------------------------------------

_KEYS = {
    "tensor": "def new(): return torch.ones(2)",
    "parameter": "def new(): return torch.nn.Parameter(torch.ones(2))",
    "module": "def new(): return torch.nn.ReLU()",
    "object": "class K: pass\nnew = K",
    "equal_object": (
        "class K:\n    def __eq__(self, other): return isinstance(other, K) and self.n == other.n\n"
        "    def __hash__(self): return hash(self.n)\n    def __init__(self): self.n = len(made); made.append(self)\n"
        "made = []\nnew = K"
    ),
    "function": "def new(): return lambda: 1",
    "class": "def new(): return type('K', (), {})",
    "tuple": "def new(): return (torch.ones(2), 1)",
    "tuple_of_objects": "class K: pass\ndef new(): return (K(), 'a')",
    "method": "class K:\n    def m(self): return 1\ndef new(): return K().m",
    "frozenset": "class K: pass\ndef new(): return frozenset([K()])",
    "number": "made = [0]\ndef new():\n    made[0] += 1\n    return made[0]",
    "text": "made = [0]\ndef new():\n    made[0] += 1\n    return 'k' + str(made[0])",
    "enum": "import enum\nE = enum.Enum('E', 'A B C D E F')\nmembers = list(E)\ndef new(): return members.pop()",
}

_CONTAINERS = {
    "dict": ("d = {a: 1, b: 2}; e = {c: 3, a: 4}", "d = {b: 1, a: 2}", "d = {c: 1, b: 2}", "d[a] = 7", "del d[a]"),
    "ordered": (
        "from collections import OrderedDict\nd = OrderedDict([(a, 1), (b, 2)]); e = OrderedDict([(c, 3)])",
        "d = OrderedDict([(b, 1), (a, 2)])", "d.move_to_end(a)", "d[c] = d.pop(a)", "d.clear()",
    ),
    "default": (
        "from collections import defaultdict\nd = defaultdict(int, {a: 1, b: 2}); e = defaultdict(int, {c: 5})",
        "d = defaultdict(int, {c: 1, b: 2})", "d[a] = 7", "del d[a]", "d.default_factory = lambda: 9",
    ),
    "derived": (
        "class D(dict):\n    def __missing__(self, key): return -1\nd = D({a: 1, b: 2}); e = D({c: 3})",
        "d = D({c: 1, b: 2})", "d[a] = 7", "del d[a]", "D.__missing__ = lambda self, key: -2",
    ),
    "set": ("d = {a, b}; e = {c}", "d = {b, c}", "d.discard(a)", "d.add(c)", "d.clear()"),
    "one": ("d = {a}; e = {c}", "d = {b}", "d.discard(a)", "d.add(c)", "d.clear()"),
    "frozen": ("d = frozenset([a, b]); e = frozenset([c])", "d = frozenset([b, c])", "d = frozenset()"),
    "proxy": (
        "import types\nu = {a: 1, b: 2}\nd = types.MappingProxyType(u); e = types.MappingProxyType({c: 1})",
        "u[a] = 7", "del u[a]", "u[c] = 8; del u[b]", "d = types.MappingProxyType({c: 1, b: 5})",
    ),
    "list": ("d = [a, b]; e = [c]", "d = [b, a]", "d[0] = c", "d.append(c)", "d.clear()"),
}  # fmt: skip
_LOOK_UPS = ("a in d", "len(d)", "b in d, c in d", "sorted(k is a for k in d)", "bool(d)", "a is b, a == b")
_READS = ("d[a]", "d.get(a, 0)", "d.get(c, 0)", "list(d.values())", "{k: 1 for k in d}.get(a, 0)", "[d[k] for k in d]")

for _kind, _new in _KEYS.items():
    for _name, (_make, *_changes) in _CONTAINERS.items():
        _reads = _READS if _name in ("dict", "ordered", "default", "derived", "proxy") else ()
        world(
            f"keys/{_kind}/{_name}",
            f"{_new}\na, b, c = new(), new(), new()\n{_make}",
            "\n".join((*_LOOK_UPS, *_reads)),
            "\n".join(("a, b = b, a", "a = c", "d, e = e, d", *_changes)),
        )

world(
    "keys/faces",
    "d = {0.0: 1, 1: 2, 'a': 3}; s = {0.0, 1}; t = {(0.0, 1): 1}; k = 0.0; m = {-0.0: 1}",
    "[repr(key) for key in d]\n[repr(key) for key in s]\n[repr(key) for key in t]\nrepr(k), d[k]\nmath.copysign(1, k)\n"
    "[math.copysign(1, key) for key in m]\n1 in s, True in s\nd[1], d[True]\nrepr(max(s)), repr(min(s))",
    "d = {-0.0: 1, 1: 2, 'a': 3}\nd = {0.0: 1, True: 2, 'a': 3}\nd = {0: 1, 1.0: 2, 'a': 3}\ns = {-0.0, 1}\n"
    "s = {0.0, True}\ns = {0, 1.0}\nt = {(-0.0, 1): 1}\nt = {(0.0, True): 1}\nt = {(0, 1): 1}\nk = -0.0\nk = 0\n"
    "k = False\nm = {0.0: 1}\nm = {0: 1}",
)

# --- what a class can be asked ---------------------------------------------------------------------------------------

_CLASS_QUESTIONS = """
C.n
o.n
type(o).n
o.__class__.n
getattr(C, 'n', 0)
hasattr(C, 'n'), hasattr(o, 'n')
getattr(o, 'extra', 0)
getattr(C, 'extra', 0)
hasattr(C, 'extra'), hasattr(o, 'extra')
C.__name__
C.__qualname__
C.__module__
C.__doc__
type(o).__name__
[c.__name__ for c in C.__mro__]
len(C.__bases__)
C.__bases__[0] is B
isinstance(o, B), isinstance(o, C), isinstance(o, Other)
issubclass(C, B), issubclass(C, Other)
callable(o), callable(C)
o.method()
C.method(o)
C.made()
o.made()
C.fixed()
o.prop
o.inherited
o.late
C.meta
getattr(C, 'meta_extra', 0)
bool(o)
len(o) if hasattr(o, '__len__') else 0
o == 3, o != 3
hash(C) == hash(C)
'n' in C.__dict__, 'n' in vars(C)
vars(C).get('n', 0)
C().n
C.kind()
str(C), repr(C) == str(C)
o in [1, 2]
'n' in dir(C)
f'{o!r}' == 'R', f'{C.__name__}'
o.__doc__, o.__module__
sorted(C.__annotations__)
"""
_CLASS_CHANGES = """
{0}.n = 5
{0}.n = property(lambda self: 7)
{0}.extra = 9
{0}.extra = property(lambda self: 8)
{0}.inherited = 4
{0}.__name__ = 'Renamed'
{0}.__qualname__ = 'a.b'
{0}.__module__ = 'elsewhere'
{0}.__doc__ = 'another'
{0}.method = lambda self: 12
{0}.made = classmethod(lambda cls: 13)
{0}.fixed = staticmethod(lambda: 14)
{0}.prop = property(lambda self: 15)
{0}.prop = 16
{0}.__call__ = lambda self, *a: 1
{0}.__len__ = lambda self: 0
{0}.__bool__ = lambda self: False
{0}.__eq__ = lambda self, other: True
{0}.__repr__ = lambda self: 'R'
{0}.__getattr__ = lambda self, name: 17
{0}.__getattribute__ = lambda self, name: 18
{0}.__init__ = lambda self: setattr(self, 'n', 21)
{0}.__new__ = lambda cls, *a: types.SimpleNamespace(n=22)
{0}.__annotations__ = dict(z=int)
{0}.late = 23
"""
_CLASS_ONLY = """
o.__class__ = Other
C.__bases__ = (Other,)
C.__bases__ = (B, Other)
o = Other()
C = Other
Meta.meta = property(lambda cls: 31)
Meta.meta = 32
Meta.n = property(lambda cls: 33)
Meta.extra = 34
Meta.meta_extra = 35
Meta.meta_extra = property(lambda cls: 36)
Meta.kind = lambda cls: 37
Meta.__call__ = lambda cls, *a: types.SimpleNamespace(n=38)
Meta.__bool__ = lambda cls: False
Meta.__repr__ = lambda cls: 'M'
Meta.__getattr__ = lambda cls, name: 39
Meta.__instancecheck__ = lambda cls, obj: False
Meta.__subclasscheck__ = lambda cls, obj: False
Meta.__instancecheck__ = lambda cls, obj: True
Meta.__subclasscheck__ = lambda cls, obj: True
Meta.__getattribute__ = lambda cls, name: 40
"""
_PLAIN = """
import types
class Top:
    pass
class Meta(type):
    @property
    def meta(cls): return 30
    def kind(cls): return 29
class B(Top, metaclass=Meta):
    "doc"
    n: int = 1
    inherited = 2
    late = 0
    def method(self): return 10
    @classmethod
    def made(cls): return cls.n
    @staticmethod
    def fixed(): return 11
    @property
    def prop(self): return self.n * 2
class C(B):
    own = 3
class Other(Top, metaclass=Meta):
    n = 100
    inherited = late = prop = 101
    def method(self): return 102
    made = classmethod(lambda cls: 103)
    fixed = staticmethod(lambda: 104)
"""
_ONE_CLASS = {
    "plain": _PLAIN + "o = C()\n",
    "own": _PLAIN.replace("    own = 3", "    n: int = 1\n    def method(self): return 3") + "o = C()\n",
    "slots": _PLAIN.replace('    "doc"\n    n', '    __slots__ = ("free",)\n    n').replace("    own = 3", "    __slots__ = ()")
    .replace("class Top:\n    pass", "class Top:\n    __slots__ = ()")
    .replace("metaclass=Meta):\n    n = 100", "metaclass=Meta):\n    __slots__ = ('free',)\n    n = 100") + "o = C()\n",
    "type": _PLAIN.replace(", metaclass=Meta", "").replace("o = C()", "") + "o = C()\n",
    "abc": _PLAIN.replace("class Meta(type)", "import abc\nclass Meta(abc.ABCMeta)") + "o = C()\n",
    "dataclass": _PLAIN.replace("class C(B)", "import dataclasses\n@dataclasses.dataclass\nclass C(B)") + "o = C()\n",
    "module": _PLAIN.replace("class Top:", "class Top(torch.nn.Module):") + "o = C()\n",
    "exception": _PLAIN.replace("class Top:", "class Top(Exception):") + "o = C()\n",
    "dict": _PLAIN.replace("class Top:", "class Top(dict):") + "o = C()\n",
    "list": _PLAIN.replace("class Top:", "class Top(list):") + "o = C()\n",
    "int": _PLAIN.replace("class Top:", "class Top(int):") + "o = C()\n",
}  # fmt: skip
for _name, _text in _ONE_CLASS.items():
    world(
        f"class/{_name}",
        _text,
        _CLASS_QUESTIONS,
        "\n".join(_CLASS_CHANGES.replace("{0}", owner) for owner in ("C", "B", "Top")) + _CLASS_ONLY,
    )

_INSTANCE = _PLAIN + "o = C(); o.mine = 50; o.n = 51\n"
world(
    "instance",
    _INSTANCE,
    "o.mine\no.n\no.prop\nhasattr(o, 'mine')\ngetattr(o, 'extra', 0)\no.__dict__.get('mine', 0)\nvars(o)['n']\n'mine' in o.__dict__",
    "\n".join(
        line.replace("{0}", owner)
        for owner in ("C", "B", "Top")
        for line in (
            "{0}.mine = property(lambda self: 60)", "{0}.n = property(lambda self: 61)", "{0}.mine = 62",
            "{0}.__getattribute__ = lambda self, name: 63", "{0}.__getattr__ = lambda self, name: 64", "{0}.extra = 65",
        )
    ) + "\no.mine = 66\ndel o.mine\ndel o.n\no.__dict__ = {'mine': 67}\no.__class__ = Other\no.extra = 68",
)  # fmt: skip

world(
    "enum",
    "import enum\n"
    "class E(enum.Enum):\n    A = 1\n    B = 2\n"
    "    @property\n    def twice(self): return self.value * 2\n    def method(self): return self.name\n"
    "    @classmethod\n    def first(cls): return cls.A.value\n"
    "class N(enum.IntEnum):\n    A = 1\n    B = 2\nclass F(enum.Flag):\n    A = 1\n    B = 2\ne = E.A; n = N.A; f = F.A",
    "e.value\ne.name\ne.twice\ne.method()\nE.first()\nE.A.value\nE.A.twice\nE['A'].value\nE(1).name\ne is E.A\n"
    "getattr(e, 'extra', 0)\nn.value\nn + 1\nn.name\nint(n)\nf.value\n(f | F.B).value\nisinstance(e, E)\nbool(e)\nE.extra "
    "if hasattr(E, 'extra') else 0\nlen(E)\n[m.value for m in E]\nstr(e) == 'x'\ncallable(e)\ne.__class__.__name__\n"
    "hasattr(e, '_value_')\ne._value_\n{E.A: 1}.get(e, 0)",
    "E.A._value_ = 7\nE.A._name_ = 'Z'\nN.A._value_ = 7\nF.A._value_ = 4\nE.twice = property(lambda s: 50)\n"
    "E.method = lambda s: 'm'\nE.first = classmethod(lambda c: 51)\nE.extra = 52\nE.A.extra = 53\ne = E.B\nn = N.B\n"
    "f = F.B\nE.__bool__ = lambda s: False\nE.__call__ = lambda s: 1\nE.__str__ = lambda s: 'x'\nE.value = property(lambda s: 54)\n"
    "E.__name__ = 'Other'\nE.__getattr__ = lambda s, name: 55\nN.twice = property(lambda s: 2)",
)

world(
    "registered",
    "import abc, collections.abc\nclass A(abc.ABC): pass\nclass D(A): pass\nclass Mine: pass\nclass Derived(Mine): pass\n"
    "class Hook(abc.ABC):\n    on = False\n    @classmethod\n    def __subclasshook__(cls, other): return cls.on or NotImplemented\n"
    "o = Mine(); p = Derived(); n = 3; l = [1]",
    "isinstance(o, A), isinstance(p, A)\nissubclass(Mine, A), issubclass(Derived, A)\nisinstance(n, A)\nissubclass(int, A)\n"
    "isinstance(o, (A, str))\nisinstance(o, A | str)\nisinstance(o, collections.abc.Sequence)\nisinstance(l, A)\n"
    "isinstance(o, D)\nisinstance(o, collections.abc.Iterable)\nisinstance(o, Hook)\nissubclass(Mine, Hook)\n"
    "isinstance(x, A)\nissubclass(type(o), A)\nA.__instancecheck__(o)",
    "A.register(Mine)\nD.register(Mine)\nA.register(Derived)\nA.register(int)\nA.register(list)\nD.register(Derived)\n"
    "collections.abc.Sequence.register(Mine)\nMine.__iter__ = lambda self: iter(())\nHook.on = True\nA.register(torch.Tensor)\n"
    "Mine.__bases__ = (A,)\no.__class__ = D\nA = object",
)

world(
    "net",
    "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = torch.nn.ReLU()\n"
    "        self.w = torch.nn.Parameter(torch.ones(1))\n        self.mode = 2\n    def forward(self, x): return self.inner(x) * self.mode\n"
    "M = torch.nn.Module\nR = torch.nn.ReLU\nkept = {n: getattr(M, n) for n in ('__call__', '__getattr__', '__setattr__')}\n"
    "kept_forward = R.forward\nm = Net(); r = R(); x1 = torch.ones(2)",
    "m(x1)\nr(x1)\nm.inner(x1)\nm.w * 1\nm.mode\nhasattr(m, 'extra')\ngetattr(m, 'extra', 0)\nm.inner.inplace\nm.training\n"
    "[n for n, _ in m.named_parameters()]\ntype(m).__name__\nsetattr(m, 'mode', 2)\nm.extra_repr()\nlen(list(m.children()))",
    "M.__call__ = lambda self, x: x * 9\nNet.__call__ = lambda self, x: x * 9\nR.__call__ = lambda self, x: x * 9\n"
    "M.__getattr__ = lambda self, name: 70\nNet.__getattr__ = lambda self, name: 71\nNet.__getattribute__ = lambda self, name: 72\n"
    "M.__setattr__ = lambda self, name, value: self.__dict__.__setitem__('training', 5)\n"
    "Net.__setattr__ = lambda self, name, value: self.__dict__.__setitem__('training', 6)\n"
    "R.forward = lambda self, x: x * 8\nNet.forward = lambda self, x: x * 7\nm.forward = lambda x: x * 6\nNet.inner = R()\n"
    "Net.w = 5\nNet.mode = property(lambda self: 3)\nNet.mode = 3\nM.extra = 74\nM.mode = property(lambda self: 75)\nM.w = 76\n"
    "M.inner = 77\nNet.extra = property(lambda self: 78)\nm.inner = torch.nn.Identity()\ndel m.w\nm.mode = 4\n"
    "Net.training = property(lambda self: 79)\nM.extra_repr = lambda self: 'e'",
    undo="for n, v in kept.items(): setattr(M, n, v)\nR.forward = kept_forward\nfor c in (M, R):\n"
    "    for n in ('extra', 'mode', 'w', 'inner', 'training', *(('__call__',) if c is R else ())):\n"
    "        if n in c.__dict__: delattr(c, n)\n"
    "M.extra_repr = lambda self: ''",
)

world(
    "tensor",
    "T = torch.Tensor; P = torch.nn.Parameter\nt = torch.ones(2, 3); p = P(torch.ones(2)); kept = (T.relu, T.tanh)",
    "getattr(t, 'extra', 0)\nhasattr(t, 'extra'), hasattr(p, 'extra')\nt.relu()\np.relu()\nt.tanh()\nT.extra if hasattr(T, 'extra') else 0\n"
    "t.shape\nt.ndim\nt.T\nt.dtype\ngetattr(p, 'extra', 0)\ncallable(t)\nt.extra() if hasattr(t, 'extra') and callable(t.extra) else 0\n"
    "isinstance(t, T), isinstance(t, P)\nt.is_leaf\nt.numel()\nT.relu(t)",
    "T.extra = 80\nT.extra = property(lambda self: 81)\nT.extra = lambda self: self * 82\nP.extra = 83\nT.relu = lambda self: self * 84\n"
    "T.tanh = lambda self: 85\nt.extra = 86\nP.extra = property(lambda self: 87)\nT.__call__ = lambda self: 1\nP.relu = lambda self: self * 88\n"
    "T.extra = classmethod(lambda cls: 89)\nP.shape = 91",
    undo="T.relu, T.tanh = kept\nfor c in (T, P):\n    for n in ('extra', '__call__', 'shape', *(('relu',) if c is P else ())):\n"
    "        if n in c.__dict__ and not (c is T and n == 'shape'): delattr(c, n)",
)

world(
    "namedtuple",
    "import collections, typing\nN = collections.namedtuple('N', 'a b')\nclass T(typing.NamedTuple):\n    a: int\n    b: int = 2\n"
    "    def total(self): return self.a + self.b\nclass S(N):\n    @property\n    def both(self): return self.a * 10 + self.b\nn = N(1, 2); t = T(1); s = S(3, 4)",
    "n.a\nt.total()\ns.both\ns.a\nT(5).total()\nN(1, b=3).b\nn._fields\nt.a + n.b\ngetattr(n, 'extra', 0)\nisinstance(n, tuple), isinstance(s, N)\n"
    "n._replace(a=9).a\nlen(n)\nN.__name__\nn == (1, 2)\nn[0]\nhasattr(t, 'extra')",
    "n = N(1, 5)\nn = T(1, 2)\nT.total = lambda self: 90\nS.both = property(lambda self: 91)\nN.extra = 92\nN.a = property(lambda self: 93)\n"
    "S.a = 94\nT.__new__.__defaults__ = (7,)\nN.__len__ = lambda self: 5\nN.__eq__ = lambda self, o: False\nN.__name__ = 'Z'\n"
    "N._replace = lambda self, **k: self\nN.__getitem__ = lambda self, i: 95\nT.extra = 96\nt = T(8)",
)

# --- what is read through something else -----------------------------------------------------------------------------

world(
    "proxy",
    "u = {'a': 1, 'b': 2}\nd = types.MappingProxyType(u)\nclass C: n = 1\nv = C.__dict__",
    "d['a']\nd.get('c', 0)\n'c' in d\nlen(d)\nlist(d)\nlist(d.items())\nsum(d.values())\ndict(d)\n{**d}\nbool(d)\ntype(d).__name__\n"
    "isinstance(d, dict)\nv['n']\nv.get('m', 0)\n'm' in v\nsorted(k for k in d)\nd == u\nd | {'z': 1}\nd.copy()",
    "u['a'] = 6\nu['c'] = 3\ndel u['b']\nu.clear()\nd = types.MappingProxyType({'a': 9})\nd = u\nC.n = 5\nC.m = 6\ndel C.n",
)
world(
    "local",
    "import threading\nt = threading.local(); t.k = 1\nclass S(threading.local):\n    level = 5\n    def __init__(self): self.k = 2\n"
    "    @property\n    def twice(self): return self.k * 2\ns = S()",
    "t.k\ngetattr(t, 'k', 100)\nhasattr(t, 'k'), hasattr(t, 'm')\ns.k\ns.twice\ns.level\ns.__dict__.get('k', 0)\nvars(t).get('k', 0)\n'm' in t.__dict__\n"
    "getattr(s, 'm', 0)\nsetattr(t, 'm', 5)\nlen(s.__dict__)\n(setattr(s, 'k', 8), s.k)",
    "t.k = 6\ndel t.k\nt.m = 7\ns.k = 8\ndel s.k\ns.level = 9\nS.level = 10\nS.twice = property(lambda self: 11)\ns.m = 12\nS.k = 13\nt = s\nt = threading.local()",
)
world(
    "weak",
    "import weakref\nclass K: n = 1\nk, l = K(), K()\nw = weakref.WeakKeyDictionary({k: 1, l: 2}); v = weakref.WeakValueDictionary(a=k, b=l)\n"
    "s = weakref.WeakSet([k, l]); r = weakref.ref(k); p = weakref.proxy(k)",
    "len(w)\nlen(v)\nlen(s)\nk in w\nk in s\nv.get('a') is None\n'a' in v\nr() is None\nr() is k\nw.get(k, 0)\nsorted(w.values())\nbool(s)\n"
    "[e is k for e in s].count(True)\nlist(v)\np.n\n{r: 1}.get(r, 0)",
    "k = None\nl = None\nk, l = l, k\nw[k] = 7\ndel w[k]\nv['a'] = l\ns.discard(k)\nr = weakref.ref(l)\nK.n = 5\nk = K()",
)
world(
    "process",
    "import sys, functools, builtins\nkept = sys.getrecursionlimit()\nsys.modules['sound_a'] = types.SimpleNamespace(v=1, __name__='sound_a')\n"
    "sys.modules['sound_a'] = types.ModuleType('sound_a'); sys.modules['sound_a'].v = 1\n"
    "def imports():\n    import sound_a\n    return sound_a.v\ndef imports_from():\n    from sound_a import v\n    return v\n"
    "def tries():\n    try:\n        import sound_b\n    except ImportError:\n        return 0\n    return sound_b.v\n"
    "@functools.lru_cache\ndef cached(n): return n\nown = {'__builtins__': {'len': lambda l: 33}}\nexec('def sizes(l): return len(l)', own); sizes = own['sizes']",
    "imports()\nimports_from()\ntries()\nsys.getrecursionlimit()\ncached.cache_info().currsize\nsizes([1])\nlen([1])\nsys.modules['sound_a'].v\n'sound_b' in sys.modules",
    "sys.modules['sound_a'] = types.ModuleType('sound_a'); sys.modules['sound_a'].v = 5\nsys.modules['sound_a'].v = 6\n"
    "sys.modules['sound_b'] = types.ModuleType('sound_b'); sys.modules['sound_b'].v = 7\nsys.setrecursionlimit(kept + 100)\ncached(1)\n"
    "own['len'] = lambda l: 34\nlen = lambda l: 35\n__builtins__ = {'len': lambda l: 36}",
    undo="sys.setrecursionlimit(kept)\nsys.modules.pop('sound_a', None); sys.modules.pop('sound_b', None)",
)

# --- floats that become symbolic -------------------------------------------------------------------------------------

_SPECIAL = (
    "0.0",
    "-0.0",
    "float('inf')",
    "float('-inf')",
    "float('nan')",
    "7.5",
    "-7.5",
    "0.5",
    "-1.0",
    "1e308",
    "5e-324",
    "3",
)
_FLOAT_QUESTIONS = """
abs(n)
-n, +n
n + 0.0, n - 0.0, 0.0 - n
n * 0.0, n * -0.0, 0.0 * n
n * m, n + m, n - m, m - n
n - n, n + n, n * n
-(n - n), -(n - m)
n / m if m else 0
n // 2.0, n % 2.0
n // -2.0, n % -2.0
n ** 2, n ** 2.0, n ** 0
max(n, 0.0), min(n, 0.0), max(0.0, n), min(0.0, n)
max(n, -0.0), min(n, -0.0)
max(n, m), min(n, m)
max(n, float('nan')), min(float('nan'), n)
math.copysign(1.0, n)
math.copysign(n, -1.0)
round(n) if abs(n) < 100 else 0
round(n, 1)
int(n) if abs(n) < 100 else 0
float(n), bool(n)
n == 0, n < 0, n >= 0, n != n
n == m, n < m, n <= m
str(n), f'{n}', f'{n:.2f}', repr(n)
n if n else 5.0
n or 5.0, n and 5.0
math.sqrt(n) if n > 0 else 0
math.floor(n) if abs(n) < 100 else 0
math.trunc(n) if abs(n) < 100 else 0
n * float('inf')
n + float('nan')
divmod(n, 2.0)
{0.0: 1, 7.5: 2}.get(n, 3)
n in (0.0, 7.5)
n.is_integer(), n.hex() if isinstance(n, float) else 0
abs(n - m), abs(n * m)
abs(n) * -0.0
torch.full((2,), n)
x * n, x + n
torch.tensor([1.0, -1.0]) * n
torch.tensor([1.0]) * abs(n)
torch.copysign(torch.ones(1), torch.tensor(n))
n * 0, 0 * n, n * 1
-n * 0.0
(n + 1.0) * 0.0
(n - 7.5) * -1.0, (m - n) * 2.0
"""
world(
    "float",
    "n = 2.5; m = 1.5\n",
    _FLOAT_QUESTIONS,
    "\n".join((*(f"n = 3.5; again; n = {v}" for v in _SPECIAL), *(f"n = m = 4.5; again; n = m = {v}" for v in _SPECIAL), "n = -2.5; again; m = 2.5; n = 2.5")),
)  # fmt: skip

# --- settings of the process -----------------------------------------------------------------------------------------

# torch keeps these in C++ for the whole process, so a change sets a value: both programs of a comparison make it.
world(
    "autocast",
    """
def auto(**more):
    with torch.autocast("cpu", **more):
        return torch.ones(2, 2) @ torch.ones(2, 2)
def asked_inside(**more):
    with torch.autocast("cpu", **more):
        return str(torch.get_autocast_dtype("cpu")), str(torch.get_autocast_dtype("cuda"))
""",
    """
    auto()
    auto(enabled=False)
    auto(dtype=torch.bfloat16), str(torch.get_autocast_dtype("cpu"))
    asked_inside()
    asked_inside(dtype=torch.float16)
    asked_inside(enabled=False)
    str(torch.get_autocast_dtype("cpu")), str(torch.get_autocast_dtype(device_type="cuda"))
    str(torch.get_autocast_dtype("xpu"))
    torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"), torch.is_autocast_cache_enabled()
    torch.ones(2, 2) @ torch.ones(2, 2)
    torch.get_autocast_dtype("no device")
    torch.is_autocast_enabled("no device")
    torch.get_autocast_dtype(3)
    """,
    """
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_dtype("cpu", torch.float16); again; torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_dtype("xpu", torch.bfloat16)
    torch.set_autocast_enabled("cpu", True); again; torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_cache_enabled(False)
    """,
    """
for device, dtype in ("cpu", torch.bfloat16), ("cuda", torch.float16), ("xpu", torch.float16):
    torch.set_autocast_enabled(device, False)
    torch.set_autocast_dtype(device, dtype)
torch.set_autocast_cache_enabled(True)
""",
)
world(
    "process",
    """
import os, sys
os.environ["SOUNDNESS"] = "1"
""",
    """
    str(torch.get_default_dtype()), torch.ones(2), torch.tensor(1.5), torch.full((1,), 2.0)
    str(torch.get_default_device()), torch.ones(2).device.type, torch.arange(3).device.type
    torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.get_deterministic_debug_mode()
    torch.get_num_threads()
    torch.get_float32_matmul_precision()
    torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled
    torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic, torch.backends.mha.get_fastpath_enabled()
    torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    torch.is_warn_always_enabled()
    torch.__future__.get_overwrite_module_params_on_conversion()
    os.environ["SOUNDNESS"], os.environ.get("SOUNDNESS", "0"), os.getenv("SOUNDNESS")
    "SOUNDNESS" in os.environ
    sys.getrecursionlimit()
    """,
    """
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_default_device("meta"); again; torch.set_default_device("cpu")
    torch.use_deterministic_algorithms(True)
    torch.use_deterministic_algorithms(True, warn_only=True); again; torch.use_deterministic_algorithms(True)
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("high")
    torch.set_grad_enabled(False)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.backends.mkldnn.set_flags(False)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_warn_always(True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    os.environ["SOUNDNESS"] = "2"
    os.environ.pop("SOUNDNESS", None)
    sys.setrecursionlimit(2000)
    """,
    """
torch.set_default_dtype(torch.float32)
torch.set_default_device(None)
torch.use_deterministic_algorithms(False)
torch.set_num_threads(1)
torch.set_float32_matmul_precision("highest")
torch.set_grad_enabled(True)
torch.autograd.set_detect_anomaly(False)
torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
torch.backends.mkldnn.set_flags(True)
torch.backends.mha.set_fastpath_enabled(True)
torch.backends.cuda.enable_flash_sdp(True)
torch.set_warn_always(False)
torch.__future__.set_overwrite_module_params_on_conversion(False)
os.environ.pop("SOUNDNESS", None)
sys.setrecursionlimit(1000)
""",
)
