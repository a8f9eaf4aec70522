"""Worlds of classes with special methods, descriptors, enumerations, data classes and functions."""

from __future__ import annotations

from .worlds import world

world(
    "functions",
    """
def mk():
    n=1
    def inner(a=[0]):
        return n+a[0]
    def set_(v):
        nonlocal n
        n=v
    return inner,set_
f,s=mk()
def g(a,*,b=1):
    'doc'
    return a+b+G
G=1
h=lambda: G
class M:
    def m(self): return 1
mm=M().m
""",
    """
f()
g(1)
h()
g.__doc__, g.__name__, g.__defaults__, g.__kwdefaults__
f.__closure__[0].cell_contents
g.__code__.co_argcount
g.attr if hasattr(g,'attr') else 0
mm()
mm.__func__ is M.m
mm.__self__ is not None
g.__globals__['G']
len(g.__dict__)
g.__module__
callable(g)
g.__annotations__
""",
    """
s(5)
f.__defaults__[0][0]=3
f.__defaults__=([9],)
f.__closure__[0].cell_contents=8
g.__kwdefaults__['b']=6
G=4
g.attr=3
g.__doc__='x'
g.__code__=(lambda a,*,b=1: 0).__code__
M.m=lambda self: 2
mm=types.MethodType(lambda self: 3, M())
g.__name__='q'
h.__code__=(lambda: 55).__code__
g.__module__='w'
g.__annotations__={'a':int}
mm.__func__.__code__=(lambda self: 4).__code__
""",
)

world(
    "special_methods",
    """
class A:
    v=1
    def f(self): return 1
    def __add__(s,o): return 'A+'
    def __radd__(s,o): return 'A r'
    def __index__(s): return 1
    def __contains__(s,k): return k==s.v
    def __getitem__(s,k): return k*s.v
    def __class_getitem__(c,k): return k
    def __call__(s,*a,**k): return len(a)+s.v
    def __iter__(s): return iter([s.v])
    def __len__(s): return s.v
    def __enter__(s): return s.v
    def __exit__(s,*a): return False
    def __float__(s): return 1.5
    def __hash__(s): return s.v
    def __eq__(s,o): return s.v==getattr(o,'v',0)
    def __format__(s,f): return f'{s.v}{f}'
    def __matmul__(s,o): return s.v
    def __iadd__(s,o): s.v+=o; return s
    def __missing__(s,k): return 5
    def __setattr__(s,n,v): object.__setattr__(s,n,v)
class B(A):
    def f(self): return super().f()+10
    @property
    def g(self): return super().v
class D(dict):
    def __missing__(s,k): return k+'!'
o=B(); dd=D()
""",
    """
o.f()
o.g
o+1
1+o
[1,2,3][o]
1 in o
o[3]
B[4]
o(1,2)
list(o)
len(o)
float(o)
hash(o)
o==B()
f'{o:x}'
o@1
dd['q']
{o:1}[B()]
bool(o)
[*o]
range(5)[o]
torch.ones(3)[o]
math.floor(float(o))
isinstance(o,A)
""",
    """
A.v=2
o.v=3
A.f=lambda s: 5
B.f=lambda s: super(B,s).f()+100
A.__add__=lambda s,k:'new'
B.__add__=lambda s,k:'newB'
A.__radd__=lambda s,k:'newr'
A.__index__=lambda s: 0
A.__contains__=lambda s,k: True
A.__getitem__=lambda s,k: 'gi'
A.__call__=lambda s,*a: 'call'
A.__iter__=lambda s: iter('ab')
A.__len__=lambda s: 4
A.__float__=lambda s: 9.5
A.__eq__=lambda s,k: True
A.__format__=lambda s,f:'fmt'
B.__matmul__=lambda s,k: 'mm'
D.__missing__=lambda s,k: 'mis'
dd['q']=1
del D.__missing__
B.v=property(lambda s: 8)
B.__bool__=lambda s: False
o.f=lambda: 'inst'
B.__bases__=(type('Z',(A,),{'v':6,'f':lambda s: 60}),)
del A.__contains__
""",
)

