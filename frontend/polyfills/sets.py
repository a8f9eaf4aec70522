"""Methods of set and frozenset that combine or compare; the ones that only store or remove are the interpreter's own.

The methods take any iterables, the operators only sets. Results are plain sets and frozensets, also for subclasses.
"""

# Loops, not `all` and `any` of generators: a polyfill is traced, and a generator is one more frame to trace.
# ruff: noqa: SIM110

from .tables import method_polyfill

_SETS = (set, frozenset)


def _for_sets(*names):
    """Register one function for both classes."""

    def register(function):
        method_polyfill(set, *names)(function)
        method_polyfill(frozenset, *names)(function)
        return function

    return register


def _plain(cls, items):
    return set(items) if issubclass(cls, set) else frozenset(items)


def _common(a, b):
    # Of two sets the smaller is walked. It matters which, for equal items that are not the same (1 and True).
    if isinstance(b, _SETS) and len(b) > len(a):
        a, b = b, a
    return [item for item in b if item in a]


def _as_set(value):
    return value if isinstance(value, _SETS) else set(value)


def _only_in_one(a, b):
    """The symmetric difference, as a set built from `b`."""
    result = set(b)
    for item in a:
        if item in result:
            result.discard(item)
        else:
            result.add(item)
    return result


@_for_sets("union")
def union(self, *others):
    result = set(self)
    for other in others:
        result.update(other)
    return _plain(type(self), result)


@_for_sets("intersection")
def intersection(self, *others):
    result = set(self)
    for other in others:
        result = set(_common(result, other))
    return _plain(type(self), result)


@_for_sets("difference")
def difference(self, *others):
    result = set(self)
    for other in others:
        for item in other:
            result.discard(item)
    return _plain(type(self), result)


@_for_sets("symmetric_difference")
def symmetric_difference(self, other, /):
    return _plain(type(self), _only_in_one(self, other))


@_for_sets("issubset")
def issubset(self, other, /):
    other = _as_set(other)
    if len(self) > len(other):
        return False
    for item in self:
        if item not in other:
            return False
    return True


@_for_sets("issuperset")
def issuperset(self, other, /):
    for item in other:
        if item not in self:
            return False
    return True


@_for_sets("isdisjoint")
def isdisjoint(self, other, /):
    for item in other:
        if item in self:
            return False
    return True


@method_polyfill(set, "intersection_update")
def intersection_update(self, *others):
    kept = intersection(self, *others)
    self.clear()
    self.update(kept)


@method_polyfill(set, "difference_update")
def difference_update(self, *others):
    for other in others:
        # Removing what is being walked would go wrong when a set is taken from itself.
        for item in list(other):
            self.discard(item)


@method_polyfill(set, "symmetric_difference_update")
def symmetric_difference_update(self, other, /):
    for item in list(_as_set(other)):
        if item in self:
            self.discard(item)
        else:
            self.add(item)


@_for_sets("__or__")
def or_(self, other, /):
    if not isinstance(self, _SETS) or not isinstance(other, _SETS):
        return NotImplemented
    return union(self, other)


@_for_sets("__and__")
def and_(self, other, /):
    if not isinstance(self, _SETS) or not isinstance(other, _SETS):
        return NotImplemented
    return intersection(self, other)


@_for_sets("__sub__")
def sub(self, other, /):
    if not isinstance(self, _SETS) or not isinstance(other, _SETS):
        return NotImplemented
    return difference(self, other)


@_for_sets("__xor__")
def xor(self, other, /):
    if not isinstance(self, _SETS) or not isinstance(other, _SETS):
        return NotImplemented
    return symmetric_difference(self, other)


@_for_sets("__ror__")
def ror(self, other, /):
    return or_(other, self)


@_for_sets("__rand__")
def rand(self, other, /):
    return and_(other, self)


@_for_sets("__rsub__")
def rsub(self, other, /):
    return sub(other, self)


@_for_sets("__rxor__")
def rxor(self, other, /):
    return xor(other, self)


@method_polyfill(set, "__ior__")
def ior(self, other, /):
    if not isinstance(other, _SETS):
        return NotImplemented
    self.update(other)
    return self


@method_polyfill(set, "__iand__")
def iand(self, other, /):
    if not isinstance(other, _SETS):
        return NotImplemented
    intersection_update(self, other)
    return self


@method_polyfill(set, "__isub__")
def isub(self, other, /):
    if not isinstance(other, _SETS):
        return NotImplemented
    difference_update(self, other)
    return self


@method_polyfill(set, "__ixor__")
def ixor(self, other, /):
    if not isinstance(other, _SETS):
        return NotImplemented
    symmetric_difference_update(self, other)
    return self


@_for_sets("__eq__")
def eq(self, other, /):
    return len(self) == len(other) and issubset(self, other) if isinstance(other, _SETS) else NotImplemented


@_for_sets("__ne__")
def ne(self, other, /):
    return not (len(self) == len(other) and issubset(self, other)) if isinstance(other, _SETS) else NotImplemented


@_for_sets("__le__")
def le(self, other, /):
    return issubset(self, other) if isinstance(other, _SETS) else NotImplemented


@_for_sets("__lt__")
def lt(self, other, /):
    return len(self) < len(other) and issubset(self, other) if isinstance(other, _SETS) else NotImplemented


@_for_sets("__ge__")
def ge(self, other, /):
    return issubset(other, self) if isinstance(other, _SETS) else NotImplemented


@_for_sets("__gt__")
def gt(self, other, /):
    return len(self) > len(other) and issubset(other, self) if isinstance(other, _SETS) else NotImplemented
