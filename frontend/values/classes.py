"""Classes, builtin functions and Python modules: values that represent one existing, shared object."""

from __future__ import annotations

import collections
import enum
import io
import operator
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import C_FUNCTION, DISABLED, OPERATION, GraphBreak
from ..guards.kinds.classes import HasSubclasses
from ..guards.kinds.objects import Is, NoAttribute, NotInDict
from ..guards.sources import Attr, Const, Global, Referent, Source
from ..trace.enumerations import ask_class, ask_operand, asks_for_missing
from .base import MISSING, GraphValue, Raised, Value
from .builtin_methods import BuiltinMethodValue
from .constants import ConstValue
from .containers.iteration import SequenceIterator
from .containers.mappings import DictValue
from .containers.sequences import ListValue, TupleValue
from .containers.sets import SetValue
from .descriptors import MethodValue, bind_class_attribute, class_method
from .exceptions import new_exception
from .facets.properties import NewPropertyValue
from .functions import FunctionValue, bind
from .objects import ObjectValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


def name_of(obj: Any) -> str:
    """The name of a function or a class, for messages."""
    return getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or repr(obj)[:60]


def refused_call(obj: Any) -> GraphBreak:
    """The break for a call of a C function that nothing understands."""
    module = getattr(obj, "__module__", None) or ""
    return GraphBreak(C_FUNCTION, f"{module + '.' if module else ''}{name_of(obj)}")


