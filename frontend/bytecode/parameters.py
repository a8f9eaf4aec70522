"""The parameters of a code object."""

import inspect
import types


def parameters(code: types.CodeType) -> tuple[str, ...]:
    """The names of a code object's parameters, in its order."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]
