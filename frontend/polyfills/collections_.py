"""C helpers of collections: comparison and union of OrderedDict, the counting loop of Counter, searches in a deque."""

import collections
import sys

from .containers import is_or_equals
from .mappings import dict_eq, view_reversed
from .tables import method_polyfill, polyfill

_VIEWS = tuple(type(view) for view in (lambda d: (d.keys(), d.values(), d.items()))(collections.OrderedDict()))


def ordered_dict_eq(a, b):
    """Two OrderedDicts are equal only when their keys also come in the same order."""
    if not dict_eq(a, b):
        return False
    if isinstance(b, collections.OrderedDict):
        for key, other in zip(a, b, strict=True):
            if not (key is other or key == other):
                return False
    return True


@method_polyfill(collections.OrderedDict, "__eq__")
def ordered_dict_eq_method(self, other, /):
    return ordered_dict_eq(self, other) if isinstance(other, dict) else NotImplemented


@method_polyfill(collections.OrderedDict, "__ne__")
def ordered_dict_ne_method(self, other, /):
    return not ordered_dict_eq(self, other) if isinstance(other, dict) else NotImplemented


@method_polyfill(collections.OrderedDict, "__or__")
def ordered_dict_or(self, other, /):
    if not isinstance(self, dict) or not isinstance(other, dict):
        return NotImplemented
    merged = type(self)(self)
    merged.update(other)
    return merged


@method_polyfill(collections.OrderedDict, "__ror__")
def ordered_dict_ror(self, other, /):
    if not isinstance(other, dict):
        return NotImplemented
    merged = type(self)(other)
    merged.update(self)
    return merged


@method_polyfill(collections.OrderedDict, "__ior__")
def ordered_dict_ior(self, other, /):
    self.update(other)
    return self


@method_polyfill(collections.OrderedDict, "fromkeys")
def ordered_dict_fromkeys(cls, iterable, value=None):
    result = cls()
    for key in iterable:
        result[key] = value
    return result


@method_polyfill(collections.OrderedDict, "__reversed__")
def ordered_dict_reversed(self, /):
    return iter(list(self)[::-1])


for _view in _VIEWS:
    method_polyfill(_view, "__reversed__")(view_reversed)


@polyfill(collections._count_elements)
def count_elements(mapping, iterable, /):
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


@method_polyfill(collections.deque, "count")
def deque_count(self, value, /):
    count = 0
    for item in self:
        if is_or_equals(item, value):
            count += 1
    return count


@method_polyfill(collections.deque, "index")
def deque_index(self, value, start=0, stop=sys.maxsize, /):
    size = len(self)
    start, stop = max(start + size, 0) if start < 0 else start, max(stop + size, 0) if stop < 0 else stop
    for index in range(start, min(stop, size)):
        found = is_or_equals(self[index], value)
        if len(self) != size:
            raise RuntimeError("deque mutated during iteration")
        if found:
            return index
    raise ValueError(f"{value!r} is not in deque")


@method_polyfill(collections.deque, "remove")
def deque_remove(self, value, /):
    size = len(self)
    for index in range(size):
        found = is_or_equals(self[index], value)
        if len(self) != size:
            raise IndexError("deque mutated during remove().")
        if found:
            del self[index]
            return
    raise ValueError(f"{value!r} is not in deque")
