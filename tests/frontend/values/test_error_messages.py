"""What raises in eager raises the same compiled, in the same words: calls with wrong arguments, and operators."""

import pytest
import torch

import torchmux

_EXPRESSIONS = r"""
g()
g(1)
g(1,2,3,4)
g(1,2,z=3)
g(1,b=2,a=3)
g(*[1],**{"a":2})
g(1,2,**{"c":1},**{"c":2})
h(1)
h(1,k=2,j=3)
h(k=2)
kwonly(1)
kwonly(k=1,q=2)
A(1,2,3)
A()
A(1).meth()
A(1).meth(1,2)
A.meth(1)
A(1).prop
A(1).prop2
A(1).missing
A(1).val()
A.sm(1,2)
A.cm(1,2)
A(1)+1
1+A(1)
A(1)<A(2)
A(1)[0]
A(1)()
len(A(1))
iter(A(1))
bool(A(1))
int(A(1))
float(A(1))
"%d"%A(1)
"{:d}".format("x")
"{a}".format(b=1)
"{0}{}".format(1,2)
"%s %s"%(1,)
"%s"%(1,2)
f"{'x':d}"
f"{1:q}"
"abc"[5]
"abc"["a"]
"abc".split("")
"abc".replace(1,2)
"a".center("x")
"a".join("bc",1)
"abc".encode("nope")
b"abc".decode("nope")
"a"*"b"
"a"+b"b"
"abc".index("q")
"abc".rindex("q")
"x".zfill(None)
int("1.5")
int("z",36)
int([],2)
int("9",5)
float("a.b")
float([])
complex("1+")
complex([])
bool(1,2)
str(b"a","x","y","z")
list(5)
tuple(None)
set([[]])
dict([1])
dict([(1,2,3)])
dict(5)
frozenset(3)
range("a")
range(1.5)
range()
range(1,2,0)
slice()
enumerate()
enumerate(5)
zip(1)
map(len)
map()
list(map(len,[1]))
filter(None)
list(filter(len,[1]))
reversed(5)
reversed({1})
sorted(5)
sorted([1,None])
sorted([1],reverse="x")
sorted([1],key=5)
min()
min([])
min(1)
min([],key=len)
max([1],default=1,foo=2)
max(1,"a")
max(1,2,default=3)
sum(5)
sum([[1],[2]])
sum(["a"],"")
sum([1],"")
abs("a")
abs(None)
divmod(1,"a")
divmod(1.0,0)
pow(0,-1)
pow(2,3,0)
pow("a",2)
round("a")
round(1,"a")
round(None)
hash([])
hash({})
chr("a")
chr(1114112)
ord("ab")
ord(5)
hex("a")
bin(1.5)
oct(None)
isinstance(1,"a")
issubclass(1,int)
issubclass(int,5)
getattr(1)
getattr(1,"x")
getattr(1,5)
setattr(1,"x",2)
setattr([],"x",2)
delattr(A(1),"zz")
hasattr(1,2)
callable()
next([])
next(iter([]))
next(iter([]),1,2)
iter(5)
iter(5,6)
all(5)
any(None)
[1,2][2]
[1,2]["a"]
[1,2][1.0]
[1,2].pop(5)
[].pop()
[1].remove(3)
[1].index(3)
[1,2].insert("a",1)
[1].extend(5)
[3,"a"].sort()
[1].append()
[1].append(1,2)
[1].count()
[1]+(2,)
[1]*1.5
[1]<[None]
[1]<5
(1,)[3]
(1,).index(3)
(1,)+[1]
(1,2)<(1,"a")
{1:2}[3]
{}["a"]
{}.pop("a")
{}.popitem()
{}.get()
{}.update(5)
{}.update([1])
{}.update([(1,2,3)])
{[]:1}
{}[[]]
{1}.remove(2)
set().pop()
{1}.add([])
{1}|[2]
{1}<5
{1}.union(5)
{1}.update(5)
{1}.intersection(None)
frozenset([1]).add(2)
{1:2}<{3:4}
{1:2}+{3:4}
{1:2}|5
1/0
1//0
1%0
1.0/0
1.0//0
1.0%0
0**-1
0.0**-1
(-1)**0.5
1<<-1
1>>-1
1<<1.5
1&1.5
~1.5
-"a"
+None
not_defined
1+None
None+1
None[0]
None()
5()
5[0]
5 in 5
1 in "a"
None in "a"
[] in {1}
[] in {}
1<None
1<"a"
1@2
"a"-"b"
[1]-[1]
True+"a"
1 if not_def2 else 2
(lambda x: x)()
(lambda x: x)(1,2)
(lambda *, x: x)()
(lambda x, /: x)(x=1)
(lambda **k: k)(1)
(lambda *a: a)(b=1)
math.sqrt(-1)
math.sqrt("a")
math.log(-1)
math.log(0)
math.log(1,1)
math.acos(2)
math.exp(1000)
math.floor("a")
math.floor(float("inf"))
math.ceil(float("nan"))
math.factorial(-1)
math.factorial(1.5)
math.gcd(1.5)
math.comb(1)
math.fmod(1,0)
math.pow(0,-1)
math.isqrt(-1)
math.prod(5)
math.nope
int(float("inf"))
int(float("nan"))
round(float("nan"))
round(float("inf"))
(1).foo
(1.5).hex(1)
(5).to_bytes(0,"big")
(500).to_bytes(1,"big")
int.from_bytes(5,"big")
"a".foo
"a".upper(1)
[].foo
{}.foo
().foo
A.foo
len()
len(1,2)
len(5)
type()
type(1,2)
object(1)
object().x
functools.partial()
functools.partial(5)
functools.partial(g,1)()
functools.reduce(lambda a,b:a,[])
functools.reduce(5,[1,2])
itertools.islice([1],-1)
itertools.islice([1],"a")
list(itertools.chain(5))
list(itertools.product(5))
itertools.repeat()
list(itertools.zip_longest(5))
list(itertools.combinations([1],-1))
list(itertools.accumulate(5))
list(itertools.groupby(5))
operator.add(1)
operator.add(1,"a")
operator.itemgetter()
operator.itemgetter(1)([])
operator.attrgetter("x.y")(A(1))
operator.attrgetter(1)
operator.methodcaller("zz")(1)
operator.index(1.5)
operator.truediv(1,0)
collections.OrderedDict([1])
collections.OrderedDict().popitem()
collections.OrderedDict().move_to_end(1)
collections.defaultdict(5)
collections.defaultdict(list)["a"].foo
collections.defaultdict()["a"]
collections.Counter(5)
collections.deque([1]).remove(2)
collections.deque().pop()
collections.deque().popleft()
collections.deque([1])[5]
collections.deque(5)
collections.deque([1],-1)
NT(1)
NT(1,2,3)
NT(1,q=2)
NT(1,2)._replace(z=1)
NT(1,2).zz
NT._make([1])
DC()
DC(1,2,3)
DC(1,z=1)
DC("a")<DC(1)
FDC(1).__setattr__("a",2)
EN("zz")
EN["zz"]
EN.zz
EN(5)
EN.X.foo
EN.X<EN.Y
EN()
IE.A<"a"
IE(99)
""".strip().split("\n")

