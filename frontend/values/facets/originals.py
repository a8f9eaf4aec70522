"""The builtin iterator or callable that a polyfill's object poses as, made anew where the program gets to see it.

A polyfill's object keeps what is left of its arguments, so the original can be made from that until it keeps more.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...breaks import NOT_REBUILDABLE, GraphBreak
from ..base import MISSING, Value
from ..builtin_methods import own_attribute
from ..constants import ConstValue
from ..containers.iterators import UserIterator
from ..containers.mappings import DictValue
from ..containers.sequences import ListValue, TupleValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer
    from ..objects import ObjectValue


class _Maker(NamedTuple):
    """What makes the original: ``items`` names the attributes with its arguments, with a star before several.

    Attributes in ``fresh`` have these values as long as nothing else is kept.
    """

    function: Callable
    items: tuple[str, ...]
    fresh: tuple[tuple[str, Any], ...] = ()
    keywords: str = ""


_SEVERAL = (("indices", None), ("finished", False))
_MAKERS: dict[type, _Maker] = {
    operator.itemgetter: _Maker(operator.itemgetter, ("*items",)),
    operator.attrgetter: _Maker(operator.attrgetter, ("*names",)),
    operator.methodcaller: _Maker(operator.methodcaller, ("name", "*args"), keywords="kwargs"),
    filter: _Maker(filter, ("function", "iterator")),
    itertools.chain: _Maker(itertools.chain.from_iterable, ("iterables",), (("current", None),)),
    itertools.count: _Maker(itertools.count, ("value", "step")),
    itertools.repeat: _Maker(itertools.repeat, ("item",), (("left", None),)),
    itertools.islice: _Maker(itertools.islice, ("iterator", "following", "stop", "step"), (("consumed", 0),)),
    itertools.filterfalse: _Maker(itertools.filterfalse, ("predicate", "iterator")),
    itertools.starmap: _Maker(itertools.starmap, ("function", "iterator")),
    itertools.compress: _Maker(itertools.compress, ("data", "selectors")),
    itertools.takewhile: _Maker(itertools.takewhile, ("predicate", "iterator"), (("stopped", False),)),
    itertools.dropwhile: _Maker(itertools.dropwhile, ("predicate", "iterator"), (("dropping", True),)),
    itertools.product: _Maker(itertools.product, ("*pools",), _SEVERAL),
    itertools.permutations: _Maker(itertools.permutations, ("pool", "length"), _SEVERAL),
    itertools.combinations: _Maker(itertools.combinations, ("pool", "length"), _SEVERAL),
    itertools.combinations_with_replacement: _Maker(
        itertools.combinations_with_replacement, ("pool", "length"), _SEVERAL
    ),
}
_LIMITED = _Maker(itertools.repeat, ("item", "left"))


def rebuilt(out: FrameWriter, value: ObjectValue) -> str:
    """The expression that makes the original with what is left of ``value``."""
    cls = value.pytype()
    if (text := _original(out, value, cls)) is None:
        raise GraphBreak(NOT_REBUILDABLE, f"{cls.__name__} object was created inside the graph and must outlive it")
    return text


def _original(out: FrameWriter, value: ObjectValue, cls: type) -> str | None:
    maker = _MAKERS.get(cls)
    if maker is not None and cls is itertools.repeat and not _has(out, value, "left", None):
        maker = _LIMITED
    if maker is None or not all(_has(out, value, name, wanted) for name, wanted in maker.fresh):
        return None
    arguments: list[str] = []
    for item in maker.items:
        given = value.attrs[item.lstrip("*")]
        each = given.unpack(out.tr) if item.startswith("*") and isinstance(given, TupleValue | ListValue) else [given]
        if item.startswith("*") and each == [given]:
            return None
        if any(_runs_code(argument) for argument in each):
            return None
        arguments += [out.value(argument) for argument in each]
    if maker.keywords:
        keywords = value.attrs[maker.keywords]
        if not isinstance(keywords, DictValue):
            return None
        arguments.append(f"**{out.value(keywords)}")
    return f"{out.names.const(maker.function)}({', '.join(arguments)})"


def names_of(cls: type) -> frozenset[str]:
    """The attributes that the code of a polyfill's class uses, beside its own."""
    if cls not in _NAMES:
        defined = {name: raw for base in cls.__mro__[:-1] for name, raw in vars(base).items()}
        codes = [raw.__code__ for raw in defined.values() if isinstance(raw, types.FunctionType)]
        _NAMES[cls] = frozenset(name for name in defined if name not in _OF_PYTHON).union(*(c.co_names for c in codes))
    return _NAMES[cls]


_NAMES: dict[type, frozenset[str]] = {}
_OF_PYTHON = ("__module__", "__doc__", "__dict__", "__weakref__", "__init__", "__qualname__")


def attribute(tr: Tracer, value: ObjectValue, name: str) -> Value | None:
    """An attribute that the original has, and the polyfill's object in its place does not; None if neither has it."""
    raw = own_attribute(value.pytype(), name)
    if raw is MISSING or name == "__module__":
        return None
    if raw is None or isinstance(raw, str):
        return ConstValue(raw)
    raise value.not_understood(f"attribute {name!r} of {value.describe()}")


def _has(out: FrameWriter, value: ObjectValue, name: str, wanted: Any) -> bool:
    found = value.attrs[name]
    return found.is_const() and found.const(out.tr) == wanted


def _runs_code(argument: Value) -> bool:
    """Whether asking for its iterator once more is something that the program sees."""
    return isinstance(argument, UserIterator)
