"""The functions of functools that call the functions they receive."""

import functools
from types import FunctionType

from .tables import polyfill

_MISSING = object()


def update_wrapper(
    wrapper, wrapped, assigned=functools.WRAPPER_ASSIGNMENTS, updated=functools.WRAPPER_UPDATES
):  # fmt: skip
    """``functools.update_wrapper`` for functions that the trace defined, whose ``__dict__`` cannot be written to."""
    for name in assigned:
        if hasattr(wrapped, name):
            setattr(wrapper, name, getattr(wrapped, name))
    for name in updated:
        found = getattr(wrapped, name, {})
        if name == "__dict__" and isinstance(wrapper, FunctionType):
            for key, value in found.items():
                setattr(wrapper, key, value)
        else:
            getattr(wrapper, name).update(found)
    wrapper.__wrapped__ = wrapped
    return wrapper


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
