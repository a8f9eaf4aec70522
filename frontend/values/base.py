"""The operations of a symbolic value; every kind of Python object is a subclass.

A value that does not support an operation ends the graph (:class:`~torchmux.frontend.breaks.GraphBreak`); it never
guesses.  Operations that raise an exception in Python raise :class:`Raised`, which the interpreter routes through the
traced program's own ``try`` blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ..breaks import C_FUNCTION, NOT_REBUILDABLE, OPERATION, GraphBreak

if TYPE_CHECKING:
    from ..guards.sources import Source
    from ..trace.tracer import FrameWriter, Tracer


class Raised(Exception):
    """An exception of the traced program, as a value, on its way through the interpreter.

    ``frames`` are the user's frames it has left, innermost first, as a graph break has them.
    """

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value
        self.frames: list[tuple[str, int, str]] = []


class Value:
    """One object of the traced program.  ``source`` is None for what the trace itself created."""

    __slots__ = ("source",)

    # Methods that C defines and that need the representation: name -> function(tr, value, *args, **kwargs).
    METHODS: ClassVar[dict[str, Any]] = {}

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # --- what it is ---------------------------------------------------------------------------------------------

    def pytype(self) -> type:
        """The Python class of the object."""
        raise NotImplementedError(type(self).__name__)

    def is_const(self) -> bool:
        """Whether :meth:`const` gives a plain Python object without specializing anything."""
        return False

    def const(self, tr: Tracer) -> Any:
        """The Python object itself, for code that needs it; symbolic integers are specialized by a guard."""
        raise self.not_understood(f"a plain Python value is needed, not {self.describe()}")

    def real(self) -> Any:
        """The existing object that this value represents, or ``MISSING``."""
        return MISSING

    def describe(self) -> str:
        where = f" {self.source.words()}" if self.source is not None else ""
        return f"{self.pytype().__name__}{where}"

    def not_understood(self, reason: str) -> GraphBreak:
        return GraphBreak(OPERATION, reason)

    # --- Python protocols -----------------------------------------------------------------------------------------

    def getattr(self, tr: Tracer, name: str) -> Value:
        raise self.not_understood(f"attribute {name!r} of {self.describe()}")

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        raise self.not_understood(f"setting attribute {name!r} of {self.describe()}")

    def store(self, tr: Tracer, name: str, value: Value) -> None:
        """Write the object's own attribute, without any protocol."""
        raise self.not_understood(f"attribute {name!r} in the dictionary of {self.describe()}")

    def delattr(self, tr: Tracer, name: str) -> None:
        raise self.not_understood(f"deleting attribute {name!r} of {self.describe()}")

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise self.not_understood(f"calling {self.describe()}")

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        method = self.getattr(tr, name)
        if method.asks(self):
            raise GraphBreak(C_FUNCTION, f"method {name!r} of {self.describe()}")  # it would come back here
        return method.call(tr, args, kwargs)

    def asks(self, owner: Value) -> bool:
        """Whether this is a method that does no more than ask ``owner`` to call it (:meth:`call_method`)."""
        return False

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """The method that C class ``cls`` defines, whatever the object's own class overrides."""
        return self.call_method(tr, name, args, kwargs)

    def truth(self, tr: Tracer) -> bool:
        raise self.not_understood(f"truth of {self.describe()}")

    def length(self, tr: Tracer) -> Value:
        raise self.not_understood(f"len() of {self.describe()}")

    def getitem(self, tr: Tracer, key: Value) -> Value:
        raise self.not_understood(f"indexing {self.describe()}")

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        raise self.not_understood(f"setting an item of {self.describe()}")

    def delitem(self, tr: Tracer, key: Value) -> None:
        raise self.not_understood(f"deleting an item of {self.describe()}")

    def contains(self, tr: Tracer, item: Value) -> Value:
        for candidate in self.unpack(tr):
            if candidate is item or tr.equal(candidate, item):
                return tr.lift(True)
        return tr.lift(False)

    def iter(self, tr: Tracer) -> Value:
        """An iterator value (it has :meth:`next`)."""
        raise self.not_understood(f"iterating over {self.describe()}")

    def next(self, tr: Tracer) -> Value | None:
        """The iterator's next item, or None at its end."""
        raise self.not_understood(f"next() of {self.describe()}")

    def unpack(self, tr: Tracer) -> list[Value]:
        """All items, in order."""
        iterator, items = self.iter(tr), []
        while (element := iterator.next(tr)) is not None:
            items.append(element)
            tr.check_budget(len(items))
        return items

    def hash_key(self, tr: Tracer) -> Any:
        """A Python object with the hash and equality that the real object has as a dictionary key."""
        raise self.not_understood(f"{self.describe()} as a dictionary key")

    # --- leaving the trace -----------------------------------------------------------------------------------------

    def arg(self, tr: Tracer) -> Any:
        """The ``torch.fx`` argument for this value."""
        raise self.not_understood(f"{self.describe()} as an argument of an operator")

    def fake(self, tr: Tracer) -> Any:
        """The Python object to propagate with: fake tensors, symbolic integers, constants."""
        raise self.not_understood(f"{self.describe()} as an argument of an operator")

    def rebuild(self, out: FrameWriter) -> str:
        """The expression that makes the object after the graph has run; only for values without a source."""
        raise GraphBreak(NOT_REBUILDABLE, f"{self.describe()} was created inside the graph and must outlive it")

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        """The lines that give the object from outside, which ``target`` loads, the state that the trace left it in.

        New contents are rebuilt by this call, ahead of all such lines, so that no write is seen by a later read.
        """
        raise GraphBreak(NOT_REBUILDABLE, f"{self.describe()} was changed inside the graph")

    def fill(self, out: FrameWriter, variable: str) -> None:
        """Give an empty object, whose class derives from that of this container, the container's contents."""
        raise GraphBreak(NOT_REBUILDABLE, f"{self.describe()} was created inside the graph and must outlive it")


class Lazy:
    """An element of an existing container that nothing has looked at yet; reading it wraps and guards it."""

    __slots__ = ("obj", "source")

    def __init__(self, obj: Any, source: Source | None) -> None:
        self.obj = obj
        self.source = source


class GraphValue(Value):
    """What the graph computes, a tensor or a symbolic number: ``node`` is its place there."""

    __slots__ = ("node",)

    node: Any


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING: Any = _Missing()


class OpaqueValue(Value):
    """An object of which only the class is understood: whatever asks more of it ends the graph."""

    __slots__ = ("cls", "what")

    def __init__(self, cls: type, what: str, source: Source | None) -> None:
        super().__init__(source)
        self.cls = cls
        self.what = what

    def pytype(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.what} ({'?' if self.source is None else self.source.words()})"

    def next(self, tr: Tracer) -> Value | None:
        stop = self.not_understood(f"a loop over {self.describe()}")
        stop.whole_frame = True  # each iteration would end a graph
        raise stop


class NullValue(Value):
    """CPython's NULL on the stack, part of its call convention."""

    __slots__ = ()

    def pytype(self) -> type:
        return _Missing

    def describe(self) -> str:
        return "NULL"


NULL = NullValue()


def call_handler(handler: Any, name: str, args: tuple, kwargs: dict[str, Value]) -> Value:
    """Call the replacement of a C function; arguments that it does not accept are a mistake of the program, or rare."""
    try:
        return handler(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        raise GraphBreak(C_FUNCTION, f"{name} with these arguments", error) from None
