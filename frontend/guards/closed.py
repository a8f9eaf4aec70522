"""Closed families of small immutable values: the base of sources and of guards.

Every kind is a class of its own, declared with :func:`kind`, and answers itself every question that is asked
of the family.  A class that leaves one open, or that is not declared, is an error when it is made, not a guard that
some reader overlooks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform

_set = object.__setattr__
_COMPARED: dict[type, Callable[[Any], tuple]] = {}  # kind -> its class and the fields that tell two values apart
_BY_VALUE = frozenset({int, bool, type(None)})
_Kind = TypeVar("_Kind", bound="Member")


class Member:
    """A value of a family.  Two are equal if they are of one kind and no field differs.

    Names, numbers and other members are compared by value (1, True and 1.0 differ, and so do 0.0 and -0.0), all other
    objects by identity: comparing them could run code of the program's.
    """

    __slots__ = ("_hash", "_key")

    ANSWERS: ClassVar[tuple[str, ...]] = ()  # what every kind defines in its own body

    def __init__(self, *_: Any) -> None:
        raise TypeError(f"{type(self).__name__} is not declared as a kind of its family")

    def __post_init__(self) -> None:
        compared = _COMPARED.get(type(self))
        if compared is None:
            raise TypeError(f"{type(self).__name__} derives from a kind, but is not declared as one")
        key = tuple(map(_face, compared(self)))
        _set(self, "_key", key)
        _set(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Member) and self._hash == other._hash and self._key == other._key  # type: ignore[attr-defined]


def _face(value: Any) -> Any:
    """What stands for a field in comparisons."""
    cls = type(value)
    if cls is str:
        return value
    if cls in _BY_VALUE:
        return cls, value
    if cls is float or cls is complex:
        return cls, repr(value)
    return value if isinstance(value, Member) else id(value)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def kind(cls: type[_Kind]) -> type[_Kind]:
    """Declare a kind: its annotated fields become those of a frozen, slotted dataclass.

    Raises:
        TypeError: the class leaves a question of its family open.
    """
    missing = [name for name in cls.ANSWERS if name not in cls.__dict__]
    if missing:
        raise TypeError(f"{cls.__name__} does not define {', '.join(missing)}")
    made: Any = dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)
    _COMPARED[made] = attrgetter("__class__", *(f.name for f in fields(made) if f.compare))
    return made


def is_kind(cls: type, family: type) -> bool:
    """Whether a class is a declared kind of a family."""
    return cls in _COMPARED and issubclass(cls, family)


def all_kinds(family: type) -> list[type]:
    """All declared kinds of a family."""
    return [cls for cls in _COMPARED if issubclass(cls, family)]
