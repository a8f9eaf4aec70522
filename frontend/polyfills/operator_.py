"""The functions of `operator` as the syntax they represent, and its three kinds of getters in plain Python."""

import operator

from .containers import is_or_equals
from .tables import instance_polyfill, polyfill, stands_for


@polyfill(operator.lt)
def lt(a, b, /):
    return a < b


@polyfill(operator.le)
def le(a, b, /):
    return a <= b


@polyfill(operator.eq)
def eq(a, b, /):
    return a == b


@polyfill(operator.ne)
def ne(a, b, /):
    return a != b


@polyfill(operator.ge)
def ge(a, b, /):
    return a >= b


@polyfill(operator.gt)
def gt(a, b, /):
    return a > b


@polyfill(operator.not_)
def not_(a, /):
    return not a


@polyfill(operator.truth)
def truth(a, /):
    return bool(a)


@polyfill(operator.is_)
def is_(a, b, /):
    return a is b


@polyfill(operator.is_not)
def is_not(a, b, /):
    return a is not b


@polyfill(operator.abs)
def abs_(a, /):
    return abs(a)


@polyfill(operator.add)
def add(a, b, /):
    return a + b


@polyfill(operator.and_)
def and_(a, b, /):
    return a & b


@polyfill(operator.floordiv)
def floordiv(a, b, /):
    return a // b


@polyfill(operator.invert)
def invert(a, /):
    return ~a


@polyfill(operator.lshift)
def lshift(a, b, /):
    return a << b


@polyfill(operator.mod)
def mod(a, b, /):
    return a % b


@polyfill(operator.mul)
def mul(a, b, /):
    return a * b


@polyfill(operator.matmul)
def matmul(a, b, /):
    return a @ b


@polyfill(operator.neg)
def neg(a, /):
    return -a


@polyfill(operator.or_)
def or_(a, b, /):
    return a | b


@polyfill(operator.pos)
def pos(a, /):
    return +a


@polyfill(operator.pow)
def pow_(a, b, /):
    return a**b


@polyfill(operator.rshift)
def rshift(a, b, /):
    return a >> b


@polyfill(operator.sub)
def sub(a, b, /):
    return a - b


@polyfill(operator.truediv)
def truediv(a, b, /):
    return a / b


@polyfill(operator.xor)
def xor(a, b, /):
    return a ^ b


@polyfill(operator.getitem)
def getitem(a, b, /):
    return a[b]


@polyfill(operator.setitem)
def setitem(a, b, c, /):
    a[b] = c


@polyfill(operator.delitem)
def delitem(a, b, /):
    del a[b]


@polyfill(operator.iadd)
def iadd(a, b, /):
    a += b
    return a


@polyfill(operator.iand)
def iand(a, b, /):
    a &= b
    return a


@polyfill(operator.ifloordiv)
def ifloordiv(a, b, /):
    a //= b
    return a


@polyfill(operator.ilshift)
def ilshift(a, b, /):
    a <<= b
    return a


@polyfill(operator.imod)
def imod(a, b, /):
    a %= b
    return a


@polyfill(operator.imul)
def imul(a, b, /):
    a *= b
    return a


@polyfill(operator.imatmul)
def imatmul(a, b, /):
    a @= b
    return a


@polyfill(operator.ior)
def ior(a, b, /):
    a |= b
    return a


@polyfill(operator.ipow)
def ipow(a, b, /):
    a **= b
    return a


@polyfill(operator.irshift)
def irshift(a, b, /):
    a >>= b
    return a


@polyfill(operator.isub)
def isub(a, b, /):
    a -= b
    return a


@polyfill(operator.itruediv)
def itruediv(a, b, /):
    a /= b
    return a


@polyfill(operator.ixor)
def ixor(a, b, /):
    a ^= b
    return a


@polyfill(operator.call)
def call(function, /, *args, **kwargs):
    return function(*args, **kwargs)


@polyfill(operator.concat)
def concat(a, b, /):
    if not hasattr(type(a), "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    return a + b


@polyfill(operator.iconcat)
def iconcat(a, b, /):
    if not hasattr(type(a), "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    a += b
    return a


@polyfill(operator.contains)
def contains(a, b, /):
    return b in a


@polyfill(operator.countOf)
def count_of(a, b, /):
    count = 0
    for item in a:
        if is_or_equals(item, b):
            count += 1
    return count


@polyfill(operator.indexOf)
def index_of(a, b, /):
    for index, item in enumerate(a):
        if is_or_equals(item, b):
            return index
    raise ValueError("sequence.index(x): x not in sequence")


def call_itemgetter(items, obj, /):
    if len(items) == 1:
        return obj[items[0]]
    return tuple([obj[item] for item in items])


def call_attrgetter(names, obj, /):
    if len(names) == 1:
        return _follow(obj, names[0])
    return tuple([_follow(obj, name) for name in names])


def _follow(obj, dotted_name):
    for name in dotted_name.split("."):
        obj = getattr(obj, name)
    return obj


def call_methodcaller(name, args, kwargs, obj, /):
    return getattr(obj, name)(*args, **kwargs)


@instance_polyfill(operator.itemgetter)
def take_itemgetter_apart(getter):
    return call_itemgetter, (getter.__reduce__()[1],)


@instance_polyfill(operator.attrgetter)
def take_attrgetter_apart(getter):
    return call_attrgetter, (getter.__reduce__()[1],)


@instance_polyfill(operator.methodcaller)
def take_methodcaller_apart(caller):
    maker, args = caller.__reduce__()
    # With keywords it pickles as a partial of its class that holds the name and the keywords.
    if maker is operator.methodcaller:
        name, *args = args
        return call_methodcaller, (name, tuple(args), {})
    return call_methodcaller, (maker.args[0], args, maker.keywords)


@stands_for(operator.itemgetter)
class ItemGetter:
    def __init__(self, items):
        self.items = items

    def __call__(self, obj, /):
        return call_itemgetter(self.items, obj)


@polyfill(operator.itemgetter)
def itemgetter(*items):
    if not items:
        raise TypeError("itemgetter expected 1 argument, got 0")
    return ItemGetter(items)


@stands_for(operator.attrgetter)
class AttrGetter:
    def __init__(self, names):
        self.names = names

    def __call__(self, obj, /):
        return call_attrgetter(self.names, obj)


@polyfill(operator.attrgetter)
def attrgetter(*names):
    if not names:
        raise TypeError("attrgetter expected 1 argument, got 0")
    for name in names:
        if not isinstance(name, str):
            raise TypeError("attribute name must be a string")
    return AttrGetter(names)


@stands_for(operator.methodcaller)
class MethodCaller:
    def __init__(self, name, args, kwargs):
        self.name = name
        self.args = args
        self.kwargs = kwargs

    def __call__(self, obj, /):
        return call_methodcaller(self.name, self.args, self.kwargs, obj)


@polyfill(operator.methodcaller)
def methodcaller(*name_and_args, **kwargs):
    if not name_and_args:
        raise TypeError("methodcaller needs at least one argument, the method name")
    name, *args = name_and_args
    if not isinstance(name, str):
        raise TypeError("method name must be a string")
    return MethodCaller(name, tuple(args), kwargs)