class RealValue(Value):
    """A value that is one existing object, compared by identity."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def pytype(self) -> type:
        return type(self.obj)

    def real(self) -> Any:
        return self.obj

    def describe(self) -> str:
        return name_of(self.obj)

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        ask_operand(tr, self.obj, "__hash__", "__eq__")
        return self.obj

    def rebuild(self, out: FrameWriter) -> str:
        return out.names.const(self.obj)


# Operators take these classes for the dtype of their numbers; the text of a graph can only hold the dtype.
_DTYPES: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}


_DATA = (GraphValue, ListValue, TupleValue, DictValue, SetValue)  # beside constants


_BUFFERS = (io.StringIO, io.BytesIO)  # of which nobody sees when they are closed


class ClassValue(RealValue):
    """A class.  Calling it makes an object."""

    __slots__ = ()

    def is_const(self) -> bool:
        return True

    def const(self, tr: Tracer) -> Any:
        return self.obj

    def arg(self, tr: Tracer) -> Any:
        return _DTYPES.get(self.obj, self.obj)

    def fake(self, tr: Tracer) -> Any:
        return _DTYPES.get(self.obj, self.obj)

    def getattr(self, tr: Tracer, name: str) -> Value:
        cls = self.obj
        source = Attr(self.source or Const(cls, cls.__qualname__), name)
        if type(cls) is not type and (found := self._ahead_of_class(tr, name)) is not None:
            return found
        if (stored := tr.effects.class_attribute(cls, name)) is not None:
            return stored
        if name == "__dict__" and tr.effects.classes:
            raise GraphBreak(OPERATION, f"__dict__ of class {cls.__qualname__}, once attributes of classes were set")
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            value = getattr(cls, name)
            return tr.lift(value) if tr.is_settled_class(cls) else tr.wrap(value, source)
        if name in ("__mro__", "__bases__"):
            tr.guard_bases(cls)  # whose order tells the bases too
            return tr.lift(getattr(cls, name))
        raw = tr.static_lookup(cls, name)
        if raw is MISSING:
            return self._from_metaclass(tr, name)
        if isinstance(raw, types.FunctionType):
            tr.guard_class_attribute(cls, name, raw)
            return tr.wrap(raw, None)
        if isinstance(raw, classmethod):
            tr.guard_class_attribute(cls, name, raw)
            return class_method(tr, raw, self)
        if isinstance(raw, staticmethod):
            return tr.wrap(raw.__func__, source)
        if isinstance(raw, (types.ClassMethodDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType)):
            found = getattr(cls, name)
            tr.guard_lookup(cls, name, raw)
            if issubclass(cls, torch.Tensor):  # which programs do patch
                tr.guards.add(Is(source, found))
            return tr.wrap(found, None)
        if isinstance(raw, property) or hasattr(type(raw), "__get__"):
            getter = tr.static_lookup(type(raw), "__get__")
            tr.guard_lookup(cls, name, raw)
            tr.guard_lookup(type(raw), "__get__", getter)
            if isinstance(getter, types.FunctionType):
                return tr.wrap(getter, None).call(tr, [tr.wrap(raw, None), ConstValue(None), self], {})
        if isinstance(cls, enum.EnumMeta) and tr.is_settled_class(cls):
            return tr.lift(getattr(cls, name))
        return tr.wrap(getattr(cls, name), source)

    def _ahead_of_class(self, tr: Tracer, name: str) -> Value | None:
        """What a metaclass of the program's gives before the class itself is asked."""
        meta = type(self.obj)
        lookup, raw = tr.static_lookup(meta, "__getattribute__"), tr.static_lookup(meta, name)
        tr.guard_lookup(meta, "__getattribute__", lookup)
        if isinstance(lookup, types.FunctionType):
            return tr.wrap(lookup, None).call(tr, [self, ConstValue(name)], {})
        tr.guard_lookup(meta, name, raw)
        if raw is MISSING or not tr.is_data_descriptor(raw) or raw is type.__dict__.get(name):
            return None
        return self._from_metaclass(tr, name)

    def _from_metaclass(self, tr: Tracer, name: str) -> Value:
        meta = type(self.obj)
        raw = tr.static_lookup(meta, name)
        if meta is not type and raw is not MISSING:
            tr.guard_lookup(self.obj, name, tr.static_lookup(self.obj, name))
        if isinstance(raw, types.FunctionType):
            return MethodValue(tr.wrap(raw, None), self)
        if isinstance(raw, property):
            return tr.wrap(raw.fget, None).call(tr, [self], {})
        if raw is not MISSING:
            try:
                value = getattr(self.obj, name)
            except AttributeError as error:  # ``__abstractmethods__`` of a class that is none of :mod:`abc`
                tr.guards.add(NoAttribute(Const(self.obj, self.obj.__qualname__), name))
                raise Raised(tr.exception(error)) from None
            if value is raw and not hasattr(type(raw), "__get__"):
                return tr.wrap(value, Attr(Const(meta, meta.__qualname__), name))
            if raw is type.__dict__["__subclasses__"]:
                return BuiltinMethodValue(self, type, name)
            if isinstance(value, types.BuiltinMethodType):
                return tr.wrap(value, None)
            raise GraphBreak(OPERATION, f"attribute {name!r} of class {self.obj.__qualname__}")
        custom = tr.static_lookup(meta, "__getattr__")
        if meta is not type:
            tr.guard_lookup(meta, "__getattr__", custom)
            tr.guard_lookup(self.obj, name, MISSING)
        if isinstance(custom, types.FunctionType):
            return tr.wrap(custom, None).call(tr, [self, ConstValue(name)], {})
        if tr.is_settled_class(self.obj):
            tr.guards.add(NoAttribute(Const(self.obj, self.obj.__qualname__), name))
        tr.guard_lookup(self.obj, name, MISSING)
        raise Raised(tr.make_exception(AttributeError, f"type object {self.obj.__name__!r} has no attribute {name!r}"))

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        """Store data, which no protocol asks for; anything else may change what objects of the class do."""
        cls = self.obj
        if tr.effects.class_attribute(cls, name) is None:
            raw = tr.static_lookup(cls, name)
            is_data = not hasattr(type(raw), "__get__")
            is_plain = type(cls) is type and not tr.is_settled_class(cls) and not name.startswith("__")
            if not is_plain or not (raw is MISSING or is_data):
                raise GraphBreak(OPERATION, f"setting attribute {name!r} of class {cls.__qualname__}")
            if raw is MISSING:
                tr.guard_lookup(cls, name, MISSING)
            else:
                tr.guards.type_is(Attr(Const(cls, cls.__qualname__), name), type(raw))
                tr.guard_lookup(type(raw), "__get__", MISSING)
        if hasattr(value.pytype(), "__get__") or not (value.is_const() or isinstance(value, (*_DATA, ObjectValue))):
            raise GraphBreak(OPERATION, f"{value.describe()} as attribute {name!r} of class {cls.__qualname__}")
        tr.effects.store_class_attribute(cls, name, value)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        cls = self.obj
        if isinstance(cls, enum.EnumMeta):
            ask_class(tr, cls, "__getitem__")
            return tr.fold(operator.getitem, [cls, key.const(tr)], {})
        found = self._meta_method(tr, "__getitem__")
        if found is not None:
            return found.call(tr, [key], {})
        if hasattr(cls, "__class_getitem__"):
            by_class = tr.static_lookup(cls, "__class_getitem__")
            if isinstance(by_class, types.ClassMethodDescriptorType) or cls.__module__ == "collections.abc":
                return self._alias(tr, key)
            return self.getattr(tr, "__class_getitem__").call(tr, [key], {})
        return super().getitem(tr, key)

    def _alias(self, tr: Tracer, key: Value) -> Value:
        """``list[int]``, which annotations are full of."""
        items = key.unpack(tr) if isinstance(key, TupleValue) else [key]
        arguments = tuple(
            [each.real() for each in item.items(tr)] if isinstance(item, ListValue) else item.real() for item in items
        )
        if any(MISSING is a or (isinstance(a, list) and MISSING in a) for a in arguments):
            raise GraphBreak(OPERATION, f"{self.describe()}[{key.describe()}]")
        return tr.wrap(self.obj[arguments if isinstance(key, TupleValue) else arguments[0]], None)

    def iter(self, tr: Tracer) -> Value:
        if isinstance(self.obj, enum.EnumMeta):
            ask_class(tr, self.obj, "__iter__")
            return SequenceIterator(list(map(tr.lift, self.obj)))
        found = self._meta_method(tr, "__iter__")
        return super().iter(tr) if found is None else found.call(tr, [], {}).iter(tr)

    def _meta_method(self, tr: Tracer, name: str) -> Value | None:
        """A special method that the metaclass defines in Python, bound to the class."""
        raw = tr.static_lookup(type(self.obj), name)
        tr.guard_lookup(type(self.obj), name, raw)
        return None if raw is MISSING else bind_class_attribute(tr, self, type(self.obj), name, raw)

    def truth(self, tr: Tracer) -> bool:
        if type(self.obj) is type:
            return True
        if isinstance(self.obj, enum.EnumMeta):
            ask_class(tr, self.obj, "__bool__")
            return True
        found = self._meta_method(tr, "__bool__") or self._meta_method(tr, "__len__")
        return True if found is None else found.call(tr, [], {}).truth(tr)

    def length(self, tr: Tracer) -> Value:
        if isinstance(self.obj, enum.EnumMeta):
            ask_class(tr, self.obj, "__len__")
            return ConstValue(len(self.obj))
        found = self._meta_method(tr, "__len__")
        return super().length(tr) if found is None else found.call(tr, [], {})

    def contains(self, tr: Tracer, item: Value) -> Value:
        if isinstance(self.obj, enum.EnumMeta):
            ask_class(tr, self.obj, "__contains__")
            return tr.fold(operator.contains, [self.obj, item.const(tr)], {})
        found = self._meta_method(tr, "__contains__")
        return super().contains(tr, item) if found is None else ConstValue(found.call(tr, [item], {}).truth(tr))

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        meaning = tr.meaning_of(self.obj)
        return self.instantiate(tr, args, kwargs) if meaning is None else meaning(tr, args, kwargs)

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if cls is type and name == "__call__":
            return self.make(tr, args, kwargs)
        if cls is type and name == "__subclasses__" and not (args or kwargs or tr.put_off):
            found = type.__subclasses__(self.obj)
            references = tuple(map(weakref.ref, found))
            tr.guards.add(HasSubclasses(Const(self.obj, self.obj.__qualname__), references))
            return ListValue([tr.wrap(each, None) for each in found])
        raise GraphBreak(C_FUNCTION, f"{cls.__name__}.{name} on a class")

    def _missing(self, tr: Tracer, given: Value) -> Value:
        """The member that the ``_missing_`` of an enumeration finds for a value that none has."""
        try:
            found = self.getattr(tr, "_missing_").call(tr, [given], {})
        except Raised as raised:
            if issubclass(raised.value.pytype(), ValueError):
                raise
            raise GraphBreak(C_FUNCTION, f"{self.describe()}, whose _missing_ raises another error") from None
        if isinstance(found.real(), self.obj):
            return found
        if found.pytype() is not type(None):
            raise GraphBreak(C_FUNCTION, f"{self.describe()}, whose _missing_ finds no member")
        message = f"{given.const(tr)!r} is not a valid {self.obj.__qualname__}"
        raise Raised(tr.make_exception(ValueError, message))

    def instantiate(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call the class: as its metaclass says, or as ``type`` does it."""
        cls = self.obj
        if isinstance(cls, enum.EnumMeta):
            ask_class(tr, cls, "__call__")
            if len(args) == 1 and not kwargs and asks_for_missing(tr, cls, args[0].const(tr)):
                return self._missing(tr, args[0])
            return tr.fold(cls, [a.const(tr) for a in args], {k: v.const(tr) for k, v in kwargs.items()})
        meta_call = tr.static_lookup(type(cls), "__call__")
        if type(cls) is not type:
            tr.guard_lookup(type(cls), "__call__", meta_call)
        if not isinstance(meta_call, types.WrapperDescriptorType):
            return bind_class_attribute(tr, self, type(cls), "__call__", meta_call).call(tr, args, kwargs)
        return self.make(tr, args, kwargs)

    def make(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """``type.__call__``: allocate, then initialize."""
        cls = self.obj
        if issubclass(cls, tuple) and tr.is_plain_namedtuple(cls):
            return self._namedtuple(tr, args, kwargs)
        if issubclass(cls, (torch.Tensor, torch.autograd.Function)):
            raise GraphBreak(OPERATION, f"creating a {cls.__qualname__} in the compiled function")
        finalizer = tr.static_lookup(cls, "__del__")
        if finalizer is not MISSING:
            stop = GraphBreak(OPERATION, f"creating a {cls.__qualname__}, whose __del__ runs with its last reference")
            stop.whole_frame = cls not in _BUFFERS  # made code holds its arguments longer
            raise stop
        tr.guard_lookup(cls, "__del__", MISSING)
        new = tr.static_lookup(cls, "__new__")
        tr.guard_lookup(cls, "__new__", new)
        new = new.__func__ if isinstance(new, staticmethod) else new
        if isinstance(new, types.FunctionType):
            made = tr.wrap(new, None).call(tr, [self, *args], kwargs)
        else:
            made = allocate(tr, cls, args, kwargs)
        if cls in (made.cls if isinstance(made, ObjectValue) else made.pytype()).__mro__:
            init = tr.static_lookup(cls, "__init__")
            tr.guard_lookup(cls, "__init__", init)
            if isinstance(init, types.FunctionType):
                tr.guard_class_attribute(cls, "__init__", init)
                result = tr.wrap(init, None).call(tr, [made, *args], kwargs)
                if not (result.is_const() and result.const(tr) is None):
                    raise GraphBreak(OPERATION, f"__init__ of {cls.__qualname__} that returns {result.describe()}")
            elif isinstance(made, ObjectValue) and init is not object.__init__:
                made.call_c_method(tr, init.__objclass__, "__init__", args, kwargs)
            elif init is object.__init__ and (args or kwargs) and not isinstance(new, types.FunctionType):
                if made.pytype().__new__ is object.__new__:
                    raise Raised(tr.make_exception(TypeError, f"{cls.__name__}() takes no arguments"))
        return made

    def _namedtuple(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cls = self.obj
        new = tr.static_lookup(cls, "__new__")
        new = new.__func__ if isinstance(new, staticmethod) else new
        if new.__code__.co_filename.startswith("<string>") or new.__code__.co_filename.startswith("<collections"):
            function = tr.wrap(new, None)
            assert isinstance(function, FunctionValue)
            bound = bind(tr, function, [self, *args], kwargs)
            return TupleValue([bound[name] for name in cls._fields], cls=cls)
        return tr.wrap(new, None).call(tr, [self, *args], kwargs)


def allocate(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``cls.__new__`` where C defines it: an object with the storage of its builtin base."""
    if getattr(cls, "__abstractmethods__", None):
        try:
            object.__new__(cls)  # to raise in the words of this Python
        except TypeError as error:
            raise Raised(tr.exception(error)) from None
    if issubclass(cls, BaseException):
        return new_exception(cls, list(args))
    if issubclass(cls, dict):
        base = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
        return ObjectValue(cls, storage=DictValue({}, cls=base))
    if issubclass(cls, list):
        return ObjectValue(cls, storage=ListValue([]))
    if issubclass(cls, set):
        return ObjectValue(cls, storage=SetValue({}))
    if issubclass(cls, tuple):
        return ObjectValue(cls, storage=TupleValue(args[0].unpack(tr) if args else []))
    if issubclass(cls, property):
        return NewPropertyValue(cls)
    for scalar in (str, int, float):
        if issubclass(cls, scalar):
            return ObjectValue(cls, storage=tr.fold(scalar, [a.const(tr) for a in args], {}))
    owner = next(c for c in cls.__mro__ if isinstance(c.__dict__.get("__new__"), types.BuiltinFunctionType))
    if owner is not object:
        raise GraphBreak(C_FUNCTION, f"creating a {cls.__qualname__}")
    return ObjectValue(cls)


class BuiltinValue(RealValue):
    """A function written in C (or a class's C method, unbound)."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        meaning = tr.meaning_of(self.obj)
        if meaning is None:
            raise refused_call(self.obj)
        return meaning(tr, args, kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        try:
            value = getattr(self.obj, name)
        except AttributeError as error:
            raise Raised(tr.exception(error)) from None
        return tr.wrap(value, None)


class PythonModuleValue(RealValue):
    """An imported Python module; its attributes are globals and guarded as such."""

    __slots__ = ()

    def getattr(self, tr: Tracer, name: str) -> Value:
        module = self.obj
        namespace = module.__dict__
        if type(module) is not types.ModuleType and not tr.is_settled_class(type(module)):
            raw = tr.static_lookup(type(module), name)
            own = isinstance(tr.static_lookup(type(module), "__getattribute__"), types.FunctionType)
            if own or (raw is not MISSING and tr.is_data_descriptor(raw)):
                raise GraphBreak(OPERATION, f"attribute {name!r} of {self.describe()}, whose class computes it")
        written = tr.written_global(namespace, name)
        if written is not None:
            return written
        if name in namespace:
            source: Source = Attr(Const(module, module.__name__), name)
            if "__getattr__" in namespace:  # a check must not ask it when the name is gone
                source = Global(namespace, name)
            return tr.wrap_global(namespace[name], source)
        maker = namespace.get("__getattr__")
        if isinstance(maker, types.FunctionType) and not hasattr(type(module), name):
            if not tr.is_settled_class(maker):  # code of the program, which may do anything
                tr.guards.add(NotInDict(Const(namespace, f"globals of {module.__name__}"), name))
                return self.getattr(tr, "__getattr__").call(tr, [ConstValue(name)], {})
        try:
            return tr.wrap(getattr(module, name), Attr(Const(module, module.__name__), name))
        except AttributeError as error:
            tr.guards.add(NoAttribute(Const(module, module.__name__), name))
            raise Raised(tr.exception(error)) from None

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        tr.store_global(self.obj.__dict__, name, value)


class WeakrefValue(RealValue):
    """A weak reference: calling it gives what it refers to."""

    __slots__ = ()

    def hash_key(self, tr: Tracer) -> Any:
        raise GraphBreak(OPERATION, f"{self.describe()} as a dictionary key, which is equal to others while it lives")

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return tr.wrap(self.obj(), Referent(self.source or Const(self.obj, "weak reference")))


def _type_argument(tr: Tracer, value: Value) -> Any:
    """What stands in the brackets of a ``typing`` form."""
    if isinstance(value, (TupleValue, ListValue)):
        parts = [_type_argument(tr, item) for item in value.items(tr)]
        return tuple(parts) if isinstance(value, TupleValue) else parts
    if isinstance(value, DisabledValue) or (isinstance(value, ObjectValue) and value.cls.__module__ == "typing"):
        return value.real()
    return value.const(tr)


class DisabledValue(RealValue):
    """A callable that ends the graph when it is called."""

    __slots__ = ("kind", "reason")

    def __init__(self, obj: Any, reason: str, kind: str = DISABLED, source: Source | None = None) -> None:
        super().__init__(obj, source)
        self.reason = reason
        self.kind = kind

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise GraphBreak(self.kind, self.reason)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        if type(self.obj).__module__ != "typing":
            return super().getitem(tr, key)
        try:
            made = self.obj[_type_argument(tr, key)]  # equal ones are one object, or compare equal
        except Exception as error:
            raise Raised(tr.exception(error)) from None
        return tr.wrap(made, None)

    def getattr(self, tr: Tracer, name: str) -> Value:
        try:
            found = getattr(self.obj, name)
        except AttributeError as error:
            raise Raised(tr.exception(error)) from None
        return tr.wrap(found, None)
