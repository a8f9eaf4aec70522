"""Turns existing objects into values, and guards what it reads.

``wrap`` is the only entry point: it dispatches on the object's class, remembers its results (so that one object is one
value, however it is reached) and adds the guards that make the value valid for later calls.
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import threading
import types
import typing
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import torch

from .. import breaks
from ..breaks import GraphBreak
from ..guards.guards import GuardSet
from ..guards.kinds.classes import ClassFinds, ClassMethodIs, DerivesAsBefore, IsSubclass, NotInClasses
from ..guards.kinds.containers import RawLength
from ..guards.kinds.equality import BuiltinPartEquals
from ..guards.kinds.functions import FunctionGives, MethodNameIs
from ..guards.kinds.guard import short
from ..guards.kinds.modules import NoGlobalHooks
from ..guards.kinds.objects import AttributeIs, NoAttribute
from ..guards.sources import Attr, Cell, Const, RawItem, Source
from ..handlers import classify
from ..unwrap import compiled_elsewhere, compiled_here
from ..values.arrays import wrap_numpy
from ..values.base import MISSING, Lazy, OpaqueValue, Value
from ..values.builtin_methods import BuiltinMethodValue
from ..values.cached import CachedFunctionValue, look
from ..values.cells import CellValue
from ..values.classes import BuiltinValue, ClassValue, DisabledValue, PythonModuleValue, RealValue, WeakrefValue
from ..values.constants import CONST_TYPES, NUMPY_NUMBERS, ConstValue, NumpyNumberValue
from ..values.containers.deques import wrap_deque
from ..values.containers.iterators import wrap_iterator
from ..values.containers.keys import HashedKey
from ..values.containers.mappings import VIEWS, wrap_dict
from ..values.containers.proxies import wrap_proxy, wrap_view
from ..values.containers.sequences import (
    ListValue,
    RangeValue,
    SliceValue,
    TupleValue,
    wrap_list,
    wrap_tuple,
)
from ..values.containers.sets import wrap_set
from ..values.contexts import wrap_context
from ..values.descriptors import MethodValue
from ..values.exceptions import wrap_exception
from ..values.facets.context_variables import ContextVariableValue
from ..values.facets.scripted import ScriptedValue
from ..values.facets.supers import wrap_super
from ..values.functions import CodeValue, FunctionValue, PartialValue, wrap_function
from ..values.meshes import class_value, wrap_distributed
from ..values.modules import wrap_module
from ..values.objects import OWN_CLASS, ObjectValue
from ..values.tensors import TensorValue, is_plain_tensor
from .namespaces import Namespaces
from .shared_cells import guard_cells
from .subclasses import subclass_input

_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
_TUPLE_METHODS = ("__len__", "__getitem__", "__iter__", "__contains__", "__eq__", "__bool__", "__add__", "__hash__")
_DATA_DESCRIPTOR: dict[type, bool] = {}
_STATIC: dict[tuple[type, str], Any] = {}
_C_FUNCTIONS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType, types.TracebackType)
# Parts of the typing machinery are instances that a program may only pass on or compare.
_INERT_TYPES = (
    typing.TypeVar, type(list[int]), types.UnionType,
    *((torch.cuda.Stream,) if hasattr(torch.cuda, "Stream") else ()),
    type(threading.Lock()), property, staticmethod, classmethod,
)  # fmt: skip


class Reader(Namespaces):
    """The part of a trace that reads existing objects into values."""

    def __init__(self) -> None:
        self.guards = GuardSet()
        Namespaces.__init__(self)
        self._keep: list[Any] = []  # what _memo has ids of must stay alive
        self._of_code: dict[int, ConstValue] = {}  # constants of code objects, by id
        self._distinct: set[type] = set()
        self._equal: dict[Hashable, Any] = {}
        self.module_sources: set[Source] = set()  # paths that lead to modules
        self._shared_cells: list[tuple[Source, Cell]] = []  # other paths to cells of the frame
        self._reached: dict[int, Source] = {}  # by id: where an object was met whose value is that of another one

    # --- the one door ----------------------------------------------------------------------------------------------

    def wrap(self, obj: Any, source: Source | None) -> Value:
        """The value of an existing object reached by ``source`` (None: known without a guard)."""
        cls = type(obj)
        if self.made and source is not None and isinstance(root := source.root(), Const) and id(root.obj) in self.made:
            source = None  # nothing of a class that the trace has made is there in the next call
        if cls in CONST_TYPES:
            return self._wrap_const(obj, source)
        known = self._memo.get(id(obj))
        if known is not None:
            first = self._reached.get(id(obj), known.source)
            if source is None or first is None:
                if (path := source or first) is not None:
                    self._guard_again(known, obj, path)
            elif first != source:
                if isinstance(first, Cell):
                    self._shared_cells.append((source, first))
                else:
                    self.guards.same(source, first)
            return known
        value = self._wrap_new(obj, cls, source)
        if source is not None and value.source is not None and value.source != source:
            self._reached[id(obj)] = source
        self.remember(obj, value)
        return value

    def _guard_again(self, known: Value, obj: Any, source: Source) -> None:
        """An object that is known without a path is met with one as well: its identity is what matters."""
        if (
            isinstance(known, (FunctionValue, ClassValue, BuiltinValue, PythonModuleValue, DisabledValue))
            or known.real() is obj
        ):
            self.guards.is_object(source, obj)

    def _wrap_const(self, obj: Any, source: Source | None) -> Value:
        if source is not None:
            if type(obj) in (int, float) and self.wants_symbolic(obj, source):
                return self.number_input(obj, source)
            if type(obj) in NUMPY_NUMBERS and self.takes_numpy_number(obj, source):
                return NumpyNumberValue(self, obj, source)
            self.guards.equals(source, obj)
        return ConstValue(obj, source)

    def _wrap_new(self, obj: Any, cls: type, source: Source | None) -> Value:
        if cls in weakref.ProxyTypes:  # they say that they are what they refer to
            raise GraphBreak(breaks.OPERATION, f"a {cls.__name__}")
        meta = type(cls)
        # pybind11's only finds instance methods of C++ in another way, of which classes of the program have none.
        if meta.__getattribute__ is not type.__getattribute__ and meta.__module__ != "pybind11_builtins":
            what = f"an object of {type.__repr__(cls)}, whose metaclass has a __getattribute__"
            raise GraphBreak(breaks.OPERATION, what)
        own_lookup = isinstance(self.static_lookup(cls, "__getattribute__"), types.FunctionType)
        if (own_lookup or self.static_lookup(cls, "__class__") is not OWN_CLASS) and not issubclass(
            cls, (torch.Tensor, torch.nn.Module, BaseException, type)
        ):
            return self._wrap_object(obj, cls, source)  # to ask isinstance() of it would run its code
        if isinstance(obj, torch.Tensor):
            return self._wrap_tensor(obj, source)
        if cls is types.FunctionType:
            return self._wrap_python_function(obj, source)
        if isinstance(obj, type):
            self._identity(obj, source)
            return class_value(obj, source)
        if isinstance(obj, torch.nn.Module):
            if (original := getattr(cls, "_torchmux_original", None)) is not None:
                self._identity(obj, source)
                return self.wrap(original, source and Attr(source, "_torchmux_original"))
            return wrap_module(self, obj, source)
        if cls is list:
            return wrap_list(self, obj, source)
        if cls is tuple or cls is torch.Size or (isinstance(obj, tuple) and self.is_plain_namedtuple(cls)):
            return wrap_tuple(self, obj, source)
        if cls in _MAPPINGS:
            if any(namespace is obj for namespace, _ in self.effects.globals.values()):
                raise GraphBreak(breaks.OPERATION, "the dictionary of the globals, after a write to one of them")
            return wrap_dict(self, obj, source)
        if cls in (set, frozenset):
            return wrap_set(self, obj, source)
        if isinstance(obj, enum.Enum):
            self._identity(obj, source)
            return ConstValue(obj, source)
        return self._wrap_rare(obj, cls, source)

    def is_plain_namedtuple(self, cls: type) -> bool:
        """Whether a class is that of a named tuple, which does as tuples do."""
        if not hasattr(cls, "_fields"):
            return False
        found = {name: self.static_lookup(cls, name) for name in _TUPLE_METHODS}
        for name, raw in found.items():
            self.guard_lookup(cls, name, raw)
        return not any(isinstance(raw, types.FunctionType) for raw in found.values())

    def _wrap_rare(self, obj: Any, cls: type, source: Source | None) -> Value:
        if cls is types.MethodType:
            if source is not None:
                self.guards.type_is(source, types.MethodType)
            function = self.wrap(obj.__func__, source and Attr(source, "__func__"))
            return MethodValue(function, self.wrap(obj.__self__, source and Attr(source, "__self__")), source)
        if isinstance(obj, _C_FUNCTIONS):
            return self._wrap_c_function(obj, source)
        if (of_numpy := wrap_numpy(self, obj, source)) is not None:
            return of_numpy
        if cls is types.ModuleType or isinstance(obj, types.ModuleType):
            self._identity(obj, source)
            return PythonModuleValue(obj, source)
        if cls is functools.partial:
            return self._wrap_partial(obj, source)
        if isinstance(obj, functools.partial) and (made_from := compiled_here(obj)) is not None:
            self._identity(obj, source)
            return self.wrap(made_from[1], source and Attr(source, made_from[0]))
        if isinstance(obj, functools._lru_cache_wrapper):
            self._identity(obj, source)
            return CachedFunctionValue(obj, source)
        if cls is collections.deque:
            return wrap_deque(self, obj, source)
        if cls is super:
            return wrap_super(self, obj, source)
        if cls is types.CellType:
            return CellValue(source=source, obj=obj)
        if cls is weakref.ReferenceType:
            self.guards_type(source, cls)
            return WeakrefValue(obj, source)
        if cls is range:
            self.guards_equal(source, obj)
            return RangeValue(obj, source)
        if cls is slice:
            start, stop, step = (
                self.wrap(getattr(obj, n), source and Attr(source, n)) for n in ("start", "stop", "step")
            )
            return SliceValue(start, stop, step, source)
        if cls is types.CodeType:
            self._identity(obj, source)
            return CodeValue(obj)
        if cls is types.MappingProxyType:
            if source is not None:
                self.guards.type_is(source, cls)
            return wrap_proxy(self, obj, source)
        if cls in VIEWS:
            return wrap_view(self, obj, source)
        found = wrap_iterator(self, obj, source) or wrap_context(self, obj, source)
        found = found or wrap_distributed(self, obj, source)
        if found is not None:
            return found
        if classify.is_operator_object(obj):
            self._identity(obj, source)
            return classify.operator_value(obj, source)
        if cls is contextvars.ContextVar:
            self._identity(obj, source)
            return ContextVariableValue(obj, source)
        if isinstance(obj, _SUSPENDED):
            self.guards_type(source, cls)
            return OpaqueValue(cls, f"a {cls.__name__} from outside the compiled function", source)
        if isinstance(obj, BaseException):
            return wrap_exception(self, obj, source)
        if cls is torch.jit.ScriptFunction:
            self._identity(obj, source)
            return ScriptedValue(obj, source)
        if isinstance(obj, _INERT_TYPES) or cls.__module__ == "typing":
            self._identity(obj, source)
            return DisabledValue(obj, f"calling a {cls.__name__}", breaks.OPERATION, source)
        return self._wrap_object(obj, cls, source)

    def _wrap_object(self, obj: Any, cls: type, source: Source | None) -> Value:
        """An object of a class without a case above: its attributes are guarded as they are read."""
        self.guards_type(source, cls)
        return ObjectValue(cls, obj, source or Const(obj, cls.__name__))

    def _wrap_tensor(self, obj: torch.Tensor, source: Source | None) -> Value:
        source = source or Const(obj, "a constant tensor")
        if not is_plain_tensor(obj):
            return subclass_input(self, obj, source)
        return self.tensor_input(obj, source, static=isinstance(obj, torch.nn.Parameter))

    def _wrap_python_function(self, obj: Any, source: Source | None) -> Value:
        if (patched := classify.patched_by_torch(obj)) is not None:
            self._identity(obj, source)
            return self.wrap(patched, None)
        made_from = compiled_here(obj)
        if made_from is None and (disabled := classify.is_disabled(obj)) is not None:
            self._identity(obj, source)
            return DisabledValue(obj, f"{obj.__qualname__} {disabled}", source=source)
        if (made_from := made_from or compiled_elsewhere(obj)) is not None:
            self._identity(obj, source)  # compiled on its own: here it is part of the caller's graph
            return self.wrap(made_from[1], source and Attr(source, made_from[0]))
        special = classify.function_value(obj, source)
        if special is not None:
            self._identity(obj, source)
            return special
        return wrap_function(self, obj, source)

    def _wrap_c_function(self, obj: Any, source: Source | None) -> Value:
        operator_value = classify.function_value(obj, source)
        if operator_value is not None:
            self._identity(obj, source)
            return operator_value
        owner = getattr(obj, "__self__", None)
        if isinstance(obj, (types.BuiltinMethodType, types.MethodWrapperType)) and owner is not None:
            if not isinstance(owner, (types.ModuleType, type)):
                return self._wrap_bound_c_method(obj, owner, source)
        self._identity(obj, source)
        return BuiltinValue(obj, source)

    def _wrap_bound_c_method(self, obj: Any, owner: Any, source: Source | None) -> Value:
        """``some_list.append``, kept somewhere: method ``__name__`` of its ``__self__``."""
        if source is not None:
            self.guards.type_is(source, type(obj))
            self.guards.add(MethodNameIs(source, obj.__name__))
        value = self.wrap(owner, source and Attr(source, "__self__"))
        if isinstance(value, ConstValue):
            return value.getattr(self, obj.__name__)
        if isinstance(value, TensorValue):
            return value.getattr(self, obj.__name__)
        return BuiltinMethodValue(value, type(owner), obj.__name__, source)

    def _wrap_partial(self, obj: functools.partial, source: Source | None) -> Value:
        self.guards_type(source, functools.partial)
        args = self.wrap(obj.args, source and Attr(source, "args"))
        kwargs = self.wrap(obj.keywords, source and Attr(source, "keywords"))
        function = self.wrap(obj.func, source and Attr(source, "func"))
        named = {k.const(self): kwargs.getitem(self, k) for k in kwargs.unpack(self)}
        return PartialValue(function, args.unpack(self), named, source)

    # --- variations ------------------------------------------------------------------------------------------------

    def wrap_registered(self, obj: Any, source: Source | None, table: str) -> Value:
        """A parameter, buffer or submodule: tensors among them are static inputs."""
        if is_plain_tensor(obj) and id(obj) not in self._memo and source is not None:
            value = self.tensor_input(obj, source, static=True)
            self._memo[id(obj)] = value
            return value
        return self.wrap(obj, source)

    def wrap_global(self, obj: Any, source: Source) -> Value:
        """A global: functions, classes and modules are guarded by identity."""
        if type(obj) is types.FunctionType:
            self.guards.is_object(source, obj)
            return self.wrap(obj, None)
        return self.wrap(obj, source)

    def wrap_fixed(self, obj: Any, source: Source) -> Value:
        """An item of a tuple that is itself guarded by identity: constants in it need no separate guard."""
        if type(obj) in CONST_TYPES:
            return ConstValue(obj)
        return self.wrap(obj, source)

    def wrap_key(self, key: Any, source: Source | None) -> Value:
        """A dictionary key: a constant is guarded with the dictionary, an object as what its path leads to."""
        if not self.is_fixed_key(key):
            return self.wrap(key, source)
        return TupleValue([self.wrap_key(k, None) for k in key]) if type(key) is tuple else ConstValue(key)

    def is_fixed_key(self, key: Any) -> bool:
        """Whether a key is a constant, or a tuple of constants."""
        if type(key) is tuple:
            return all(map(self.is_fixed_key, key))
        return type(key) in CONST_TYPES or isinstance(key, enum.Enum)

    def wrap_storage(self, obj: Any, source: Source | None) -> Value | None:
        """The builtin contents of an existing object whose class derives from a builtin class."""
        kind = type(obj)
        if issubclass(kind, dict):
            return wrap_dict(self, obj, source, raw=True)
        sequence: Any
        base: Any
        for sequence, cls in ((list, ListValue), (tuple, TupleValue)):
            if issubclass(kind, sequence):
                length = sequence.__len__(obj)
                if source is not None:
                    self.guards.add(RawLength(source, sequence, length))
                elements = [sequence.__getitem__(obj, i) for i in range(length)]
                items = [Lazy(x, RawItem(source, sequence, i) if source else None) for i, x in enumerate(elements)]
                return cls(items, source if sequence is list else None, lazy=True)
        if issubclass(kind, (set, frozenset)):
            return wrap_set(self, obj, source, raw=True)
        for base in (str, int, float):
            if issubclass(kind, base):
                value = base.__new__(base, obj) if base is not float else float.fromhex(float.hex(obj))
                if source is not None:
                    self.guards.add(BuiltinPartEquals(source, base, value))
                return ConstValue(value)
        return None

    def force(self, element: Value | Lazy) -> Value:
        """The value of a container's element that has not been looked at yet."""
        return self.wrap(element.obj, element.source) if isinstance(element, Lazy) else element

    def keep_equal(self, obj: Any) -> Any:
        """One object for all that look like this one, so that sources which hold it are equal."""
        return self._equal.setdefault(look(obj), obj)

    def remember(self, obj: Any, value: Value) -> None:
        """Make ``value`` what ``obj`` is wherever it is met."""
        self._memo[id(obj)] = value
        self._keep.append(obj)

    def memo_of(self, obj: Any) -> Value | None:
        return self._memo.get(id(obj))

    def stable(self, key: Any) -> Any:
        """The real object of a hash key, for a guard."""
        if isinstance(key, HashedKey):
            key = key.value
        if isinstance(key, Value):
            real = key.real()
            if real is MISSING:
                raise GraphBreak(breaks.OPERATION, f"{key.describe()} as the key of an existing dictionary")
            return real
        return key

    def lift(self, obj: Any) -> Value:
        """The value of an object that tracing computed: constants, and containers of them."""
        cls = type(obj)
        if cls in CONST_TYPES or isinstance(obj, enum.Enum):
            return ConstValue(obj)
        if cls in (tuple, torch.Size) or (isinstance(obj, tuple) and hasattr(cls, "_fields")):
            return TupleValue([self.lift(x) for x in obj], cls=cls)
        if cls is list:
            return ListValue([self.lift(x) for x in obj])
        if cls is range:
            return RangeValue(obj)
        if cls is slice:
            return SliceValue(self.lift(obj.start), self.lift(obj.stop), self.lift(obj.step))
        if cls in (dict, collections.OrderedDict):
            value = wrap_dict(self, obj, None)
            value.values(self)
            return value
        if cls in (set, frozenset):
            return wrap_set(self, obj, None)
        if cls is np.ndarray:
            raise GraphBreak(breaks.C_FUNCTION, "a NumPy array created during compilation")  # each call has its own
        return self.wrap(obj, None)

    def lift_constant(self, obj: Any) -> Value:
        """A constant of a code object: the same value whenever it is the same object."""
        if type(obj) in CONST_TYPES:
            return self._of_code.setdefault(id(obj), ConstValue(obj))
        return CodeValue(obj) if isinstance(obj, types.CodeType) else self.lift(obj)

    def is_of_code(self, value: Value) -> bool:
        """Whether a value is a constant of a code object, which is the same object in every call."""
        return any(value is known for known in self._of_code.values())

    # --- classes ---------------------------------------------------------------------------------------------------

    def static_lookup(self, cls: type, name: str) -> Any:
        """What the method resolution order of ``cls`` has under ``name``, unbound; MISSING if nothing.

        Who reads an attribute that the trace may have stored asks ``effects.class_attribute`` first.
        """
        if self.effects.classes and self.effects.class_attribute(cls, name) is not None:
            raise GraphBreak(breaks.OPERATION, f"{cls.__name__}.{name}, which the compiled function has set")
        for base in cls.__mro__:
            found = base.__dict__.get(name, MISSING)
            if found is not MISSING:
                return found
        return MISSING

    def is_data_descriptor(self, raw: Any) -> bool:
        cls = type(raw)
        found = _DATA_DESCRIPTOR.get(cls)
        if found is None:
            found = hasattr(cls, "__set__") or hasattr(cls, "__delete__")
            if self.is_settled_class(cls):
                _DATA_DESCRIPTOR[cls] = found
            else:  # the program's, which may become one
                for name in ("__set__", "__delete__"):
                    self.guard_lookup(cls, name, self.static_lookup(cls, name))
        return found

    def guard_class_attribute(self, cls: type, name: str, raw: Any) -> None:
        """The class must still find the same function under this name."""
        if (id(cls), name) in self._global_guards:
            return
        self._global_guards.add((id(cls), name))
        source = Const(cls, cls.__qualname__)
        if isinstance(raw, classmethod):
            self.guards.add(ClassMethodIs(source, name, raw.__func__))
        else:
            self.guards.add(AttributeIs(source, name, raw))

    def is_settled_function(self, fn: types.FunctionType) -> bool:
        """Whether the code of a function never changes: library functions, and those that replace builtins."""
        return classify.is_settled(fn.__module__ or "") or self.in_polyfill(fn.__code__)

    def guard_lookup(self, cls: type, name: str, raw: Any) -> None:
        """The class must keep finding ``raw`` under ``name`` (MISSING: nothing), on which the protocol depends."""
        if classify.is_settled(str(cls.__module__)) or (id(cls), name) in self._global_guards:
            return
        source = Const(cls, cls.__qualname__)
        if raw is MISSING and not hasattr(cls, name):
            self.guards.add(NoAttribute(source, name))
        elif raw is MISSING:  # its metaclass has one
            self.guards.add(NotInClasses(source, name))
        elif isinstance(raw, (classmethod, types.FunctionType)) and type(cls) is type:
            self.guard_class_attribute(cls, name, raw)
        else:
            self.guards.add(ClassFinds(source, name, raw))
        self._global_guards.add((id(cls), name))

    def guard_text(self, obj: Any, function: Callable, result: Any, what: str) -> None:
        """A function of ours or a builtin one goes on giving this result for a class, a function or a module."""
        cls = obj if isinstance(obj, type) else type(obj)
        if isinstance(obj, types.ModuleType) or not classify.is_settled(str(cls.__module__)):
            self.guards.add(FunctionGives(Const(obj, short(obj)), function, result, what))

    def is_settled_class(self, cls: type | types.FunctionType) -> bool:
        return classify.is_settled(str(cls.__module__))

    def guard_bases(self, cls: type) -> None:
        """The class must go on deriving from the same classes."""
        if classify.is_settled(str(cls.__module__)) or (id(cls), "__mro__") in self._global_guards:
            return
        self._global_guards.add((id(cls), "__mro__"))
        self.guards.add(DerivesAsBefore(Const(cls, cls.__qualname__), cls.__mro__))

    def is_subclass(self, cls: type, other: Any) -> bool:
        """``issubclass``, guarded; a metaclass may answer by itself, as abstract base classes do."""
        found = issubclass(cls, other)
        if cls is other or (classify.is_settled(str(cls.__module__)) and type(other) is type):
            return found
        if type(other) is type:
            self.guard_bases(cls)
        elif not (classify.is_settled(str(cls.__module__)) and classify.is_settled(str(other.__module__))):
            self.guards.add(IsSubclass(Const(cls, cls.__qualname__), other, found))
        return found

    def identity_matters(self, *values: Value) -> None:
        """The trace continues as if these objects differed from all others that it has seen."""
        for value in values:
            if value.source is None or (isinstance(value, RealValue) and not isinstance(value, WeakrefValue)):
                continue  # new, or guarded by identity anyway
            if isinstance(value, FunctionValue):
                self.guards.is_object(value.source, value.fn)
            elif not isinstance(value, TensorValue):  # inputs of the graph are always guarded to be distinct
                self._distinct.add(value.pytype())

    def guard_distinct(self) -> None:
        """Objects that the trace changed, or asked the identity of, must not become one object that is met twice."""
        changed = {value.source for value in self.effects.changed_values}
        values = [self._memo[id(obj)] for obj in self._keep]
        cells = [value.source for value in values if type(value) is CellValue and value.source is not None]
        guard_cells(self, cells, self._shared_cells, changed)
        groups: dict[type, list[Source]] = {}
        for obj in self._keep:
            value = self._memo[id(obj)]
            if isinstance(value.source, Cell):  # of the frame: a cell for each variable
                continue
            if value.source is not None and not isinstance(value, (TensorValue, FunctionValue)):
                groups.setdefault(type(obj), []).append(value.source)
        for cls, sources in groups.items():
            if len(sources) > 1 and (cls in self._distinct or not changed.isdisjoint(sources)):
                self.guards.distinct.append(sources)

    def guard_no_global_hooks(self, module: types.ModuleType, names: tuple[str, ...]) -> None:
        if (id(module), *names) in self._global_guards:
            return
        self._global_guards.add((id(module), *names))
        source = Const(module, module.__name__)
        self.guards.add(NoGlobalHooks(source, names))

    # --- guard shorthands ------------------------------------------------------------------------------------------

    def _identity(self, obj: Any, source: Source | None) -> None:
        if source is not None:
            self.guards.is_object(source, obj)

    def guards_type(self, source: Source | None, cls: type) -> None:
        if source is not None:
            self.guards.type_is(source, cls)

    def guards_equal(self, source: Source | None, obj: Any) -> None:
        if source is not None:
            self.guards.equals(source, obj)
