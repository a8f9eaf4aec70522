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
    "counter": (
        "from collections import Counter\nd = Counter({a: 1, b: 2}); e = Counter({c: 3})",
        "d = Counter({c: 1, b: 2})", "d[a] += 5", "d.update([a, c])", "d.subtract([b])", "del d[a]",
    ),
    "chain": (
        "from collections import ChainMap\nu = {b: 2}\nd = ChainMap({a: 1}, u); e = ChainMap({c: 3}, {a: 5})",
        "d = ChainMap({}, u)", "u[a] = 7", "d[b] = 8", "del d.maps[0][a]", "d.maps.reverse()",
    ),
    "weak_keys": (
        "import weakref\nd = weakref.WeakKeyDictionary({a: 1, b: 2}); e = weakref.WeakKeyDictionary({c: 3})",
        "d = weakref.WeakKeyDictionary({c: 1, b: 2})", "d[a] = 7", "del d[a]", "b = None",
    ),
    "weak_set": (
        "import weakref\nd = weakref.WeakSet([a, b]); e = weakref.WeakSet([c])",
        "d = weakref.WeakSet([b, c])", "d.discard(a)", "d.add(c)", "b = None",
    ),
    "weak_values": (
        "import weakref\nd = weakref.WeakValueDictionary({1: a, 2: b}); e = weakref.WeakValueDictionary({1: c})",
        "d[1] = b", "del d[1]", "b = None", "d[3] = c", "d.clear()",
    ),
}  # fmt: skip
_BY_KEY = ("dict", "ordered", "default", "derived", "proxy", "counter", "chain", "weak_keys")
_CAN_BE_WEAK = ("tensor", "parameter", "module", "object", "equal_object", "function", "class")
_OF_VALUES = (
    "d.get(1) is a, d.get(1) is b", "1 in d", "len(d)", "sorted(v is a for v in d.values())", "list(d)", "d[1] is a",
    "[v is b for v in d.values()].count(True)",
)  # fmt: skip
_LOOK_UPS = ("a in d", "len(d)", "b in d, c in d", "sorted(k is a for k in d)", "bool(d)", "a is b, a == b")
_READS = ("d[a]", "d.get(a, 0)", "d.get(c, 0)", "list(d.values())", "{k: 1 for k in d}.get(a, 0)", "[d[k] for k in d]")

for _kind, _new in _KEYS.items():
    for _name, (_make, *_changes) in _CONTAINERS.items():
        if _name.startswith("weak") and _kind not in _CAN_BE_WEAK:
            continue
        _reads = _READS if _name in _BY_KEY else ()
        world(
            f"keys/{_kind}/{_name}",
            f"{_new}\na, b, c = new(), new(), new()\n{_make}",
            "\n".join(_OF_VALUES if _name == "weak_values" else (*_LOOK_UPS, *_reads)),
            "\n".join(("a, b = b, a", "a = c", "d, e = e, d", *_changes)),
        )

