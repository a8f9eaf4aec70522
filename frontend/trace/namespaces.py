"""Globals of the traced functions: what a name means, and what a store to one changes."""

from __future__ import annotations

import builtins

from .. import breaks
from ..breaks import GraphBreak
from ..guards.kinds.objects import AttributeIs, NoAttribute, NotInDict
from ..guards.sources import Const, Global
from ..values.base import MISSING, Raised, Value
from .tracer import ActiveFrame, Tracer


class Namespaces(Tracer):
    """The part of a trace that reads and writes globals."""

    def __init__(self) -> None:
        self._memo: dict[int, Value] = {}
        self._global_guards: set[tuple[int | str, ...]] = set()

    def written_global(self, namespace: dict, name: str) -> Value | None:
        """What the trace has stored under a global name; it breaks if the program has written to the dictionary."""
        known = self._memo.get(id(namespace))
        if known is not None and not self.effects.is_clean(known):
            raise GraphBreak(breaks.OPERATION, f"global {name}, after a write to the dictionary of the globals")
        return self.effects.global_value(namespace, name)

    def store_global(self, namespace: dict, name: str, value: Value) -> None:
        """Note a store to a global name; it breaks if the program has read the dictionary, which would not show it."""
        if id(namespace) in self._memo:
            raise GraphBreak(
                breaks.OPERATION, f"a write to global {name}, after a use of the dictionary of the globals"
            )
        self.effects.store_global(namespace, name, value)

    def load_global(self, frame: ActiveFrame, name: str) -> Value:
        namespace = frame.namespace
        written = self.written_global(namespace, name)
        if written is not None:
            return written
        if name in namespace:
            obj = namespace[name]
            if self.in_polyfill(frame.code):
                return self.wrap(obj, None)
            return self.wrap_global(obj, Global(namespace, name))
        if namespace.get("__builtins__", builtins) not in (builtins, builtins.__dict__):
            raise GraphBreak(breaks.OPERATION, f"{name!r} of a function with builtins of its own")
        if not self.in_polyfill(frame.code) and (id(namespace), "__builtins__") not in self._global_guards:
            self._global_guards.add((id(namespace), "__builtins__"))
            if "__builtins__" in namespace:  # a module, or its dictionary
                self.guards.is_object(Global(namespace, "__builtins__"), namespace["__builtins__"])
        found = getattr(builtins, name, MISSING)
        if found is MISSING:
            where = Const(namespace, f"globals of {namespace.get('__name__')}")
            self.guards.add(NotInDict(where, name))
            self.guards.add(NoAttribute(Const(builtins, "builtins"), name))
            raise Raised(self.make_exception(NameError, f"name {name!r} is not defined"))
        key = (id(namespace), name)
        if key not in self._global_guards and not self.in_polyfill(frame.code):
            self._global_guards.add(key)
            where = Const(namespace, f"globals of {namespace.get('__name__')}")
            self.guards.add(NotInDict(where, name))
            if (id(builtins), name) not in self._global_guards:
                self._global_guards.add((id(builtins), name))
                source = Const(builtins, "builtins")
                self.guards.add(AttributeIs(source, name, found))
        return self.wrap(found, None)
