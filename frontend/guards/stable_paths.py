"""Follows sources through what a watch can watch, to tell which guards hold for as long as it sees no change."""

from __future__ import annotations

import abc
import ast
import gc
import re
import types
from collections.abc import Container
from typing import Any

import torch

from ..values.modules import HOOKS, NO_HOOKS, TABLES, unregistered
from .guards import Guard
from .sources import LocalSource, Source
from .write_watch import Watch

OPEN: Any = object()  # nothing is known

_SCALARS = frozenset({bool, int, float, complex, str, bytes, types.NoneType, torch.dtype, torch.device})
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: no other class can be written to
_FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")

# conditions on a dictionary or tuple that its contents decide
_ON_CONTENTS = re.compile(r"'\w+' (not )?in \{0\}|tuple\(\{0\}\) == \{1\}|len\(\{0\}\) == \d+|type\(\{0\}\) is \{1\}")
_ON_CLASS = re.compile(r"\{0\}\.(\w+) is \{1\}|not hasattr\(\{0\}, '(\w+)'\)")
_UNREGISTERED = re.compile(re.escape(unregistered("!")).replace("'!'", r"'\\w+'"))
_IDENTITY = re.compile(r"\{0\} is (\{1\}|\{other\}|None|True|False|\.\.\.)")
_ATTRIBUTE = re.compile(r"\{0\}\.(\w+)|\{1\}\(\{0\}, '(\w+)'\)")
_GLOBAL = re.compile(r"\{1\}\['(\w+)'\]")