world(
    "keys/optimizer",
    "new = lambda v: torch.nn.Parameter(torch.full((2,), v))\na, b = new(1.0), new(2.0)\n"
    "def sgd(*p):\n    o = torch.optim.SGD(p, lr=0.1, momentum=0.9)\n    for q in p: q.grad = torch.ones(2) * len(p)\n"
    "    o.step()\n    return o\nd = sgd(a); e = sgd(b, a); f = torch.optim.SGD([a], lr=0.5)",
    "d.state[a]['momentum_buffer'] * 1 if a in d.state else 0\na in d.state, b in d.state\nlen(d.state)\n"
    "d.param_groups[0]['lr']\nd.param_groups[0]['params'][0] is a\nlist(d.state.values())[0].get('momentum_buffer') if d.state else 0\n"
    "(d.step(), a.detach() * 1)\n(d.step(), b.detach() * 1)\n(d.step(), e.step(), a.detach() * 1)\nlen(d.param_groups)\n"
    "[k is a for k in d.state]\ntype(d).__name__",
    "d, e = e, d\nd = f\na, b = b, a\nd.state.clear()\nd.state[a]['momentum_buffer'] = torch.full((2,), 5.0)\n"
    "d.param_groups[0]['lr'] = 0.3\nd.param_groups[0]['momentum'] = 0.0\na.grad = torch.full((2,), 4.0)\na.grad = None\n"
    "d.add_param_group({'params': [new(7.0)]})\nd.state.pop(a)\nd = torch.optim.Adam([a])\na = new(1.0)\ne.load_state_dict(e.state_dict())",
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
sorted(c.__name__ for c in B.__subclasses__())
C.__base__.__name__, type(C).__name__
C.described, getattr(C, 'hidden', 0)
Top in C.__mro__, Other in C.mro()
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
New = type(B)('New', (B,), {})
Meta.described = 41
Meta.described = types.SimpleNamespace
Meta.__mro__ = 42
Described.value = 43
Described.__get__ = lambda self, cls, meta: 44
Described.__set__ = lambda self, cls, value: None
C.described = 45
Meta.hidden = Described()
Meta.__len__ = lambda cls: 3
Meta.__iter__ = lambda cls: iter('xy')
C.__bases__ = (type(B)('Between', (B,), {'n': 46, 'late': 47}),)
"""
_PLAIN = """
import types
class Top:
    pass
class Described:
    value = 28
    def __get__(self, cls, meta): return self.value
class Meta(type):
    described = Described()
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
    "M = torch.nn.Module\nR = torch.nn.ReLU\nkept = {n: getattr(M, n) for n in ('__call__', '__getattr__', '__setattr__', '_call_impl', '__bool__') if hasattr(M, n)}\n"
    "kept_forward = R.forward\nm = Net(); r = R(); x1 = torch.ones(2)",
    "m(x1)\nr(x1)\nm.inner(x1)\nm.w * 1\nm.mode\nhasattr(m, 'extra')\ngetattr(m, 'extra', 0)\nm.inner.inplace\nm.training\n"
    "[n for n, _ in m.named_parameters()]\nbool(m), callable(m)\ntype(m).__name__\nsetattr(m, 'mode', 2)\nm.extra_repr()\nlen(list(m.children()))",
    "M.__call__ = lambda self, x: x * 9\nNet.__call__ = lambda self, x: x * 9\nR.__call__ = lambda self, x: x * 9\n"
    "M.__getattr__ = lambda self, name: 70\nNet.__getattr__ = lambda self, name: 71\nNet.__getattribute__ = lambda self, name: 72\n"
    "M.__setattr__ = lambda self, name, value: self.__dict__.__setitem__('training', 5)\n"
    "Net.__setattr__ = lambda self, name, value: self.__dict__.__setitem__('training', 6)\n"
    "M._call_impl = lambda self, x: x * 5\nm.register_forward_hook(lambda m, i, o: o * 2)\n"
    "m.inner.register_forward_pre_hook(lambda m, i: (i[0] * 3,))\nm._forward_hooks.clear()\nm.__dict__['mode'] = 6\n"
    "m._modules['inner'] = torch.nn.Sigmoid()\nm._parameters['w'] = torch.nn.Parameter(torch.zeros(1))\nM.__bool__ = lambda self: False\n"
    "R.forward = lambda self, x: x * 8\nNet.forward = lambda self, x: x * 7\nm.forward = lambda x: x * 6\nNet.inner = R()\n"
    "Net.w = 5\nNet.mode = property(lambda self: 3)\nNet.mode = 3\nM.extra = 74\nM.mode = property(lambda self: 75)\nM.w = 76\n"
    "M.inner = 77\nNet.extra = property(lambda self: 78)\nm.inner = torch.nn.Identity()\ndel m.w\nm.mode = 4\n"
    "Net.training = property(lambda self: 79)\nM.extra_repr = lambda self: 'e'",
    undo="for n, v in kept.items(): setattr(M, n, v)\nR.forward = kept_forward\nfor c in (M, R):\n"
    "    for n in ('extra', 'mode', 'w', 'inner', 'training', *(('__bool__',) if '__bool__' not in kept else ()), *(('__call__',) if c is R else ())):\n"
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
    "u['a'] = 6\nu['c'] = 3\ndel u['b']\nu.clear()\nu |= {'b': 4}\nu.setdefault('z', 8)\nu = {'a': 7}\nd = types.MappingProxyType({'a': 9})\nd = u\nC.n = 5\nC.m = 6\ndel C.n",
)
world(
    "proxy/of_others",
    "import collections\nclass D(dict):\n    def __getitem__(self, key): return 11\n    def __missing__(self, key): return 12\n"
    "u = collections.OrderedDict(a=1, b=2); w = collections.ChainMap({'a': 3}, u); v = D(a=4); x1 = collections.UserDict(a=5)\n"
    "d = types.MappingProxyType(u); c = types.MappingProxyType(w); m = types.MappingProxyType(v); y = types.MappingProxyType(x1)",
    "d['a'], list(d)\nc['a'], c.get('b', 0), len(c)\nm['a'], m.get('a', 0)\ny['a'], 'a' in y\nlist(reversed(d))\n'b' in c\nsorted(c)",
    "u['a'] = 6\nu.move_to_end('a')\nw['b'] = 7\ndel w['a']\nD.__getitem__ = lambda self, key: 13\nD.get = lambda self, key, other: 14\n"
    "x1['a'] = 8\nD.__contains__ = lambda self, key: False\nx1.data = {'a': 9}\nw.maps.insert(0, {'a': 10})",
)
world(
    "local",
    "import threading\nt = threading.local(); t.k = 1\nclass S(threading.local):\n    level = 5\n    def __init__(self): self.k = 2\n"
    "    @property\n    def twice(self): return self.k * 2\ns = S()",
    "t.k\ngetattr(t, 'k', 100)\nhasattr(t, 'k'), hasattr(t, 'm')\ns.k\ns.twice\ns.level\ns.__dict__.get('k', 0)\nvars(t).get('k', 0)\n'm' in t.__dict__\n"
    "getattr(s, 'm', 0)\nsetattr(t, 'm', 5)\nlen(s.__dict__)\n(setattr(s, 'k', 8), s.k)",
    "t.k = 6\ndel t.k\nt.m = 7\ns.k = 8\ndel s.k\ns.level = 9\nS.level = 10\nS.twice = property(lambda self: 11)\ns.m = 12\nS.k = 13\nt = s\nt = threading.local()\n"
    "S.__init__ = lambda self: setattr(self, 'k', 14); elsewhere\nelsewhere\nS.__getattr__ = lambda self, name: 15\n"
    "S.__getattribute__ = lambda self, name: 16\ns.__dict__['k'] = 17\ns.__dict__.clear()\nS.m = property(lambda self: 18)",
)
world(
    "weak",
    "import weakref\nclass K: n = 1\nk, l = K(), K()\nw = weakref.WeakKeyDictionary({k: 1, l: 2}); v = weakref.WeakValueDictionary(a=k, b=l)\n"
    "s = weakref.WeakSet([k, l]); r = weakref.ref(k); p = weakref.proxy(k)\n"
    "def died(_): told.append(1)\ntold = []; watched = weakref.ref(l, died); g = weakref.finalize(k, told.append, 2)",
    "len(w)\nlen(v)\nlen(s)\nk in w\nk in s\nv.get('a') is None\n'a' in v\nr() is None\nr() is k\nw.get(k, 0)\nsorted(w.values())\nbool(s)\n"
    "[e is k for e in s].count(True)\nlist(v)\np.n\n{r: 1}.get(r, 0)\n"
    "len(told)\ng.alive\nwatched() is l\nsum(w.values())\nsorted(e.n for e in s)\nlen(list(v.values()))\nw.get(l, 0), v.get('b') is l",
    "k = None\nl = None\nk, l = l, k\nw[k] = 7\ndel w[k]\nv['a'] = l\ns.discard(k)\nr = weakref.ref(l)\nK.n = 5\nk = K()",
)
world(
    "process",
    "import sys, functools, builtins\nkept = sys.getrecursionlimit()\nsys.modules['sound_a'] = types.SimpleNamespace(v=1, __name__='sound_a')\n"
    "sys.modules['sound_a'] = types.ModuleType('sound_a'); sys.modules['sound_a'].v = 1\n"
    "def imports():\n    import sound_a\n    return sound_a.v\ndef imports_from():\n    from sound_a import v\n    return v\n"
    "def tries():\n    try:\n        import sound_b\n    except ImportError:\n        return 0\n    return sound_b.v\n"
    "@functools.lru_cache\ndef cached(n): return n\nown = {'__builtins__': {'len': lambda l: 33}}\nexec('def sizes(l): return len(l)', own); sizes = own['sizes']",
    "imports()\nimports_from()\ntries()\nsys.getrecursionlimit()\ncached.cache_info().currsize\ncached.cache_info().misses\ncached(1), cached.cache_info().currsize\n"
    "cached(3)\n__import__('sound_a').v\nsizes.__builtins__['len']([1])\nsizes([1])\nlen([1])\nsys.modules['sound_a'].v\n'sound_b' in sys.modules",
    "sys.modules['sound_a'] = types.ModuleType('sound_a'); sys.modules['sound_a'].v = 5\nsys.modules['sound_a'].v = 6\n"
    "sys.modules['sound_b'] = types.ModuleType('sound_b'); sys.modules['sound_b'].v = 7\nsys.setrecursionlimit(kept + 100)\ncached(1)\ncached.cache_clear()\ncached(3)\n"
    "own['__builtins__']['len'] = lambda l: 37\nown['__builtins__'] = {'len': lambda l: 38}\ndel own['__builtins__']['len']\n"
    "cached = lambda n: 39\nsys.modules['sound_a'] = None\nsys.modules.pop('sound_a')\nown['len'] = lambda l: 34\nlen = lambda l: 35\n__builtins__ = {'len': lambda l: 36}",
    undo="sys.setrecursionlimit(kept)\nsys.modules.pop('sound_a', None); sys.modules.pop('sound_b', None)",
)

