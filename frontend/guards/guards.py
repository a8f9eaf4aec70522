"""Guards: what a trace took for granted, collected while it reads.  ``guard_check`` makes the check of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .sources import Loader, Names, Source


@dataclass(frozen=True)
class Guard:
    """``condition`` holds ``{0}`` for the loaded source and ``{1}``... for ``consts``; it must be true."""

    source: Source
    condition: str
    consts: tuple = ()
    words: str = ""
    other: Source | None = None  # a second source that ``condition`` calls ``{other}``

    def key(self) -> tuple:
        return (self.source, self.condition, tuple(map(id, self.consts)), self.other)

    def text(self, loader: Loader, names: Names) -> str:
        """The condition over loaded variables."""
        value = loader.load(self.source)
        other = loader.load(self.other) if self.other is not None else ""
        return self.condition.format(value, *(names.const(c) for c in self.consts), other=other)


@dataclass(frozen=True)
class ShapeCondition:
    """What ShapeEnv took for granted, over the names that ``GuardSet.shape_roots`` gives."""

    text: str
    where: str = ""  # the line of the program that needs it, if one does


@dataclass
class TensorGuard:
    """A tensor input must look like ``tensor``, except where a size or stride of its ``fake`` twin is symbolic.

    That is read when the check is made, at the end of the trace: a size that the trace turned into a constant on the
    way is one that the check must hold to.
    """

    source: Source
    tensor: Any
    fake: Any

    @property
    def sizes(self) -> list:
        return [_constant(s) for s in self.fake.shape]

    @property
    def strides(self) -> list:
        return [_constant(s) for s in self.fake.stride()]


def _constant(size: Any) -> int | None:
    """The number, or None for a symbol that is still open."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    return int(node.expr) if node.expr.is_number else None


def no_snapshot() -> None:
    return None


@dataclass
class FrameInputs:
    """What a frame function loads ahead of its graph; ``snapshot`` knows most of it without loading."""

    root: str = ""  # the only argument that the sources lead from, or nothing
    sources: tuple[Source, ...] = ()
    latest: Callable[[], Any] = no_snapshot  # weak reference to the snapshot that held in the last check


@dataclass
class GuardSet:
    """All guards of one trace, in the order in which they were read."""

    guards: dict[tuple, Guard] = field(default_factory=dict)
    tensors: dict[Source, TensorGuard] = field(default_factory=dict)
    global_state: bool = True  # whether grad mode, torch's modes and the like are checked
    devices: tuple = ()  # the default devices in force, see torch_internals.default_devices
    distinct: list[list[Source]] = field(default_factory=list)  # groups of objects no two of which may be one
    shape_conditions: list[ShapeCondition] = field(default_factory=list)
    shape_roots: dict[str, Source] = field(default_factory=dict)
    shape_namespace: dict[str, Any] = field(default_factory=dict)
    inputs: FrameInputs = field(default_factory=FrameInputs)

    def add(self, source: Source, condition: str, consts: tuple = (), words: str = "") -> None:
        guard = Guard(source, condition, consts, words)
        self.guards.setdefault(guard.key(), guard)

    def same(self, source: Source, other: Source) -> None:
        """Two paths lead to one object."""
        guard = Guard(source, "{0} is {other}", (), f"is {other.words()}", other)
        self.guards.setdefault(guard.key(), guard)

    def contains(self, source: Source, base: type, key: Source, present: bool, words: str) -> None:
        """Whether a dictionary has the object that ``key`` leads to as a key."""
        guard = Guard(source, f"{{1}}.__contains__({{0}}, {{other}}) is {present}", (base,), words, key)
        self.guards.setdefault(guard.key(), guard)

    def type_is(self, source: Source, cls: type) -> None:
        self.add(source, "type({0}) is {1}", (cls,), f"has type {cls.__name__}")

    def is_object(self, source: Source, obj: Any) -> None:
        self.add(source, "{0} is {1}", (obj,), f"is {_short(obj)}")

    def equals(self, source: Source, value: Any) -> None:
        """Same type and equal; the type is part of it because ``1 == True == 1.0``."""
        if value is None or value is True or value is False or value is Ellipsis:
            self.add(source, f"{{0}} is {value!r}" if value is not Ellipsis else "{0} is ...", (), f"is {value!r}")
        elif type(value) is float and value != value:
            self.add(source, "type({0}) is float and {0} != {0}", (), "is nan")
        elif type(value) in (int, str) and len(repr(value)) < 60:
            text = repr(value).replace("{", "{{").replace("}", "}}")
            self.add(source, f"{{0}} == {text} and type({{0}}) is {type(value).__name__}", (), f"== {text}")
        elif type(value) is complex:
            text = f"({{0}}.real.hex(), {{0}}.imag.hex()) == {(value.real.hex(), value.imag.hex())!r}"
            self.add(source, "type({0}) is complex and " + text, (), f"== {value!r}")
        elif type(value) is float:
            # 0.0 == -0.0, and a compiled graph may tell them apart
            self.add(source, "type({0}) is float and {0}.hex() == " + repr(value.hex()), (), f"== {value!r}")
        elif isinstance(value, np.generic):
            condition = "type({0}) is {1} and {0}.tobytes() == {2}"
            self.add(source, condition, (type(value), value.tobytes()), f"== {value!r}")
        else:
            self.add(source, "type({0}) is {1} and {0} == {2}", (type(value), value), f"== {_short(value)}")


def _short(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None) or repr(obj)
    return str(name)[:80].replace("{", "{{").replace("}", "}}")
