"""Objects of Python classes: the attribute protocol, special methods, and objects that the trace creates."""

from __future__ import annotations

import random
import re
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import C_FUNCTION, NOT_REBUILDABLE, OPERATION, GraphBreak
from ..guards.kinds.objects import NotInDict, SlotIsEmpty, slot_is_set
from ..guards.sources import Attr, Item, RawAttr, Source
from ..polyfills.tables import STANDS_FOR
from .base import MISSING, Raised, Value
from .builtin_methods import call_builtin_method
from .constants import ConstValue
from .containers.iterators import UserIterator
from .containers.keys import HashedKey
from .containers.sequences import TupleValue
from .descriptors import SLOT_WRAPPERS, bind_class_attribute, is_c_method
from .facets import originals
from .scalars import draw

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

DELETED: Any = object()  # in ObjectValue.attrs: an attribute that the trace deleted
_NONE_MOVED: set[str] = set()
# Methods of C classes without state that compute constants from constants.
_PURE_METHODS = {
    (cls, name)
    for cls, names in (
        (re.Pattern, "match search fullmatch findall finditer split sub subn"),
        (re.Match, "__getitem__ group groups groupdict start end span expand"),
    )
    for name in names.split()
}
# What the context of an ``autograd.Function`` reads in C, and no code of a program changes.
_NEEDS_INPUT_GRAD = getattr(torch.autograd.function.BackwardCFunction, "needs_input_grad")  # noqa: B009
OWN_CLASS = object.__dict__["__class__"]


def attribute_base(cls: type) -> Any:
    """The builtin class that reads and stores the attributes of the objects of a class."""
    return threading.local if issubclass(cls, threading.local) else object


def own_namespace(obj: Any) -> dict | None:
    """The instance's own attributes, read without running code of its class.

    Those of a ``threading.local`` are this thread's, whose ``__init__`` runs when a thread first asks.
    """
    try:
        return attribute_base(type(obj)).__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