# --- what a result shares memory with --------------------------------------------------------------------------------

world(
    "shares",
    "F = torch.nn.functional\nt = torch.ones(2, 2); u = torch.ones(4); p = 1.0; tr = True; dt = torch.float64; s = (4,); n = 1; k = 2",
    "F.dropout(t, p, tr), t\nF.alpha_dropout(t, p, tr) * 0, t\ntorch.dropout(t, p, tr), t\nt.to(dt), t\nt.contiguous(), t\nt.reshape(s), t\n"
    "t.expand(2, 2), t\nt.transpose(0, n), t\ntorch.atleast_2d(u), u\nu[:k], u\nt.flatten(), t\nt.type(dt), t\nF.pad(u, (0, k)), u\n"
    "t.mT, t\nt.narrow(0, 0, n), t\nt.clone() if tr else t, t\nF.feature_dropout(t, p, tr) if hasattr(F, 'feature_dropout') else 0, t\n"
    "torch.ravel(t.mT), t\nF.interpolate(t[None, None], scale_factor=float(n)), t\ntorch.broadcast_to(u, s), u\nu.unfold(0, k, n), u",
    "p = 0.0\ntr = False\ndt = torch.float32\nt = t.mT\nt = torch.ones(2, 4)[:, :2]\ns = (2, 2)\nn = 0\nk = 0\nk = 4\nu = u.expand(4)\n"
    "u = torch.ones(1).expand(4)\nt = t.double()\nu = torch.ones(8)[::2]\np = 0.0; again; tr = False; again; p = 1.0\nt = u",
)
