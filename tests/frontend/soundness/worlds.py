"""Worlds whose questions have answers that can change: what a program asks, and how the answer becomes another.

A world is the text that makes it, the questions (expressions) that a compiled function asks in it, and the changes
(statements) that come between two calls.  Every question meets every change of its world, because which change an
answer depends on is what nobody may guess.  A change of a class that is not the world's own is undone by its pair.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """Questions and changes of one subject; ``undo`` puts back what outlives the world."""

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