class ObjectValue(Value):
    """An object of a Python class: an existing one (``obj``) or one that the trace created (``obj`` is MISSING).

    ``attrs`` holds what the trace wrote, over what the real object has: under a name what belongs in its ``__dict__``,
    under a descriptor what belongs in that slot.  ``storage`` is the builtin part of an object whose class derives from
    dict, list, tuple, set, str or int.
    """

    __slots__ = ("_storage", "attrs", "cls", "moved", "namespace", "obj")

    def __init__(
        self, cls: type, obj: Any = MISSING, source: Source | None = None, storage: Value | None = None
    ) -> None:
        self.cls = cls
        self.obj = obj
        self.source = source
        self.attrs: dict[Any, Any] = {}
        self.moved: set[Any] = _NONE_MOVED  # attributes that were deleted and set again, which puts them last
        self.namespace: Value | None = None  # its __dict__, once the program has read it
        self._storage = storage

    def pytype(self) -> type:
        return STANDS_FOR.get(self.cls, self.cls)

    def real(self) -> Any:
        return self.obj

    def truth(self, tr: Tracer) -> bool:
        if (found := self.special(tr, "__bool__")) is not None:
            return of_protocol(found.call(tr, [], {}), "__bool__").truth(tr)
        if (found := self.special(tr, "__len__")) is not None:
            return of_protocol(found.call(tr, [], {}), "__len__").truth(tr)
        self.refuse_c(tr, "__bool__", "__len__")
        storage = self.storage(tr)
        return storage.truth(tr) if storage is not None else True

    def storage(self, tr: Tracer) -> Value | None:
        """The value of the builtin base, made when it is first needed."""
        if self._storage is None and self.obj is not MISSING:
            self._storage = tr.wrap_storage(self.obj, self.source)
        return self._storage

    # --- attributes ------------------------------------------------------------------------------------------------

    def getattr(self, tr: Tracer, name: str) -> Value:
        custom = tr.static_lookup(self.cls, "__getattribute__")
        tr.guard_lookup(self.cls, "__getattribute__", custom)
        return self._getattr_with_fallback(tr, name, custom)

    def _getattr_with_fallback(self, tr: Tracer, name: str, custom: Any) -> Value:
        fallback = tr.static_lookup(self.cls, "__getattr__")
        try:
            if isinstance(custom, types.FunctionType):
                return tr.wrap(custom, None).call(tr, [self, ConstValue(name)], {})
            found = self.find(tr, name)
        except Raised as raised:  # by a property, say
            if not issubclass(raised.value.pytype(), AttributeError) or fallback is MISSING:
                raise
            found = None
        if found is not None:
            return found
        if isinstance(fallback, types.FunctionType):
            tr.guard_class_attribute(self.cls, "__getattr__", fallback)
            return tr.wrap(fallback, None).call(tr, [self, ConstValue(name)], {})
        tr.guard_lookup(self.cls, "__getattr__", fallback)
        if fallback is not MISSING:  # dict.get, say
            method = bind_class_attribute(tr, self, self.cls, "__getattr__", fallback)
            return method.call(tr, [ConstValue(name)], {})
        if isinstance(tr.static_lookup(self.cls, name), types.MemberDescriptorType) and sys.version_info >= (3, 13):
            message = f"'{self.cls.__module__}.{self.cls.__qualname__}' object has no attribute {name!r}"
            raise Raised(tr.make_exception(AttributeError, message))
        raise Raised(tr.make_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}"))

    def find(self, tr: Tracer, name: str) -> Value | None:
        """``object.__getattribute__``, with None for AttributeError."""
        if self.cls in STANDS_FOR and name != "__class__" and name not in originals.names_of(self.cls):
            return originals.attribute(tr, self, name)
        if (stored := tr.effects.class_attribute(self.cls, name)) is not None:
            return self.own(tr, name, shadows=True) or stored
        raw = tr.static_lookup(self.cls, name)
        if name == "__dict__" and attribute_base(self.cls) is threading.local:
            return self._data_descriptor(tr, name, raw)  # whose class has nothing of that name
        if raw is not MISSING and tr.is_data_descriptor(raw):
            return self._data_descriptor(tr, name, raw)
        own = self.own(tr, name, shadows=raw is not MISSING)
        if own is not None:
            if self.obj is not MISSING:
                tr.guard_lookup(self.cls, name, raw)  # a property that comes later is asked first
            return own
        if raw is MISSING:
            tr.guard_lookup(self.cls, name, MISSING)
            return None
        return bind_class_attribute(tr, self, self.cls, name, raw)

    def _data_descriptor(self, tr: Tracer, name: str, raw: Any) -> Value | None:
        if name == "__class__" and raw is OWN_CLASS:
            return tr.lift(self.pytype())
        if name == "__dict__":
            from .facets.instance_dict import InstanceDictValue

            if self.namespace is None:
                self.namespace = InstanceDictValue(self)
            return self.namespace
        if isinstance(raw, types.MemberDescriptorType) or raw is _NEEDS_INPUT_GRAD:
            return self.own(tr, name, slot=raw)
        if name == "__doc__":
            return tr.lift(self.cls).getattr(tr, name)
        return bind_class_attribute(tr, self, self.cls, name, raw)

    def own(self, tr: Tracer, name: str, slot: Any = None, shadows: bool = False) -> Value | None:
        """An attribute of the instance itself (its ``__dict__``, or ``slot``); None if it has none.

        ``shadows``: the class has the name too, so its absence from the instance must be guarded.
        """
        written = self.attrs.get(_key(name, slot))
        if written is not None:
            return None if written is DELETED else written
        if self.obj is MISSING:
            return None
        obj = MISSING
        if slot is not None:
            try:
                obj = slot.__get__(self.obj)
            except AttributeError:
                self._guard_absent(tr, name, slot)
                return None
        else:
            namespace = own_namespace(self.obj)
            if namespace is not None:
                obj = namespace.get(name, MISSING)
        if obj is MISSING:
            if slot is None and namespace is not None:
                self._guard_absent(tr, name)
            return None
        table = self.own_source("__dict__") if slot is None and self._has_code_for(tr, name) else None
        return tr.wrap(obj, self.own_source(name) if table is None else Item(table, name))

    def _has_code_for(self, tr: Tracer, name: str) -> bool:
        """Whether the class has code that a check must not run where the attribute is gone: a cached property, say."""
        getter = tr.static_lookup(self.cls, "__getattr__")
        raw = tr.static_lookup(self.cls, name)
        binds = raw is not MISSING and not isinstance(raw, types.FunctionType) and hasattr(type(raw), "__get__")
        return binds or getter not in (MISSING, torch.nn.Module.__getattr__)

    def own_source(self, name: str) -> Source | None:
        """The path to an attribute of the instance; it must not run the class's own ``__getattribute__``."""
        if self.source is None:
            return None
        if self.cls.__getattribute__ is not object.__getattribute__:
            return RawAttr(self.source, name, attribute_base(self.cls))
        return Attr(self.source, name)

    def _guard_absent(self, tr: Tracer, name: str, slot: Any = None) -> None:
        if self.source is not None:
            if slot is None:
                namespace = self.own_source("__dict__")
                assert namespace is not None
                tr.guards.add(NotInDict(namespace, name, "attribute "))
            else:
                tr.guards.add(SlotIsEmpty(self.source, slot, name))

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        if (custom := self._replaced(tr, "__setattr__")) is not None:
            custom.call(tr, [ConstValue(name), value], {})
            return
        self.set_plain(tr, name, value)

    def set_plain(self, tr: Tracer, name: str, value: Value) -> None:
        """``object.__setattr__``."""
        if self.cls in STANDS_FOR and name not in originals.names_of(self.cls):
            raise Raised(tr.make_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}"))
        if self._accepts(name, MISSING) and tr.effects.class_attribute(self.cls, name) is not None:  # no descriptor
            self.store(tr, name, value)
            return
        raw = tr.static_lookup(self.cls, name)
        tr.guard_lookup(self.cls, name, raw)
        if isinstance(raw, property):
            if raw.fset is None:
                message = f"property {name!r} of {self.cls.__name__!r} object has no setter"
                raise Raised(tr.make_exception(AttributeError, message))
            tr.wrap(raw.fset, None).call(tr, [self, value], {})
            return
        if raw is not MISSING and not isinstance(raw, types.MemberDescriptorType) and tr.is_data_descriptor(raw):
            setter = tr.static_lookup(type(raw), "__set__")
            if isinstance(setter, types.FunctionType):
                tr.wrap(setter, None).call(tr, [tr.wrap(raw, None), self, value], {})
                return
            raise GraphBreak(OPERATION, f"setting {name!r} of {self.describe()}")
        if not self._accepts(name, raw):
            raise Raised(tr.make_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}"))
        self.store(tr, _key(name, raw), value)

    def _accepts(self, name: str, raw: Any) -> bool:
        if isinstance(raw, types.MemberDescriptorType) or self.cls.__dictoffset__ != 0:
            return True
        return attribute_base(self.cls) is threading.local

    def store(self, tr: Tracer, name: Any, value: Any) -> None:
        """Write the instance's own attribute, or the slot of a descriptor, without any protocol."""
        tr.effects.changed(self)
        if self.attrs.get(name) is DELETED:
            del self.attrs[name]  # a name that was deleted comes back as the last one
            self.moved = {*self.moved, name}
        self.attrs[name] = value

    def remove(self, tr: Tracer, name: str, slot: Any = None) -> None:
        """Delete the instance's own attribute, which it has."""
        key = _key(name, slot)
        if self.obj is MISSING:
            self.attrs[key] = DELETED
        elif slot_is_set(slot, self.obj) if slot is not None else name in (own_namespace(self.obj) or ()):
            self.store(tr, key, DELETED)
        else:  # the trace has set it
            self._guard_absent(tr, name, slot)
            tr.effects.changed(self)
            del self.attrs[key]

    def delattr(self, tr: Tracer, name: str) -> None:
        if (custom := self._replaced(tr, "__delattr__")) is not None:
            custom.call(tr, [ConstValue(name)], {})
            return
        self.delete_plain(tr, name)

    def _replaced(self, tr: Tracer, name: str) -> Value | None:
        """What a class has in the place of ``object``'s own ``__setattr__`` or ``__delattr__``, bound."""
        found = tr.static_lookup(self.cls, name)
        tr.guard_lookup(self.cls, name, found)
        if is_c_method(found, name):
            return None
        return bind_class_attribute(tr, self, self.cls, name, found)

    def delete_plain(self, tr: Tracer, name: str) -> None:
        raw = tr.static_lookup(self.cls, name)
        tr.guard_lookup(self.cls, name, raw)
        if isinstance(raw, property) and raw.fdel is not None:
            tr.wrap(raw.fdel, None).call(tr, [self], {})
            return
        if isinstance(deleter := tr.static_lookup(type(raw), "__delete__"), types.FunctionType):
            tr.wrap(deleter, None).call(tr, [tr.wrap(raw, None), self], {})
            return
        slot = raw if isinstance(raw, types.MemberDescriptorType) else None
        if self.own(tr, name, slot) is None:
            raise Raised(tr.make_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}"))
        self.remove(tr, name, slot)

    # --- special methods -------------------------------------------------------------------------------------------

    def special(self, tr: Tracer, name: str) -> Value | None:
        """The special method that the class defines in Python, bound; None for C definitions."""
        raw = tr.static_lookup(self.cls, name)
        if raw is None and name != "__hash__":  # whose None the keys of dictionaries ask for
            raise GraphBreak(OPERATION, f"{name} of {self.describe()}, whose class sets it to None")
        if raw is MISSING or is_c_method(raw, name) or raw is None:
            tr.guard_lookup(self.cls, name, raw)
            return None
        return bind_class_attribute(tr, self, self.cls, name, raw)

    def refuse_other_class(self, tr: Tracer) -> None:
        """Break for an object that may report a class other than its own, because ``isinstance`` would ask it."""
        for name in ("__getattribute__", "__class__"):
            tr.guard_lookup(self.cls, name, tr.static_lookup(self.cls, name))
        own_lookup = isinstance(tr.static_lookup(self.cls, "__getattribute__"), types.FunctionType)
        if own_lookup or tr.static_lookup(self.cls, "__class__") is not OWN_CLASS:
            raise GraphBreak(OPERATION, f"isinstance() of {self.describe()}, which overrides its own class")

    def refuse_c(self, tr: Tracer, *names: str) -> None:
        """Break where C code of a class that is not understood, ``Decimal`` say, defines one of these methods."""
        for name in names:
            raw = tr.static_lookup(self.cls, name)
            if isinstance(raw, SLOT_WRAPPERS) and raw.__objclass__ is not object and self.storage(tr) is None:
                raise GraphBreak(C_FUNCTION, f"{self.cls.__name__}.{name}")

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = self.special(tr, "__call__")
        if found is None:
            if tr.static_lookup(self.cls, "__call__") is MISSING:
                raise Raised(tr.make_exception(TypeError, f"{self.cls.__name__!r} object is not callable"))
            raise GraphBreak(C_FUNCTION, f"calling {self.describe()}")
        return found.call(tr, args, kwargs)

    def _through(self, tr: Tracer, name: str, args: list[Value], builtin: Any) -> Value:
        found = self.special(tr, name)
        if found is not None:
            return found.call(tr, args, {})
        storage = self.storage(tr)
        if storage is None:
            if tr.static_lookup(self.cls, name) is MISSING:
                raise Raised(
                    tr.make_exception(
                        TypeError, _MISSING_PROTOCOL.get(name, "unsupported: {0}").format(self.cls.__name__)
                    )
                )
            return self.call_c_method(tr, self.cls, name, args, {})
        return builtin(storage)

    def length(self, tr: Tracer) -> Value:
        return of_protocol(self._through(tr, "__len__", [], lambda s: s.length(tr)), "__len__")

    def getitem(self, tr: Tracer, key: Value) -> Value:
        if (
            self.special(tr, "__getitem__") is None
            and (missing := self.special(tr, "__missing__")) is not None
            and (storage := self.storage(tr)) is not None
            and not storage.contains(tr, key).truth(tr)
        ):
            return missing.call(tr, [key], {})
        return self._through(tr, "__getitem__", [key], lambda s: s.getitem(tr, key))

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self._through(tr, "__setitem__", [key, value], lambda s: s.setitem(tr, key, value))

    def delitem(self, tr: Tracer, key: Value) -> None:
        self._through(tr, "__delitem__", [key], lambda s: s.delitem(tr, key))

    def contains(self, tr: Tracer, item: Value) -> Value:
        if self.special(tr, "__contains__") is not None or self.storage(tr) is not None:
            found = self._through(tr, "__contains__", [item], lambda s: s.contains(tr, item))
            return ConstValue(found.truth(tr))
        return super().contains(tr, item)

    def iter(self, tr: Tracer) -> Value:
        found = self.special(tr, "__iter__")
        if found is not None:
            iterator = found.call(tr, [], {})
            if not hasattr(iterator.pytype(), "__next__"):
                message = f"iter() returned non-iterator of type {iterator.pytype().__name__!r}"
                raise Raised(tr.make_exception(TypeError, message))
            return iterator
        storage = self.storage(tr)
        if storage is not None:
            return storage.iter(tr)
        if self.special(tr, "__getitem__") is not None:
            return UserIterator(self, by_index=True)
        self.refuse_c(tr, "__iter__", "__getitem__")
        raise Raised(tr.make_exception(TypeError, f"{self.cls.__name__!r} object is not iterable"))

    def next(self, tr: Tracer) -> Value | None:
        return UserIterator(self, by_index=False).next(tr)

    def hash_key(self, tr: Tracer) -> Any:
        raw = tr.static_lookup(self.cls, "__hash__")
        if raw is object.__hash__ or raw is torch.nn.Module.__hash__:
            tr.identity_matters(self)
            return self
        storage = self.storage(tr)
        if storage is not None and not isinstance(raw, types.FunctionType):
            return storage.hash_key(tr)
        if not isinstance(raw, types.FunctionType):
            raise GraphBreak(OPERATION, f"{self.describe()} as a dictionary key: C code hashes it")
        method, changes = self.special(tr, "__hash__"), tr.effects.count
        assert method is not None
        hashed = of_protocol(method.call(tr, [], {}), "__hash__").const(tr)
        if tr.effects.count != changes:  # a container that is rebuilt asks once more
            raise GraphBreak(OPERATION, f"__hash__ of {self.describe()}, which changes something")
        return HashedKey(tr, self, hashed)

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method that C class ``cls`` defines: ``object``'s own, or one of the builtin base."""
        if cls is object:
            return self._object_method(tr, name, args)
        storage = self.storage(tr)
        if storage is not None:
            if name in ("__getattribute__", "__setattr__", "__delattr__"):
                return self._object_method(tr, name, args)
            return call_builtin_method(tr, storage, cls, name, args, kwargs)
        if self.cls is random.Random and name in ("random", "getrandbits"):
            return draw(tr, self, name, args, kwargs)
        if (self.cls, name) in _PURE_METHODS and all(v.is_const() for v in (*args, *kwargs.values())):
            if self.source is not None:
                tr.guards.is_object(self.source, self.obj)
            function = getattr(self.obj, name)
            given, named = [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()}
            if name == "finditer":  # nothing tells when a match is looked for
                return tr.fold(lambda: list(function(*given, **named)), [], {}).iter(tr)
            return tr.fold(function, given, named)
        if (polyfill := tr.method_polyfill(cls, name)) is not None:
            return polyfill.call(tr, [self, *args], kwargs)
        raise GraphBreak(C_FUNCTION, f"{cls.__name__}.{name}")

    def _object_method(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        if name == "__init__" and args and not self._takes_more(tr):
            raise GraphBreak(OPERATION, f"object.__init__ of {self.describe()} with arguments")
        if name in ("__init__", "__init_subclass__"):
            return ConstValue(None)
        if name == "__setattr__":
            self.set_plain(tr, args[0].const(tr), args[1])
            return ConstValue(None)
        if name == "__delattr__":
            self.delete_plain(tr, args[0].const(tr))
            return ConstValue(None)
        if name == "__getattribute__":
            found = self.find(tr, args[0].const(tr))
            if found is None:
                message = f"{self.cls.__name__!r} object has no attribute {args[0].const(tr)!r}"
                raise Raised(tr.make_exception(AttributeError, message))
            return found
        if name == "__eq__":
            return ConstValue(True) if args[0] is self else ConstValue(NotImplemented)
        if name == "__ne__":
            equal = tr.equal(self, args[0])
            return ConstValue(not equal)
        raise GraphBreak(C_FUNCTION, f"object.{name}")

    def _takes_more(self, tr: Tracer) -> bool:
        """Whether ``object.__init__`` ignores arguments: those of a ``__new__`` of the class."""
        own = [tr.static_lookup(self.cls, name) for name in ("__new__", "__init__")]
        return own[0] is not _PLAIN_NEW and own[1] is object.__init__

    # --- leaving the trace -----------------------------------------------------------------------------------------

    def is_const(self) -> bool:
        return False

    def const(self, tr: Tracer) -> Any:
        storage = self.storage(tr)
        if storage is not None and storage.is_const():
            return self.cls(storage.const(tr))
        raise self.not_understood(f"a plain Python value is needed, not {self.describe()}")

    def arg(self, tr: Tracer) -> Any:
        storage = self.storage(tr)
        if storage is not None:
            return storage.arg(tr)
        return super().arg(tr)

    def fake(self, tr: Tracer) -> Any:
        storage = self.storage(tr)
        if storage is not None:
            return storage.fake(tr)
        return super().fake(tr)

    def rebuild(self, out: FrameWriter) -> str:
        if self.obj is not MISSING:
            return out.names.const(self.obj)
        if self.cls in STANDS_FOR and self not in out.unseen:
            return originals.rebuilt(out, self)
        cls = out.names.const(self.cls)
        storage = self._storage
        if storage is not None and isinstance(storage, (TupleValue, ConstValue)):
            base = out.names.const(storage.pytype())
            variable = out.shell(self, f"{base}.__new__({cls}, {out.value(storage)})")
        else:
            maker = out.names.const(_allocator(self.cls))
            variable = out.shell(self, f"{maker}({cls})")
            if storage is not None:
                storage.fill(out, variable)
        out.after.extend(self.attribute_lines(out, variable))
        return variable

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        return self.attribute_lines(out, target)

    def attribute_lines(self, out: FrameWriter, variable: str) -> list[str]:
        """The lines that give an object the attributes that the trace wrote."""
        base = attribute_base(self.cls)
        setter, deleter, lines = out.names.const(base.__setattr__), out.names.const(base.__delattr__), []
        for name, value in self.attrs.items():
            if isinstance(name, types.MemberDescriptorType):
                if value is not DELETED:
                    lines.append(f"{out.names.const(name.__set__)}({variable}, {out.value(value)})")
                elif self.source is not None:
                    lines.append(f"{out.names.const(name.__delete__)}({variable})")
            elif _is_behind_a_descriptor(self.cls, name):  # whose __set__ is not what the program called
                namespace = f"{out.names.const(base.__getattribute__)}({variable}, '__dict__')"
                if value is not DELETED:
                    lines.append(f"{namespace}[{name!r}] = {out.value(value)}")
                elif self.source is not None:
                    lines.append(f"del {namespace}[{name!r}]")
            elif value is DELETED:
                if self.source is not None:
                    lines.append(f"{deleter}({variable}, {name!r})")
            elif issubclass(self.cls, BaseException):
                lines.append(f"{variable}.{name} = {out.value(value)}")
            else:
                if name in self.moved and self.source is not None:
                    lines.append(f"{deleter}({variable}, {name!r})")
                lines.append(f"{setter}({variable}, {name!r}, {out.value(value)})")
        return lines


def _key(name: str, raw: Any) -> Any:
    """The key in ``ObjectValue.attrs`` of what an attribute is, ``raw`` on the class: slots lie beside ``__dict__``."""
    return raw if isinstance(raw, types.MemberDescriptorType) else name


def _is_behind_a_descriptor(cls: type, name: str) -> bool:
    """Whether a class has a descriptor under this name that takes writes, and the instance's own is in ``__dict__``."""
    raw = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if isinstance(raw, types.MemberDescriptorType | types.GetSetDescriptorType):
        return not issubclass(raw.__objclass__, BaseException)  # whose fields in C go by their names
    return hasattr(type(raw), "__set__")


_PLAIN_NEW = object.__dict__["__new__"]
_PROTOCOLS: dict[str, type] = {
    "__bool__": bool, "__len__": int, "__hash__": int, "__repr__": str, "__str__": str, "__format__": str,
    "__int__": int, "__index__": int, "__float__": float, "__complex__": complex,
}  # fmt: skip


def of_protocol(result: Value, name: str) -> Value:
    """What a special method has returned; it breaks where Python would refuse or change that."""
    is_right = issubclass(result.pytype(), str) if _PROTOCOLS[name] is str else result.pytype() is _PROTOCOLS[name]
    if is_right and name in ("__len__", "__hash__") and result.is_const():
        number = result.real()
        least = 0 if name == "__len__" else -sys.maxsize - 1
        is_right = least <= number <= sys.maxsize and (name, number) != ("__hash__", -1)  # which is -2
    if not is_right:
        raise GraphBreak(OPERATION, f"{name} that returns {result.describe()}")
    return result


_MISSING_PROTOCOL = {
    "__len__": "object of type '{0}' has no len()",
    "__getitem__": "'{0}' object is not subscriptable",
    "__setitem__": "'{0}' object does not support item assignment",
    "__delitem__": "'{0}' object doesn't support item deletion",
}


def _allocator(cls: type) -> Any:
    """The C ``__new__`` that allocates an instance of ``cls``."""
    for base in cls.__mro__:
        new = base.__dict__.get("__new__")
        if isinstance(new, types.BuiltinFunctionType):
            return new
    raise GraphBreak(
        NOT_REBUILDABLE, f"an object of class {cls.__qualname__} cannot be allocated without its constructor"
    )
