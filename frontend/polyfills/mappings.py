"""Methods of dictionaries and their views that compare, combine or iterate."""

# Loops, not `all` and `any` of generators: a polyfill is traced, and a generator is one more frame to trace.
# ruff: noqa: SIM110

from .tables import method_polyfill

_MISSING = object()
_KEYS = type({}.keys())
_VALUES = type({}.values())
_ITEMS = type({}.items())


@method_polyfill(dict, "fromkeys")
def dict_fromkeys(cls, iterable, value=None, /):
    result = cls()
    for key in iterable:
        result[key] = value
    return result


def dict_eq(a, b):
    if len(a) != len(b):
        return False
    for key, value in dict.items(a):
        other = dict.get(b, key, _MISSING)
        if other is _MISSING or not (value is other or value == other):
            return False
    return True


@method_polyfill(dict, "__eq__")
def dict_eq_method(self, other, /):
    return dict_eq(self, other) if isinstance(other, dict) else NotImplemented


@method_polyfill(dict, "__ne__")
def dict_ne_method(self, other, /):
    return not dict_eq(self, other) if isinstance(other, dict) else NotImplemented


@method_polyfill(dict, "__or__")
def dict_or(self, other, /):
    if not isinstance(self, dict) or not isinstance(other, dict):
        return NotImplemented
    merged = dict(self)
    merged.update(other)
    return merged


@method_polyfill(dict, "__ror__")
def dict_ror(self, other, /):
    return dict_or(other, self)


@method_polyfill(dict, "__ior__")
def dict_ior(self, other, /):
    dict.update(self, other)
    return self


@method_polyfill(dict, "__reversed__")
def dict_reversed(self, /):
    return iter(list(dict.keys(self))[::-1])


@method_polyfill(_KEYS, "__reversed__")
@method_polyfill(_VALUES, "__reversed__")
@method_polyfill(_ITEMS, "__reversed__")
def view_reversed(self, /):
    return iter(list(self)[::-1])


@method_polyfill(_KEYS, "__and__")
@method_polyfill(_ITEMS, "__and__")
def view_and(self, other, /):
    # The original walks the shorter of two views, and the items that it keeps are those it walks.
    if isinstance(other, (_KEYS, _ITEMS)) and len(other) > len(self):
        self, other = other, self
    return {item for item in other if item in self}


@method_polyfill(_KEYS, "__or__")
@method_polyfill(_ITEMS, "__or__")
def view_or(self, other, /):
    result = set(self)
    result.update(other)
    return result


@method_polyfill(_KEYS, "__sub__")
@method_polyfill(_ITEMS, "__sub__")
def view_sub(self, other, /):
    result = set(self)
    for item in other:
        result.discard(item)
    return result


@method_polyfill(_KEYS, "__xor__")
@method_polyfill(_ITEMS, "__xor__")
def view_xor(self, other, /):
    result = set(self)
    for item in set(other):
        if item in result:
            result.discard(item)
        else:
            result.add(item)
    return result


@method_polyfill(_KEYS, "isdisjoint")
@method_polyfill(_ITEMS, "isdisjoint")
def view_isdisjoint(self, other, /):
    for item in other:
        if item in self:
            return False
    return True


def _contained(a, b):
    for item in a:
        if item not in b:
            return False
    return True


def _is_set_like(value):
    return isinstance(value, (set, frozenset, _KEYS, _ITEMS))


@method_polyfill(_KEYS, "__eq__")
@method_polyfill(_ITEMS, "__eq__")
def view_eq(self, other, /):
    return len(self) == len(other) and _contained(self, other) if _is_set_like(other) else NotImplemented


@method_polyfill(_KEYS, "__ne__")
@method_polyfill(_ITEMS, "__ne__")
def view_ne(self, other, /):
    return not (len(self) == len(other) and _contained(self, other)) if _is_set_like(other) else NotImplemented


@method_polyfill(_KEYS, "__le__")
@method_polyfill(_ITEMS, "__le__")
def view_le(self, other, /):
    return len(self) <= len(other) and _contained(self, other) if _is_set_like(other) else NotImplemented


@method_polyfill(_KEYS, "__lt__")
@method_polyfill(_ITEMS, "__lt__")
def view_lt(self, other, /):
    return len(self) < len(other) and _contained(self, other) if _is_set_like(other) else NotImplemented


@method_polyfill(_KEYS, "__ge__")
@method_polyfill(_ITEMS, "__ge__")
def view_ge(self, other, /):
    return len(self) >= len(other) and _contained(other, self) if _is_set_like(other) else NotImplemented


@method_polyfill(_KEYS, "__gt__")
@method_polyfill(_ITEMS, "__gt__")
def view_gt(self, other, /):
    return len(self) > len(other) and _contained(other, self) if _is_set_like(other) else NotImplemented