world(
    "dataclasses_and_enums",
    """
import sys, types as made
sys.modules['soundness_world'] = made.ModuleType('soundness_world')
import enum, dataclasses, typing
class E(enum.Enum):
    A=1
    B=2
    @property
    def dbl(s): return s.value*2
class Fl(enum.Flag):
    X=1
    Y=2
@dataclasses.dataclass
class P:
    x:int=1
    y:list=dataclasses.field(default_factory=list)
@dataclasses.dataclass(frozen=True)
class Q:
    z:int=3
class TD(typing.NamedTuple):
    a:int=1
p=P(); q=Q(); e=E.A; f=Fl.X; t=TD()
""",
    """
e.value, e.name, e.dbl
e is E.A, e==E.A
E(1).name, E['B'].value
[m.name for m in E]
len(E)
(f|Fl.Y).value, Fl.X in f
p.x, p.y
p==P()
dataclasses.asdict(p)
[g.name for g in dataclasses.fields(p)]
dataclasses.replace(p,x=5).x
q.z, hash(q)==hash(Q())
t.a, t._asdict()
typing.get_type_hints(P)['x'].__name__
dataclasses.is_dataclass(p)
P().x
P(y=[1]).y
E.__members__['A'].value
""",
    """
e=E.B
E.A._value_=5
E.dbl=property(lambda s: 0)
f=Fl.Y
f=Fl.X|Fl.Y
p.x=4
p.y.append(1)
P.x=8
p.__class__=Q
object.__setattr__(q,'z',7)
t=TD(5)
P.__eq__=lambda a,b: 'eq'
P.__init__=lambda s,**k: setattr(s,'x',44)
P.__annotations__['x']=float
E.A._name_='ZZ'
E._member_map_['A']=E.B
q=Q(9)
p=P(2)
E._value2member_map_[1]=E.B
""",
    undo="import sys; sys.modules.pop('soundness_world', None)",
)

world(
    "enumerations",
    """
import enum
G=1
class EM(enum.EnumMeta):
    def __getitem__(c,k): return super().__getitem__(k if G==1 else 'B')
    def __iter__(c): return iter([G])
    def __contains__(c,k): return G==1
    def __len__(c): return G
    def __call__(c,*a,**k): return super().__call__(*a) if G==1 else 'called'
class E(enum.Enum):
    A=1
    B=2
    @classmethod
    def _missing_(cls,v): return cls.A if G==1 else cls.B
    def __eq__(s,o): return G==1
    def __hash__(s): return 3
    def __str__(s): return str(G)
    def m(s): return G
    @property
    def pr(s): return G+s.value
class H(enum.Enum, metaclass=EM):
    A=1
    B=2
class I(enum.IntEnum):
    A=1
    B=2
    @classmethod
    def _missing_(cls,v): return cls.A if G==1 else cls.B
class Fg(enum.IntFlag):
    A=1
    B=2
class S(str,enum.Enum):
    A='a'
    def __str__(s): return s.value+str(G)
i=I.A
""",
    """
E(5).name
E.A==E.B
str(E.A)
E.A.m()
E.A.pr
H['A'].name
list(H)
3 in H
len(H)
H(1)
I(7).name
I.A+1
Fg(3), Fg(7).value
str(S.A), f'{S.A}', S.A+'q'
i+1, i==1, i is I.A, i.name
{E.A:1}.get(E.B,0)
E.A in [E.B]
[1,2,3][i]
torch.ones(3)[i]
bool(E.A)
repr(E.A)
E.A.value in (1,2)
I.A<I.B
max(I).name
sorted(I)[0].name
I.__members__['A'].name
""",
    """
G=2
E._missing_=classmethod(lambda c,v: c.B)
I._missing_=classmethod(lambda c,v: c.B)
i=I.B
i=1
EM.__getitem__=lambda c,k: 5
EM.__iter__=lambda c: iter('z')
E.__eq__=lambda a,b: False
E.__str__=lambda a: 'new'
S.__str__=lambda a:'news'
S.__format__=lambda a,b:'newf'
I.__add__=lambda a,b: 'newa'
I.__lt__=lambda a,b: 'newl'
E.m=lambda s: 66
I.__index__=lambda s: 0
E.__bool__=lambda s: False
E.__repr__=lambda s:'rr'
EM.__call__=lambda c,*a: 8
I.__hash__=lambda s: 5
E.value=3
E.name=property(lambda s: 'nn')
EM.__contains__=lambda c,k: 'in'
I.__eq__=lambda a,b: False
""",
)

