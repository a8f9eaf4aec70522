"""What of a program's objects stays as it is for as long as a watch sees no write.

:class:`StableObjects` goes one step at a time, from a value to an attribute or an item, and notes in its watch what the
step depends on.  What cannot be noted is ``OPEN``.  Sources and guards ask it; it knows neither.
"""

from __future__ import annotations

import abc
import collections
import gc
import types
from collections.abc import Container, Hashable, Iterable
from typing import Any

import torch

from . import tensor_words
from .reach import Reach, reach_of
from .write_watch import FUNCTION_PARTS, Watch

OPEN: Any = object()  # nothing is known

TABLES = ("_parameters", "_buffers", "_modules")  # where a module registers what it owns
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_SCALARS = frozenset({bool, int, float, complex, str, bytes, types.NoneType, torch.dtype, torch.device})
_METACLASSES = (type, abc.ABCMeta, type(torch.Tensor))  # which read attributes as usual
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: no other class can be written to
_READ_FROM_A_CLASS = (  # reading them from a class, not from an instance, gives these objects themselves
    types.FunctionType, property, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip


class StableObjects:
    """Steps from arguments, from modules among the globals, and from what else stays as it is.

    ``root`` is the module that the owner of the compiled callable has, and keeps alive.  ``volatile`` has the ids of
    what was seen to change; that is not watched.  ``fleeting`` has the paths that led to other objects in other calls;
    no path begins there.
    """

    def __init__(
        self,
        frame_locals: dict,
        root: torch.nn.Module | None = None,
        volatile: Container[int] = (),
        fleeting: Container[Hashable] = (),
    ) -> None:
        self.watch = Watch()
        # path -> an object to which it must lead in each call.  The watch keeps none of them alive but the owner.
        self.roots: dict[Hashable, Any] = {}
        # path -> a table of a module that changes: that it is there is checked, what is in it is followed
        self.pinned: dict[Hashable, dict] = {}
        self._locals = frame_locals
        self._owner = root
        self._owned = set() if root is None else {id(module) for module in root.modules()}
        self._reaches: dict[int, Reach | None] = {}
        self._volatile = volatile
        self._fleeting = fleeting
        self._namespaces: dict[int, dict | None] = {}
        self._tables: dict[int, dict] = {}  # dictionaries that are noted
        self._classes: dict[type, bool] = {}
        self._globals: set[int] = set()  # those of functions: their names are noted, what is behind them is not
        self._slotted: set[int] = set()  # those whose slots are noted

    # --- steps -----------------------------------------------------------------------------------------------------

    def argument(self, name: str, path: Hashable) -> Any:
        """An argument of the frame, or what is in a cell of it."""
        return self._root(self._locals[name], path)

    def constant(self, obj: Any) -> Any:
        if type(obj) is dict and "__builtins__" in obj and self._note(obj):
            self._globals.add(id(obj))
            return obj
        if issubclass(type(obj), (type, types.FunctionType, types.ModuleType)) or self._owns(obj):
            return obj
        return obj if self._note_slots(obj) else OPEN  # the check holds it in any case

    def global_value(self, namespace: dict, name: str, path: Hashable) -> Any:
        return self._outside(namespace, name, path)

    def item(self, parent: Any, key: Any) -> Any:
        if id(parent) in self._globals:
            return OPEN
        if id(parent) in self._tables and key in parent:
            return self._known(parent[key])
        if type(parent) is tuple and type(key) is int and -len(parent) <= key < len(parent):
            return self._known(parent[key])
        return OPEN

    def attribute(self, parent: Any, name: str, path: Hashable, raw: bool = False) -> Any:
        """An attribute that ``path`` leads to; ``raw``: read past the class's own ``__getattribute__``."""
        if type(parent) is types.ModuleType:
            return self._outside(parent.__dict__, name, path)
        if issubclass(type(parent), type):
            return (
                self._known(_static(parent, name), owned=False) if self.notes_attribute_of_class(parent, name) else OPEN
            )
        if type(parent) is types.FunctionType and name == "__globals__":
            return parent.__globals__  # which nobody can replace
        if type(parent) is types.FunctionType and name in FUNCTION_PARTS:
            if id(parent) in self._volatile:
                return OPEN
            self.watch.part(parent, name)
            return getattr(parent, name)
        if type(parent) is types.CellType and name == "cell_contents":
            if issubclass(type(parent.cell_contents), torch.Tensor):
                return OPEN
            return self._known(parent.cell_contents, owned=False) if self._note_words(parent) else OPEN
        if type(parent).__getattribute__ is not object.__getattribute__ and not raw:
            return OPEN
        return self._attribute_of_instance(parent, name, path)

    def _attribute_of_instance(self, obj: Any, name: str, path: Hashable) -> Any:
        if self._note_slots(obj):
            is_slot = isinstance(_static(type(obj), name), types.MemberDescriptorType)
            return self._known(getattr(obj, name, OPEN), owned=False) if is_slot else OPEN
        namespace = self._namespace(obj)
        if namespace is None or (name != "__dict__" and _has_data_descriptor(type(obj), name)):
            return OPEN
        if id(namespace) not in self._tables:  # it changes
            found = namespace.get(name)
            if name in TABLES and type(found) is dict:
                self.pinned[path] = found
                return self._known(found)
            return OPEN
        return namespace if name == "__dict__" else self._known(namespace.get(name, OPEN))

    def _root(self, obj: Any, path: Hashable) -> Any:
        """An object from which paths begin: each call must bring the same."""
        if path in self._fleeting or issubclass(type(obj), torch.Tensor) or not type(obj).__weakrefoffset__:
            return OPEN
        if not is_instance(obj) and type(obj) is not types.FunctionType:
            return OPEN
        if obj is not self._owner:  # a part of the owner's may be replaced, and nobody would come to this path again
            reach = self._reach(obj)
            if reach is None or not reach.closed:
                return OPEN
            self._owned |= {id(obj), *reach.modules}
            self.watch.leave(obj)
        self.roots[path] = obj
        return obj

    def _outside(self, namespace: dict, name: str, path: Hashable) -> Any:
        """A global.  What has modules begins paths of its own, so that it may go."""
        found = namespace.get(name, OPEN)
        if is_instance(found) and not issubclass(type(found), torch.Tensor):
            reach = self._reach(found)
            if reach is None or reach.modules or issubclass(type(found), torch.nn.Module):
                return self._root(found, path)
        return self._known(found, owned=False) if self._note(namespace) else OPEN

    def _reach(self, obj: Any) -> Reach | None:
        if id(obj) not in self._reaches:
            self._reaches[id(obj)] = reach_of(obj)
        return self._reaches[id(obj)]

    def _known(self, obj: Any, owned: bool = True) -> Any:
        """The object, if keeping it alive is right."""
        if issubclass(type(obj), torch.nn.Module):
            return obj if self._owns(obj) else OPEN
        if issubclass(type(obj), torch.Tensor) and not owned:
            return OPEN
        if type(obj) is dict:
            self._note(obj)
        return obj

    def _owns(self, module: Any) -> bool:
        return id(module) in self._owned

    def closure_cell(self, function: Any, index: int) -> Any:
        """A cell of a function, not its contents."""
        closure = self.attribute(function, "__closure__", None) if type(function) is types.FunctionType else OPEN
        return closure[index] if type(closure) is tuple and index < len(closure) else OPEN

    def proxied(self, proxy: Any) -> Any:
        """The mapping behind a proxy, which is always the same."""
        return self._known(gc.get_referents(proxy)[0]) if type(proxy) is types.MappingProxyType else OPEN

    # --- notes -----------------------------------------------------------------------------------------------------

    def _namespace(self, obj: Any) -> dict | None:
        """The ``__dict__`` of an instance whose class and ``__dict__`` are noted."""
        if id(obj) not in self._namespaces:
            found = None
            if is_instance(obj):
                found = self.watch.header(obj)
            self._namespaces[id(obj)] = found
            if found is not None and self._note(found):
                self.watch.attributes(obj, found)
        return self._namespaces[id(obj)]

    def _note(self, d: dict) -> bool:
        if id(d) in self._volatile or type(d) is not dict:
            return False
        self._tables[id(d)] = d
        self.watch.contents(d)
        return True

    def _note_words(self, obj: Any) -> bool:
        if id(obj) in self._volatile:
            return False
        self.watch.words(obj)
        return True

    def _note_slots(self, obj: Any) -> bool:
        """Whether an object has slots only, as the fields of a data class do, and all of them are noted."""
        if id(obj) in self._slotted:
            return True
        cls = type(obj)
        if cls.__flags__ & _HEAP_TYPE == 0 or cls.__dictoffset__ or cls.__itemsize__ or isinstance(obj, type):
            return False
        if not all(map(_is_written_in_python, cls.__mro__)) or not self.notes_class(cls) or not self._note_words(obj):
            return False
        self._slotted.add(id(obj))
        return True

    # --- what guards ask -------------------------------------------------------------------------------------------

    def notes_class(self, cls: type) -> bool:
        """Whether the attributes of a class, and of what it derives from, are noted."""
        if cls not in self._classes:
            noted = type(cls) in _METACLASSES and self.watch.bases(cls)
            for base in cls.__mro__ if noted else ():
                if base.__flags__ & _HEAP_TYPE:
                    (namespace,) = gc.get_referents(base.__dict__)
                    noted = noted and self._note(namespace)
            self._classes[cls] = noted
        return self._classes[cls]

    def notes_module(self, module: Any) -> bool:
        """Whether the attributes of an imported module are noted."""
        return type(module) is types.ModuleType and self._note(module.__dict__)

    def owns(self, module: torch.nn.Module) -> bool:
        """Whether paths begin from a module, or from one that it is part of."""
        return self._owns(module)

    def notes_attribute_of_class(self, cls: type, name: str) -> bool:
        """Whether reading this attribute of a class goes on giving what it gives now."""
        if _has_data_descriptor(type(cls), name):
            return False  # its metaclass comes first
        return _is_found_as_it_is(_static(cls, name)) and self.notes_class(cls)

    def notes_type_of(self, obj: Any) -> bool:
        """Whether the class that an object has is noted, or cannot change."""
        if issubclass(type(obj), type):
            return False
        if self.notes_contents(obj) or not _may_get_another_class(obj):
            return True
        if id(obj) in self._volatile:
            return False
        self.watch.class_of(obj)
        return True

    def notes_tensor(self, tensor: Any) -> bool:
        """Whether all that guards compare of a tensor is noted."""
        return id(tensor) not in self._volatile and tensor_words.note(self.watch, tensor)

    def notes_contents(self, obj: Any) -> bool:
        """Whether a dictionary's or a tuple's own contents are noted, or cannot change."""
        return id(obj) in self._tables or type(obj) is tuple

    def notes_keys(self, obj: Any) -> bool:
        """Whether the keys of a dictionary are noted, and their order.

        An ordered dictionary moves a key without a write that a watch sees, but not if there is only one.
        """
        if type(obj) is collections.OrderedDict and len(obj) <= 1 and id(obj) not in self._volatile:
            self.watch.contents(obj)
            return True
        return self.notes_contents(obj)

    def notes_namespace(self, module: Any) -> bool:
        """Whether all that a module has of its own is noted."""
        namespace = self._module_namespace(module)
        return namespace is not None and id(namespace) in self._tables

    def notes_tables(self, module: Any) -> bool:
        """Whether all that a module has and registers is noted."""
        if not self.notes_namespace(module):
            return False
        namespace = self._namespaces[id(module)]
        assert namespace is not None
        tables = [self._known(namespace.get(name)) for name in TABLES]
        return all(id(table) in self._tables for table in tables)

    def notes_no_hooks(self, module: Any) -> bool:
        """Whether a module has no hooks, and getting one is noted."""
        if not self.notes_namespace(module):
            return False
        namespace = self._namespaces[id(module)]
        assert namespace is not None
        tables = [namespace.get(name) for name in HOOKS if not _has_data_descriptor(type(module), name)]
        return len(tables) == len(HOOKS) and all(map(self._stays_empty, tables))

    def notes_empty(self, module: Any, names: Iterable[str]) -> bool:
        """Whether these tables of an imported module are empty, and it is noted if that changes."""
        return self.notes_module(module) and all(self._stays_empty(module.__dict__.get(name)) for name in names)

    def _stays_empty(self, table: Any) -> bool:
        """Whether a table is empty, and getting something is noted."""
        if not isinstance(table, dict) or table or id(table) in self._volatile:
            return False
        self.watch.contents(table)
        return True

    def _module_namespace(self, module: Any) -> dict | None:
        if not issubclass(type(module), torch.nn.Module):
            return None
        namespace = self._namespace(module)
        return namespace if type(module).__getattribute__ is object.__getattribute__ else None


def is_instance(obj: Any) -> bool:
    """Whether an object has attributes, and a class that was written in Python."""
    return hasattr(type(obj), "__dict__") and bool(type(obj).__flags__ & _HEAP_TYPE) and not issubclass(type(obj), type)


def _is_written_in_python(cls: type) -> bool:
    return cls is object or "__slots__" in cls.__dict__


def _may_get_another_class(obj: Any) -> bool:
    return bool(type(obj).__flags__ & _HEAP_TYPE) or isinstance(obj, types.ModuleType)


def is_scalar(obj: Any) -> bool:
    """Whether an object is of a builtin class whose values never change."""
    return type(obj) in _SCALARS


def _static(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return OPEN


def _is_found_as_it_is(raw: Any) -> bool:
    """Whether reading a class attribute returns what the class holds."""
    return raw is not OPEN and (isinstance(raw, _READ_FROM_A_CLASS) or not hasattr(type(raw), "__get__"))


def _has_data_descriptor(cls: type, name: str) -> bool:
    found = _static(cls, name)
    return found is not OPEN and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"))
