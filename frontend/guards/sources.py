"""Where a value came from: one small class for each way to get from one value to the next.

A :class:`Source` is a path from something that the traced frame can reach (an argument, a global, an object known when
the program was compiled) to a value.  It has three faces, and a way to be followed:

* ``expression`` is the Python that a guard and the compiled frame load the value by,
* ``in_words`` is the path as a person would write it,
* ``follow`` is what the path leads to for as long as a snapshot's watch sees no write, or ``OPEN``.

Nobody reads a face back: who has to know what a source is asks it, or asks for its class.
"""

from __future__ import annotations

import gc
import keyword
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from .closed import Member, kind
from .stable_objects import OPEN, TABLES, StableObjects

if TYPE_CHECKING:
    from .loader import Loader


class Source(Member):
    """A path to a value.  Sources are equal when they take the same way."""

    __slots__ = ()

    ANSWERS: ClassVar = ("expression", "in_words", "follow")

    parent: Source | None

    def expression(self, out: Loader) -> str:
        """The Python for the value; ``out`` loads the parent and names constants."""
        raise NotImplementedError

    def in_words(self, parent: str) -> str:
        """The path for a person, given the parent's words."""
        raise NotImplementedError

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        """What the path leads to from the parent's value until ``objects`` sees a write, or ``OPEN``."""
        raise NotImplementedError

    def words(self) -> str:
        """The path as a person would write it."""
        return self.in_words(self.parent.words() if self.parent is not None else "")

    def short_words(self) -> str:
        """The same without the tables of modules: ``net['weight']``, not ``net._parameters['weight']``."""
        parent = self.parent
        if isinstance(self, Item) and isinstance(parent, Attr) and parent.name in TABLES:
            parent = parent.parent
        return self.in_words(parent.short_words() if parent is not None else "")

    def module_path(self) -> str:
        """The same as torch writes the paths of modules: ``net.layers.0``."""
        parent = self.parent
        if isinstance(self, Item) and isinstance(parent, Attr) and parent.name in TABLES and parent.parent is not None:
            return f"{parent.parent.module_path()}.{self.key}"
        return self.in_words(parent.module_path() if parent is not None else "")

    def depth(self) -> int:
        return 1 + (self.parent.depth() if self.parent is not None else 0)

    def root(self) -> Source:
        return self.parent.root() if self.parent is not None else self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.words()}>"


def not_followed(self: Source, objects: StableObjects, parent: Any) -> Any:
    """The answer of a source whose value no watch can promise: it is loaded anew in each check."""
    return OPEN


# --- where paths begin -----------------------------------------------------------------------------------------------


class Argument(Source):
    """What a check is handed by name: an argument of the frame, or the contents of one of its cells."""

    __slots__ = ()

    name: str


@kind
class Local(Argument):
    """An argument of the traced frame."""

    name: str
    parent: None = field(init=False, default=None, compare=False)

    def expression(self, out: Loader) -> str:
        return out.local(self)

    def in_words(self, parent: str) -> str:
        return self.name

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.argument(self.name, self)


@kind
class CellContents(Argument):
    """What is in a cell that the traced frame got from its function."""

    name: str
    parent: None = field(init=False, default=None, compare=False)

    def expression(self, out: Loader) -> str:
        return out.local(self)

    def in_words(self, parent: str) -> str:
        return self.name

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.argument(self.name, self)


@kind
class Cell(Source):
    """A cell object of the traced frame itself, not its contents.  A check sees no cells, so none holds for one."""

    name: str
    parent: None = field(init=False, default=None, compare=False)

    def expression(self, out: Loader) -> str:
        return out.local(self)

    def in_words(self, parent: str) -> str:
        return f"cell of {self.name}"

    follow = not_followed


@kind
class Const(Source):
    """An object that is the same whatever happens: a class, an imported module."""

    obj: Any
    name: str = field(compare=False)
    parent: None = field(init=False, default=None, compare=False)

    def expression(self, out: Loader) -> str:
        return out.const(self.obj)

    def in_words(self, parent: str) -> str:
        return self.name

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.constant(self.obj)


@kind
class Global(Source):
    """A global variable of a module."""

    namespace: dict
    name: str
    parent: None = field(init=False, default=None, compare=False)

    def expression(self, out: Loader) -> str:
        return f"{out.const(self.namespace)}[{self.name!r}]"

    def in_words(self, parent: str) -> str:
        return f"global {self.name}"

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.global_value(self.namespace, self.name, self)


# --- attributes ------------------------------------------------------------------------------------------------------


def attribute_of(text: str, name: str) -> str:
    """The Python that reads an attribute, whatever its name is."""
    if name.isidentifier() and name.isascii() and not keyword.iskeyword(name):
        return f"{text}.{name}"
    return f"getattr({text}, {name!r})"


