"""Weak references that the trace has made, and the handles by which hooks are removed again."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

from ...breaks import C_FUNCTION, NOT_REBUILDABLE, OPERATION, GraphBreak
from ..base import MISSING, Value
from ..constants import ConstValue
from ..containers.mappings import DictValue
from ..containers.sequences import ListValue, TupleValue
from ..objects import ObjectValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer


class NewWeakrefValue(Value):
    """A weak reference that the trace has made, to an object from outside or to one of its own."""

    __slots__ = ("reference", "target")

    def __init__(self, target: Value, reference: weakref.ref | None) -> None:
        self.target = target
        self.reference = reference  # of the object of this call; None: the trace has made the object
        self.source = None

    def real(self) -> Any:
        return MISSING if self.reference is None else self.reference

    def pytype(self) -> type:
        return weakref.ReferenceType

    def truth(self, tr: Tracer) -> bool:
        return True

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.reference is None and not _is_held(tr, self.target):
            raise _in_eager(GraphBreak(OPERATION, f"whether {self.target.describe()} still lives"))
        return self.target

    def rebuild(self, out: FrameWriter) -> str:
        if self.reference is None:  # code made of the frame does not hold its objects for just as long
            raise GraphBreak(NOT_REBUILDABLE, f"a weak reference to {self.target.describe()}, which is new")
        return f"{out.names.const(weakref.ref)}({out.value(self.target)})"


def weak_reference(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``weakref.ref(obj)``; Python has one such reference for each object.

    An object from outside lives as long as the call does.
    """
    target = args[0] if args else None
    known_kind = isinstance(target, (ObjectValue, DictValue)) and target.pytype().__weakrefoffset__
    if target is None or len(args) > 1 or kwargs or not known_kind:
        stop = GraphBreak(C_FUNCTION, "weakref.ref with a callback, or of an object of this kind")
        # Otherwise the code that goes on after the break would drop the object as soon as nothing reads it.
        raise _in_eager(stop) if target is not None and target.source is None else stop
    obj = target.obj if isinstance(target, DictValue) and target.source is not None else target.real()
    reference = None if target.source is None or obj is MISSING else weakref.ref(obj)
    key = target if reference is None else reference
    if (known := tr.memo_of(key)) is not None:
        return known
    made = NewWeakrefValue(target, reference)
    tr.remember(key, made)
    return made


def _in_eager(stop: GraphBreak) -> GraphBreak:
    stop.whole_frame = True
    return stop


def _is_held(tr: Tracer, target: Value) -> bool:
    """Whether a variable of a running frame leads to ``target``; False where that cannot be told."""
    frame, pending, seen = tr.frame, [], {id(target)}
    while frame is not None:
        pending += [*frame.locals.values(), *(c.contents for c in frame.cells.values() if c.contents is not None)]
        frame = frame.parent
    if any(value is target for value in pending):
        return True
    while pending:
        for part in _parts(tr, pending.pop()):
            if part is target:
                return True
            if id(part) not in seen:
                seen.add(id(part))
                pending.append(part)
    return False


def _parts(tr: Tracer, value: Value) -> list[Value]:
    """The values that an object holds, so far as the trace has put them there."""
    if value.source is not None and tr.effects.is_clean(value):
        return []
    if isinstance(value, (ListValue, TupleValue)):
        return value.items(tr)
    if isinstance(value, DictValue):
        return value.values(tr)
    if isinstance(value, ObjectValue):
        return [part for part in value.attrs.values() if isinstance(part, Value)]
    return []


# --- handles of hooks -----------------------------------------------------------------------------------------------


class NewHandleId(Value):
    """The number of a hook that the trace registers, which is another one in each call: only a key."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.source = None

    def pytype(self) -> type:
        return int

    def describe(self) -> str:
        return "the id of a new hook"

    def hash_key(self, tr: Tracer) -> Any:
        return NewHandleId, self.offset  # no hook had this number before

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.names.const(RemovableHandle)}.next_id + {self.offset}"


def removable_handle(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What registering a hook returns.  It counts the hooks of the process, which no guard should compare."""
    hooks, extra = (*args, *kwargs.values(), ConstValue(None))[:2]
    following = tr.effects.class_attribute(cls, "next_id")
    if following is not None and not isinstance(following, NewHandleId):
        raise GraphBreak(OPERATION, f"registering a hook after {cls.__name__}.next_id was set")
    number = following or NewHandleId(0)
    tr.effects.store_class_attribute(cls, "next_id", NewHandleId(number.offset + 1))
    others = extra.unpack(tr) if isinstance(extra, ListValue) else [extra] if isinstance(extra, DictValue) else []
    handle = ObjectValue(cls)
    handle.store(tr, "hooks_dict_ref", weak_reference(tr, weakref.ref, [hooks], {}))
    handle.store(tr, "id", number)
    handle.store(tr, "extra_dict_ref", TupleValue([weak_reference(tr, weakref.ref, [each], {}) for each in others]))
    return handle
