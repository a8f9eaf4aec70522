"""The tables of handlers, which the other modules of this package fill."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

# callable -> handler(tr, *args, **kwargs) -> Value
FUNCTIONS: dict[Any, Callable] = {}
# class -> handler(tr, cls, args, kwargs) -> Value
CLASSES: dict[type, Callable] = {}
# id of a code object -> handler(tr, function, args, kwargs) -> Value, for the functions that torch's own functions make
CODES: dict[int, Callable] = {}
# C functions that compute a constant from constants and touch nothing else
FOLDABLE: set[Any] = {
    abs, ascii, bin, bytes, chr, complex, divmod, float, format, hash, hex, int, oct, ord, pow, repr, round, str,
    math.prod, operator.index, operator.truth, str.maketrans, int.from_bytes, float.fromhex, bytes.fromhex,
}  # fmt: skip
FOLDABLE.update(f for f in vars(math).values() if callable(f))


def handles(*callables: Any) -> Callable[[Callable], Callable]:
    """Register a handler for C functions, torch functions or Python functions that must not be inlined."""

    def register(handler: Callable) -> Callable:
        for each in callables:
            FUNCTIONS[each] = handler
        return handler

    return register


def constructs(*classes: type) -> Callable[[Callable], Callable]:
    """Register a handler for calling a class."""

    def register(handler: Callable) -> Callable:
        for cls in classes:
            CLASSES[cls] = handler
        return handler

    return register