@kind
class Attr(Source):
    """An attribute, as the program reads it."""

    parent: Source
    name: str

    def expression(self, out: Loader) -> str:
        return attribute_of(out.load(self.parent), self.name)

    def in_words(self, parent: str) -> str:
        return f"{parent}.{self.name}"

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.attribute(parent, self.name, self)


@kind
class RawAttr(Source):
    """An attribute of an object whose class has a ``__getattribute__`` of its own, which is passed by.

    ``base`` is the builtin class whose objects the values are: ``object``, or ``threading.local``.
    """

    parent: Source
    name: str
    base: type = object

    def expression(self, out: Loader) -> str:
        value = out.load(self.parent)
        return f"{out.const(self.base.__getattribute__)}({value}, {self.name!r})"

    def in_words(self, parent: str) -> str:
        return f"{parent}.{self.name}"

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.attribute(parent, self.name, self, raw=True) if self.base is object else OPEN


@kind
class Descriptor(Source):
    """What stands in a class under a name, before Python binds it."""

    parent: Source
    name: str

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}.__dict__[{self.name!r}]"

    def in_words(self, parent: str) -> str:
        return f"{parent}.{self.name}"

    follow = not_followed


# --- items -----------------------------------------------------------------------------------------------------------


def _key_text(key: Any) -> str | None:
    """The literal for a key that is safe to print, else None."""
    return repr(key) if type(key) in (str, int, bool, type(None)) else None


def _key_words(key: Any) -> str:
    return _key_text(key) or type(key).__name__


def own_item(base: type, mapping: Any, key: Any) -> Any:
    """What a dictionary has under a key.  To read it must not make it: ``__missing__`` is not asked.

    Raises:
        KeyError: it has nothing there.
    """
    found = base.get(mapping, key, OPEN)  # type: ignore[attr-defined]
    if found is OPEN:
        raise KeyError(key)
    return found


@kind
class Item(Source):
    """An item of a list, a tuple or a plain dict."""

    parent: Source
    key: Any

    def expression(self, out: Loader) -> str:
        value = out.load(self.parent)
        return f"{value}[{_key_text(self.key) or out.const(self.key)}]"

    def in_words(self, parent: str) -> str:
        owner = parent.removesuffix(".__dict__")
        return f"{parent}[{_key_words(self.key)}]" if owner == parent else f"{owner}.{self.key}"

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.item(parent, self.key)


@kind
class RawItem(Source):
    """An item of a container whose class may override ``__getitem__``; ``base`` is the builtin class behind it."""

    parent: Source
    base: type
    key: Any

    def expression(self, out: Loader) -> str:
        value = out.load(self.parent)
        key = _key_text(self.key) or out.const(self.key)
        if issubclass(self.base, dict):
            return f"{out.const(own_item)}({out.const(self.base)}, {value}, {key})"
        return f"{out.const(self.base)}.__getitem__({value}, {key})"

    def in_words(self, parent: str) -> str:
        return f"{parent}[{_key_words(self.key)}]"

    follow = not_followed


@kind
class ItemOf(Source):
    """An item of a dictionary, under the key that another source leads to; ``base`` is the builtin class behind it.

    A key that is known by its identity must not be a constant of the path: another dictionary has other keys.
    """

    parent: Source
    base: type
    key: Source

    def expression(self, out: Loader) -> str:
        value, key = out.load(self.parent), out.load(self.key)
        return f"{out.const(own_item)}({out.const(self.base)}, {value}, {key})"

    def in_words(self, parent: str) -> str:
        return f"{parent}[{self.key.words()}]"

    follow = not_followed


@kind
class Elements(Source):
    """The keys of a dictionary or the elements of a set, as a list; ``base`` is the builtin class behind it."""

    parent: Source
    base: type

    def expression(self, out: Loader) -> str:
        return f"list({out.const(self.base)}.__iter__({out.load(self.parent)}))"

    def in_words(self, parent: str) -> str:
        return f"elements of {parent}"

    follow = not_followed


@kind
class Element(Source):
    """A key of a dictionary or an element of a set, by its position."""

    parent: Source
    base: type
    position: int

    def expression(self, out: Loader) -> str:
        return f"{out.load(Elements(self.parent, self.base))}[{self.position}]"

    def in_words(self, parent: str) -> str:
        return f"{'key' if issubclass(self.base, dict) else 'element'} of {parent}"

    follow = not_followed


@kind
class ClosureCell(Source):
    """A cell of a function; ``name`` is the variable in it."""

    parent: Source
    index: int
    name: str = field(compare=False)

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}.__closure__[{self.index}]"

    def in_words(self, parent: str) -> str:
        return f"cell {self.name} of {parent}"

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.closure_cell(parent, self.index)


