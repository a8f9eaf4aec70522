"""Side effects: what the traced program changed outside its own frame, replayed after the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values.base import Value

if TYPE_CHECKING:
    from .tracer import OpenRegion


class Effects:
    """Changed values in the order of their first change, and stores to globals and to attributes of classes.

    Contents are kept on the values themselves; replaying writes their final state, which is all that anyone outside
    can see, since nothing outside runs while the trace does.
    """

    def __init__(self) -> None:
        self.changed_values: dict[Value, None] = {}
        self.region: OpenRegion | None = None  # the one that must be told
        self.count = 0  # of changes, those of new objects included
        self.outside = 0  # of changes that are replayed
        self.globals: dict[tuple[int, str], tuple[dict, Value]] = {}
        self.classes: dict[tuple[int, str], tuple[type, Value]] = {}

    def changed(self, value: Value) -> None:
        """``value`` is about to change; it matters only if it existed before the trace."""
        self.count += 1
        if self.region is not None:
            self.region.changed(value)
        if value.source is not None:
            self.outside += 1
            self.changed_values.setdefault(value)

    def entered(self, generator: Value) -> None:
        """A generator from outside begins or goes on, which alone changes nothing that others see."""
        self.changed_values.setdefault(generator)

    def is_clean(self, value: Value) -> bool:
        return value not in self.changed_values

    def store_global(self, namespace: dict, name: str, value: Value) -> None:
        self.count += 1
        self.outside += 1
        if self.region is not None:
            self.region.changed_global(name)
        self.globals[(id(namespace), name)] = (namespace, value)

    def global_value(self, namespace: dict, name: str) -> Value | None:
        found = self.globals.get((id(namespace), name))
        return found[1] if found else None

    def store_class_attribute(self, cls: type, name: str, value: Value) -> None:
        self.outside += 1
        if self.region is not None:
            self.region.changed_global(f"{cls.__qualname__}.{name}")
        self.classes[(id(cls), name)] = (cls, value)

    def class_attribute(self, cls: type, name: str) -> Value | None:
        """What the trace has stored and ``cls`` finds under this name; None if what it finds is as it was."""
        for base in cls.__mro__ if self.classes else ():
            found = self.classes.get((id(base), name))
            if found is not None or name in base.__dict__:
                return found[1] if found else None
        return None

    def __bool__(self) -> bool:
        return bool(self.changed_values or self.globals or self.classes)
