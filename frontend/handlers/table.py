"""The tables of handlers, which the other modules of this package fill."""

from __future__ import annotations

import binascii
import cmath
import collections
import functools
import math
import operator
import struct
import sys
import unicodedata
import zlib
from collections.abc import Callable
from typing import Any

import torch

# callable -> handler(tr, *args, **kwargs) -> Value
FUNCTIONS: dict[Any, Callable] = {}
# class -> handler(tr, cls, args, kwargs) -> Value
CLASSES: dict[type, Callable] = {}
# class -> how many arguments by position it takes at least and at most, and whether any by name
TAKES: dict[type, tuple[int, int, bool]] = {
    **dict.fromkeys((bool, frozenset, list, set, torch.Size, tuple), (0, 1, False)),
    **dict.fromkeys((range, slice), (1, 3, False)),
    **dict.fromkeys((collections.OrderedDict, dict), (0, 1, True)),
    collections.deque: (0, 2, True),
    enumerate: (0, 2, True),
    functools.partial: (1, sys.maxsize, True),
    map: (2, sys.maxsize, False),
    object: (0, 0, False),
}
# id of a code object -> handler(tr, function, args, kwargs) -> Value, for the functions that torch's own functions make
CODES: dict[int, Callable] = {}
# C functions that compute a constant from constants and touch nothing else
FOLDABLE: set[Any] = {
    abs, ascii, bin, bytes, chr, complex, divmod, float, format, hash, hex, int, oct, ord, pow, repr, round, str,
    math.prod, operator.index, operator.truth, str.maketrans, int.from_bytes, float.fromhex, bytes.fromhex,
    binascii.a2b_base64, binascii.b2a_base64, binascii.hexlify, binascii.unhexlify, struct.calcsize, struct.pack,
    struct.unpack, unicodedata.normalize, zlib.adler32, zlib.crc32,
}  # fmt: skip
FOLDABLE.update(f for module in (cmath, math) for f in vars(module).values() if callable(f))


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