# --- what a call gives -----------------------------------------------------------------------------------------------


@kind
class Size(Source):
    """The size of one dimension of a tensor."""

    parent: Source
    dim: int

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}.size({self.dim})"

    def in_words(self, parent: str) -> str:
        return f"size {self.dim} of {parent}"

    follow = not_followed


@kind
class Converted(Source):
    """A value in the form in which a graph takes it: ``function`` makes it of the program's."""

    parent: Source
    function: Callable

    def expression(self, out: Loader) -> str:
        value = out.load(self.parent)
        return f"{out.const(self.function)}({value})"

    def in_words(self, parent: str) -> str:
        return parent

    follow = not_followed


@kind
class NumpyItem(Source):
    """The Python number that one of NumPy's is."""

    parent: Source

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}.item()"

    def in_words(self, parent: str) -> str:
        return f"{parent}.item()"

    follow = not_followed


@kind
class Drawn(Source):
    """A number that a generator of Python's gives to this call.

    Only the frame loads it, and once: a check that did so would take the number from the program.
    """

    parent: Source
    method: str
    arguments: tuple
    place: int  # among the numbers that the frame draws

    def expression(self, out: Loader) -> str:
        arguments = ", ".join(map(out.const, self.arguments))
        return f"{attribute_of(out.load(self.parent), self.method)}({arguments})"

    def in_words(self, parent: str) -> str:
        return f"{parent}.{self.method}()"

    follow = not_followed


@kind
class Referent(Source):
    """What a weak reference refers to."""

    parent: Source

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}()"

    def in_words(self, parent: str) -> str:
        return f"{parent}()"

    follow = not_followed


def in_context(variable: ContextVar, falls_back: bool) -> Any:
    """What a context variable has in this context; its own default counts if it ``falls_back``.

    Raises:
        KeyError: it has nothing.
    """
    try:
        found = variable.get() if falls_back else variable.get(OPEN)
    except LookupError:
        found = OPEN
    if found is OPEN:
        raise KeyError(variable)
    return found


@kind
class InContext(Source):
    """What a context variable has in this context."""

    parent: Source
    falls_back: bool  # to the default that the variable was made with

    def expression(self, out: Loader) -> str:
        return f"{out.const(in_context)}({out.load(self.parent)}, {self.falls_back})"

    def in_words(self, parent: str) -> str:
        return f"{parent}.get()"

    follow = not_followed


@kind
class IteratorArguments(Source):
    """What a builtin iterator was made of."""

    parent: Source

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}.__reduce__()[1]"

    def in_words(self, parent: str) -> str:
        return parent

    follow = not_followed


@kind
class Upcoming(Source):
    """What a builtin iterator gives after ``ahead`` others, wherever it stands."""

    parent: Source
    ahead: int

    @staticmethod
    def of(iterator: Any, ahead: int) -> Any:
        """What ``next()`` would return after ``ahead`` calls; the iterator stays where it is."""
        try:
            _, (items,), *position = iterator.__reduce__()
        except RuntimeError as error:  # the dictionary has changed
            raise IndexError from error
        read = next((cls.__getitem__ for cls in (list, tuple) if isinstance(items, cls)), type(items).__getitem__)
        return read(items, ahead + (position[0] or 0 if position else 0))

    def expression(self, out: Loader) -> str:
        return f"{out.const(self.of)}({out.load(self.parent)}, {self.ahead})"

    def in_words(self, parent: str) -> str:
        return f"next({parent})" if not self.ahead else f"item {self.ahead} ahead of {parent}"

    follow = not_followed


@kind
class GeneratorArgument(Source):
    """What a generator that has not begun was called with."""

    parent: Source
    name: str

    def expression(self, out: Loader) -> str:
        return f"{out.load(self.parent)}.gi_frame.f_locals[{self.name!r}]"

    def in_words(self, parent: str) -> str:
        return f"{self.name} of {parent}"

    follow = not_followed


@kind
class Proxied(Source):
    """The mapping behind a ``MappingProxyType`` or a view, which only the garbage collector knows."""

    parent: Source

    def expression(self, out: Loader) -> str:
        proxy = out.load(self.parent)
        return f"{out.const(gc.get_referents)}({proxy})[0]"

    def in_words(self, parent: str) -> str:
        return parent

    def follow(self, objects: StableObjects, parent: Any) -> Any:
        return objects.proxied(parent)


@kind
class IteratedDict(Source):
    """The dictionary that an iterator goes over, which only the garbage collector knows."""

    parent: Source

    def expression(self, out: Loader) -> str:
        iterator = out.load(self.parent)
        return f"{out.const(gc.get_referents)}({iterator})[0]"

    def in_words(self, parent: str) -> str:
        return f"dictionary of {parent}"

    follow = not_followed