_NAMES = """
import abc, collections, dataclasses, enum, functools, itertools, math, operator
from collections import namedtuple
log = []
def g(a, b, c=1): return a
def h(a, *, k): return a
def kwonly(*, k): return k
class A:
    def __init__(s, v): s.val = v
    def meth(s, x): return x
    @property
    def prop(s): raise ValueError("in prop")
    @property
    def prop2(s): return s.nothere
    @staticmethod
    def sm(x): return x
    @classmethod
    def cm(c, x): return x
NT = namedtuple("NT", "a b")
@dataclasses.dataclass(order=True)
class DC:
    a: int
    b: int = 2
@dataclasses.dataclass(frozen=True)
class FDC:
    a: int
class EN(enum.Enum):
    X = "x"; Y = "y"
class IE(enum.IntEnum):
    A = 1
class Slots:
    __slots__ = ("a",)
class Ab(abc.ABC):
    @abc.abstractmethod
    def m(self): ...
"""
_TOGETHER = 12


def _function(expressions):
    lines = [
        f"    try: seen.append(({number}, {each}))\n"
        f"    except Exception as error: seen.append(({number}, type(error), str(error)))"
        for number, each in enumerate(expressions)
    ]
    names = {"__name__": "program"}
    exec(_NAMES, names)
    exec("def f(x):\n    seen = []\n" + "\n".join(lines) + "\n    return x + 1, [repr(each) for each in seen]", names)
    return names["f"]


@pytest.mark.parametrize("start", range(0, len(_EXPRESSIONS), _TOGETHER))
def test_errors_of_expressions(start):
    function = _function(_EXPRESSIONS[start : start + _TOGETHER])
    compiled = torchmux.compile(function, backend="eager")
    wanted = function(torch.ones(2))[1]
    assert compiled(torch.ones(2))[1] == wanted
    assert compiled(torch.ones(2))[1] == wanted
    assert all(each.kind != "TM000" for each in torchmux.report(compiled).breaks)