class Walk:
    """Follows sources from the modules that the owner of a compiled callable has, and from globals.

    ``volatile`` has the ids of what was seen to change; that is not watched.
    """

    def __init__(self, frame_locals: dict, root: torch.nn.Module, volatile: Container[int] = ()) -> None:
        self.watch = Watch()
        self.roots: dict[str, Any] = {}
        # an object in a module that changes: that it is there is checked, what is in it is followed
        self.pins: dict[Source, Guard] = {}
        self._locals = frame_locals
        self._owned = {id(module) for module in root.modules()}
        self._volatile = volatile
        self._values: dict[Source, Any] = {}
        self._namespaces: dict[int, dict | None] = {}
        self._tables: dict[int, dict] = {}  # dictionaries that are noted
        self._classes: dict[type, bool] = {}

    # --- values ----------------------------------------------------------------------------------------------------

    def value(self, source: Source) -> Any:
        """What a source leads to for as long as nothing noted changes, or OPEN."""
        if source not in self._values:
            self._values[source] = self._follow(source)
        return self._values[source]

    def _follow(self, source: Source) -> Any:
        if isinstance(source, LocalSource):
            found = self._locals[source.name]
            if isinstance(found, torch.nn.Module) and self._owns(found):
                self.roots[source.name] = found
                return found
            return OPEN
        if source.parent is None:
            return self._constant(source)
        parent = self.value(source.parent)
        if parent is OPEN:
            return OPEN
        key = source.consts[0] if source.template == "{0}[{1}]" else _literal(source.template)
        if key is not OPEN:
            return self._item(parent, key)
        match = _ATTRIBUTE.fullmatch(source.template)
        if match is None or (source.consts and source.consts != (object.__getattribute__,)):
            return OPEN
        return self._attribute(parent, match[1] or match[2], source)

    def _constant(self, source: Source) -> Any:
        if source.template == "{1}":
            (obj,) = source.consts
            return obj if isinstance(obj, type | types.FunctionType | types.ModuleType) or self._owns(obj) else OPEN
        match = _GLOBAL.fullmatch(source.template)
        if match is None or not self._note(source.consts[0]):
            return OPEN
        return self._known(source.consts[0].get(match[1], OPEN), owned=False)

    def _item(self, parent: Any, key: Any) -> Any:
        if id(parent) in self._tables and key in parent:
            return self._known(parent[key])
        if type(parent) is tuple and type(key) is int and -len(parent) <= key < len(parent):
            return self._known(parent[key])
        return OPEN

    def _attribute(self, parent: Any, name: str, source: Source) -> Any:
        if type(parent) is types.ModuleType:
            found = parent.__dict__.get(name, OPEN) if self._note(parent.__dict__) else OPEN
            return self._known(found, owned=False)
        if isinstance(parent, type):
            found = _static(parent, name)
            return self._known(found, owned=False) if _is_found_as_it_is(found) and self._watches(parent) else OPEN
        if type(parent) is types.FunctionType and name in _FUNCTION_PARTS:
            return getattr(parent, name) if self._note_words(parent) else OPEN
        if type(parent) is types.CellType and name == "cell_contents":
            if isinstance(parent.cell_contents, torch.Tensor):
                return OPEN
            return self._known(parent.cell_contents, owned=False) if self._note_words(parent) else OPEN
        if type(parent).__getattribute__ is not object.__getattribute__ and not source.consts:
            return OPEN
        return self._attribute_of_instance(parent, name, source)

    def _attribute_of_instance(self, obj: Any, name: str, source: Source) -> Any:
        namespace = self._namespace(obj)
        if namespace is None or (name != "__dict__" and _has_data_descriptor(type(obj), name)):
            return OPEN
        if id(namespace) not in self._tables:  # it changes
            found = namespace.get(name)
            if name in TABLES and type(found) is dict:
                self.pins[source] = Guard(source, "{0} is {1}", (found,))
                return self._known(found)
            return OPEN
        return namespace if name == "__dict__" else self._known(namespace.get(name, OPEN))

    def _known(self, obj: Any, owned: bool = True) -> Any:
        """The object, if keeping it alive is right."""
        if isinstance(obj, torch.nn.Module):
            return obj if self._owns(obj) else OPEN
        if isinstance(obj, torch.Tensor) and not owned:
            return OPEN
        if type(obj) is dict:
            self._note(obj)
        return obj

    def _owns(self, module: Any) -> bool:
        return id(module) in self._owned

    # --- notes -----------------------------------------------------------------------------------------------------

    def _namespace(self, obj: Any) -> dict | None:
        """The ``__dict__`` of an instance whose class and ``__dict__`` are noted."""
        if id(obj) not in self._namespaces:
            found = None
            if hasattr(type(obj), "__dict__") and type(obj).__flags__ & _HEAP_TYPE and not isinstance(obj, type):
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

    def _watches(self, cls: type) -> bool:
        """Whether the attributes of a class, and of what it derives from, are noted."""
        if cls not in self._classes:
            noted = type(cls) in (type, abc.ABCMeta) and self.watch.bases(cls)
            for base in cls.__mro__ if noted else ():
                if base.__flags__ & _HEAP_TYPE:
                    (namespace,) = gc.get_referents(base.__dict__)
                    noted = noted and self._note(namespace)
            self._classes[cls] = noted
        return self._classes[cls]

    # --- guards ----------------------------------------------------------------------------------------------------

    def settles(self, guard: Guard) -> bool:
        """Whether a guard that holds now holds until something noted changes."""
        value = self.value(guard.source)
        if value is OPEN or (guard.other is not None and self.value(guard.other) is OPEN):
            return False
        if _IDENTITY.fullmatch(guard.condition):
            return True
        if guard.other is not None:
            return False
        if isinstance(value, type):
            match = _ON_CLASS.fullmatch(guard.condition)
            if match is None or not self._watches(value):
                return False
            return match[1] is None or _is_found_as_it_is(_static(value, match[1]))
        if not all(type(c) in _SCALARS or isinstance(c, type | tuple) for c in guard.consts):
            return False
        if type(value) in _SCALARS:
            return True
        if guard.condition == "type({0}) is {1}" and self._namespaces.get(id(value)) is not None:
            return True
        if isinstance(value, torch.nn.Module):
            return self._settles_module(value, guard.condition)
        has_contents = id(value) in self._tables or type(value) is tuple
        return has_contents and _ON_CONTENTS.fullmatch(guard.condition) is not None

    def _settles_module(self, module: torch.nn.Module, condition: str) -> bool:
        namespace = self._namespace(module)
        if namespace is None or type(module).__getattribute__ is not object.__getattribute__:
            return False
        if condition == "type({0}) is {1}":
            return True
        if id(namespace) not in self._tables:
            return False
        if condition == NO_HOOKS:
            return self._has_no_hooks(module, namespace)
        if _UNREGISTERED.fullmatch(condition) is None:
            return False
        tables = [self._known(namespace.get(name)) for name in TABLES]
        return all(id(table) in self._tables for table in tables)

    def _has_no_hooks(self, module: torch.nn.Module, namespace: dict) -> bool:
        for name in HOOKS:
            hooks = namespace.get(name)
            if not isinstance(hooks, dict) or hooks or _has_data_descriptor(type(module), name):
                return False
            self.watch.contents(hooks)
        return True


def _literal(template: str) -> Any:
    """The key of a template ``{0}[key]``, or OPEN."""
    if not template.startswith("{0}[") or not template.endswith("]"):
        return OPEN
    try:
        return ast.literal_eval(template[4:-1].replace("{{", "{").replace("}}", "}"))
    except (ValueError, SyntaxError):
        return OPEN


def _static(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return OPEN


def _is_found_as_it_is(raw: Any) -> bool:
    """Whether reading a class attribute gives what stands in the class."""
    return raw is not OPEN and (isinstance(raw, types.FunctionType | property) or not hasattr(type(raw), "__get__"))


def _has_data_descriptor(cls: type, name: str) -> bool:
    found = _static(cls, name)
    return found is not OPEN and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"))
