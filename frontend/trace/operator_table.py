"""Python's operators: by symbol, the function in ``operator`` and the special methods that Python asks."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable

# symbol -> (function, special method, reflected method)
BINARY: dict[str, tuple[Callable, str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
}
INPLACE: dict[str, tuple[Callable, str]] = {
    symbol + "=": (getattr(operator, "i" + name[0].__name__.strip("_")), "__i" + name[1][2:])
    for symbol, name in BINARY.items()
}
COMPARE: dict[str, tuple[Callable, str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
}
UNARY: dict[str, tuple[Callable, str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}


def type_text(cls: type) -> str:
    """What CPython's messages call a class: one that C defines has its module in its name."""
    of_c = not cls.__flags__ & _HEAP or any(isinstance(raw, _OF_C) for raw in vars(cls).values())
    if not of_c or cls.__module__ == "builtins":
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


def unsupported(symbol: str, left: type, right: type) -> str:
    """What Python says where neither side has the operator, after it has asked whether one is a sequence."""
    if symbol.startswith("+") and issubclass(left, _SEQUENCES):
        return f'can only concatenate {type_text(left)} (not "{type_text(right)}") to {type_text(left)}'
    if symbol in ("*", "*=") and issubclass(left, _SEQUENCES):
        return f"can't multiply sequence by non-int of type {type_text(right)!r}"
    if symbol in ("*", "*=") and issubclass(right, _SEQUENCES):
        return f"can't multiply sequence by non-int of type {type_text(left)!r}"
    return f"unsupported operand type(s) for {symbol}: {type_text(left)!r} and {type_text(right)!r}"


_SEQUENCES = (list, str, tuple)
