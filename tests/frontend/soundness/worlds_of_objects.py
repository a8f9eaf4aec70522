"""Worlds of the standard library's objects."""

from __future__ import annotations

from .worlds import world

world(
    "context_variables",
    """
import contextvars
v=contextvars.ContextVar('v',default=1); u=contextvars.ContextVar('u')
d=0
""",
    """
v.get()
v.get(5)
u.get(3)
(v.set(9), v.get())[1]
v.name
""",
    """
v.set(2)
u.set(4)
v=u
""",
)

world(
    "environment",
    """
import os
""",
    """
os.environ.get('ZZ','x')
os.environ['ZZ'] if 'ZZ' in os.environ else 0
os.getenv('ZZ')
'ZZ' in os.environ
len(os.environ.get('ZZ',''))
""",
    """
os.environ['ZZ']='1'
os.environ['ZZ']='2'
os.environ.pop('ZZ',None)
os.putenv('ZZ','3')
""",
    undo="""
import os; os.environ.pop('ZZ',None)
""",
)

world(
    "collections",
    """
from collections import *
import collections
d=OrderedDict(a=1,b=2)
e=defaultdict(lambda: 7)
f=deque([1,2,3],maxlen=3)
g=Counter('aab')
h=ChainMap({'a':1},{'b':2})
i=UserDict(a=1)
j=namedtuple('P','x y')(1,2)
""",
    """
list(d)
list(d.items())
next(iter(d))
e['q']
len(e)
list(f), f.maxlen
(f.append(5), list(f))[1]
g['a'], g['zz'], g.most_common(1)
h['b'], list(h), len(h.maps)
i['a'], len(i)
j.x, j._fields, j._replace(x=5).x
reversed(d).__next__()
d.popitem(), list(d)
sum(g.values())
list(g.elements())
d == {'b':2,'a':1}
d == OrderedDict(b=2,a=1)
e.default_factory()
""",
    """
d.move_to_end('a')
d['a']=5
d=OrderedDict(b=2,a=1)
del d['a']
e.default_factory=int
e['q']=3
e.default_factory=None
f.append(9)
f.rotate(1)
f=deque([1,2,3],maxlen=5)
f.clear()
g['a']+=3
g.clear()
g.subtract('aaaa')
h.maps.insert(0,{'b':9})
h.maps[1]['b']=8
h=h.new_child({'b':4})
i.data={'a':4}
i['z']=1
j=j._replace(x=9)
j=namedtuple('P','y x')(1,2)
""",
)

world(
    "functools",
    """
import functools
def base(a,b=2,*,k=3): return (a,b,k)
p=functools.partial(base,1); q=functools.partial(base,1,k=5)
class T:
    n=1
    pm=functools.partialmethod(base,7)
    @functools.cached_property
    def c(self): return self.n*10
o=T()
@functools.singledispatch
def sd(x): return 'base'
@sd.register
def _(x:int): return 'int'
@functools.lru_cache
def lc(x): return x*K
K=2
@functools.total_ordering
class O:
    def __init__(s,v): s.v=v
    def __lt__(s,o): return s.v<o.v
    def __eq__(s,o): return s.v==o.v
@functools.wraps(base)
def wr(*a): return base(*a)
x1,x2=O(1),O(2)
""",
    """
p()
p(b=4)
q()
p.args, p.keywords, p.func is base
o.c
o.pm()
sd(1), sd('a'), sd(True)
sd(1.0)
sd.dispatch(int).__name__
lc(3)
lc.cache_info().hits
x1<=x2, x1>x2, x1>=x2
wr.__name__, wr.__wrapped__ is base
wr(1)
functools.reduce(lambda a,b:a+b,[1,2,K])
'c' in o.__dict__
""",
    """
base.__defaults__=(9,)
base.__kwdefaults__={'k':11}
base.__code__=(lambda a,b=2,*,k=3: 'new').__code__
p.__setstate__((base,(5,),{'k':1},None))
q.keywords['k']=8
o.n=4
o.c
o.__dict__['c']=99
T.c=functools.cached_property(lambda s: 77)
T.c=5
sd.register(float)(lambda x:'float')
sd.register(bool)(lambda x:'bool')
sd.register(int)(lambda x:'int2')
K=5
lc.cache_clear()
lc(3)
x1.v=5
O.__lt__=lambda s,o: True
O.__eq__=lambda s,o: True
wr.__wrapped__=1
wr.__name__='z'
T.pm=functools.partialmethod(base,8)
functools.reduce=lambda *a: 42
""",
    undo="""
import functools, _functools; functools.reduce=_functools.reduce
""",
)

world(
    "iterators",
    """
import itertools
c=itertools.count()
l=[1,2,3]
it=iter(l)
cy=itertools.cycle('ab')
g=(i*i for i in range(10))
z=zip([1,2,3],'abc')
m=map(lambda v:v*2,l)
r=range(5)
e=enumerate(l)
def gen():
    v=0
    while True:
        v+=(yield v) or 1
g2=gen(); next(g2)
""",
    """
next(c)
next(it,None)
next(cy)
next(g)
next(z)
next(m)
list(r)
next(e)
g2.send(5)
[next(c) for _ in range(3)]
list(itertools.islice(g,2))
sum(itertools.takewhile(lambda v:v<3,l))
list(it)
len(r), r[1], 3 in r
list(itertools.chain(l,l))
(next(it,0),next(it,0))
list(zip(it,it))
""",
    """
next(c)
next(it,0)
l.append(4)
l.clear()
c=itertools.count(10,2)
it=iter((7,8))
next(g)
g.close()
g=iter([100,200,300])
r=range(1,9,2)
next(z)
next(g2)
cy=itertools.cycle('xyz')
next(e)
e=enumerate(l,5)
""",
)

world(
    "logs",
    """
import logging, warnings
log=logging.getLogger('zzz'); log.setLevel('WARNING'); log.addHandler(logging.NullHandler()); log.propagate=False
""",
    """
log.isEnabledFor(logging.INFO)
log.level
log.getEffectiveLevel()
len(log.handlers)
(log.info('x'), 1)[1]
len(warnings.filters)>0
log.name
log.disabled
""",
    """
log.setLevel('INFO')
log.disabled=True
logging.disable(50)
log=logging.getLogger('zzy')
log.addHandler(logging.NullHandler())
""",
    undo="""
import logging; logging.disable(0)
""",
)

world(
    "buffers",
    """
ba=bytearray(b'abc'); mv=memoryview(ba); by=b'abc'; import array
ar=array.array('i',[1,2]); import string; s='a{}b'; fs=frozenset([1,2])
""",
    """
ba[0]
bytes(ba)
mv[0]
len(mv)
ar[0], len(ar)
by.hex(), by[1]
s.format(1)
sorted(fs)
list(ba)
ba.decode()
sum(ar)
""",
    """
ba[0]=5
ba.append(1)
mv[1]=7
ar[0]=4
ar.append(3)
by=b'xyz'
s='{}{}'
fs=frozenset([3])
mv=memoryview(b'zzz')
""",
)
