"""The tables of the Python function that is traced in place of each builtin or C helper.

A polyfill has the signature and the behaviour of the original, so the interpreter replaces the callee and inlines it
like user code. Methods are keyed by the class that defines them and their name, which come from the method descriptor
(``list.index.__objclass__`` and ``__name__``); their polyfill takes ``self``, or ``cls``, first.
"""

from types import (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)

POLYFILLS = {}
METHOD_POLYFILLS = {}

# Polyfill class -> the builtin class its instances pose as, for answering `type(x)` and `isinstance(x, zip)`.
STANDS_FOR = {}

# Class of a C callable -> function(instance) -> (polyfill, leading arguments): calling the instance is calling the
# polyfill with the leading arguments first.
INSTANCE_POLYFILLS = {}

_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType)
_BOUND = (BuiltinFunctionType, MethodWrapperType)


def polyfill(*originals):
    """Register a function as what the interpreter traces in place of each of `originals`."""

    def register(function):
        for original in originals:
            POLYFILLS[original] = function
        return function

    return register


def method_polyfill(owner, *names):
    """Register a function as what the interpreter traces in place of the methods `names` that `owner` defines."""

    def register(function):
        for name in names:
            METHOD_POLYFILLS[owner, name] = function
        return function

    return register


def stands_for(original):
    """Register a class as the Python form of a builtin iterator or callable class.

    It takes the name that Python and torch give the original in a text of an instance or in a message.
    """
    module = "" if original.__module__ == "builtins" else f"{original.__module__}."

    def register(cls):
        STANDS_FOR[cls] = original
        cls.__name__ = module + original.__name__  # CPython's messages have all of it where a C class has it
        cls.__qualname__, cls.__module__ = original.__qualname__, original.__module__
        return cls

    return register


def instance_polyfill(original):
    """Register how instances of a C class that can be called come apart."""

    def register(function):
        INSTANCE_POLYFILLS[original] = function
        return function

    return register


def lookup(callee):
    """What to trace for a call of `callee`: (polyfill, leading arguments), or None when there is no polyfill.

    The leading arguments are what `callee` is bound to: the object of ``[1, 2].index``, the class of ``dict.fromkeys``.
    """
    decompose = INSTANCE_POLYFILLS.get(type(callee))
    if decompose is not None:
        return decompose(callee)
    if isinstance(callee, _DESCRIPTORS):
        function = METHOD_POLYFILLS.get((callee.__objclass__, callee.__name__))
        return None if function is None else (function, ())
    if isinstance(callee, _BOUND):
        return _lookup_bound(callee)
    if isinstance(callee, type):
        function = POLYFILLS.get(callee)
        return None if function is None else (function, ())
    # Other callables have their own hash, which might run user code.
    return None


def _lookup_bound(callee):
    # Bound builtins are equal when they are the same function bound to the same object, so a module's function and a
    # class method that does not care for its class are found in the first table.
    function = POLYFILLS.get(callee)
    if function is not None:
        return function, ()
    owner = callee.__self__
    for cls in (owner if isinstance(owner, type) else type(owner)).__mro__:
        if callee.__name__ in cls.__dict__:
            function = METHOD_POLYFILLS.get((cls, callee.__name__))
            return None if function is None else (function, (owner,))
    return None