world(
    "descriptors",
    """
class Dsc:
    def __init__(s): s.k=1
    def __get__(s,o,t): return s.k if o is None else (s.k,o.z)
    def __set__(s,o,v): o.__dict__['zz']=v
    def __set_name__(s,o,n): s.n=n
class ND:
    k=5
    def __get__(s,o,t): return s.k
class A:
    d=Dsc(); nd=ND(); z=1
    def __getattr__(s,n):
        if n=='dyn': return s.z*100
        raise AttributeError(n)
    def __init_subclass__(cls,**k): cls.reg=1
    __slots__=('sl','__dict__')
class B(A): pass
o=B(); o.sl=4
class P:
    @property
    def v(s): return s._v
    @v.setter
    def v(s,x): s._v=x*2
    _v=3
p=P()
""",
    """
o.d
o.nd
A.d
o.dyn
o.sl
hasattr(o,'dyn'), hasattr(o,'no')
getattr(o,'no',7)
B.reg
(setattr(p,'v',5), p.v)[1]
p.v
(setattr(o,'d',3), o.__dict__.get('zz'))[1]
type(o).d
vars(o)
o.__slots__[0]
B.__dict__.get('d',1)
A.__dict__['nd'].k
""",
    """
A.__dict__['d'].k=2
o.z=5
A.z=6
ND.k=9
o.__dict__['nd']=44
o.__dict__['d']=45
Dsc.__get__=lambda s,o,t: 'g'
A.__getattr__=lambda s,n: 'ga'
A.no=1
o.sl=8
del o.sl
B.d=11
P._v=8
p._v=7
P.v=property(lambda s: 'nv')
P.v=P.v.setter(lambda s,x: setattr(s,'_v',x*3))
B.reg=4
Dsc.__set__=lambda s,o,v: o.__dict__.__setitem__('zz','w')
del Dsc.__set__
A.d=3
ND.__set__=lambda s,o,v: None
o.dyn=6
B.__slots__=('q',)
""",
)

world(
    "operators_of_classes",
    """
G=1
class M(type):
    def __or__(c,o): return ('or',G,o)
    def __ror__(c,o): return ('ror',G,o)
    def __add__(c,o): return c.n+G
    def __iadd__(c,o): return c.n-G
    def __eq__(c,o): return o is c or o==c.n
    def __ne__(c,o): return o!=c.n
    def __hash__(c): return G
    def __lt__(c,o): return G==1
    def __getitem__(c,k): return c.n+G
    def __setitem__(c,k,v): c.d[k]=v+G
    def __delitem__(c,k): c.d.pop(k,G)
    def __iter__(c): return iter([G,c.n])
    def __reversed__(c): return iter([c.n,G])
    def __next__(c): return G
    def __neg__(c): return -c.n*G
    def __bool__(c): return G==1
    def __len__(c): return G
    def __contains__(c,k): return k==G
    def __matmul__(c,t): return t*c.n
    def __rmul__(c,t): return t*c.n
    def __enter__(c): return G
    def __exit__(c,*a): return False
    def __int__(c): return G
    def __index__(c): return G
    def __repr__(c): return str(G)
    def __format__(c,s): return s+str(G)
    def __instancecheck__(c,o): return o==G
    def __subclasscheck__(c,o): return G==1
    def __dir__(c): return ['z']*G
class A(metaclass=M):
    n=2
    d={}
d=A.d
def entered():
    with A as w: return w
def added(a):
    a+=1
    return a
""",
    """
A|1
1|A
A+1
added(A)
A==2
2==A
A!=2
A is A
A<1
1>A
A[0]
A.__setitem__('k',1)
A.d.get('k')
[A.__delitem__('q')]
list(A)
[*A]
max(A)
list(reversed(A))
next(A)
-A
not A
len(A)
2 in A
A@x
x*A
entered()
int(A)
[1,2,3][A]
repr(A)
str(A)
f'{A:q}'
'%s' % A
isinstance(1,A)
issubclass(int,A)
dir(A)
{2:5}.get(A)
A in [2]
[A]==[2]
hash(A)
bool(A)
sum(A)
""",
    """
G=2
A.n=3
M.__or__=lambda c,o: 'new'
M.__ror__=lambda c,o: 'new'
del M.__add__
M.__iadd__=lambda c,o: 7
M.__eq__=lambda c,o: False
M.__ne__=lambda c,o: False
M.__hash__=lambda c: 2
M.__lt__=lambda c,o: 5
M.__getitem__=lambda c,k: 10
M.__setitem__=lambda c,k,v: c.d.update(k=9)
M.__iter__=lambda c: iter([7,8])
M.__next__=lambda c: 6
M.__neg__=lambda c: 0
del M.__bool__
M.__contains__=lambda c,k: True
M.__matmul__=lambda c,t: t
del M.__rmul__
M.__enter__=lambda c: 100
M.__int__=lambda c: 4
M.__index__=lambda c: 0
M.__repr__=lambda c: 'rr'
M.__format__=lambda c,s: 'ff'
M.__instancecheck__=lambda c,o: False
M.__subclasscheck__=lambda c,o: False
del M.__reversed__
""",
)
