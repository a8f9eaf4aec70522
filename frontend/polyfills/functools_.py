"""The C function of functools that calls back into Python."""

import functools

from .tables import polyfill

_MISSING = object()


@polyfill(functools.reduce)
def reduce(function, iterable, /, *initial):
    if len(initial) > 1:
        raise TypeError(f"reduce expected at most 3 arguments, got {len(initial) + 2}")
    try:
        iterator = iter(iterable)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    if initial:
        result = initial[0]
    else:
        try:
            result = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    while True:
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return result
        result = function(result, item)
